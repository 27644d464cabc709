"""Asks endpoints for their metrics again and again, and describes what they have answered for the page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isnan
from threading import Event, Lock, Thread
from typing import Any, Literal

import attrs

from kdsl.monitoring.panels import list_metrics
from kdsl.monitoring.watch.endpoint import Endpoint, EndpointError, Key, ask
from kdsl.monitoring.watch.history import History
from kdsl.monitoring.watch.troubles import find_troubles
from kdsl.run.metrics.model import Kind

PLOTS: Mapping[str, str] = {
    "pendingRecords": "Lag in records",
    "pendingSeconds": "Lag in time",
    "pendingBytes": "Lag in bytes",
    "numRecordsInPerSecond": "Records read",
    "numBytesInPerSecond": "Bytes read",
    "numKeysInState": "Keys in state",
    "stateBytes": "Bytes in state",
    "numRecordsOutPerSecond": "Records written",
    "numBytesOutPerSecond": "Bytes written",
    "batchDuration": "Batch took",
    "numRowsInState": "Rows in state",
    "stateMemory": "Memory of state",
}
"""The metrics that have a plot, in their order, with its title."""
COUNTS: Mapping[str, str] = {
    "recordsLost": "lost",
    "recordsOutLost": "lost",
    "numRecordsDropped": "left out",
    "numRowsDropped": "left out",
    "numRuleViolations": "against a rule",
    "numLateRecordsDropped": "late",
    "commitsFailed": "failed commits",
}
"""The metrics that are shown as totals of what should not happen, with their words; those with labels one by one."""
_HIDDEN = frozenset({"running", "failed", "uptime", *PLOTS, *COUNTS})
_PARTITION_METRICS = ("records-lag", "currentOffsets", "committedOffsets")
_PARTITION_LABELS = 2
_MOST_PARTITIONS = 20
_MOST_QUERIES = 50
"""How many queries are remembered; of those that are not there any more, the ones seen last stay."""
_POINTS = 240
"""How many points a plot has at most."""
_EARLIER = 5.0
"""By how many seconds the start of a query may seem to move without a restart."""

State = Literal["running", "ended", "failed", "gone", "silent"]


@attrs.define
class _Query:
    """A query of an endpoint.

    Attributes:
        endpoint: Its endpoint.
        name: Its name.
        present: Its values when it was last asked for; those of one that has ended say only that.
        values: The last known values.
        seen: When it was last there; 0 if never.
        started: When it was last started; 0 if that is not known.
        state: Whether it runs.
        since: Since when.
        restarts: How often it was restarted while it was watched.
        history: Its values over time.
    """

    endpoint: Endpoint
    name: str
    present: Mapping[Key, float] = attrs.field(factory=dict)
    values: Mapping[Key, float] = attrs.field(factory=dict)
    seen: float = 0.0
    started: float = 0.0
    state: State = "running"
    since: float = 0.0
    restarts: int = 0
    history: History = attrs.field(factory=History)

    def update(self, values: Mapping[Key, float], at: float) -> None:
        """Store the values of a moment; none if the query was not there."""
        before, self.present = self.state, values
        self.history.add(at, _add_sums({key: v for key, v in values.items() if len(key[2]) < _PARTITION_LABELS}))
        if not values:
            self.state = "gone" if before == "running" else before
        elif values.get(("", "running", ())) != 0:
            self.state, self.values = "running", values
            started = at - values.get(("", "uptime", ()), 0.0) / 1000
            if before in ("ended", "failed") or started > self.started + _EARLIER:
                self.restarts += bool(self.seen)
                self.started = started
        else:
            self.state = "failed" if any(name == "failed" for _, name, _ in values) else "ended"
            self.values = {**self.values, **values}
        if values:
            self.seen = at
        if self.state == "running":
            self.since = self.started
        elif self.state != before or not self.since:
            self.since = at


@attrs.define
class _Answers:
    """Whether an endpoint answers: since when, and why not; neither before it was asked first."""

    error: str | None = None
    since: float | None = None


class Watcher:
    """The queries of some endpoints, which it asks in threads of its own once it is started.

    Args:
        endpoints: The endpoints.
        every: How many seconds are between two requests to one.
        clock: Returns the time, in seconds since 1970.
    """

    def __init__(self, endpoints: Iterable[Endpoint], every: float, clock: Callable[[], float] = time.time) -> None:
        self.every = every
        self._answers = {endpoint: _Answers() for endpoint in endpoints}
        self._queries: dict[tuple[Endpoint, str], _Query] = {}
        self._clock, self._lock, self._closed = clock, Lock(), Event()
        self._threads = [Thread(target=self._work, args=(one,), daemon=True) for one in self._answers]

    def start(self) -> None:
        """Ask each endpoint from now on."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def _work(self, endpoint: Endpoint) -> None:
        while not self._closed.is_set():
            self.poll(endpoint)
            self._closed.wait(self.every)

    def poll_all(self) -> None:
        """Ask each endpoint once."""
        for endpoint in self._answers:
            self.poll(endpoint)

    def poll(self, endpoint: Endpoint) -> None:
        """Ask an endpoint once, and store what it answers, or why it does not."""
        try:
            queries, error = ask(endpoint), None
        except EndpointError as e:
            queries, error = {}, str(e)
        now = self._clock()
        with self._lock:
            answers = self._answers[endpoint]
            if answers.since is None or (answers.error is None) != (error is None):
                answers.since = now
            answers.error = error
            for name in queries:
                self._queries.setdefault((endpoint, name), _Query(endpoint, name))
            for (of, name), query in self._queries.items():
                if of == endpoint and error is None:
                    query.update(queries.get(name, {}), now)
                elif of == endpoint:
                    query.history.add(now, {})
            gone = sorted((q.seen, q.name, key) for key, q in self._queries.items() if not q.present)
            for *_, key in gone[: max(0, len(self._queries) - _MOST_QUERIES)]:
                del self._queries[key]

    def describe(self, window: float | None) -> dict[str, Any]:
        """Describe what is known as a JSON document.

        Args:
            window: How many seconds back plots go; None for all that is remembered.
        """
        now = self._clock()
        with self._lock:
            endpoints = [
                {"url": endpoint.url, "error": answers.error, "since": answers.since}
                for endpoint, answers in self._answers.items()
            ]
            queries = sorted(self._queries.values(), key=lambda query: (query.state != "running", query.name))
            described = [self._describe(query, now, window) for query in queries]
        return {"now": now, "every": self.every, "endpoints": endpoints, "queries": described}

    def _describe(self, query: _Query, now: float, window: float | None) -> dict[str, Any]:
        answers, times = self._answers[query.endpoint], query.history.times
        is_silent = answers.error is not None and query.state == "running"
        start = now - window if window is not None else times[0] if times else now
        values = _add_sums(query.values)
        plotted = [key for name in PLOTS for key in values if key[1] == name and not key[2]]
        moments, columns = query.history.series(plotted, start, max((now - start) / _POINTS, self.every))
        plots = [_describe_plot(key, values[key], column) for key, column in zip(plotted, columns, strict=True)]
        reads = {table for table, name, _ in values if name == "numRecordsIn"}
        writes = {table for table, name, _ in values if name == "numRecordsOut"}
        troubles = () if is_silent else find_troubles(query.history, query.present, now)
        return {
            "name": query.name,
            "endpoint": query.endpoint.url,
            "state": "silent" if is_silent else query.state,
            "since": answers.since if is_silent else query.since,
            "restarts": query.restarts,
            "from": start,
            "times": [round(at, 1) for at in moments],
            "troubles": [attrs.asdict(one) for one in troubles],
            "tables": [
                {
                    "name": table,
                    "role": " and ".join(word for word, of in (("reads", reads), ("writes", writes)) if table in of),
                    "plots": [plot for plot in plots if plot["table"] == table],
                    "counts": list(_describe_counts(table, query.values)),
                    "more": list(_describe_others(table, query.values)),
                    **_describe_partitions(table, query.values),
                }
                for table in (*sorted(reads), *sorted(writes - reads), "")
            ],
        }


