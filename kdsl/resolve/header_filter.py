"""The header filter: conditions on headers, joined from left to right without parentheses."""

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
    """A string is not a header filter; the message names the position, from 1."""


def parse_header_filter(text: str) -> tuple[HeaderCondition, ...]:
    """Parse a filter such as ``depart:toy|depart:book&!env:test``.

    A condition is ``name:value`` or ``!name:value``; the first colon separates name and value, and blanks around them
    are ignored. There are no escapes, so neither may contain ``&``, ``|`` or a parenthesis; a name cannot begin with
    ``!``, and a value may be empty.
    """
    conditions = []
    for part in _PART.finditer(f"&{text}"):
        condition = part[2].strip()
        at = part.start(2) + len(part[2]) - len(part[2].lstrip())
        negated = condition.startswith("!")
        name, colon, value = condition.removeprefix("!").partition(":")
        if not condition:
            raise HeaderFilterError(f"at position {at} a condition is missing")
        if not colon:
            raise HeaderFilterError(f"at position {at} the condition {condition!r} has no colon between name and value")
        if name.strip().startswith("!"):
            raise HeaderFilterError(f"at position {at} the condition {condition!r} is negated twice")
        if not name.strip():
            raise HeaderFilterError(f"at position {at} the condition {condition!r} names no header")
        if any(c in "()" for c in condition):
            raise HeaderFilterError(
                f"at position {at} the condition {condition!r} has a parenthesis, which header filters do not have"
            )
        joined: Literal["&", "|"] = "|" if part[1] == "|" else "&"
        conditions.append(HeaderCondition(name.strip(), value.strip(), negated, joined))
    return tuple(conditions)


def headers_of(table: TableDef) -> tuple[HeaderCondition, ...]:
    """Parse the header filter of a valid table: its conditions, each joined to those before; empty if it has none."""
    text = table.options.header_filter
    return () if text is None else parse_header_filter(text)


def check_header_filter(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a read, a header filter that cannot be parsed."""
    text = table.options.header_filter
    if text is None or direction != "read":
        return
    try:
        parse_header_filter(text)
    except HeaderFilterError as e:
        message = f"{table.setting('header_filter', text)} cannot be parsed: {e}"
        yield problem(table, "header-filter", message, f"write conditions as in {FORM}", option="header_filter")
