"""Accumulates the progress reports of one query to its metrics.

Everything is pure except the clock, which is a parameter. Reports are Spark's JSON, from the listener and from
``recentProgress``, and each is counted once.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from threading import Lock
from typing import Any

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.run.leases.lease import lease_loss
from kdsl.run.listeners.commits import CommitCounts
from kdsl.run.metrics.late_rows import describe_future_watermark, log, log_late_rows
from kdsl.run.metrics.model import QueryMetrics, SinkMetrics, SourceMetrics
from kdsl.run.metrics.operators import LATE_ROWS, MEMORY, ROWS, count_by_operator
from kdsl.run.metrics.sink_reports import SinkCounts, Spool
from kdsl.run.metrics.source_reports import OBSERVED, SINK, SourceCounts, read_of, read_reports
from kdsl.run.offsets.stored import LOST_LEASE, Offsets, by_partition, offset_document, positions_of
from kdsl.run.records.drops import Reason, count_violations, log_drops
from kdsl.types.strings.temporal import parse_timestamp

_CLIENT_SECONDS = 600.0
"""After how many seconds without statistics a client is considered closed."""
_BEFORE_ALL = 0.0
_LONG_YEAR = re.compile(r"\+?(\d{5,}-.*)")
_MAX_REMEMBERED = 1_000  # Spark's own buffer holds one hundred
_Key = tuple[int, str]
_NONE: _Key = (-1, "")

Clock = Callable[[], float]


Commits = Callable[[str], CommitCounts]


@attrs.frozen
class NamedRead:
    """The read of a query's source.

    Attributes:
        read: Its id.
        table: Its table's name.
        lease: The lease that this process holds for it; empty if there is none.
    """

    read: str
    table: str
    lease: str = ""


@attrs.define
class _Clients:
    """The newest metrics of clients by client id, each with the time when they came."""

    metrics: dict[str, tuple[float, Mapping[str, float]]] = attrs.field(factory=dict)

    def update(self, metrics_of: Mapping[str, Mapping[str, float]], at: float) -> None:
        """Store the newest metrics of clients, with their time."""
        self.metrics.update((id_, (at, metrics)) for id_, metrics in metrics_of.items())

    def now(self, at: float) -> dict[str, Mapping[str, float]]:
        """Return the metrics of the clients that reported in the `_CLIENT_SECONDS` before ``at``, by client id."""
        return {id_: metrics for id_, (then, metrics) in sorted(self.metrics.items()) if at - then < _CLIENT_SECONDS}


@attrs.define
class _Source:
    """The numbers of one read in the present run; those of two sources with the same read are added up."""

    named: NamedRead
    records: int = 0
    bytes: int | None = None
    filtered: int = 0
    dropped: Counter[str] = attrs.field(factory=Counter)
    rate: float = 0.0
    byte_rate: float | None = None
    last: SourceCounts = attrs.field(factory=SourceCounts)
    current: dict[TopicPartition, int] = attrs.field(factory=dict)
    latest: dict[TopicPartition, int] | None = None
    high: dict[TopicPartition, int] | None = None
    lost: int = 0
    lost_lease: str | None = None
    busy_until: float | None = None
    states: dict[int, tuple[_Key, tuple[int, int]]] = attrs.field(factory=dict)
    routings: dict[str, str] = attrs.field(factory=dict)
    routed: _Key = _NONE
    clients: _Clients = attrs.field(factory=_Clients)

    def has_states(self, routings: Mapping[str, str], key: _Key) -> bool:
        """Note which states a batch has; return whether they are those that the newest batch has.

        The sizes of earlier ones are forgotten: a batch that takes their rows over writes all of the new ones.

        Args:
            routings: How each state finds rows, by its id.
            key: The batch.
        """
        if key >= self.routed:
            if self.routings.keys() != routings.keys():
                self.states.clear()
            self.routings, self.routed = dict(routings), key
        return self.routings.keys() == routings.keys()

    def store_size(self, number: int, size: tuple[int, int], key: _Key) -> None:
        """Store the keys and bytes of the state of a partition or shard, unless they are known from a later batch."""
        if number not in self.states or self.states[number][0] <= key:
            self.states[number] = (key, size)


@attrs.define
class _Sink:
    """The numbers of the query's write in the present run."""

    table: str
    spool: Spool | None
    lease: str = ""
    counts: SinkCounts = attrs.field(factory=SinkCounts)
    before: SinkCounts = attrs.field(factory=SinkCounts)
    rate: float = 0.0
    byte_rate: float | None = None
    clients: _Clients = attrs.field(factory=_Clients)


