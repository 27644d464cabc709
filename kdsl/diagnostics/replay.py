"""Sends the records of dead letters again, each once.

A record is sent once to a topic, whatever letters are selected and however often a replay starts, is interrupted or
runs at the same time as another one: a lease lets one replay of a topic of letters run at a time, and
`kdsl.diagnostics.replay_ledger` knows what was sent.
"""

from __future__ import annotations

import logging
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO

import attrs
import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import needs_jvm, open_admin
from kdsl.diagnostics.dead_letters import DeadLetter, Selection, parse_letters
from kdsl.diagnostics.newer_records import KeyedRecord, TopicSearch
from kdsl.diagnostics.replay_ledger import Ledger, Target, look_for, send
from kdsl.diagnostics.replay_topics import ReplayTopics
from kdsl.diagnostics.topic_records import read_topic
from kdsl.errors import DeadLetterError, LeaseHeldError
from kdsl.run.dead_letters.headers import ATTEMPTS, ID, NEEDS, Origin, original_headers
from kdsl.run.leases.lease import Lease
from kdsl.run.records.metadata import HEADERS

log = logging.getLogger("kdsl.replay")

ORIGINAL = "original"
"""The target of a replay to the topic from which each record came."""
MAX_ATTEMPTS = 3
BATCH = 500
"""How many records a replay sends at a time."""


@attrs.frozen
class Replay:
    """What a replay has done, in records.

    Attributes:
        sent: Sent, and acknowledged; in a dry run, those that would be sent.
        done: Sent to the same topic by an earlier replay of these letters or, for records by key, of others.
        dropped: Dropped by the mapping function.
        exhausted: Left, because they were rejected too often.
        truncated: Left, because their values are incomplete.
        outdated: Left, because a later record with their key exists.
        keyless: Left, because they have no key by which later records could be searched.
        unverified: Left, because later records with their key may have existed: the log was compacted or deleted, or
            their topic is gone.
        recreated: Left, because their topic is gone, or another one with its name has taken its place.
        unknown: Left, because an earlier replay was interrupted while it sent them, and the records of the target from
            that time are gone.
        unselected: Not selected.
        repeated: How many further letters the records have.
        overtaken: How many of the sent ones are behind a newer record with their key, which was written to the same
            topic while they were sent.
        late: How many of the sent ones are older than the watermark of their table allows, so that a query may drop
            their rows.
    """

    sent: int = 0
    done: int = 0
    dropped: int = 0
    exhausted: int = 0
    truncated: int = 0
    outdated: int = 0
    keyless: int = 0
    unverified: int = 0
    recreated: int = 0
    unknown: int = 0
    unselected: int = 0
    repeated: int = 0
    overtaken: int = 0
    late: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether every selected record was sent, now or earlier, or dropped by the mapping function.

        False, too, if a sent one was overtaken.
        """
        return not self.overtaken and not any(getattr(self, name) for name in LEFT)


LEFT = ("exhausted", "truncated", "outdated", "keyless", "unverified", "recreated", "unknown")
"""The attributes of `Replay` that count selected records that were not sent."""
_LETTERS_FIX = (
    "the letters themselves were written by librdkafka, and replays note there what they have sent: name the listeners "
    "and the login of scan.dead-letter.properties.* (--bootstrap, --property), and those of the records, if they are "
    "others, as the target (target=, --to-bootstrap)"
)
_TARGET_FIX = "name listeners with another login (target=, --to-bootstrap)"
"""What to do if only Java's clients can log in to the cluster of the letters, or to that of the records."""
Mapper = Callable[[DeadLetter], DeadLetter | None]
"""Returns the record to send, changed or not, or None to drop it."""


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
    resend_unknown: bool = False,
    dry_run: bool = False,
) -> Replay:
    """Send the records of dead letters again, and append them to a topic; each record is sent there once.

    The records are sent with their original timestamps and headers, and with the headers ``kdsl.dlq.id`` and
    ``kdsl.dlq.attempts``, in the order in which they were in each partition. What was sent is noted in the topic of the
    letters.

    Args:
        cluster: The cluster of the letters. Its user needs WRITE on their topic, and READ on the consumer group
            ``TOPIC.kdsl-replay``, which lets one replay run at a time.
        topic: The topic of the letters.
        to: ``"original"`` for the topic and partition from which each record came, or a topic.
        target: The cluster to which the records are sent; by default that of the letters.
        selection: Which letters; by default all.
        change: Maps each record: it may change key, value, headers and timestamp. None sends them unchanged.
        max_attempts: Records that were rejected as often are left.
        force: Also send records by key that are older than others with their key or may be, and those without one.
            Records are by key if rows that are read from their topic may replace each other, or if the
            target is compacted. They are searched for in the original topic and the target.
        resend_unknown: Also send records that an interrupted replay may have sent, if the target cannot show it any
            more: they may then be there twice.
        dry_run: Send and note nothing; ``change`` is called all the same.

    Returns:
        What was done with each record that has letters.
    """
    sending = target or cluster
    for used, fix in ((cluster, _LETTERS_FIX), (sending, _TARGET_FIX)):
        if needs_jvm(used):
            raise DeadLetterError(
                f"a replay writes with librdkafka, which cannot log in to {used.bootstrap_servers}: only Java's "
                f"clients can, as with Kerberos; {fix}, or read the letters with Table.dead_letters() and write them "
                "with Spark"
            )
    with _hold_lease(cluster, topic, dry_run=dry_run) as lease, tempfile.TemporaryFile() as file:
        run = _Run(cluster, topic, to, sending, selection or Selection(), max_attempts, force, resend_unknown, dry_run)
        spool = _Spool(file)
        records = run.map(run.choose(), change, spool)
        run.send(records, spool, lease)
        return Replay(**run.counts)


