"""The sink of the transport ``librdkafka``: each task encodes its rows and sends them, at least once.

A task succeeds when Kafka has acknowledged all its records. A task that fails sends nothing afterwards, and the next
attempt sends its records again. Batch and streaming writes do not differ here. An exactly-once write wraps the same
steps in a transaction that also contains a token (`kdsl.run.librdkafka.transactions`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, pluralize
from kdsl.plan.model import WritePlan
from kdsl.run.dataframes.match_batches import BatchMatch
from kdsl.run.dead_letters.report import REFUSALS, BatchId, check_refusal, current_batch
from kdsl.run.librdkafka.options import MATCH, PREPARE, read_options
from kdsl.run.librdkafka.producer import Producer
from kdsl.run.librdkafka.task_writer import TaskWriter, choose_producer_settings, task_index, write_rows
from kdsl.run.librdkafka.transactions.spec import TRANSACTION, TransactionSpec, read_spec
from kdsl.run.librdkafka.transactions.task import write_transactionally
from kdsl.run.metrics.sink_reports import OPTION, SinkCounts, add_up, append_report
from kdsl.run.records.memory import exclude_loaded_objects
from kdsl.run.task_functions import read_function
from kdsl.spark_internals.sources import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from kdsl.spark_internals.workers import BATCH_ID, current_batch_id, current_task, exchange_packets_at_once

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """What a task has written, and in which batch or action (None outside of Spark); Spark returns it to the driver."""

    counts: SinkCounts
    batch: BatchId | None = field(default_factory=current_batch)


class _PartitionWriter:
    """Writes the partitions of batches, and reports what was written."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Write one partition in a task, as `write_transaction` does if the options say so, else as `write_rows`.

        If the options say how, the columns are first matched with the plan's (`BatchMatch.apply`). If they have a
        function for it, that makes the rows. The worker's next answer is sent without waiting
        (`exchange_packets_at_once`).
        """
        exchange_packets_at_once()
        options = self._options
        plan, cluster = _read_cached(options)
        batches: Iterable[pa.RecordBatch] = iterator
        if MATCH in options:
            match = BatchMatch.from_text(options[MATCH])
            batches = (match.apply(batch, plan) for batch in iterator)
        if PREPARE in options:
            batches = read_function(options[PREPARE])(batches)
        if TRANSACTION in options:
            return TaskResult(write_transaction(plan, cluster, read_spec(options[TRANSACTION]), batches))
        return TaskResult(write_rows(plan, cluster, batches))

    def _check_letters(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Check that the driver has not refused the batch because of too many dead letters; waits until it knows."""
        for batch in {m.batch for m in messages if isinstance(m, TaskResult)}:
            check_refusal(self._options.get(REFUSALS), batch)

    def _report(self, messages: Sequence[WriterCommitMessage | None], batch: str) -> None:
        """Log what was written, and append it to the query's file of reports, if the options name one."""
        plan, _ = _read_cached(self._options)
        tasks = [m.counts for m in messages if isinstance(m, TaskResult)]
        total = add_up(tasks)
        written = f"{pluralize(total.records, 'record')}, {pluralize(total.bytes, 'byte')}"
        from_tasks = f"{batch}, {pluralize(len(tasks), 'task')}, {total.lost:,} lost"
        _log.info("%s: wrote %s to %s (%s)", plan.table, written, plan.topics, from_tasks)
        append_report(self._options.get(OPTION), total)


class BatchWriter(_PartitionWriter, DataSourceArrowWriter):
    """Writes the partitions of a batch."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Wait until dead letters are stored, then log and report what was written."""
        self._check_letters(messages)
        self._report(messages, "batch")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log and report what was written before a task failed; it stays in the topic."""
        self._report(messages, "batch that failed")


class StreamWriter(_PartitionWriter, DataSourceStreamArrowWriter):
    """Writes the partitions of each micro-batch of a stream.

    An exactly-once write without a batch id in its specification takes that of the micro-batch.
    """

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Wait until dead letters are stored, then log and report what was written."""
        self._check_letters(messages)
        self._report(messages, f"batch {batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log and report what was written before a task failed; it stays in the topic."""
        self._report(messages, f"batch {batchId} that failed")


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


def write_transaction(
    plan: WritePlan, cluster: Cluster, spec: TransactionSpec, batches: Iterable[pa.RecordBatch]
) -> SinkCounts:
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
    creating, settings = choose_producer_settings(plan.table, cluster)

    def send(producer: Producer, rows: Iterable[pa.RecordBatch]) -> SinkCounts:
        return TaskWriter(plan, cluster, producer, settings, creating=creating).run(rows)

    batch = _current_batch_id() if spec.batch is None else spec.batch
    return write_transactionally(spec, cluster, settings, task_index(), batch, batches, send) or SinkCounts()


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
