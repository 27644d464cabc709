"""Finds out whether a topic has newer records with the keys of some records, or may have had some that are gone."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import open_admin
from kdsl.diagnostics.topic_records import read_ranges
from kdsl.run.admin.cluster_admin import Topic
from kdsl.run.dead_letters.headers import ID, Origin, header_text
from kdsl.run.offsets.ends import read_ends
from kdsl.run.offsets.stored import Range
from kdsl.run.records.metadata import NO_TIMESTAMP
from kdsl.types.arrays import Indices

Verdict = Literal["newest", "outdated", "unverified"]
"""What is known of a record: the newest of its key, an older one, or not known, because later records are gone."""
_Place = tuple[str, str, int]
"""A topic, its id and a partition: offsets in it say which of two records is newer."""


@attrs.frozen
class KeyedRecord:
    """A record whose key may have newer records.

    Attributes:
        origin: Where it was.
        key: The key under which it is to be written.
    """

    origin: Origin
    key: bytes

    @property
    def place(self) -> _Place:
        """Where its offset counts."""
        return (self.origin.topic, self.origin.topic_id, self.origin.partition)


@attrs.frozen
class Retention:
    """How a topic forgets records.

    Attributes:
        compacts: Whether it may remove records that have a later record with their key, and later the tombstones.
        keeps_tombstones: For how many milliseconds a tombstone stays at least.
    """

    compacts: bool
    keeps_tombstones: int = 0


@attrs.define
class _Partition:
    """What was read of a partition.

    Attributes:
        begin: The offset from which it is read; what was deleted before that does not matter.
        expected: The offset after the last record that was read.
        deleted: The time before which records from ``begin`` on were deleted with the beginning of the log; None if
            none were.
        deleted_end: The offset before which they were deleted.
        removed: The latest time at which a record may have been that compaction removed; None if none was.
        removed_end: The offset before which it was.
        end: The end of what was read.
    """

    begin: int
    expected: int
    deleted: float | None = None
    deleted_end: int = 0
    removed: float | None = None
    removed_end: int = 0
    end: int = 0

    def follow(self, offsets: Indices, times: Indices) -> None:
        """Note which offsets are missing before some records, and the times of the records after them."""
        at = np.where(times < 0, math.inf, times)
        if self.deleted == math.inf:
            self.deleted = float(at[0])
        gaps = np.flatnonzero(np.diff(offsets, prepend=self.expected - 1) > 1)
        if len(gaps):
            self.removed = max(self.removed or 0.0, float(at[gaps].max()))
            self.removed_end = int(offsets[gaps[-1]])
        self.expected = int(offsets[-1]) + 1


class NewerRecords:
    """The records of a topic that may be newer than some others.

    Two records of the same partition are compared by their offsets, others by their timestamps; one of the same time
    counts as newer. A record that a replay has sent counts as the one that it was before. If the topic was deleted and
    created again since a record was read from it, all records with its key are newer.

    Args:
        topic: The topic.
        topic_id: Its id; empty if it is not known.
        records: The records to compare.
        retention: How the topic forgets records.
    """

    def __init__(self, topic: str, topic_id: str, records: Iterable[KeyedRecord], retention: Retention) -> None:
        self._topic, self._id, self._retention = topic, topic_id, retention
        self._keys = pa.array(list({record.key for record in records}), pa.binary())
        self._partitions: dict[int, _Partition] = {}
        self._newest: dict[bytes, dict[_Place, tuple[int, float]]] = {}
        self._sent: set[str] = set()
        self._awaited: set[str] = set()
        self._overtaken: set[str] = set()

    def await_records(self, ids: Iterable[str]) -> None:
        """Watch for records that are sent to the topic now, by their identities, in what is added from now on."""
        self._awaited |= {*ids}

    def take_overtaken(self) -> set[str]:
        """Return, once, the awaited records before which a newer one was written after they were judged."""
        overtaken, self._overtaken = self._overtaken, set()
        return overtaken

    def start_partition(self, partition: int, begin: int, earliest: int) -> None:
        """Let a partition begin at an offset; the log may begin later, because records were deleted."""
        state = _Partition(begin, max(begin, earliest))
        if earliest > begin:
            state.deleted, state.deleted_end = math.inf, earliest
        self._partitions[partition] = state

    def next_offset(self, partition: int) -> int:
        """The offset from which a partition is read next."""
        state = self._partitions[partition]
        return max(state.expected, state.end)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add raw records of one or several partitions, those of each in their order.

        Args:
            batch: Raw records with key, timestamp and headers.
        """
        offsets, times = batch.column("offset").to_numpy(), batch.column("timestamp").to_numpy()
        numbers = batch.column("partition").to_numpy()
        for partition in {*numbers.tolist()}:
            mine = numbers == partition
            self._partitions[partition].follow(offsets[mine], times[mine])
        matching = batch.filter(pc.is_in(batch.column("key"), self._keys))
        for row in matching.to_pylist():
            own = (self._topic, self._id, row["partition"])
            headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
            sent = Origin.from_id(header_text(headers, ID) or "")
            place, offset = (own, row["offset"]) if sent is None else _place_of(sent)
            if sent is not None:
                self._sent.add(sent.id)
            if sent is not None and sent.id in self._awaited:
                self._awaited.discard(sent.id)
                if self._has_newer(KeyedRecord(sent, row["key"])):
                    self._overtaken.add(sent.id)
            at = row["timestamp"] if row["timestamp"] >= 0 else math.inf
            last = self._newest.setdefault(row["key"], {}).get(place, (-1, -math.inf))
            self._newest[row["key"]][place] = (max(last[0], offset), max(last[1], at))

    def end_partition(self, partition: int, end: int) -> None:
        """Note that a partition was read up to an offset."""
        self._partitions[partition].end = end

    def has(self, id_: str) -> bool:
        """Whether a replay has sent a record to the topic, as far as it was read."""
        return id_ in self._sent

    def judge(self, record: KeyedRecord) -> Verdict:
        """Compare a record with what was read."""
        if self._has_newer(record):
            return "outdated"
        origin, since = record.origin, self._since(record.origin)
        recreated = self._is_of_another_life(origin)
        age = time.time() * 1000 - origin.timestamp
        has_tombstones = origin.timestamp >= 0 and 0 <= age < self._retention.keeps_tombstones
        for number, state in self._partitions.items():
            own = origin.topic == self._topic and not recreated and number == origin.partition
            if _may_lack(state.deleted, state.deleted_end, origin.offset if own else None, since):
                return "unverified"
            if not self._retention.compacts or has_tombstones:
                continue
            if _may_lack(state.removed, state.removed_end, origin.offset if own else None, since):
                return "unverified"
            if state.expected < state.end and (not own or state.end > origin.offset + 1):
                return "unverified"
        return "newest"

    def _has_newer(self, record: KeyedRecord) -> bool:
        """Return whether a newer record was read."""
        origin = record.origin
        # All of what the topic has by itself is newer than a record of the topic before.
        replaced_by = (self._topic, self._id) if self._is_of_another_life(origin) else None
        for (topic, topic_id, partition), (offset, at) in self._newest.get(record.key, {}).items():
            same = topic == origin.topic and partition == origin.partition
            if same and (not topic_id or not origin.topic_id or topic_id == origin.topic_id):
                if offset > origin.offset:
                    return True
            elif origin.timestamp < 0 or at >= origin.timestamp or (topic, topic_id) == replaced_by:
                return True
        return False

    def _since(self, origin: Origin) -> float:
        """Return the time from which records of other partitions are newer than a record."""
        return -math.inf if self._is_of_another_life(origin) or origin.timestamp < 0 else origin.timestamp

    def _is_of_another_life(self, origin: Origin) -> bool:
        """Return whether a record is of another topic that had the name of this one."""
        return origin.topic == self._topic and bool(origin.topic_id and self._id) and origin.topic_id != self._id


