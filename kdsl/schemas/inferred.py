"""Infers one type for many JSON values: the types of a table that is generated from a topic's records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import attrs

from kdsl.types import model as t
from kdsl.types.widening import join
from kdsl_formats.suggest import type_of_text

_DAY = len("2024-01-01")
_TIMES = (t.Date, t.Time, t.Timestamp, t.TimestampLtz)
_LONG, _WIDE = 1 << 63, 10**t.MAX_DECIMAL


@attrs.frozen
class Unknown(t.DataType):
    """The type of values that are always NULL, or of the elements of empty lists."""

    name = "UNKNOWN"


def infer_type(values: Iterable[Any], *, times: bool = False) -> t.DataType:
    """Infer the type of some JSON values, widened until it holds all of them.

    Integers are BIGINT (beyond 64 bits DECIMAL(38, 0), beyond 38 digits STRING), other numbers DOUBLE, objects ROW with
    the fields in the order of their first occurrence; a field that some objects do not have is nullable. Other types
    are joined by `kdsl.types.widening.join`: values of different kinds are STRING, with the JSON as a string. Without
    values, and if all are null, it is STRING.

    Args:
        values: The values.
        times: Whether strings that look like dates, times or timestamps are of these types.
    """
    return replace_unknown(_common_type(values, times=times))


def _common_type(values: Iterable[Any], *, times: bool) -> t.DataType:
    """Return the type of some JSON values, which may contain `Unknown`."""
    initial: t.DataType = Unknown(nullable=False)
    return reduce(widen, (type_of(value, times=times) for value in values), initial)


def type_of(value: Any, *, times: bool = False) -> t.DataType:
    """The type of one JSON value, in which `Unknown` stands for null; NOT NULL for any other value.

    Args:
        value: The value.
        times: As for `infer_type`.
    """
    match value:
        case None:
            return Unknown()
        case bool():
            return t.Boolean(nullable=False)
        case int() if -_LONG <= value < _LONG:
            return t.BigInt(nullable=False)
        case int() if abs(value) < _WIDE:
            return t.Decimal(t.MAX_DECIMAL, 0, nullable=False)
        case float():
            return t.Double(nullable=False)
        case list():
            return t.Array(_common_type(value, times=times), nullable=False)
        case Mapping():
            fields = (t.Field(str(k), type_of(v, times=times)) for k, v in value.items())
            return t.Row(tuple(fields), nullable=False)
        case str() if times:
            return type_of_text(value).as_nullable(False)
        case _:
            return t.STRING.as_nullable(False)


def widen(a: t.DataType, b: t.DataType) -> t.DataType:
    """Find a type that holds the values of both types, nullable if one of them is."""
    return _widen_non_null(a, b).as_nullable(a.nullable or b.nullable)


def _widen_non_null(a: t.DataType, b: t.DataType) -> t.DataType:
    """Return the type that holds the non-NULL values of two types; those without another common type become STRING."""
    match a, b:
        case Unknown(), _:
            return b
        case _, Unknown():
            return a
        case t.Array(element=c), t.Array(element=d):
            return t.Array(widen(c, d))
        case t.Row(fields=c), t.Row(fields=d):
            return _widen_rows(c, d)
        case _ if type(a) is not type(b) and (isinstance(a, _TIMES) or isinstance(b, _TIMES)):
            return t.STRING  # a format does not read both
        case _:
            return join(a, b)


def _widen_rows(a: tuple[t.Field, ...], b: tuple[t.Field, ...]) -> t.Row:
    """Return the row with the fields of both; a field of only one of them is nullable."""
    first, second = {f.name: f.type for f in a}, {f.name: f.type for f in b}
    fields = []
    for name in dict.fromkeys([*first, *second]):
        both = name in first and name in second
        either = first.get(name, second.get(name, t.STRING)).as_nullable()
        fields.append(t.Field(name, widen(first[name], second[name]) if both else either))
    return t.Row(tuple(fields))


def replace_unknown(kind: t.DataType) -> t.DataType:
    """Replace everything unknown in a type by STRING; an object that was always empty becomes a MAP of strings."""
    match kind:
        case Unknown():
            return t.STRING
        case t.Array(element=element):
            return t.Array(replace_unknown(element), nullable=kind.nullable)
        case t.Row(fields=()):
            return t.Map(t.STRING.as_nullable(False), t.STRING, nullable=kind.nullable)
        case t.Row(fields=fields):
            return t.Row(tuple(t.Field(f.name, replace_unknown(f.type)) for f in fields), nullable=kind.nullable)
        case _:
            return kind


def has_iso_timestamps(value: Any) -> bool:
    """Whether a JSON value is or contains a string of a timestamp in the form of ISO-8601, with a ``T``."""
    match value:
        case str():
            return value[_DAY : _DAY + 1] == "T" and isinstance(type_of_text(value), t.Timestamp | t.TimestampLtz)
        case Mapping():
            return any(map(has_iso_timestamps, value.values()))
        case list() | tuple():
            return any(map(has_iso_timestamps, value))
        case _:
            return False