class Tracker:
    """The metrics of one query.

    Args:
        query: Its id.
        commits: Returns the results of the commits of a read; None if there are no commits.
        clock: Returns the time, in seconds since 1970.
        lost: Returns how many offsets a read has skipped that are not in its offsets.
    """

    def __init__(
        self,
        query: str,
        commits: Commits | None = None,
        clock: Clock = time.time,
        lost: Callable[[str], int] = lambda _: 0,
    ) -> None:
        self.query = query
        self._commits, self._lost = commits, lost
        self._clock = clock
        self._lock = Lock()
        self._sink: _Sink | None = None
        self._tables: dict[int, NamedRead] = {}
        self._past: set[str] = set()
        self._reset("")

    def _reset(self, run: str) -> None:
        """Forget the numbers of the previous run, except the sink's, and begin to follow a new one."""
        self.run = run
        self.name: str | None = None
        self.ended_at: float | None = None
        self._error: str | None = None
        self._took: int | None = None
        self._rows: Mapping[str, int] = {}
        self._memory: Mapping[str, int] = {}
        self._started = self._clock()
        self._last = self._forgotten = _NONE
        self._taken: dict[_Key, set[int]] = {}  # the counted sources of each report
        self._sources: dict[str, _Source] = {}
        self._late: Counter[str] = Counter()
        self._watermark: float | None = None
        self._warned_ahead = False
        self._before: float | None = None
        self._seconds = 0.001

    def writes(self, table: str, spool: Spool | None, run: str, lease: str = "") -> None:
        """Note what a run of the query writes, and begin to follow the run, as `begin` does.

        Args:
            table: The table's name.
            spool: The file with the numbers of its commits; None if its commits report nothing.
            run: The run.
            lease: The name of the lease that is held for it; empty if there is none.
        """
        with self._lock:
            self._begin(run)
            self._sink = _Sink(table, spool, lease)

    def begin(self, run: str, name: str | None = None) -> None:
        """Begin to follow a run, unless it is the present or a past one; set the query's name if there is one."""
        with self._lock:
            self._begin(run)
            self.name = name or self.name

    def idle(self) -> None:
        """Note that the query waits for data: rates of its sources and sink become 0; unknown byte rates stay None."""
        with self._lock:
            for one in self._sources.values():
                one.rate, one.byte_rate = 0.0, None if one.byte_rate is None else 0.0
            if self._sink is not None:
                sink = self._sink
                sink.rate, sink.byte_rate = 0.0, None if sink.byte_rate is None else 0.0

    def end(self, run: str, error: str | None = None) -> None:
        """End a run if it is the present one, with its error's message; all numbers stay until the next run begins.

        The last numbers in the sink's file of reports are read, and drops in it are logged.
        """
        with self._lock:
            if run == self.run:
                self.ended_at, self._error = self._clock(), error
                self._read_sink(None)

    def add_progress(self, document: Mapping[str, Any], names: Mapping[int, NamedRead] | None = None) -> None:
        """Add a progress report, and log drops and late rows.

        A repeated report adds only the sources that were not known before. Reports of past runs, and of batches too
        old to be remembered, are ignored; that of a new run begins it.

        Args:
            document: The report, as Spark's JSON.
            names: The reads of its sources, by index, for sources that do not identify themselves.
        """
        with self._lock:
            self._tables.update(names or {})
            self._begin(str(document["runId"]))
            key = (int(document["batchId"]), str(document["timestamp"]))
            if document["runId"] != self.run or key <= self._forgotten:
                return
            first = key not in self._taken
            taken = self._taken.setdefault(key, set())
            if first:
                self.name = document.get("name") or self.name
                self._forget_oldest()
            started = _convert_to_seconds(document["timestamp"])
            took = document.get("durationMs", {}).get("triggerExecution", 0) / 1000
            if first and key > self._last:
                self._last = key
                self._seconds = max(took, started - self._before if self._before is not None else 0.0, 0.001)
                self._before = started
                mark = _convert_to_seconds(document.get("eventTime", {}).get("watermark"))
                self._watermark = mark if mark > _BEFORE_ALL else None
                self._warn_of_future_watermark()
                self._took = document.get("durationMs", {}).get("triggerExecution")
                self._rows, self._memory = count_by_operator(document, ROWS), count_by_operator(document, MEMORY)
            # A report may be late, because Spark's buffer is ahead of its listeners: it is counted, but sets no gauges.
            newest = key == self._last
            self._update_sources(document, taken, started + took, newest=newest)
            if first:
                late = count_by_operator(document, LATE_ROWS)
                self._late.update(late)
                log_late_rows(self.name or self.query, document, late)
                self._count_sink(document)
                self._read_sink(document, newest=newest)

    def _warn_of_future_watermark(self) -> None:
        """Log once for a run that its watermark is far ahead of the clock."""
        if self._watermark is None or self._warned_ahead:
            return
        text = describe_future_watermark(self.name or self.query, self._watermark, self._clock())
        if text is not None:
            self._warned_ahead = True
            log.warning("%s", text)

    def _forget_oldest(self) -> None:
        """Forget the oldest batches when too many are remembered; their reports are ignored from then on."""
        while len(self._taken) > _MAX_REMEMBERED:
            oldest = min(self._taken)
            del self._taken[oldest]
            self._forgotten = max(self._forgotten, oldest)

    def _begin(self, run: str) -> None:
        """Begin to follow a run, unless it is the present or a past one.

        The counts of the previous run are forgotten. The table that it wrote, and its lease, stay until `writes`.
        """
        if run == self.run or run in self._past:
            return
        again = bool(self.run)
        self._past.add(self.run)
        self._reset(run)
        if again and self._sink is not None:
            self._sink = _Sink(self._sink.table, None, self._sink.lease)

    def _source(self, named: NamedRead) -> _Source:
        """Return the counts of a read by its id, created at the first use."""
        return self._sources.setdefault(named.read, _Source(named))

    def _update_sources(self, document: Mapping[str, Any], taken: set[int], ended: float, *, newest: bool) -> None:
        """Add what a batch's report says of the sources that are not counted yet, and log what they dropped."""
        rows: dict[str, int] = {}
        routings: dict[str, dict[str, str]] = {}
        for index, report in enumerate(document.get("sources") or ()):
            end = offset_document(report.get("endOffset"))
            named = self._find_read(index, end)
            if named is None or end is None:
                continue
            routings.setdefault(named.read, {}).update(_describe_state(end))
            if index in taken:
                continue
            taken.add(index)
            source = self._source(named)
            first = named.read not in rows
            rows[named.read] = rows.get(named.read, 0) + (report.get("numInputRows") or 0)
            if newest:
                self._update_offsets(source, end, offset_document(report.get("latestOffset")), first=first)
        counted = _read_observations(document) if rows else {}
        key = (int(document["batchId"]), str(document["timestamp"]))
        for read, count in rows.items():
            counts = counted.get(read)
            if self._sources[read].has_states(routings[read], key):
                for number, keys, stored in () if counts is None else counts.sizes:
                    self._sources[read].store_size(number, (keys, stored), key)
            self._count(self._sources[read], count, counts, ended, newest=newest)
            if counts is not None:
                log_drops(self._sources[read].named.table, counts.dropped, f"of batch {document['batchId']} ")

    def _count(self, source: _Source, rows: int, counts: SourceCounts | None, ended: float, *, newest: bool) -> None:
        """Add a batch to the numbers of a source; only the newest batch changes its rates and its last record."""
        records = rows if counts is None else counts.records
        source.records += records
        if counts is not None:
            if counts.bytes is not None:
                source.bytes = (source.bytes or 0) + counts.bytes
            source.filtered += counts.filtered
            source.dropped.update(counts.dropped)
            source.clients.update(counts.client, ended)
        if newest:
            source.rate = records / self._seconds
            if counts is not None:
                source.byte_rate = None if counts.bytes is None else counts.bytes / self._seconds
                if counts.event is not None:
                    source.last = counts
        if records:
            source.busy_until = max(source.busy_until or ended, ended)

    def _find_read(self, index: int, end: Mapping[str, Any] | None) -> NamedRead | None:
        """Return the read that a source of a report belongs to; None if it is not known as a table of kdsl."""
        if end is not None and isinstance(end.get("read"), str) and end["read"]:
            read = end["read"]
            return NamedRead(read, read.rpartition("-")[0] or read)
        return self._tables.get(index)

    @staticmethod
    def _update_offsets(
        source: _Source, end: Mapping[str, Any], latest: Mapping[str, Any] | None, *, first: bool
    ) -> None:
        """Set the offsets of a source, the number of skipped ones, and who has acquired its lease."""
        current = positions_of(end) or {}
        if not first:  # the query reads the table twice: use the positions of the slower read
            current = {
                partition: min(offset, source.current.get(partition, offset)) for partition, offset in current.items()
            }
        source.current = current
        source.latest = None if latest is None else positions_of(latest)
        source.lost_lease = None if latest is None else latest.get(LOST_LEASE)
        source.high = {**(source.latest or {}), **by_partition(latest.get("high", {}))} if latest is not None else None
        if "version" in end:
            source.lost = sum(by_partition(end.get("lost", {})).values())

    def _count_sink(self, document: Mapping[str, Any]) -> None:
        """Count and log the rows that the tasks of a write have left out, as they report if its commits do not."""
        counts = _read_observations(document).get(SINK)
        if self._sink is not None and counts is not None:
            self._sink.counts += SinkCounts(dropped=counts.dropped)
            log_drops(self._sink.table, counts.dropped, f"of batch {document['batchId']} ")

    def _read_sink(self, document: Mapping[str, Any] | None, *, newest: bool = False) -> None:
        """Update the sink's counts from its file of reports, and log new drops; without it, add Spark's row count."""
        sink = self._sink
        if sink is None:
            return
        if sink.spool is not None and (sink.spool.read() or sink.spool.has_reports):
            now = sink.spool.total
            if newest:
                sink.rate = (now.records - sink.before.records) / self._seconds
                sink.byte_rate = (now.bytes - sink.before.bytes) / self._seconds
                sink.before = now
            where = "" if document is None else f"of batch {document['batchId']} "
            log_drops(sink.table, Counter(now.dropped) - Counter(sink.counts.dropped), where)
            sink.counts = now
            sink.clients.update(now.client, self._clock())
        elif document is not None:
            rows = (document.get("sink") or {}).get("numOutputRows")
            if rows is not None and rows >= 0:  # Spark reports -1 if it does not know
                sink.counts += SinkCounts(records=rows)
                if newest:
                    sink.rate = rows / self._seconds

    def snapshot(self) -> QueryMetrics:
        """Return the present metrics, with what the sink's file of reports has by now; drops in it are logged."""
        with self._lock:
            now = self._clock()
            self._read_sink(None)
            sources = tuple(self._compute_source_metrics(source, now) for source in self._sources.values())
            sinks = () if self._sink is None else (self._sink_metrics(self._sink, now),)
            batch = None if self._last == _NONE else self._last[0]
            return QueryMetrics(
                query=self.query,
                run=self.run,
                name=self.name,
                batch=batch,
                sources=sources,
                sinks=sinks,
                num_late_records_dropped=dict(self._late),
                running=int(self.ended_at is None),
                failed={} if self._error is None else {self._error: 1},
                uptime=None if self.ended_at is not None else max(0.0, now - self._started) * 1000,
                batch_duration=self._took,
                num_rows_in_state=self._rows,
                state_memory=self._memory,
            )

    def _compute_source_metrics(self, source: _Source, now: float) -> SourceMetrics:
        """Compute the metrics of a source at the time ``now``; its numbers do not change."""
        commits = self._commits(source.named.read) if self._commits else None
        lags = None if source.latest is None else _lags(source.current, source.latest)
        pending = None if lags is None else sum(lags.values())
        high_lags = lags if source.high is None else _lags(source.current, source.high)
        each = source.bytes / source.records if source.bytes is not None and source.records else None
        lost_to = source.lost_lease or lease_loss(source.named.lease)
        age = None if source.last.event is None else max(0.0, now - source.last.event / 1000)
        return SourceMetrics(
            table=source.named.table,
            read=source.named.read,
            num_records_in=source.records,
            num_records_in_per_second=source.rate,
            num_bytes_in=source.bytes,
            num_bytes_in_per_second=source.byte_rate,
            num_records_filtered=source.filtered,
            num_records_dropped={reason.value: source.dropped[reason] for reason in Reason},
            num_rule_violations=_count_by_rule(source.dropped),
            pending_records=pending,
            pending_bytes=0 if pending == 0 else None if each is None or pending is None else round(each * pending),
            pending_seconds=0.0 if pending == 0 else None if pending is None else age,
            uncommitted_records=None
            if high_lags is None or pending is None
            else max(0, sum(high_lags.values()) - pending),
            current_fetch_event_time_lag=source.last.fetch_lag,
            current_emit_event_time_lag=source.last.emit_lag,
            watermark_lag=None if self._watermark is None else max(0.0, now - self._watermark) * 1000,
            source_idle_time=max(0.0, now - (self._started if source.busy_until is None else source.busy_until)) * 1000,
            commits_succeeded=0 if commits is None else commits.succeeded,
            commits_failed=0 if commits is None else commits.failed,
            num_keys_in_state=sum(keys for _, (keys, _) in source.states.values()) if source.states else None,
            state_bytes=sum(size for _, (_, size) in source.states.values()) if source.states else None,
            state_routing=dict.fromkeys(source.routings.values(), 1),
            records_lost=source.lost + self._lost(source.named.read),
            current_offsets=dict(source.current),
            committed_offsets={} if commits is None else dict(commits.committed),
            partition_lags=lags or {},
            high_watermark_lags=high_lags or {},
            leases_lost=int(lost_to is not None),
            lost_lease=lost_to,
            client=source.clients.now(now),
        )

    @staticmethod
    def _sink_metrics(sink: _Sink, now: float) -> SinkMetrics:
        """Return the present metrics of a sink."""
        lost_to, counts = lease_loss(sink.lease), sink.counts
        return SinkMetrics(
            table=sink.table,
            num_records_out=counts.records,
            num_records_out_per_second=sink.rate,
            num_bytes_out=counts.bytes if sink.spool is not None and sink.spool.has_reports else None,
            num_bytes_out_per_second=sink.byte_rate,
            current_send_time=counts.send_time,
            num_rows_dropped=counts.dropped.get(Reason.NOT_NULL, 0),
            num_rule_violations=_count_by_rule(counts.dropped),
            records_lost=counts.lost,
            leases_lost=int(lost_to is not None),
            lost_lease=lost_to,
            client=sink.clients.now(now),
        )


