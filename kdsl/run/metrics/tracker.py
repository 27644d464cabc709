"""Folds the progress reports of one query into its metrics.

Pure but for the clock, which may be given: reports come as Spark's JSON has them, from the listener and from
``recentProgress``, and each counts once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from threading import Lock
from typing import Any, Protocol

import attrs

from kdsl.offsets import TopicPartition
from kdsl.run.cluster.lease import lost_lease
from kdsl.run.cluster.offsets import LOST_LEASE, by_partition, offset_document, positions_of
from kdsl.run.metrics.model import QueryMetrics, SinkMetrics, SourceMetrics
from kdsl.run.metrics.sink_reports import SinkCounts, Spool
from kdsl.run.metrics.source_reports import OBSERVED, SourceCounts, read_of, read_reports
from kdsl.run.metrics.state_reports import OBSERVED as STATE, BucketSize, read_sizes

_FORGET = 600.0
"""After so many seconds without a word a client is taken to be gone."""
_BEFORE_ALL = 0.0
_REMEMBERED = 1_000  # Spark's own buffer holds a hundred
_Key = tuple[int, str]
_NONE: _Key = (-1, "")

Clock = Callable[[], float]


class Counts(Protocol):
    """What became of the commits of a read (`kdsl.run.queries.commits.CommitCounts`)."""

    succeeded: int
    failed: int
    committed: Mapping[TopicPartition, int]


Commits = Callable[[str], Counts]


@attrs.frozen
class Named:
    """A read that a query's source is.

    Attributes:
        read: Its id.
        table: Its table's name.
        lease: The lease that this process holds for it; empty where it holds none.
    """

    read: str
    table: str
    lease: str = ""


@attrs.define
class _Clients:
    told: dict[str, tuple[float, Mapping[str, float]]] = attrs.field(factory=dict)

    def take(self, found: Mapping[str, Mapping[str, float]], at: float) -> None:
        self.told.update((id_, (at, metrics)) for id_, metrics in found.items())

    def now(self, at: float) -> dict[str, Mapping[str, float]]:
        return {id_: metrics for id_, (then, metrics) in sorted(self.told.items()) if at - then < _FORGET}


@attrs.define
class _Source:
    named: Named
    records: int = 0
    bytes: int | None = None
    filtered: int = 0
    rate: float = 0.0
    byte_rate: float | None = None
    last: SourceCounts = attrs.field(factory=SourceCounts)
    current: dict[TopicPartition, int] = attrs.field(factory=dict)
    latest: dict[TopicPartition, int] | None = None
    high: dict[TopicPartition, int] | None = None
    lost: int = 0
    lost_lease: str | None = None
    busy: float | None = None
    kept: dict[tuple[str, int], tuple[_Key, BucketSize]] = attrs.field(factory=dict)
    clients: _Clients = attrs.field(factory=_Clients)

    def keep(self, observation: str, size: BucketSize, key: _Key) -> None:
        """Take what a bucket keeps, unless it is known of a later batch."""
        place = (observation, size.bucket)
        if place not in self.kept or self.kept[place][0] <= key:
            self.kept[place] = (key, size)


@attrs.define
class _Sink:
    table: str
    spool: Spool | None
    lease: str = ""
    before: SinkCounts = attrs.field(factory=SinkCounts)
    records: int = 0
    bytes: int | None = None
    lost: int = 0
    rate: float = 0.0
    byte_rate: float | None = None
    send_time: float | None = None
    clients: _Clients = attrs.field(factory=_Clients)


class Tracker:
    """The metrics of one query.

    Args:
        query: Its id.
        commits: Gives what became of the commits of a read; None where nobody commits.
        clock: Gives the time, in seconds since 1970.
    """

    def __init__(self, query: str, commits: Commits | None = None, clock: Clock = time.time) -> None:
        self.query = query
        self._commits = commits
        self._clock = clock
        self._lock = Lock()
        self._sink: _Sink | None = None
        self._tables: dict[int, Named] = {}
        self._past: set[str] = set()
        self._reset("")

    def _reset(self, run: str) -> None:
        self.run = run
        self.name: str | None = None
        self.ended = False
        self._started = self._clock()
        self._last = self._forgotten = _NONE
        self._taken: dict[_Key, set[int]] = {}  # of each report, the sources that were counted
        self._sources: dict[str, _Source] = {}
        self._watermark: float | None = None
        self._before: float | None = None
        self._seconds = 0.001

    def writes(self, table: str, spool: Spool | None, run: str, lease: str = "") -> None:
        """Tell what the query writes, where its commits leave their numbers, and which lease is held for it."""
        with self._lock:
            self._begin(run)
            self._sink = _Sink(table, spool, lease)

    def begin(self, run: str, name: str | None = None) -> None:
        """A run begins."""
        with self._lock:
            self._begin(run)
            self.name = name or self.name

    def idle(self) -> None:
        """The query waits for data."""
        with self._lock:
            for one in self._sources.values():
                one.rate, one.byte_rate = 0.0, None if one.byte_rate is None else 0.0
            if self._sink is not None:
                sink = self._sink
                sink.rate, sink.byte_rate = 0.0, None if sink.byte_rate is None else 0.0

    def end(self, run: str) -> None:
        """A run ends; its numbers stay until the next one."""
        with self._lock:
            if run == self.run:
                self.ended = True
                self._take_written(None)

    def progressed(self, document: Mapping[str, Any], names: Mapping[int, Named] | None = None) -> None:
        """Take a progress report in. One that comes again adds only the sources whose names were not known before.

        Args:
            document: The report, as Spark's JSON has it.
            names: Which of its sources are which reads, where the source does not tell.
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
                self._forget()
            started = _seconds(document["timestamp"])
            took = document.get("durationMs", {}).get("triggerExecution", 0) / 1000
            if first and key > self._last:
                self._last = key
                self._seconds = max(took, started - self._before if self._before is not None else 0.0, 0.001)
                self._before = started
                mark = _seconds(document.get("eventTime", {}).get("watermark"))
                self._watermark = mark if mark > _BEFORE_ALL else None
            # A report may come late, for Spark's own buffer is ahead of its listeners: it counts, and shows nothing.
            newest = key == self._last
            self._take_sources(document, taken, started + took, newest=newest)
            if first:
                self._take_written(document, newest=newest)

    def _forget(self) -> None:
        while len(self._taken) > _REMEMBERED:
            oldest = min(self._taken)
            del self._taken[oldest]
            self._forgotten = max(self._forgotten, oldest)

    def _begin(self, run: str) -> None:
        if run == self.run or run in self._past:
            return
        again = bool(self.run)
        self._past.add(self.run)
        self._reset(run)
        if again and self._sink is not None:
            self._sink = _Sink(self._sink.table, None, self._sink.lease)

    def _source(self, named: Named) -> _Source:
        return self._sources.setdefault(named.read, _Source(named))

    def _take_sources(self, document: Mapping[str, Any], taken: set[int], ended: float, *, newest: bool) -> None:
        rows: dict[str, int] = {}
        for at, told in enumerate(document.get("sources") or ()):
            end = offset_document(told.get("endOffset"))
            named = self._named(at, end)
            if named is None or end is None or at in taken:
                continue
            taken.add(at)
            source = self._source(named)
            first = named.read not in rows
            rows[named.read] = rows.get(named.read, 0) + (told.get("numInputRows") or 0)
            if newest:
                self._take_offsets(source, end, offset_document(told.get("latestOffset")), first=first)
        counted = _observed(document) if rows else {}
        for read, given in rows.items():
            self._count(self._sources[read], given, counted.get(read), ended, newest=newest)
        key = (int(document["batchId"]), str(document["timestamp"]))
        for read, observation, size in _sizes(document) if rows else ():
            if read in rows:
                self._sources[read].keep(observation, size, key)

    def _count(self, source: _Source, rows: int, found: SourceCounts | None, ended: float, *, newest: bool) -> None:
        records = rows if found is None else found.records
        source.records += records
        if found is not None:
            source.bytes = (source.bytes or 0) + found.bytes
            source.filtered += found.filtered
            source.clients.take(found.client, ended)
        if newest:
            source.rate = records / self._seconds
            if found is not None:
                source.byte_rate = found.bytes / self._seconds
                if found.event is not None:
                    source.last = found
        if records:
            source.busy = max(source.busy or ended, ended)

    def _named(self, at: int, end: Mapping[str, Any] | None) -> Named | None:
        if end is not None and isinstance(end.get("read"), str) and end["read"]:
            read = end["read"]
            return Named(read, read.rpartition("-")[0] or read)
        return self._tables.get(at)

    @staticmethod
    def _take_offsets(
        source: _Source, end: Mapping[str, Any], latest: Mapping[str, Any] | None, *, first: bool
    ) -> None:
        current = positions_of(end) or {}
        if not first:  # the same table twice in a query: the place of the slower one
            current = {place: min(at, source.current.get(place, at)) for place, at in current.items()}
        source.current = current
        source.latest = None if latest is None else positions_of(latest)
        source.lost_lease = None if latest is None else latest.get(LOST_LEASE)
        source.high = {**(source.latest or {}), **by_partition(latest.get("high", {}))} if latest is not None else None
        if "version" in end:
            source.lost = sum(by_partition(end.get("lost", {})).values())

    def _take_written(self, document: Mapping[str, Any] | None, *, newest: bool = False) -> None:
        sink = self._sink
        if sink is None:
            return
        if sink.spool is not None and (sink.spool.read() or sink.spool.told):
            now = sink.spool.total
            if newest:
                sink.rate = (now.records - sink.before.records) / self._seconds
                sink.byte_rate = (now.bytes - sink.before.bytes) / self._seconds
                sink.before = now
            sink.records, sink.bytes, sink.lost = now.records, now.bytes, now.lost
            sink.send_time = now.send_time
            sink.clients.take(now.client, self._clock())
        elif document is not None:
            told = (document.get("sink") or {}).get("numOutputRows")
            if told is not None and told >= 0:  # Spark says -1 where it does not know
                sink.records += told
                if newest:
                    sink.rate = told / self._seconds

    def snapshot(self) -> QueryMetrics:
        """The metrics as they are now."""
        with self._lock:
            now = self._clock()
            self._take_written(None)
            sources = tuple(self._shown(source, now) for source in self._sources.values())
            sinks = () if self._sink is None else (self._shown_sink(self._sink, now),)
            batch = None if self._last == _NONE else self._last[0]
            return QueryMetrics(self.query, self.run, self.name, batch, sources, sinks)

    def _shown(self, source: _Source, now: float) -> SourceMetrics:
        commits = self._commits(source.named.read) if self._commits else None
        lags = None if source.latest is None else _lags(source.current, source.latest)
        pending = None if lags is None else sum(lags.values())
        high_lags = lags if source.high is None else _lags(source.current, source.high)
        each = source.bytes / source.records if source.bytes is not None and source.records else None
        lost_to = source.lost_lease or lost_lease(source.named.lease)
        age = None if source.last.event is None else max(0.0, now - source.last.event / 1000)
        return SourceMetrics(
            table=source.named.table,
            read=source.named.read,
            num_records_in=source.records,
            num_records_in_per_second=source.rate,
            num_bytes_in=source.bytes,
            num_bytes_in_per_second=source.byte_rate,
            num_records_filtered=source.filtered,
            pending_records=pending,
            pending_bytes=0 if pending == 0 else None if each is None or pending is None else round(each * pending),
            pending_seconds=0.0 if pending == 0 else None if pending is None else age,
            uncommitted_records=None
            if high_lags is None or pending is None
            else max(0, sum(high_lags.values()) - pending),
            current_fetch_event_time_lag=source.last.fetch_lag,
            current_emit_event_time_lag=source.last.emit_lag,
            watermark_lag=None if self._watermark is None else max(0.0, now - self._watermark) * 1000,
            source_idle_time=max(0.0, now - (self._started if source.busy is None else source.busy)) * 1000,
            commits_succeeded=0 if commits is None else commits.succeeded,
            commits_failed=0 if commits is None else commits.failed,
            num_keys_in_state=sum(size.keys for _, size in source.kept.values()) if source.kept else None,
            state_bytes=sum(size.bytes for _, size in source.kept.values()) if source.kept else None,
            records_lost=source.lost,
            current_offsets=dict(source.current),
            committed_offsets={} if commits is None else dict(commits.committed),
            partition_lags=lags or {},
            high_watermark_lags=high_lags or {},
            leases_lost=int(lost_to is not None),
            lost_lease=lost_to,
            client=source.clients.now(now),
        )

    @staticmethod
    def _shown_sink(sink: _Sink, now: float) -> SinkMetrics:
        lost_to = lost_lease(sink.lease)
        return SinkMetrics(
            table=sink.table,
            num_records_out=sink.records,
            num_records_out_per_second=sink.rate,
            num_bytes_out=sink.bytes,
            num_bytes_out_per_second=sink.byte_rate,
            current_send_time=sink.send_time,
            records_lost=sink.lost,
            leases_lost=int(lost_to is not None),
            lost_lease=lost_to,
            client=sink.clients.now(now),
        )


