"""Converts the values of rows to Arrow and back: Python objects, checked against column types.

An instant (TIMESTAMP_LTZ) is an aware `datetime`, a wall-clock time (TIMESTAMP) a naive one; the other kind is refused,
because which instant it means would depend on the machine. The values that are read are aware, in UTC.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, get_args, get_origin

import attrs

from kdsl.types import model as t
from kdsl.types.python import Evaluate, class_members, evaluate_annotation, evaluator_within, member_names, unwrap

_BITS: dict[type[t.DataType], int] = {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}


class BadValueError(ValueError):
    """A value that does not fit a column's type; the message says why, and where inside the value."""


def to_arrow(value: Any, kind: t.DataType) -> Any:
    """Convert a value for Arrow: plain numbers, strings, dates, dicts for rows, pairs for maps; enums to values."""
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        if not kind.nullable:
            raise BadValueError("it is None, but the column may not be NULL")
        return None
    match kind:
        case t.Array(element=element):
            _require(isinstance(value, Sequence) and not isinstance(value, str | bytes), value, "a list")
            return [_convert_inside(f"[{i}]", v, element) for i, v in enumerate(value)]
        case t.Map(key=key, value=value_type):
            _require(isinstance(value, Mapping), value, "a dict")
            return [
                (_convert_inside(f"[{k!r}]", k, key), _convert_inside(f"[{k!r}]", v, value_type))
                for k, v in value.items()
            ]
        case t.Multiset(element=element):
            _require(isinstance(value, Mapping), value, "a dict of counts")
            counts = t.Int(nullable=False)
            return [
                (_convert_inside(f"[{k!r}]", k, element), _convert_inside(f"[{k!r}]", v, counts))
                for k, v in value.items()
            ]
        case t.Row(fields=fields):
            return {f.name: _convert_inside(f".{f.name}", _get_member(value, f.name), f.type) for f in fields}
        case _:
            return _check_scalar(value, kind)


def _convert_inside(location: str, value: Any, kind: t.DataType) -> Any:
    """Convert a value inside another one; see `to_arrow`."""
    try:
        return to_arrow(value, kind)
    except BadValueError as e:
        inner = str(e)
        joined = inner.removeprefix("at ") if inner.startswith("at ") else f": {inner}"
        raise BadValueError(f"at {location}{joined}") from None


def _get_member(value: Any, name: str) -> Any:
    """Return a member of a mapping (None if it is missing) or of an object, by its name on the wire."""
    if isinstance(value, Mapping):
        return value.get(name)
    name = member_names(type(value)).get(name, name)
    _require(hasattr(value, name), value, f"an object with the member {name}")
    return getattr(value, name)


def _check_scalar(value: Any, kind: t.DataType) -> Any:
    """Check that a value without parts, not None or an enum, is of a type, and return it as Arrow accepts it."""
    match kind:
        case t.Boolean():
            _require(isinstance(value, bool), value, "a bool")
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            _require(isinstance(value, int) and not isinstance(value, bool), value, "an int")
            limit = 1 << (_BITS[type(kind)] - 1)
            _require(-limit <= value < limit, value, f"between {-limit} and {limit - 1}")
        case t.Float() | t.Double():
            _require(isinstance(value, int | float) and not isinstance(value, bool), value, "a float")
            return float(value)
        case t.Decimal():
            return _convert_decimal(value, kind)
        case t.Char() | t.VarChar():
            _require(type(value) is str or (isinstance(value, str) and type(value).__name__ != "Ref"), value, "a str")
        case t.Binary() | t.VarBinary():
            _require(isinstance(value, bytes | bytearray | memoryview), value, "bytes")
            return bytes(value)
        case t.Date():
            _require(isinstance(value, dt.date) and not isinstance(value, dt.datetime), value, "a date")
        case t.Time():
            _require(isinstance(value, dt.time) and value.tzinfo is None, value, "a time without a zone")
        case t.Timestamp():
            _require(isinstance(value, dt.datetime), value, "a datetime")
            _require(value.tzinfo is None, value, "a datetime without a zone, because TIMESTAMP is a wall-clock time")
        case t.TimestampLtz():
            _require(isinstance(value, dt.datetime), value, "a datetime")
            _require(value.tzinfo is not None, value, "a datetime with a zone, as tzinfo=UTC, because it is an instant")
    return value


