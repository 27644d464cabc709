"""Folds the progress reports of one query into its metrics.

Pure but for the clock, which may be given: reports come as Spark's JSON has them, from the listener and from
``recentProgress``, and each counts once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from threading import Lock
from typing import Any, Protocol

import attrs
import orjson

from kdsl.offsets import TopicPartition
from kdsl.run.metrics.carried import OBSERVED, Read, read_of, read_reports
from kdsl.run.metrics.model import QueryMetrics, SinkMetrics, SourceMetrics
from kdsl.run.metrics.written import Batch, Spool

_FORGET = 600.0
"""After so many seconds without a word a client is taken to be gone."""
_BEFORE_ALL = 0.0

Clock = Callable[[], float]


class Counts(Protocol):
    """What became of the commits of a read (`kdsl.run.queries.commits.CommitCounts`)."""

    succeeded: int
    failed: int
    committed: Mapping[TopicPartition, int]


Commits = Callable[[str], Counts]


@attrs.frozen
class Named:
    """A read that a query's source is: its id, and its table's name."""

    read: str
    table: str


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
    last: Read = attrs.field(factory=Read)
    current: dict[TopicPartition, int] = attrs.field(factory=dict)
    latest: dict[TopicPartition, int] | None = None
    high: dict[TopicPartition, int] | None = None
    lost: int = 0
    busy: float | None = None
    clients: _Clients = attrs.field(factory=_Clients)


@attrs.define
class _Sink:
    table: str
    spool: Spool | None
    before: Batch = attrs.field(factory=Batch)
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
        self._batch: int | None = None
        self._seen: set[tuple[int, str]] = set()
        self._sources: dict[str, _Source] = {}
        self._watermark: float | None = None
        self._before: float | None = None

    def writes(self, table: str, spool: Spool | None, run: str) -> None:
        """Tell what the query writes, and where its commits leave their numbers."""
        with self._lock:
            self._begin(run)
            self._sink = _Sink(table, spool)

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
        """Take a progress report in; one that was taken before changes nothing.

        Args:
            document: The report, as Spark's JSON has it.
            names: Which of its sources are which reads, where the source does not tell.
        """
        with self._lock:
            key = (int(document["batchId"]), str(document["timestamp"]))
            self._tables.update(names or {})
            self._begin(str(document["runId"]))
            if key in self._seen or document["runId"] != self.run:
                return
            self._seen.add(key)
            self.name = document.get("name") or self.name
            if self._batch is not None and key[0] < self._batch:
                return  # Spark's own buffer gave the newer ones first
            self._batch = key[0]
            started = _seconds(document["timestamp"])
            took = document.get("durationMs", {}).get("triggerExecution", 0) / 1000
            seconds = max(took, started - self._before if self._before is not None else 0.0, 0.001)
            self._before = started
            mark = _seconds(document.get("eventTime", {}).get("watermark"))
            self._watermark = mark if mark > _BEFORE_ALL else None
            self._take_sources(document, seconds, started + took)
            self._take_written(document, seconds)

    def _begin(self, run: str) -> None:
        if run == self.run or run in self._past:
            return
        again = bool(self.run)
        self._past.add(self.run)
        self._reset(run)
        if again and self._sink is not None:
            self._sink = _Sink(self._sink.table, None)

    def _source(self, named: Named) -> _Source:
        return self._sources.setdefault(named.read, _Source(named))

    def _take_sources(self, document: Mapping[str, Any], seconds: float, ended: float) -> None:
        counted: dict[str, Read] = {}
        for name, row in (document.get("observedMetrics") or {}).items():
            read = read_of(name)
            reports = ((row or {}).get(OBSERVED) or {}).get("reports")
            if read is not None and reports is not None:
                one = read_reports(reports)
                counted[read] = _both(counted[read], one) if read in counted else one
        rows: dict[str, int] = {}
        for at, told in enumerate(document.get("sources") or ()):
            end = _document(told.get("endOffset"))
            named = self._named(at, end)
            if named is None or end is None:
                continue
            source = self._source(named)
            first = named.read not in rows
            rows[named.read] = rows.get(named.read, 0) + (told.get("numInputRows") or 0)
            self._take_offsets(source, end, _document(told.get("latestOffset")), first=first)
        for read, given in rows.items():
            source, found = self._sources[read], counted.get(read)
            records = given if found is None else found.records
            source.records += records
            source.rate = records / seconds
            if found is not None:
                source.bytes = (source.bytes or 0) + found.bytes
                source.byte_rate = found.bytes / seconds
                source.filtered += found.filtered
                source.clients.take(found.client, ended)
                if found.event is not None:
                    source.last = found
            if records:
                source.busy = ended

    def _named(self, at: int, end: Mapping[str, Any] | None) -> Named | None:
        if end is not None and isinstance(end.get("read"), str) and end["read"]:
            read = end["read"]
            return Named(read, read.rpartition("-")[0] or read)
        return self._tables.get(at)

    @staticmethod
    def _take_offsets(
        source: _Source, end: Mapping[str, Any], latest: Mapping[str, Any] | None, *, first: bool
    ) -> None:
        current = positions_of(end)
        if not first:  # the same table twice in a query: the place of the slower one
            current = {place: min(at, source.current.get(place, at)) for place, at in current.items()}
        source.current = current
        source.latest = None if latest is None else positions_of(latest)
        source.high = {**(source.latest or {}), **_flat(latest.get("high", {}))} if latest is not None else None
        if "version" in end:
            source.lost = sum(_flat(end.get("lost", {})).values())

    def _take_written(self, document: Mapping[str, Any] | None, seconds: float = 0.0) -> None:
        sink = self._sink
        if sink is None:
            return
        if sink.spool is not None and (sink.spool.read() or sink.spool.told):
            now = sink.spool.total
            if document is not None:
                sink.rate = (now.records - sink.before.records) / seconds
                sink.byte_rate = (now.bytes - sink.before.bytes) / seconds
                sink.before = now
            sink.records, sink.bytes, sink.lost = now.records, now.bytes, now.lost
            sink.send_time = now.send_time
            sink.clients.take(now.client, self._clock())
        elif document is not None:
            told = (document.get("sink") or {}).get("numOutputRows")
            if told is not None and told >= 0:  # Spark says -1 where it does not know
                sink.records += told
                sink.rate = told / seconds

    def snapshot(self) -> QueryMetrics:
        """The metrics as they are now."""
        with self._lock:
            now = self._clock()
            self._take_written(None)
            sources = tuple(self._shown(source, now) for source in self._sources.values())
            sinks = () if self._sink is None else (self._shown_sink(self._sink, now),)
            return QueryMetrics(self.query, self.run, self.name, self._batch, sources, sinks)

    def _shown(self, source: _Source, now: float) -> SourceMetrics:
        commits = self._commits(source.named.read) if self._commits else None
        lags = None if source.latest is None else _lags(source.current, source.latest)
        pending = None if lags is None else sum(lags.values())
        high_lags = lags if source.high is None else _lags(source.current, source.high)
        each = source.bytes / source.records if source.bytes is not None and source.records else None
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
            records_lost=source.lost,
            current_offsets=dict(source.current),
            committed_offsets={} if commits is None else dict(commits.committed),
            partition_lags=lags or {},
            high_watermark_lags=high_lags or {},
            client=source.clients.now(now),
        )

    @staticmethod
    def _shown_sink(sink: _Sink, now: float) -> SinkMetrics:
        return SinkMetrics(
            table=sink.table,
            num_records_out=sink.records,
            num_records_out_per_second=sink.rate,
            num_bytes_out=sink.bytes,
            num_bytes_out_per_second=sink.byte_rate,
            current_send_time=sink.send_time,
            records_lost=sink.lost,
            client=sink.clients.now(now),
        )


def _both(one: Read, other: Read) -> Read:
    """What two reads of the same table in one query read together."""
    behind = min((r for r in (one, other) if r.event is not None), key=lambda r: r.event or 0, default=one)
    return attrs.evolve(
        behind,
        records=one.records + other.records,
        bytes=one.bytes + other.bytes,
        filtered=one.filtered + other.filtered,
        client={**one.client, **other.client},
    )


def _document(offset: Any) -> dict[str, Any] | None:
    if isinstance(offset, str):
        try:
            offset = orjson.loads(offset)
        except orjson.JSONDecodeError:
            return None
    return offset if isinstance(offset, dict) else None


def positions_of(document: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The positions in offsets of either transport."""
    if "version" in document:
        return _flat({name: topic["offsets"] for name, topic in document["topics"].items()})
    return _flat({name: parts for name, parts in document.items() if isinstance(parts, dict)})


def _flat(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {(topic, int(partition)): value for topic, parts in nested.items() for partition, value in parts.items()}


def _lags(current: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {place: max(0, latest[place] - at) for place, at in sorted(current.items()) if place in latest}


def _seconds(text: Any) -> float:
    return datetime.fromisoformat(str(text)).timestamp() if text else _BEFORE_ALL


def in_order(documents: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Progress reports, oldest first."""
    return sorted(documents, key=lambda d: (d["batchId"], d["timestamp"]))