@contextmanager
def _hold_lease(cluster: Cluster, topic: str, *, dry_run: bool) -> Iterator[Lease | None]:
    """Hold the lease of a topic of letters during the body; none for a dry run."""
    if dry_run:
        yield None
        return
    meaning = f"this replay was cut off from the brokers for too long, and another one of {topic!r} is running"
    lease = Lease(cluster, f"{topic}.kdsl-replay", "kdsl-dlq", topics=[topic], meaning=meaning)
    try:
        lease.acquire()
    except LeaseHeldError as e:
        holders = "; ".join(map(str, e.holders))
        raise LeaseHeldError(
            e.lease, e.holders, f"another replay of the letters in {topic!r} is running: {holders}; wait until it ends"
        ) from e
    with lease:
        yield lease


class _Spool:
    """Keeps letters in a file, so that any number of them can be put in order."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def add(self, letter: DeadLetter) -> int:
        """Append a letter, and return its position."""
        position = self._file.tell()
        pickle.dump(letter, self._file)
        return position

    def read(self, position: int) -> DeadLetter:
        """Read the letter at a position."""
        self._file.seek(position)
        letter = pickle.load(self._file)  # noqa: S301  # written above
        assert isinstance(letter, DeadLetter)
        return letter


@attrs.frozen
class _RecordToSend:
    """A record to send.

    Attributes:
        position: Its position in the spool.
        origin: Where it was.
        target: The topic that gets it.
        key: Its key, if later records with it must be searched for; None otherwise.
    """

    position: int
    origin: Origin
    target: str
    key: bytes | None


@attrs.define
class _Letters:
    """The letters of one record; several tables may have written some.

    Attributes:
        best: The last complete one; the last one if all are cut.
        count: How many there are.
        is_selected: Whether one of them is selected.
        keyed: Whether the rows of one of the tables replace each other by key.
        lateness: The smallest lateness of the tables with a watermark; None without one.
    """

    best: DeadLetter
    count: int = 0
    is_selected: bool = False
    keyed: bool = False
    lateness: int | None = None

    def add(self, letter: DeadLetter, *, is_selected: bool) -> None:
        """Add a letter."""
        self.count += 1
        if letter.truncated is None or self.best.truncated is not None:
            self.best = letter
        self.is_selected |= is_selected
        self.keyed |= letter.keyed
        if letter.lateness is not None:
            self.lateness = min(letter.lateness, self.lateness if self.lateness is not None else letter.lateness)


class _Run:
    """One replay; the arguments are those of `replay`.

    Attributes:
        counts: What was done with the records, by the attributes of `Replay`.
    """

    def __init__(
        self, cluster: Cluster, topic: str, to: str, sending: Cluster, selection: Selection, max_attempts: int,
        force: bool, resend_unknown: bool, dry_run: bool,
    ) -> None:  # fmt: skip
        self._cluster, self._topic, self._to, self._sending = cluster, topic, to, sending
        self._selection, self._max_attempts = selection, max_attempts
        self._force, self._resend_unknown, self._dry_run = force, resend_unknown, dry_run
        self._ledger = Ledger(cluster, topic)
        self._topics = ReplayTopics(sending)
        self.counts: Counter[str] = Counter()

    def choose(self) -> dict[tuple[str, int, int], _Letters]:
        """Read letters and notes; return the records that may be sent, by the place of a letter; count the others."""
        self._check_transactions()
        records: dict[str, _Letters] = {}
        for batch in read_topic(self._cluster, self._topic, NEEDS):
            self._ledger.add(batch)
            for letter in parse_letters(batch):
                light = attrs.evolve(letter, value=None, headers=())
                of_record = records.setdefault(letter.id, _Letters(light))
                of_record.add(light, is_selected=self._selection.matches(letter))
        maybe_sent: dict[Target, dict[str, Mapping[int, int]]] = {}
        waiting: dict[str, DeadLetter] = {}
        for id_, one in records.items():
            if not one.is_selected:
                self.counts["unselected"] += 1
                continue
            self.counts["repeated"] += one.count - 1
            # What was sent by name to a topic that replaced the record's own is there, too.
            target = self._target(one.best) or self._topics.find(one.best.topic)
            if target is not None and self._ledger.is_sent(id_, target):
                self.counts["done"] += 1
                continue
            waiting[id_] = one.best
            if target is not None and (begins := self._ledger.begins(id_, target)):
                maybe_sent.setdefault(target, {})[id_] = begins
        for target, begins_of in maybe_sent.items():
            self._resolve(target, begins_of, waiting)
        for id_, letter in [*waiting.items()]:
            if reason := self._refuse(letter):
                self.counts[reason] += 1
                del waiting[id_]
        return {letter.letter: records[id_] for id_, letter in waiting.items()}

    def _check_transactions(self) -> None:
        """Refuse letters with an open transaction, behind which a client that reads committed records sees no notes."""
        if self._cluster.consumer().get("isolation.level") != "read_committed":
            return
        admin = open_admin(self._cluster, self._topic)
        state = admin.topics([self._topic]).get(self._topic)
        partitions = [(self._topic, number) for number in range(0 if state is None else state.partitions)]
        ends, committed = admin.latest(partitions, committed=False), admin.latest(partitions, committed=True)
        if hidden := sorted(partition for partition in partitions if committed[partition] < ends[partition]):
            raise DeadLetterError(
                f"a transaction is open in the topic {self._topic!r}, partition {hidden[0][1]}, from offset "
                f"{committed[hidden[0]]}: what was sent is not known until it ends; replay again then, or set the "
                "client property isolation.level to read_uncommitted"
            )

    def _target(self, letter: DeadLetter) -> Target | None:
        """Return the topic to which a record goes; None if it must be its own, which does not exist any more."""
        if self._to != ORIGINAL:
            if (target := self._topics.find(self._to)) is None:
                raise DeadLetterError(
                    f"cannot write to the topic {self._to!r}: it does not exist on {self._sending.bootstrap_servers}, "
                    "or this user may not see it; create it, grant WRITE and DESCRIBE, or name another topic"
                )
            return target
        target = self._topics.find(letter.topic)
        if target is None or letter.partition >= target.partitions:
            return None
        return target if letter.topic_id in ("", target.id) else None

    def _refuse(self, letter: DeadLetter) -> str:
        """Return why a record that was not sent yet is left, as an attribute of `Replay`; empty if it may be sent."""
        if letter.truncated is not None:
            return "truncated"
        if letter.attempts >= self._max_attempts:
            return "exhausted"
        return "" if self._target(letter) is not None else "recreated"

    def _resolve(self, target: Target, begins: Mapping[str, Mapping[int, int]], waiting: dict[str, DeadLetter]) -> None:
        """Find in a topic the records that an interrupted replay may have sent, and remove them from ``waiting``.

        Those that are there count as done, and the ledger notes them as sent, except in a dry run. Those that may have
        been there, because the topic's records of that time are gone, are logged and count as unknown; they stay in
        ``waiting`` if unknown ones are sent again.
        """
        admin = open_admin(self._sending, target.topic)
        partitions = target.topic_partitions
        earliest = {p[1]: offset for p, offset in admin.earliest(partitions).items()}
        ends = {p[1]: offset for p, offset in admin.latest(partitions, committed=False).items()}
        uncommitted = self._sending.with_properties({"isolation.level": "read_uncommitted"})
        compacts = self._topics.retention(target.topic).compacts
        present, unknown = look_for(uncommitted, target, begins, earliest, ends, compacts=compacts)
        if present and not self._dry_run:
            self._ledger.note("sent", [waiting[id_] for id_ in sorted(present)], target, {})
        left = set() if self._resend_unknown else unknown
        for id_ in sorted(left):
            log.warning("%s may be in the topic %r already: an interrupted replay has tried to send it, and the "
                        "records of that time are gone", id_, target.topic)  # fmt: skip
        self.counts["done"] += len(present)
        self.counts["unknown"] += len(left)
        for id_ in present | left:
            del waiting[id_]

    def map(
        self, chosen: Mapping[tuple[str, int, int], _Letters], change: Mapper | None, spool: _Spool
    ) -> list[_RecordToSend]:
        """Map the records of some letters, keep them in the spool, and return them in the order to send them.

        Those of a partition come in their order, those of several by their times. Those that the function drops, and
        records by key without a key, are counted.

        Args:
            chosen: The records, by the place of the letter to use.
            change: The mapping function.
            spool: Where the records are kept.
        """
        records: list[_RecordToSend] = []
        for batch in read_topic(self._cluster, self._topic, NEEDS):
            for letter in parse_letters(batch):
                if (of_record := chosen.get(letter.letter)) is None:
                    continue
                letter = attrs.evolve(letter, keyed=of_record.keyed, lateness=of_record.lateness)
                origin = Origin(letter.topic, letter.partition, letter.offset, letter.timestamp, letter.topic_id)
                if (changed := _change(letter, change)) is None:
                    self.counts["dropped"] += 1
                    continue
                target = letter.topic if self._to == ORIGINAL else self._to
                by_key = not self._force and (letter.keyed or self._topics.retention(target).compacts)
                if by_key and changed.key is None:
                    self.counts["keyless"] += 1
                    continue
                records.append(_RecordToSend(spool.add(changed), origin, target, changed.key if by_key else None))
        return _sort(records)

    def send(self, records: Sequence[_RecordToSend], spool: _Spool, lease: Lease | None) -> None:
        """Send the records that are the newest of their keys, in batches, and note them; count all.

        Before each batch the topics are searched for what was added since the last one.
        """
        searches = self._search(records)
        opened = {search for search in searches.values() if search is not None}
        for start in range(0, len(records), BATCH):
            self._update(opened)
            letters: dict[str, list[DeadLetter]] = {}
            present: dict[str, list[DeadLetter]] = {}
            for record in records[start : start + BATCH]:
                verdict = _judge_key(record, searches)
                letter = spool.read(record.position)
                if verdict != "newest":
                    self.counts[verdict] += 1
                    if verdict == "done":  # a replay of other letters, as of another table, has sent it
                        present.setdefault(record.target, []).append(letter)
                    continue
                letters.setdefault(record.target, []).append(letter)
                self.counts["late"] += self._topics.is_late(letter, record.target)
            if lease is not None and lease.lost_to is not None:
                raise DeadLetterError(str(lease.lost_to))
            for topic, of_topic in present.items():
                if not self._dry_run:
                    self._ledger.note("sent", of_topic, self._topics.get(topic), {})
            for topic, of_topic in letters.items():
                if not self._dry_run:
                    for search in opened:
                        search.newer.await_records(letter.id for letter in of_topic)
                    self._send_to(topic, of_topic)
                self.counts["sent"] += len(of_topic)
        if not self._dry_run and self.counts["sent"]:
            self._update(opened)

    def _update(self, searches: Iterable[TopicSearch]) -> None:
        """Read what was added to topics; count and log the records that were overtaken."""
        for search in searches:
            search.update()
            for id_ in sorted(search.newer.take_overtaken()):
                self.counts["overtaken"] += 1
                log.warning("%s was sent while a newer record with its key was written, and is now after it; write the "
                            "newer one again", id_)  # fmt: skip

    def _send_to(self, topic: str, letters: Sequence[DeadLetter]) -> None:
        """Send records to a topic between two notes; errors as for `send`."""
        target = self._topics.get(topic)
        numbers = {letter.partition for letter in letters} if self._to == ORIGINAL else range(target.partitions)
        ends = open_admin(self._sending, topic).latest([(topic, number) for number in numbers], committed=False)
        offsets = {partition: offset for (_, partition), offset in ends.items()}
        self._ledger.note("sending", letters, target, offsets)
        send(self._sending, {topic: _build_records(letters, same_partition=self._to == ORIGINAL)}, "replay")
        self._ledger.note("sent", letters, target, {})

    def _search(self, records: Iterable[_RecordToSend]) -> dict[tuple[str, str], TopicSearch | None]:
        """Create the searches for newer records, by the topic of a record and the one to search.

        They search the target and, where that is another one, the original topic, on the cluster of the records or
        else on that of the letters; None if neither has it.
        """
        by_topic: dict[str, list[KeyedRecord]] = {}
        pairs: dict[tuple[str, str], None] = {}
        for record in records:
            if record.key is not None:
                for topic in dict.fromkeys((record.origin.topic, record.target)):
                    by_topic.setdefault(topic, []).append(KeyedRecord(record.origin, record.key))
                    pairs[record.origin.topic, topic] = None
        of_letters = self._topics if self._cluster is self._sending else ReplayTopics(self._cluster)
        searches: dict[str, TopicSearch | None] = {}
        for topic, keyed in by_topic.items():
            places = (self._topics,) if topic == self._to or self._to == ORIGINAL else (self._topics, of_letters)
            place = next((one for one in places if one.find(topic) is not None), None)
            searches[topic] = None if place is None else place.search(topic, keyed)
        return {pair: searches[pair[1]] for pair in pairs}


def _judge_key(record: _RecordToSend, searches: Mapping[tuple[str, str], TopicSearch | None]) -> str:
    """Return ``newest`` if a record may be sent, otherwise why not, as an attribute of `Replay`."""
    if record.key is None:
        return "newest"
    keyed = KeyedRecord(record.origin, record.key)
    of_target = searches[record.origin.topic, record.target]
    if of_target is not None and of_target.newer.has(record.origin.id):
        return "done"
    verdicts = {
        "unverified" if search is None else search.newer.judge(keyed)
        for topic in (record.origin.topic, record.target)
        for search in [searches[record.origin.topic, topic]]
    }
    return next(verdict for verdict in ("outdated", "unverified", "newest") if verdict in verdicts)


def _sort(records: Sequence[_RecordToSend]) -> list[_RecordToSend]:
    """Put records in order: those of a partition by their offsets, and partitions side by side by their times."""
    newest: dict[tuple[str, str, int], int] = {}
    keys: list[tuple[int, str, str, int, int, int]] = []
    by_offset = sorted(range(len(records)), key=lambda i: records[i].origin.offset)
    for i in by_offset:
        origin = records[i].origin
        place = (origin.topic, origin.topic_id, origin.partition)
        newest[place] = max(origin.timestamp, newest.get(place, origin.timestamp))
        keys.append((newest[place], *place, origin.offset, i))
    return [records[key[-1]] for key in sorted(keys)]


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


def _build_records(letters: Sequence[DeadLetter], *, same_partition: bool) -> pa.RecordBatch:
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
