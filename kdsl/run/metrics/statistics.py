"""Converts librdkafka's statistics of a client to metrics with the names of Java's clients.

Only numbers are passed on, so settings cannot leak.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import orjson

INTERVAL = 10_000
"""How often librdkafka emits statistics, in milliseconds; emitting and reading them takes about a millisecond."""


@attrs.frozen
class _Raw:
    """A metric of a client: what it means, and the function that computes it from librdkafka's statistics."""

    doc: str
    value: Callable[[Mapping[str, Any]], float]


def _brokers(of: str) -> Callable[[Mapping[str, Any]], float]:
    """Return a function for the sum of a number over all brokers."""
    return lambda stats: float(sum(broker.get(of, 0) for broker in stats.get("brokers", {}).values()))


def _average(window: str, to_ms: float = 1000.0) -> Callable[[Mapping[str, Any]], float]:
    """Return a function for the mean of a window of times over all brokers, in milliseconds, weighted by count.

    It is 0 without times. ``to_ms`` is by what the times are divided to get milliseconds; those of librdkafka are
    microseconds, or already milliseconds.
    """

    def mean(stats: Mapping[str, Any]) -> float:
        windows = [broker.get(window, {}) for broker in stats.get("brokers", {}).values()]
        count = sum(w.get("cnt", 0) for w in windows)
        return float(sum(w.get("sum", 0) for w in windows) / count / to_ms) if count else 0.0

    return mean


def _maximum(window: str, to_ms: float = 1000.0) -> Callable[[Mapping[str, Any]], float]:
    """Return a function for the maximum of a window of times over all brokers, in milliseconds; 0 without times.

    Args:
        window: The name of the window.
        to_ms: How many units of its times are one millisecond.
    """
    return lambda stats: max((float(b.get(window, {}).get("max", 0)) for b in _all_brokers(stats)), default=0.0) / to_ms


