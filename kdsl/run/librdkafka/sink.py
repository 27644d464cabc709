"""The sink of the transport ``librdkafka``: each task encodes its rows and sends them, at least once.

A task succeeds when Kafka has acknowledged each of its records, so that Spark may move on; one that fails sends nothing
more, and what it has sent is sent again by the next attempt. Nothing else distinguishes batch from streaming here. A
write that is exactly-once puts a transaction around that, and a token into it (`kdsl.run.librdkafka.transactions`).
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, RecordError, ResolveError
from kdsl.plan.model import WritePlan
from kdsl.run.arrays import Rows
from kdsl.run.cluster import native
from kdsl.run.librdkafka.datasource import read_options
from kdsl.run.librdkafka.producer import Failure, Producer, ProducerError
from kdsl.run.librdkafka.producers import leased
from kdsl.run.librdkafka.transactions.part import write_part
from kdsl.run.librdkafka.transactions.work import WORK, TransactionalWrite, read_transactional_write
from kdsl.run.metrics.sink_reports import OPTION, tell
from kdsl.run.metrics.statistics import INTERVAL, client_id
from kdsl.run.records.encode import RecordEncoder, names_topics
from kdsl.run.records.partitioner import PartitionChooser
from kdsl.run.records.registry import registry_of
from kdsl.run.upsert.write import upserted

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Rows are encoded in pieces of about these sizes, whatever batches Spark makes.
PIECE_ROWS = 8_000
PIECE_BYTES = 16 * 1024 * 1024
GRACE = 10.0  # seconds in which a write that promises nothing tries to send what it has

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task wrote.

    Attributes:
        records: The records that Kafka acknowledged.
        bytes: The bytes of their keys and values.
        lost: The records that failed; not 0 only where the plan promises nothing.
        send_time: Milliseconds from the last record's sending to the acknowledgement of all.
        client: What librdkafka told of the producer, by its client id.
    """

    records: int
    bytes: int
    lost: int = 0
    send_time: float = 0.0
    client: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class BatchWriter(DataSourceArrowWriter):
    """Writes the partitions of a batch."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one partition."""
        return _written(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Tell what was written; the records are in the topic already."""
        _tell(self._options, messages, "batch")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Tell what was written before a task failed; it stays in the topic."""
        _tell(self._options, messages, "batch that failed")


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the partitions of each micro-batch of a stream."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one partition of a micro-batch."""
        return _written(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Tell what was written; the records are in the topic already."""
        _tell(self._options, messages, f"batch {batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Tell what was written before a task failed; it stays in the topic."""
        _tell(self._options, messages, f"batch {batchId} that failed")


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of a batch.

    Raises:
        KdslError: The batch is to replace what is in the topic.
    """
    del schema
    if overwrite:
        raise KdslError("a topic cannot be overwritten: Kafka only appends; write with mode 'append'")
    return BatchWriter(options)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of a stream.

    Raises:
        KdslError: The query has the output mode ``complete``.
    """
    del schema
    if overwrite:
        raise KdslError(
            "the output mode 'complete' replaces the whole result with each batch, and a topic cannot be replaced: "
            "Kafka only appends; use the output mode 'append'"
        )
    return StreamWriter(options)


@lru_cache(maxsize=16)
def _read(options: frozenset[tuple[str, str]]) -> tuple[WritePlan, Cluster]:
    if TaskContext.get() is not None:
        gc.freeze()  # pyspark collects garbage after each task; going through all modules takes 50 ms each time
    return read_options(dict(options), WritePlan)


def _opened(options: Mapping[str, str]) -> tuple[WritePlan, Cluster]:
    return _read(frozenset(options.items()))


def _written(options: Mapping[str, str], batches: Iterable[pa.RecordBatch]) -> Written:
    plan, cluster = _opened(options)
    if WORK in options:
        return write_transaction(plan, cluster, read_transactional_write(options[WORK]), batches)
    return write_rows(plan, cluster, batches)


def write_transaction(
    plan: WritePlan, cluster: Cluster, work: TransactionalWrite, batches: Iterable[pa.RecordBatch]
) -> Written:
    """Encode the rows of one task and send them in a transaction; not again where the batch is written already.

    Args:
        plan: What is written.
        cluster: Where it is written.
        work: Who writes, and which batch; without a batch it is the one that Spark names.
        batches: The rows.

    Raises:
        ExactlyOnceError: The batch cannot be written exactly once; nothing of the task is visible.
        RecordError: A row cannot be encoded, or Kafka does not take a record; nothing of the task is visible.
        KdslError: The settings have errors here, or no producer can be made.
    """
    creating, settings = _settings(plan, cluster)

    def send(producer: Producer, rows: Iterable[pa.RecordBatch]) -> Written:
        return _Task(plan, cluster, producer, settings, creating=creating).run(rows)

    batch = _batch() if work.batch is None else work.batch
    return write_part(work, cluster, settings, task_index(), batch, batches, send) or Written(0, 0)


def _batch() -> int:
    """The micro-batch that runs here."""
    context = TaskContext.get()
    told = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if told is None:
        raise KdslError("Spark does not tell the id of the micro-batch, without which nothing is exactly-once")
    return int(told)


def write_rows(plan: WritePlan, cluster: Cluster, batches: Iterable[pa.RecordBatch]) -> Written:
    """Encode the rows of one task and send them.

    Args:
        plan: What is written.
        cluster: Where it is written.
        batches: The rows.

    Returns:
        When every record is acknowledged; or, where the plan promises nothing, was tried.

    Raises:
        RecordError: A row cannot be encoded, or Kafka does not take a record. Nothing more of the task is sent.
        KdslError: The settings have errors here, no producer can be made, or it cannot go on.
    """
    creating, settings = _settings(plan, cluster)
    try:
        with leased(settings, plan.delivery) as producer:
            return _Task(plan, cluster, producer, settings, creating=creating).run(batches)
    except ProducerError as e:
        raise KdslError(f"{plan.table}: cannot write to {plan.topics}: {e}") from None


def _settings(plan: WritePlan, cluster: Cluster) -> tuple[bool, dict[str, str]]:
    """Whether missing topics may be created, and the producer's settings."""
    connector = cluster.connector()
    own: dict[str, str | int] = {"statistics.interval.ms": INTERVAL} if connector.register_producer_metrics else {}
    try:
        chosen = {**own, **sizes(cluster.producer(), creating=connector.auto_create_topics)}
        settings = cluster.producer(chosen)
    except ResolveError as e:  # as one exception: a group is hard to read at the end of a task's traceback
        raise KdslError(f"{plan.table}: {e}") from None
    settings["client.id"] = client_id(connector.client_id_prefix or f"kdsl-{plan.table}", "producer")
    return connector.auto_create_topics, settings


def sizes(settings: Mapping[str, str], *, creating: bool = True) -> dict[str, str | int]:
    """What the sink would choose beside librdkafka's settings.

    The queue is short, so that records are still in the processor's cache when librdkafka's thread takes them up: with
    100,000 a record cost 0.9 to 1.2 µs, with 20,000 it costs 0.5 to 0.8. It must hold what comes within ``linger.ms``,
    or it would be full and nothing would go, and two of the largest messages.

    Args:
        settings: The settings that are chosen already.
        creating: Whether the brokers may create topics that are missing.
    """
    found: dict[str, str | int] = {
        "queue.buffering.max.messages": max(20_000, int(float(settings.get("linger.ms", 5)) * 1000)),
        "queue.buffering.max.kbytes": max(32 * 1024, 2 * int(settings["message.max.bytes"]) // 1024),
        "batch.num.messages": 4_000,
    }
    return found if creating else {**found, "allow.auto.create.topics": "false"}


class _Task:
    """One task's way through its rows."""

    def __init__(
        self, plan: WritePlan, cluster: Cluster, producer: Producer, settings: Mapping[str, str], *, creating: bool
    ) -> None:
        self._plan = plan
        self._producer = producer
        self._encoder = RecordEncoder(plan, registry_of(cluster, plan))
        self._limits = {name: settings.get(name, "") for name in ("message.max.bytes", "delivery.timeout.ms")}
        self._patience = int(settings.get("topic.metadata.propagation.max.ms", "60000")) / 1000
        self._creating = creating
        self._promised = plan.delivery != "none"
        self._chooser = PartitionChooser(plan, task_index())
        self._counts: dict[str, int] = {}

    def run(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Send all rows."""
        rows = size = 0
        for batch in _joined(upserted(batches, self._plan)):
            for piece in _pieces(batch):
                records = self._encoder.encode(piece, rows)
                self._send(records, piece, np.arange(rows, rows + records.num_rows, dtype=np.int64))
                rows += records.num_rows
                size += _size(records.column("key")) + _size(records.column("value"))
        handed = monotonic()
        left = self._producer.flush(None if self._promised else GRACE)
        sent = monotonic() - handed
        self._judge()
        lost = self._producer.failed + left
        if lost:
            reason = self._producer.failure.reason if self._producer.failure else "not acknowledged in time"
            _log.warning(
                "%s: %s of %s records may be lost, for it promises nothing: %s", self._plan.table, lost, rows, reason
            )
        told = self._producer.take_statistics()
        client = {self._producer.client_id: told} if told else {}
        return Written(rows - lost, size, lost, sent * 1000, client)

    def _send(self, records: pa.RecordBatch, piece: pa.RecordBatch, rows: Rows) -> None:
        for topic, part, places in self._by_topic(records, rows):
            if topic not in self._producer.known:
                self._look_up(topic, int(places[0]))
            if self._chooser.needed:
                own = piece if len(places) == len(rows) else piece.take(pa.array(places - rows[0]))
                part = self._spread(topic, part, own, places)
            self._producer.send(topic, part, places)
            self._judge()

    def _spread(self, topic: str, records: pa.RecordBatch, piece: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
        """The records with the partition of each."""
        if topic not in self._counts:  # a producer that is kept may know an old number
            self._look_up(topic, int(rows[0]))
            self._counts[topic] = self._producer.partitions[topic]
        chosen = pa.array(self._chooser.choose(topic, self._counts[topic], records, piece, rows))
        if "partition" in records.schema.names:
            return records.set_column(records.schema.get_field_index("partition"), "partition", chosen)
        return records.append_column("partition", chosen)

    def _by_topic(self, records: pa.RecordBatch, rows: Rows) -> Iterator[tuple[str, pa.RecordBatch, Rows]]:
        if not records.num_rows:
            return
        if not names_topics(self._plan.topics):
            yield self._plan.topics.names[0], records, rows
            return
        codes = records.column("topic").dictionary_encode()
        of = codes.indices.to_numpy()
        for code, topic in enumerate(codes.dictionary.to_pylist()):
            if len(codes.dictionary) == 1:
                yield topic, records, rows
            else:
                places = np.flatnonzero(of == code)
                yield topic, records.take(pa.array(places)), rows[places]

    def _look_up(self, topic: str, row: int) -> None:
        code = self._producer.look_up(topic, self._patience, creating=self._creating)
        if code in (native.TIMED_OUT, native.TRANSPORT):
            heard = f": {self._producer.complaint}" if self._producer.complaint else ""
            raise ProducerError(f"no broker answered within {self._patience:g} seconds{heard}")
        if code:
            failure = Failure(code, KafkaError(code).str(), topic, None, row, 0)
            raise self._error(failure, 1)

    def _judge(self) -> None:
        if self._promised and self._producer.failure is not None:
            raise self._error(self._producer.failure, self._producer.failed)

    def _error(self, failure: Failure, count: int) -> RecordError:
        reason, fix = explained(failure, self._limits, self._producer.complaint)
        return RecordError(
            "write",
            self._plan.table,
            f"row {failure.row + 1:,} of the task: {reason}",
            topic=failure.topic,
            partition=failure.partition,
            more=count - 1,
            fix=fix,
        )


def task_index() -> int:
    """The index of the task that runs here; 0 outside of Spark."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def explained(failure: Failure, limits: Mapping[str, str], complaint: str = "") -> tuple[str, str]:
    """Why a record was not written, and what can be done.

    Args:
        failure: The record.
        limits: librdkafka's settings that bound records.
        complaint: What librdkafka last said of the brokers.
    """
    match failure.code:
        case KafkaError.MSG_SIZE_TOO_LARGE | KafkaError.RECORD_LIST_TOO_LARGE:
            limit = limits["message.max.bytes"]
            return (
                f"its key and value have {failure.size:,} bytes, too large for {_who(failure.size, limit)}",
                f"raise 'max.request.size' ({limit}) of the producer and 'max.message.bytes' of the topic",
            )
        case native.QUEUE_FULL:
            return (
                f"its value is larger than the producer's queue; the record has {failure.size:,} bytes",
                "raise 'buffer.memory' of the producer",
            )
        case native.MESSAGE_TIMED_OUT:
            heard = f", and the last that was heard is: {complaint}" if complaint else ""
            return (
                f"it was not acknowledged within 'delivery.timeout.ms' ({limits['delivery.timeout.ms']} ms){heard}",
                "see that the brokers are up and that their advertised addresses can be reached from the executors",
            )
        case KafkaError.UNKNOWN_TOPIC_OR_PART | native.UNKNOWN_TOPIC | native.UNKNOWN_PARTITION:
            return "the topic does not exist", "create it, or correct its name"
        case KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return "the user may not write to the topic", "allow the operation Write on it (kafka-acls)"
        case KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return (
                "the user may not write idempotently, for want of the right to write",
                "allow the operation Write on the topic (brokers older than 2.8 also ask for IdempotentWrite on the "
                "cluster), or set 'enable.idempotence' to false",
            )
        case KafkaError.NOT_ENOUGH_REPLICAS | KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            return failure.reason, "see that as many replicas as 'min.insync.replicas' of the topic are up"
        case KafkaError.INVALID_TIMESTAMP:
            return failure.reason, "write another timestamp, or NULL for the time of sending"
        case KafkaError.INVALID_RECORD:
            return failure.reason, "a compacted topic takes no record without a key; see also the broker's log"
        case _:
            return failure.reason, ""


def _who(size: int, limit: str) -> str:
    return f"the producer, which takes {int(limit):,}" if limit and size > int(limit) else "the broker"


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small batches put together: each one that is encoded and sent costs a third of a millisecond by itself."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= PIECE_ROWS or size >= PIECE_BYTES:
            yield _one(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    whole = pa.Table.from_batches(batches).combine_chunks()
    return pa.RecordBatch.from_arrays(
        [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in whole.columns], schema=whole.schema
    )


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch cut so that one piece has about PIECE_BYTES, as far as its rows allow."""
    step = max(1, int(batch.num_rows * PIECE_BYTES / max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _size(array: pa.Array) -> int:
    """The bytes of all values."""
    if array.null_count == len(array):
        return 0
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return int(offsets[array.offset + len(array)] - offsets[array.offset])


def _tell(options: Mapping[str, str], messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    plan, _ = _opened(options)
    written = [m for m in messages if isinstance(m, Written)]
    records, size, lost = (sum(getattr(m, name) for m in written) for name in ("records", "bytes", "lost"))
    _log.info("%s: wrote %s records, %s bytes to %s (%s, %s tasks, %s lost)",
              plan.table, records, size, plan.topics, what, len(written), lost)  # fmt: skip
    tell(options.get(OPTION), written)
