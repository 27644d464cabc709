"""The offsets of a stream as Spark keeps them: canonical, sorted, versioned JSON.

Spark compares offsets as texts and may ask for the plan of a batch again, after a restart too, when nothing but the
offsets of its start and end is left. So the end of a batch says by itself where the batch begins wherever that is not
where the one before ended: at a first start, for partitions found since, and behind a counted gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import orjson

from kdsl.errors import KdslError
from kdsl.offsets import TopicPartition

VERSION = 1
LOST_LEASE = "lost_lease"
"""Where the latest offsets, as a source reports them, tell that the lease of its group was lost, and to whom."""


class OffsetFormatError(KdslError):
    """Offsets in a checkpoint that this version does not read."""


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
        ids: The id of each topic, which tells a topic that was made again.
        startup: The declared start of the query's first run, as text.
        begin: Where the batch that ends here begins, in partitions where that is not the end of the batch before.
        lost: For each partition how many records were passed over so far, because they were deleted before they could
            be read and the reset policy goes on.
        read: Which read wrote them (`kdsl.run.queries.read_id`); what watches queries knows its reads by it.
        stop: Where the read ends by itself, in each partition; worked out once, at a first start.
        initial: Whether no batch has ended yet: the start of a query without a checkpoint. It is worked out anew when
            the first batch is planned again, so that the first batch's end says all of its ``begin``.
        again: How often a query was started again that had nothing left to read. It makes other offsets of the same
            positions, so that Spark reports them, and what watches the query sees that it is at its end.
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

    def to_json(self) -> dict[str, Any]:
        """The document that Spark keeps; equal offsets give equal texts."""
        by_topic = nested(self.positions)
        topics = {name: {"id": self.ids[name], "offsets": by_topic.get(name, {})} for name in sorted(self.ids)}
        document: dict[str, Any] = {"version": VERSION, "startup": self.startup, "topics": topics}
        if self.begin:
            document["begin"] = nested(self.begin)
        if self.initial:
            document["initial"] = True
        if self.again:
            document["again"] = self.again
        if self.read:
            document["read"] = self.read
        if self.stop:
            document["stop"] = nested(self.stop)
        if any(self.lost.values()):
            document["lost"] = nested({place: count for place, count in self.lost.items() if count})
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Offsets:
        """The offsets of a document.

        Raises:
            OffsetFormatError: The checkpoint was written by another source, or by a version of kdsl that is newer.
        """
        version = document.get("version")
        if version != VERSION or "topics" not in document:
            what = "is no checkpoint of kdsl" if version is None else f"has version {version}"
            raise OffsetFormatError(
                f"the offsets in the checkpoint cannot be read: the document {what}, this kdsl reads version "
                f"{VERSION}; use the checkpoint of this query and the kdsl that wrote it, or a new checkpoint"
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
        )

    def ranges_from(self, start: Offsets) -> tuple[Range, ...]:
        """What a batch reads that starts at ``start`` and ends here; empty ranges are left out.

        A pure function: a batch that is planned again reads the same.
        """
        if start == self:
            return ()
        began = {**start.positions, **self.begin}
        found = (Range(*place, began[place], end) for place, end in sorted(self.positions.items()))
        return tuple(r for r in found if r.end > r.start)


def nested(by_place: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Numbers of partitions by topic, and by partition as text: sorted, as JSON holds them."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), value in sorted(by_place.items()):
        nested.setdefault(topic, {})[str(partition)] = value
    return nested


def by_partition(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Numbers of partitions from how JSON holds them: by topic, and by partition as text."""
    return {(topic, int(partition)): value for topic, parts in nested.items() for partition, value in parts.items()}


def offset_document(offset: Any) -> dict[str, Any] | None:
    """Offsets as Spark reports them, nested or as text; None where there are none."""
    if isinstance(offset, str | bytes):
        try:
            offset = orjson.loads(offset)
        except orjson.JSONDecodeError:
            return None
    return offset if isinstance(offset, dict) else None


def positions_of(document: Mapping[str, Any]) -> dict[TopicPartition, int] | None:
    """The positions in offsets of either transport: of kdsl's own source, or of Spark's (``{"topic": {"0": 123}}``).

    None where they are a source's that is not Kafka.

    Raises:
        OffsetFormatError: They were written by a version of kdsl that is newer.
    """
    if isinstance(document.get("version"), int) and "topics" in document:
        return dict(Offsets.from_json(document).positions)
    for partitions in document.values():
        if not isinstance(partitions, dict):
            return None
        if not all(partition.isdigit() and isinstance(at, int) for partition, at in partitions.items()):
            return None
    return by_partition(document)
