"""Conditions that end the outage of a broker: a client has noticed it, however long that takes."""

from __future__ import annotations

import socket
import time
from pathlib import Path

_PATIENCE = 120.0


def wait_for_connection(address: str) -> None:
    """Take the place of a broker that was killed until a client connects, which then finds nobody there.

    Args:
        address: Host and port of the broker.
    """
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as server:
        server.settimeout(_PATIENCE)
        server.accept()[0].close()


def wait_for_request(address: str) -> None:
    """Wait until a request, or a connection, is waiting for a broker that was paused.

    Args:
        address: Host and port of the broker.
    """
    port, until = int(address.rpartition(":")[2]), time.monotonic() + _PATIENCE
    while not _has_unread(port):
        assert time.monotonic() < until, f"no client has asked {address}"
        time.sleep(0.05)


def _has_unread(port: int) -> bool:
    """Whether the kernel holds bytes, or connections, that the process at a port of this machine has not taken."""
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]:
            _, local, _, _, queues, *_ = line.split()
            if int(local.rpartition(":")[2], 16) == port and int(queues.partition(":")[2], 16):
                return True
    return False
