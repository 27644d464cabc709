"""What replays have sent: notes in the topic of the letters, and what the target shows where a note is missing.

Before records are sent, a note says which, to which topic, and where its partitions ended then. After they were
acknowledged, another one says so. Where a replay has died in between, the target itself shows from there on which
records it has, by the header with their identity. The notes of a letter are in its partition, after it, so they exist
at least as long as it does.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs
import numpy as np
import orjson
import pyarrow as pa

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.diagnostics.dead_letters import DeadLetter
from kdsl.diagnostics.topic_records import read_ranges
from kdsl.errors import DeadLetterError
from kdsl.run.dead_letters.headers import ID, REPLAY, header_text
from kdsl.run.librdkafka.producer import Producer, ProducerError
from kdsl.run.librdkafka.producer_pool import borrow_producer
from kdsl.run.librdkafka.write_failures import explain_failure
from kdsl.run.offsets.stored import Range
from kdsl.run.records.metadata import HEADERS

_PER_NOTE = 100
"""How many records a note names: few enough for any topic's largest message."""
State = Literal["sending", "sent"]


@attrs.frozen
class Target:
    """A topic to which records are sent.

    Attributes:
        topic: Its name.
        id: Its id; if the brokers have no ids, their addresses.
        partitions: How many partitions it has.
    """

    topic: str
    id: str
    partitions: int

    @property
    def name(self) -> str:
        """What notes call it: a topic that is created again has another name."""
        return f"{self.topic}@{self.id}"

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        """All its partitions."""
        return [(self.topic, number) for number in range(self.partitions)]


class Ledger:
    """The notes of a topic of letters.

    Args:
        cluster: The cluster of the letters.
        topic: Their topic.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self._sent: set[tuple[str, str]] = set()
        self._begins: dict[tuple[str, str], dict[int, int]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Read the notes among the records of a batch, which has values and headers."""
        for row in batch.select(["partition", "offset", "value", "headers"]).to_pylist():
            headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
            if (state := header_text(headers, REPLAY)) is None:
                continue
            try:
                self._add(state, orjson.loads(row["value"]))
            except (ValueError, KeyError, TypeError, AttributeError) as e:
                raise DeadLetterError(
                    f"the note of a replay at topic {self._topic}, partition {row['partition']}, offset "
                    f"{row['offset']} cannot be read: {type(e).__name__}: {e}; what was sent is not known for certain, "
                    "so nothing is sent; copy the letters that you need to another topic, and replay that"
                ) from e

    def _add(self, state: str, document: Any) -> None:
        """Remember a note; KeyError, TypeError, ValueError or AttributeError if the document is not one."""
        target = document["target"]
        for id_ in document["ids"]:
            if state == "sent":
                self._sent.add((id_, target))
                continue
            begins = self._begins.setdefault((id_, target), {})
            for partition, offset in document["from"].items():
                begins[int(partition)] = min(int(offset), begins.get(int(partition), int(offset)))

    def is_sent(self, id_: str, target: Target) -> bool:
        """Whether a record was sent to a topic."""
        return (id_, target.name) in self._sent

    def begins(self, id_: str, target: Target) -> Mapping[int, int]:
        """The offsets from which a topic has a record on if it was sent, by partition; empty if it was not tried."""
        return {} if self.is_sent(id_, target) else self._begins.get((id_, target.name), {})

    def note(self, state: State, letters: Iterable[DeadLetter], target: Target, ends: Mapping[int, int]) -> None:
        """Write notes about records, and wait until they are acknowledged.

        Args:
            state: ``sending`` before they are sent, ``sent`` after they were acknowledged.
            letters: The records, each with the topic, partition and offset of its letter.
            target: The topic to which they are sent.
            ends: The ends of the topic's partitions before they are sent.
        """
        by_partition: dict[int, list[str]] = {}
        for letter in letters:
            by_partition.setdefault(letter.letter[1], []).append(letter.id)
        notes = [
            (partition, {"target": target.name, "ids": ids, "from": {str(p): end for p, end in ends.items()}})
            for partition, of_partition in by_partition.items()
            for ids in (of_partition[at : at + _PER_NOTE] for at in range(0, len(of_partition), _PER_NOTE))
        ]
        records = pa.RecordBatch.from_pydict(
            {
                "key": pa.array([uuid.uuid4().bytes for _ in notes], pa.binary()),  # a compacted topic keeps it
                "value": pa.array([orjson.dumps(document) for _, document in notes], pa.binary()),
                "headers": pa.array([[{"key": REPLAY, "value": state.encode()}]] * len(notes), HEADERS),
                "partition": pa.array([partition for partition, _ in notes], pa.int32()),
            }
        )
        send(self._cluster, {self._topic: records}, "replay notes")
        for _, document in notes:
            self._add(state, document)


