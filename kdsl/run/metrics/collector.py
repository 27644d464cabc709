"""Collects the metrics of all queries of this process for Prometheus' client, which this module imports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from kdsl.run.metrics.model import (
    Kind,
    Metric,
    QueryMetrics,
    SinkMetrics,
    SourceMetrics,
    metrics_of,
    prometheus_name,
)
from kdsl.run.metrics.observer import all_metrics

_LONGEST = 500
"""The longest message of an error in a label, in characters."""


class Queries(Collector):
    """Collects the metrics of all queries for Prometheus.

    Args:
        with_errors: Whether the messages of failed queries are included.
    """

    def __init__(self, *, with_errors: bool) -> None:
        self._with_errors = with_errors

    def collect(self) -> Iterable[Family]:
        """Collect the present metrics (`all_metrics`); each value has the names of its query and table as labels.

        Of a query that has ended, only that is collected, unless one with its name runs.
        """
        families: dict[str, Family] = {}
        queries = all_metrics()
        ended = {query.name or query.query: query for query in queries if not query.running}
        for query in queries:
            if not query.running:
                continue
            labels = {"query": query.name or query.query}
            ended.pop(labels["query"], None)
            self._add(families, labels, query)
            for source in query.sources:
                self._add(families, {**labels, "table": source.table}, source)
                self._add_clients(families, {**labels, "table": source.table}, "consumer", source.client)
            for sink in query.sinks:
                self._add(families, {**labels, "table": sink.table}, sink)
                self._add_clients(families, {**labels, "table": sink.table}, "producer", sink.client)
        for name, query in ended.items():
            errors = {self._describe(error): 1 for error in query.failed}
            self._add(families, {"query": name}, QueryMetrics(query.query, query.run, running=0, failed=errors))
        return families.values()

    def _describe(self, error: str) -> str:
        """The first line of a message, which may be long; a message may contain values of rows."""
        first = error.partition("\n")[0]
        if not self._with_errors:
            return "its message is in the log of the process"
        return first if len(first) <= _LONGEST else f"{first[:_LONGEST]} …"

    def _add(
        self,
        families: dict[str, Family],
        labels: Mapping[str, str],
        snapshot: QueryMetrics | SourceMetrics | SinkMetrics,
    ) -> None:
        """Add the metrics of a query, a source or a sink to ``families``; those that are None are left out."""
        for metric in metrics_of(type(snapshot)):
            value = getattr(snapshot, metric.field)
            if isinstance(value, Mapping):
                for key, number in value.items():
                    own = zip(metric.labels, key if isinstance(key, tuple) else (key,), strict=True)
                    self._put(families, metric, {**labels, **{name: str(text) for name, text in own}}, number)
            elif value is not None:
                self._put(families, metric, labels, value)

    def _add_clients(
        self,
        families: dict[str, Family],
        labels: Mapping[str, str],
        side: str,
        clients: Mapping[str, Mapping[str, float]],
    ) -> None:
        """Add the metrics of librdkafka's consumers or producers to ``families``."""
        for id_, statistics in clients.items():
            for name, number in statistics.items():
                raw = Metric(f"{side}-{name}", Kind.GAUGE, "", f"{name} of librdkafka's {side}.")
                self._put(families, raw, {**labels, "client_id": id_}, number)

    @staticmethod
    def _put(families: dict[str, Family], metric: Metric, labels: Mapping[str, str], value: float) -> None:
        """Add a value to the metric's family in ``families``, which is created at its first value."""
        name = prometheus_name(metric.name, metric.kind)
        family = families.get(name)
        if family is None:
            kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = families[name] = kind(name, metric.doc, labels=list(labels))
        family.add_metric(list(labels.values()), float(value))  # type: ignore[attr-defined]
