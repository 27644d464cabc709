"""Writes the dead letters of one task, at least once: the task ends when Kafka has acknowledged all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from time import monotonic
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.cluster import Cluster
from kdsl.declare.dead_letters import NO_LIMIT
from kdsl.durations import parse_duration
from kdsl.errors import DeadLetterError, KafkaReadError
from kdsl.plan.model import ReadPlan
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.dead_letters.headers import NEEDS, TRUNCATED, Origin, build_headers
from kdsl.run.dead_letters.reasons import ColumnFinder, write_reason
from kdsl.run.dead_letters.report import FEW, LetterReport, committed, current_batch, send_report, too_many
from kdsl.run.librdkafka.consumers import borrow_consumer, choose_size, discard, return_consumer
from kdsl.run.librdkafka.fetch import Fetcher
from kdsl.run.librdkafka.producer import Producer, ProducerError
from kdsl.run.librdkafka.producer_pool import borrow_producer
from kdsl.run.librdkafka.topic_ids import TopicIds
from kdsl.run.librdkafka.write_failures import explain_failure
from kdsl.run.metrics.statistics import client_id
from kdsl.run.offsets.stored import Range
from kdsl.run.records.metadata import HEADERS, NO_TIMESTAMP
from kdsl.run.records.rejections import Rejection
from kdsl.spark_internals.workers import current_task

DEFAULT_MAX_BYTES = 1_048_588
"""Kafka's default of ``max.message.bytes``, for topics whose settings this user may not read."""
_OVERHEAD = 1_024
"""What a record batch adds to a single record, in bytes, with a reserve."""
_OF_HEADER = 10
_NEAR = 512
"""Records that are to be read again and whose offsets differ by no more than this are read together."""
_ACKNOWLEDGED = {"acks": "all", "enable.idempotence": "true"}

_UNKNOWN_TOPICS = TopicIds()

