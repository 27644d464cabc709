"""Types of JSON values together with what is nested in them: objects are ROW, and arrays ARRAY.

Everything else has the type that an observer infers, and is joined as observers join it, except that times of different
types are STRING: the format reads strings of only one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import attrs

from kdsl.types import model as t
from kdsl.types.widening import join
from kdsl_formats._text.inferred import type_of_text
from kdsl_formats.json.document import Fractional, Integer
from kdsl_formats.json.reference_observer import type_of_value

_DAY = len("2024-01-01")
_TIMES = (t.Date, t.Time, t.Timestamp, t.TimestampLtz)


@attrs.frozen
class Unknown(t.DataType):
    """The type of values that are always NULL, or of the elements of empty lists."""

    name = "UNKNOWN"


def infer_type(values: Iterable[Any], *, times: bool = False) -> t.DataType:
    """Infer the type of some JSON values, widened until it holds all of them.

    A ROW has the fields in the order of their first occurrence; one that some objects do not have is nullable. Values
    of different kinds are STRING, with the JSON as a string. Without values, and if all are null, it is STRING.

    Args:
        values: The values, as `kdsl_formats.json.document` or `json` parse them.
        times: Whether strings that look like dates, times or timestamps are of these types.
    """
    return _replace_unknown(_common_type(values, times=times))


def _common_type(values: Iterable[Any], *, times: bool) -> t.DataType:
    """Return the type of some JSON values, which may contain `Unknown`."""
    initial: t.DataType = Unknown(nullable=False)
    return reduce(_widen, (_type_of(value, times=times) for value in values), initial)


def _type_of(value: Any, *, times: bool) -> t.DataType:
    """Return the type of one JSON value, in which `Unknown` stands for null; NOT NULL for any other value."""
    match value:
        case None:
            return Unknown()
        case list():
            return t.Array(_common_type(value, times=times), nullable=False)
        case Mapping():
            fields = (t.Field(str(name), _type_of(inner, times=times)) for name, inner in value.items())
            return t.Row(tuple(fields), nullable=False)
        case int() if not isinstance(value, bool):
            value = Integer(value)
        case float():
            value = Fractional(value)
    return type_of_value(value, times=times).as_nullable(False)


def _widen(a: t.DataType, b: t.DataType) -> t.DataType:
    """Join two types as `join` does, and what is nested in them; nullable if one of them is."""
    nullable = a.nullable or b.nullable
    match a, b:
        case Unknown(), _:
            return b.as_nullable(nullable)
        case _, Unknown():
            return a.as_nullable(nullable)
        case t.Array(element=c), t.Array(element=d):
            return t.Array(_widen(c, d), nullable=nullable)
        case t.Row(fields=c), t.Row(fields=d):
            first, second = {f.name: f.type for f in c}, {f.name: f.type for f in d}
            absent = Unknown()
            names = dict.fromkeys([*first, *second])
            fields = (t.Field(name, _widen(first.get(name, absent), second.get(name, absent))) for name in names)
            return t.Row(tuple(fields), nullable=nullable)
        case _ if type(a) is not type(b) and isinstance(a, _TIMES) and isinstance(b, _TIMES):
            return t.STRING.as_nullable(nullable)
        case _:
            return join(a, b)


def _replace_unknown(kind: t.DataType) -> t.DataType:
    """Replace everything unknown in a type by STRING; an object that was always empty becomes a MAP of strings."""
    match kind:
        case Unknown():
            return t.STRING
        case t.Array(element=element):
            return t.Array(_replace_unknown(element), nullable=kind.nullable)
        case t.Row(fields=()):
            return t.Map(t.STRING.as_nullable(False), t.STRING, nullable=kind.nullable)
        case t.Row(fields=fields):
            return t.Row(tuple(t.Field(f.name, _replace_unknown(f.type)) for f in fields), nullable=kind.nullable)
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
