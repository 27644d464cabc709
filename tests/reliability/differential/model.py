"""What a sink has to contain after a sequence of changes: a plain model, which knows the documented rules alone.

Values are the JSON of the messages, as strings: ``1.50``, ``"x"``, ``null``. Columns get types by docs/inference.md,
rows are folded by key as docs/ingest.md says, and the result has Python's values. Nothing of kdsl is used here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import attrs

Row = Mapping[str, str]
"""The values of a row, as JSON without blanks, by column."""
Value = str | int | float | bool | None
"""A value as it is compared: dates and times are ISO strings with microseconds, instants in UTC."""

NUMBER = "f"
"""The integer column that filters and expressions use."""
ROW_KIND = "row_kind"
"""The column with the row kind of a table with soft deletes."""
DOUBLED = "doubled"
"""The column with twice the value of `NUMBER`."""

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d\d:\d\d:\d\d(?:\.\d{1,6})?", re.ASCII)
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)(Z?)", re.ASCII)
_INSTANTS = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ")
_INTEGERS = {frozenset(("BIGINT", "DOUBLE")): "DOUBLE", frozenset(("BIGINT", "DECIMAL")): "DECIMAL"}
_MOST_DIGITS = 38


@attrs.frozen
class Change:
    """A change of one row: an insert has no row before, a delete none after."""

    before: Row | None
    after: Row | None


@attrs.frozen
class Rules:
    """What happens with the changes of a table on their way.

    Attributes:
        key: The columns of the primary key; without any, rows are only inserted.
        strings_stay: Whether strings are strings, whatever they look like, as in messages of Canal.
        above: Only rows whose column `NUMBER` is greater pass.
        doubled: Whether there is a column `DOUBLED`.
        soft_delete: Whether a deleted row stays, with its row kind in the column `ROW_KIND`.
    """

    key: tuple[str, ...] = ()
    strings_stay: bool = False
    above: int | None = None
    doubled: bool = False
    soft_delete: bool = False


@attrs.frozen
class Table:
    """The types of the columns of a table, and its rows."""

    types: Mapping[str, str]
    rows: Sequence[Mapping[str, Value]]


class Spelled(str):
    """A number as it is spelled."""

    __slots__ = ()


def build_table(sources: Iterable[tuple[Sequence[Change], Rules]]) -> Table:
    """The sink table that the changes of some tables with different keys go into."""
    types: dict[str, str] = {}
    rows: list[Row] = []
    for changes, rules in sources:
        shown = [row for change in changes for row in (change.before, change.after) if row is not None]
        for name, text in (item for row in shown for item in row.items()):
            if (kind := type_of(text, strings_stay=rules.strings_stay)) is not None:
                types[name] = join(types.get(name, kind), kind)
        if rules.doubled and types:
            types[DOUBLED] = "BIGINT"
        if rules.soft_delete and types:
            types[ROW_KIND] = "STRING"
        rows += (_project(row, kind, rules) for row, kind in fold(changes, rules))
    return Table(types, [{n: read(kind, parse(row.get(n, "null"))) for n, kind in types.items()} for row in rows])


def fold(changes: Iterable[Change], rules: Rules) -> list[tuple[Row, str]]:
    """The rows that remain, and the row kind that each of them had in its message."""
    rows: dict[tuple[str, ...], tuple[Row, str]] = {}
    for number, change in enumerate(changes):
        before, after = (
            row if row is not None and passes(row, rules) else None for row in (change.before, change.after)
        )
        old, new = (key_of(row or {}, rules.key or (), number) for row in (before, after))
        if before is not None and (after is None or old != new):
            rows.pop(old, None)
            if rules.soft_delete:
                rows[old] = before, "-D" if change.after is None else "-U"
        if after is not None:
            rows[new] = after, "+I" if change.before is None else "+U"
    return list(rows.values())


def key_of(row: Row, key: Sequence[str], number: int) -> tuple[str, ...]:
    """The values of a row's key; without a key that of the change."""
    return tuple(row.get(name, "null") for name in key) or (str(number),)


def passes(row: Row, rules: Rules) -> bool:
    """Whether a row meets the filter of its table; NULL does not."""
    value = row.get(NUMBER, "null")
    return rules.above is None or (value != "null" and int(value) > rules.above)


def _project(row: Row, kind: str, rules: Rules) -> Row:
    """A row with the columns that expressions add."""
    value = row.get(NUMBER, "null")
    doubled = {DOUBLED: value if value == "null" else str(2 * int(value))} if rules.doubled else {}
    return {**row, **doubled, **({ROW_KIND: json.dumps(kind)} if rules.soft_delete else {})}


def parse(text: str) -> Any:
    """A value of a message; objects and arrays stay JSON, and numbers as they are spelled."""
    return text if text[0] in "[{" else json.loads(text, parse_int=Spelled, parse_float=Spelled)


def type_of(text: str, *, strings_stay: bool = False) -> str | None:
    """The type of a value in a message; None for null, which shows no column."""
    value = parse(text)
    if value is None or isinstance(value, bool):
        return None if value is None else "BOOLEAN"
    if not isinstance(value, Spelled):
        return "STRING" if strings_stay else _type_of_string(value)
    if not re.fullmatch(r"-?\d+", value):
        number = float(value)
        vanishes = number == 0 and re.search("[1-9]", value.lower().partition("e")[0])
        return "STRING" if vanishes or abs(number) == float("inf") else "DOUBLE"
    if -(2**63) <= int(value) < 2**63:
        return "BIGINT"
    return "DECIMAL" if len(value.lstrip("-")) <= _MOST_DIGITS else "STRING"


def _type_of_string(value: str) -> str:
    """The type of a string by its form."""
    with suppress(ValueError):
        if _DATE.fullmatch(value):
            date.fromisoformat(value)
            return "DATE"
        if _TIME.fullmatch(value):
            time.fromisoformat(value)
            return "TIME"
        if match := _TIMESTAMP.fullmatch(value):
            datetime.fromisoformat(match[1])
            return "TIMESTAMP_LTZ" if match[2] else "TIMESTAMP"
    return "STRING"


def join(a: str, b: str) -> str:
    """The narrowest type that holds the values of both."""
    if a in _INSTANTS and b in _INSTANTS:
        return max(a, b, key=_INSTANTS.index)
    return a if a == b else _INTEGERS.get(frozenset((a, b)), "STRING")


def read(kind: str, value: Any) -> Value:
    """A value of a message, or of a client of a sink, as it is compared in a column of a type."""
    match kind:
        case _ if value is None:
            return None
        case "BOOLEAN":
            return {"true": True, "false": False}[str(value).lower()]
        case "BIGINT" | "DECIMAL":
            number = Decimal(str(value))  # also 1E+3
            return int(number) if number == int(number) else float(number)
        case "DOUBLE":
            return float(value) + 0.0  # -0.0 is 0.0
        case "DATE":
            return date.fromisoformat(str(value)).isoformat()
        case "TIME":
            return time.fromisoformat(str(value)).isoformat("microseconds")
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            moment = datetime.fromisoformat(str(value))
            moment = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
            return moment.isoformat(" ", "microseconds")
    return str(value).lower() if isinstance(value, bool) else str(value)
