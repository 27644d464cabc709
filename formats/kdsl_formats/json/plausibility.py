"""Whether values that Debezium's modes read are what their writer meant: the modes read almost any string or number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t

_WORD = re.compile(r"[a-z/+]+|[A-Z/+]+|[A-Z][a-z]+")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_DAY = 86_400_000_000
_FIRST, _LAST = -43_829 * _DAY, 84_006 * _DAY  # the years 1850 and 2200, in microseconds
_EPOCH = 365 * _DAY  # a unit that is too small reads today's times as ones of 1970


def as_strings(row: t.Row) -> t.Row:
    """Return a row type whose values without parts are all strings, as messages spell them."""
    kind = _to_strings(row)
    assert isinstance(kind, t.Row)
    return kind


def are_decimals(row: t.Row, rows: pa.StructArray) -> bool:
    """Return whether the strings of decimals are likely base64 of unscaled numbers.

    That is not so if one is spelled as a number, or if all look like words, as base64 rarely does.

    Args:
        row: The columns.
        rows: The rows with the type `as_strings` returns.
    """
    strings = {decimal for one in rows.to_pylist() for decimal in _decimals(row, one)}
    return not strings or not (any(map(_NUMBER.fullmatch, strings)) or all(map(_WORD.fullmatch, strings)))


def are_times(row: t.Row, rows: pa.StructArray) -> bool:
    """Return whether days and timestamps, as read from numbers, are likely those that the writer meant.

    That is not so if one is before 1850 or after 2200, or if all timestamps of a column are of 1970.

    Args:
        row: The columns; only those that are times themselves are judged.
        rows: What was read.
    """
    for i, field in enumerate(row.fields):
        if not isinstance(field.type, t.Date | t.Timestamp | t.TimestampLtz):
            continue
        zone = rows.field(i).type.tz if isinstance(field.type, t.TimestampLtz) else None
        micros = rows.field(i).cast(pa.timestamp("us", zone)).view(pa.int64())
        limits = pc.min_max(micros).as_py()
        if limits["min"] is None:
            continue
        if limits["min"] < _FIRST or limits["max"] > _LAST:
            return False
        if not isinstance(field.type, t.Date) and limits["min"] > -_EPOCH and limits["max"] < _EPOCH:
            return False
    return True


def _to_strings(kind: t.DataType) -> t.DataType:
    """Replace the types without parts by strings."""
    match kind:
        case t.Row(fields=fields, nullable=nullable):
            return t.Row(tuple(t.Field(f.name, _to_strings(f.type)) for f in fields), nullable=nullable)
        case t.Array(element=element, nullable=nullable):
            return t.Array(_to_strings(element), nullable=nullable)
        case t.Map(key=key, value=value, nullable=nullable):
            return t.Map(key, _to_strings(value), nullable=nullable)
    return t.STRING


def _decimals(kind: t.DataType, value: Any) -> Iterator[str]:
    """Yield the strings of the decimals in a value."""
    match kind, value:
        case t.Decimal(), str():
            yield value
        case t.Row(fields=fields), dict():
            for field in fields:
                yield from _decimals(field.type, value[field.name])
        case t.Array(element=element), list():
            for one in value:
                yield from _decimals(element, one)
        case t.Map(value=inside), list():
            for _, one in value:
                yield from _decimals(inside, one)
