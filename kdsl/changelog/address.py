"""JDBC addresses: the part that may be shown, and the parts that may be secrets.

Each vendor writes logins in another position (``//user:password@host``, ``thin:user/password@host``,
``host/PASSWORD=…``, ``host;password={…}``), and there will be others. Therefore this module does not list what to hide
and show the rest: of an address, only the driver and the host are shown, and the host only if it cannot be part of a
login.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kdsl.secrets import is_reference, references, resolve
from kdsl.secrets.hiding import is_secret

_DRIVER = re.compile(r"jdbc:[A-Za-z][\w+.-]*")
_HOST = r"(?P<host>(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]*)(?::[0-9]{1,5})?)(?=[/?;:,]|$)"
_AFTER_LOGIN = re.compile(rf"(?:(?:[A-Za-z]+:)?//)?{_HOST}")
_WITHOUT_LOGIN = re.compile(rf":(?:[\w+-]+:)*//{_HOST}")
_PATH = re.compile(r"(?:,[\w.:\[\]-]+)*/[^?;&,#:=\s]*")
"""What names the database after a host: more hosts, and a path."""
_LOGIN = re.compile(r"jdbc:(?:[\w+.-]+:)+(?://)?[^:/@]*[:/](?P<password>.+)@", re.DOTALL)
_PARAMETER = re.compile(r"(?P<name>[\w.-]+)\s*=\s*")
_SHORT_NAME = re.compile(r"pass|pwd|secret|token", re.IGNORECASE)
_ENDS = (r"[;&,)\s]", r"[;&,)]", r"[;&]", r";", r"\Z")


def hide_login(url: str) -> str:
    """Cut a JDBC address to the part that may be shown: ``jdbc:postgresql://host:5432``, or only the driver, or "jdbc".

    Args:
        url: The address; references to secrets may be resolved or not.
    """
    return _split_address(url)[0]


def name_database(url: str) -> str:
    """Cut a JDBC address to what names the database: ``jdbc:postgresql://host:5432/shop``.

    Where the host cannot be shown, it is the result of `hide_login`.

    Args:
        url: The address; references to secrets may be resolved or not.
    """
    shown, rest = _split_address(url)
    path = _PATH.match(rest)
    return f"{shown}{path[0]}" if path else shown


def _split_address(url: str) -> tuple[str, str]:
    """Split a JDBC address into what may be shown, and what follows the host; that is empty without a host."""
    driver = _DRIVER.match(url)
    if driver is None:
        return "jdbc", ""
    before, at, after = url[driver.end() :].rpartition("@")
    if not at:
        match = _WITHOUT_LOGIN.match(after)
    else:
        # An '@' after a parameter may be a character of a password; the end of the password would look like a host.
        match = None if re.search(r"[=?;&,]", before) else _AFTER_LOGIN.match(after)
    return (f"{driver[0]}://{match['host']}", after[match.end() :]) if match else (driver[0], "")


def secrets_in_address(url: str) -> set[str]:
    """Collect every part of a JDBC address that may be a secret, in each way that it may be delimited.

    Args:
        url: The address, with its references to secrets or with their values.
    """
    return {secret for candidates in _candidates(url) for secret in candidates if secret}


def resolve_references(string: str) -> set[str]:
    """Resolve the references in a string, and return their secrets; empty without references."""
    return {resolve(str(reference)) for reference in references(string)}


def has_literal_secret(url: str) -> bool:
    """Whether a JDBC address may contain a secret in plain text, rather than a reference to one."""
    shortest = (min(filter(None, candidates), key=len, default="") for candidates in _candidates(url))
    return any(secret and not is_reference(secret) for secret in shortest)


def _candidates(url: str) -> Iterator[list[str]]:
    """Yield, for each part of an address that may be a secret, the strings that the secret may be, by where it ends.

    They are not decoded, and may be empty.
    """
    if login := _LOGIN.match(url):
        start = login.start("password")
        yield [url[start : at.start()] for at in re.finditer("@", url) if at.start() > start]
    for parameter in _PARAMETER.finditer(url):
        name = parameter["name"]
        if is_secret(name) or _SHORT_NAME.search(name):
            rest = url[parameter.end() :]
            braced = re.match(r"\{((?:[^}]|\}\})*)\}|\"([^\"]*)\"|'([^']*)'", rest)
            quoted = [] if braced is None else [next(filter(None, braced.groups()), "")]
            yield [*(re.split(end, rest, maxsplit=1)[0] for end in _ENDS), *quoted]
