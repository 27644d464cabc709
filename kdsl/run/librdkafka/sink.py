"""The sink of the transport ``librdkafka``: each task encodes its rows and sends them, at least once.

A task succeeds when Kafka has acknowledged all its records. A task that fails sends nothing afterwards, and the next
attempt sends its records again. Batch and streaming writes do not differ here. An exactly-once write wraps the same
steps in a transaction that also contains a token (`kdsl.run.librdkafka.transactions`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.plan.model import WritePlan
from kdsl.run.dataframes.match_batches import BatchMatch
from kdsl.run.dead_letters.report import REFUSALS, BatchId, check_refusal, current_batch
from kdsl.run.librdkafka.options import MATCH, PREPARE, read_options
from kdsl.run.librdkafka.producer import Producer
from kdsl.run.librdkafka.task_writer import TaskWriter, Written, choose_producer_settings, task_index, write_rows
from kdsl.run.librdkafka.transactions.spec import TRANSACTION, TransactionSpec, read_spec
from kdsl.run.librdkafka.transactions.task import write_transactionally
from kdsl.run.metrics.sink_reports import OPTION, append_report
from kdsl.run.records.memory import exclude_loaded_objects
from kdsl.run.task_functions import read_function
from kdsl.spark_internals.sources import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from kdsl.spark_internals.workers import BATCH_ID, current_batch_id, current_task, exchange_packets_at_once

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskResult(Written, WriterCommitMessage):
    """What a task has written, as Spark returns it to the driver.

    Attributes:
        batch: The batch or action that the task belongs to; None outside of Spark.
    """

    batch: BatchId | None = field(default_factory=current_batch)


class BatchWriter(DataSourceArrowWriter):
    """Writes the partitions of a batch."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Write one partition in a task, as `write_rows` or `write_transaction` does, with their errors."""
        return _write_partition(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Wait until dead letters are stored, then log and report what was written."""
        _check_letters(self._options, messages)
        _report(self._options, messages, "batch")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log and report what was written before a task failed; it stays in the topic."""
        _report(self._options, messages, "batch that failed")


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the partitions of each micro-batch of a stream."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Write one partition of a micro-batch in a task, as `write_rows` or `write_transaction` does.

        Errors are theirs. An exactly-once write without a batch id in its specification takes that of the micro-batch.
        """
        return _write_partition(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Wait until dead letters are stored, then log and report what was written."""
        _check_letters(self._options, messages)
        _report(self._options, messages, f"batch {batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log and report what was written before a task failed; it stays in the topic."""
        _report(self._options, messages, f"batch {batchId} that failed")


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of a batch, which reads the options when it is used.

    At the first call in a process, what is loaded is excluded from garbage collection.
    """
    del schema
    if overwrite:
        raise KdslError("a topic cannot be overwritten: Kafka only appends; write with mode 'append'")
    _exclude_modules()
    return BatchWriter(options)


@cache
def _exclude_modules() -> None:
    """Exclude what is loaded in a process that plans writes or commits from garbage collection; only the first time."""
    exclude_loaded_objects()


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer of a stream, which reads the options when it is used.

    At the first call in a process, what is loaded is excluded from garbage collection. The worker's next answer is sent
    without waiting (`exchange_packets_at_once`).
    """
    del schema
    if overwrite:
        raise KdslError(
            "the output mode 'complete' replaces the whole result with each batch, but a topic cannot be overwritten: "
            "Kafka only appends; use the output mode 'append'"
        )
    _exclude_modules()
    exchange_packets_at_once()
    return StreamWriter(options)


@lru_cache(maxsize=16)
def _read_items(options: frozenset[tuple[str, str]]) -> tuple[WritePlan, Cluster]:
    """Read plan and cluster from options, cached.

    In a task, what is loaded is excluded from garbage collection.
    """
    result = read_options(dict(options), WritePlan)
    if current_task() is not None:
        exclude_loaded_objects()
    return result


def _read_cached(options: Mapping[str, str]) -> tuple[WritePlan, Cluster]:
    """Read plan and cluster from options, cached in each process."""
    return _read_items(frozenset(options.items()))


def _write_partition(options: Mapping[str, str], batches: Iterable[pa.RecordBatch]) -> TaskResult:
    """Write the rows of a task, by `write_transaction` if the options have a transaction spec, else by `write_rows`.

    If the options say how, the columns are first matched with the plan's (`BatchMatch.apply`). If they have a function
    for it, that makes the rows. The worker's next answer is sent without waiting (`exchange_packets_at_once`).
    """
    exchange_packets_at_once()
    plan, cluster = _read_cached(options)
    if MATCH in options:
        match = BatchMatch.from_text(options[MATCH])
        batches = (match.apply(batch, plan) for batch in batches)
    if PREPARE in options:
        batches = read_function(options[PREPARE])(batches)
    if TRANSACTION in options:
        written = write_transaction(plan, cluster, read_spec(options[TRANSACTION]), batches)
    else:
        written = write_rows(plan, cluster, batches)
    return TaskResult(**vars(written))


def write_transaction(
    plan: WritePlan, cluster: Cluster, spec: TransactionSpec, batches: Iterable[pa.RecordBatch]
) -> Written:
    """Encode the rows of one task and send them in a transaction, unless the batch has been written, which is logged.

    Rows that rules or NOT NULL exclude are left out and counted. Further effects are those of `write_transactionally`.

    Args:
        plan: What is written.
        cluster: Where it is written.
        spec: Who writes, and which batch; if it names no batch, the current micro-batch.
        batches: The rows.

    Returns:
        The counts; zero if the batch has been written before, or has no rows.
    """
    creating, settings = choose_producer_settings(plan, cluster)

    def send(producer: Producer, rows: Iterable[pa.RecordBatch]) -> Written:
        return TaskWriter(plan, cluster, producer, settings, creating=creating).run(rows)

    batch = _current_batch_id() if spec.batch is None else spec.batch
    return write_transactionally(spec, cluster, settings, task_index(), batch, batches, send) or Written(0, 0)


def _current_batch_id() -> int:
    """Return the id of the micro-batch that this task belongs to."""
    context = current_task()
    batch = None if context is None else current_batch_id(context)
    if batch is None:
        raise KdslError(
            f"the task has no id of its micro-batch (Spark's local property {BATCH_ID}), which an exactly-once write "
            "needs; start the query with Table.write_stream"
        )
    return batch


def _check_letters(options: Mapping[str, str], messages: Sequence[WriterCommitMessage | None]) -> None:
    """Check that the driver has not refused the batch, because a read of it has too many dead letters.

    It waits until the letters are stored. Nothing is checked if no task has a result, or without the option `REFUSALS`.
    """
    batches = {m.batch for m in messages if isinstance(m, TaskResult)}
    for batch in batches:
        check_refusal(options.get(REFUSALS), batch)


def _report(options: Mapping[str, str], messages: Sequence[WriterCommitMessage | None], batch: str) -> None:
    """Log what a write has written, and append it to the query's file of reports, if the options name one.

    A file that cannot be opened here is ignored.
    """
    plan, _ = _read_cached(options)
    results = [m for m in messages if isinstance(m, TaskResult)]
    records, size, lost = (sum(getattr(m, name) for m in results) for name in ("records", "bytes", "lost"))
    _log.info("%s: wrote %s records, %s bytes to %s (%s, %s tasks, %s lost)",
              plan.table, records, size, plan.topics, batch, len(results), lost)  # fmt: skip
    append_report(options.get(OPTION), results)
