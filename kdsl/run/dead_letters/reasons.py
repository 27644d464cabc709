"""Reasons of dead letters: the messages of decoders without the values that they quote.

A decoder quotes the value that it cannot read, because its errors go to whoever reads the table. The reason of a letter
is a header, which also people and tools see that may not see the data.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from kdsl.plan.model import ReadPlan
from kdsl.types import model as t

MAX_BYTES = 1024
"""The largest reason, in bytes of UTF-8."""
HIDDEN = "…"
"""What stands in place of a value."""

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_STEP = re.compile(r"\[\d+\]|[.\[\]'\"]+")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d_,.]*(?:[eE][-+]?\d+)?")
_PATH = re.compile(r"\b(?:field|column|member) ['\"]([^'\".\[]+)")
_SHORTEST_NUMBER = 3
_WORDS = frozenset(
    (
        *("op", "before", "after", "source", "payload", "schema", "ts_ms", "ts_us", "ts_ns", "r", "c", "u", "d", "t"),
        *("data", "old", "type", "database", "table", "ts", "sql", "pkNames", "op_type", "op_ts", "INSERT", "UPDATE"),
        *("DELETE", "insert", "update", "delete", "true", "false", "null", ",", ":", ";", "|", "\\t", "\\n"),
    )
)
"""What formats name themselves: the members of change data, and what messages say was expected."""


class ReasonWriter:
    """Writes the reasons of a table's letters.

    Args:
        plan: What is read; the names of its columns may stand in a reason.
    """

    def __init__(self, plan: ReadPlan) -> None:
        """Collect the names of columns, of members of messages, read or not, and of formats, which are not hidden."""
        self._columns = dict.fromkeys(plan.columns.names)
        self._wire: dict[str, str] = {}
        names: set[str] = set(self._columns)
        for part in (plan.value, plan.key):
            if part is None:
                continue
            names.update(_names(part.row), part.unread)
            for field, column in zip(part.row.fields, part.columns, strict=True):
                self._wire.setdefault(field.name, column)
        self._names = names | _WORDS

    def write(self, reason: str, data: bytes) -> str:
        """Return a decoder's message without quoted values and without long numbers of the record, cut to `MAX_BYTES`.

        `HIDDEN` replaces each. What is quoted stays if it is a name of the table's columns or members, a path of such
        names, or a word of formats.

        Args:
            reason: The message of a decoder.
            data: The bytes of the message key and value.
        """
        parts, end = [], 0
        for match in _QUOTED.finditer(reason):
            parts.append(_hide_numbers(reason[end : match.start()], data))
            quoted = match[0]
            parts.append(quoted if _is_known(quoted[1:-1], self._names) else f"{quoted[0]}{HIDDEN}{quoted[0]}")
            end = match.end()
        parts.append(_hide_numbers(reason[end:], data))
        return cut("".join(parts), MAX_BYTES)

    def find_column(self, reason: str) -> str | None:
        """The table's column that a decoder's message names first; None if it names none, or an unknown one."""
        match = _PATH.search(reason)
        if match is None:
            return None
        name = match[1]
        return self._wire.get(name) or (name if name in self._columns else None)


def cut(text: str, size: int) -> str:
    """A string, cut between characters to at most ``size`` bytes of UTF-8, with an ellipsis if it is longer."""
    data = text.encode("utf-8", "replace")
    if len(data) <= size:
        return data.decode()
    return data[: size - len(HIDDEN.encode())].decode("utf-8", "ignore") + HIDDEN


def _is_known(text: str, names: Collection[str]) -> bool:
    """Whether a quoted string is a name, a path of names and indices in brackets, or only punctuation of paths."""
    steps = [step for step in _STEP.split(text) if step]
    return text in names or (all(step in names for step in steps) and (bool(steps) or not re.search(r"\d", text)))


def _hide_numbers(text: str, data: bytes) -> str:
    """Hide the numbers of a string that stand in ``data``, except those of one or two characters: positions, sizes."""

    def replace(match: re.Match[str]) -> str:
        """Return `HIDDEN` for a long number that the data contain, otherwise the number itself."""
        number = match[0].rstrip(".,")
        if len(number) < _SHORTEST_NUMBER or number.encode() not in data:
            return match[0]
        return HIDDEN + match[0][len(number) :]

    return _NUMBER.sub(replace, text)


def _names(kind: t.DataType) -> Iterator[str]:
    """Yield the names of all members of a kdsl type, also of those inside arrays, multisets and maps."""
    match kind:
        case t.Row(fields=fields):
            for field in fields:
                yield field.name
                yield from _names(field.type)
        case t.Array(element=element) | t.Multiset(element=element):
            yield from _names(element)
        case t.Map(key=key, value=value):
            yield from _names(key)
            yield from _names(value)
