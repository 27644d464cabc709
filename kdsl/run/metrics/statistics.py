"""What librdkafka tells of a client, under the names that Java's clients use.

Only numbers pass, so that nothing of the settings can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import orjson

INTERVAL = 10_000
"""How often librdkafka makes its statistics, in milliseconds; making and reading them takes about a millisecond."""


@attrs.frozen
class _Raw:
    doc: str
    value: Callable[[Mapping[str, Any]], float]


def _brokers(of: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda told: float(sum(broker.get(of, 0) for broker in told.get("brokers", {}).values()))


def _average(window: str, to_ms: float = 1000.0) -> Callable[[Mapping[str, Any]], float]:
    """The mean over brokers of a window of times, in milliseconds, weighted by how many there were."""

    def mean(told: Mapping[str, Any]) -> float:
        windows = [broker.get(window, {}) for broker in told.get("brokers", {}).values()]
        count = sum(w.get("cnt", 0) for w in windows)
        return float(sum(w.get("sum", 0) for w in windows) / count / to_ms) if count else 0.0

    return mean


def _connected(told: Mapping[str, Any]) -> float:
    return float(sum(broker.get("state") == "UP" for broker in told.get("brokers", {}).values()))


def _own(name: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda told: float(told.get(name, 0))


_COMMON = {
    "connection-count": _Raw("Brokers that the client is connected to.", _connected),
    "connection-creation-total": _Raw("Connections that were made or tried.", _brokers("connects")),
    "request-total": _Raw("Requests that were sent.", _own("tx")),
    "response-total": _Raw("Answers that came.", _own("rx")),
    "outgoing-byte-total": _Raw("Bytes that were sent to brokers.", _own("tx_bytes")),
    "incoming-byte-total": _Raw("Bytes that came from brokers.", _own("rx_bytes")),
    "request-latency-avg": _Raw("Mean time from a request to its answer, in milliseconds.", _average("rtt")),
}
CONSUMER = {
    "records-consumed-total": _Raw(
        "Records that the client received; those that it fetched beyond the end of a task among them.", _own("rxmsgs")
    ),
    "bytes-consumed-total": _Raw("Their bytes.", _own("rxmsg_bytes")),
    "fetch-queue-records": _Raw("Records that were fetched ahead and wait in the client.", _own("replyq")),
    **_COMMON,
}
PRODUCER = {
    "record-send-total": _Raw("Records that were sent.", _own("txmsgs")),
    "byte-total": _Raw("Their bytes.", _own("txmsg_bytes")),
    "record-retry-total": _Raw("Requests that were sent again.", _brokers("txretries")),
    "record-error-total": _Raw("Requests that failed.", _brokers("txerrs")),
    "buffer-queued-records": _Raw("Records in the queue, or on their way.", _own("msg_cnt")),
    "buffer-queued-bytes": _Raw("Their bytes.", _own("msg_size")),
    "record-queue-time-avg": _Raw("Mean time of a record in the queue, in milliseconds.", _average("int_latency")),
    **_COMMON,
}


def client_metrics(text: str | bytes) -> dict[str, float]:
    """The metrics of one client.

    Args:
        text: librdkafka's statistics document.
    """
    told = orjson.loads(text)
    table = PRODUCER if told.get("type") == "producer" else CONSUMER
    return {name: round(float(raw.value(told)), 3) for name, raw in table.items()}


def client_id(prefix: str, purpose: str) -> str:
    """The id of a client that no other has: the prefix, what it is for, the machine and the process.

    Args:
        prefix: ``client.id.prefix``, or kdsl and the table's name.
        purpose: What tells clients of one process apart.
    """
    import os
    import socket

    return f"{prefix}-{purpose}-{socket.gethostname()}-{os.getpid()}"
