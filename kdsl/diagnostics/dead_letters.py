"""The dead letters of a topic, for people and programs: list, count, and send the records again.

Letters are at-least-once, so one record may have several; those with the same `DeadLetter.id` are one record.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import needs_jvm, open_admin, record_reader, subscribe
from kdsl.errors import DeadLetterError, KdslError
from kdsl.plan.model import ReadPlan, Topics
from kdsl.run.dead_letters.headers import (
    AT,
    ATTEMPTS,
    COLUMN,
    ID,
    KEYED,
    NEEDS,
    OFFSET,
    PARTITION,
    REASON,
    SIDE,
    TABLE,
    TIMESTAMP,
    TOPIC,
    TRUNCATED,
    header_text,
    original_headers,
)
from kdsl.run.librdkafka.producer import ProducerError, borrow_producer, explain_failure
from kdsl.run.offsets.stored import Range
from kdsl.run.records.metadata import HEADERS, NO_TIMESTAMP
from kdsl.types import model as t

Headers = tuple[tuple[str, bytes | None], ...]
ORIGINAL = "original"
"""The target of a replay to the topic from which each record came."""
MAX_ATTEMPTS = 3
_SELECTED = ("table", "side", "column", "reason")


@attrs.frozen
class DeadLetter:
    """A record that a table could not read.

    Attributes:
        topic: The topic of the original record.
        partition: Its partition.
        offset: Its offset.
        timestamp: Its timestamp in milliseconds; -1 if it has none.
        key: The message key; None if it has none.
        value: The message value; None for a tombstone.
        headers: The headers of the original record.
        table: The table that could not read it.
        side: The part at fault: ``key``, ``value``, or ``record``.
        column: The column at fault, if it is known.
        reason: Why it could not be read.
        attempts: How often it has been rejected.
        at: When it was rejected, as text.
        truncated: The bytes of the original value, if the letter has only its beginning; otherwise None.
        keyed: Whether rows of the table replace each other by key.
        id: The identity of the record.
        letter: The topic, partition and offset of the letter itself.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    table: str = ""
    side: str = ""
    column: str | None = None
    reason: str = ""
    attempts: int = 1
    at: str = ""
    truncated: int | None = None
    keyed: bool = False
    id: str = ""
    letter: tuple[str, int, int] = ("", 0, 0)


