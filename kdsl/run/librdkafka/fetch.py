"""Records of ranges as raw Arrow batches: what a task does before it decodes.

A range is read from its own start to its own end, or the task fails. The end is reached by position: transaction
markers, aborted and compacted records leave offsets that never arrive.
"""

from __future__ import annotations

import gc
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, compress
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message

from kdsl.run.cluster import errors
from kdsl.run.cluster.brokers import PASSING
from kdsl.run.cluster.offsets import Range
from kdsl.run.librdkafka.consumers import OF_THE_GROUP, KeptConsumer
from kdsl.run.records.metadata import HEADERS, RAW

CHUNK_RECORDS = 2_000
"""How many records are taken from the client at once: few enough to stay in the processor's cache."""
CHUNK_BYTES = 4_194_304
BATCH_RECORDS = 20_000
BATCH_BYTES = 16_777_216
TOGETHER = 20_000
"""Ranges up to this many offsets are fetched together; larger ones one by one, which is cheaper for each record."""
WAIT = 0.05
"""How long the client is waited for at a time, in seconds."""

Messages = list["Message[bytes, bytes]"]
Numbers = np.ndarray[Any, np.dtype[np.int64]]

_ALWAYS = ("topic", "partition", "offset")
_END = KafkaError._PARTITION_EOF  # noqa: SLF001
_TRUNCATED = KafkaError._LOG_TRUNCATION  # noqa: SLF001
_EXPIRED = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001
_FALSE_ALARMS = 5


