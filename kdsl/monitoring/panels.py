"""Which metrics stand together on the dashboard, and how each is asked for in Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from kdsl.run.metrics.model import Kind, Metric, QueryMetrics, SinkMetrics, SourceMetrics, metrics_of, prometheus_name
from kdsl.run.metrics.statistics import CONSUMER, PRODUCER

ROWS: Final = {
    "How far behind": (
        *("pendingRecords", "pendingSeconds", "pendingBytes", "records-lag", "highWatermarkLag", "uncommittedRecords"),
        *("watermarkLag", "sourceIdleTime"),
    ),
    "Lost, left out and late": (
        *("recordsLost", "recordsOutLost", "numRecordsDropped", "numLateRecordsDropped", "numRuleViolations"),
        *("numRowsDropped", "numRecordsFiltered", "leasesLost"),
    ),
    "How much": (
        *("numRecordsIn", "numRecordsOut", "numBytesIn", "numBytesOut", "numRecordsInPerSecond"),
        *("numRecordsOutPerSecond", "numBytesInPerSecond", "numBytesOutPerSecond"),
    ),
    "How long": ("batchDuration", "currentFetchEventTimeLag", "currentEmitEventTimeLag", "currentSendTime"),
    "Offsets": ("currentOffsets", "committedOffsets", "commitsSucceeded", "commitsFailed"),
    "State": ("numKeysInState", "stateBytes", "stateRouting", "numRowsInState", "stateMemory"),
    "Queries": ("running", "failed", "uptime"),
}
"""The rows of the dashboard, and the metrics of each; tests check that every metric is in one."""
CLIENTS: Final = "Kafka's clients"
_UNITS: Final = {"bytes": "bytes", "bytes/s": "Bps", "ms": "ms", "s": "s"}
"""Grafana's units for those of metrics; others are numbers."""
_SUMS: Final = frozenset({"recordsLost", "recordsOutLost", "numRecordsDropped", "numLateRecordsDropped"})


@attrs.frozen
class Panel:
    """A plot of one metric.

    Attributes:
        row: The row of the dashboard.
        title: Its title.
        about: What it shows.
        unit: Grafana's name of its unit.
        expression: What Prometheus is asked for.
        legend: The name of each line, with labels in braces.
    """

    row: str
    title: str
    about: str
    unit: str
    expression: str
    legend: str


def list_panels() -> Iterator[Panel]:
    """The panels of all metrics of queries, sources and sinks, and of the clients, in their order."""
    declared = list_metrics()
    for row, names in ROWS.items():
        for name in names:
            yield _make_panel(row, declared[name])
    for side, statistics in (("consumer", CONSUMER), ("producer", PRODUCER)):
        for name, raw in statistics.items():
            metric = prometheus_name(f"{side}-{name}")
            expression = f'{metric}{{query=~"$query", table=~"$table"}}'
            yield Panel(CLIENTS, f"{side}: {name}", raw.doc, "short", expression, "{{client_id}}")


def list_metrics() -> Mapping[str, Metric]:
    """All metrics of queries, sources and sinks by name; one of a source and a sink has the same name in Prometheus."""
    return {metric.name: metric for kind in (QueryMetrics, SourceMetrics, SinkMetrics) for metric in metrics_of(kind)}


def _make_panel(row: str, metric: Metric) -> Panel:
    of_query = metric in tuple(metrics_of(QueryMetrics))
    labels = ["query", *([] if of_query else ["table"]), *metric.labels]
    chosen = 'query=~"$query"' if of_query else 'query=~"$query", table=~"$table"'
    series = f"{prometheus_name(metric.name, metric.kind)}{{{chosen}}}"
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    title, unit = metric.name, _UNITS.get(metric.unit, "short")
    if metric.kind is Kind.GAUGE:
        return Panel(row, title, metric.doc, unit, f"max by ({', '.join(labels)}) ({series})", legend)
    if metric.name in _SUMS:  # a single one matters, and its rate would be too small to see
        expression = f"sum by ({', '.join(labels)}) (increase({series}[$__range]))"
        return Panel(row, f"{title} in the range shown", metric.doc, unit, expression, legend)
    expression = f"sum by ({', '.join(labels)}) (rate({series}[$__rate_interval]))"
    return Panel(row, f"{title} per second", metric.doc, {"bytes": "Bps"}.get(unit, unit), expression, legend)
