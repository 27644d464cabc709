"""Examines a broker's port without Kafka's client: its protocol, its certificate, whether it requires a login.

librdkafka reports most of this only as a failure. `kdsl.run.reachability.login` uses it to explain why a cluster
refuses a login, and ``kdsl doctor`` uses it for each bootstrap server.
"""

from __future__ import annotations

import socket
import ssl
import struct
from enum import Enum
from typing import Literal

from kdsl.client_settings.bootstrap import Address
from kdsl.client_settings.tls_context import create_trusting_context

TIMEOUT = 3.0
"""How many seconds a connection, or an answer, may take."""

Spoken = Literal["kafka", "tls", "silence", "something else"]

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)  # the request ApiVersions, version 0, without a client id
_SASL_HANDSHAKE, _NO_SASL_HERE = 17, 34
_TLS = (0x15, 0x16)  # a record of TLS is an alert, or a handshake
_LARGEST_ANSWER = 1 << 20


class Fault(Enum):
    """What is wrong with a certificate, by OpenSSL's error codes."""

    EXPIRED = (10,)
    NOT_YET = (9,)
    OTHER_NAME = (62, 64)
    UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
    OTHER = ()


def fault_of(error: ssl.SSLCertVerificationError) -> Fault:
    """Classify what is wrong with a certificate that was refused."""
    return next((fault for fault in Fault if error.verify_code in fault.value), Fault.OTHER)


def connect(address: Address, seconds: float | None = None) -> socket.socket:
    """Open a connection to a port.

    Args:
        address: The port.
        seconds: How long it may take, and how long each answer may take; `TIMEOUT` if None.
    """
    timeout = TIMEOUT if seconds is None else seconds
    return socket.create_connection((address.host, address.port), timeout=timeout)


def detect_protocol(address: Address) -> Spoken:
    """Send a request of Kafka's protocol without TLS to a port, and return which protocol the answer belongs to.

    It is ``kafka``, ``tls`` or ``something else``; ``silence`` means no answer, also because the connection fails after
    it was opened.
    """
    with connect(address) as connection:
        try:
            connection.sendall(_API_VERSIONS)
            head = connection.recv(8)
        except OSError:
            return "silence"
    if not head:
        return "silence"
    if head[0] in _TLS and head[1:2] == b"\x03":
        return "tls"
    if len(head) >= 4 and 4 < struct.unpack(">i", head[:4])[0] < _LARGEST_ANSWER:
        return "kafka"
    return "something else"


def speaks_tls(address: Address) -> bool:
    """Whether a port answers a TLS handshake, be it with an alert or any certificate; False if it cannot be reached."""
    try:
        with connect(address) as connection:
            create_trusting_context().wrap_socket(connection, server_hostname=address.host).close()
    except ssl.SSLError as e:
        return "ALERT" in (e.reason or "")
    except OSError:
        return False
    return True


def asks_for_login(connection: socket.socket) -> bool | None:
    """Begin a SASL handshake, and return whether the listener requires a login; None if it closes the connection.

    Args:
        connection: A connection to it, in TLS where it speaks that.
    """
    name = b"?"
    request = struct.pack(">hhihh", _SASL_HANDSHAKE, 1, 1, -1, len(name)) + name
    connection.sendall(struct.pack(">i", len(request)) + request)
    answer = b""
    while len(answer) < 10:
        part = connection.recv(64)
        if not part:
            return None
        answer += part
    (code,) = struct.unpack_from(">h", answer, 8)
    return bool(code != _NO_SASL_HERE)
