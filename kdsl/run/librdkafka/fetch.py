"""Records of ranges as raw Arrow batches: what a task does before it decodes.

A range is read from its own start to its own end, or the task fails. The end is reached by position: transaction
markers, aborted and compacted records leave offsets that never arrive.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message

from kdsl.run.cluster import errors
from kdsl.run.cluster.brokers import PASSING
from kdsl.run.cluster.offsets import Range
from kdsl.run.librdkafka.consumers import OF_THE_GROUP, KeptConsumer
from kdsl.run.librdkafka.messages import COLUMNS, Messages, offset_of
from kdsl.run.librdkafka.places import Places
from kdsl.run.records.metadata import RAW

CHUNK_RECORDS = 2_000
"""How many records are taken from the client at once: few enough to stay in the processor's cache."""
CHUNK_BYTES = 4_194_304
BATCH_RECORDS = 20_000
BATCH_BYTES = 16_777_216
TOGETHER = 20_000
"""Ranges up to this many offsets are fetched together; larger ones one by one, which is cheaper for each record."""
WAIT = 0.05
"""How long the client is waited for at a time, in seconds."""

SILENCE = 20.0
"""How long nothing may come before the client is made anew, in seconds; the next one has twice the time.

It may be that nothing comes because the client skips what transactions have given up, of which it tells nothing.
"""

_ALWAYS = ("topic", "partition", "offset")
_END = KafkaError._PARTITION_EOF  # noqa: SLF001
_TRUNCATED = KafkaError._LOG_TRUNCATION  # noqa: SLF001
_EXPIRED = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001
_GOES_ON = frozenset((*PASSING, *OF_THE_GROUP, KafkaError.UNKNOWN))
"""After these the client fetches on by itself; the last is a broker's that has met an error of its own."""
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
        for chunk in self._chunks(Places(group)):
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

    def _chunks(self, places: Places) -> Iterator[list[pa.Array]]:
        self._consumer.assign(places.ranges)
        heard = renewed = time.monotonic()
        silence, alarms = SILENCE, self._false_alarms
        while left := places.left():
            chunk: list[pa.Array] | None = None
            with _no_collection():
                messages = self._consume(min(left, CHUNK_RECORDS, int(CHUNK_BYTES / self._bytes_each) + 1))
                ended: list[int] = []
                if any(map(Message.error, messages)):
                    messages, ended = self._without_events(messages, places)
                if messages or ended:
                    heard, silence = time.monotonic(), SILENCE
                    self._consumer.succeeded()
                if messages:
                    messages, columns = places.advance(messages)
                    if messages:
                        chunk = [*columns, *(COLUMNS[name](messages) for name in self._fields)]
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
            elif time.monotonic() - max(heard, renewed) > silence:
                self._consumer.renew(places.open())
                renewed, silence = time.monotonic(), 2 * silence
        self._look_back(places)

    def _consume(self, most: int) -> Messages:
        try:
            return self._consumer.consume(most, WAIT)
        except KafkaException as e:
            error = errors.kafka_error(e)
            if error is None or error.code() not in PASSING:
                raise errors.KafkaReadError(f"{self._table}: the client failed: {e}") from e
            return []

    def _without_events(self, messages: Messages, places: Places) -> tuple[Messages, list[int]]:
        """The messages that are records, and the places of which nothing more comes; errors are raised."""
        records, ended = [], []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
                continue
            place = places.find(message)
            if error.code() == _END:
                if place is not None and offset_of(message) >= places.ranges[place].end:
                    ended.append(place)
            elif error.code() in _EXPIRED and place is not None and self._is_there(places.rest(place)):
                self._false_alarms += 1
            elif error.fatal() or error.code() not in _GOES_ON:
                raise self._failed(error, None if place is None else places.rest(place))
            else:
                self._consumer.hear(error)
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
        if error.code() == KafkaError.INCONSISTENT_TOPIC_ID:
            # The client would go on with the new topic as soon as it knows its id, and its records are others.
            return errors.TopicRecreatedError(
                f"{self._table}: the topic was deleted and made again while it was read{where}: {error.str()}"
            )
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

    def _stalled(self, places: Places, waited: float) -> errors.StalledError:
        open_ones = places.open()
        more = f" (and {len(open_ones) - 1} more partitions)" if len(open_ones) > 1 else ""
        told = errors.last_word(self._consumer.last_error)
        return errors.StalledError(
            f"{self._table}: nothing came from {self._consumer.servers} for {waited:.0f} s at {open_ones[0]}{more}"
            f"{told}; a longer wait is the client property default.api.timeout.ms"
        )

    def _look_back(self, places: Places) -> None:
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
