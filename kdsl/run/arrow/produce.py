"""Writes rows of this process to a table, without Spark and Java."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

import attrs
import pyarrow as pa

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.declare.definition import TableDef
from kdsl.errors import ExactlyOnceError, fail_on
from kdsl.plan.model import WritePlan
from kdsl.run.arrow.clients import client_problems
from kdsl.run.arrow.input_rows import InputRows
from kdsl.run.exactly_once.acquire import read_limits
from kdsl.run.librdkafka.producer import ProducerError
from kdsl.run.librdkafka.task_writer import TaskWriter, choose_producer_settings, send_rows
from kdsl.run.librdkafka.transactions.producer import TransactionalProducer
from kdsl.run.librdkafka.transactions.spec import add_transaction_settings
from kdsl.run.librdkafka.transactions.task import abort_and_close, token_admin_of
from kdsl.run.metrics.sink_reports import SinkCounts
from kdsl.run.records.drops import log_drops

Offsets = dict[TopicPartition, int]
_COMMIT_SECONDS = 120.0


@attrs.frozen
class ProduceResult:
    """What a write of rows in this process has written.

    Attributes:
        records: How many records Kafka acknowledged.
        bytes: The bytes of their keys and values.
        offsets: The offset of the last record that was written to each topic partition.
        left_out: How many rows were left out, or violated a rule and were kept, by reason.
        lost: How many records may be lost; always 0 unless the delivery is ``none``.
    """

    records: int
    bytes: int
    offsets: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    left_out: Mapping[str, int] = attrs.field(factory=dict)
    lost: int = 0


def produce_rows(
    table: TableDef, plan: WritePlan, cluster: Cluster, rows: object, *, transaction: bool
) -> ProduceResult:
    """Write rows, and wait until each of their records is acknowledged; in a transaction, all of them or none.

    Args:
        table: The table.
        plan: What is written.
        cluster: Where it is written.
        rows: The rows (`InputRows`).
        transaction: Whether they are written in one transaction.
    """
    fail_on(client_problems(cluster, "write"), f"a write to {plan.table} without Spark")
    batches = InputRows(table, plan).batches(rows)
    if transaction:
        written, offsets = _send_in_transaction(plan, cluster, batches)
    else:
        written, offsets = send_rows(plan, cluster, batches, reports_offsets=True)
    log_drops(plan.table, written.dropped)
    return ProduceResult(written.records, written.bytes, offsets, written.dropped, written.lost)


def _send_in_transaction(
    plan: WritePlan, cluster: Cluster, batches: Iterable[pa.RecordBatch]
) -> tuple[SinkCounts, Offsets]:
    """Write rows in a transaction whose id nobody else has; after an error before its end none of them is visible."""
    admin = token_admin_of(cluster, plan.table)
    timeout_ms, _ = read_limits(admin, cluster.kdsl_settings.transaction_timeout_ms, plan.table)
    creating, settings = choose_producer_settings(plan.table, cluster)
    prefix = f"kdsl-{plan.table}" if plan.transactions is None else plan.transactions.prefix
    id_ = f"{prefix}-produce-{uuid.uuid4().hex}"
    where = f"{plan.table}: cannot write to {plan.topics} in a transaction"
    try:
        producer = TransactionalProducer(add_transaction_settings(settings, id_, timeout_ms), reports_offsets=True)
    except ProducerError as e:
        raise ExactlyOnceError(f"{where}: {e}") from None
    with ExitStack() as on_error:
        on_error.callback(abort_and_close, producer)
        try:
            producer.init(_COMMIT_SECONDS)
            producer.begin()
            written = TaskWriter(plan, cluster, producer, settings, creating=creating).run(batches)
        except ProducerError as e:
            raise ExactlyOnceError(
                f"{where}: {e}; none of the rows is visible; the user needs WRITE and DESCRIBE on the transactional "
                f"ids '{prefix}-*', and the brokers must accept transactions"
            ) from None
        try:
            producer.commit(_COMMIT_SECONDS)
        except ProducerError as e:
            raise ExactlyOnceError(
                f"{where}: {e}; whether it was committed all the same is unknown: look for the rows with "
                "isolation.level=read_committed before they are written again"
            ) from None
        on_error.pop_all()
    producer.close()
    return written, producer.offsets
