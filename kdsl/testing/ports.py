"""Finds free ports of the loopback interface."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from kdsl.testing.errors import LocalKafkaError

HOST = "127.0.0.1"
"""The loopback address, the only one that local services listen on."""

# Below the ports of outgoing connections, so that the port of a killed broker stays free until it starts again.
_RANGE = range(16000, 32000)


def free_port(taken: Collection[int] = ()) -> int:
    """Choose a random port from 16000 to 31999 that could be opened a moment ago.

    Args:
        taken: Ports that are already assigned.

    Raises:
        LocalKafkaError: None of 200 such ports is free.
    """
    for port in random.sample(_RANGE, 200):
        if port not in taken and is_free(port):
            return port
    raise LocalKafkaError(
        f"No free port between {_RANGE.start} and {_RANGE.stop} on {HOST}; end processes that listen there, or pass "
        "port="
    )


def is_free(port: int) -> bool:
    """Whether a server can open this port now; it is tried."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java's servers do
        try:
            server.bind((HOST, port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Whether a server accepts connections on this port; one is opened."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