class Fetcher:
    """Reads ranges with a kept consumer.

    Args:
        consumer: The consumer.
        table: The table's name, for messages.
        needs: The fields of a raw batch that are wanted; topic, partition and offset always come.
        patience: How long nothing may come before the read fails, in seconds.

    Attributes:
        schema: The schema of the raw batches.
        count: What has been fetched, where somebody wants to know and has set one.
    """

    def __init__(self, consumer: KeptConsumer, table: str, needs: Collection[str], patience: float) -> None:
        self._consumer, self._table, self._patience = consumer, table, patience
        self._fields = tuple(name for name in RAW if name in needs and name not in _ALWAYS)
        self.schema = pa.schema([(name, RAW[name]) for name in (*_ALWAYS, *self._fields)])
        self._bytes_each = 262_144.0  # until it is known
        self._false_alarms = 0
        self.count: Count | None = None

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """The records of some ranges, those of each range in the order of their offsets.

        Raises:
            KafkaReadError: A range cannot be read to its end.
        """
        for group in _groups(ranges):
            yield from self._batches(group)

    def _batches(self, group: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        chunks: list[list[pa.Array]] = []
        records = size = 0
        for chunk in self._chunks(_Places(group)):
            chunks.append(chunk)
            more, more_bytes = len(chunk[0]), sum(array.nbytes for array in chunk)
            self._bytes_each = more_bytes / more
            records, size = records + more, size + more_bytes
            if records >= BATCH_RECORDS or size >= BATCH_BYTES:
                yield self._batch(chunks)
                chunks, records, size = [], 0, 0
        if chunks:
            yield self._batch(chunks)

    def _batch(self, chunks: list[list[pa.Array]]) -> pa.RecordBatch:
        arrays = chunks[0] if len(chunks) == 1 else [pa.concat_arrays(column) for column in zip(*chunks, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _chunks(self, places: _Places) -> Iterator[list[pa.Array]]:
        self._consumer.assign(places.ranges)
        heard, alarms = time.monotonic(), self._false_alarms
        while left := places.left():
            chunk: list[pa.Array] | None = None
            with _no_collection():
                messages = self._consume(min(left, CHUNK_RECORDS, int(CHUNK_BYTES / self._bytes_each) + 1))
                ended: list[int] = []
                if any(map(Message.error, messages)):
                    messages, ended = self._without_events(messages, places)
                if messages or ended:
                    heard = time.monotonic()
                if messages:
                    messages, columns = places.advance(messages)
                    if messages:
                        chunk = [*columns, *(_COLUMNS[name](messages) for name in self._fields)]
                        if self.count is not None:
                            self.count.add(messages, dict(zip(self._fields, chunk[3:], strict=True)))
                        messages.clear()
                places.end(ended)
            if self._false_alarms > alarms:
                alarms = self._false_alarms
                self._consumer.assign(places.open())
            if chunk is not None:
                yield chunk
                heard = time.monotonic()  # what happens to the rows may take its time
            elif (error := self._consumer.hopeless) and (at := _concerned(error, places.open())):
                raise self._failed(error, at)
            elif time.monotonic() - heard > self._patience:
                raise self._stalled(places, time.monotonic() - heard)
        self._look_back(places)

    def _consume(self, most: int) -> Messages:
        try:
            return self._consumer.consume(most, WAIT)
        except KafkaException as e:
            error = errors.kafka_error(e)
            if error is None or error.code() not in PASSING:
                raise errors.KafkaReadError(f"{self._table}: the client failed: {e}") from e
            return []

    def _without_events(self, messages: Messages, places: _Places) -> tuple[Messages, list[int]]:
        """The messages that are records, and the places of which nothing more comes; errors are raised."""
        records, ended = [], []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
                continue
            place = places.find(message)
            if error.code() == _END:
                if place is not None and _offset(message) >= places.ranges[place].end:
                    ended.append(place)
            elif error.code() in _EXPIRED and place is not None and self._is_there(places.rest(place)):
                self._false_alarms += 1
            elif error.fatal() or error.code() not in (*PASSING, *OF_THE_GROUP):
                raise self._failed(error, None if place is None else places.rest(place))
        return records, ended

    def _is_there(self, at: Range) -> bool:
        """Whether an offset that is told to be out of range is in range: an answer to an assignment before this one."""
        if self._false_alarms >= _FALSE_ALARMS:
            return False
        earliest, latest = (find([at], self._patience)[0] for find in (self._consumer.earliest, self._consumer.latest))
        return earliest <= at.start <= latest

    def _failed(self, error: KafkaError, at: Range | None) -> errors.KafkaReadError:
        where = f" at {at}" if at else ""
        if errors.is_login_error(error):
            return errors.refused_login(self._table, self._consumer.servers, error.str())
        if errors.is_not_allowed(error):
            return errors.not_allowed(self._table, f"the topic {at.topic!r}" if at else "the topic", error)
        if errors.is_unknown_topic(error):
            return errors.TopicMissingError(f"{self._table}: the topic is gone while it is read{where}: {error.str()}")
        if at and error.code() in _EXPIRED:
            earliest = self._consumer.earliest([at], self._patience)[0]
            if earliest > at.start:
                return self._deleted(at, earliest)
            return errors.OffsetError(
                f"{self._table}: there is no offset {at.start} in topic {at.topic}, partition {at.partition} any more, "
                f"which begins at {earliest}: the log was cut, or the topic was made again while it was read "
                f"({error.str()})"
            )
        if at and error.code() == _TRUNCATED:
            return errors.OffsetError(f"{self._table}: the log was cut while it was read{where}: {error.str()}")
        return errors.KafkaReadError(f"{self._table}: cannot read{where}: {error.str()} ({error.name()})")

    def _deleted(self, at: Range, earliest: int) -> errors.OffsetError:
        return errors.OffsetError(
            f"{self._table}: records were deleted while they were to be read: topic {at.topic}, partition "
            f"{at.partition}, offset {at.start} is wanted, the earliest is {earliest}, so that "
            f"{min(earliest, at.end) - at.start} offsets are lost; read faster than the topic's retention deletes, or "
            "set the client property auto.offset.reset to earliest and start again"
        )

    def _stalled(self, places: _Places, waited: float) -> errors.StalledError:
        open_ones = places.open()
        more = f" (and {len(open_ones) - 1} more partitions)" if len(open_ones) > 1 else ""
        told = f"; the client's last word: {self._consumer.last_error}" if self._consumer.last_error else ""
        return errors.StalledError(
            f"{self._table}: nothing came from {self._consumer.servers} for {waited:.0f} s at {open_ones[0]}{more}"
            f"{told}; a longer wait is the client property default.api.timeout.ms"
        )

    def _look_back(self, places: _Places) -> None:
        """Records missing from a range's start on are a gap of the log, unless the log begins later by now."""
        gaps = places.gaps()
        if gaps:
            found = self._consumer.earliest(gaps, self._patience)
            for gap, earliest in zip(gaps, found, strict=True):
                if earliest > gap.start:
                    raise self._deleted(gap, earliest)


def _concerned(error: KafkaError, ranges: Sequence[Range]) -> Range | None:
    """The range that an error means; one about a topic may be late news of a topic that was read before."""
    if errors.is_login_error(error):
        return ranges[0]
    return next((r for r in ranges if r.topic in error.str()), None)


def _groups(ranges: Sequence[Range]) -> list[list[Range]]:
    """What is fetched at a time: a big range, or small ones together, each of another partition."""
    groups = [[r] for r in ranges if len(r) > TOGETHER]
    rounds: list[list[Range]] = []
    seen: Counter[tuple[str, int]] = Counter()
    for r in ranges:
        if len(r) <= TOGETHER:
            nth = seen[r.topic, r.partition]
            seen[r.topic, r.partition] += 1
            if nth == len(rounds):
                rounds.append([])
            rounds[nth].append(r)
    return groups + rounds


class _Places:
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
        if _offset(messages[0]) < position or _offset(messages[-1]) >= end:
            low = bisect_left(messages, position, key=_offset)
            high = bisect_left(messages, end, key=_offset)
            position, messages = (end if high < len(messages) else position), messages[low:high]
        if messages:
            first, last = _offset(messages[0]), _offset(messages[-1])
            self._gaps[0] |= self._positions[0] == self._starts[0] < first
            position = max(position, last + 1)
            whole = last - first + 1 == len(messages)
            offsets = np.arange(first, last + 1) if whole else _numbers(Message.offset, messages)
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
        offsets = _numbers(Message.offset, messages)
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


class Count:
    """What is fetched: how many records, of how many bytes, and how old the last one is.

    Attributes:
        records: The records.
        bytes: The bytes of their keys and values.
        event: The timestamp of the last one in milliseconds; None where it has none.
        at: When it was taken from the client, in seconds since 1970.
    """

    def __init__(self) -> None:
        self.records = self.bytes = 0
        self.event: int | None = None
        self.at = 0.0

    def add(self, messages: Messages, columns: Mapping[str, pa.Array]) -> None:
        """Count some records.

        Args:
            messages: The records.
            columns: Those of their fields that are Arrow arrays already.
        """
        kind, millis = messages[-1].timestamp()
        self.event, self.at = (None if kind == TIMESTAMP_NOT_AVAILABLE else millis), time.time()
        self.records += len(messages)
        for name in ("key", "value"):
            array = columns.get(name)
            if array is not None:
                self.bytes += size_of(array)
            elif name == "value":
                self.bytes += sum(map(len, messages))  # the length of a message is its value's
            else:
                self.bytes += sum(map(len, filter(None, map(Message.key, messages))))

    def take(self) -> tuple[int, int, int | None, float]:
        """What was counted since the last time: records, bytes, the last record's timestamp and when it came."""
        taken = (self.records, self.bytes, self.event, self.at)
        self.records = self.bytes = 0
        return taken


def size_of(array: pa.Array) -> int:
    """The bytes of all values of a binary array."""
    if array.null_count == len(array):
        return 0
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return int(offsets[array.offset + len(array)] - offsets[array.offset])


def _offset(message: Message[bytes, bytes]) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def _numbers(accessor: Any, messages: Messages) -> Numbers:
    return np.fromiter(map(accessor, messages), np.int64, len(messages))


def _values(messages: Messages) -> pa.Array:
    return pa.array(list(map(Message.value, messages)), pa.binary())


def _keys(messages: Messages) -> pa.Array:
    return pa.array(list(map(Message.key, messages)), pa.binary())


def _timestamps(messages: Messages) -> pa.Array:
    return pa.array([millis for _, millis in map(Message.timestamp, messages)], pa.int64())


def _timestamp_types(messages: Messages) -> pa.Array:
    return pa.array([kind - 1 for kind, _ in map(Message.timestamp, messages)], pa.int8())


def _leader_epochs(messages: Messages) -> pa.Array:
    return pa.array(list(map(Message.leader_epoch, messages)), pa.int32())


def _headers(messages: Messages) -> pa.Array:
    lists = [headers or () for headers in map(Message.headers, messages)]
    offsets = np.concatenate([[0], np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)))])
    entries = list(chain.from_iterable(lists))
    names = pa.array([name for name, _ in entries], pa.string())
    values = pa.array([value for _, value in entries], pa.binary())
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs, type=HEADERS)


_COLUMNS = {
    "timestamp": _timestamps,
    "timestamp_type": _timestamp_types,
    "leader_epoch": _leader_epochs,
    "headers": _headers,
    "key": _keys,
    "value": _values,
}


@contextmanager
def _no_collection() -> Iterator[None]:
    """Thousands of message objects that all go at once are no reason to search for cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
