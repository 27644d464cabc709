"""Serves the metrics of all queries of this process in Prometheus' text format."""

from __future__ import annotations

import threading
from ipaddress import ip_address
from types import TracebackType
from typing import Self
from wsgiref.simple_server import WSGIServer

from kdsl.extras import explain_missing_package


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
        """Stop the server, and wait for its thread; nothing happens if it was stopped before."""
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
    """Serve the metrics of all queries of this process in Prometheus' text format, in a thread, until closed.

    The labels are the query (its name or id), the table and, if they apply, topic and partition or client id. A query
    that has ended stays for an hour as such.

    Args:
        port: The port; 0 chooses a free one.
        host: The address to listen on; the default is reachable only from this machine. There is no login: whoever can
            reach the address can see the names of topics. The messages of failed queries, which may contain values of
            rows, are served on loopback addresses only.

    Raises:
        OSError: The port is taken, or the address is not this machine's.
        MissingPackageError: The package prometheus_client is not installed.
    """
    with explain_missing_package("kdsl.serve_metrics"):
        from prometheus_client import CollectorRegistry, start_http_server

        from kdsl.run.metrics.collector import Queries

    registry = CollectorRegistry()
    server, thread = start_http_server(port, addr=host, registry=registry)
    metrics = MetricsServer(server, thread)
    registry.register(Queries(with_errors=ip_address(metrics.host).is_loopback))
    return metrics