def _describe_state(end: Mapping[str, Any]) -> dict[str, str]:
    """Return how the state of a source finds rows, by its id; empty for offsets without a state."""
    document = end.get("state")
    if "version" not in end or not isinstance(document, dict):
        return {}
    state = Offsets.from_json(end).state
    return {} if state is None else {state.id: state.describe()}


def _count_by_rule(dropped: Mapping[str, int]) -> dict[str, int]:
    """Return how many rows violated each rule; its action may have changed between two runs."""
    counts: Counter[str] = Counter()
    for (_, rule), count in count_violations(dropped).items():
        counts[rule] += count
    return dict(counts)


def _read_observations(document: Mapping[str, Any]) -> dict[str, SourceCounts]:
    """Return what the tasks of a batch have reported, by read; `SINK` stands for the write.

    Observations that are not kdsl's are ignored.
    """
    counted: dict[str, SourceCounts] = {}
    for name, row in (document.get("observedMetrics") or {}).items():
        read = read_of(name)
        reports = ((row or {}).get(OBSERVED) or {}).get("reports")
        if read is not None and reports is not None:
            one = read_reports(reports)
            counted[read] = _add_counts(counted[read], one) if read in counted else one
    return counted


def _add_counts(one: SourceCounts, other: SourceCounts) -> SourceCounts:
    """Add up what two reads of the same table in one query have read; times are those of the one further behind."""
    behind = min((r for r in (one, other) if r.event is not None), key=lambda r: r.event or 0, default=one)
    return attrs.evolve(
        behind,
        records=one.records + other.records,
        bytes=None if one.bytes is None and other.bytes is None else (one.bytes or 0) + (other.bytes or 0),
        filtered=one.filtered + other.filtered,
        dropped=Counter(one.dropped) + Counter(other.dropped),
        client={**one.client, **other.client},
        sizes=(*one.sizes, *other.sizes),
    )


def _lags(current: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return how many records each partition has left to read; partitions that are not in ``latest`` are left out."""
    return {p: max(0, latest[p] - offset) for p, offset in sorted(current.items()) if p in latest}


def _convert_to_seconds(text: Any) -> float:
    """Convert Spark's timestamp to seconds since 1970, also one beyond the year 9999; 0 for None or an empty one."""
    if not text:
        return _BEFORE_ALL
    long_year = _LONG_YEAR.fullmatch(str(text))
    if long_year is None:
        return datetime.fromisoformat(str(text)).timestamp()
    return parse_timestamp(f"+{long_year[1]}", "ISO-8601", zoned=True) / 1e6


def sort_by_time(documents: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return progress reports (Spark's JSON) sorted by batch and time, oldest first."""
    return sorted(documents, key=lambda d: (d["batchId"], d["timestamp"]))
