"""How far a task has read each of its offset ranges: which records belong to them, and what remains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kdsl.run.librdkafka.message_batch import Event, Records
from kdsl.run.offsets.stored import Range


class RangeProgress:
    """How far some ranges have been read, each of another topic partition. Ranges are known by their indices."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.ranges = ranges
        self._index = {(r.topic, r.partition): i for i, r in enumerate(ranges)}
        self._starts = np.array([r.start for r in ranges], dtype=np.int64)
        self._ends = np.array([r.end for r in ranges], dtype=np.int64)
        self._positions = self._starts.copy()
        self._gaps = np.zeros(len(ranges), dtype=bool)
        self._fetched = np.ones(len(ranges), dtype=bool)
        self._topics = pa.array([r.topic for r in ranges], pa.string())
        self._partitions = np.array([r.partition for r in ranges], dtype=np.int32)
        self._arrived = np.empty(0, dtype=np.int64)

    def index_of(self, event: Event) -> int | None:
        """Return the index of the range of an event's topic partition; None if there is none."""
        return self._index.get((event.topic or "", event.partition))

    def count_remaining(self) -> int:
        """Return how many offsets of all ranges together have not been read."""
        return int((self._ends - self._positions).sum())

    def finish(self, indices: Sequence[int]) -> None:
        """Mark the ranges with these indices as read to their ends, because no more records follow in them.

        A range without any record so far becomes one of the `gaps`.
        """
        for i in indices:
            self._gaps[i] |= self._positions[i] == self._starts[i] < self._ends[i]
            self._positions[i] = self._ends[i]

    def remaining_range(self, index: int) -> Range:
        """Return the part of a range that has not been read; it may be empty."""
        r = self.ranges[index]
        return Range(r.topic, r.partition, int(self._positions[index]), r.end)

    def remaining_ranges(self) -> list[Range]:
        """Return the parts of all ranges that have not been read."""
        return [self.remaining_range(int(i)) for i in np.flatnonzero(self._positions < self._ends)]

    def take_finished(self) -> list[Range]:
        """Return the ranges that have been read to their ends since the last call, if others have not."""
        finished = self._fetched & (self._positions >= self._ends)
        if not finished.any() or not self.count_remaining():
            return []
        self._fetched &= ~finished
        return [self.ranges[int(i)] for i in np.flatnonzero(finished)]

    def gaps(self) -> list[Range]:
        """Return the ranges, each as a whole, whose first record was missing when they were read."""
        return [self.ranges[int(i)] for i in np.flatnonzero(self._gaps)]

    def advance(self, records: Records) -> tuple[Records, tuple[pa.Array, pa.Array, pa.Array]]:
        """Select the records that have not been read and belong to the ranges, and move the progress past them.

        A range has been read when a record at or beyond its end has arrived. Missing first records are noted (`gaps`).

        Args:
            records: At least one record, those of each partition in the order of their offsets.

        Returns:
            The selected records (perhaps the given ones), and their topics, partitions and offsets as columns.
        """
        return self._advance_one(records) if len(self.ranges) == 1 else self._advance_several(records)

    def last_of_each(self, records: Records) -> tuple[list[Range], list[int]]:
        """Return the ranges of the records that `advance` has just selected, and the indices of their last records."""
        if len(self.ranges) == 1:
            return [self.ranges[0]], [len(records) - 1]
        last = np.full(len(self.ranges), -1)
        last[self._arrived] = np.arange(len(records))  # numpy assigns the last value of a repeated index
        present = np.flatnonzero(last >= 0)
        return [self.ranges[int(i)] for i in present], last[present].tolist()

    def _advance_one(self, records: Records) -> tuple[Records, tuple[pa.Array, pa.Array, pa.Array]]:
        """Select the unread records of the only range, and move its progress past them, as `advance` does.

        Return them with their topics, partitions and offsets; note a missing first record. There is at least one
        record, and all are of the range's topic partition.
        """
        position, end = int(self._positions[0]), int(self._ends[0])
        offsets = records.offsets
        if offsets[0] < position or offsets[-1] >= end:
            low, high = np.searchsorted(offsets, [position, end]).tolist()
            position, records = (end if high < len(records) else position), records.select(slice(low, high))
            offsets = records.offsets
        if len(records):
            self._gaps[0] |= self._positions[0] == self._starts[0] < offsets[0]
            position = max(position, int(offsets[-1]) + 1)
        else:
            self._gaps[0] |= position > self._positions[0] == self._starts[0]
        self._positions[0] = position
        count = len(records)
        topic = pa.repeat(self._topics[0], count)
        return records, (topic, pa.array(np.full(count, self._partitions[0])), pa.array(offsets))

    def _advance_several(self, records: Records) -> tuple[Records, tuple[pa.Array, pa.Array, pa.Array]]:
        """Select the unread records of several ranges, and move their progress past them, as `advance` does.

        Return them with their topics, partitions and offsets; note missing first records.
        """
        partitions, lengths = records.partition_runs()
        index = np.repeat(np.array([self._index.get(p, -1) for p in partitions], np.int64), lengths)
        offsets = records.offsets
        wanted = (index >= 0) & (offsets >= self._positions[index]) & (offsets < self._ends[index])
        reached = np.zeros(len(self.ranges), dtype=bool)
        reached[index[index >= 0]] = True
        first, last = self._ends.copy(), self._positions - 1
        last[index[index >= 0]] = offsets[index >= 0]  # numpy assigns the last value of a repeated index
        first[index[index >= 0][::-1]] = offsets[index >= 0][::-1]
        self._gaps |= reached & (self._positions == self._starts) & (first > self._starts)
        self._positions = np.maximum(self._positions, np.minimum(last + 1, self._ends))
        if not wanted.all():
            records, index, offsets = records.select(wanted), index[wanted], offsets[wanted]
        self._arrived = index
        return records, (self._topics.take(pa.array(index)), pa.array(self._partitions[index]), pa.array(offsets))