def send(cluster: Cluster, records: Mapping[str, pa.RecordBatch], purpose: str) -> None:
    """Send records to topics, and wait until they are acknowledged. The producer is kept in the client pool.

    Args:
        cluster: The cluster.
        records: The records of each topic, as `kdsl.run.librdkafka.producer.Producer.send` takes them.
        purpose: What the producer is for.
    """
    own = {"acks": "all", "enable.idempotence": "true", "allow.auto.create.topics": "false", "client.id": "kdsl-dlq"}
    settings = {**cluster.producer(), **own}
    settings.pop("transactional.id", None)
    try:
        with borrow_producer(settings, purpose) as producer:
            for topic, batch in records.items():
                _look_up(producer, topic)
                producer.send(topic, batch, np.arange(batch.num_rows, dtype=np.int64))
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


def _look_up(producer: Producer, topic: str) -> None:
    """Ask for a topic; DeadLetterError if it cannot be written, ProducerError if the producer has failed."""
    if code := producer.look_up(topic, 30, creating=False):
        raise DeadLetterError(
            f"cannot write to the topic {topic!r} (error {code} of librdkafka): it does not exist, or this "
            "user may not write to it; create it, grant WRITE and DESCRIBE, or name another topic"
        )


def look_for(
    cluster: Cluster, target: Target, begins: Mapping[str, Mapping[int, int]], earliest: Mapping[int, int],
    ends: Mapping[int, int], *, compacts: bool,
) -> tuple[set[str], set[str]]:  # fmt: skip
    """Look which records a topic has that may have been sent to it.

    Args:
        cluster: The cluster of the topic.
        target: The topic.
        begins: The offsets from which it has a record if it was sent, by the record's identity and partition.
        earliest: The beginnings of its partitions.
        ends: Their ends.
        compacts: Whether the topic removes records that are outdated.

    Returns:
        The identities of the records that it has; and those of records that it may have had, because records are gone.
    """
    first: dict[int, int] = {}
    for of_record in begins.values():
        for partition, offset in of_record.items():
            first[partition] = min(offset, first.get(partition, offset))
    present: set[str] = set()
    gaps: dict[int, int] = {}
    expected = {partition: max(offset, earliest.get(partition, 0)) for partition, offset in first.items()}
    ranges = [Range(target.topic, p, start, ends.get(p, start)) for p, start in expected.items()]
    for partition, offset, headers in _headers(cluster, target.topic, ranges):
        if offset > expected[partition]:
            gaps[partition] = offset
        expected[partition] = offset + 1
        id_ = header_text(headers, ID)
        if id_ is not None and id_ in begins:
            present.add(id_)
    gaps |= {p: ends[p] for p, offset in expected.items() if offset < ends.get(p, 0)}

    def is_unknown(of_record: Mapping[int, int]) -> bool:
        return any(
            earliest.get(partition, 0) > offset or (compacts and gaps.get(partition, 0) > offset)
            for partition, offset in of_record.items()
        )

    return present, {id_ for id_, of_record in begins.items() if id_ not in present and is_unknown(of_record)}


def _headers(
    cluster: Cluster, topic: str, ranges: Sequence[Range]
) -> Iterator[tuple[int, int, Collection[tuple[str, bytes | None]]]]:
    """Yield partition, offset and headers of the records of some ranges; errors as for `look_for`."""
    for batch in read_ranges(cluster, topic, ranges, {"headers"}):
        for row in batch.to_pylist():
            yield row["partition"], row["offset"], [(one["key"], one["value"]) for one in row["headers"] or ()]
