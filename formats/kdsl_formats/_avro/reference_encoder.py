"""Values to Avro bodies, one by one: the judge of what a row becomes."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable
from typing import Any

from kdsl.types import model as t
from kdsl_formats._avro.hash_map import java_order
from kdsl_formats._avro.reference_decoder import BodyError
from kdsl_formats._avro.target import (
    ArrayOf,
    Choice,
    MapOf,
    Nothing,
    Optional,
    RecordOf,
    Target,
    Value,
)

Writing = Callable[[Any, bytearray], None]
"""Puts a value behind what there is."""

_EXACT = decimal.Context(prec=200, traps=[decimal.Inexact])


class ReferenceEncoder:
    """Writes one row at a time."""

    def __init__(self, target: Target) -> None:
        self._write = writing(target)

    def body(self, value: Any) -> bytes:
        """The body of a row, given as `plain_values` gives it.

        Raises:
            BodyError: The schema cannot hold the value.
        """
        made = bytearray()
        self._write(value, made)
        return bytes(made)


def wire_value(target: Value, value: Any) -> Any:
    """A column's value as it is on the wire: a number, a truth, a text, or bytes.

    Raises:
        BodyError: The schema cannot hold it.
    """
    match target.column:
        case t.Time():
            return value // target.unit
        case t.Timestamp() | t.TimestampLtz():
            number = value * 1000 // target.unit
            if number.bit_length() > 63:
                raise BodyError("the timestamp is too far away for the schema's unit")
            return number
        case t.Decimal():
            return _decimal(target, value)
    if target.wire == "enum":
        if value not in target.symbols:
            raise BodyError(f"{value!r} is no symbol of the enum {target.name}")
        return value
    if target.wire == "fixed" and len(value) != target.size:
        raise BodyError(f"{target.name} has {target.size} bytes, and the value has {len(value)}")
    return value


def _decimal(target: Value, value: decimal.Decimal) -> bytes:
    try:
        number = int(value.scaleb(target.scale, _EXACT).to_integral_exact(context=_EXACT))
    except decimal.Inexact:
        raise BodyError(f"{value} has more than the {target.scale} digits of the schema behind the point") from None
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    if target.wire == "fixed":
        if size > target.size:
            raise BodyError(f"{value} does not fit in the {target.size} bytes of {target.name}")
        size = target.size
    return number.to_bytes(size, "big", signed=True)


def is_present(value: Any) -> Any:
    """The value, where the schema has no null.

    Raises:
        BodyError: It is NULL.
    """
    if value is None:
        raise BodyError("NULL, where the schema has no null")
    return value


def put_long(number: int, made: bytearray) -> None:
    """Put a number of variable length."""
    raw = (number << 1) ^ (number >> 63)
    while raw >= 0x80:
        made.append(raw & 0x7F | 0x80)
        raw >>= 7
    made.append(raw)


def _put_bytes(data: bytes, made: bytearray) -> None:
    put_long(len(data), made)
    made += data


_PUT: dict[str, Writing] = {
    "boolean": lambda v, made: made.append(bool(v)),
    "int": put_long,
    "long": put_long,
    "float": lambda v, made: made.extend(struct.pack("<f", v)),
    "double": lambda v, made: made.extend(struct.pack("<d", v)),
    "bytes": _put_bytes,
    "string": lambda v, made: _put_bytes(v.encode(), made),
    "fixed": lambda v, made: made.extend(v),
}


def writing(target: Target) -> Writing:
    """What writes a column's values."""
    match target:
        case Value():
            return _value(target)
        case Optional(inner=inner, branch=branch, null=null):
            return _optional(writing(inner), branch, null)
        case Choice():
            return _choice(target)
        case ArrayOf(inner=inner):
            return _array(writing(inner))
        case MapOf(inner=inner):
            return _map(writing(inner))
        case RecordOf(fields=fields):
            return _record([(name, writing(inner)) for name, inner in fields])
        case Nothing():
            return _nothing
    raise AssertionError(target)


def _nothing(value: Any, _made: bytearray) -> None:
    if value is not None:
        raise BodyError("a value, where the schema has null alone")


def _value(target: Value) -> Writing:
    if target.wire == "enum":
        return lambda v, made: put_long(target.symbols.index(wire_value(target, is_present(v))), made)
    put = _PUT[target.wire]
    return lambda v, made: put(wire_value(target, is_present(v)), made)


def _optional(inner: Writing, branch: int, null: int | None) -> Writing:
    def write(value: Any, made: bytearray) -> None:
        if value is None and null is not None:
            put_long(null, made)
        else:
            put_long(branch, made)
            inner(is_present(value), made)

    return write


def chosen(target: Choice, value: Any) -> int | None:
    """The place of the member that has the value of a union; None for null.

    Raises:
        BodyError: There is none and no null, or there are several.
    """
    some = [] if value is None else [i for i, m in enumerate(target.members) if value[m[0]] is not None]
    if len(some) > 1:
        names = " and ".join(target.members[i][0] for i in some)
        raise BodyError(f"a union has one value, and {names} are not NULL")
    if not some and target.null is None:
        raise BodyError("NULL, where the schema has no null")
    return some[0] if some else None


def _choice(target: Choice) -> Writing:
    inner = [writing(m[1]) for m in target.members]

    def write(value: Any, made: bytearray) -> None:
        place = chosen(target, value)
        if place is None:
            assert target.null is not None
            put_long(target.null, made)
            return
        name, _, branch, _ = target.members[place]
        put_long(branch, made)
        inner[place](value[name], made)

    return write


def _array(inner: Writing) -> Writing:
    def write(value: Any, made: bytearray) -> None:
        if is_present(value):
            put_long(len(value), made)
            for i, item in enumerate(value):
                try:
                    inner(item, made)
                except BodyError as e:
                    e.path.append(f"[{i}]")
                    raise
        made.append(0)

    return write


def entries_of(value: Any) -> list[tuple[str, Any]]:
    """The entries of a map as Java's HashMap has them: each key once, in its order."""
    found = dict(is_present(value))
    keys = list(found)
    return [(keys[i], found[keys[i]]) for i in java_order(keys)] if len(keys) > 1 else list(found.items())


def _map(inner: Writing) -> Writing:
    def write(value: Any, made: bytearray) -> None:
        entries = entries_of(value)
        if entries:
            put_long(len(entries), made)
            for key, item in entries:
                _put_bytes(key.encode(), made)
                try:
                    inner(item, made)
                except BodyError as e:
                    e.path.append(f"[{key!r}]")
                    raise
        made.append(0)

    return write


def _record(fields: list[tuple[str, Writing]]) -> Writing:
    def write(value: Any, made: bytearray) -> None:
        is_present(value)
        for name, inner in fields:
            try:
                inner(value[name], made)
            except BodyError as e:
                e.path.append(f".{name}")
                raise

    return write
