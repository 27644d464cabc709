"""How far a task has read each of its offset ranges: which messages belong to them, and what remains."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import compress

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from kdsl.run.librdkafka.messages import Messages, collect_integers, offset_of
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
        self._topics = pa.array([r.topic for r in ranges], pa.string())
        self._partitions = np.array([r.partition for r in ranges], dtype=np.int32)
        self._arrived = np.empty(0, dtype=np.int64)

    def index_of(self, message: Message[bytes, bytes]) -> int | None:
        """Return the index of the range of a message's topic partition; None if there is none."""
        return self._index.get((message.topic(), message.partition()))  # type: ignore[arg-type]

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

    def gaps(self) -> list[Range]:
        """Return the ranges, each as a whole, whose first record was missing when they were read."""
        return [self.ranges[int(i)] for i in np.flatnonzero(self._gaps)]

    def advance(self, messages: Messages) -> tuple[Messages, tuple[pa.Array, pa.Array, pa.Array]]:
        """Select the messages that have not been read and belong to the ranges, and move the progress past them.

        A range has been read when a message at or beyond its end has arrived. Missing first records are noted (`gaps`).

        Args:
            messages: At least one message, those of each partition in the order of their offsets.

        Returns:
            The selected messages (perhaps the given list itself), and their topics, partitions and offsets as columns.
        """
        return self._advance_one(messages) if len(self.ranges) == 1 else self._advance_several(messages)

    def last_of_each(self, messages: Messages) -> list[tuple[Range, Message[bytes, bytes]]]:
        """Return the ranges of the messages that `advance` has just selected, each with its last message."""
        if len(self.ranges) == 1:
            return [(self.ranges[0], messages[-1])]
        last = np.full(len(self.ranges), -1)
        last[self._arrived] = np.arange(len(messages))  # numpy assigns the last value of a repeated index
        return [(self.ranges[int(i)], messages[int(last[i])]) for i in np.flatnonzero(last >= 0)]

    def _advance_one(self, messages: Messages) -> tuple[Messages, tuple[pa.Array, pa.Array, pa.Array]]:
        """Select the unread messages of the only range, and move its progress past them, as `advance` does.

        Return them with their topics, partitions and offsets; note a missing first record. There is at least one
        message, and all are of the range's topic partition.
        """
        position, end = int(self._positions[0]), int(self._ends[0])
        if offset_of(messages[0]) < position or offset_of(messages[-1]) >= end:
            low = bisect_left(messages, position, key=offset_of)
            high = bisect_left(messages, end, key=offset_of)
            position, messages = (end if high < len(messages) else position), messages[low:high]
        if messages:
            first, last = offset_of(messages[0]), offset_of(messages[-1])
            self._gaps[0] |= self._positions[0] == self._starts[0] < first
            position = max(position, last + 1)
            consecutive = last - first + 1 == len(messages)
            offsets = np.arange(first, last + 1) if consecutive else collect_integers(Message.offset, messages)
        else:
            offsets = np.empty(0, dtype=np.int64)
            self._gaps[0] |= position > self._positions[0] == self._starts[0]
        self._positions[0] = position
        count = len(messages)
        topic = pa.repeat(self._topics[0], count)
        return messages, (topic, pa.array(np.full(count, self._partitions[0])), pa.array(offsets))

    def _advance_several(self, messages: Messages) -> tuple[Messages, tuple[pa.Array, pa.Array, pa.Array]]:
        """Select the unread messages of several ranges, and move their progress past them, as `advance` does.

        Return them with their topics, partitions and offsets; note missing first records.
        """
        count = len(messages)
        partitions = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
        index = np.fromiter((self._index.get(p, -1) for p in partitions), np.int64, count)  # type: ignore[arg-type]
        offsets = collect_integers(Message.offset, messages)
        wanted = (index >= 0) & (offsets >= self._positions[index]) & (offsets < self._ends[index])
        reached = np.zeros(len(self.ranges), dtype=bool)
        reached[index[index >= 0]] = True
        first, last = self._ends.copy(), self._positions - 1
        last[index[index >= 0]] = offsets[index >= 0]  # numpy assigns the last value of a repeated index
        first[index[index >= 0][::-1]] = offsets[index >= 0][::-1]
        self._gaps |= reached & (self._positions == self._starts) & (first > self._starts)
        self._positions = np.maximum(self._positions, np.minimum(last + 1, self._ends))
        if not wanted.all():
            messages, index, offsets = list(compress(messages, wanted)), index[wanted], offsets[wanted]
        self._arrived = index
        return messages, (self._topics.take(pa.array(index)), pa.array(self._partitions[index]), pa.array(offsets))
