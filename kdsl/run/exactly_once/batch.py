"""Exactly-once writes of batches: one by itself, or one of those that a ``foreachBatch`` makes for each micro-batch."""

from __future__ import annotations

import logging
import sys
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import attrs
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.plan.model import WritePlan
from kdsl.run.cluster.lease import Lease
from kdsl.run.exactly_once.claim import abort_open, claim, limits
from kdsl.run.exactly_once.stream import check_speculation, held, topic_of, wait_for_end
from kdsl.run.librdkafka.transactions.part import brokers_of
from kdsl.run.librdkafka.transactions.token import ExactlyOnceError, LogProgress, Writer
from kdsl.run.librdkafka.transactions.work import (
    WORK,
    TransactionalWrite,
    records_digest,
    transactional_write_text,
)
from kdsl.run.session import cores, is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONNECT_WORKER = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"
_log = logging.getLogger(__name__)
_lock = threading.Lock()
_holding = threading.Lock()
_leases: dict[tuple[str, ...], Lease] = {}  # by brokers, prefix and query
_LOOK = 1.0


@attrs.frozen
class _Part:
    """A write of a ``foreachBatch``, as it was made last.

    Attributes:
        run: Which run of the query made it.
        batch: For which batch.
        rows: What Spark calls its rows (``semanticHash``).
        work: Who wrote; None where it failed, or is not done yet.
    """

    run: str
    batch: int
    rows: int
    work: TransactionalWrite | None = None


_parts: dict[tuple[str, ...], _Part] = {}  # by brokers, prefix, query and write id


def write_batch(rows: DataFrame, plan: WritePlan, cluster: Cluster, *, write_id: str | None, adopt: bool) -> None:
    """Write a batch exactly once.

    Args:
        rows: What is written, as `kdsl.run.frames.fit.fitted` gives it.
        plan: What is written.
        cluster: Where.
        write_id: What names the write when it is made again; needed within ``foreachBatch``.
        adopt: Whether tokens that are missing or of somebody else are passed over.

    Raises:
        ResolveError: The transactions' timeout is above the brokers' maximum.
        KdslError: Within ``foreachBatch`` it has no write id, the prefix is taken, or the tokens forbid it.
    """
    assert plan.transactions is not None
    _check_batch(rows, plan, write_id)
    query, batch = _micro_batch(rows, plan.table)
    if query is not None and write_id is None:
        raise KdslError(
            f"{plan.table}: exactly-once within foreachBatch needs write(..., write_id='...'), for all writes of a "
            "batch have the same query and batch id; give each write of the function its own, always the same one"
        )
    prefix = plan.transactions.prefix
    if query is not None:
        _write_part_of_query(rows, plan, cluster, Writer(query, write_id or "", plan.table), batch, adopt=adopt)
        return
    wait_for_end(plan, cluster)
    with held(plan, cluster):
        writer = Writer(uuid.uuid4().hex if write_id is None else "", write_id or "", plan.table, kind="batch")
        count = plan.parallelism or (2 * cores(rows.sparkSession) if write_id is None else 1)
        work = _batch_work(plan, cluster, writer, prefix, count, 0)
        same = {id_: id_ for id_ in work.ids}
        found = claim(work, cluster, LogProgress(0, -1), before=work.ids, heirs=same, adopt=adopt, strict=False)
        if set(found.values()) == {0}:
            _log.warning("%s: the write %r is done already, and nothing is written again", plan.table, write_id)
            return
        _save(rows.repartition(1) if write_id is not None else rows.coalesce(count), plan, cluster, work)


def _write_part_of_query(
    rows: DataFrame, plan: WritePlan, cluster: Cluster, writer: Writer, batch: int, *, adopt: bool
) -> None:
    """A write of a ``foreachBatch``: its ids are its own, for each write of the function has a token."""
    assert plan.transactions is not None
    prefix = f"{plan.transactions.prefix}-{writer.sink}"
    key = (cluster.bootstrap_servers, plan.transactions.prefix, writer.query, writer.sink)
    query = _Query(rows.sparkSession, writer.query)
    part = _Part(query.run, batch, rows.semanticHash())
    with _lock:
        before = _parts.get(key)
        _check_part(before, part, writer, plan.table)
        _parts[key] = part
    try:
        _hold(query, plan, cluster)
        work = before.work if before is not None and before.batch == batch - 1 else None
        if work is None:
            work = _batch_work(plan, cluster, writer, prefix, 1, batch)
            same = {id_: id_ for id_ in work.ids}
            progress = LogProgress(batch, batch - 1)
            # A batch that another run had begun comes first in this one.
            repeated = batch > 0 and not query.began_before(batch)
            claim(work, cluster, progress, before=work.ids, heirs=same, adopt=adopt, strict=repeated)
        _save(rows.repartition(1), plan, cluster, attrs.evolve(work, batch=batch))
    except BaseException:
        with _lock:
            _parts.pop(key, None)
        raise
    with _lock:
        _parts[key] = attrs.evolve(part, work=work)


