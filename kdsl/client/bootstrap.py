"""The text of ``bootstrap.servers``: entries of host and port, as Java's clients read them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

from kdsl.errors import Problem
from kdsl.secrets import has_reference

_ENTRY = re.compile(r"(?:[\w\-%.]*://)?(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[\w\-%.:]+)):(?P<port>\d+)")
_WANTED = "write entries of host:port with commas between them, as 'kafka1:9092,kafka2:9092'"


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
    found = _ENTRY.fullmatch(text.strip())
    if found is None or not 0 < int(found["port"]) < 65536:
        raise AddressError(f"{text!r} is not of the form host:port")
    return Address(found["six"] or found["host"], int(found["port"]))


def servers(text: str) -> str:
    """The entries in the form that both transports take: without blanks, empty entries and protocols."""
    return ",".join(_plain(entry) for entry in _entries(text))


def server_problems(text: str) -> Iterator[Problem]:
    """What is wrong with the entries, each by itself."""
    entries = _entries(text)
    if not entries:
        yield Problem("bootstrap-servers", "'bootstrap.servers' names no broker", _WANTED)
    for entry in entries:
        if has_reference(entry):
            continue
        found = _ENTRY.fullmatch(entry)
        if found is None:
            complaint = "is no host:port"
            if re.fullmatch(r"[\w\-%.]+", entry):
                complaint, fix = "has no port", f"write '{entry}:9092' (or the port that the broker listens on)"
            else:
                fix = _WANTED
            yield Problem("bootstrap-servers", f"the entry {entry!r} of 'bootstrap.servers' {complaint}", fix)
        elif not 0 < int(found["port"]) < 65536:
            message = f"the entry {entry!r} of 'bootstrap.servers' has a port outside of 1 to 65535"
            yield Problem("bootstrap-servers", message, "write the port that the broker listens on")


def _entries(text: str) -> list[str]:
    return [entry for part in text.split(",") if (entry := part.strip())]


def _plain(entry: str) -> str:
    found = _ENTRY.fullmatch(entry)
    return entry if found is None else str(Address(found["six"] or found["host"], int(found["port"])))