def _place_of(origin: Origin) -> tuple[_Place, int]:
    """Return where the offset of a record counts, and the offset."""
    return (origin.topic, origin.topic_id, origin.partition), origin.offset


def _may_lack(until: float | None, end: int, offset: int | None, since: float) -> bool:
    """Whether missing records, before one at a time and an offset, may be newer than a record.

    The offset is None if the record was in another partition, and the time if none are missing.
    """
    if until is None:
        return False
    return until >= since if offset is None else end > offset + 1


MAX_OFFSET = 2**63 - 1
"""An offset that no record has."""


class TopicSearch:
    """Reads what a topic has that may be newer than some records, and later what was added since.

    Args:
        cluster: The cluster of the topic.
        topic: The topic.
        state: The topic as it is now.
        records: The records.
        retention: How the topic forgets records.

    Attributes:
        newer: What was read.
    """

    def __init__(
        self, cluster: Cluster, topic: str, state: Topic, records: Sequence[KeyedRecord], retention: Retention
    ) -> None:
        # Also records of transactions that are still open may become newer ones.
        self._cluster, self._topic = cluster.with_properties({"isolation.level": "read_uncommitted"}), topic
        self._admin = open_admin(self._cluster, topic)
        self._partitions = [(topic, number) for number in range(state.partitions)]
        self._ends: dict[TopicPartition, int] = {}
        self.newer = NewerRecords(topic, state.id, records, retention)
        earliest = self._admin.earliest(self._partitions)
        for partition, begin in self._find_begins(state, records, earliest).items():
            self.newer.start_partition(partition[1], begin, earliest[partition])

    def _find_begins(
        self, state: Topic, records: Sequence[KeyedRecord], earliest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return from where each partition must be read: after its own records, and from the time of the others.

        One record before that time is read, too, which shows that none between is missing.
        """
        offsets: dict[TopicPartition, int] = {}
        times: dict[TopicPartition, int] = {}
        for origin in (record.origin for record in records):
            partition = (origin.topic, origin.partition)
            recreated = origin.topic == self._topic and state.id and origin.topic_id not in ("", state.id)
            offsets[partition] = min(origin.offset + 1, offsets.get(partition, origin.offset + 1))
            at = NO_TIMESTAMP if recreated else origin.timestamp
            times[partition] = min(at, times.get(partition, at))
        since: dict[int, list[TopicPartition]] = {}
        for partition in self._partitions:
            if others := [at for other, at in times.items() if other != partition or at < 0]:
                since.setdefault(min(others), []).append(partition)
        begins = {partition: offsets.get(partition, MAX_OFFSET) for partition in self._partitions}
        for at, partitions in since.items():
            for partition, begin in self._find_times(partitions, at, earliest).items():
                begins[partition] = min(begin, begins[partition])
        return begins

    def _find_times(
        self, partitions: Sequence[TopicPartition], millis: int, earliest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the offset before that of the first record of partitions from a time on; 0 for their beginnings."""
        if millis < 0:
            return dict.fromkeys(partitions, 0)
        ends = self._admin.latest(partitions, committed=False)
        firsts = {p: ends[p] if at is None else at for p, at in self._admin.at_time(partitions, millis).items()}
        return {p: first - 1 if first > earliest[p] else 0 for p, first in firsts.items()}

    def update(self) -> None:
        """Read what was added since the last call."""
        ends = read_ends(self._admin, self._partitions, committed=False, known=self._ends).offsets
        self._ends = ends
        ranges = [Range(*p, self.newer.next_offset(p[1]), ends[p]) for p in self._partitions]
        for batch in read_ranges(self._cluster, self._topic, ranges, {"key", "timestamp", "headers"}):
            self.newer.add(batch)
        for (_, partition), end in ends.items():
            self.newer.end_partition(partition, end)
