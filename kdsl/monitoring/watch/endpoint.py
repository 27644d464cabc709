"""Where a job serves its metrics, and what it answers."""

from __future__ import annotations

import math
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import unquote, urlsplit

import attrs
from prometheus_client.parser import text_string_to_metric_families

from kdsl.monitoring.panels import list_metrics
from kdsl.run.metrics.model import Metric, prometheus_name

PORT = 9404
"""The port of ``serve_metrics``, unless another one is named."""
_TIMEOUT = 5.0
_LONGEST = 64 * 2**20
"""The longest answer in bytes: a query with 10,000 partitions has 4 MB."""
_UNUSED = frozenset({"highWatermarkLag"})
METRICS: Mapping[str, Metric] = {
    prometheus_name(m.name, m.kind): m for m in list_metrics().values() if m.name not in _UNUSED
}
"""The metrics that are shown, by their names in Prometheus."""


class EndpointError(Exception):
    """An endpoint does not answer with metrics; the message says why, without its URL."""


@attrs.frozen
class Endpoint:
    """Where a job serves its metrics.

    Attributes:
        url: Its URL as it is shown: without user and password, and without a query string, which may contain a token.
        secure: Whether it is asked with TLS.
        host: The host.
        port: The port.
        target: What is asked for: path and query string.
        login: The header for a user and password; empty without them.
    """

    url: str
    secure: bool = attrs.field(repr=False)
    host: str = attrs.field(repr=False)
    port: int = attrs.field(repr=False)
    target: str = attrs.field(repr=False)
    login: str = attrs.field(repr=False)


def parse_endpoint(text: str) -> Endpoint:
    """Parse ``9404``, ``host``, ``host:9404`` or a URL; the path is ``/metrics``, unless there is another one.

    A ValueError says what is wrong.
    """
    whole = "://" in text
    parts = urlsplit(text if whole else f"http://127.0.0.1:{text}" if text.isdecimal() else f"http://{text}")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("its port is not a number from 0 to 65535") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it is neither a port, nor HOST:PORT, nor a URL that begins with http:// or https://")
    secure = parts.scheme == "https"
    port = port or ((443 if secure else 80) if whole else PORT)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path if parts.path.strip("/") else "/metrics"
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return Endpoint(
        url=f"{parts.scheme}://{host}:{port}{path}",
        secure=secure,
        host=parts.hostname,
        port=port,
        target=f"{path}?{parts.query}" if parts.query else path,
        login="" if login == ":" else f"Basic {b64encode(login.encode()).decode()}",
    )


Labels = tuple[str, ...]
Key = tuple[str, str, Labels]
"""A table (empty for the query itself), a metric's name, and the values of the metric's labels."""


def ask(endpoint: Endpoint) -> dict[str, dict[Key, float]]:
    """Ask an endpoint for its metrics, directly and without a proxy; an EndpointError says why it cannot be asked.

    Returns:
        The finite values of each query. What is not a metric of queries, sources or sinks is left out.
    """
    try:
        text = _fetch(endpoint).decode()
        queries: dict[str, dict[Key, float]] = {}
        for query, key, value in _read_samples(text):
            queries.setdefault(query, {})[key] = value
    except OSError as e:
        raise EndpointError(str(e.strerror or e) if not isinstance(e, TimeoutError) else "it takes too long") from e
    except (HTTPException, ValueError) as e:
        raise EndpointError(f"it does not answer with metrics for Prometheus: {type(e).__name__}") from e
    return queries


def _fetch(endpoint: Endpoint) -> bytes:
    """The body of the answer, which must be complete within twice the timeout."""
    kind = HTTPSConnection if endpoint.secure else HTTPConnection
    connection = kind(endpoint.host, endpoint.port, timeout=_TIMEOUT)
    until = time.monotonic() + 2 * _TIMEOUT
    try:
        connection.request("GET", endpoint.target, headers={"Authorization": endpoint.login} if endpoint.login else {})
        answer = connection.getresponse()
        if answer.status != 200:
            raise EndpointError(f"it answers with HTTP {answer.status} {answer.reason}".rstrip())
        body = bytearray()
        while chunk := answer.read1(2**16):
            body += chunk
            if len(body) > _LONGEST or time.monotonic() > until:
                raise EndpointError("its answer does not end")
        return bytes(body)
    finally:
        connection.close()


def _read_samples(text: str) -> Iterator[tuple[str, Key, float]]:
    """Yield query, key and value of each sample; other lines are not parsed, which saves most of the time."""
    lines = [line for line in text.split("\n") if line.partition("{")[0] in METRICS]
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            metric, labels = METRICS.get(sample.name), sample.labels
            if metric is not None and "query" in labels and math.isfinite(sample.value):
                own = tuple(labels.get(name, "") for name in metric.labels)
                yield labels["query"], (labels.get("table", ""), metric.name, own), sample.value
