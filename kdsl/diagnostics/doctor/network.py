"""Checks the network below Kafka: host names, ports and protocols."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any

from kdsl.client_settings.bootstrap import Address
from kdsl.diagnostics.doctor.findings import Finding, error, ok, warning
from kdsl.run.reachability.port import TIMEOUT, Spoken, connect, detect_protocol, speaks_tls


def check_reachable(address: Address) -> Finding:
    """Check that a host name can be resolved and that the port accepts connections."""
    check = f"network {address}"
    try:
        addresses = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as e:
        message = f"the name {address.host!r} cannot be resolved on this machine: {e.strerror or e}"
        return error(check, message, "correct the name, or make it known to this machine's DNS (or /etc/hosts)")
    begun = time.monotonic()
    try:
        connect(address).close()
    except TimeoutError:
        message = f"{_ips(addresses)} does not answer within {TIMEOUT:g} s"
        return error(check, message, "check firewalls, security groups and routes between this machine and the broker")
    except OSError as e:
        message = f"{_ips(addresses)} refuses the connection: {e.strerror or e}"
        return error(check, message, "check that a broker runs there and listens on this port and interface")
    return ok(check, f"{_ips(addresses)} accepts connections ({(time.monotonic() - begun) * 1000:.0f} ms)")


def check_protocol(address: Address, *, tls: bool) -> Finding | None:
    """Check that the port uses the protocol that the settings expect; None if that cannot be determined.

    It cannot if the settings expect no TLS, and the port does not answer or no longer accepts connections.

    Args:
        address: A port that accepted connections.
        tls: Whether the settings expect TLS (security.protocol SSL or SASL_SSL).
    """
    check = f"protocol {address}"
    try:
        spoken: Spoken = ("tls" if speaks_tls(address) else "silence") if tls else detect_protocol(address)
    except OSError:
        return None
    if spoken == ("tls" if tls else "kafka"):
        return ok(check, "TLS" if tls else "Kafka's protocol, without TLS")
    if spoken == "tls":
        return error(
            check,
            "the port uses TLS, but security.protocol is one without TLS",
            "set security.protocol to SSL (or SASL_SSL, with a login), or use the port of a listener without TLS",
        )
    if tls:
        return error(
            check,
            "the port does not use TLS, but security.protocol requires it",
            "set security.protocol to PLAINTEXT (or SASL_PLAINTEXT, with a login), or use the port of a TLS listener",
        )
    if spoken == "something else":
        return error(check, "the port uses neither Kafka's protocol nor TLS", "use the port of a broker's listener")
    return None  # a SASL listener may close the connection without an answer


def check_advertised(brokers: dict[int, Address], known: set[Address]) -> Iterator[Finding]:
    """Check that the addresses that the brokers advertise to clients can be reached from here; a finding for each.

    A client uses the bootstrap servers only at the start, and then the addresses that the brokers advertise. A loopback
    address is an error unless a bootstrap server has one, too. No brokers at all are a warning.

    Args:
        brokers: The advertised address of each broker, by its id.
        known: The bootstrap servers that can be reached; these addresses are not checked again.
    """
    local_start = any(_is_loopback(address.host) for address in known)
    for node, address in sorted(brokers.items()):
        check = f"advertised listener of broker {node}"
        if address in known:
            yield ok(check, f"{address}, one of the bootstrap servers")
            continue
        finding = check_reachable(address)
        if finding.state == "ok" and _is_loopback(address.host) and not local_start:
            message = f"the broker tells clients to connect to {address}, which every client resolves to itself"
        elif finding.state == "ok":
            yield ok(check, f"{address}: {finding.message}")
            continue
        else:
            message = f"the broker tells clients to connect to {address}, but {finding.message}"
        fix = "set advertised.listeners of the broker to an address that clients can reach (also from the executors)"
        yield error(check, message, fix)
    if not brokers:
        yield warning("brokers", "the cluster lists no brokers", "check that the brokers run")


def _is_loopback(host: str) -> bool:
    """Whether a host is a loopback address, ``localhost`` or a name that ends in it; other names are not resolved."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _ips(addresses: Iterable[tuple[Any, ...]]) -> str:
    """Join the different addresses in a result of ``getaddrinfo`` by commas, for messages."""
    return ", ".join(dict.fromkeys(str(entry[4][0]) for entry in addresses))
