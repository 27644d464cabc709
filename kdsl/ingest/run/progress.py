"""What the log says of a running ingestion: a line for each batch, what it waits for, and the sums at its end.

The lines are of the level INFO. Those of batches are written when Spark reports the progress of the query, which comes
a moment after the batch: the report has the time that all of it took, and how far the topics could be read.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

import attrs

from kdsl.diagnostics.clients import open_admin
from kdsl.errors import KdslError, nearest, pluralize
from kdsl.formats import TableId
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.ids import format_id
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.state import IngestState, Note
from kdsl.ingest.unused import UnusedPatterns
from kdsl.name_patterns import compile_pattern
from kdsl.retry import PROGRESS
from kdsl.run.listeners.events import Observer

if TYPE_CHECKING:
    from kdsl.run.listeners.events import Progress, Query, ReadProgress

LOST = "lost-values"
"""The reason, in the counts of a state, of values that a sink table has no column for, or no type that holds them."""
_MOST_TABLES = 5
_MOST_BATCHES = 1000
_MOST_ENDED = 100
_COUNTS = {"dirty": "cannot be read", "without-columns": "of tables without columns", LOST: "values lost"}
_log = logging.getLogger(__name__)


def explain_missing_topics(feed: KafkaFeed) -> str | None:
    """Explain that no topic matches the pattern of a source; None if one does, or if the brokers do not answer.

    Args:
        feed: The source, with the secrets of its cluster.
    """
    if feed.topic_pattern is None:
        return None
    with suppress(KdslError):  # the query asks the same brokers, and reports what is wrong with them
        topics = open_admin(feed.cluster, "ingestion").names()
        matches = compile_pattern(feed.topic_pattern).fullmatch
        if not any(map(matches, topics)):
            hint = nearest(feed.topic_pattern, topics)
            return f"no topic matches {feed.topic_pattern} so far{hint}; correct topic-pattern, or create a topic"
    return None


class IngestLog:
    """The log of one run of an ingestion.

    Args:
        plan: Its plan.
        name: Its name, if several share a query; otherwise empty.
        once: Whether the query ends at what there is at its start.
    """

    def __init__(self, plan: IngestPlan, name: str = "", *, once: bool = False) -> None:
        self._prefix, self._once = f"{name}: " if name else "", once
        self._counts_records = isinstance(plan.source, KafkaFeed)
        self._unused = UnusedPatterns(list(plan.patterns()))
        self._notes: dict[int, Note] = {}
        self._records: Counter[TableId] = Counter()
        self._counts: Counter[str] = Counter()
        self._rows = self._batches = 0
        self._began = time.monotonic()
        self._idle = self._has_ended = self._has_warned = False

    def begin(self, state: IngestState) -> None:
        """Take the tables that earlier runs have read, which patterns may fit."""
        self._unused.add(state.records)

    def add(self, note: Note, tables: Collection[TableId]) -> None:
        """Take a batch that is written; one that is written again replaces it.

        After the first batch with tables, the log warns of patterns that fit none of them.

        Args:
            note: The note of the batch.
            tables: The upstream tables that it has rows for.
        """
        self._notes[note.batch] = note
        while len(self._notes) > _MOST_BATCHES:  # reports that never came
            del self._notes[min(self._notes)]
        self._unused.add(tables)
        if tables and not self._has_warned:
            self._has_warned = True
            for warning in self._unused.warn("so far"):
                _log.warning("%s%s", self._prefix, warning)

    def report_progress(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """Log the line of a batch that has ended, unless it was not one of this ingestion."""
        note = self._notes.pop(progress.batch, None)
        if note is None:
            return
        self._idle = False
        self._batches += 1
        if self._prefix and note.is_empty:
            return  # the batch has records of other ingestions only
        self._records.update(note.records)
        self._counts.update(note.counts)
        rows = 0 if self._counts_records else int(progress.document.get("numInputRows") or 0)
        self._rows += rows
        parts = [_write_records(note.records, rows), *_write_counts(note.counts)]
        seconds = progress.document.get("durationMs", {}).get("triggerExecution")
        text = f"{self._prefix}batch {progress.batch}: {', '.join(parts)}"
        text += "" if seconds is None else f", in {seconds / 1000:,.1f} s"
        lag = _find_lag(reads)
        text += "" if lag is None else f"; {pluralize(lag, 'record')} behind" if lag else "; up to date"
        _log.info("%s", text, extra={PROGRESS: True})

    def report_idle(self) -> None:
        """Log once after a batch, and once at the start, that the query waits for records."""
        if not self._idle:
            self._idle = True
            _log.info("%sno new records; waiting for them", self._prefix, extra={PROGRESS: True})

    def report_end(self, error: str | None) -> None:
        """Log the sums of the run, once; for one that ends by itself, also the patterns that fit no table."""
        if self._has_ended:
            return
        self._has_ended = True
        parts = [_write_records(self._records, self._rows), *_write_counts(self._counts)]
        batches = pluralize(self._batches, "batch", "batches")
        how = "ended" if error is None else "failed"
        seconds = time.monotonic() - self._began
        _log.info("%s%s after %s: %s, in %.1f s", self._prefix, how, batches, ", ".join(parts), seconds)
        if self._once and error is None:
            for warning in self._unused.warn(""):
                _log.warning("%s%s", self._prefix, warning)


def _write_records(records: Mapping[TableId, int], rows: int) -> str:
    """The number of records, and that of each table; without tables, the number of rows."""
    if not records:
        return pluralize(rows, "row") if rows else "no rows"
    first = sorted(records, key=lambda table: (-records[table], table))[:_MOST_TABLES]
    names = [f"{format_id(table)} {records[table]:,}" for table in first]
    names += ["…"] if len(records) > len(names) else []
    return f"{pluralize(sum(records.values()), 'record')} of {pluralize(len(records), 'table')} ({', '.join(names)})"


def _write_counts(counts: Mapping[str, int]) -> list[str]:
    """What was not written, and other counts by their reasons."""
    return [f"{count:,} {_COUNTS.get(reason, reason)}" for reason, count in sorted(counts.items()) if count]


def _find_lag(reads: tuple[ReadProgress, ...]) -> int | None:
    """How many records could be read when a batch was planned and are not part of it; None if that is not known."""
    if not reads or any(read.latest is None for read in reads):
        return None
    return sum(
        max(0, end - read.end.positions.get(partition, end))
        for read in reads
        for partition, end in (() if read.latest is None else read.latest.positions.items())
    )


@attrs.define
class IngestLogs(Observer):
    """Passes the events of queries to the logs of their ingestions; an observer, see `kdsl.run.listeners.events`."""

    _of_queries: dict[str, tuple[IngestLog, ...]] = attrs.field(factory=dict)
    _ended: dict[str, str | None] = attrs.field(factory=dict)
    _lock: Lock = attrs.field(factory=Lock, eq=False)

    def follow(self, query: str, log: IngestLog) -> None:
        """Pass the events of a query to a log, until the query ends; if it has ended already, that.

        Args:
            query: The id of the query.
            log: The log. It may follow the query already.
        """
        with self._lock:
            has_ended = query in self._ended
            logs = self._of_queries.get(query, ())
            if not has_ended and log not in logs:
                self._of_queries[query] = (*logs, log)
        if has_ended:
            log.report_end(self._ended[query])

    def on_start(self, query: Query) -> None:
        """Forget that an earlier run of the query has ended."""
        with self._lock:
            self._ended.pop(query.id, None)

    def on_progress(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """Log the line of a batch."""
        for log in self._of_queries.get(progress.query.id, ()):
            log.report_progress(progress, reads)

    def on_idle(self, query: Query) -> None:
        """Log that a query waits."""
        for log in self._of_queries.get(query.id, ())[:1]:
            log.report_idle()

    def on_end(self, query: Query) -> None:
        """Log the sums of a query, and forget it."""
        with self._lock:
            logs = self._of_queries.pop(query.id, ())
            self._ended[query.id] = query.error
            if len(self._ended) > _MOST_ENDED:
                del self._ended[next(iter(self._ended))]
        for log in logs:
            log.report_end(query.error)


INGEST_LOGS = IngestLogs()
"""The logs of the ingestions that run in this process."""
