"""Fetches the records of offset ranges as raw Arrow batches, before a task decodes them.

Either a range is read completely or the task fails. Progress is measured by position and not by the number of records:
the offsets of transaction markers and of aborted and compacted records never arrive.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from kdsl.errors import KafkaReadError, OffsetError, TopicMissingError, TopicRecreatedError, pluralize
from kdsl.run.admin import errors
from kdsl.run.admin.cluster_admin import OffsetAndEpoch
from kdsl.run.admin.errors import RETRIABLE, StalledError
from kdsl.run.librdkafka.consumers import GROUP_ERRORS, PooledConsumer
from kdsl.run.librdkafka.message_batch import MessageBatch, Records
from kdsl.run.librdkafka.range_progress import RangeProgress
from kdsl.run.librdkafka.truncation import EpochCheck, truncation_of
from kdsl.run.offsets.starting import describe_truncated
from kdsl.run.offsets.stored import Range
from kdsl.run.records.metadata import RAW

CHUNK_RECORDS = 8_000
"""How many records are taken from the client at a time: many enough that what is done for all of them costs little."""
CHUNK_BYTES = 4_194_304
BATCH_RECORDS = 20_000
BATCH_BYTES = 16_777_216
JOINT_FETCH_RECORDS = 20_000
"""Ranges of up to this many offsets are fetched together, larger ones one by one, which costs less per record."""
POLL_SECONDS = 0.05
"""The timeout of one call of the client, in seconds."""

RECONNECT_SECONDS = 20.0
"""After how many seconds without a message the client is replaced by a new one; the next time it is twice as long.

