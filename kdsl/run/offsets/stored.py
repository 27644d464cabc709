"""The offsets of a stream as Spark stores them: canonical, sorted, versioned JSON.

Spark compares offsets as strings. It may ask for the plan of a batch again, even after a restart, when only the offsets
of the batch's start and end are left. Therefore the end of a batch also contains its start, for partitions in
which that differs from the end of the previous batch: at a first start, in new partitions, and after a counted gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import attrs
import orjson

from kdsl.callbacks import TopicPartition
from kdsl.errors import KdslError
from kdsl.plan.model import KeyPartitioner

VERSION = 1
LOST_LEASE = "lost_lease"
"""The key in a source's latest offsets that names the process that took the lease of its group."""


PackingKind = Literal["whole", "balanced"]


class OffsetFormatError(KdslError):
    """Offsets in a checkpoint that this version cannot read."""


def has_known_version(document: Mapping[str, Any]) -> bool:
    """Return whether this version of kdsl reads the version of a document of offsets."""
    return bool(document.get("version") == VERSION)


@attrs.frozen
class Packing:
    """How the ranges of a batch are packed into tasks (`kdsl.run.librdkafka.task_packing.pack`).

    It is stored with the offsets of each batch. A batch that is planned again then has the same tasks, however many
    cores the session has, and whatever the table or a newer kdsl would choose. Another algorithm is another ``kind``.

    Attributes:
        kind: By sizes, and with the later pieces of a partition in later tasks (``balanced``), or whole ranges by their
            sizes (``whole``).
        tasks: The maximal number of tasks of the batch.
        task_records: About how many records a task has at least.
        piece_records: How many records a piece of a split partition has at least.
    """

    kind: PackingKind
    tasks: int
    task_records: int
    piece_records: int


@attrs.frozen
class StateFolder:
    """Where a stream keeps the last row of each key, and how it finds it (`kdsl.run.upsert.keyed_state`).

    Attributes:
        id: The name of the folder, which no other source has.
        routing: Whether each row is in the state of its topic partition, or of the shard of its key's hash.
        partitions: How many partitions the topic had when the stream first started.
        shards: The number of shards; 0 if rows are found by partition.
        partitioner: By which partitioner producers choose partitions; None if rows are found by key.
        key_form: How producers write keys, as the partitioner sees them (`kdsl.formats.Format.find_form`).
        version: The version of the states of shards at which the batch that ends here ends; 0 if there is none.
        before: The version at which it begins; None if it begins with empty states.
        former: The name of the folder of the states of partitions whose rows the first batch of the states of shards
            has taken over, or takes over if it ends here; empty if there were none.
        time: When the batch that ends here was planned, in milliseconds since 1970; 0 if rows are kept for any time.
    """

    id: str
    routing: Literal["partition", "key"]
    partitions: int
    shards: int = 0
    partitioner: KeyPartitioner | None = None
    key_form: str = ""
    version: int = 0
    before: int | None = None
    former: str = ""
    time: int = 0

    def describe(self) -> str:
        """Return how it finds the last row of each key, with the partitioner: ``by partition (murmur2)``."""
        return f"by partition ({self.partitioner})" if self.routing == "partition" else "by key"


@attrs.frozen
class Range:
    """Consecutive offsets of a partition: from ``start`` up to, not including, ``end``."""

    topic: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offsets {self.start} to {self.end}"