_METRICS = list_metrics()


def _add_sums(values: Mapping[Key, float]) -> dict[Key, float]:
    """The values, and those of metrics that have a plot added up over their labels."""
    sums = dict(values)
    for (table, name, labels), value in values.items():
        if labels and name in PLOTS:
            sums[table, name, ()] = sums.get((table, name, ()), 0.0) + value
    return sums


def _describe_plot(key: Key, value: float, column: Sequence[float]) -> dict[str, Any]:
    metric = _METRICS[key[1]]
    alert = metric.alert
    return {
        "table": key[0],
        "metric": metric.name,
        "title": PLOTS[metric.name],
        "doc": metric.doc,
        "unit": metric.unit,
        "value": value,
        "limit": None if alert is None else alert.above,
        "values": [None if isnan(v) else v for v in column],
    }


def _describe_counts(table: str, values: Mapping[Key, float]) -> Iterator[dict[str, Any]]:
    """Yield the totals of what should not happen; those of labels only where they are not 0."""
    for name, words in COUNTS.items():
        for (of, metric, labels), value in values.items():
            if of == table and metric == name and (value or not labels):
                doc, unit = _METRICS[name].doc, _METRICS[name].unit
                title = f"{words}: {labels[0]}" if labels else words
                yield {
                    "metric": name,
                    "label": labels[0] if labels else "",
                    "title": title,
                    "value": value,
                    "unit": unit,
                    "doc": doc,
                }


def _describe_others(table: str, values: Mapping[Key, float]) -> Iterator[dict[str, Any]]:
    """Yield the other metrics of a table that have one value."""
    for (of, name, labels), value in values.items():
        metric = _METRICS[name]
        if of == table and name not in _HIDDEN and not labels:
            kind = "total" if metric.kind is Kind.COUNTER else ""
            yield {"metric": name, "value": value, "unit": metric.unit, "doc": metric.doc, "kind": kind}


def _describe_partitions(table: str, values: Mapping[Key, float]) -> dict[str, Any]:
    """Describe the topic partitions of a table, those with the largest lag first, and how many there are."""
    rows: dict[tuple[str, ...], dict[str, float]] = {}
    for (of, name, labels), value in values.items():
        if of == table and name in _PARTITION_METRICS:
            rows.setdefault(labels, {})[name] = value
    ordered = sorted(rows.items(), key=lambda row: (-row[1].get("records-lag", 0.0), row[0][0], int(row[0][1] or 0)))
    shown = [[*labels, *map(row.get, _PARTITION_METRICS)] for labels, row in ordered[:_MOST_PARTITIONS]]
    return {"partitions": shown, "partitionCount": len(rows)}
