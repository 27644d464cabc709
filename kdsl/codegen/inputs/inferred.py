"""JSON values to one type that holds all of them: what a table of a topic's records is inferred from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import attrs

from kdsl.types import model as t

_LONG = 1 << 63


@attrs.frozen
class Unknown(t.DataType):
    """The type of what was always NULL, or of the elements of lists that were empty."""

    name = "UNKNOWN"


def inferred(values: Iterable[Any]) -> t.DataType:
    """The type of some JSON values, widened until it holds all of them.

    Whole numbers are BIGINT (beyond 64 bits DECIMAL(38, 0)), other numbers DOUBLE, objects ROW with the members in the
    order in which they were seen; a member that some objects lack may be NULL. What has values of different kinds is
    STRING, with the JSON as text.
    """
    return settled(_joined(values))


def _joined(values: Iterable[Any]) -> t.DataType:
    nothing: t.DataType = Unknown(nullable=False)
    return reduce(widened, map(type_of, values), nothing)


def type_of(value: Any) -> t.DataType:
    """The type of one value."""
    match value:
        case None:
            return Unknown()
        case bool():
            return t.Boolean(nullable=False)
        case int():
            fits = -_LONG <= value < _LONG
            return t.BigInt(nullable=False) if fits else t.Decimal(38, 0, nullable=False)
        case float():
            return t.Double(nullable=False)
        case list():
            return t.Array(_joined(value), nullable=False)
        case Mapping():
            return t.Row(tuple(t.Field(str(k), type_of(v)) for k, v in value.items()), nullable=False)
        case _:
            return t.STRING.as_nullable(False)


def widened(a: t.DataType, b: t.DataType) -> t.DataType:
    """A type that holds the values of both."""
    return _widened(a, b).as_nullable(a.nullable or b.nullable)


_NUMBERS = (t.BigInt, t.Decimal, t.Double)


def _widened(a: t.DataType, b: t.DataType) -> t.DataType:
    match a, b:
        case Unknown(), _:
            return b
        case _, Unknown():
            return a
        case t.Array(element=c), t.Array(element=d):
            return t.Array(widened(c, d))
        case t.Row(fields=c), t.Row(fields=d):
            return _row(c, d)
        case _ if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):
            return max(a, b, key=lambda kind: _NUMBERS.index(type(kind)))
        case _ if type(a) is type(b):
            return a
        case _:
            return t.STRING


def _row(a: tuple[t.Field, ...], b: tuple[t.Field, ...]) -> t.Row:
    first, second = {f.name: f.type for f in a}, {f.name: f.type for f in b}
    fields = []
    for name in dict.fromkeys([*first, *second]):
        both = name in first and name in second
        made = widened(first[name], second[name]) if both else first.get(name, second.get(name, t.STRING)).as_nullable()
        fields.append(t.Field(name, made))
    return t.Row(tuple(fields))


def settled(kind: t.DataType) -> t.DataType:
    """The type without what is not known: that is STRING; an object that was always empty is a MAP of texts."""
    match kind:
        case Unknown():
            return t.STRING
        case t.Array(element=element):
            return t.Array(settled(element), nullable=kind.nullable)
        case t.Row(fields=()):
            return t.Map(t.STRING.as_nullable(False), t.STRING, nullable=kind.nullable)
        case t.Row(fields=fields):
            return t.Row(tuple(t.Field(f.name, settled(f.type)) for f in fields), nullable=kind.nullable)
        case _:
            return kind
