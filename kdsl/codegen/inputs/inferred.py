"""Infers one type for many JSON values: the types of a table that is generated from a topic's records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import attrs

from kdsl.types import model as t
from kdsl.types.widening import join

_LONG, _WIDE = 1 << 63, 10**t.MAX_DECIMAL


@attrs.frozen
class Unknown(t.DataType):
    """The type of values that are always NULL, or of the elements of empty lists."""

    name = "UNKNOWN"


def infer_type(values: Iterable[Any]) -> t.DataType:
    """Infer the type of some JSON values, widened until it holds all of them.

    Integers are BIGINT (beyond 64 bits DECIMAL(38, 0), beyond 38 digits STRING), other numbers DOUBLE, objects ROW with
    the fields in the order of their first occurrence; a field that some objects do not have is nullable. Other types
    are joined by `kdsl.types.widening.join`: values of different kinds are STRING, with the JSON as a string.
    """
    return replace_unknown(_common_type(values))


def _common_type(values: Iterable[Any]) -> t.DataType:
    """Return the type of some JSON values, which may contain `Unknown`."""
    initial: t.DataType = Unknown(nullable=False)
    return reduce(widen, map(type_of, values), initial)


def type_of(value: Any) -> t.DataType:
    """The type of one JSON value, in which `Unknown` stands for null; NOT NULL for any other value."""
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
            return t.Array(_common_type(value), nullable=False)
        case Mapping():
            return t.Row(tuple(t.Field(str(k), type_of(v)) for k, v in value.items()), nullable=False)
        case _:
            return t.STRING.as_nullable(False)


def widen(a: t.DataType, b: t.DataType) -> t.DataType:
    """Find a type that holds the values of both types, nullable if one of them is."""
    return _widen_non_null(a, b).as_nullable(a.nullable or b.nullable)


def _widen_non_null(a: t.DataType, b: t.DataType) -> t.DataType:
    """Return the type that holds the values of two types, which are not NULL."""
    match a, b:
        case Unknown(), _:
            return b
        case _, Unknown():
            return a
        case t.Array(element=c), t.Array(element=d):
            return t.Array(widen(c, d))
        case t.Row(fields=c), t.Row(fields=d):
            return _widen_rows(c, d)
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
