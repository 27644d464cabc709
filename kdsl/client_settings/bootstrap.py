"""``bootstrap.servers``: entries of host and port, as Java's clients parse them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

from kdsl.errors import Problem
from kdsl.secrets import HIDDEN, has_reference

_ENTRY = re.compile(r"(?:[\w\-%.]*://)?(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[\w\-%.:]+)):(?P<port>\d+)")
_NAME = "bootstrap.servers"
_FIX = "write host:port, several separated by commas, as 'kafka1:9092,kafka2:9092'"


@attrs.frozen
class Address:
    """A host and a port, from the settings of a cluster or from its brokers."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressError(ValueError):
    """A string is not of the form ``host:port``."""


def parse_address(text: str) -> Address:
    """Parse ``host:port`` or ``[IPv6]:port``, optionally with a protocol in front (``SASL_SSL://host:port``)."""
    entry = _ENTRY.fullmatch(text.strip())
    if entry is None or not 0 < int(entry["port"]) < 65536:
        raise AddressError(f"{show_servers(text)!r} is not of the form host:port")
    return Address(entry["six"] or entry["host"], int(entry["port"]))


def show_servers(text: str) -> str:
    """Return entries for a message: hidden if they contain ``@``, as of a login, which does not belong here."""
    return HIDDEN if "@" in text else text


def normalize_servers(text: str) -> str:
    """Write the entries in the form that both transports accept: without blanks, empty entries and protocols.

    An entry of another form than ``host:port`` stays as it is.
    """
    return ",".join(_normalize_entry(entry) for entry in _entries(text))


def check_servers(text: str) -> Iterator[Problem]:
    """Yield a problem for a list without entries, and for each entry that is not ``host:port`` or has no such port.

    Entries with references are skipped. If an entry contains ``@``, as of a login, only that is reported.
    """
    entries = _entries(text)
    if not entries:
        yield Problem("bootstrap-servers", "'bootstrap.servers' contains no broker", _FIX, property=_NAME)
    if any("@" in entry and not has_reference(entry) for entry in entries):
        yield Problem(  # quotes nothing: a password may contain commas
            "bootstrap-servers",
            "'bootstrap.servers' contains '@', as of a login before a host; Kafka's clients take no login there",
            f"{_FIX}, and the login in 'sasl.mechanism' and 'sasl.jaas.config'",
            property=_NAME,
        )
        return
    for entry in entries:
        if has_reference(entry):
            continue
        parts = _ENTRY.fullmatch(entry)
        if parts is None:
            complaint = "is not of the form host:port"
            if re.fullmatch(r"[\w\-%.]+", entry):
                complaint, fix = "has no port", f"write '{entry}:9092' (or the port that the broker listens on)"
            else:
                fix = _FIX
            yield Problem(
                "bootstrap-servers", f"the entry {entry!r} of 'bootstrap.servers' {complaint}", fix, property=_NAME
            )
        elif not 0 < int(parts["port"]) < 65536:
            message = f"the entry {entry!r} of 'bootstrap.servers' has a port outside 1 to 65535"
            yield Problem("bootstrap-servers", message, "write the port that the broker listens on", property=_NAME)


def _entries(text: str) -> list[str]:
    """The entries of a list of servers without blanks around them; empty ones are left out."""
    return [entry for part in text.split(",") if (entry := part.strip())]


def _normalize_entry(entry: str) -> str:
    """Write an entry as ``host:port``; another form stays as it is."""
    parts = _ENTRY.fullmatch(entry)
    return entry if parts is None else str(Address(parts["six"] or parts["host"], int(parts["port"])))
