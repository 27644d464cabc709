"""Exactly-once streams as the driver starts them.

`start_stream` does everything that must happen before the first row: it checks the transaction timeout, acquires the
lease of the prefix, and compares the tokens with Spark's own log. Tasks do the rest
(`kdsl.run.librdkafka.transactions.task`). Batches are written by `kdsl.run.exactly_once.batch`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.plan.model import WritePlan
from kdsl.plan.text import plan_text
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.manifest import Manifest, RowRouting
from kdsl.run.exactly_once.acquire import abort_transactions, acquire_ids, read_limits
from kdsl.run.exactly_once.guards import acquire_prefix_lease, check_speculation, choose_token_topic
from kdsl.run.exactly_once.row_routing import (
    apply_routing,
    explain_difference,
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
from kdsl.run.offsets.stored import Packing
from kdsl.run.session import available_cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

NO_ADAPTIVE_PLAN = {"spark.sql.adaptive.enabled": "false"}
"""Adaptive execution may assign the rows of a batch to other tasks the next time."""

_log = logging.getLogger(__name__)


def _prepare(
    rows: DataFrame, plan: WritePlan, cluster: Cluster, checkpoint: Checkpoint, lease: Lease, *, adopt: bool
) -> PreparedStream:
    """Choose the routing, acquire the transactional ids, and store the plan and the routing in the checkpoint.

    The prefix is already leased, as are those that the query had before; who had a lease before may have changed the
    checkpoint after it was checked, which is an error. The plan is stored before the ids are acquired, the routing
    afterwards. Warnings are logged if an open batch was started with at-least-once, or if its number of writers is
    kept.
    """
    checkpoint.check_unchanged(plan.table)
    stored, text = checkpoint.manifest, plan_text(plan)
    before = None if stored is None else stored.routing
    progress = LogProgress(*checkpoint.last_batches())
    packing = _open_packing(checkpoint, progress)
    routed, routing = _choose_routing(rows, plan, before, packing)
    if stored is not None and before is None and progress.open:
        _log.warning(
            "%s: batch %s was started with at-least-once, and is written again completely: records of it that are in "
            "the topic already are duplicated; exactly-once holds from now on",
            plan.table, progress.planned,
        )  # fmt: skip
    admin = token_admin_of(cluster, plan.table)
    timeout_ms, retention = read_limits(admin, cluster.kdsl_settings.transaction_timeout_ms, plan.table)
    manifest = attrs.evolve(stored or Manifest(plan=text), plan=text)
    if stored is None:  # no token may carry an id that is not stored
        checkpoint.create(manifest, plan.table)
    else:
        checkpoint.store(manifest)
    writer = Writer(manifest.id, "", plan.table, checkpoint.location)
    topic, run = choose_token_topic(plan, admin), uuid.uuid4().hex
    spec = TransactionSpec(writer, routing.prefix, routing.writers, topic, records_digest(plan), timeout_ms, run=run)
    offsets = checkpoint.batch_digest(progress.planned) if progress.open else ""

    def fits(writers: int) -> bool:
        return before is None or same_writers(before, attrs.evolve(before, writers=writers), packing)

    def acquire(routing: RowRouting) -> None:
        of_batch = attrs.evolve(spec, writers=routing.writers, offsets=offsets)
        old = [] if before is None else [f"{before.prefix}-{i}" for i in range(before.writers)]
        same = before is not None and same_writers(before, routing, packing)
        successors = dict(zip(old, of_batch.ids, strict=False)) if same else {}
        acquire_ids(of_batch, cluster, progress, before=old, successors=successors, fits=fits, adopt=adopt)

    try:
        acquire(routing)
    except HalfWrittenError as e:
        routing = _keep_writers(rows, plan, routing, before, packing, progress.planned, e)
        routed = apply_routing(rows, routing, packing)
        acquire(routing)
    checkpoint.check_unchanged(plan.table)  # by a driver that took a lease because this one was cut off
    checkpoint.store(attrs.evolve(manifest, routing=routing))
    return PreparedStream(routed, attrs.evolve(spec, writers=routing.writers), checkpoint, retention, lease)


@contextmanager
def _hold_former_prefixes(plan: WritePlan, cluster: Cluster, checkpoint: Checkpoint) -> Iterator[None]:
    """Hold the leases of other prefixes that the query had before, while the body runs.

    So two starts of the query wait for each other, whatever prefixes they have.
    """
    assert plan.transactions is not None
    manifest, own = checkpoint.manifest, plan.transactions.prefix
    former = set() if manifest is None else manifest.list_prefixes(checkpoint.location) - {own}
    with ExitStack() as stack:
        for prefix in sorted(former):
            wait_for_previous_query(plan, cluster, prefix)
            stack.callback(acquire_prefix_lease(plan, cluster, prefix).release)
        yield


def _choose_routing(
    rows: DataFrame, plan: WritePlan, before: RowRouting | None, packing: Packing | None
) -> tuple[DataFrame, RowRouting]:
    """Return the rows partitioned by writers, and how they are; staged rows stay, because each batch routes them."""
    assert plan.transactions is not None
    if not plan.transactions.staged:
        return route_rows(rows, plan, before, packing)
    staged_before = before.writers if before is not None and before.by == "staged" else 0
    count = plan.parallelism or staged_before or available_cores(rows.sparkSession)
    return rows, RowRouting(plan.transactions.prefix, count, "staged")


def _keep_writers(
    rows: DataFrame,
    plan: WritePlan,
    routing: RowRouting,
    before: RowRouting | None,
    packing: Packing | None,
    batch: int,
    error: HalfWrittenError,
) -> RowRouting:
    """Return the routing with as many writers as the half-written batch has, and warn of it; else raise the error."""
    assert before is not None
    same_count = attrs.evolve(routing, writers=before.writers)
    if (before.by, routing.by) == ("columns", "one"):
        with suppress(KdslError):  # the rows cannot be routed by columns any more
            _, same_count = route_rows(rows, attrs.evolve(plan, parallelism=before.writers), before, packing)
    if not same_writers(before, same_count, packing):
        raise HalfWrittenError(
            f"{error}: {explain_difference(before, same_count)}, let the query finish that batch, and make the change "
            "then (adopt=True continues with the change, and loses or duplicates rows of that batch)"
        ) from None
    _log.warning(
        "%s: batch %s is half written by %s writers, so the query continues with as many; it changes to %s when "
        "it starts after a batch that is done",
        plan.table, batch, before.writers, routing.writers,
    )  # fmt: skip
    return same_count


def _open_packing(checkpoint: Checkpoint, progress: LogProgress) -> Packing | None:
    """Read how the open batch is packed into tasks; None with several sources, or if the packing is not recorded."""
    ends = checkpoint.batch_offsets(progress.planned) if progress.open else []
    return ends[0].packing if len(ends) == 1 else None


def abort_open_transactions(manifest: Manifest, plan: WritePlan, cluster: Cluster, checkpoint: Checkpoint) -> None:
    """Abort the open transactions of an exactly-once query that continues with another delivery guarantee.

    Do nothing if its manifest has no routing: it was not exactly-once. A warning is logged if a batch is open. Errors
    that prevent the abort are ignored: the brokers abort the transactions after their timeout.
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
    """Start a query that writes exactly once, and a thread that refreshes its tokens and finally releases its lease.

    Before that, the prefix is leased, when a query of this process that has just ended has released it. Tokens are
    written to Kafka, transactions that an earlier run left open are aborted, and the plan and the routing of rows are
    stored in the checkpoint. If the query cannot be started, the lease is released at once.

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
    """
    from kdsl.run.exactly_once.staged import write_staged
    from kdsl.run.librdkafka.datasource import FORMAT
    from kdsl.run.librdkafka.options import write_options

    assert plan.transactions is not None
    check_speculation(rows.sparkSession, plan.table)
    wait_for_previous_query(plan, cluster)
    lease = acquire_prefix_lease(plan, cluster)
    try:
        with _hold_former_prefixes(plan, cluster, checkpoint):
            prepared = _prepare(rows, plan, cluster, checkpoint, lease, adopt=adopt)
        if plan.transactions.staged:
            writer = write_staged(prepared.rows, sent, cluster, prepared.spec, reporting)
        else:
            options = {**write_options(sent, cluster), TRANSACTION: write_spec(prepared.spec), **reporting}
            writer = prepared.rows.writeStream.format(FORMAT).options(**options)
        query = start_query(writer.outputMode(mode), checkpoint.location, trigger, name)
    except BaseException:
        lease.release()
        raise
    QueryWatch(query, prepared, cluster)
    return query