def _convert_decimal(value: Any, kind: t.Decimal) -> decimal.Decimal:
    """Convert an integer or a Decimal to a decimal with the scale of the type."""
    _require(isinstance(value, int | decimal.Decimal) and not isinstance(value, bool), value, "a Decimal")
    number = decimal.Decimal(value)
    _require(number.is_finite(), value, "a finite number")
    digits = kind.precision - kind.scale
    fits = number.is_zero() or number.adjusted() < digits
    _require(fits, value, f"a number with at most {digits} digits before the point")
    wide = decimal.Context(prec=decimal.MAX_PREC)
    scaled = number.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=decimal.Context(prec=200))
    _require(wide.compare(scaled, number) == 0, value, f"a number with at most {kind.scale} decimal places")
    return scaled


def _require(valid: bool, value: Any, wanted: str) -> None:
    """Check a condition that a value must meet."""
    if not valid:
        raise BadValueError(f"{value!r} is not {wanted}")


def from_arrow(value: Any, kind: t.DataType, annotation: Any, evaluate: Evaluate) -> Any:
    """Convert a value from Arrow to the annotated type: nested classes, enums, tuples, aware times; None stays.

    Args:
        value: A value of Arrow's ``to_pylist``.
        kind: The column type.
        annotation: The Python type of the column, or of a part of it.
        evaluate: Evaluates forward references inside the annotation.
    """
    if value is None:
        return None
    annotation = _value_type(annotation, evaluate)
    arguments = get_args(annotation)
    match kind:
        case t.TimestampLtz():
            return value.astimezone(dt.UTC)
        case t.Array(element=element):
            of = arguments[0] if arguments else Any
            items = [from_arrow(v, element, of, evaluate) for v in value]
            return tuple(items) if get_origin(annotation) is tuple else items
        case t.Map() | t.Multiset():
            types, of = _entry_types(kind), arguments or (Any, Any)
            return {
                from_arrow(k, types[0], of[0], evaluate): from_arrow(v, types[1], of[1], evaluate) for k, v in value
            }
        case t.Row(fields=fields):
            return _make_instance(value, fields, annotation, evaluate)
        case _:
            return annotation(value) if isinstance(annotation, type) and issubclass(annotation, Enum) else value


def _entry_types(kind: t.Map | t.Multiset) -> tuple[t.DataType, t.DataType]:
    """Return the types of a map's keys and values, or of a multiset's elements and counts."""
    return (kind.key, kind.value) if isinstance(kind, t.Map) else (kind.element, t.Int())


def _value_type(annotation: Any, evaluate: Evaluate) -> Any:
    """Return an annotation without ``Annotated``, ``NotRequired``, ``None`` and forward references."""
    while True:
        base, _ = unwrap(evaluate_annotation(annotation, evaluate))
        if get_origin(base) is typing.NotRequired:
            annotation = get_args(base)[0]
        elif type(None) in get_args(base):
            annotation = next(a for a in get_args(base) if a is not type(None))
        else:
            return base


def _make_instance(value: Mapping[str, Any], fields: tuple[t.Field, ...], cls: Any, evaluate: Evaluate) -> Any:
    """Create an instance of a row's annotated class from its members in Arrow; a dict if it has no class."""
    make: Any = cls
    annotations = class_members(cls)
    if annotations is None:
        return {f.name: from_arrow(value[f.name], f.type, Any, evaluate) for f in fields}
    reading, names = evaluator_within(cls, evaluate), member_names(cls)
    by_attribute = {names.get(f.name, f.name): f for f in fields}
    values = {n: from_arrow(value[f.name], f.type, annotations[n], reading) for n, f in by_attribute.items()}
    if attrs.has(cls):
        values = {a.alias: values[a.name] for a in attrs.fields(cls) if a.init}
    elif dataclasses.is_dataclass(cls):
        values = {f.name: values[f.name] for f in dataclasses.fields(cls) if f.init}
    return make(**values)