The client may also be silent because it skips aborted transactions, which it does not report.
"""

_SHORT_LOG_INTERVAL = 2.0
"""The minimum time between two calls of `Fetcher.on_short_log`, in seconds."""

_COORDINATES = ("topic", "partition", "offset")
_END = KafkaError._PARTITION_EOF  # noqa: SLF001
_EXPIRED = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001
_RECOVERABLE = frozenset((*RETRIABLE, *GROUP_ERRORS, KafkaError.UNKNOWN))
"""After these errors the client continues by itself; the last one is an internal error of a broker."""
_FALSE_ALARMS = 5


class Fetcher:
    """Reads ranges with a pooled consumer.

    Args:
        consumer: The consumer.
        table: The table's name, for error messages.
        needs: The needed fields of a raw batch; topic, partition and offset are always included.
        timeout: How many seconds without a message make the read fail.

    Attributes:
        schema: The schema of the raw batches.
        timeout: How many seconds without a message make the read fail; it may be changed meanwhile.
        count: Counts what is fetched if the caller has set it.
        on_short_log: Called from time to time while the log of a partition ends before the wanted range; an exception
            that it raises ends the read.
        epochs: Checks that the records existed when the ranges were planned; None if that is not known.
    """

    def __init__(self, consumer: PooledConsumer, table: str, needs: Collection[str], timeout: float) -> None:
        self._consumer, self._table, self.timeout = consumer, table, timeout
        self._fields = tuple(name for name in RAW if name in needs and name not in _COORDINATES)
        self.schema = pa.schema([(name, RAW[name]) for name in (*_COORDINATES, *self._fields)])
        self._bytes_each = 262_144.0  # an estimate until the first chunk
        self._false_alarms = 0
        self.count: FetchCount | None = None
        self.on_short_log: Callable[[], None] | None = None
        self.epochs: EpochCheck | None = None
        self._is_short = False

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """Read the records of some ranges as raw batches with the schema `schema`, each range in order of its offsets.

        Ranges come in another order than given, and the records of several ranges may share a batch. They are counted
        in `count` if that is set. Afterwards the consumer still has its last assignment.
        """
        for group in _group_ranges(ranges):
            yield from self._read_group(group)

    def _read_group(self, group: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """Read ranges of different partitions together, and yield batches of limited size."""
        chunks: list[list[pa.Array]] = []
        records = size = 0
        for chunk in self._read_chunks(RangeProgress(group)):
            if records >= BATCH_RECORDS or size >= BATCH_BYTES:  # only now, so that nothing is fetched after the last
                yield self._build_batch(chunks)
                chunks, records, size = [], 0, 0
            chunks.append(chunk)
            chunk_records, chunk_bytes = len(chunk[0]), sum(array.nbytes for array in chunk)
            self._bytes_each = chunk_bytes / chunk_records
            records, size = records + chunk_records, size + chunk_bytes
        if chunks:
            yield self._build_batch(chunks)

    def _build_batch(self, chunks: list[list[pa.Array]]) -> pa.RecordBatch:
        """Concatenate one or more chunks of columns to a batch."""
        arrays = chunks[0] if len(chunks) == 1 else [pa.concat_arrays(column) for column in zip(*chunks, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _read_chunks(self, progress: RangeProgress) -> Iterator[list[pa.Array]]:
        """Read ranges together, and yield the columns of the messages as they arrive; ``progress`` is moved along.

        Connects again when no message arrives for long, counts in `count`, and calls `on_short_log`.
        """
        self._consumer.assign(progress.ranges)
        received_at = reconnected_at = time.monotonic()
        checked_at, self._is_short = float("-inf"), False
        max_silence, alarms = RECONNECT_SECONDS, self._false_alarms
        while remaining := progress.count_remaining():
            chunk: list[pa.Array] | None = None
            with self._consume(min(remaining, CHUNK_RECORDS, int(CHUNK_BYTES / self._bytes_each) + 1)) as messages:
                records, ended = messages.records(), []
                if len(records) < len(messages):
                    ended = self._handle_events(messages, progress)
                if len(records) or ended:
                    received_at, max_silence = time.monotonic(), RECONNECT_SECONDS
                    self._consumer.note_success()
                if len(records):
                    chunk = self._build_chunk(records, progress)
                progress.finish(ended)
            if finished := progress.take_finished():  # what follows them would hold up the others
                self._consumer.release(finished)
            if self._false_alarms > alarms:
                alarms = self._false_alarms
                self._consumer.assign(progress.remaining_ranges())
            if chunk is not None:
                yield chunk
                received_at = time.monotonic()  # the consumer of the rows may have taken long
            elif (error := self._consumer.lasting_error) and (
                affected := _find_affected_range(error, progress.remaining_ranges())
            ):
                raise self._read_error(error, affected)
            elif (
                self._is_short and self.on_short_log is not None and time.monotonic() - checked_at > _SHORT_LOG_INTERVAL
            ):
                self.on_short_log()
                checked_at = time.monotonic()
            elif time.monotonic() - received_at > self.timeout:
                raise self._explain_stall(progress, time.monotonic() - received_at)
            elif time.monotonic() - max(received_at, reconnected_at) > max_silence:
                self._consumer.reconnect(progress.remaining_ranges())
                reconnected_at, max_silence = time.monotonic(), 2 * max_silence
        self._check_gaps(progress)

    def _build_chunk(self, records: Records, progress: RangeProgress) -> list[pa.Array] | None:
        """Build the columns of the records that belong to the ranges, and move their ``progress``; None without any.

        The records are counted in `count`, and their epochs checked.
        """
        records, columns = progress.advance(records)
        if not len(records):
            return None
        if self.epochs is not None:
            ranges, last = progress.last_of_each(records)
            self.epochs.verify(list(zip(ranges, records.leader_epochs(last), strict=True)))
        if self.count is not None:
            self.count.add(records)
        return [*columns, *map(records.build, self._fields)]

    def _consume(self, max_messages: int) -> MessageBatch:
        """Poll at most ``max_messages`` within `POLL_SECONDS`; none after an error that the client recovers from."""
        try:
            return self._consumer.consume(max_messages, POLL_SECONDS)
        except KafkaException as e:
            error = errors.kafka_error(e)
            if error is None or error.code() not in RETRIABLE:
                raise KafkaReadError(f"{self._table}: the client failed: {e}") from e
            return MessageBatch(np.empty(0, np.int64))

    def _handle_events(self, messages: MessageBatch, progress: RangeProgress) -> list[int]:
        """Return the indices of the ranges whose partitions have no more records, according to the events of a batch.

        Errors from which the consumer recovers are noted in it. Expired offsets that exist are counted as false alarms,
        and a log that ends before its range is noted for `on_short_log`.
        """
        ended = []
        for event in messages.events():
            error, index = event.error, progress.index_of(event)
            if error.code() == _END:
                if index is not None and event.offset >= progress.ranges[index].end:
                    ended.append(index)
                else:
                    self._is_short |= index is not None
            elif truncation_of(error) is not None:
                raise self._read_error(error, None if index is None else progress.remaining_range(index))
            elif error.code() in _EXPIRED and index is not None and self._exists(progress.remaining_range(index)):
                self._false_alarms += 1
            elif error.fatal() or error.code() not in _RECOVERABLE:
                raise self._read_error(error, None if index is None else progress.remaining_range(index))
            else:
                self._consumer.note_error(error)
        return ended

    def _exists(self, at: Range) -> bool:
        """Ask whether the start of a range exists although it was reported as out of range, for an earlier assignment.

        False without asking after `_FALSE_ALARMS` false alarms, which the caller counts; errors as in
        `PooledConsumer.latest`.
        """
        if self._false_alarms >= _FALSE_ALARMS:
            return False
        fetchers = (self._consumer.earliest, self._consumer.latest)
        earliest, latest = (fetch([at], self.timeout)[0] for fetch in fetchers)
        return earliest <= at.start <= latest

    def _read_error(self, error: KafkaError, at: Range | None) -> KafkaReadError:
        """Create the read's error for an error of the client, at a range if it is known.

        For an expired offset, the brokers are asked for the earliest one, which may raise a KafkaReadError itself.

        Returns:
            An UnreachableError, NotAllowedError, TopicMissingError, TopicRecreatedError or OffsetError where the code
            of the error says so; otherwise a plain KafkaReadError.
        """
        where = f" at {at}" if at else ""
        if errors.is_login_error(error):
            return errors.login_refused(self._table, self._consumer.servers, error.str())
        if errors.is_not_allowed(error):
            return errors.not_allowed(self._table, f"the topic {at.topic!r}" if at else "the topic", error)
        if errors.is_unknown_topic(error):
            return TopicMissingError(
                f"{self._table}: the topic was deleted while it was read{where}: {error.str()}; its unread records are "
                "lost; create it again and start with a new checkpoint"
            )
        if error.code() == KafkaError.INCONSISTENT_TOPIC_ID:
            # The client would continue with the new topic, whose records are different, once it knows its id.
            return TopicRecreatedError(
                f"{self._table}: the topic was deleted and created again while it was read{where}: {error.str()}; its "
                "unread records are lost; start with a new checkpoint, which reads the new topic"
            )
        truncation = truncation_of(error)
        if at and truncation is not None:
            partition = (at.topic, at.partition)
            describe = partial(describe_truncated, self._table) if self.epochs is None else self.epochs.describe
            positions = {partition: OffsetAndEpoch(at.start, None)}
            return OffsetError(describe(positions, {partition: truncation}, "this task has read up to"))
        if at and error.code() in _EXPIRED:
            earliest = self._consumer.earliest([at], self.timeout)[0]
            if earliest > at.start:
                return self._explain_deletion(at, earliest)
            return OffsetError(
                f"{self._table}: topic {at.topic}, partition {at.partition} no longer has the offset {at.start}; it "
                f"begins at {earliest}: the log was truncated, or the topic was created again while it was read "
                f"({error.str()}); start with a new checkpoint at offsets that exist"
            )
        return KafkaReadError(f"{self._table}: cannot read{where}: {error.str()} ({error.name()})")

    def _explain_deletion(self, at: Range, earliest: int) -> OffsetError:
        """Create the error for records that were deleted before they could be read."""
        lost = pluralize(min(earliest, at.end) - at.start, "offset is", "offsets are")
        return OffsetError(
            f"{self._table}: records were deleted before they could be read: topic {at.topic}, partition "
            f"{at.partition}, offset {at.start} is wanted, the earliest is {earliest}; {lost} lost; read faster than "
            "the topic's retention deletes, or set the client property auto.offset.reset to earliest and start again"
        )

    def _explain_stall(self, progress: RangeProgress, waited: float) -> StalledError:
        """Create the error for a read in which no message arrives, with the last error that the consumer has."""
        remaining = progress.remaining_ranges()
        others = f" (and {pluralize(len(remaining) - 1, 'more partition')})" if len(remaining) > 1 else ""
        last_error = errors.describe_last_error(self._consumer.last_error)
        return StalledError(
            f"{self._table}: no message arrived from {self._consumer.servers} for {waited:.0f} s at {remaining[0]}"
            f"{others}{last_error}; to wait longer, raise the client property default.api.timeout.ms"
        )

    def _check_gaps(self, progress: RangeProgress) -> None:
        """Check that records missing at the start of a range are a gap: the log must not begin after that start."""
        gaps = progress.gaps()
        if gaps:
            offsets = self._consumer.earliest(gaps, self.timeout)
            for gap, earliest in zip(gaps, offsets, strict=True):
                if earliest > gap.start:
                    raise self._explain_deletion(gap, earliest)


def _find_affected_range(error: KafkaError, ranges: Sequence[Range]) -> Range | None:
    """Return the first range whose topic occurs in the message of an error; for a refused login, the first range.

    None if no such topic occurs in it, as in a late error about a topic that an earlier task read.
    """
    if errors.is_login_error(error):
        return ranges[0]
    return next((r for r in ranges if r.topic in error.str()), None)


def _group_ranges(ranges: Sequence[Range]) -> list[list[Range]]:
    """Group the ranges that are fetched at a time: each large one alone, then small ones of different partitions.

    A further small range of a partition comes into a later group. Large ranges have more than `JOINT_FETCH_RECORDS`.
    """
    groups = [[r] for r in ranges if len(r) > JOINT_FETCH_RECORDS]
    rounds: list[list[Range]] = []
    seen: Counter[tuple[str, int]] = Counter()
    for r in ranges:
        if len(r) <= JOINT_FETCH_RECORDS:
            nth = seen[r.topic, r.partition]
            seen[r.topic, r.partition] += 1
            if nth == len(rounds):
                rounds.append([])
            rounds[nth].append(r)
    return groups + rounds


class FetchCount:
    """Counts what is fetched: the records, their bytes, and the age of the last one.

    Attributes:
        records: How many records were fetched.
        bytes: The bytes of their keys and values.
        event: The timestamp of the last record in milliseconds; None if it has none.
        at: When the last record was taken from the client, in seconds since 1970.
    """

    def __init__(self) -> None:
        self.records = self.bytes = 0
        self.event: int | None = None
        self.at = 0.0

    def add(self, records: Records) -> None:
        """Count at least one record and the bytes of keys and values; set `event` to the last time, and `at` to now."""
        self.event, self.at = records.last_time(), time.time()
        self.records += len(records)
        self.bytes += records.size

    def take(self) -> tuple[int, int, int | None, float]:
        """Return `records` and `bytes` since the last call, which become zero, and `event` and `at`, which stay."""
        counts = (self.records, self.bytes, self.event, self.at)
        self.records = self.bytes = 0
        return counts
