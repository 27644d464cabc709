"""Exactly-once streams as the driver starts them.

`start_stream` does everything that must happen before the first row: it checks the transaction timeout, acquires the
lease of the prefix, and compares the tokens with Spark's own log. Tasks do the rest
(`kdsl.run.librdkafka.transactions.task`). Batches are written by `kdsl.run.exactly_once.batch`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.cluster import Cluster
from kdsl.errors import ExactlyOnceError, KdslError
from kdsl.plan.model import WritePlan
from kdsl.plan.text import plan_text
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.manifest import Manifest, RowRouting
from kdsl.run.exactly_once.acquire import abort_transactions, acquire_ids, read_limits
from kdsl.run.exactly_once.guards import acquire_prefix_lease, check_speculation, choose_token_topic
from kdsl.run.exactly_once.row_routing import (
    apply_routing,
    explain_difference,
    kdsl_source,
    route_rows,
    same_writers,
)
from kdsl.run.exactly_once.running import PreparedStream, QueryWatch, wait_for_previous_query
from kdsl.run.leases.lease import Lease
from kdsl.run.librdkafka.transactions.spec import (
    TRANSACTION,
    TransactionSpec,
    records_digest,
    write_spec,
)
from kdsl.run.librdkafka.transactions.task import token_admin_of
from kdsl.run.librdkafka.transactions.token import HalfWrittenError, LogProgress, Writer
from kdsl.run.listeners.start import start_query
from kdsl.run.offsets.stored import Offsets, Packing
from kdsl.run.session import available_cores
from kdsl.spark_internals.plans import plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

NO_ADAPTIVE_PLAN = {"spark.sql.adaptive.enabled": "false"}
"""Adaptive execution may assign the rows of a batch to other tasks the next time."""

_log = logging.getLogger(__name__)


def prepare_stream(
    rows: DataFrame, plan: WritePlan, cluster: Cluster, checkpoint: Checkpoint, *, adopt: bool
) -> PreparedStream:
    """Prepare a stream to be written exactly once.

    Args:
        rows: What is written (`kdsl.run.dataframes.match_columns.match_columns`).
        plan: The write plan.
        cluster: The cluster.
        checkpoint: The query's checkpoint, which was checked.
        adopt: Whether to continue although tokens are missing or belong to another query.

    Raises:
        ResolveError: The transaction timeout is above the brokers' maximum.
        KdslError: The prefix is held by another query, the tokens do not allow it, or nothing shows that rows are
            routed to the same writers again.
    """
    assert plan.transactions is not None
    check_speculation(rows.sparkSession, plan.table)
    wait_for_previous_query(plan, cluster)
    lease = acquire_prefix_lease(plan, cluster)
    try:
        return _prepare(rows, plan, cluster, checkpoint, lease, adopt=adopt)
    except BaseException:
        lease.release()
        raise


def _prepare(
    rows: DataFrame, plan: WritePlan, cluster: Cluster, checkpoint: Checkpoint, lease: Lease, *, adopt: bool
) -> PreparedStream:
    assert plan.transactions is not None
    stored = checkpoint.manifest
    before = None if stored is None else stored.routing
    progress = LogProgress(*checkpoint.last_batches())
    packing = _open_packing(checkpoint, progress)
    if plan.transactions.staged:
        count = (
            plan.parallelism
            or (before.writers if before and before.by == "staged" else 0)
            or available_cores(rows.sparkSession)
        )
        routed, routing = rows, RowRouting(plan.transactions.prefix, count, "staged")
    else:
        routed, routing = route_rows(rows, plan, before, packing)
    text, records = plan_text(plan), records_digest(plan)
    if stored is not None and before is None and progress.open:
        _log.warning(
            "%s: batch %s was started with at-least-once, and is written again completely: records of it that are in "
            "the topic already are duplicated; exactly-once holds from now on",
            plan.table, progress.planned,
        )  # fmt: skip
    manifest = stored or Manifest(plan=text)
    admin = token_admin_of(cluster, plan.table)
    timeout_ms, retention = read_limits(admin, cluster.kdsl_settings.transaction_timeout_ms, plan.table)
    checkpoint.store(attrs.evolve(manifest, plan=text))  # no token may carry an id that is not stored
    run = uuid.uuid4().hex
    offsets = checkpoint.batch_digest(progress.planned) if progress.open else ""

    def create_spec(routing: RowRouting) -> TransactionSpec:
        writer = Writer(manifest.id, "", plan.table, checkpoint.location)
        topic = choose_token_topic(plan, admin)
        return TransactionSpec(writer, routing.prefix, routing.writers, topic, records, timeout_ms, run=run)

    def acquire(routing: RowRouting) -> bool:
        """Acquire the transactional ids; whether the open batch is half written."""
        old = [] if before is None else [f"{before.prefix}-{i}" for i in range(before.writers)]
        spec = create_spec(routing)
        same = before is not None and same_writers(before, routing, packing)
        successors = dict(zip(old, spec.ids, strict=False)) if same else {}
        batches = acquire_ids(
            attrs.evolve(spec, offsets=offsets), cluster, progress, before=old, successors=successors, adopt=adopt
        )
        return progress.open and progress.planned in batches.values()

    try:
        half_written = acquire(routing)
    except HalfWrittenError as e:
        assert before is not None
        same_count = attrs.evolve(routing, writers=before.writers)
        if not same_writers(before, same_count, packing):
            raise HalfWrittenError(
                f"{e}: {explain_difference(before, same_count)}, let the query finish that batch, and make the change "
                "then (adopt=True continues with the change, and loses or duplicates rows of that batch)"
            ) from None
        _log.warning(
            "%s: batch %s is half written by %s writers, so the query continues with as many; it changes to %s when "
            "it starts after a batch that is done",
            plan.table, progress.planned, before.writers, routing.writers,
        )  # fmt: skip
        routing = same_count
        routed = apply_routing(rows, routing, packing)
        half_written = acquire(routing)
    if half_written and packing is None and routing.by == "tasks" and not adopt:
        _check_records_exist(rows, plan.table, checkpoint, progress.planned)
    checkpoint.store(attrs.evolve(manifest, plan=text, routing=routing))
    number = progress.planned if half_written else None
    return PreparedStream(routed, create_spec(routing), checkpoint, retention, lease, number)


def _open_packing(checkpoint: Checkpoint, progress: LogProgress) -> Packing | None:
    """Read how the open batch is packed into tasks; None with several sources, or if the packing is not recorded."""
    ends = checkpoint.batch_offsets(progress.planned) if progress.open else []
    return ends[0].packing if len(ends) == 1 else None


def _check_records_exist(rows: DataFrame, table: str, checkpoint: Checkpoint, batch: int) -> None:
    """Check that a half-written batch of an earlier version of kdsl still has the tasks that it had.

    That version packed the remaining records of a batch, so its tasks changed when records had been deleted.

    Raises:
        ExactlyOnceError: Records of the batch were deleted.
    """
    plan = plan_of(rows)
    source = None if plan is None else next(filter(None, map(kdsl_source, plan.leaves())), None)
    ends, starts = checkpoint.batch_offsets(batch), checkpoint.batch_offsets(batch - 1)
    if source is None or len(ends) != 1:
        return
    begin = starts[0] if starts else Offsets({}, {}, initial=True)
    ranges = [r for r in ends[0].ranges_from(begin) if len(r) > 0]
    admin = LibrdkafkaAdmin(source.cluster, source.plan.table)
    earliest = admin.earliest({(r.topic, r.partition) for r in ranges})
    deleted = [r for r in ranges if earliest[r.topic, r.partition] > r.start]
    if deleted:
        raise ExactlyOnceError(
            f"{table}: batch {batch} is half written by a version of kdsl that did not record its tasks, and records "
            f"of it were deleted since ({'; '.join(map(str, deleted))}), so it is unknown which of the rest are "
            "written; compare the topics, and start with adopt=True to write what is left of the batch (again)"
        )


def abort_open_transactions(manifest: Manifest, plan: WritePlan, cluster: Cluster, checkpoint: Checkpoint) -> None:
    """Abort the open transactions of an exactly-once query that continues with another delivery guarantee.

    Errors are ignored: the brokers abort the transactions after their timeout.
    """
    if manifest.routing is None:
        return
    progress = LogProgress(*checkpoint.last_batches())
    if progress.open:
        _log.warning(
            "%s: batch %s was started with exactly-once, and is written again completely with %s: parts of it that "
            "were committed already are duplicated",
            plan.table, progress.planned, plan.delivery,
        )  # fmt: skip
    with suppress(KdslError):  # the brokers abort it after the transaction timeout
        admin = token_admin_of(cluster, plan.table)
        timeout_ms, _ = read_limits(admin, cluster.kdsl_settings.transaction_timeout_ms, plan.table)
        writer = Writer(manifest.id, "", plan.table)
        topic = choose_token_topic(plan, admin)
        routing = manifest.routing
        abort_transactions(TransactionSpec(writer, routing.prefix, routing.writers, topic, "", timeout_ms), cluster)


def start_stream(
    rows: DataFrame,
    plan: WritePlan,
    sent: WritePlan,
    cluster: Cluster,
    checkpoint: Checkpoint,
    *,
    trigger: Mapping[str, Any] | None,
    name: str | None,
    adopt: bool,
    reporting: Mapping[str, str],
    mode: str = "append",
) -> StreamingQuery:
    """Start a query that writes exactly once.

    Args:
        rows: What is written (`kdsl.run.dataframes.match_columns.match_columns`).
        plan: The write plan.
        sent: The plan for the matched rows.
        cluster: The cluster.
        checkpoint: The query's checkpoint, which was checked.
        trigger: The arguments of Spark's ``trigger``.
        name: The query's name.
        adopt: Whether to continue although tokens are missing or belong to another query.
        reporting: The options by which commits report what they wrote (`kdsl.run.metrics.sink_reports`).
        mode: Spark's output mode; only staged writes take updates.

    Raises:
        ResolveError: The transaction timeout is above the brokers' maximum.
        KdslError: As `prepare_stream`.
    """
    prepared = prepare_stream(rows, plan, cluster, checkpoint, adopt=adopt)
    try:
        query = _start(prepared, plan, sent, cluster, trigger, name, reporting, mode)
    except BaseException:
        prepared.lease.release()
        raise
    QueryWatch(query, prepared, cluster)
    return query


def _start(
    prepared: PreparedStream,
    plan: WritePlan,
    sent: WritePlan,
    cluster: Cluster,
    trigger: Mapping[str, Any] | None,
    name: str | None,
    reporting: Mapping[str, str],
    mode: str,
) -> StreamingQuery:
    from kdsl.run.exactly_once.staged import write_staged
    from kdsl.run.librdkafka.datasource import FORMAT
    from kdsl.run.librdkafka.options import write_options

    assert plan.transactions is not None
    if plan.transactions.staged:
        writer = write_staged(prepared.rows, sent, cluster, prepared.spec, reporting, prepared.half_written)
        writer = writer.outputMode(mode)
    else:
        writer = prepared.rows.writeStream.format(FORMAT).outputMode(mode)
        writer = writer.options(**write_options(sent, cluster), **{TRANSACTION: write_spec(prepared.spec)}, **reporting)
    return start_query(writer, prepared.checkpoint.location, trigger, name)
