"""The metrics of the queries of this process: an observer updates a tracker for each query."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from kdsl.run.leases.lease import group_lease, transactions_lease
from kdsl.run.listeners.commits import counts_of
from kdsl.run.listeners.events import Observer
from kdsl.run.listeners.spark_source import count_lost
from kdsl.run.metrics import accumulated
from kdsl.run.metrics.model import QueryMetrics
from kdsl.run.metrics.progress import add_reports
from kdsl.run.metrics.sink_reports import Spool
from kdsl.run.metrics.tracker import NamedRead, Tracker, sort_by_time
from kdsl.run.skipped_reports import count_skipped
from kdsl.spark_internals.errors import find_reason
from kdsl.spark_internals.queries import recent_progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from kdsl.plan.model import WritePlan
    from kdsl.run.listeners.events import Progress, Query, ReadProgress
    from kdsl.run.listeners.reads import Read

MAX_QUERIES = 200
"""How many queries are remembered; ended queries are forgotten first."""
_SHOWN_AFTER_END = 3600.0
"""For how many seconds a query that has ended is shown."""

_trackers: OrderedDict[str, Tracker] = OrderedDict()
_lock = Lock()


class MetricsObserver(Observer):
    """Updates the metrics of running queries (an observer of `kdsl.run.listeners`)."""

    def on_start(self, query: Query) -> None:
        """Start the metrics of a run, and forget what tasks reported for earlier runs: their last batch runs again."""
        accumulated.STORE.forget(query.id)
        _tracker(query.id).begin(query.run_id, query.name)

    def on_progress(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """Add the numbers of a batch that has ended to the query's metrics.

        Those that tasks reported are added to Java's object of the report, too (`add_reports`). What was dropped is
        logged. The listener logs any error.
        """
        names = {one.source: NamedRead(one.read.id, one.read.plan.table, _lease(one.read)) for one in reads}
        _tracker(progress.query.id).add_progress(add_reports(progress.document, progress.java), names)

    def on_idle(self, query: Query) -> None:
        """Note that a query waits for data: its rates become 0 (`Tracker.idle`)."""
        _tracker(query.id).idle()

    def on_end(self, query: Query) -> None:
        """Note that a query has ended, read the last numbers of its sink, and log drops in them (`Tracker.end`)."""
        reason = None if query.error is None else find_reason(RuntimeError(query.error))
        _tracker(query.id).end(query.run_id, reason)


METRICS = MetricsObserver()


def _lease(read: Read) -> str:
    """Return the name of the lease of a read's group if this process holds one, for Spark's own source; else empty."""
    return group_lease(read.group) if read.plan.check_group and read.plan.transport == "jvm" else ""


def note_write(query: StreamingQuery, plan: WritePlan, spool: Spool | None) -> None:
    """Note what a query writes, right after its start, and begin to follow its run.

    Args:
        query: The query.
        plan: The write plan.
        spool: The file with the numbers of its commits; None if its commits report nothing.
    """
    lease = transactions_lease(plan.transactions.prefix) if plan.transactions is not None else ""
    _tracker(str(query.id)).writes(plan.table, spool, str(query.runId), lease)


def metrics(query: StreamingQuery) -> QueryMetrics:
    """Return the present metrics of a streaming query, after adding the reports that Spark remembers.

    Counters count from the start of the query in this process and include all batches that have ended. A query without
    tables of kdsl has neither sources nor sinks. What was dropped according to the added reports, and to the file of
    reports of the sink, is logged. The numbers of tasks are added to Spark's own objects of the reports, too
    (`add_reports`). What Spark raises when it is asked for the reports is passed on.

    Args:
        query: The query, running or ended, of a classic session or of Spark Connect.
    """
    tracker = _tracker(str(query.id))
    for document in sort_by_time(_recent(query)):
        tracker.add_progress(document)
    return tracker.snapshot()


def all_metrics() -> tuple[QueryMetrics, ...]:
    """Return the metrics of all queries of this process, each as of now (`Tracker.snapshot`).

    Left out are those that ended more than an hour ago. New drops in the sinks' files of reports are logged.
    """
    since = time.time() - _SHOWN_AFTER_END
    with _lock:
        trackers = [tracker for tracker in _trackers.values() if tracker.ended_at is None or tracker.ended_at > since]
    return tuple(tracker.snapshot() for tracker in trackers)


def _recent(query: StreamingQuery) -> Iterator[Mapping[str, Any]]:
    """Yield Spark's recent reports of a query, with the numbers that tasks have reported.

    The numbers are added to Java's objects, too (`add_reports`).
    """
    for document, java in recent_progress(query):
        yield document if java is None else add_reports(document, java)


def _tracker(query: str) -> Tracker:
    """Return the tracker of a query, created at the first use.

    If there are too many, the oldest one of an ended query is dropped, or the oldest one if none has ended.
    """
    with _lock:
        tracker = _trackers.get(query)
        if tracker is None:
            tracker = _trackers[query] = Tracker(
                query, counts_of, lost=lambda read: count_lost(read) + count_skipped(query, read)
            )
            if len(_trackers) > MAX_QUERIES:
                over = [id_ for id_, one in _trackers.items() if one.ended_at is not None] or list(_trackers)
                del _trackers[over[0]]
        return tracker