@attrs.frozen
class Selection:
    """Which letters are meant; empty fields select all.

    Attributes:
        table: The table.
        where: Strings that attributes contain, by the attribute's name: ``reason``, ``side``, ``column``, ``table``.

    Raises:
        DeadLetterError: ``where`` names another attribute.
    """

    table: str | None = None
    where: Mapping[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        """Check the attributes that ``where`` names; raise a DeadLetterError if letters cannot be selected by one."""
        wrong = sorted(self.where.keys() - set(_SELECTED))
        if wrong:
            raise DeadLetterError(f"letters have no {wrong[0]!r} to select by; write one of {', '.join(_SELECTED)}")

    def matches(self, letter: DeadLetter) -> bool:
        """Whether a letter is of the table and its attributes contain all strings of ``where``; case matters."""
        if self.table is not None and letter.table != self.table:
            return False
        return all(text in (getattr(letter, name) or "") for name, text in self.where.items())


def read_letters(cluster: Cluster, topic: str) -> Iterator[DeadLetter]:
    """Yield the letters that a topic has now, those of each partition in their order.

    A record without the headers of a letter is returned, too, as a letter of itself.

    Args:
        cluster: The cluster of the topic.
        topic: The topic.

    Raises:
        KafkaReadError: The brokers refuse or cannot be reached, or the topic does not exist.
        ResolveError: The client settings have errors.
        KdslError: As for `open_admin`, where only Java's client can log in.
    """
    for batch in _read(cluster, topic):
        yield from _parse_letters(batch)


def count_letters(letters: Iterable[DeadLetter]) -> dict[tuple[str, str, str], int]:
    """Count records by table, side and reason, the most frequent first.

    Of letters of the same record only the last one counts.
    """
    distinct = {letter.id: (letter.table, letter.side, letter.reason) for letter in letters}
    return dict(Counter(distinct.values()).most_common())


@attrs.frozen
class Replay:
    """What a replay has done, in letters.

    Attributes:
        sent: Sent, and acknowledged; in a dry run, those that would be sent.
        dropped: Dropped by the mapping function.
        repeated: Letters of a record that was handled already.
        exhausted: Left, because they were rejected too often.
        truncated: Left, because their values are incomplete.
        outdated: Left, because the original topic has a later record with the same key, or the record has no key.
        unselected: Not selected.
    """

    sent: int = 0
    dropped: int = 0
    repeated: int = 0
    exhausted: int = 0
    truncated: int = 0
    outdated: int = 0
    unselected: int = 0


Mapper = Callable[[DeadLetter], DeadLetter | None]
"""Returns the record to send, changed or not, or None to drop it."""


def default_group(topic: str, to: str, selection: Selection, target: Cluster | None = None) -> str:
    """The consumer group of a replay: its own for each selection and target, so that none skips letters of another.

    Args:
        topic: The topic of the letters.
        to: The target: a topic, or ``"original"``.
        selection: The selected letters.
        target: The cluster to which the records are sent, which its bootstrap servers distinguish, in any order; None
            for that of the letters.
    """
    servers = () if target is None else (sorted(target.bootstrap_servers.replace(" ", "").split(",")),)
    chosen = repr((to, selection.table, sorted(selection.where.items()), *servers))
    return f"kdsl-dlq-{topic}-{sha256(chosen.encode()).hexdigest()[:8]}"


def replay(
    cluster: Cluster,
    topic: str,
    to: str,
    *,
    target: Cluster | None = None,
    selection: Selection | None = None,
    change: Mapper | None = None,
    max_attempts: int = MAX_ATTEMPTS,
    force: bool = False,
    dry_run: bool = False,
    group: str | None = None,
    from_start: bool = False,
) -> Replay:
    """Send the records of dead letters again, each once, and append them to a topic.

    The records are sent with their original timestamps and headers, and with the headers ``kdsl.dlq.id`` and
    ``kdsl.dlq.attempts``. The consumer group's offsets are committed when the records are acknowledged, also past
    letters that are not sent: an interrupted replay that starts again repeats one batch at most.

    Args:
        cluster: The cluster of the letters.
        topic: The topic of the letters.
        to: ``"original"`` for the topic and partition from which each record came, or a topic.
        target: The cluster to which the records are sent; by default that of the letters.
        selection: Which letters; by default all.
        change: Maps each record: it may change key, value, headers and timestamp. None sends them unchanged.
        max_attempts: Records that were rejected as often are left.
        force: For a table by key, also send records without a key, and those whose key has a later record in the
            original topic. That is the topic of the target or, if ``to`` names another topic and the target does not
            have it, of the cluster of the letters.
        dry_run: Send and commit nothing; ``change`` is called all the same.
        group: The consumer group; by default `default_group`.
        from_start: Begin with the first letter, not at the group's offsets.

    Returns:
        What was done with the letters from there on.

    Raises:
        DeadLetterError: A record cannot be sent, the mapping function fails, an original topic that must be searched
            for later records does not exist, or only Java's client can log in to the target.
        KafkaReadError: The brokers refuse or cannot be reached, a topic does not exist, or offsets cannot be committed,
            for example because the group has members.
        ResolveError: The client settings have errors.
        KdslError: As for `open_admin`, where only Java's client can log in to the cluster of the letters.
    """
    chosen, sending = selection or Selection(), target or cluster
    if needs_jvm(sending):
        raise DeadLetterError(
            f"a replay writes with librdkafka, which cannot log in to {sending.bootstrap_servers}: only Java's clients "
            "can, as with Kerberos; name listeners with another login (target=, --to-bootstrap), or read the letters "
            "with Table.dead_letters() and write them with Spark"
        )
    group = group or default_group(topic, to, chosen, target)
    admin = open_admin(cluster, topic)
    partitions = [(topic, partition) for partition in range(_count_partitions(cluster, topic))]
    done = {} if from_start else admin.committed(group, partitions)
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    for batch in _read(cluster, topic):
        letters: list[DeadLetter] = []
        ends: dict[TopicPartition, int] = {}
        for letter in _parse_letters(batch):
            partition, offset = letter.letter[:2], letter.letter[2]
            outcome = _judge(letter, chosen, seen, max_attempts)
            if outcome != "unselected":
                seen.add(letter.id)
            if offset < done.get(partition, 0):
                continue
            ends[partition] = offset + 1
            if outcome:
                counts[outcome] += 1
            elif (changed := _change(letter, change)) is None:
                counts["dropped"] += 1
            else:
                letters.append(changed)
        keyed = [] if force else [letter for letter in letters if letter.keyed]
        outdated = _find_outdated((sending,) if to == ORIGINAL else (sending, cluster), keyed)
        wanted = [letter for letter in letters if letter.id not in outdated]
        counts["outdated"] += len(letters) - len(wanted)
        counts["sent"] += len(wanted)
        if dry_run:
            continue
        for start in range(0, len(wanted), BATCH):
            _send(sending, wanted[start : start + BATCH], to)
            admin.commit(group, _positions(wanted[start + BATCH :], ends))
        if ends:
            admin.commit(group, ends)
    return Replay(**counts)


BATCH = 500
"""How many records a replay sends before it commits."""


def _positions(waiting: Iterable[DeadLetter], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The positions that may be committed: the first waiting letter of each partition, or else the end in ``ends``.

    ``ends`` must have every partition with a waiting letter.
    """
    positions = dict(ends)
    for letter in waiting:
        partition = letter.letter[:2]
        positions[partition] = min(positions[partition], letter.letter[2])
    return positions


def _judge(letter: DeadLetter, selection: Selection, seen: Collection[str], max_attempts: int) -> str:
    """Return why a letter is not sent, as a field name of `Replay`; an empty string if it may be sent.

    It is not selected, its record came before, its value is truncated, or it was rejected too often.

    Args:
        letter: The letter.
        selection: The selected letters.
        seen: The ids of the records whose letters came before; not changed.
        max_attempts: Letters that were rejected as often or more are not sent.
    """
    if not selection.matches(letter):
        return "unselected"
    if letter.id in seen:
        return "repeated"
    if letter.truncated is not None:
        return "truncated"
    return "exhausted" if letter.attempts >= max_attempts else ""


def _change(letter: DeadLetter, change: Mapper | None) -> DeadLetter | None:
    """Return a letter with key, value, headers and timestamp of the mapping function's result; None drops it.

    DeadLetterError if the function fails, or returns neither a letter nor None.
    """
    if change is None:
        return letter
    try:
        changed = change(letter)
    except Exception as e:
        raise DeadLetterError(
            f"the mapping function failed at the letter of {letter.id}: {type(e).__name__}: {e}"
        ) from e
    if changed is None:
        return None
    if not isinstance(changed, DeadLetter):
        raise DeadLetterError(
            f"the mapping function returned {type(changed).__name__} for the letter of {letter.id}; return the letter, "
            "attrs.evolve(letter, value=…), or None"
        )
    return attrs.evolve(
        letter, key=changed.key, value=changed.value, headers=tuple(changed.headers), timestamp=changed.timestamp
    )


def _find_outdated(clusters: Collection[Cluster], letters: Iterable[DeadLetter]) -> set[str]:
    """Find the records whose key has a later one in the original partition, or that have no key; return their ids.

    Args:
        clusters: The clusters that may have the original topics; of several that have one, the first one counts.
        letters: The letters of the records.

    Raises:
        DeadLetterError: No cluster has an original topic.
        KdslError: The original partitions cannot be read; errors as for `read_letters`.
    """
    outdated: set[str] = set()
    wanted: dict[TopicPartition, list[tuple[bytes, DeadLetter]]] = {}
    for letter in letters:
        if letter.key is None:
            outdated.add(letter.id)
        else:
            wanted.setdefault((letter.topic, letter.partition), []).append((letter.key, letter))
    home = {topic: _find_original(clusters, topic) for topic in {topic for topic, _ in wanted}}
    for (topic, partition), of_partition in wanted.items():
        first = min(letter.offset for _, letter in of_partition) + 1
        keys = pa.array([key for key, _ in of_partition], pa.binary())
        last: dict[bytes, int] = {}
        for batch in _read(home[topic], topic, {"key"}, {partition: first}):
            matching = batch.filter(pc.is_in(batch.column("key"), keys))
            last.update(zip(matching.column("key").to_pylist(), matching.column("offset").to_pylist(), strict=True))
        outdated |= {letter.id for key, letter in of_partition if last.get(key, -1) > letter.offset}
    return outdated


def _find_original(clusters: Collection[Cluster], topic: str) -> Cluster:
    """Return the first of some clusters that has an original topic.

    Raises:
        DeadLetterError: None has it.
        KdslError: A cluster cannot be asked; errors as for `read_letters`.
    """
    for cluster in clusters:
        if open_admin(cluster, topic).topics([topic]):
            return cluster
    places = " or ".join(dict.fromkeys(cluster.bootstrap_servers for cluster in clusters))
    raise DeadLetterError(
        f"the topic {topic!r}, from which records of a table by key came, is not on {places}, so that later records "
        "with their keys cannot be found; create it, or send the records all the same (force=True, --force)"
    )


def _send(cluster: Cluster, letters: list[DeadLetter], to: str) -> None:
    """Send records to a topic, or with ``original`` to the topics and partitions from which they came.

    Waits until they are acknowledged. The producer is kept in the client pool.

    Raises:
        DeadLetterError: A topic does not exist or may not be written to, or a record was not acknowledged; earlier ones
            may have been.
        ResolveError: The client settings have errors.
    """
    own = {"acks": "all", "enable.idempotence": "true", "allow.auto.create.topics": "false", "client.id": "kdsl-dlq"}
    settings = {**cluster.producer(), **own}
    by_topic: dict[str, list[DeadLetter]] = {}
    for letter in letters:
        by_topic.setdefault(letter.topic if to == ORIGINAL else to, []).append(letter)
    try:
        with borrow_producer(settings, "replay") as producer:
            for topic, of_topic in by_topic.items():
                if code := producer.look_up(topic, 30, creating=False):
                    raise DeadLetterError(
                        f"cannot write to the topic {topic!r} (error {code} of librdkafka): it does not exist, or this "
                        "user may not write to it; create it, grant WRITE and DESCRIBE, or name another topic"
                    )
                rows = np.arange(len(of_topic), dtype=np.int64)
                producer.send(topic, _records(of_topic, to == ORIGINAL), rows)
            producer.flush()
            failure = producer.failure
            if failure is not None:
                limits = {name: settings.get(name, "") for name in ("message.max.bytes", "delivery.timeout.ms")}
                reason, fix = explain_failure(failure, limits, producer.last_error)
                raise DeadLetterError(
                    f"a record cannot be sent to {failure.topic!r}: {reason}{f'; {fix}' if fix else ''}"
                )
    except ProducerError as e:
        raise DeadLetterError(f"the records cannot be sent: {e}") from None


def _records(letters: list[DeadLetter], same_partition: bool) -> pa.RecordBatch:
    """Convert letters to a record batch for the producer, with the headers for id and attempts added.

    Its column ``partition`` exists only if the records go to their original partitions. A timestamp of 0 or less
    becomes NULL, the time of sending.
    """
    headers = [
        [
            {"key": name, "value": value}
            for name, value in (
                *original_headers(letter.headers),
                (ID, letter.id.encode()),
                (ATTEMPTS, str(letter.attempts).encode()),
            )
        ]
        for letter in letters
    ]
    times = [letter.timestamp if letter.timestamp > 0 else None for letter in letters]
    columns = {
        "key": pa.array([letter.key for letter in letters], pa.binary()),
        "value": pa.array([letter.value for letter in letters], pa.binary()),
        "headers": pa.array(headers, HEADERS),
        "timestamp": pa.array(times, pa.int64()),
    }
    if same_partition:
        columns["partition"] = pa.array([letter.partition for letter in letters], pa.int32())
    return pa.RecordBatch.from_pydict(columns)


_EMPTY = t.Row((), nullable=False)


def _plan_raw_read(topic: str) -> ReadPlan:
    """Plan a read of a topic's records without columns."""
    return ReadPlan(topic, Topics((topic,)), _EMPTY, _EMPTY)


def _count_partitions(cluster: Cluster, topic: str) -> int:
    """Ask the brokers how many partitions a topic has; errors as for `read_letters`."""
    subscription = subscribe(_plan_raw_read(topic), cluster)
    return len(subscription.partitions(subscription.topics()))


def _read(
    cluster: Cluster, topic: str, needs: Iterable[str] = NEEDS, first: Mapping[int, int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a topic up to its present end, as raw record batches.

    Args:
        cluster: The cluster.
        topic: The topic.
        needs: The fields of the batches.
        first: Where to begin, by partition; only these are read. None reads all from their beginnings.

    Raises:
        KafkaReadError: The brokers refuse or cannot be reached, or the topic does not exist.
        ResolveError: The client settings have errors.
        KdslError: Only Java's client can log in, and its connector cannot be attached, or Java refuses the settings.
    """
    plan = _plan_raw_read(topic)
    subscription = subscribe(plan, cluster)
    partitions = [p for p in subscription.partitions(subscription.topics()) if first is None or p[1] in first]
    start, ends = subscription.admin.earliest(partitions), subscription.ends(partitions)
    begin = {p: max(start[p], 0 if first is None else first[p[1]]) for p in partitions}
    ranges = [Range(*p, begin[p], ends[p]) for p in partitions if ends[p] > begin[p]]
    if not ranges:
        return
    with record_reader(cluster, plan, set(needs), name="kdsl-dlq", large=True) as reader:
        yield from reader.read(ranges)


def _parse_letters(batch: pa.RecordBatch) -> Iterator[DeadLetter]:
    """Yield a letter for each raw record of a batch."""
    for row in batch.to_pylist():
        headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
        yield _parse_letter(row, headers)


def _parse_letter(row: Mapping[str, Any], headers: list[tuple[str, bytes | None]]) -> DeadLetter:
    """Make a letter of a raw record; a record without a letter's headers is its own origin.

    A number that cannot be parsed in a header counts as missing.
    """

    def number(name: str, default: int) -> int:
        """Return the integer in a header; the default if it is missing or not an integer."""
        text = header_text(headers, name)
        return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text) else default

    topic = header_text(headers, TOPIC)
    truncated = number(TRUNCATED, -1)
    origin = topic or row["topic"], number(PARTITION, row["partition"]), number(OFFSET, row["offset"])
    time = row["timestamp"] if row["timestamp"] is not None else NO_TIMESTAMP
    return DeadLetter(
        *origin,
        timestamp=number(TIMESTAMP, time),
        key=row["key"],
        value=row["value"],
        headers=tuple(original_headers(headers)),
        table=header_text(headers, TABLE) or "",
        side=header_text(headers, SIDE) or "",
        column=header_text(headers, COLUMN),
        reason=header_text(headers, REASON) or "",
        attempts=max(1, number(ATTEMPTS, 1)),
        at=header_text(headers, AT) or "",
        truncated=None if truncated < 0 else truncated,
        keyed=header_text(headers, KEYED) == "true",
        id=header_text(headers, ID) or "-".join(map(str, origin)),
        letter=(row["topic"], row["partition"], row["offset"]),
    )


def find_letter(cluster: Cluster, topic: str, id_: str) -> DeadLetter:
    """Read a whole topic of letters, and return the newest letter of a record.

    Args:
        cluster: The cluster of the letters.
        topic: Their topic.
        id_: The identity of the record.

    Raises:
        KdslError: The topic has no letter of the record, or cannot be read.
    """
    newest = None
    for letter in read_letters(cluster, topic):
        if letter.id == id_:
            newest = letter
    if newest is None:
        raise KdslError(f"the topic {topic!r} has no letter of the record {id_!r}; kdsl dlq list {topic} shows all")
    return newest


def time_text(millis: int) -> str:
    """A timestamp in milliseconds as ISO 8601 in UTC, or ``none`` if it is negative."""
    return "none" if millis < 0 else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
