"""Encodes the rows of one task and sends them, at least once or in a transaction; for Spark's tasks and without Spark.

A task succeeds when Kafka has acknowledged all its records. A task that fails sends nothing afterwards.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from time import monotonic

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.errors import KdslError, RecordError, ResolveError, pluralize
from kdsl.plan.model import WritePlan
from kdsl.run import ffi as native
from kdsl.run.librdkafka.producer import Producer, ProducerError
from kdsl.run.librdkafka.producer_pool import borrow_producer
from kdsl.run.librdkafka.write_failures import Failure, explain_failure
from kdsl.run.metrics.sink_reports import SinkCounts
from kdsl.run.metrics.statistics import INTERVAL, client_id
from kdsl.run.records.encode import RecordEncoder, names_topics
from kdsl.run.records.memory import keep_freed_memory
from kdsl.run.records.partitioner import PartitionChooser
from kdsl.run.records.registry import registry_of
from kdsl.run.records.row_errors import row_error
from kdsl.run.records.valid_rows import keep_valid_rows
from kdsl.run.upsert.write import convert_to_upserts
from kdsl.spark_internals.workers import current_task
from kdsl.types.arrays import Indices, value_bytes

# Rows are encoded in pieces of about these sizes, whatever the size of Spark's batches.
PIECE_ROWS = 8_000
PIECE_BYTES = 16 * 1024 * 1024
FLUSH_SECONDS = 10.0  # how long a write without delivery guarantee tries to send its last records

_log = logging.getLogger(__name__)


def write_rows(plan: WritePlan, cluster: Cluster, batches: Iterable[pa.RecordBatch]) -> SinkCounts:
    """Encode the rows of one task, send them, and wait until every record is acknowledged.

    Rows that rules or NOT NULL exclude are left out and counted. Without a delivery guarantee, it waits `FLUSH_SECONDS`
    at most; records that were not written are then logged and counted as lost instead of an error. The producer is
    borrowed from the pool; after an error it is closed. From then on the process keeps freed memory
    (`keep_freed_memory`).
    """
    keep_freed_memory()
    return send_rows(plan, cluster, batches)[0]


def send_rows(
    plan: WritePlan, cluster: Cluster, batches: Iterable[pa.RecordBatch], *, reports_offsets: bool = False
) -> tuple[SinkCounts, dict[TopicPartition, int]]:
    """Write rows as `write_rows` does, and leave the memory of the process as it is.

    Returns:
        What was written; the offset of the last record of each topic partition, if offsets are reported.
    """
    creating, settings = choose_producer_settings(plan.table, cluster)
    try:
        with borrow_producer(settings, plan.delivery, reports_offsets=reports_offsets) as producer:
            written = TaskWriter(plan, cluster, producer, settings, creating=creating).run(batches)
            return written, producer.offsets
    except ProducerError as e:
        raise KdslError(f"{plan.table}: cannot write to {plan.topics}: {e}") from None


def choose_producer_settings(table: str, cluster: Cluster) -> tuple[bool, dict[str, str]]:
    """Return whether missing topics may be created, and the settings of a cluster's producer.

    The name of the table is in the client's id, and in the error about settings that are wrong.
    """
    kdsl_settings = cluster.kdsl_settings
    own: dict[str, str | int] = {"statistics.interval.ms": INTERVAL} if kdsl_settings.register_producer_metrics else {}
    try:
        chosen = {**own, **choose_sizes(cluster.producer(), creating=kdsl_settings.auto_create_topics)}
        settings = cluster.producer(chosen)
    except ResolveError as e:  # not as a group, which is hard to read at the end of a task's traceback
        raise KdslError(f"{table}: {e}") from None
    settings["client.id"] = client_id(kdsl_settings.client_id_prefix or f"kdsl-{table}", "producer")
    return kdsl_settings.auto_create_topics, settings


def choose_sizes(settings: Mapping[str, str], *, creating: bool = True) -> dict[str, str | int]:
    """Choose the sink's defaults for settings of librdkafka.

    The queue is short, so that records are still in the processor's cache when librdkafka's thread takes them: with
    100,000 messages a record cost 0.9 to 1.2 µs, with 20,000 it costs 0.5 to 0.8. The queue must hold the records of
    ``linger.ms``, because nothing would be sent while it is full, and two messages of the maximum size.

    Args:
        settings: The settings that are already chosen, among them ``message.max.bytes`` (else a KeyError).
        creating: Whether the brokers may create missing topics; if not, a setting forbids it.
    """
    chosen: dict[str, str | int] = {
        "queue.buffering.max.messages": max(20_000, int(float(settings.get("linger.ms", 5)) * 1000)),
        "queue.buffering.max.kbytes": max(32 * 1024, 2 * int(settings["message.max.bytes"]) // 1024),
        "batch.num.messages": 4_000,
    }
    return chosen if creating else {**chosen, "allow.auto.create.topics": "false"}


class TaskWriter:
    """Writes the rows of one task.

    Args:
        plan: What is written.
        cluster: The cluster whose registry the formats use.
        producer: The task's producer; it is not closed.
        settings: The producer's settings.
        creating: Whether the brokers may create missing topics.
    """

    def __init__(
        self, plan: WritePlan, cluster: Cluster, producer: Producer, settings: Mapping[str, str], *, creating: bool
    ) -> None:
        self._plan = plan
        self._producer = producer
        self._encoder = RecordEncoder(plan, registry_of(cluster, plan))
        self._limits = {name: settings.get(name, "") for name in ("message.max.bytes", "delivery.timeout.ms")}
        self._lookup_timeout = int(settings.get("topic.metadata.propagation.max.ms", "60000")) / 1000
        self._creating = creating
        self._guaranteed = plan.delivery != "none"
        self._chooser = PartitionChooser(plan, task_index())
        self._counts: dict[str, int] = {}

    def run(self, batches: Iterable[pa.RecordBatch]) -> SinkCounts:
        """Encode and send the rows of the task, wait until they are acknowledged, and return the counts of the task.

        Rows that rules or NOT NULL exclude are left out, and changes of an upsert table combined. Without a delivery
        guarantee, it waits `FLUSH_SECONDS` at most, and logs and counts lost records instead of raising an error.
        """
        rows = size = 0
        violations: Counter[str] = Counter()
        valid = keep_valid_rows(batches, self._plan, violations)
        for batch in merge_small_batches(convert_to_upserts(valid, self._plan)):
            for piece in _split(batch):
                records = self._encoder.encode(piece, rows)
                self._send(records, piece, np.arange(rows, rows + records.num_rows, dtype=np.int64))
                rows += records.num_rows
                size += value_bytes(records.column("key")) + value_bytes(records.column("value"))
        flushed_at = monotonic()
        unsent = self._producer.flush(None if self._guaranteed else FLUSH_SECONDS)
        send_time = monotonic() - flushed_at
        self._raise_failure()
        lost = self._producer.failed + unsent
        if lost:
            reason = self._producer.failure.reason if self._producer.failure else "not acknowledged in time"
            _log.warning(
                "%s: %s of %s may be lost, because the write has no delivery guarantee: %s",
                self._plan.table,
                lost,
                pluralize(rows, "record"),
                reason,
            )
        statistics = self._producer.take_statistics()
        client = {self._producer.client_id: statistics} if statistics else {}
        milliseconds = send_time * 1000 if rows > lost else None
        return SinkCounts(rows - lost, size, lost, milliseconds, client, dict(violations))

    def _send(self, records: pa.RecordBatch, piece: pa.RecordBatch, rows: Indices) -> None:
        """Queue encoded records, topic by topic; a topic is looked up before its first record, and may be created then.

        Args:
            records: The records.
            piece: The rows from which they were encoded, for a partitioner.
            rows: The index of each among the task's rows.
        """
        for topic, topic_records, topic_rows in self._split_by_topic(records, rows):
            if topic not in self._producer.known_topics:
                self._look_up(topic, int(topic_rows[0]))
            if self._chooser.needed:
                topic_piece = piece if len(topic_rows) == len(rows) else piece.take(pa.array(topic_rows - rows[0]))
                topic_records = self._add_partitions(topic, topic_records, topic_piece, topic_rows)
            self._producer.send(topic, topic_records, topic_rows)
            self._raise_failure()

    def _add_partitions(
        self, topic: str, records: pa.RecordBatch, piece: pa.RecordBatch, rows: Indices
    ) -> pa.RecordBatch:
        """Return the records with the chosen partitions as a column; a topic is looked up at its first records."""
        if topic not in self._counts:  # a pooled producer may know an outdated number
            self._look_up(topic, int(rows[0]))
            self._counts[topic] = self._producer.partition_counts[topic]
        chosen = pa.array(self._chooser.choose(topic, self._counts[topic], records, piece, rows))
        if "partition" in records.schema.names:
            return records.set_column(records.schema.get_field_index("partition"), "partition", chosen)
        return records.append_column("partition", chosen)

    def _split_by_topic(self, records: pa.RecordBatch, rows: Indices) -> Iterator[tuple[str, pa.RecordBatch, Indices]]:
        """Split records by the topic that rows or the plan name; yield topic, records and row indices.

        Topics are those that the encoder has checked. Without records nothing is yielded.
        """
        if not records.num_rows:
            return
        if not names_topics(self._plan.topics):
            yield self._plan.topics.names[0], records, rows
            return
        codes = records.column("topic").dictionary_encode()
        topic_of = codes.indices.to_numpy()
        for code, topic in enumerate(codes.dictionary.to_pylist()):
            if len(codes.dictionary) == 1:
                yield topic, records, rows
            else:
                indices = np.flatnonzero(topic_of == code)
                yield topic, records.take(pa.array(indices)), rows[indices]

    def _look_up(self, topic: str, row: int) -> None:
        """Look up a topic before its first row is sent; the brokers may create it then, if the settings allow that."""
        code = self._producer.look_up(topic, self._lookup_timeout, creating=self._creating)
        if code in (native.TIMED_OUT, native.TRANSPORT):
            reason = f": {self._producer.last_error}" if self._producer.last_error else ""
            raise ProducerError(
                f"no broker answered within {self._lookup_timeout:g} seconds{reason}; check that Kafka runs and can be "
                "reached from this executor"
            )
        if code:
            failure = Failure(code, KafkaError(code).str(), topic, None, row, 0)
            raise self._record_error(failure, 1)

    def _raise_failure(self) -> None:
        """Check that no record has failed, unless the delivery is ``none``."""
        if self._guaranteed and self._producer.failure is not None:
            raise self._record_error(self._producer.failure, self._producer.failed)

    def _record_error(self, failure: Failure, count: int) -> RecordError:
        """Create the error for the first of ``count`` records that were not written."""
        reason, fix = explain_failure(failure, self._limits, self._producer.last_error)
        return row_error(
            self._plan.table,
            failure.row,
            reason,
            topic=failure.topic,
            partition=failure.partition,
            more=count - 1,
            fix=fix,
        )


def task_index() -> int:
    """Return the index of the task that runs here; 0 outside Spark."""
    context = current_task()
    return 0 if context is None else context.partitionId()


def merge_small_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in their order, small batches concatenated.

    To encode and send a batch costs a third of a millisecond, whatever its size.

    A concatenated batch stays within PIECE_BYTES, far below the 2 GiB that a string column can hold; a larger batch is
    passed on unchanged. A batch without rows may be yielded.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if waiting and size + batch.nbytes > PIECE_BYTES:
            yield _concat(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= PIECE_ROWS or size >= PIECE_BYTES:
            yield _concat(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _concat(waiting)


def _concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches of the same schema, at least one; a single one is returned as it is."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into pieces of about PIECE_BYTES; a piece has one row at least, a batch without rows no piece."""
    step = max(1, int(batch.num_rows * PIECE_BYTES / max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
