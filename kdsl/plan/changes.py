"""What may change in a table between two runs of a query that writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import ndiff
from typing import Literal

from kdsl.errors import listing, nearest
from kdsl.plan.model import Part, WritePlan
from kdsl.plan.records import record_format
from kdsl.plan.show import show

Change = Literal["topic", "key", "format", "prefix"]
UNSAFE_CHANGES: Mapping[Change, str] = {
    "topic": "the records go to other topics",
    "key": "the message key differs, so records of one key may go to another partition than before",
    "format": "records are written in another format than before",
    "prefix": "the transactions have another prefix",
}
"""What an unsafe change does."""
AllowedChanges = bool | Iterable[Change]
"""The unsafe changes that a user allows; True for all of them."""


def unsafe_changes(before: WritePlan, after: WritePlan, allow: AllowedChanges) -> list[Change]:
    """Compare two plans, and return their unsafe differences that are not allowed, in the order of `UNSAFE_CHANGES`."""
    allowed = _names_of(allow)
    return [change for change in _differences(before, after) if change not in allowed]


def describe_change(change: Change, plan: WritePlan) -> str:
    """What a plan has of what an unsafe change differs in, such as the columns of the message key."""
    match change:
        case "topic":
            return str(plan.topics)
        case "key":
            fields = [] if plan.key is None else [f"{f.name} {f.type}" for f in plan.key.row.fields]
            return ", ".join(fields or plan.key_columns) or "no key"
        case "format":
            parts = {"key": plan.key, "value": plan.value}
            return ", ".join(f"{side} {p.format.identifier}" for side, p in parts.items() if p is not None) or "none"
        case "prefix":
            return "none" if plan.transactions is None else plan.transactions.prefix


def difference_lines(before: WritePlan, after: WritePlan) -> list[str]:
    """The lines by which two plans differ, as ``explain`` shows them, each with ``-`` or ``+`` in front."""
    lines = ndiff(show(before).splitlines(), show(after).splitlines())
    return [line for line in lines if line[0] in "+-"]


def _names_of(allow: AllowedChanges) -> frozenset[str]:
    """Return the names of the allowed changes: all for True, none for False."""
    if isinstance(allow, bool):
        return frozenset(UNSAFE_CHANGES) if allow else frozenset()
    names = [allow] if isinstance(allow, str) else list(allow)
    for name in names:
        if name not in UNSAFE_CHANGES:
            hint = nearest(name, UNSAFE_CHANGES)
            raise ValueError(f"allow= contains {name!r}{hint}; the changes are {listing(UNSAFE_CHANGES)}")
    return frozenset(names)


def _differences(before: WritePlan, after: WritePlan) -> Iterator[Change]:
    """Yield the unsafe changes between two plans; a prefix changes only if both write exactly once."""
    if before.topics != after.topics:
        yield "topic"
    if _members(before.key) != _members(after.key) or before.key_columns != after.key_columns:
        yield "key"
    if any(_format(one) != _format(other) for one, other in ((before.key, after.key), (before.value, after.value))):
        yield "format"
    if before.transactions and after.transactions and before.transactions.prefix != after.transactions.prefix:
        yield "prefix"


def _members(part: Part | None) -> object:
    """Return what a part encodes, to compare it; None without a part."""
    return None if part is None else (part.row, part.columns)


def _format(part: Part | None) -> object:
    """Return how a part is encoded, to compare it; None without a part."""
    return None if part is None else record_format(part)
