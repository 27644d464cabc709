"""The network below Kafka: names, ports, and which language the other side speaks."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterator

from kdsl.client.bootstrap import Address
from kdsl.inspect.doctor.findings import Finding, error, ok, warning
from kdsl.run.cluster.port import PATIENCE, Spoken, connected, speaks_tls, spoken_at


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
        connected(address).close()
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
    spoken: Spoken = ("tls" if speaks_tls(address) else "silence") if tls else spoken_at(address)
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
