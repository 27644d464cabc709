"""The metrics of the queries of this process: an observer keeps a tracker for each, which may be asked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

import orjson

from kdsl.run.cluster.lease import group_lease, transactions_lease
from kdsl.run.metrics.accumulated import forget
from kdsl.run.metrics.model import QueryMetrics
from kdsl.run.metrics.progress import completed
from kdsl.run.metrics.sink_reports import Spool
from kdsl.run.metrics.tracker import Named, Tracker, in_order
from kdsl.run.queries.commits import counts_of
from kdsl.run.queries.events import report_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from kdsl.plan.model import WritePlan
    from kdsl.run.queries.events import Progress, Query, ReadProgress
    from kdsl.run.queries.reads import Read

KEPT = 200
"""How many queries are remembered; of too many, those that have ended go first."""

_trackers: OrderedDict[str, Tracker] = OrderedDict()
_lock = Lock()


class MetricsObserver:
    """Keeps the metrics of queries as they go on (an observer of `kdsl.run.queries`)."""

    def started(self, query: Query) -> None:
        """A query begins."""
        forget(query.id)
        _tracker(query.id).begin(query.run_id, query.name)

    def progressed(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """A batch has ended."""
        names = {one.source: Named(one.read.id, one.read.plan.table, _lease(one.read)) for one in reads}
        _tracker(progress.query.id).progressed(completed(progress.document, progress.java), names)

    def idle(self, query: Query) -> None:
        """A query waits for data."""
        _tracker(query.id).idle()

    def ended(self, query: Query) -> None:
        """A query has ended."""
        _tracker(query.id).end(query.run_id)


METRICS = MetricsObserver()


def _lease(read: Read) -> str:
    """The lease that this process holds for a read: of a group that Spark's own source, which cannot hold it, uses."""
    return group_lease(read.group) if read.plan.check_group and read.plan.transport == "jvm" else ""


def writes(query: StreamingQuery, plan: WritePlan, spool: Spool | None) -> None:
    """Tell what a query writes, right after it was started."""
    lease = transactions_lease(plan.transactions.prefix) if plan.transactions is not None else ""
    _tracker(str(query.id)).writes(plan.table, spool, str(query.runId), lease)


def metrics(query: StreamingQuery) -> QueryMetrics:
    """The metrics of a streaming query as they are now.

    Counters count from the start of the query in this process; the batches that have ended are all in it.

    Args:
        query: The query, running or ended, of a classic session or of Spark Connect.
    """
    tracker = _tracker(str(query.id))
    for document in in_order(_recent(query)):
        tracker.progressed(document)
    return tracker.snapshot()


def all_metrics() -> tuple[QueryMetrics, ...]:
    """The metrics of all queries of this process that run."""
    with _lock:
        running = [tracker for tracker in _trackers.values() if not tracker.ended]
    return tuple(tracker.snapshot() for tracker in running)


def _recent(query: StreamingQuery) -> Iterator[Mapping[str, Any]]:
    java: Any = getattr(query, "_jsq", None)
    if java is not None:
        yield from (completed(orjson.loads(progress.json()), progress) for progress in java.recentProgress())
    else:
        yield from map(report_of, query.recentProgress)


def _tracker(query: str) -> Tracker:
    with _lock:
        tracker = _trackers.get(query)
        if tracker is None:
            tracker = _trackers[query] = Tracker(query, counts_of)
            if len(_trackers) > KEPT:
                over = [id_ for id_, one in _trackers.items() if one.ended] or list(_trackers)
                del _trackers[over[0]]
        return tracker
