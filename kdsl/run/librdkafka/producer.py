"""A producer that takes Arrow batches: raw records go into librdkafka's queue without an object for each of them."""

from __future__ import annotations

import ctypes
import itertools
import logging
import operator
import re
import threading
from collections.abc import Mapping
from time import monotonic
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from kdsl.errors import KdslError
from kdsl.run.arrays import Rows
from kdsl.run.cluster import native as n
from kdsl.run.metrics.statistics import client_metrics

PATIENCE_MS = 2  # a full queue holds more than is sent in this time, so that waiting costs nothing
FLUSH_MS = 100
SYSLOG_ERROR, SYSLOG_WARNING = 3, 4
_STEP = 1_000  # messages that are laid out at once: they stay in the processor's cache
_WITHIN = re.compile(r"^(\[thrd:[^]]*\]: )?|( \(after [^()]*\))?$")  # thread and times make equal lines differ
_ATTEMPT = 5.0
"""How long the first attempt to look up a topic may take, in seconds; each has twice the time of the one before.

librdkafka repeats a request with the same broker, even after the connection is given up because that one stands still;
a new request goes to one that answers.
"""
_UNANSWERED = (n.TIMED_OUT, n.TRANSPORT)
_GIVEN_UP = (KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001
_log = logging.getLogger(__name__)
_nth = itertools.count(1)


@attrs.frozen
class Failure:
    """A record that was not written.

    Attributes:
        code: Why, as a number of `confluent_kafka.KafkaError`.
        reason: Why, in words.
        topic: Its topic.
        partition: Its partition, where one was chosen.
        row: Its place among the task's rows, from 0.
        size: The bytes of its key and value.
    """

    code: int
    reason: str
    topic: str
    partition: int | None
    row: int
    size: int


class ProducerError(KdslError):
    """A producer cannot be made, or cannot go on; no single record is at fault.

    Attributes:
        code: Why, as a number of `confluent_kafka.KafkaError`; 0 where no such number tells.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


@attrs.frozen
class _Pointers:
    """Where the bytes of a binary column's values are: a null is nowhere, empty bytes are somewhere.

    Attributes:
        ends: Arrow's offsets, one more than values.
        base: The address from which they count.
        valid: Which values are not null; None where all are, or where all are null and the base is 0.
    """

    ends: Any
    base: np.int64
    valid: Any

    def put(self, start: int, count: int, addresses: Any, sizes: Any) -> None:
        """Write addresses and sizes of some values into arrays."""
        ends = self.ends[start : start + count + 1]
        np.add(ends[:-1], self.base, out=addresses)
        np.subtract(ends[1:], ends[:-1], out=sizes)
        if self.valid is not None:
            addresses *= self.valid[start : start + count]
            sizes *= self.valid[start : start + count]

    def all(self) -> tuple[Any, Any]:
        """Addresses and sizes of all values."""
        addresses, sizes = np.empty((2, len(self.ends) - 1), dtype=np.int64)
        self.put(0, len(addresses), addresses, sizes)
        return addresses, sizes


class Producer:
    """A producer of librdkafka. Not shared between threads.

    Args:
        settings: librdkafka's settings; not kept.

    Attributes:
        failed: How many records were not written, as far as is known.
        failure: The first of them.
        complaint: What librdkafka last said of the brokers.
        known: The topics that were found.
        partitions: How many partitions each of them had then.
        client_id: Its client id: the one of the settings and a number, which makes it its own; empty where none is set.

    Raises:
        ProducerError: librdkafka refuses the settings.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._lib = n.library()
        self.client_id = f"{settings['client.id']}-{next(_nth)}" if "client.id" in settings else ""
        own = {"client.id": self.client_id} if self.client_id else {}
        self._handle = _new(self._lib, {**settings, **own})
        self._told: dict[str, float] | None = None
        self._queue = self._lib.rd_kafka_queue_get_main(self._handle)
        self._topics: dict[str, int] = {}
        self._messages = np.zeros(_STEP, dtype=n.MESSAGE)
        self._empty = ctypes.create_string_buffer(1)  # what an empty key or value points to
        self.failed = 0
        self.failure: Failure | None = None
        self.complaint = ""
        self.known: set[str] = set()
        self.partitions: dict[str, int] = {}
        self._heard: set[str] = set()
        self._closed = False

    def renew(self) -> None:
        """Begin anew for another task: what is told of the time before is old news.

        Raises:
            ProducerError: The producer cannot go on.
        """
        self.poll()
        self.failed, self.failure, self.complaint = 0, None, ""

    def look_up(self, topic: str, timeout: float, *, creating: bool = True) -> int:
        """Ask the brokers for a topic, which also lets them create it where they do.

        Args:
            topic: The topic.
            timeout: How long brokers that do not answer are waited for, in seconds.
            creating: Whether a topic that is missing may be about to be created; it is waited for a moment then.

        Returns:
            A number of `confluent_kafka.KafkaError`; 0 is a topic that can be written to.
        """
        give_up, brief, attempt = monotonic() + timeout, monotonic() + 3, _ATTEMPT
        while True:
            code = self._look_up(topic, max(1, int(min(attempt, give_up - monotonic()) * 1000)))
            attempt *= 2
            self.poll()
            waiting = code == KafkaError.LEADER_NOT_AVAILABLE
            waiting |= code == KafkaError.UNKNOWN_TOPIC_OR_PART and creating
            if code == KafkaError.NO_ERROR:
                self.known.add(topic)
            unanswered = code in _UNANSWERED
            if not (waiting or unanswered) or monotonic() > (give_up if unanswered else brief):
                return code
            self.poll(FLUSH_MS)

    def _look_up(self, topic: str, milliseconds: int) -> int:
        found = ctypes.POINTER(n.Metadata)()
        handle = self._topic(topic)
        code: int = self._lib.rd_kafka_metadata(self._handle, 0, handle, ctypes.byref(found), milliseconds)
        if code:
            return code
        try:
            if not found.contents.topic_cnt:
                return int(KafkaError.UNKNOWN_TOPIC_OR_PART)
            self.partitions[topic] = int(found.contents.topics[0].partition_cnt)
            return int(found.contents.topics[0].err)
        finally:
            self._lib.rd_kafka_metadata_destroy(found)

    def send(self, topic: str, records: pa.RecordBatch, rows: Rows) -> None:
        """Put records into the queue, in their order; waits while it is full. Failures are counted, not raised.

        Args:
            topic: The topic of all of them.
            records: As `kdsl.run.records.encode.RecordEncoder` makes them; a column ``partition`` (int32) sends each
                record to its partition, -1 lets librdkafka choose.
            rows: The place of each among the task's rows, for failures.

        Raises:
            ProducerError: The producer cannot go on.
        """
        if "timestamp" in records.schema.names or "headers" in records.schema.names:
            records, rows = self._sendable(topic, records, rows)
            for start in range(0, records.num_rows, _STEP):
                self._send_items(topic, records.slice(start, _STEP), rows[start : start + _STEP])
        else:
            self._send_messages(topic, records, rows)
        self.poll()

    def _send_messages(self, topic: str, records: pa.RecordBatch, rows: Rows) -> None:
        keys, values = self._pointers(records.column("key")), self._pointers(records.column("value"))
        handle, produce = self._topic(topic), self._lib.rd_kafka_produce_batch
        chosen = _partitions(records)
        flags = n.COPY if chosen is None else n.COPY | n.TO_PARTITION
        for start in range(0, records.num_rows, _STEP):
            count = min(_STEP, records.num_rows - start)
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
                tried = int(full[0]) if len(full) else count - at  # where the queue is full, nothing after it is tried
                if empty and tried == 0:  # this one will never fit
                    tried, full = 1, full[:0]
                for message in messages[at : at + tried][codes[:tried] != 0]:
                    length = int(message["len"]) + int(message["key_len"])
                    self._fail(int(message["err"]), topic, None, int(message["private"]) - 1, length)
                at += tried
                empty = len(full) > 0 and self._wait()

    def _send_items(self, topic: str, records: pa.RecordBatch, rows: Rows) -> None:
        items, starts, _bytes = self._items(topic, records, rows)
        addresses: list[int] = (items.ctypes.data + starts[:-1] * n.ITEM.itemsize).tolist()
        counts: list[int] = np.diff(starts).tolist()
        produce, handle = self._lib.rd_kafka_produceva, itertools.repeat(self._handle)
        at, empty = 0, False
        while at < len(counts):
            before, left = at, iter(addresses[at:])
            # The calls follow one another inside `next`, up to the first that gives an error.
            error = next(filter(None, map(produce, handle, left, counts[at:])), None)
            at = len(counts) - operator.length_hint(left)
            if error is None:
                continue
            code = self._lib.rd_kafka_error_code(error)
            self._lib.rd_kafka_error_destroy(error)
            if code == n.QUEUE_FULL and not (empty and at == before + 1):  # in which case it will never fit
                at -= 1
                empty = self._wait()
            else:
                empty = False
                sizes = [len(value) for value in (c[at - 1].as_py() for c in records.columns[:2]) if value]
                self._fail(code, topic, None, int(rows[at - 1]), sum(sizes))

    def _items(self, topic: str, records: pa.RecordBatch, rows: Rows) -> tuple[Any, Rows, object]:
        """The items of each message one after another, where each message's begin, and what they point into."""
        length = records.num_rows
        headers = records.column("headers") if "headers" in records.schema.names else None
        counts = np.zeros(length, dtype=np.int64)
        if headers is not None:
            counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        chosen = _partitions(records)
        fixed = 6 if chosen is None else 7
        starts = np.concatenate([[0], np.cumsum(counts + fixed)])
        at = starts[:-1]
        times = np.zeros(length, dtype=np.int64)  # 0 is the time of sending
        if "timestamp" in records.schema.names:
            times = pc.fill_null(records.column("timestamp"), 0).to_numpy(zero_copy_only=False)
        items = np.zeros(starts[-1], dtype=n.ITEM)
        _put(items, at, n.ITEM_TOPIC, self._topic(topic))
        _put(items, at + 1, n.ITEM_KEY, *self._pointers(records.column("key")).all())
        _put(items, at + 2, n.ITEM_VALUE, *self._pointers(records.column("value")).all())
        _put(items, at + 3, n.ITEM_FLAGS, n.COPY)
        _put(items, at + 4, n.ITEM_PRIVATE, rows + 1)
        _put(items, at + 5, n.ITEM_TIMESTAMP, times)
        if chosen is not None:
            _put(items, at + 6, n.ITEM_PARTITION, chosen)
        if headers is None or not counts.any():
            return items, starts, None
        pairs = headers.flatten()
        names = pc.binary_join_element_wise(pairs.field(0).cast(pa.binary()), b"", b"\0")  # they are read up to a NUL
        begin = np.repeat(at + fixed, counts)
        within = np.arange(len(pairs)) - np.repeat(np.cumsum(counts) - counts, counts)
        where, _ = self._pointers(names).all()
        _put(items, begin + within, n.ITEM_HEADER, where, *self._pointers(pairs.field(1)).all())
        return items, starts, (pairs, names)

    def _pointers(self, array: pa.Array) -> _Pointers:
        nulls = array.null_count
        if nulls == len(array):
            return _Pointers(np.zeros(len(array) + 1, dtype=np.int32), np.int64(0), None)
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
        base = data.address if data is not None and data.size else ctypes.addressof(self._empty)
        return _Pointers(ends, np.int64(base), array.is_valid().to_numpy(zero_copy_only=False) if nulls else None)

    def flush(self, timeout: float | None = None) -> int:
        """Send everything and wait for the answers, or for the first failure.

        Args:
            timeout: How long at most, in seconds, whatever fails meanwhile; None waits until each record is written
                or one has failed, which ``delivery.timeout.ms`` bounds.

        Returns:
            How many records are still on their way.

        Raises:
            ProducerError: The producer cannot go on.
        """
        give_up = None if timeout is None else monotonic() + timeout
        while left := int(self._lib.rd_kafka_outq_len(self._handle)):
            if self.failed if give_up is None else monotonic() > give_up:
                return left
            self._lib.rd_kafka_flush(self._handle, FLUSH_MS)
            self.poll()
        return 0

    def poll(self, milliseconds: int = 0) -> None:
        """Take in what librdkafka has to tell, waiting for the first of it.

        Raises:
            ProducerError: The producer cannot go on.
        """
        while event := self._lib.rd_kafka_queue_poll(self._queue, milliseconds):
            try:
                self._take(event)
            finally:
                self._lib.rd_kafka_event_destroy(event)
            milliseconds = 0

    def _take(self, event: int) -> None:
        match self._lib.rd_kafka_event_type(event):
            case n.EVENT_DELIVERY:
                while found := self._lib.rd_kafka_event_message_next(event):
                    m = found.contents
                    if m.err:
                        topic = self._lib.rd_kafka_topic_name(m.rkt).decode()
                        self._fail(
                            self._cause(m.err),
                            topic,
                            m.partition,
                            m.private - 1,
                            m.len + m.key_len,
                        )
            case n.EVENT_LOG:
                self._hear(event)
            case n.EVENT_STATS:
                self._told = client_metrics(self._lib.rd_kafka_event_stats(event))
            case n.EVENT_ERROR:
                self.complaint = self._lib.rd_kafka_event_error_string(event).decode(errors="replace")
                if self._lib.rd_kafka_event_error(event) == n.FATAL:
                    code, text = self._fatal()
                    raise ProducerError(f"the producer cannot go on: {text}", code)

    def _fatal(self) -> tuple[int, str]:
        """Why the producer cannot go on; 0 where it can."""
        text = ctypes.create_string_buffer(512)
        return self._lib.rd_kafka_fatal_error(self._handle, text, len(text)), text.value.decode(errors="replace")

    def _cause(self, code: int) -> int:
        """Why a record was not written: of one that a producer gives up which cannot go on, why it cannot."""
        return (self._fatal()[0] or code) if code in _GIVEN_UP else code

    def take_statistics(self) -> dict[str, float] | None:
        """What librdkafka has told of the client since the last time; None where it has not."""
        told, self._told = self._told, None
        return told

    def _hear(self, event: int) -> None:
        """A line of librdkafka's log: what is wrong with a broker is told once, however often it is tried."""
        facility, text, level = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_int()
        self._lib.rd_kafka_event_log(event, ctypes.byref(facility), ctypes.byref(text), ctypes.byref(level))
        line = (text.value or b"").decode(errors="replace")
        # Remarks on settings are left to kdsl.client, which judges all of them.
        severe = level.value <= SYSLOG_WARNING and facility.value != b"CONFWARN"
        if severe:
            self.complaint = _WITHIN.sub("", line)
        rank = logging.WARNING if level.value <= SYSLOG_ERROR else logging.INFO
        if not severe or self.complaint in self._heard:
            rank = logging.DEBUG
        else:
            self._heard.add(self.complaint)
        _log.log(rank, "librdkafka %s: %s", (facility.value or b"").decode(), line)

    def _fail(self, code: int, topic: str, partition: int | None, row: int, size: int, reason: str = "") -> None:
        self.failed += 1
        if self.failure is None:
            reason = reason or self._lib.rd_kafka_err2str(code).decode()
            chosen = partition if partition is not None and partition >= 0 else None
            self.failure = Failure(code, reason, topic, chosen, row, size)

    def _sendable(self, topic: str, records: pa.RecordBatch, rows: Rows) -> tuple[pa.RecordBatch, Rows]:
        """The records without those that librdkafka would take and change: the instant 0, and names with a NUL."""
        bad = np.zeros(records.num_rows, dtype=bool)
        if "timestamp" in records.schema.names:
            zero = pc.fill_null(pc.equal(records.column("timestamp"), 0), False).to_numpy(zero_copy_only=False)
            reason = "librdkafka cannot send the timestamp 1970-01-01 00:00:00.000 UTC, which to it means the present"
            for row in rows[zero]:
                self._fail(KafkaError.INVALID_TIMESTAMP, topic, None, int(row), 0, reason)
            bad |= zero
        if "headers" in records.schema.names:
            headers = records.column("headers")
            cut = pc.match_substring(headers.flatten().field(0), "\0")
            if pc.any(cut).as_py():
                places = np.unique(pc.list_parent_indices(headers).filter(cut).to_numpy())
                reason = "the name of a header has a NUL character, at which librdkafka would cut it off"
                for row in rows[places]:
                    self._fail(n.INVALID_ARGUMENT, topic, None, int(row), 0, reason)
                bad[places] = True
        if not bad.any():
            return records, rows
        return records.filter(pa.array(~bad)), rows[~bad]

    def _wait(self) -> bool:
        """Wait a moment for room in the queue; True if it is empty then."""
        self.poll(PATIENCE_MS)
        return not self._lib.rd_kafka_outq_len(self._handle)

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            self._topics[name] = self._lib.rd_kafka_topic_new(self._handle, name.encode(), None)
        return self._topics[name]

    def abandon(self) -> None:
        """Throw away what is in the queue or on its way, and close."""
        if not self._closed:
            self._lib.rd_kafka_purge(self._handle, n.PURGE)
        self.close()

    def close(self) -> None:
        """End the producer. It goes in the background: a connection that hangs would hold up the task's error."""
        if not self._closed:
            self._closed = True
            threading.Thread(target=self._close, name="kdsl-producer-close", daemon=True).start()

    def _close(self) -> None:
        for topic in self._topics.values():
            self._lib.rd_kafka_topic_destroy(topic)
        self._lib.rd_kafka_queue_destroy(self._queue)
        self._lib.rd_kafka_destroy(self._handle)


def _partitions(records: pa.RecordBatch) -> Any:
    """The partition of each record; None where librdkafka chooses all of them."""
    if "partition" not in records.schema.names:
        return None
    return records.column("partition").to_numpy(zero_copy_only=False)


def _put(items: Any, at: Rows, kind: int, *words: Any) -> None:
    items["kind"][at] = kind
    for name, word in zip(("first", "second", "third"), words, strict=False):
        items[name][at] = word


def _new(lib: Any, settings: Mapping[str, str]) -> int:
    text = ctypes.create_string_buffer(512)
    conf = lib.rd_kafka_conf_new()
    # Only failures are reported: success is that none came before the queue was empty.
    own = {"delivery.report.only.error": "true", "log.queue": "true"}
    for key, value in {**settings, **own}.items():
        if lib.rd_kafka_conf_set(conf, key.encode(), value.encode(), text, len(text)):
            lib.rd_kafka_conf_destroy(conf)
            raise ProducerError(f"librdkafka refuses the setting {key!r}: {text.value.decode(errors='replace')}")
    lib.rd_kafka_conf_set_events(conf, n.EVENT_DELIVERY | n.EVENT_LOG | n.EVENT_ERROR | n.EVENT_STATS)
    handle: int | None = lib.rd_kafka_new(n.PRODUCER, conf, text, len(text))
    if handle is None:
        lib.rd_kafka_conf_destroy(conf)
        raise ProducerError(f"librdkafka cannot make a producer: {text.value.decode(errors='replace')}")
    lib.rd_kafka_set_log_queue(handle, None)
    return handle
