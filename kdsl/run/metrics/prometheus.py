"""Serves the metrics of all queries of this process in Prometheus' text format."""

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
    """Return the name of a metric in Prometheus: the counter ``numRecordsIn`` is ``kdsl_num_records_in_total``."""
    snake = f"kdsl_{_WORD.sub('_', name).lower()}"
    return snake if kind is Kind.GAUGE or snake.endswith("_total") else f"{snake}_total"


class Queries(Collector):
    """Collects the metrics of all running queries for Prometheus."""

    def collect(self) -> Iterable[Family]:
        """Collect the present metrics; each value has the names of its query and table as labels."""
        families: dict[str, Family] = {}
        for query in all_metrics():
            for source in query.sources:
                self._add(families, query, source)
            for sink in query.sinks:
                self._add(families, query, sink)
        return families.values()

    def _add(self, families: dict[str, Family], query: QueryMetrics, one: SourceMetrics | SinkMetrics) -> None:
        """Add the metrics of a source or sink and of its clients to ``families``; those that are None are left out."""
        labels = {"query": query.name or query.query, "table": one.table}
        for metric in metrics_of(type(one)):
            value = getattr(one, metric.field)
            if isinstance(value, Mapping):
                for key, number in value.items():
                    own = zip(metric.labels, key if isinstance(key, tuple) else (key,), strict=True)
                    self._put(families, metric, {**labels, **{name: str(text) for name, text in own}}, number)
            elif value is not None:
                self._put(families, metric, labels, value)
        side = "consumer" if isinstance(one, SourceMetrics) else "producer"
        for id_, statistics in one.client.items():
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


class MetricsServer:
    """A server of the metrics, until it is closed; also a context manager.

    Attributes:
        host: The address on which it listens.
        port: The port.
    """

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server, self._thread = server, thread
        self.host, self.port = str(server.server_address[0]), int(server.server_address[1])

    @property
    def url(self) -> str:
        """The URL for Prometheus."""
        return f"http://{self.host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop the server, and wait for its thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        """Return the server itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server."""
        self.close()


def serve_metrics(port: int = 9404, host: str = "127.0.0.1") -> MetricsServer:
    """Serve the metrics of all running queries of this process in Prometheus' text format, in a thread, until closed.

    The labels are the query (its name or id), the table and, if they apply, topic and partition or client id.

    Args:
        port: The port; 0 chooses a free one.
        host: The address to listen on; the default is reachable only from this machine. There is no login: whoever can
            reach the address can see the names of topics.

    Raises:
        OSError: The port is taken, or the address is not this machine's.
    """
    registry = CollectorRegistry()
    registry.register(Queries())
    server, thread = start_http_server(port, addr=host, registry=registry)
    return MetricsServer(server, thread)
