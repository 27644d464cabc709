"""How far ranges have been read: which of the messages that come belong to them, and what is still to come."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import compress

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from kdsl.run.cluster.offsets import Range
from kdsl.run.librdkafka.messages import Messages, numbers, offset_of


class Places:
    """How far some ranges have been read, each of another partition."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.ranges = ranges
        self._index = {(r.topic, r.partition): i for i, r in enumerate(ranges)}
        self._starts = np.array([r.start for r in ranges], dtype=np.int64)
        self._ends = np.array([r.end for r in ranges], dtype=np.int64)
        self._positions = self._starts.copy()
        self._gaps = np.zeros(len(ranges), dtype=bool)
        self._topics = pa.array([r.topic for r in ranges], pa.string())
        self._partitions = np.array([r.partition for r in ranges], dtype=np.int32)

    def find(self, message: Message[bytes, bytes]) -> int | None:
        """The place of a message's partition."""
        return self._index.get((message.topic(), message.partition()))  # type: ignore[arg-type]

    def left(self) -> int:
        """How many offsets are still to come."""
        return int((self._ends - self._positions).sum())

    def end(self, places: Sequence[int]) -> None:
        """Nothing more comes of some places up to the ends of their ranges."""
        for i in places:
            self._gaps[i] |= self._positions[i] == self._starts[i] < self._ends[i]
            self._positions[i] = self._ends[i]

    def rest(self, place: int) -> Range:
        """What is still to come of a place."""
        r = self.ranges[place]
        return Range(r.topic, r.partition, int(self._positions[place]), r.end)

    def open(self) -> list[Range]:
        """What is still to come."""
        return [self.rest(int(i)) for i in np.flatnonzero(self._positions < self._ends)]

    def gaps(self) -> list[Range]:
        """The ranges that did not begin with the record at their start."""
        return [self.ranges[int(i)] for i in np.flatnonzero(self._gaps)]

    def advance(self, messages: Messages) -> tuple[Messages, tuple[pa.Array, pa.Array, pa.Array]]:
        """Those of some records that belong to the ranges, with the columns topic, partition and offset."""
        return self._advance_one(messages) if len(self.ranges) == 1 else self._advance_several(messages)

    def _advance_one(self, messages: Messages) -> tuple[Messages, tuple[pa.Array, pa.Array, pa.Array]]:
        position, end = int(self._positions[0]), int(self._ends[0])
        if offset_of(messages[0]) < position or offset_of(messages[-1]) >= end:
            low = bisect_left(messages, position, key=offset_of)
            high = bisect_left(messages, end, key=offset_of)
            position, messages = (end if high < len(messages) else position), messages[low:high]
        if messages:
            first, last = offset_of(messages[0]), offset_of(messages[-1])
            self._gaps[0] |= self._positions[0] == self._starts[0] < first
            position = max(position, last + 1)
            whole = last - first + 1 == len(messages)
            offsets = np.arange(first, last + 1) if whole else numbers(Message.offset, messages)
        else:
            offsets = np.empty(0, dtype=np.int64)
            self._gaps[0] |= position > self._positions[0] == self._starts[0]
        self._positions[0] = position
        count = len(messages)
        topic = pa.repeat(self._topics[0], count)
        return messages, (topic, pa.array(np.full(count, self._partitions[0])), pa.array(offsets))

    def _advance_several(self, messages: Messages) -> tuple[Messages, tuple[pa.Array, pa.Array, pa.Array]]:
        count = len(messages)
        places = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
        at = np.fromiter((self._index.get(place, -1) for place in places), np.int64, count)  # type: ignore[arg-type]
        offsets = numbers(Message.offset, messages)
        kept = (at >= 0) & (offsets >= self._positions[at]) & (offsets < self._ends[at])
        reached = np.zeros(len(self.ranges), dtype=bool)
        reached[at[at >= 0]] = True
        first, last = self._ends.copy(), self._positions - 1
        last[at[at >= 0]] = offsets[at >= 0]  # of repeated indices the last one counts
        first[at[at >= 0][::-1]] = offsets[at >= 0][::-1]
        self._gaps |= reached & (self._positions == self._starts) & (first > self._starts)
        self._positions = np.maximum(self._positions, np.minimum(last + 1, self._ends))
        if not kept.all():
            messages, at, offsets = list(compress(messages, kept)), at[kept], offsets[kept]
        return messages, (self._topics.take(pa.array(at)), pa.array(self._partitions[at]), pa.array(offsets))
