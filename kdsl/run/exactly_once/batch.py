"""Exactly-once writes of batches: a single write, or the writes of a ``foreachBatch`` for each micro-batch."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING

import attrs

from kdsl.cluster import Cluster
from kdsl.errors import ExactlyOnceError, KdslError, listing
from kdsl.plan.model import WritePlan
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.dead_letters.report import REFUSALS, refusals
from kdsl.run.exactly_once.acquire import (
    TokenRefresh,
    abort_transactions,
    acquire_ids,
    read_limits,
    refresh_tokens,
)
from kdsl.run.exactly_once.guards import acquire_prefix_lease, check_speculation, choose_token_topic
from kdsl.run.exactly_once.running import wait_for_previous_query
from kdsl.run.exactly_once.write_log import DoneWrite, WriteLog
from kdsl.run.leases.lease import Lease
from kdsl.run.librdkafka.transactions.spec import (
    TRANSACTION,
    TransactionSpec,
    add_transaction_settings,
    records_digest,
    write_spec,
)
from kdsl.run.librdkafka.transactions.task import take_id, token_admin_of
from kdsl.run.librdkafka.transactions.token import MAX_WRITE_ID_BYTES, LogProgress, Writer, other_records_error
from kdsl.run.metrics.sink_reports import log_violations
from kdsl.run.session import available_cores
from kdsl.spark_internals.queries import RunningQuery, belongs_to_stream
from kdsl.spark_internals.session import is_connect
from kdsl.spark_internals.workers import current_batch_id, current_query_id, runs_foreach_batch_for_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_lease_lock = threading.Lock()
_leases: dict[tuple[str, ...], Lease] = {}  # by brokers, prefix and query
_LOOK = 1.0


@attrs.frozen
class LastWrite:
    """The last write of a ``foreachBatch`` under a write id.

    Attributes:
        run: The run of the query.
        batch: The batch.
        rows: Spark's ``semanticHash`` of the rows.
        spec: The transaction spec; None if the write failed, or is not done yet.
    """

    run: str
    batch: int
    rows: int
    spec: TransactionSpec | None = None


_last_writes: dict[tuple[str, ...], LastWrite] = {}  # by brokers, prefix, query and write id


def write_batch(rows: DataFrame, plan: WritePlan, cluster: Cluster, *, write_id: str | None, adopt: bool) -> None:
    """Write a batch exactly once; one that is recognized as written already is skipped.

    Outside of ``foreachBatch`` it waits for a query of the prefix that ends, and holds the prefix's lease while it
    writes. Only a write with a ``write_id`` is recognized: it is recorded in a topic of done writes, which is created
    if it is missing, and skipped with a warning when it is repeated.

    Within ``foreachBatch`` the tasks skip what is written already, and only they log it. The first write acquires the
    lease; a thread then refreshes tokens, and releases the lease when the query ends. The process remembers each write
    id's last write.

    Args:
        rows: The rows, as `kdsl.run.dataframes.match_columns.match_columns` returns them.
        plan: The write plan.
        cluster: The cluster.
        write_id: The name of the write, by which a repeated write is recognized; needed within ``foreachBatch``.
        adopt: Whether to continue although tokens are missing or belong to another query, and to accept a recorded
            write as done although it had other rows or its topic was deleted since.
    """
    assert plan.transactions is not None
    _check_batch(rows, plan, write_id)
    query, batch = _micro_batch(rows, plan.table)
    if query is not None and write_id is None:
        raise KdslError(
            f"{plan.table}: exactly-once within foreachBatch needs write(..., write_id='...'), because all writes "
            "of a batch have the same query and batch id; give each write of the function its own constant id"
        )
    prefix = plan.transactions.prefix
    if query is not None:
        _write_within_query(rows, plan, cluster, Writer(query, write_id or "", plan.table), batch, adopt=adopt)
        return
    wait_for_previous_query(plan, cluster)
    with acquire_prefix_lease(plan, cluster):
        if write_id is not None:
            _write_once(rows, plan, cluster, write_id, adopt=adopt)
            return
        writer = Writer(uuid.uuid4().hex, "", plan.table, kind="batch")
        spec = _create_batch_spec(
            plan, cluster, writer, prefix, plan.parallelism or 2 * available_cores(rows.sparkSession), 0
        )
        _acquire_batch_ids(spec, cluster, LogProgress(0, -1), adopt=adopt, strict=False)
        _save(rows.coalesce(spec.writers), plan, cluster, spec)


def _write_once(rows: DataFrame, plan: WritePlan, cluster: Cluster, write_id: str, *, adopt: bool) -> None:
    """Write a batch under a write id with one task, unless it is done: then log a warning.

    Done writes are recorded in a topic, which is created if it is missing, and are known by the last token, too. The
    transactional id is acquired in both cases. ``adopt`` accepts a recorded write as done without a check.
    """
    assert plan.transactions is not None
    prefix = plan.transactions.prefix
    log = WriteLog(cluster, prefix, plan.table)
    spec = _create_batch_spec(plan, cluster, Writer("", write_id, plan.table, kind="batch"), prefix, 1, 0)
    log.prepare(spec.topic)
    spec = attrs.evolve(spec, log=log.topic, topic_ids=_topic_ids(plan, cluster))
    _end_last_write(spec, cluster)
    done = log.find([write_id]).get(write_id)
    written = _acquire_batch_ids(spec, cluster, LogProgress(0, -1), adopt=adopt, strict=False)
    if done is not None and not adopt:
        _check_done(done, spec)
    if done is None and set(written.values()) != {0}:
        _save(rows.repartition(1), plan, cluster, spec)
        return
    _log.warning("%s: the write %r is done already, and is skipped", plan.table, write_id)


def _end_last_write(spec: TransactionSpec, cluster: Cluster) -> None:
    """Acquire the transactional id of the last write under the prefix, if that had a ``write_id``.

    This aborts what a killed writer has left open, so the topic of done writes can be read up to its end.
    """
    id_ = spec.id_of(0)  # a write with a write_id has one writer
    token = token_admin_of(cluster, spec.writer.table).token(id_, stable=False)
    if token is not None and token.writer.kind == "batch" and token.writer.sink:
        producer, _ = take_id(spec, cluster, add_transaction_settings(cluster.producer(), id_, spec.timeout_ms))
        producer.close()


def _topic_ids(plan: WritePlan, cluster: Cluster) -> dict[str, str]:
    """Ask the brokers for the ids of the existing topics that a plan writes to, or could write to, by name."""
    admin = token_admin_of(cluster, plan.table)
    names = plan.topics.names or [name for name in admin.names() if plan.topics.contains(name)]
    return {name: topic.id for name, topic in admin.topics(names).items()}


def _check_done(done: DoneWrite, spec: TransactionSpec) -> None:
    """Check that a write that is recorded as done is the present one, and that its topics still exist."""
    if done.plan != spec.plan:
        raise other_records_error(spec.writer, done.table, f"the record in the topic {spec.log!r}")
    lost = done.missing_topics(spec.topic_ids)
    if lost:
        those = f"the topic {lost[0]!r} was" if len(lost) == 1 else f"the topics {listing(lost)} were"
        raise ExactlyOnceError(
            f"{spec.writer} is recorded as done in the topic {spec.log!r}, but {those} deleted since, and "
            "what it wrote there is lost; give the write another write_id to repeat it, or pass adopt=True to accept "
            "it as done"
        )


def _acquire_batch_ids(
    spec: TransactionSpec, cluster: Cluster, progress: LogProgress, *, adopt: bool, strict: bool
) -> dict[str, int]:
    """Acquire the ids of a batch write, each as its own successor; return the batch up to which each has written."""
    same = {id_: id_ for id_ in spec.ids}
    return acquire_ids(spec, cluster, progress, before=spec.ids, successors=same, adopt=adopt, strict=strict)


def _write_within_query(
    rows: DataFrame, plan: WritePlan, cluster: Cluster, writer: Writer, batch: int, *, adopt: bool
) -> None:
    """Write a batch within ``foreachBatch``; it has its own ids, because each write of the function has a token.

    The ids are acquired in the first batch of a run, or after a failure. The prefix is held until the query ends. What
    is already written is skipped by the tasks. The process remembers the write until the next one under its id, or
    forgets it if it fails.
    """
    assert plan.transactions is not None
    prefix = f"{plan.transactions.prefix}-{writer.sink}"
    key = (cluster.bootstrap_servers, plan.transactions.prefix, writer.query, writer.sink)
    query = RunningQuery(rows.sparkSession, writer.query)
    now = LastWrite(query.run_id, batch, rows.semanticHash())
    with _lock:
        before = _last_writes.get(key)
        _check_write_id(before, now, writer, plan.table)
        _last_writes[key] = now
    try:
        _hold_prefix(query, plan, cluster)
        spec = ids_of_previous_batch(before, now)
        checkpoint = Checkpoint.open(rows.sparkSession, query.checkpoint)
        offsets = checkpoint.batch_digest(batch)
        if spec is None:
            spec = attrs.evolve(_create_batch_spec(plan, cluster, writer, prefix, 1, batch), offsets=offsets)
            strict = must_have_token(query, checkpoint, plan, cluster, batch)
            _acquire_batch_ids(spec, cluster, LogProgress(batch, batch - 1), adopt=adopt, strict=strict)
        spec = attrs.evolve(spec, batch=batch, offsets=offsets)
        _save(rows.repartition(1), plan, cluster, spec)
    except BaseException:
        with _lock:
            _last_writes.pop(key, None)
        raise
    with _lock:
        _last_writes[key] = attrs.evolve(now, spec=spec)


def must_have_token(query: RunningQuery, checkpoint: Checkpoint, plan: WritePlan, cluster: Cluster, batch: int) -> bool:
    """Whether a write without a token may be done all the same, because the token is gone.

    A batch after the first has a token if another run has started it: it is then the first one in this run. The first
    batch has none if nothing is written yet; but the brokers forget a token after some time.

    Args:
        query: The query.
        checkpoint: Its checkpoint.
        plan: The plan of the write.
        cluster: The cluster, which is asked how long it keeps tokens.
        batch: The batch.
    """
    if batch > 0:
        return not query.has_done_batch_before(batch)
    admin = token_admin_of(cluster, plan.table)
    _, retention = read_limits(admin, cluster.kdsl_settings.transaction_timeout_ms, plan.table)
    return time.time() - checkpoint.read_planned_time(batch) > retention


def _check_write_id(before: LastWrite | None, now: LastWrite, writer: Writer, table: str) -> None:
    """Check that two writes of a function have different write ids; else the second would be taken for the first."""
    if before is not None and (before.run, before.batch) == (now.run, now.batch) and before.rows != now.rows:
        raise ExactlyOnceError(
            f"{table}: two writes of batch {now.batch} have write_id={writer.sink!r} and different rows, and the "
            "second one would be taken for the first and skipped; give each write of the function its own write_id"
        )


def ids_of_previous_batch(before: LastWrite | None, now: LastWrite) -> TransactionSpec | None:
    """Return the spec of the previous batch's write in this run, whose ids are still acquired.

    None if they must be acquired: without such a write, or if it failed.
    """
    goes_on = before is not None and (before.run, before.batch) == (now.run, now.batch - 1)
    return before.spec if before is not None and goes_on else None


def _hold_prefix(query: RunningQuery, plan: WritePlan, cluster: Cluster) -> None:
    """Acquire the lease of a plan's prefix, if this process does not hold it, and hold it until a query has ended.

    Before, it waits for a query with the prefix that has just ended. Afterwards a thread refreshes the tokens of the
    query's writes.
    """
    assert plan.transactions is not None
    prefix = plan.transactions.prefix
    key = (cluster.bootstrap_servers, prefix, query.id)
    with _lease_lock:  # two writes of one function may run at once
        lease = _leases.get(key)
        if lease is not None and lease.held:
            return
        wait_for_previous_query(plan, cluster)
        admin = token_admin_of(cluster, plan.table)
        _, retention = read_limits(admin, cluster.kdsl_settings.transaction_timeout_ms, plan.table)
        lease = _leases[key] = acquire_prefix_lease(plan, cluster)

    def refresh(older_than: float) -> None:
        _refresh_tokens_of_query(key, cluster, older_than)

    tokens = TokenRefresh(retention, plan.table, lambda: query.is_busy, refresh)

    def wait() -> None:
        while True:
            while query.is_active:
                time.sleep(_LOOK)
                if lease.lost_to is None:  # otherwise it would fence off the process that has the ids now
                    tokens.tick(_LOOK)
            with _lease_lock:
                if not query.is_active:  # the query may have started again, with the lease still held
                    _leases.pop(key, None)
                    break
        lease.release()

    threading.Thread(target=wait, name=f"kdsl-{prefix}", daemon=True).start()


def _refresh_tokens_of_query(holder: tuple[str, ...], cluster: Cluster, older_than: float) -> None:
    """Refresh the tokens of a query's writes that are older than some seconds; one that fails does not end it.

    Args:
        holder: The query: its brokers, its prefix and its id.
        cluster: The cluster.
        older_than: Only refresh tokens that were committed more than this many seconds ago.
    """
    with _lock:
        specs = [last.spec for key, last in _last_writes.items() if key[:3] == holder and last.spec is not None]
    failed: KdslError | None = None
    for spec in specs:
        try:
            refresh_tokens(spec, cluster, older_than)
        except KdslError as e:
            failed = e
    if failed is not None:
        raise failed


def _check_batch(rows: DataFrame, plan: WritePlan, write_id: str | None) -> None:
    """Check what a batch write cannot do exactly once, before anything is written."""
    check_speculation(rows.sparkSession, plan.table)
    if plan.transactions is not None and plan.transactions.staged:
        raise KdslError(
            f'{plan.table}: exactly_once="staged" stores batches beside a checkpoint, and write has none; use '
            'write_stream, or exactly_once="direct"'
        )
    if write_id is not None and len(write_id.encode()) > MAX_WRITE_ID_BYTES:
        raise KdslError(
            f"{plan.table}: the write_id has {len(write_id.encode())} bytes, and the maximum is {MAX_WRITE_ID_BYTES}, "
            "because it is stored with Kafka's offsets; use a shorter one"
        )
    if write_id is not None and plan.parallelism not in (None, 1):
        raise KdslError(
            f"{plan.table}: a write that may be repeated (write_id={write_id!r}) has one writer, because rows may "
            f"come in other partitions the next time; remove sink_parallelism={plan.parallelism}, or use "
            "write_stream"
        )
    if runs_foreach_batch_for_connect():
        raise KdslError(
            f"{plan.table}: within foreachBatch of Spark Connect, the query is not known, without which a write "
            "cannot be exactly-once; use write_stream, or a classic session"
        )


def _create_batch_spec(
    plan: WritePlan, cluster: Cluster, writer: Writer, prefix: str, count: int, batch: int
) -> TransactionSpec:
    """Create the transaction spec of a batch write with ``count`` ids; the brokers are asked for limits and topics."""
    admin = token_admin_of(cluster, plan.table)
    timeout_ms, _ = read_limits(admin, cluster.kdsl_settings.transaction_timeout_ms, plan.table)
    return TransactionSpec(
        writer,
        prefix,
        count,
        choose_token_topic(plan, admin),
        records_digest(plan),
        timeout_ms,
        batch,
    )


def _save(rows: DataFrame, plan: WritePlan, cluster: Cluster, spec: TransactionSpec) -> None:
    """Run the Spark job that writes the rows in transactions; if it fails, abort the open ones and raise Spark's error.

    Rows that rules or NOT NULL have left out are logged afterwards.
    """
    from kdsl.run.librdkafka.datasource import FORMAT
    from kdsl.run.librdkafka.options import write_options

    writer = rows.write.format(FORMAT).mode("append")
    more = {TRANSACTION: write_spec(spec), REFUSALS: str(refusals())}
    try:
        with log_violations(plan) as reporting:
            writer.options(**write_options(plan, cluster), **reporting, **more).save()
    except BaseException:
        abort_transactions(spec, cluster)
        raise


def _micro_batch(rows: DataFrame, table: str) -> tuple[str | None, int]:
    """Return the id of the query and the batch whose ``foreachBatch`` runs; (None, 0) outside and for Spark Connect."""
    if is_connect(rows.sparkSession):
        return None, 0
    context = rows.sparkSession.sparkContext
    query = current_query_id(context)
    if query is not None:
        return query, current_batch_id(context) or 0
    if belongs_to_stream(rows):
        raise KdslError(
            f"{table}: an exactly-once write within foreachBatch runs in a thread without the properties of the query, "
            "so each batch would be taken for the previous one, and skipped; let the thread inherit them: "
            "pool.submit(pyspark.inheritable_thread_target(write_one))"
        )
    return None, 0
