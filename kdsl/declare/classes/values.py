"""Values of rows on their way to Arrow and back: Python objects, checked against column types.

An instant (TIMESTAMP_LTZ) is an aware `datetime`, a wall-clock time (TIMESTAMP) a naive one; the other kind is refused,
because which instant it means would depend on the machine. What comes back is aware, in UTC.
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
from kdsl.types.python import Evaluate, evaluated, inside, member_names, members, unwrap

_BITS: dict[type[t.DataType], int] = {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}


class BadValueError(ValueError):
    """A value that a column's type cannot hold; the text says why, and where inside the value."""


def to_arrow(value: Any, kind: t.DataType) -> Any:
    """A value as Arrow takes it: plain numbers, texts, dates, dicts for rows, pairs for maps.

    Raises:
        BadValueError: The type cannot hold it.
    """
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        if not kind.nullable:
            raise BadValueError("it is None, but the column may not be NULL")
        return None
    match kind:
        case t.Array(element=element):
            _must(isinstance(value, Sequence) and not isinstance(value, str | bytes), value, "a list")
            return [_inside(f"[{i}]", v, element) for i, v in enumerate(value)]
        case t.Map(key=key, value=held):
            _must(isinstance(value, Mapping), value, "a dict")
            return [(_inside(f"[{k!r}]", k, key), _inside(f"[{k!r}]", v, held)) for k, v in value.items()]
        case t.Multiset(element=element):
            _must(isinstance(value, Mapping), value, "a dict of counts")
            counts = t.Int(nullable=False)
            return [(_inside(f"[{k!r}]", k, element), _inside(f"[{k!r}]", v, counts)) for k, v in value.items()]
        case t.Row(fields=fields):
            return {f.name: _inside(f".{f.name}", _member(value, f.name), f.type) for f in fields}
        case _:
            return _scalar(value, kind)


def _inside(place: str, value: Any, kind: t.DataType) -> Any:
    try:
        return to_arrow(value, kind)
    except BadValueError as e:
        inner = str(e)
        joined = inner.removeprefix("at ") if inner.startswith("at ") else f": {inner}"
        raise BadValueError(f"at {place}{joined}") from None


def _member(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    name = member_names(type(value)).get(name, name)
    _must(hasattr(value, name), value, f"an object with the member {name}")
    return getattr(value, name)


def _scalar(value: Any, kind: t.DataType) -> Any:
    match kind:
        case t.Boolean():
            _must(isinstance(value, bool), value, "a bool")
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            _must(isinstance(value, int) and not isinstance(value, bool), value, "an int")
            limit = 1 << (_BITS[type(kind)] - 1)
            _must(-limit <= value < limit, value, f"between {-limit} and {limit - 1}")
        case t.Float() | t.Double():
            _must(isinstance(value, int | float) and not isinstance(value, bool), value, "a float")
            return float(value)
        case t.Decimal():
            return _decimal(value, kind)
        case t.Char() | t.VarChar():
            _must(type(value) is str or (isinstance(value, str) and type(value).__name__ != "Ref"), value, "a str")
        case t.Binary() | t.VarBinary():
            _must(isinstance(value, bytes | bytearray | memoryview), value, "bytes")
            return bytes(value)
        case t.Date():
            _must(isinstance(value, dt.date) and not isinstance(value, dt.datetime), value, "a date")
        case t.Time():
            _must(isinstance(value, dt.time) and value.tzinfo is None, value, "a time without a zone")
        case t.Timestamp():
            _must(isinstance(value, dt.datetime), value, "a datetime")
            _must(value.tzinfo is None, value, "a datetime without a zone, because TIMESTAMP is a wall-clock time")
        case t.TimestampLtz():
            _must(isinstance(value, dt.datetime), value, "a datetime")
            _must(value.tzinfo is not None, value, "a datetime with a zone, as tzinfo=UTC, because it is an instant")
    return value


def _decimal(value: Any, kind: t.Decimal) -> decimal.Decimal:
    _must(isinstance(value, int | decimal.Decimal) and not isinstance(value, bool), value, "a Decimal")
    number = decimal.Decimal(value)
    _must(number.is_finite(), value, "a finite number")
    digits = kind.precision - kind.scale
    fits = number.is_zero() or number.adjusted() < digits
    _must(fits, value, f"a number with at most {digits} digits before the point")
    wide = decimal.Context(prec=decimal.MAX_PREC)
    scaled = number.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=decimal.Context(prec=200))
    _must(wide.compare(scaled, number) == 0, value, f"a number with at most {kind.scale} decimal places")
    return scaled


def _must(holds: bool, value: Any, wanted: str) -> None:
    if not holds:
        raise BadValueError(f"{value!r} is not {wanted}")


def from_arrow(value: Any, kind: t.DataType, annotation: Any, evaluate: Evaluate) -> Any:
    """A value from Arrow as what the annotation says: nested classes, enums, tuples, aware times.

    Args:
        value: What Arrow's ``to_pylist`` gave.
        kind: The column type.
        annotation: The Python type of the column, or of a part of it.
        evaluate: What reads forward references inside the annotation.
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
            held, of = _held(kind), arguments or (Any, Any)
            return {from_arrow(k, held[0], of[0], evaluate): from_arrow(v, held[1], of[1], evaluate) for k, v in value}
        case t.Row(fields=fields):
            return _of_class(value, fields, annotation, evaluate)
        case _:
            return annotation(value) if isinstance(annotation, type) and issubclass(annotation, Enum) else value


def _held(kind: t.Map | t.Multiset) -> tuple[t.DataType, t.DataType]:
    return (kind.key, kind.value) if isinstance(kind, t.Map) else (kind.element, t.Int())


def _value_type(annotation: Any, evaluate: Evaluate) -> Any:
    """An annotation without ``Annotated``, ``None`` and forward references."""
    while True:
        base, _ = unwrap(evaluated(annotation, evaluate))
        if get_origin(base) is typing.NotRequired:
            annotation = get_args(base)[0]
        elif type(None) in get_args(base):
            annotation = next(a for a in get_args(base) if a is not type(None))
        else:
            return base


def _of_class(value: Mapping[str, Any], fields: tuple[t.Field, ...], cls: Any, evaluate: Evaluate) -> Any:
    make: Any = cls
    annotations = members(cls)
    if annotations is None:
        return {f.name: from_arrow(value[f.name], f.type, Any, evaluate) for f in fields}
    reading, names = inside(cls, evaluate), member_names(cls)
    by_attribute = {names.get(f.name, f.name): f for f in fields}
    made = {n: from_arrow(value[f.name], f.type, annotations[n], reading) for n, f in by_attribute.items()}
    if attrs.has(cls):
        made = {a.alias: made[a.name] for a in attrs.fields(cls) if a.init}
    elif dataclasses.is_dataclass(cls):
        made = {f.name: made[f.name] for f in dataclasses.fields(cls) if f.init}
    return make(**made)
