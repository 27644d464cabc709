"""The header filter: conditions on headers, joined from left to right without parentheses (seed 000)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from kdsl.declare.definition import TableDef
from kdsl.errors import Problem
from kdsl.formats import Direction
from kdsl.resolve.model import HeaderCondition
from kdsl.resolve.rule import problem

FORM = "'depart:toy|depart:book&!env:test'"
_PART = re.compile(r"([&|])([^&|]*)")


class HeaderFilterError(ValueError):
    """A text is no header filter; the message names the position, counted from 1."""


def parse_header_filter(text: str) -> tuple[HeaderCondition, ...]:
    """Read a filter such as ``depart:toy|depart:book&!env:test``.

    A condition is ``name:value`` or ``!name:value``; name and value are parted at the first colon, and blanks around
    them do not count. There are no escapes, so that neither may hold ``&`` or ``|``; a name cannot begin with ``!``.

    Args:
        text: The filter.

    Raises:
        HeaderFilterError: The text has another form.
    """
    found = []
    for part in _PART.finditer(f"&{text}"):
        written = part[2].strip()
        at = part.start(2) + len(part[2]) - len(part[2].lstrip())
        negated = written.startswith("!")
        name, colon, value = written.removeprefix("!").partition(":")
        if not written:
            raise HeaderFilterError(f"at position {at} a condition is missing")
        if not colon:
            raise HeaderFilterError(f"at position {at} the condition {written!r} has no colon between name and value")
        if name.strip().startswith("!"):
            raise HeaderFilterError(f"at position {at} the condition {written!r} is negated twice")
        if not name.strip():
            raise HeaderFilterError(f"at position {at} the condition {written!r} names no header")
        if any(c in "()" for c in written):
            raise HeaderFilterError(f"at position {at} the condition {written!r} has a parenthesis, and there are none")
        joined: Literal["&", "|"] = "|" if part[1] == "|" else "&"
        found.append(HeaderCondition(name.strip(), value.strip(), negated, joined))
    return tuple(found)


def headers_of(table: TableDef) -> tuple[HeaderCondition, ...]:
    """The header filter of a table that holds."""
    text = table.options.header_filter
    return () if text is None else parse_header_filter(text)


def header_filter(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """A header filter can be read."""
    text = table.options.header_filter
    if text is None or direction != "read":
        return
    try:
        parse_header_filter(text)
    except HeaderFilterError as e:
        message = f"{table.setting('header_filter', text)} cannot be read: {e}"
        yield problem(table, "header-filter", message, f"write conditions as in {FORM}", option="header_filter")
