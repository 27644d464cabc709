"""A producer that takes Arrow batches: raw records go into librdkafka's queue without an object for each of them.

A producer belongs to one task at a time (`kdsl.run.librdkafka.producer_pool`).
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import operator
import re
import threading
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from kdsl.callbacks import TopicPartition
from kdsl.errors import KdslError
from kdsl.retry import Deadline, retry
from kdsl.run import ffi as n
from kdsl.run.librdkafka.client_events import handle_events, read_error, read_fatal_error, topic_metadata
from kdsl.run.librdkafka.write_failures import Failure
from kdsl.run.metrics.statistics import client_metrics
from kdsl.types.arrays import Indices

QUEUE_WAIT_MS = 2  # a full queue takes longer than this to be sent, so waiting costs nothing
FLUSH_MS = 100
SYSLOG_ERROR, SYSLOG_WARNING = 3, 4
_CHUNK_RECORDS = 1_000  # how many messages are prepared at a time: they stay in the processor's cache
_VARYING = re.compile(
    r"^(\[thrd:[^]]*\]: )?|( \(after [^()]*\))?$"
)  # thread and times differ between lines that say the same
FIRST_ATTEMPT = 5.0
"""The timeout of the first request to look up a topic, in seconds; each further request has twice the timeout.

librdkafka repeats a request to the same broker, even after it has closed the connection because that broker hangs; a
new request goes to a broker that answers.
"""
_EVENTS = n.EVENT_DELIVERY | n.EVENT_LOG | n.EVENT_ERROR | n.EVENT_STATS
_UNANSWERED = (n.TIMED_OUT, n.TRANSPORT)
_DISCARDED = (KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001
_ZERO_TIMESTAMP = (
    KafkaError.INVALID_TIMESTAMP,
    "librdkafka cannot send the timestamp 1970-01-01 00:00:00.000 UTC, but sends the present time",
)
_CUT_HEADER = (
    n.INVALID_ARGUMENT,
    "the name of a header contains a NUL character, at which librdkafka would cut it off",
)
_log = logging.getLogger(__name__)
_nth = itertools.count(1)


class ProducerError(KdslError):
    """A producer cannot be created or has failed; the error is not about a single record.

    Attributes:
        code: The error code of `confluent_kafka.KafkaError`; 0 if there is none.
        topic: The topic that could not be written; empty if the error is not about a topic.
    """

    def __init__(self, message: str, code: int = 0, topic: str = "") -> None:
        super().__init__(message)
        self.code, self.topic = code, topic


@attrs.frozen
class _Pointers:
    """The addresses of a binary column's values: a null has the address 0, empty bytes have another one.

    Attributes:
        ends: Arrow's offsets, one more than there are values.
        base: The address to which the offsets are relative.
        valid: Which values are not null; None if none is null, or if all are null and the base is 0.
    """

    ends: Any
    base: np.int64
    valid: Any

    def put(self, start: int, count: int, addresses: Any, sizes: Any) -> None:
        """Write the addresses and sizes of ``count`` values from ``start`` on into arrays; those of a null are 0."""
        ends = self.ends[start : start + count + 1]
        np.add(ends[:-1], self.base, out=addresses)
        np.subtract(ends[1:], ends[:-1], out=sizes)
        if self.valid is not None:
            addresses *= self.valid[start : start + count]
            sizes *= self.valid[start : start + count]

    def all(self) -> tuple[Any, Any]:
        """Return the addresses and sizes of all values."""
        addresses, sizes = np.empty((2, len(self.ends) - 1), dtype=np.int64)
        self.put(0, len(addresses), addresses, sizes)
        return addresses, sizes


class Producer:
    """A producer of librdkafka. It must not be shared between threads.

    Args:
        settings: librdkafka's settings; they are not stored.
        reports_offsets: Whether librdkafka reports acknowledged records, too.

    Attributes:
        offsets: The last acknowledged offset by topic and partition; empty unless they are reported.
        failed: How many records are known to have failed.
        failure: The first of these failures.
        last_error: librdkafka's last error about the brokers; empty if there was none.
        known_topics: The topics that `look_up` has found.
        partition_counts: How many partitions each of these topics had at that time.
        client_id: The client id of the settings with a number appended; empty if the settings have none.
    """

    def __init__(self, settings: Mapping[str, str], *, reports_offsets: bool = False) -> None:
        self._lib: Any = n.library()
        self.client_id = f"{settings['client.id']}-{next(_nth)}" if "client.id" in settings else ""
        # Failures are enough: the write has succeeded if none came before the queue was empty.
        own = {"delivery.report.only.error": str(not reports_offsets).lower(), "log.queue": "true"}
        if self.client_id:
            own["client.id"] = self.client_id
        self._handle = n.new_client(n.PRODUCER, {**settings, **own}, events=_EVENTS, error=ProducerError)
        self._lib.rd_kafka_set_log_queue(self._handle, None)
        self._statistics: dict[str, float] | None = None
        self._queue = self._lib.rd_kafka_queue_get_main(self._handle)
        self._topics: dict[str, int] = {}
        self._messages = np.zeros(_CHUNK_RECORDS, dtype=n.MESSAGE)
        self._empty = ctypes.create_string_buffer(1)  # the address of empty keys and values
        self.failed = 0
        self.failure: Failure | None = None
        self.last_error = ""
        self.offsets: dict[TopicPartition, int] = {}
        self._reports_offsets = reports_offsets
        self.known_topics: set[str] = set()
        self.partition_counts: dict[str, int] = {}
        self._logged: set[str] = set()
        self._closed = False

    def reset(self) -> None:
        """Handle pending events, and forget the failures and the last error of earlier tasks; looked-up topics stay."""
        self.poll()
        self.failed, self.failure, self.last_error, self.offsets = 0, None, "", {}

    def look_up(self, topic: str, timeout: float, *, creating: bool = True) -> int:
        """Ask the brokers for a topic, which also makes them create it if they create topics automatically.

        A topic that can be written is added to `known_topics`, and its number of partitions to `partition_counts`.
        Events are handled meanwhile.

        Args:
            topic: The topic.
            timeout: How long to wait for brokers that do not answer, in seconds.
            creating: Whether a missing topic may be in creation; if so, wait some seconds for it, as in any case for
                one without leaders.

        Returns:
            An error code of `confluent_kafka.KafkaError`, such as that of a timeout; 0 if the topic can be written to.
        """
        creation = Deadline(3.0)

        def ask(seconds: float) -> int:
            code = self._look_up(topic, max(1, int(seconds * 1000)))
            self.poll()
            return code

        def is_final(code: int) -> bool:
            in_creation = code == KafkaError.LEADER_NOT_AVAILABLE
            in_creation |= code == KafkaError.UNKNOWN_TOPIC_OR_PART and creating
            return code not in _UNANSWERED and (not in_creation or creation.has_passed)

        code = retry(
            ask,
            is_final,
            Deadline(timeout),
            pause=FLUSH_MS / 1000,
            first_timeout=FIRST_ATTEMPT,
            wait=lambda seconds: self.poll(int(seconds * 1000)),
        )
        if code == KafkaError.NO_ERROR:
            self.known_topics.add(topic)
        return code

    def _look_up(self, topic: str, milliseconds: int) -> int:
        """Request a topic's metadata once, store its number of partitions, and return the error code, 0 for none."""
        with topic_metadata(self._lib, self._handle, self._topic(topic), milliseconds) as (code, metadata):
            if code:
                return code
            if metadata is None:
                return int(KafkaError.UNKNOWN_TOPIC_OR_PART)
            self.partition_counts[topic] = int(metadata.partition_cnt)
            return int(metadata.err)

    def send(self, topic: str, records: pa.RecordBatch, rows: Indices) -> None:
        """Put records into the queue in their order, waiting while it is full. Failures are counted, not raised.

        Records that librdkafka would alter are failures and not sent (`_remove_unsendable`).

        Args:
            topic: The topic of all records.
            records: The result of `kdsl.run.records.encode.RecordEncoder`; a column ``partition`` (int32) chooses the
                partition of each record, and -1 lets librdkafka choose.
            rows: The index of each record among the task's rows, for failures.
        """
        if "timestamp" in records.schema.names or "headers" in records.schema.names:
            records, rows = self._remove_unsendable(topic, records, rows)
            for start in range(0, records.num_rows, _CHUNK_RECORDS):
                self._send_items(topic, records.slice(start, _CHUNK_RECORDS), rows[start : start + _CHUNK_RECORDS])
        else:
            self._send_messages(topic, records, rows)
        self.poll()

    def _send_messages(self, topic: str, records: pa.RecordBatch, rows: Indices) -> None:
        """Queue all records in librdkafka, and wait while its queue is full; refused ones count in `failed`."""
        keys, values = self._pointers(records.column("key")), self._pointers(records.column("value"))
        handle, produce = self._topic(topic), self._lib.rd_kafka_produce_batch
        chosen = _partition_numbers(records)
        flags = n.COPY if chosen is None else n.COPY | n.TO_PARTITION
        for start in range(0, records.num_rows, _CHUNK_RECORDS):
            count = min(_CHUNK_RECORDS, records.num_rows - start)
            messages = self._messages[:count]
            keys.put(start, count, messages["key"], messages["key_len"])
            values.put(start, count, messages["payload"], messages["len"])
            np.add(rows[start : start + count], 1, out=messages["private"])
            if chosen is not None:
                messages["partition"] = chosen[start : start + count]
            at, empty = 0, False
            while at < count:
                address = messages.ctypes.data + at * n.MESSAGE.itemsize
                if produce(handle, n.ANY_PARTITION, flags, address, count - at) == count - at:
                    break
                codes = messages["err"][at:]
                full = np.flatnonzero(codes == n.QUEUE_FULL)
                tried = int(full[0]) if len(full) else count - at  # nothing is tried after the queue is full
                if empty and tried == 0:  # this message will never fit
                    tried, full = 1, full[:0]
                for message in messages[at : at + tried][codes[:tried] != 0]:
                    length = int(message["len"]) + int(message["key_len"])
                    self._add_failure(int(message["err"]), topic, None, int(message["private"]) - 1, length)
                at += tried
                empty = len(full) > 0 and self._wait_for_room()

    def _send_items(self, topic: str, records: pa.RecordBatch, rows: Indices) -> None:
        """Queue records with headers or timestamps in librdkafka, and wait while its queue is full.

        Records that librdkafka refuses are failures.
        """
        items, starts, _bytes = self._build_items(topic, records, rows)
        addresses: list[int] = (items.ctypes.data + starts[:-1] * n.ITEM.itemsize).tolist()
        counts: list[int] = np.diff(starts).tolist()
        produce, handle = self._lib.rd_kafka_produceva, itertools.repeat(self._handle)
        at, empty = 0, False
        while at < len(counts):
            before, left = at, iter(addresses[at:])
            # `next` makes one call after the other until one returns an error.
            error = next(filter(None, map(produce, handle, left, counts[at:])), None)
            at = len(counts) - operator.length_hint(left)
            if error is None:
                continue
            code = self._lib.rd_kafka_error_code(error)
            self._lib.rd_kafka_error_destroy(error)
            if code == n.QUEUE_FULL and not (empty and at == before + 1):  # otherwise it will never fit
                at -= 1
                empty = self._wait_for_room()
            else:
                empty = False
                sizes = [len(value) for value in (c[at - 1].as_py() for c in records.columns[:2]) if value]
                self._add_failure(code, topic, None, int(rows[at - 1]), sum(sizes))

    def _build_items(self, topic: str, records: pa.RecordBatch, rows: Indices) -> tuple[Any, Indices, object]:
        """Build the arguments of ``rd_kafka_produceva`` for all records, which point into the memory of the records.

        The arrays of the result must live, as the records must, until the messages are queued.
        """
        length = records.num_rows
        headers = records.column("headers") if "headers" in records.schema.names else None
        counts = np.zeros(length, dtype=np.int64)
        if headers is not None:
            counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        chosen = _partition_numbers(records)
        fixed = 6 if chosen is None else 7
        starts = np.concatenate([[0], np.cumsum(counts + fixed)])
        at = starts[:-1]
        times = np.zeros(length, dtype=np.int64)  # 0 means the time of sending
        if "timestamp" in records.schema.names:
            times = pc.fill_null(records.column("timestamp"), 0).to_numpy(zero_copy_only=False)
        items = np.zeros(starts[-1], dtype=n.ITEM)
        _set_items(items, at, n.ITEM_TOPIC, self._topic(topic))
        _set_items(items, at + 1, n.ITEM_KEY, *self._pointers(records.column("key")).all())
        _set_items(items, at + 2, n.ITEM_VALUE, *self._pointers(records.column("value")).all())
        _set_items(items, at + 3, n.ITEM_FLAGS, n.COPY)
        _set_items(items, at + 4, n.ITEM_PRIVATE, rows + 1)
        _set_items(items, at + 5, n.ITEM_TIMESTAMP, times)
        if chosen is not None:
            _set_items(items, at + 6, n.ITEM_PARTITION, chosen)
        if headers is None or not counts.any():
            return items, starts, None
        pairs = headers.flatten()
        names = pc.binary_join_element_wise(
            pairs.field(0).cast(pa.binary()), b"", b"\0"
        )  # librdkafka reads a name up to a NUL
        begin = np.repeat(at + fixed, counts)
        within = np.arange(len(pairs)) - np.repeat(np.cumsum(counts) - counts, counts)
        where, _ = self._pointers(names).all()
        _set_items(items, begin + within, n.ITEM_HEADER, where, *self._pointers(pairs.field(1)).all())
        return items, starts, (pairs, names)

    def _pointers(self, array: pa.Array) -> _Pointers:
        """Return where the values of a binary array are in memory, nulls at 0; the array must outlive the result."""
        nulls = array.null_count
        if nulls == len(array):
            return _Pointers(np.zeros(len(array) + 1, dtype=np.int32), np.int64(0), None)
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
        base = data.address if data is not None and data.size else ctypes.addressof(self._empty)
        return _Pointers(ends, np.int64(base), array.is_valid().to_numpy(zero_copy_only=False) if nulls else None)

    def flush(self, timeout: float | None = None) -> int:
        """Send everything and wait for the acknowledgements, or for the first failure.

        Args:
            timeout: The maximum time in seconds, whatever fails meanwhile; None waits until each record is written or
                one has failed, which ``delivery.timeout.ms`` limits.

        Returns:
            How many records are neither acknowledged nor failed.
        """
        deadline = None if timeout is None else Deadline(timeout)
        while left := int(self._lib.rd_kafka_outq_len(self._handle)):
            if self.failed if deadline is None else deadline.has_passed:
                return left
            self._lib.rd_kafka_flush(self._handle, FLUSH_MS)
            self.poll()
        return 0

    def poll(self, milliseconds: int = 0) -> None:
        """Handle all of librdkafka's queued events; wait at most ``milliseconds`` for the first one."""
        handle_events(self._lib, self._queue, self._handle_event, milliseconds)

    def _handle_event(self, event: int) -> None:
        """Handle an event of librdkafka: store failed deliveries, statistics and the last error; write its log."""
        match self._lib.rd_kafka_event_type(event):
            case n.EVENT_DELIVERY if self._reports_offsets and not self._lib.rd_kafka_event_error(event):
                self._note_offset(event)
            case n.EVENT_DELIVERY:
                while pointer := self._lib.rd_kafka_event_message_next(event):
                    m = pointer.contents
                    if m.err:
                        topic = self._lib.rd_kafka_topic_name(m.rkt).decode()
                        self._add_failure(
                            m.err,
                            topic,
                            m.partition,
                            m.private - 1,
                            m.len + m.key_len,
                        )
            case n.EVENT_LOG:
                self._handle_log(event)
            case n.EVENT_STATS:
                self._statistics = client_metrics(self._lib.rd_kafka_event_stats(event))
            case n.EVENT_ERROR:
                code, self.last_error, fatal = read_error(self._lib, self._handle, event)
                if fatal:
                    raise ProducerError(f"the producer has failed for good: {self.last_error}", code)

    def _note_offset(self, event: int) -> None:
        """Store the offset of the last record of an event, whose records were acknowledged together."""
        count = self._lib.rd_kafka_event_message_count(event)
        messages = (ctypes.POINTER(n.Message) * count)()
        if not self._lib.rd_kafka_event_message_array(event, messages, count):
            return
        last = messages[count - 1].contents
        partition = (self._lib.rd_kafka_topic_name(last.rkt).decode(), int(last.partition))
        self.offsets[partition] = max(int(last.offset), self.offsets.get(partition, -1))

    def _cause_of(self, code: int) -> int:
        """Return the code of the producer's fatal error if ``code`` says that a record was discarded; else ``code``."""
        return (read_fatal_error(self._lib, self._handle)[0] or code) if code in _DISCARDED else code

    def take_statistics(self) -> dict[str, float] | None:
        """Return the client's latest statistics and forget them; None if there are none since the last call."""
        statistics, self._statistics = self._statistics, None
        return statistics

    def _handle_log(self, event: int) -> None:
        """Log a line of librdkafka's log, and store a severe one (a warning or worse) as `last_error`.

        A severe line is logged as WARNING if it is an error, otherwise as INFO, the first time that this producer logs
        it; repeated and other lines are logged as DEBUG. Warnings about settings are not severe.
        """
        facility, text, level = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_int()
        self._lib.rd_kafka_event_log(event, ctypes.byref(facility), ctypes.byref(text), ctypes.byref(level))
        line = (text.value or b"").decode(errors="replace")
        # kdsl.client_settings checks all settings, so remarks about them are ignored.
        severe = level.value <= SYSLOG_WARNING and facility.value != b"CONFWARN"
        if severe:
            self.last_error = _VARYING.sub("", line)
        rank = logging.WARNING if level.value <= SYSLOG_ERROR else logging.INFO
        if not severe or self.last_error in self._logged:
            rank = logging.DEBUG
        else:
            self._logged.add(self.last_error)
        _log.log(rank, "librdkafka %s: %s", (facility.value or b"").decode(), line)

    def _add_failure(self, code: int, topic: str, partition: int | None, row: int, size: int, reason: str = "") -> None:
        """Count a record that was not written, and store the first one as `failure`.

        If librdkafka only says that the record was discarded, the failure gets the code of the producer's fatal error.
        An empty ``reason`` becomes librdkafka's text for the code.
        """
        self.failed += 1
        if self.failure is None:
            code = self._cause_of(code)
            reason = reason or self._lib.rd_kafka_err2str(code).decode()
            chosen = partition if partition is not None and partition >= 0 else None
            self.failure = Failure(code, reason, topic, chosen, row, size)

    def _remove_unsendable(self, topic: str, records: pa.RecordBatch, rows: Indices) -> tuple[pa.RecordBatch, Indices]:
        """Return the records that librdkafka would not alter, and their ``rows``; count each other one as a failure.

        The others have the timestamp 0, or a NUL in the name of a header.
        """
        zero, cut = np.zeros((2, records.num_rows), dtype=bool)
        if "timestamp" in records.schema.names:
            zero = pc.fill_null(pc.equal(records.column("timestamp"), 0), False).to_numpy(zero_copy_only=False)
        if "headers" in records.schema.names:
            headers = records.column("headers")
            with_nul = pc.match_substring(headers.flatten().field(0), "\0")
            if pc.any(with_nul).as_py():
                cut[pc.list_parent_indices(headers).filter(with_nul).to_numpy()] = True
        bad = zero | cut
        if not bad.any():
            return records, rows
        for index in np.flatnonzero(bad):
            code, reason = _ZERO_TIMESTAMP if zero[index] else _CUT_HEADER
            self._add_failure(code, topic, None, int(rows[index]), 0, reason)
        return records.filter(pa.array(~bad)), rows[~bad]

    def _wait_for_room(self) -> bool:
        """Handle events, for a moment if there are none, and return whether the queue is empty afterwards."""
        self.poll(QUEUE_WAIT_MS)
        return not self._lib.rd_kafka_outq_len(self._handle)

    def _topic(self, name: str) -> int:
        """Return librdkafka's handle of a topic, created at the first use without a request or an error."""
        if name not in self._topics:
            self._topics[name] = self._lib.rd_kafka_topic_new(self._handle, name.encode(), None)
        return self._topics[name]

    def abandon(self) -> None:
        """Discard all records that are queued or in flight, and close the producer in the background."""
        if not self._closed:
            self._lib.rd_kafka_purge(self._handle, n.PURGE)
        self.close()

    def close(self) -> None:
        """Close the producer in the background, because a connection that hangs would delay the task's error.

        Records that are still queued may be lost. Every later use but ``close`` and ``abandon`` is a `ProducerError`.
        """
        if not self._closed:
            self._closed = True
            lib, self._lib = self._lib, _ClosedLibrary()
            threading.Thread(target=self._free, args=(lib,), name="kdsl-producer-close", daemon=True).start()

    def _free(self, lib: Any) -> None:
        """Free librdkafka's topics, queue and client."""
        for topic in self._topics.values():
            lib.rd_kafka_topic_destroy(topic)
        lib.rd_kafka_queue_destroy(self._queue)
        lib.rd_kafka_destroy(self._handle)


class _ClosedLibrary:
    """Stands for librdkafka in a closed producer, whose handle points to memory that is freed."""

    def __getattr__(self, name: str) -> Any:
        """Raise a ProducerError, for a function of any name."""
        raise ProducerError(f"{name} cannot be called, because the producer was closed")


def _partition_numbers(records: pa.RecordBatch) -> Any:
    """Return the column ``partition`` as a NumPy array (-1: librdkafka chooses); None if records do not have it."""
    if "partition" not in records.schema.names:
        return None
    return records.column("partition").to_numpy(zero_copy_only=False)


def _set_items(items: Any, at: Indices, kind: int, *words: Any) -> None:
    """Set the kind and the first words of the items at some indices, in place."""
    items["kind"][at] = kind
    for name, word in zip(("first", "second", "third"), words, strict=False):
        items[name][at] = word
