"""Exactly-once writes as the driver sees them: who writes through which ids, what a restart may do, what runs beside.

`start_stream` does all that must be known before the first row: the transactions' timeout, the prefix that nobody else
holds, the tokens against Spark's own log. Tasks do the rest (`kdsl.run.librdkafka.transactions.part`). Batches are
written by `kdsl.run.exactly_once.batch`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.plan.model import WritePlan
from kdsl.plan.text import plan_text
from kdsl.run.checkpoint.kept import Distribution, Folder, Kept, last_batches, store
from kdsl.run.cluster.lease import Lease, LeaseHeldError, transactions_lease
from kdsl.run.exactly_once.claim import abort_open, claim, limits, refresh
from kdsl.run.exactly_once.distribution import distributed, distributed_as
from kdsl.run.librdkafka.transactions.part import brokers_of
from kdsl.run.librdkafka.transactions.token import ExactlyOnceError, HalfWrittenError, LogProgress, Writer
from kdsl.run.librdkafka.transactions.tokens import TokenBrokers
from kdsl.run.librdkafka.transactions.work import (
    WORK,
    TransactionalWrite,
    records_digest,
    transactional_write_text,
)
from kdsl.run.session import cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SPECULATION = "spark.speculation"
NO_ADAPTIVE_PLAN = {"spark.sql.adaptive.enabled": "false"}
"""Adaptive execution may give the rows of a batch to other tasks the next time."""

_LOOK = 1
_WAIT = 60.0
_DAY = 86_400.0
_log = logging.getLogger(__name__)


@attrs.frozen
class PreparedStream:
    """A stream that may start.

    Attributes:
        rows: The rows, with a partition for each writer.
        work: What its tasks are told.
        folder: The checkpoint.
        retention: For how many seconds the brokers keep tokens.
        lease: The prefix, which nobody else holds meanwhile.
    """

    rows: DataFrame
    work: TransactionalWrite
    folder: Folder
    retention: float
    lease: Lease


def begin(
    rows: DataFrame, plan: WritePlan, cluster: Cluster, folder: Folder, kept: Kept | None, *, adopt: bool
) -> PreparedStream:
    """Make a stream ready to be written exactly once.

    Args:
        rows: What is written, as `kdsl.run.frames.fit.fitted` gives it.
        plan: What is written.
        cluster: Where.
        folder: The checkpoint.
        kept: What is kept there; None at a first start.
        adopt: Whether tokens that are missing or of somebody else are passed over.

    Raises:
        ResolveError: The transactions' timeout is above the brokers' maximum.
        KdslError: The prefix is taken, the tokens forbid it, or rows cannot be told to go to the same writers again.
    """
    assert plan.transactions is not None
    check_speculation(rows.sparkSession, plan.table)
    wait_for_end(plan, cluster)
    lease = held(plan, cluster)
    try:
        return _begun(rows, plan, cluster, folder, kept, lease, adopt=adopt)
    except BaseException:
        lease.release()
        raise


def held(plan: WritePlan, cluster: Cluster) -> Lease:
    """Hold the prefix of a plan.

    Raises:
        ExactlyOnceError: Another process holds it.
    """
    assert plan.transactions is not None
    prefix = plan.transactions.prefix
    meaning = (
        f"this process was cut off from the brokers for too long, and another one has taken the "
        f"transactional_id_prefix {prefix!r} of {plan.table}; exactly-once is kept: as soon as the other one writes, "
        "the brokers refuse the transactions of this query, and it ends with an error; stop one of them"
    )
    name = transactions_lease(prefix)
    lease = Lease(cluster, name, f"kdsl-{plan.table}", topics=plan.topics.names, meaning=meaning)
    try:
        lease.acquire()
    except LeaseHeldError as e:
        raise ExactlyOnceError(
            f"{plan.table}: the transactional_id_prefix {prefix!r} is held by {'; '.join(map(str, e.holders))}; stop "
            "that one, or give each its own transactional_id_prefix ('sink.transactional-id-prefix')"
        ) from e
    return lease


def _begun(
    rows: DataFrame,
    plan: WritePlan,
    cluster: Cluster,
    folder: Folder,
    kept: Kept | None,
    lease: Lease,
    *,
    adopt: bool,
) -> PreparedStream:
    assert plan.transactions is not None
    before = None if kept is None else kept.distribution
    if plan.transactions.staged:
        count = (
            plan.parallelism or (before.writers if before and before.by == "staged" else 0) or cores(rows.sparkSession)
        )
        given, wanted = rows, Distribution(plan.transactions.prefix, count, "staged")
    else:
        given, wanted = distributed(rows, plan, before)
    text, records = plan_text(plan), records_digest(plan)
    kept = kept or Kept(plan=text)
    brokers = brokers_of(cluster, plan.table)
    timeout_ms, retention = limits(brokers, cluster.connector().transaction_timeout_ms, plan.table)
    progress = LogProgress(*last_batches(folder))
    store(folder, attrs.evolve(kept, plan=text))  # tokens shall not carry an id that nobody knows

    def work(of: Distribution) -> TransactionalWrite:
        writer = Writer(kept.id, "", plan.table, folder.place)
        return TransactionalWrite(writer, of.prefix, of.writers, topic_of(plan, brokers), records, timeout_ms)

    try:
        _claim(work(wanted), cluster, progress, before, wanted, adopt=adopt)
    except HalfWrittenError:
        if before is None or attrs.evolve(wanted, writers=before.writers) != before:
            raise
        _log.warning(
            "%s: batch %s is half written by %s writers, so that the query goes on with as many; %s are taken up when "
            "it starts after a batch that is done",
            plan.table, progress.planned, before.writers, wanted.writers,
        )  # fmt: skip
        wanted = before
        given = distributed_as(rows, wanted)
        _claim(work(wanted), cluster, progress, before, wanted, adopt=adopt)
    store(folder, attrs.evolve(kept, plan=text, distribution=wanted))
    return PreparedStream(given, work(wanted), folder, retention, lease)


def _claim(
    work: TransactionalWrite,
    cluster: Cluster,
    progress: LogProgress,
    before: Distribution | None,
    now: Distribution,
    *,
    adopt: bool,
) -> None:
    old = [] if before is None else [f"{before.prefix}-{i}" for i in range(before.writers)]
    same = before is not None and attrs.evolve(before, prefix=now.prefix) == now
    heirs = dict(zip(old, work.ids, strict=True)) if same else {}
    claim(work, cluster, progress, before=old, heirs=heirs, adopt=adopt)


def check_speculation(spark: SparkSession, table: str) -> None:
    """Refuse sessions that run a task twice at once.

    Raises:
        KdslError: ``spark.speculation`` is on.
    """
    if (spark.conf.get(SPECULATION, "false") or "").strip().lower() == "true":
        raise KdslError(
            f"{table}: {SPECULATION} is 'true', and an exactly-once sink has one writer for each part: two attempts at "
            f"once would fence each other for ever; set {SPECULATION} to 'false'"
        )


def topic_of(plan: WritePlan, brokers: TokenBrokers) -> str:
    """The topic under which tokens are kept: the first that is written, or could be."""
    if plan.topics.names:
        return plan.topics.names[0]
    import re

    fits = [name for name in brokers.names() if re.fullmatch(plan.topics.pattern or "", name)]
    if not fits:
        raise KdslError(
            f"{plan.table}: no topic matches {plan.topics.pattern!r}, and the tokens of exactly-once are kept under "
            "one; create one of the topics first"
        )
    return fits[0]


def leave(kept: Kept, plan: WritePlan, cluster: Cluster) -> None:
    """Abort what an exactly-once query has left open that goes on with another promise."""
    if kept.distribution is None:
        return
    with suppress(KdslError):  # the brokers abort it after the transactions' timeout
        brokers = brokers_of(cluster, plan.table)
        timeout_ms, _ = limits(brokers, cluster.connector().transaction_timeout_ms, plan.table)
        writer = Writer(kept.id, "", plan.table)
        topic = topic_of(plan, brokers)
        abort_open(
            TransactionalWrite(writer, kept.distribution.prefix, kept.distribution.writers, topic, "", timeout_ms),
            cluster,
        )


def start_stream(
    rows: DataFrame,
    plan: WritePlan,
    sent: WritePlan,
    cluster: Cluster,
    folder: Folder,
    kept: Kept | None,
    *,
    trigger: Mapping[str, Any] | None,
    name: str | None,
    adopt: bool,
    telling: Mapping[str, str],
    mode: str = "append",
) -> StreamingQuery:
    """Start a query that writes exactly once.

    Args:
        rows: What is written, as `kdsl.run.frames.fit.fitted` gives it.
        plan: What is written.
        sent: The plan that fits the rows.
        cluster: Where.
        folder: The checkpoint.
        kept: What is kept there; None at a first start.
        trigger: The arguments of Spark's ``trigger``.
        name: The query's name.
        adopt: Whether tokens that are missing or of somebody else are passed over.
        telling: The options by which commits tell what they wrote (`kdsl.run.metrics.sink_reports`).
        mode: Spark's output mode; only what is staged takes updates.

    Raises:
        ResolveError: The transactions' timeout is above the brokers' maximum.
        KdslError: As `begin`.
    """
    begun = begin(rows, plan, cluster, folder, kept, adopt=adopt)
    try:
        query = _started(begun, plan, sent, cluster, trigger, name, telling, mode)
    except BaseException:
        begun.lease.release()
        raise
    Watch(query, begun, cluster)
    return query


def _started(
    begun: PreparedStream,
    plan: WritePlan,
    sent: WritePlan,
    cluster: Cluster,
    trigger: Mapping[str, Any] | None,
    name: str | None,
    telling: Mapping[str, str],
    mode: str,
) -> StreamingQuery:
    from kdsl.run.exactly_once.staged import staged
    from kdsl.run.librdkafka.datasource import FORMAT, options

    assert plan.transactions is not None
    if plan.transactions.staged:
        writer = staged(begun.rows, sent, cluster, begun.work, telling).outputMode(mode)
    else:
        writer = begun.rows.writeStream.format(FORMAT).outputMode(mode)
        writer = writer.options(**options(sent, cluster), **{WORK: transactional_write_text(begun.work)}, **telling)
    return started(writer, begun.folder.place, trigger, name)


def started(
    writer: DataStreamWriter, checkpoint: str, trigger: Mapping[str, Any] | None, name: str | None
) -> StreamingQuery:
    """Start a query with its checkpoint, trigger and name."""
    writer = writer.option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.start()


_live: dict[tuple[str, str], Watch] = {}  # by brokers and prefix
_lock = threading.Lock()


class Watch:
    """What runs beside an exactly-once query for its life: its tokens are kept from being forgotten.

    When the query has ended in the middle of a batch, what it left open is aborted, so that the topic can be read on.

    Args:
        query: The query.
        begun: What it writes.
        cluster: Where.
    """

    def __init__(self, query: StreamingQuery, begun: PreparedStream, cluster: Cluster) -> None:
        self.query, self._begun, self._cluster = query, begun, cluster
        self._every = max(_LOOK, min(begun.retention / 4, _DAY))
        self._place = cluster.bootstrap_servers, begun.work.prefix
        with _lock:
            _live[self._place] = self
        self.thread = threading.Thread(target=self._run, name=f"kdsl-{begun.work.prefix}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        waited = 0.0
        try:
            while not self._over():
                waited += _LOOK
                if waited >= self._every:
                    waited = 0.0
                    self._refresh()
            if self._begun.lease.lost_to is None and self._cut_off():
                abort_open(self._begun.work, self._cluster)
        finally:
            with _lock:
                if _live.get(self._place) is self:
                    del _live[self._place]
            self._begun.lease.release()

    def _over(self) -> bool:
        try:
            return bool(self.query.awaitTermination(_LOOK))
        except Exception:  # noqa: BLE001  # it failed, or the session is gone
            return True

    def _cut_off(self) -> bool:
        try:
            return LogProgress(*last_batches(self._begun.folder)).open
        except Exception:  # noqa: BLE001  # the session is gone, and its checkpoint out of reach
            return True

    def _refresh(self) -> None:
        if self._begun.lease.lost_to is not None:
            return  # it would fence the one that has the ids now
        try:
            refresh(self._begun.work, self._cluster, self._every / 2)
        except KdslError as e:
            _log.warning("%s: tokens cannot be refreshed now, and are tried again: %s", self._begun.work.writer, e)


def wait_for_end(plan: WritePlan, cluster: Cluster) -> None:
    """See that no query of this process holds a plan's prefix; one that has just ended is waited for.

    Raises:
        ExactlyOnceError: One is running.
    """
    assert plan.transactions is not None
    prefix = plan.transactions.prefix
    with _lock:
        watch = _live.get((cluster.bootstrap_servers, prefix))
    if watch is None:
        return
    if watch.query.isActive:
        holder = watch.query.name or watch.query.id
        raise ExactlyOnceError(
            f"{plan.table}: the transactional_id_prefix {prefix!r} is held by the query {holder} of this process; each "
            "query that runs needs its own"
        )
    watch.thread.join(_WAIT)