def _all_brokers(stats: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the statistics of each broker; empty if there are none."""
    return list(stats.get("brokers", {}).values())


def _requests(kind: str) -> Callable[[Mapping[str, Any]], float]:
    """Return a function for the number of requests of a kind."""
    return lambda stats: float(sum(broker.get("req", {}).get(kind, 0) for broker in _all_brokers(stats)))


def _ratio(part: Callable[[Mapping[str, Any]], float], of: Callable[[Mapping[str, Any]], float]) -> Any:
    """Return a function for the ratio of two numbers; 0 if the divisor is 0."""
    return lambda stats: part(stats) / count if (count := of(stats)) else 0.0


def _topics(window: str) -> Callable[[Mapping[str, Any]], float]:
    """Return a function for the mean of a window over all topics, weighted by count; 0 without values."""

    def mean(stats: Mapping[str, Any]) -> float:
        windows = [topic.get(window, {}) for topic in stats.get("topics", {}).values()]
        count = sum(w.get("cnt", 0) for w in windows)
        return float(sum(w.get("sum", 0) for w in windows) / count) if count else 0.0

    return mean


def _metadata_age(stats: Mapping[str, Any]) -> float:
    """Return the age of the oldest topic metadata, in seconds; 0 without topics."""
    return max((topic.get("metadata_age", 0) for topic in stats.get("topics", {}).values()), default=0) / 1000


def _count_fetching(stats: Mapping[str, Any]) -> float:
    """Return how many partitions are being fetched."""
    partitions = [p for topic in stats.get("topics", {}).values() for p in topic.get("partitions", {}).values()]
    return float(sum(p.get("fetch_state") == "active" for p in partitions))


def _count_connections(stats: Mapping[str, Any]) -> float:
    """Return to how many brokers the client is connected."""
    return float(sum(broker.get("state") == "UP" for broker in _all_brokers(stats)))


def _value(name: str) -> Callable[[Mapping[str, Any]], float]:
    """Return a function for a number of the client."""
    return lambda stats: float(stats.get(name, 0))


_COMMON = {
    "connection-count": _Raw("Brokers to which the client is connected.", _count_connections),
    "connection-creation-total": _Raw("Connection attempts.", _brokers("connects")),
    "connection-close-total": _Raw("Closed connections.", _brokers("disconnects")),
    "request-total": _Raw("Requests that were sent.", _value("tx")),
    "request-size-avg": _Raw("Mean bytes of a request.", _ratio(_value("tx_bytes"), _value("tx"))),
    "response-total": _Raw("Responses that were received.", _value("rx")),
    "requests-in-flight": _Raw("Requests without a response yet.", _brokers("waitresp_cnt")),
    "request-timeouts-total": _Raw("Requests that timed out.", _brokers("req_timeouts")),
    "outgoing-byte-total": _Raw("Bytes that were sent to brokers.", _value("tx_bytes")),
    "incoming-byte-total": _Raw("Bytes that were received from brokers.", _value("rx_bytes")),
    "request-latency-avg": _Raw("Mean time from a request to its response, in milliseconds.", _average("rtt")),
    "request-latency-max": _Raw("Longest time from a request to its response, in milliseconds.", _maximum("rtt")),
    "metadata-age": _Raw("Age of the oldest topic metadata, in seconds.", _metadata_age),
}
CONSUMER = {
    "records-consumed-total": _Raw(
        "Records that the client received, including those that it fetched beyond the end of a task.", _value("rxmsgs")
    ),
    "bytes-consumed-total": _Raw("Their bytes.", _value("rxmsg_bytes")),
    "fetch-queue-records": _Raw("Prefetched records that wait in the client.", _value("replyq")),
    "fetch-total": _Raw("Requests for records.", _requests("Fetch")),
    "fetch-size-avg": _Raw(
        "Mean bytes of records per fetch request.", _ratio(_value("rxmsg_bytes"), _requests("Fetch"))
    ),
    "records-per-request-avg": _Raw(
        "Mean number of records per response.", _ratio(_value("rxmsgs"), _requests("Fetch"))
    ),
    "fetch-throttle-time-avg": _Raw("Mean throttle time, in milliseconds.", _average("throttle", 1)),
    "fetch-throttle-time-max": _Raw("Longest of these times, in milliseconds.", _maximum("throttle", 1)),
    "assigned-partitions": _Raw("Partitions that are being fetched.", _count_fetching),
    **_COMMON,
}
PRODUCER = {
    "record-send-total": _Raw("Records that were sent.", _value("txmsgs")),
    "byte-total": _Raw("Their bytes.", _value("txmsg_bytes")),
    "record-retry-total": _Raw("Requests that were sent again.", _brokers("txretries")),
    "record-error-total": _Raw("Requests that failed.", _brokers("txerrs")),
    "buffer-queued-records": _Raw("Records that are queued or in flight.", _value("msg_cnt")),
    "buffer-queued-bytes": _Raw("Their bytes.", _value("msg_size")),
    "buffer-total-bytes": _Raw("Bytes that the queue may hold.", _value("msg_size_max")),
    "buffer-available-bytes": _Raw(
        "Bytes that the queue can still hold.", lambda stats: _value("msg_size_max")(stats) - _value("msg_size")(stats)
    ),
    "record-queue-time-avg": _Raw("Mean time of a record in the queue, in milliseconds.", _average("int_latency")),
    "record-queue-time-max": _Raw("Longest of these times, in milliseconds.", _maximum("int_latency")),
    "record-size-avg": _Raw("Mean bytes of a record.", _ratio(_value("txmsg_bytes"), _value("txmsgs"))),
    "batch-size-avg": _Raw("Mean bytes of a batch of records for a partition.", _topics("batchsize")),
    "records-per-request-avg": _Raw("Mean number of records of such a batch.", _topics("batchcnt")),
    "produce-throttle-time-avg": _Raw("Mean throttle time, in milliseconds.", _average("throttle", 1)),
    "produce-throttle-time-max": _Raw("Longest of these times, in milliseconds.", _maximum("throttle", 1)),
    **_COMMON,
}


def client_metrics(text: str | bytes) -> dict[str, float]:
    """Return all metrics of one client (`CONSUMER` or `PRODUCER`) from librdkafka's statistics, a JSON document.

    Numbers that the document does not have count as 0.
    """
    stats = orjson.loads(text)
    table = PRODUCER if stats.get("type") == "producer" else CONSUMER
    return {name: round(float(raw.value(stats)), 3) for name, raw in table.items()}


def client_id(prefix: str, purpose: str) -> str:
    """Return a client id that other processes do not have: the prefix, the purpose, the machine and the process.

    Args:
        prefix: ``client.id.prefix``, or a prefix made of kdsl and the table's name.
        purpose: Distinguishes the clients of one process.
    """
    import os
    import socket

    return f"{prefix}-{purpose}-{socket.gethostname()}-{os.getpid()}"