ReadAgain = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Returns some records with all fields that a letter needs, in the same order."""


class LetterWriter:
    """Writes the letters of one task (a `kdsl.run.records.rejections.DeadLetterOutput`).

    A task that rejects no record creates no client. On a normal exit it waits until all letters are acknowledged, and
    reports how many there are; after an error it drops what is not sent.

    Args:
        plan: What is read; it has dead letters.
        cluster: The cluster of the letters.
        read: The id of the read.
        task: What the task reads; the same in every run of the task.
        read_again: Reads fields that the decoder does not need; None if records have them.
        accumulator: The id of the accumulator for reports; None if tasks cannot report.
        topics: Finds the ids of the topics that are read.
        sends: Whether letters are sent; otherwise the rejected records are only counted (a batch read that is not asked
            for letters).
    """

    def __init__(
        self,
        plan: ReadPlan,
        cluster: Cluster,
        read: str,
        task: str,
        read_again: ReadAgain | None = None,
        accumulator: int | None = None,
        topics: TopicIds = _UNKNOWN_TOPICS,
        *,
        sends: bool = True,
    ) -> None:
        assert plan.dead_letters is not None
        self._plan, self._topic, self._cluster = plan, plan.dead_letters, cluster
        self._read, self._task, self._read_again, self._accumulator = read, task, read_again, accumulator
        self._finder = ColumnFinder(plan)
        self._topics, self._topic_ids = topics, dict[str, str]()
        self._sends = sends
        delay = None if plan.watermark is None else parse_duration(plan.watermark.delay)
        self._lateness = None if delay is None else delay // timedelta(milliseconds=1)
        self._stack = ExitStack()
        self._producer: Producer | None = None
        self._settings: Mapping[str, str] = {}
        self._first: list[str] = []
        self.count = 0
        """How many letters the task has written, or would have written."""
        self._earlier, reasons = (0, ()) if self._topic.max_count == NO_LIMIT else committed(read)
        if self._topic.max_count != NO_LIMIT and self._earlier > self._topic.max_count:
            raise too_many(plan.table, self._earlier, self._topic.max_count, reasons)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait until all letters are acknowledged and report them (`_finish`), also if Spark needs no more rows.

        The producer returns to its pool. After any other error than `GeneratorExit`, or if a letter cannot be written,
        the letters that are not sent are dropped, and the producer is closed.
        """
        if kind is not None and not issubclass(kind, GeneratorExit):
            self._stack.__exit__(kind, error, traceback)
            return
        with self._stack:  # also if Spark needs no more rows: what was rejected is left out of those that it has
            self._finish()

    def __call__(self, records: pa.RecordBatch, rejections: Sequence[Rejection]) -> None:
        """Send a letter for each rejection, up to the limit of the query; letters are acknowledged at the task's end.

        They are added to `count`.

        Args:
            records: The records of a batch, among them the rejected ones.
            rejections: The rejections, each with the index of its record.
        """
        table, limit = self._plan.table, self._topic.max_count
        rejected = records.take(pa.array([rejection.index for rejection in rejections]))
        texts = [write_reason(rejection) for rejection in rejections]
        places = list(zip(*(rejected.column(name).to_pylist() for name in _IDENTITY), strict=True))
        allowed = len(rejections)
        if limit != NO_LIMIT:
            allowed = min(allowed, limit - self._earlier - self.count)
        for (topic, partition, offset), text in list(zip(places, texts, strict=True))[: FEW - len(self._first)]:
            self._first.append(f"topic {topic}, partition {partition}, offset {offset}: {text}")
        if allowed and self._sends:
            first = rejected.slice(0, allowed)
            if not set(first.schema.names) >= NEEDS:
                assert self._read_again is not None
                first = self._read_again(first)
            self._send(first, rejections, texts)
        self.count += allowed
        if allowed < len(rejections):
            self.flush()
            total = self._earlier + self.count + len(rejections) - allowed
            raise too_many(table, total, limit, self._first)

    def flush(self) -> None:
        """Wait until all letters so far are acknowledged; DeadLetterError if one is not."""
        if self._producer is not None:
            self._flush(self._producer)

    def _send(
        self,
        records: pa.RecordBatch,
        rejections: Sequence[Rejection],
        reasons: Sequence[str],
    ) -> None:
        """Queue a letter for each of some records that have the fields `NEEDS`; the first one opens the producer.

        A value that is too large is cut off, and a timestamp that cannot be sent is left out; headers say so.

        Args:
            records: The rejected records.
            rejections: Those of the records, in their order; further ones are ignored.
            reasons: The reason of each rejection.
        """
        producer, max_bytes = self._open()
        at = datetime.now(UTC)
        keys, values = records.column("key").to_pylist(), records.column("value").to_pylist()
        times = records.column("timestamp").to_pylist()
        origins = self._find_origins(records)
        headers: list[list[tuple[str, bytes | None]]] = []
        for i, own in enumerate(records.column("headers").to_pylist()):
            build = [(_sendable(header["key"]), header["value"]) for header in own or ()]

            def of_letter(added: Mapping[str, str], i: int = i, build: Any = build) -> list[tuple[str, bytes | None]]:
                column = self._finder.find_column(rejections[i])
                return build_headers(
                    build,
                    origins[i],
                    rejections[i],
                    table=self._plan.table,
                    keyed=self._topic.keyed,
                    lateness=self._lateness,
                    reason=reasons[i],
                    column=column,
                    at=at,
                    more=added,
                )

            one = of_letter({})
            room = max_bytes - _OVERHEAD - len(keys[i] or b"") - _size(one)
            if values[i] is not None and len(values[i]) > room:
                one = of_letter({TRUNCATED: str(len(values[i]))})
                values[i] = values[i][: max(0, room - 64)]
            headers.append(one)
        sent = [None if time in _UNSENDABLE else time for time in times]
        letters = pa.RecordBatch.from_pydict(
            {
                "key": pa.array(keys, pa.binary()),
                "value": pa.array(values, pa.binary()),
                "headers": pa.array([[{"key": k, "value": v} for k, v in one] for one in headers], HEADERS),
                "timestamp": pa.array(sent, pa.int64()),
            }
        )
        try:
            producer.send(self._topic.topic, letters, np.arange(self.count, self.count + len(values), dtype=np.int64))
        except ProducerError as e:
            raise self._error(str(e)) from None
        self._raise_failure(producer)

    def _find_origins(self, records: pa.RecordBatch) -> list[Origin]:
        """Return where records were, with the ids of their topics, which are asked for once; errors as for `_send`."""
        names = records.column("topic").to_pylist()
        if unknown := {*names} - self._topic_ids.keys():
            self._topic_ids |= self._topics.find(unknown, self._plan.table)
        columns = (records.column(name).to_pylist() for name in (*_IDENTITY, "timestamp"))
        return [
            Origin(topic, partition, offset, timestamp, self._topic_ids[topic])
            for topic, partition, offset, timestamp in zip(*columns, strict=True)
        ]

    def _open(self) -> tuple[Producer, int]:
        """Return the task's producer, borrowed at the first call, and the `topic_max_bytes` of the topic."""
        max_bytes = topic_max_bytes(self._cluster, self._topic.topic)
        if self._producer is None:
            name = self._cluster.kdsl_settings.client_id_prefix or f"kdsl-{self._plan.table}"
            # librdkafka may exceed its own limit by one message, so a batch gets half of what the topic accepts.
            own = {
                "message.max.bytes": max(1_000, min(1_000_000_000, max_bytes)),
                "batch.size": max(1, min(1_000_000, max_bytes // 2)),
                "allow.auto.create.topics": "false",
            }
            settings = {**self._cluster.producer(), **{key: str(value) for key, value in own.items()}, **_ACKNOWLEDGED}
            settings["client.id"] = client_id(name, "dead-letters")
            try:
                self._producer = self._stack.enter_context(borrow_producer(settings, "dead letters"))
            except ProducerError as e:
                raise self._error(str(e)) from None
            self._settings = settings
        return self._producer, max_bytes

    def _flush(self, producer: Producer) -> None:
        """Wait until all queued letters are acknowledged; DeadLetterError if one is not."""
        try:
            producer.flush()
        except ProducerError as e:
            raise self._error(str(e)) from None
        self._raise_failure(producer)

    def _finish(self) -> None:
        """Wait until all letters are acknowledged, and report their number to the driver; do nothing without letters.

        Without an accumulator, or outside of Spark, nothing is reported.
        """
        if not self.count:
            return
        self.flush()
        batch, task = current_batch(), current_task()
        if self._accumulator is not None and batch is not None:
            report = LetterReport(
                batch,
                self._read,
                self._plan.table,
                self._topic.max_count,
                self._task,
                self.count,
                tuple(self._first),
                -1 if task is None else task.stageId(),
            )
            send_report(self._accumulator, report)

    def _raise_failure(self, producer: Producer) -> None:
        """Raise a DeadLetterError if a letter has failed."""
        failure = producer.failure
        if failure is not None:
            limits = {name: self._settings.get(name, "") for name in ("message.max.bytes", "delivery.timeout.ms")}
            reason, fix = explain_failure(failure, limits, producer.last_error)
            raise self._error(f"{reason}{f'; {fix}' if fix else ''}")

    def _error(self, reason: str) -> DeadLetterError:
        """Create the error for a letter that cannot be written."""
        return DeadLetterError(
            f"{self._plan.table}: cannot write a dead letter to the topic {self._topic.topic!r} on "
            f"{self._cluster.bootstrap_servers}: {reason}; the batch fails, because the record would be lost"
        )


_IDENTITY = ("topic", "partition", "offset")
_UNSENDABLE = (0, NO_TIMESTAMP)
"""Timestamps that librdkafka cannot send: it sends the present time instead."""


def _sendable(name: str) -> str:
    """The name of a header with U+FFFD for each NUL, at which librdkafka would cut it off."""
    return name.replace("\0", "\ufffd")


def _size(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return the approximate size of headers in a record, in bytes."""
    return sum(len(name.encode()) + len(value or b"") + _OF_HEADER for name, value in headers)


_MAX_AGE = 300.0


def topic_max_bytes(cluster: Cluster, topic: str) -> int:
    """The largest record batch that a topic accepts, in bytes; Kafka's default if its settings cannot be read.

    The result, also the default, is cached for up to five minutes.
    """
    return _topic_max_bytes(cluster, topic, int(monotonic() / _MAX_AGE))


@lru_cache(maxsize=16)
def _topic_max_bytes(cluster: Cluster, topic: str, _: int) -> int:
    """Ask the brokers for `topic_max_bytes`, with a new client; the last argument makes cached answers expire."""
    try:
        settings = LibrdkafkaAdmin(cluster, "dead letters").topic_settings(topic)
    except KafkaReadError:
        return DEFAULT_MAX_BYTES
    return int(settings.get("max.message.bytes", DEFAULT_MAX_BYTES))


class RecordReader:
    """Reads rejected records again, with the fields that a letter needs and the decoder does not.

    A read fetches only what its columns need. Most batches have no rejected record, so it costs less to read the few
    others twice than to fetch headers and timestamps of all records.

    Args:
        plan: What is read.
        cluster: The cluster that is read.
        cluster_key: Distinguishes clusters and tables in the client pool.
        names: The default ``group.id`` and ``client.id`` of consumers.
        timeout: How many seconds without a message make the read fail.
    """

    def __init__(
        self, plan: ReadPlan, cluster: Cluster, cluster_key: str, names: Mapping[str, str], timeout: float
    ) -> None:
        self._table, self._cluster, self._key = plan.table, cluster, f"{cluster_key} dead letters"
        self._names, self._timeout = names, timeout

    def __call__(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Read the same records from Kafka again, and return them in their order with the fields `NEEDS`.

        The consumer is borrowed from the pool, and returned to it; after an error of the fetch it is closed.

        Args:
            records: At least one record, with topic, partition and offset.
        """
        ranges = _ranges(records)
        consumer = borrow_consumer(self._cluster, self._key, choose_size(max(map(len, ranges))), self._names)
        wanted = _place_keys(records)
        wanted_batches: list[pa.RecordBatch] = []
        try:
            batches = Fetcher(consumer, self._table, NEEDS, self._timeout).read(ranges)
            wanted_batches.extend(batch.filter(pc.is_in(_place_keys(batch), wanted)) for batch in batches)
        except BaseException:
            discard(consumer)
            raise
        return_consumer(consumer)
        places = pa.chunked_array([_place_keys(batch) for batch in wanted_batches], pa.string())  # may be empty
        order = pc.index_in(wanted, places)
        if order.null_count:
            missing = order.is_null().index(True).as_py()
            topic, partition, offset = (records.column(name)[missing].as_py() for name in _IDENTITY)
            raise KafkaReadError(
                f"{self._table}: the record at topic {topic}, partition {partition}, offset {offset} cannot be read, "
                "and was deleted before it could be copied to the dead letters; start the read again"
            )
        return pa.concat_batches(wanted_batches).take(order)


def _place_keys(records: pa.RecordBatch) -> pa.Array:
    """Topic, partition and offset of each record as one string, by which records are compared."""
    return pc.binary_join_element_wise(*(records.column(name).cast(pa.string()) for name in _IDENTITY), "\0")


def _ranges(records: pa.RecordBatch) -> list[Range]:
    """The offset ranges that contain some records; records that are at most `_NEAR` offsets apart share a range."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in zip(*(records.column(name).to_pylist() for name in _IDENTITY), strict=True):
        offsets.setdefault((topic, partition), []).append(offset)
    ranges = []
    for (topic, partition), wanted in offsets.items():
        wanted.sort()
        start = last = wanted[0]
        for offset in wanted[1:]:
            if offset - last > _NEAR:
                ranges.append(Range(topic, partition, start, last + 1))
                start = offset
            last = offset
        ranges.append(Range(topic, partition, start, last + 1))
    return ranges
