"""A broker's port looked at by itself, below Kafka's client: what it speaks, its certificate, who may log in.

librdkafka says of most of that only that it fails. `kdsl.run.cluster.login` tells by it why a cluster lets nobody in,
and doctor looks at each bootstrap server with it.
"""

from __future__ import annotations

import socket
import ssl
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Literal

from kdsl.client.bootstrap import Address

PATIENCE = 3.0
"""How long a connection, or an answer to it, may take, in seconds."""
CHECK_NAME = "ssl.endpoint.identification.algorithm"

Spoken = Literal["kafka", "tls", "silence", "something else"]

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)  # the request ApiVersions, version 0, without a client id
_SASL_HANDSHAKE, _NO_SASL_HERE = 17, 34
_TLS = (0x15, 0x16)  # a record of TLS is an alert, or a handshake
_LARGEST_ANSWER = 1 << 20


class Fault(Enum):
    """What is wrong with a certificate, by OpenSSL's numbers of it."""

    EXPIRED = (10,)
    NOT_YET = (9,)
    OTHER_NAME = (62, 64)
    UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
    OTHER = ()


def fault_of(error: ssl.SSLCertVerificationError) -> Fault:
    """What is wrong with the certificate that was refused."""
    return next((fault for fault in Fault if error.verify_code in fault.value), Fault.OTHER)


def connected(address: Address, seconds: float | None = None) -> socket.socket:
    """A connection to a port.

    Args:
        address: The port.
        seconds: How long it may take, and how long each answer may; `PATIENCE` if None.

    Raises:
        OSError: There is none.
    """
    patience = PATIENCE if seconds is None else seconds
    return socket.create_connection((address.host, address.port), timeout=patience)


def spoken_at(address: Address) -> Spoken:
    """What the other side says to a request in Kafka's protocol that comes without TLS.

    Raises:
        OSError: It takes no connection.
    """
    with connected(address) as connection:
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
    """Whether the other side answers a client's hello in TLS, whatever its certificate."""
    try:
        with connected(address) as connection:
            trusting().wrap_socket(connection, server_hostname=address.host).close()
    except ssl.SSLError as e:
        return "ALERT" in (e.reason or "")
    except OSError:
        return False
    return True


def trusting() -> ssl.SSLContext:
    """The side of a client that takes any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def verifying(settings: Mapping[str, str]) -> ssl.SSLContext:
    """The side of a client that trusts whom librdkafka's settings trust, and shows nothing of its own.

    Args:
        settings: librdkafka's settings.

    Raises:
        OSError: What is to be trusted cannot be read.
    """
    context = trusting()
    if settings.get("enable.ssl.certificate.verification", "true") == "false":
        return context
    context.verify_mode = ssl.CERT_REQUIRED
    context.check_hostname = settings.get(CHECK_NAME, "https") == "https"
    path, text = settings.get("ssl.ca.location", "probe"), settings.get("ssl.ca.pem")
    if path != "probe":
        context.load_verify_locations(**{"capath" if Path(path).is_dir() else "cafile": path})
    elif text:
        context.load_verify_locations(cadata=text)
    else:
        context.load_default_certs()
    return context


@contextmanager
def showing(context: ssl.SSLContext, settings: Mapping[str, str]) -> Iterator[ssl.SSLContext]:
    """A client's side that also shows the certificate of librdkafka's settings, where they have one.

    Args:
        context: The side that it is added to.
        settings: librdkafka's settings, secrets resolved.

    Raises:
        OSError: The certificate or its key cannot be read.
    """
    password = settings.get("ssl.key.password")
    if "ssl.certificate.pem" in settings:
        with tempfile.TemporaryDirectory() as folder:  # ssl reads chains from files only; mode 0700
            path = Path(folder, "chain.pem")
            path.write_text(settings["ssl.certificate.pem"] + "\n" + settings.get("ssl.key.pem", ""), encoding="utf-8")
            context.load_cert_chain(path, password=password)
    elif "ssl.certificate.location" in settings:
        context.load_cert_chain(settings["ssl.certificate.location"], settings.get("ssl.key.location"), password)
    yield context


def asks_for_login(connection: socket.socket) -> bool | None:
    """Whether a listener asks for a login; None where it does not say.

    It is asked for a mechanism that nobody has: a listener with logins names its own, another says that it has none.

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