def _observed(document: Mapping[str, Any]) -> dict[str, SourceCounts]:
    """What the tasks of a batch have told, by read."""
    counted: dict[str, SourceCounts] = {}
    for name, row in (document.get("observedMetrics") or {}).items():
        read = read_of(name)
        reports = ((row or {}).get(OBSERVED) or {}).get("reports")
        if read is not None and reports is not None:
            one = read_reports(reports)
            counted[read] = _both(counted[read], one) if read in counted else one
    return counted


def _sizes(document: Mapping[str, Any]) -> Iterator[tuple[str, str, BucketSize]]:
    """What the buckets keep that a batch has touched, each with its read and its observation."""
    for name, row in (document.get("observedMetrics") or {}).items():
        read = read_of(name)
        told = ((row or {}).get(STATE) or {}).get("buckets")
        if read is not None and told is not None:
            yield from ((read, name, size) for size in read_sizes(told))


def _both(one: SourceCounts, other: SourceCounts) -> SourceCounts:
    """What two reads of the same table in one query read together."""
    behind = min((r for r in (one, other) if r.event is not None), key=lambda r: r.event or 0, default=one)
    return attrs.evolve(
        behind,
        records=one.records + other.records,
        bytes=one.bytes + other.bytes,
        filtered=one.filtered + other.filtered,
        client={**one.client, **other.client},
    )


def _lags(current: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {place: max(0, latest[place] - at) for place, at in sorted(current.items()) if place in latest}


def _seconds(text: Any) -> float:
    return datetime.fromisoformat(str(text)).timestamp() if text else _BEFORE_ALL


def in_order(documents: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Progress reports, oldest first."""
    return sorted(documents, key=lambda d: (d["batchId"], d["timestamp"]))