@attrs.frozen
class Offsets:
    """How far a stream has read, or where it starts.

    Attributes:
        positions: For each partition the offset of the next record.
        ids: The id of each topic, by which a topic that was created again is noticed.
        startup: The declared start of the query's first run, as a string.
        begin: Where the batch that ends here begins, in partitions where that is not the end of the previous batch.
        lost: For each partition how many records were skipped so far, because they were deleted before they could be
            read and the reset policy allows that; also how many a log has lost after they were read.
        read: The id of the read that wrote them (`kdsl.run.listeners.reads.read_id`); observers of queries recognize
            the read by it.
        stop: Where the read ends by itself, in each partition; computed once, at a first start.
        initial: Whether no batch has ended yet: the start of a query without a checkpoint. It is computed again when
            the first batch is planned again, so the first batch's end contains all of its ``begin``.
        again: How often the query was restarted with nothing left to read. It makes offsets with equal positions
            differ, so Spark reports them, and observers of the query see that it is at its end.
        packing: How the batch that ends here is packed into tasks; None if no batch ends.
        compared: Whether the query compares change data with the rows in its state.
        state: Where the last row of each key is kept; None if it is not.
        epochs: For each partition the epoch of a leader that had all records before the position, if it reported one.
            With it the brokers can tell whether other records have taken their offsets.
    """

    positions: Mapping[TopicPartition, int]
    ids: Mapping[str, str]
    startup: str = ""
    begin: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    lost: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    read: str = ""
    stop: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    initial: bool = False
    again: int = 0
    packing: Packing | None = None
    compared: bool = False
    state: StateFolder | None = None
    epochs: Mapping[TopicPartition, int] = attrs.field(factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Convert to the document that Spark stores; equal offsets give equal JSON.

        Positions of topics that are not in `ids` are left out.
        """
        by_topic = nest_by_topic(self.positions)
        topics = {name: {"id": self.ids[name], "offsets": by_topic.get(name, {})} for name in sorted(self.ids)}
        document: dict[str, Any] = {"version": VERSION, "startup": self.startup, "topics": topics}
        if self.begin:
            document["begin"] = nest_by_topic(self.begin)
        if self.initial:
            document["initial"] = True
        if self.again:
            document["again"] = self.again
        if self.read:
            document["read"] = self.read
        if self.stop:
            document["stop"] = nest_by_topic(self.stop)
        if any(self.lost.values()):
            document["lost"] = nest_by_topic({partition: count for partition, count in self.lost.items() if count})
        if self.packing is not None:
            document["packing"] = attrs.asdict(self.packing)
        if self.compared:
            document["compared"] = True
        if self.state is not None:
            document["state"] = attrs.asdict(self.state)
        if self.epochs:
            document["epochs"] = nest_by_topic(self.epochs)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Offsets:
        """Read the offsets from a document."""
        version, packing, state = (document.get(name) for name in ("version", "packing", "state"))
        if not has_known_version(document) or "topics" not in document:
            what = "was not written by kdsl" if version is None else f"has version {version}"
            raise OffsetFormatError(
                f"the offsets in the checkpoint cannot be read: the document {what}, and this kdsl reads "
                f"version {VERSION}; use the checkpoint of this query and the kdsl that wrote it, or a new checkpoint"
            )
        if packing is not None and packing["kind"] not in get_args(PackingKind):
            raise OffsetFormatError(
                f"the offsets in the checkpoint cannot be read: their batch is packed into tasks by "
                f"{packing['kind']!r}, and this kdsl packs by {', '.join(get_args(PackingKind))}; use the kdsl that "
                "wrote them, or a newer one"
            )
        if state is not None and state.keys() != {field.name for field in attrs.fields(StateFolder)}:
            raise OffsetFormatError(
                "the checkpoint keeps the last row of each key as another version of kdsl did; use the kdsl that wrote "
                "it, or a new checkpoint, which reads the topic from its beginning"
            )
        topics = document["topics"]
        return cls(
            positions=by_partition({name: topic["offsets"] for name, topic in topics.items()}),
            ids={name: topic["id"] for name, topic in topics.items()},
            startup=document.get("startup", ""),
            begin=by_partition(document.get("begin", {})),
            lost=by_partition(document.get("lost", {})),
            read=document.get("read", ""),
            stop=by_partition(document.get("stop", {})),
            initial=document.get("initial", False),
            again=document.get("again", 0),
            packing=None if packing is None else Packing(**packing),
            compared=document.get("compared", False),
            state=None if state is None else StateFolder(**state),
            epochs=by_partition(document.get("epochs", {})),
        )

    def ranges_from(self, start: Offsets) -> tuple[Range, ...]:
        """Compute the offset ranges of a batch that starts at ``start`` and ends here, without empty ones.

        A partition begins where ``start`` is, unless `begin` has another offset, as it has for new partitions. If
        ``start`` equals these offsets, there are no ranges.
        """
        if start == self:
            return ()
        began = {**start.positions, **self.begin}
        ranges = (Range(*partition, began[partition], end) for partition, end in sorted(self.positions.items()))
        return tuple(r for r in ranges if r.end > r.start)


def nest_by_topic(numbers: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Convert numbers by topic partition to JSON: by topic, and by partition as a string, sorted."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), value in sorted(numbers.items()):
        nested.setdefault(topic, {})[str(partition)] = value
    return nested


def by_partition(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Convert JSON that has numbers by topic and by partition as a string to numbers by topic partition."""
    return {(topic, int(partition)): value for topic, parts in nested.items() for partition, value in parts.items()}


def offset_document(offset: Any) -> dict[str, Any] | None:
    """Parse offsets as Spark reports them, a document or its JSON string; None if they are neither."""
    if isinstance(offset, str | bytes):
        try:
            offset = orjson.loads(offset)
        except orjson.JSONDecodeError:
            return None
    return offset if isinstance(offset, dict) else None


def positions_of(document: Mapping[str, Any]) -> dict[TopicPartition, int] | None:
    """Read the positions in offsets of either transport: of kdsl's source, or of Spark's (``{"topic": {"0": 123}}``).

    None if the document is neither, as that of a source that is not Kafka.
    """
    if isinstance(document.get("version"), int) and "topics" in document:
        return dict(Offsets.from_json(document).positions)
    for partitions in document.values():
        if not isinstance(partitions, dict):
            return None
        if not all(partition.isdigit() and isinstance(at, int) for partition, at in partitions.items()):
            return None
    return by_partition(document)