def _check_part(before: _Part | None, now: _Part, writer: Writer, table: str) -> None:
    """Tell two writes of one function under one write id: the second one would be taken for the first.

    Raises:
        ExactlyOnceError: Other rows were written under the id for the same batch.
    """
    if before is not None and (before.run, before.batch) == (now.run, now.batch) and before.rows != now.rows:
        raise ExactlyOnceError(
            f"{table}: two writes of batch {now.batch} have write_id={writer.sink!r} and other rows, and the second "
            "one would be taken for the first, and be left out; give each write of the function its own write_id"
        )


class _Query:
    """A query that runs, as the JVM knows it."""

    def __init__(self, spark: SparkSession, id_: str) -> None:
        session: Any = spark
        self.id = id_
        self._id = session._jvm.java.util.UUID.fromString(id_)  # noqa: SLF001
        self._active = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001

    @property
    def run(self) -> str:
        """The id of its run: another one after each start."""
        return str(self._active.get(self._id).runId().toString())

    def runs(self) -> bool:
        """Whether it runs."""
        try:
            return bool(self._active.containsKey(self._id))
        except (Py4JError, OSError):  # the session is gone, and the query with it
            return False

    def began_before(self, batch: int) -> bool:
        """Whether this run has done an earlier batch, so that this one cannot have been begun by another run."""
        return any(progress.batchId() < batch for progress in self._active.get(self._id).recentProgress())


def _hold(query: _Query, plan: WritePlan, cluster: Cluster) -> None:
    """Hold the prefix of a plan until a query of this process has ended."""
    assert plan.transactions is not None
    prefix = plan.transactions.prefix
    key = (cluster.bootstrap_servers, prefix, query.id)
    with _holding:  # two writes of one function may come at once
        lease = _leases.get(key)
        if lease is not None and lease.held:
            return
        wait_for_end(plan, cluster)
        lease = _leases[key] = held(plan, cluster)

    def wait() -> None:
        while True:
            while query.runs():
                time.sleep(_LOOK)
            with _holding:
                if not query.runs():  # the query may have begun again, and found the prefix held
                    _leases.pop(key, None)
                    break
        lease.release()

    threading.Thread(target=wait, name=f"kdsl-{prefix}", daemon=True).start()


def _check_batch(rows: DataFrame, plan: WritePlan, write_id: str | None) -> None:
    check_speculation(rows.sparkSession, plan.table)
    if plan.transactions is not None and plan.transactions.staged:
        raise KdslError(
            f'{plan.table}: exactly_once="staged" keeps batches beside a checkpoint, and write has none; use '
            'write_stream, or exactly_once="direct"'
        )
    if write_id is not None and plan.parallelism not in (None, 1):
        raise KdslError(
            f"{plan.table}: a write that may be made again (write_id={write_id!r}) has one writer, for nobody knows "
            f"whether rows come in the same partitions again; remove sink_parallelism={plan.parallelism}, or use "
            "write_stream"
        )
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == _CONNECT_WORKER:
        raise KdslError(
            f"{plan.table}: within foreachBatch of Spark Connect nothing tells the query, without which a write cannot "
            "be exactly-once; use write_stream, or a classic session"
        )


def _batch_work(
    plan: WritePlan, cluster: Cluster, writer: Writer, prefix: str, count: int, batch: int
) -> TransactionalWrite:
    brokers = brokers_of(cluster, plan.table)
    timeout_ms, _ = limits(brokers, cluster.connector().transaction_timeout_ms, plan.table)
    return TransactionalWrite(writer, prefix, count, topic_of(plan, brokers), records_digest(plan), timeout_ms, batch)


def _save(rows: DataFrame, plan: WritePlan, cluster: Cluster, work: TransactionalWrite) -> None:
    from kdsl.run.librdkafka.datasource import FORMAT, options

    writer = rows.write.format(FORMAT).mode("append")
    try:
        writer.options(**options(plan, cluster), **{WORK: transactional_write_text(work)}).save()
    except BaseException:
        abort_open(work, cluster)
        raise


def _micro_batch(rows: DataFrame, table: str) -> tuple[str | None, int]:
    """The query and the batch whose ``foreachBatch`` calls; None where there is none, or none that can be seen.

    Raises:
        KdslError: The rows are those of a query, and the thread knows nothing of it.
    """
    if is_connect(rows.sparkSession):
        return None, 0
    context = rows.sparkSession.sparkContext
    query = context.getLocalProperty("sql.streaming.queryId")
    if query is not None:
        return query, int(context.getLocalProperty("streaming.sql.batchId") or 0)
    frame: Any = rows
    session = frame._jdf.sparkSession()  # noqa: SLF001
    running = session.sharedState().activeStreamingQueries().values()
    if any(one.sparkSessionForStream().equals(session) for one in running):
        raise KdslError(
            f"{table}: an exactly-once write within foreachBatch runs in a thread that knows nothing of the query, so "
            "that each batch would be taken for the one before, and be left out; give the thread what this one knows: "
            "pool.submit(pyspark.inheritable_thread_target(write_one))"
        )
    return None, 0
