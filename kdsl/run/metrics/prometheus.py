"""The metrics of all queries of this process as Prometheus text on a port."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from kdsl.run.metrics.model import Kind, Metric, QueryMetrics, SinkMetrics, SourceMetrics, metrics_of
from kdsl.run.metrics.observer import all_metrics

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|-")


def prometheus_name(name: str, kind: Kind = Kind.GAUGE) -> str:
    """The name of a metric in Prometheus: ``numRecordsIn`` is ``kdsl_num_records_in_total``."""
    made = f"kdsl_{_WORD.sub('_', name).lower()}"
    return made if kind is Kind.GAUGE or made.endswith("_total") else f"{made}_total"


class Queries(Collector):
    """Gives Prometheus the metrics of all queries that run."""

    def collect(self) -> Iterable[Family]:
        """The metrics now; of several queries and tables, each value has their names as labels."""
        families: dict[str, Family] = {}
        for query in all_metrics():
            for source in query.sources:
                self._add(families, query, source)
            for sink in query.sinks:
                self._add(families, query, sink)
        return families.values()

    def _add(self, families: dict[str, Family], query: QueryMetrics, one: SourceMetrics | SinkMetrics) -> None:
        labels = {"query": query.name or query.query, "table": one.table}
        for metric in metrics_of(type(one)):
            value = getattr(one, metric.field)
            if isinstance(value, Mapping):
                for (topic, partition), number in value.items():
                    self._put(families, metric, {**labels, "topic": topic, "partition": str(partition)}, number)
            elif value is not None:
                self._put(families, metric, labels, value)
        side = "consumer" if isinstance(one, SourceMetrics) else "producer"
        for id_, told in one.client.items():
            for name, number in told.items():
                raw = Metric(f"{side}-{name}", Kind.GAUGE, "", f"{name} of librdkafka's {side}.")
                self._put(families, raw, {**labels, "client_id": id_}, number)

    @staticmethod
    def _put(families: dict[str, Family], metric: Metric, labels: Mapping[str, str], value: float) -> None:
        name = prometheus_name(metric.name, metric.kind)
        family = families.get(name)
        if family is None:
            kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = families[name] = kind(name, metric.doc, labels=list(labels))
        family.add_metric(list(labels.values()), float(value))  # type: ignore[attr-defined]


class MetricsServer:
    """Serves the metrics until it is closed; also a context manager.

    Attributes:
        host: The address it listens on.
        port: The port.
    """

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server, self._thread = server, thread
        self.host, self.port = str(server.server_address[0]), int(server.server_address[1])

    @property
    def url(self) -> str:
        """Where Prometheus finds the metrics."""
        return f"http://{self.host}:{self.port}/metrics"

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        """The server itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.close()


def serve_metrics(port: int = 9404, host: str = "127.0.0.1") -> MetricsServer:
    """Serve the metrics of all queries of this process as Prometheus text.

    Labels are the query (its name, else its id), the table, and topic and partition or client id where they apply.

    Args:
        port: The port; 0 is a free one.
        host: The address to listen on; only this machine reaches the default. There is no login: let nobody reach it
            who shall not see names of topics.

    Raises:
        OSError: The port is taken, or the address is not this machine's.
    """
    registry = CollectorRegistry()
    registry.register(Queries())
    server, thread = start_http_server(port, addr=host, registry=registry)
    return MetricsServer(server, thread)
