"""The network below Kafka: names, ports, and which language the other side speaks."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from typing import Literal

import attrs

from kdsl.inspect.doctor.findings import Finding, error, ok, warning

PATIENCE = 3.0
"""How long a connection, or an answer to it, may take, in seconds."""

Spoken = Literal["kafka", "tls", "silence", "something else"]

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)  # the request ApiVersions, version 0, without a client id
_TLS = (0x15, 0x16)  # a record of TLS is an alert, or a handshake
_LARGEST_ANSWER = 1 << 20


@attrs.frozen
class Address:
    """A host and a port as a cluster's settings, or its brokers, name them."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressError(ValueError):
    """A text is no ``host:port``."""


def parse_address(text: str) -> Address:
    """Read ``host:port``, which may have a protocol before it (``SASL_SSL://host:port``).

    Raises:
        AddressError: The text has another form.
    """
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise AddressError(f"{text!r} is not of the form host:port")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def reachable(address: Address) -> Finding:
    """Whether a name means an address and its port accepts connections."""
    check = f"network {address}"
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as e:
        message = f"the name {address.host!r} cannot be resolved on this machine: {e.strerror or e}"
        return error(check, message, "correct the name, or make it known to this machine's DNS (or /etc/hosts)")
    begun = time.monotonic()
    try:
        socket.create_connection((address.host, address.port), timeout=PATIENCE).close()
    except TimeoutError:
        message = f"{_ips(found)} does not answer within {PATIENCE:g} s"
        return error(check, message, "something (a firewall, a security group, a missing route) keeps packets away")
    except OSError as e:
        message = f"{_ips(found)} refuses the connection: {e.strerror or e}"
        return error(check, message, "see that a broker runs there and listens on this port and interface")
    return ok(check, f"{_ips(found)} accepts connections ({(time.monotonic() - begun) * 1000:.0f} ms)")


def language(address: Address, *, tls: bool) -> Finding | None:
    """Whether the other side speaks what the settings expect; None where it cannot be said.

    Args:
        address: The other side, which accepts connections.
        tls: Whether the settings expect TLS (security.protocol SSL or SASL_SSL).
    """
    check = f"protocol {address}"
    spoken: Spoken = ("tls" if speaks_tls(address) else "silence") if tls else answer_of(address)
    if spoken == ("tls" if tls else "kafka"):
        return ok(check, "TLS" if tls else "Kafka's protocol, without TLS")
    if spoken == "tls":
        return error(
            check,
            "the port speaks TLS, and security.protocol says that it does not",
            "set security.protocol to SSL (or SASL_SSL, with a login), or use the port of a listener without TLS",
        )
    if tls:
        return error(
            check,
            "the port does not answer to TLS, and security.protocol asks for it",
            "set security.protocol to PLAINTEXT (or SASL_PLAINTEXT, with a login), or use the port of a TLS listener",
        )
    if spoken == "something else":
        return error(check, "the port speaks neither Kafka's protocol nor TLS", "use the port of a broker's listener")
    return None  # a SASL listener may close the connection without a word


def speaks_tls(address: Address) -> bool:
    """Whether the other side answers a client's hello in TLS, whatever its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((address.host, address.port), timeout=PATIENCE) as connection:
            context.wrap_socket(connection, server_hostname=address.host).close()
    except ssl.SSLError as e:
        return "ALERT" in (e.reason or "")
    except OSError:
        return False
    return True


def answer_of(address: Address) -> Spoken:
    """What the other side says to a request in Kafka's protocol that comes without TLS."""
    with socket.create_connection((address.host, address.port), timeout=PATIENCE) as connection:
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


def advertised(brokers: dict[int, Address], known: set[Address]) -> Iterator[Finding]:
    """Whether the addresses that the brokers give to clients can be reached from here.

    A client only begins with the bootstrap servers; then it talks to the addresses that the brokers tell it.

    Args:
        brokers: The advertised address of each broker, by its id.
        known: The bootstrap servers, which were found to be reachable.
    """
    local_start = any(_is_loopback(address.host) for address in known)
    for node, address in sorted(brokers.items()):
        check = f"advertised listener of broker {node}"
        if address in known:
            yield ok(check, f"{address}, one of the bootstrap servers")
            continue
        found = reachable(address)
        if found.state == "ok" and _is_loopback(address.host) and not local_start:
            message = f"the broker tells clients to connect to {address}, which is each client's own machine"
        elif found.state == "ok":
            yield ok(check, f"{address}: {found.message}")
            continue
        else:
            message = f"the broker tells clients to connect to {address}, and {found.message}"
        fix = "set advertised.listeners of the broker to an address that clients can reach (also from the executors)"
        yield error(check, message, fix)
    if not brokers:
        yield warning("brokers", "the cluster names no broker", "see that the brokers are up")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _ips(found: list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]] | object) -> str:
    assert isinstance(found, list)
    return ", ".join(dict.fromkeys(str(entry[4][0]) for entry in found))
