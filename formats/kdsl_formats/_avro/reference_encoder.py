"""The reference encoder of Avro bodies: it writes rows one by one and defines the bytes of a row."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable
from typing import Any

from kdsl.types import model as t
from kdsl_formats._avro.hash_map import java_order
from kdsl_formats._avro.reference_decoder import BodyError
from kdsl_formats._avro.write_steps import (
    ArrayOf,
    Choice,
    MapOf,
    Nothing,
    Optional,
    RecordOf,
    Value,
    WriteStep,
)
from kdsl_formats._columns.unscaled import write_number

WriteValue = Callable[[Any, bytearray], None]
"""Appends a value to a body."""

_EXACT = decimal.Context(prec=200, traps=[decimal.Inexact])


class ReferenceEncoder:
    """Encodes one row at a time."""

    def __init__(self, step: WriteStep) -> None:
        self._write = writer_of(step)

    def body(self, value: Any) -> bytes:
        """Encode a row; its values are those of `plain_values`."""
        body = bytearray()
        self._write(value, body)
        return bytes(body)


def wire_value(step: Value, value: Any) -> Any:
    """Convert a column's value other than NULL to its form on the wire: a number, a boolean, a string or bytes.

    The value is one of `plain_values`: a time is in nanoseconds and a timestamp in microseconds. They are rounded down
    to the unit of the type.
    """
    match step.column:
        case t.Time():
            return value // step.unit
        case t.Timestamp() | t.TimestampLtz():
            number = value * 1000 // step.unit
            if number.bit_length() > 63:
                raise BodyError("the timestamp is too far away for the schema's unit")
            return number
        case t.Decimal():
            return _decimal_bytes(step, value)
    if step.wire == "enum":
        if value not in step.symbols:
            raise BodyError(f"{value!r} is not a symbol of the enum {step.name}")
        return value
    if step.wire == "fixed" and len(value) != step.size:
        raise BodyError(f"{step.name} has {step.size} bytes, and the value has {len(value)}")
    return value


def _decimal_bytes(step: Value, value: decimal.Decimal) -> bytes:
    """The bytes of a decimal with the schema's scale."""
    try:
        number = int(value.scaleb(step.scale, _EXACT).to_integral_exact(context=_EXACT))
    except decimal.Inexact:
        raise BodyError(f"{value} has more digits after the decimal point than the schema's {step.scale}") from None
    if step.wire != "fixed":
        return write_number(number)
    try:
        return number.to_bytes(step.size, "big", signed=True)
    except OverflowError:
        raise BodyError(f"{value} does not fit in the {step.size} bytes of {step.name}") from None


def require_value(value: Any) -> Any:
    """Return the value if it is not NULL; the schema has no null."""
    if value is None:
        raise BodyError("the value is NULL, but the schema has no null")
    return value


def put_long(number: int, body: bytearray) -> None:
    """Append a signed number to the body, zig-zag encoded, as a varint."""
    raw = (number << 1) ^ (number >> 63)
    while raw >= 0x80:
        body.append(raw & 0x7F | 0x80)
        raw >>= 7
    body.append(raw)


def _put_bytes(data: bytes, body: bytearray) -> None:
    """Append the number of bytes, and the bytes, to the body."""
    put_long(len(data), body)
    body += data


_PUT: dict[str, WriteValue] = {
    "boolean": lambda v, body: body.append(bool(v)),
    "int": put_long,
    "long": put_long,
    "float": lambda v, body: body.extend(struct.pack("<f", v)),
    "double": lambda v, body: body.extend(struct.pack("<d", v)),
    "bytes": _put_bytes,
    "string": lambda v, body: _put_bytes(v.encode(), body),
    "fixed": lambda v, body: body.extend(v),
}


def writer_of(step: WriteStep) -> WriteValue:
    """The function that writes a column's values; it raises `BodyError` for one that the schema does not allow."""
    match step:
        case Value():
            return _value_writer(step)
        case Optional(inner=inner, branch=branch, null=null):
            return _optional_writer(writer_of(inner), branch, null)
        case Choice():
            return _choice_writer(step)
        case ArrayOf(inner=inner):
            return _array_writer(writer_of(inner))
        case MapOf(inner=inner):
            return _map_writer(writer_of(inner))
        case RecordOf(fields=fields):
            return _record_writer([(name, writer_of(inner)) for name, inner in fields])
        case Nothing():
            return _write_null
    raise AssertionError(step)


def _write_null(value: Any, _body: bytearray) -> None:
    """Write nothing, for NULL."""
    if value is not None:
        raise BodyError("the schema has only null, but there is a value")


def _value_writer(step: Value) -> WriteValue:
    """The function that writes a value without parts; `BodyError` for NULL, and as in `wire_value`."""
    if step.wire == "enum":
        return lambda v, body: put_long(step.symbols.index(wire_value(step, require_value(v))), body)
    put = _PUT[step.wire]
    return lambda v, body: put(wire_value(step, require_value(v)), body)


def _optional_writer(inner: WriteValue, branch: int, null: int | None) -> WriteValue:
    """The function that writes a union of one type; NULL is a `BodyError` if the union has no null.

    It also raises that of ``inner``.
    """

    def write(value: Any, body: bytearray) -> None:
        if value is None and null is not None:
            put_long(null, body)
        else:
            put_long(branch, body)
            inner(require_value(value), body)

    return write


def choose_member(step: Choice, value: Any) -> int | None:
    """The index of the member that has the value of a union; None for null."""
    indexes = [] if value is None else [i for i, m in enumerate(step.members) if value[m[0]] is not None]
    if len(indexes) > 1:
        names = " and ".join(step.members[i][0] for i in indexes)
        raise BodyError(f"a union takes one value, but {names} are not NULL")
    if not indexes and step.null is None:
        raise BodyError("the value is NULL, but the schema has no null")
    return indexes[0] if indexes else None


def _choice_writer(step: Choice) -> WriteValue:
    """The function that writes a union of several types, from a row with a member for each.

    NULL, or a row without a value, is written as the branch of null. It raises `BodyError` as `choose_member` and the
    functions of the members do.
    """
    inner = [writer_of(m[1]) for m in step.members]

    def write(value: Any, body: bytearray) -> None:
        index = choose_member(step, value)
        if index is None:
            assert step.null is not None
            put_long(step.null, body)
            return
        name, _, branch, _ = step.members[index]
        put_long(branch, body)
        inner[index](value[name], body)

    return write


def _array_writer(inner: WriteValue) -> WriteValue:
    """The function that writes an array as one block; it raises `BodyError` for NULL.

    It adds the index of the item to the path of a `BodyError`.
    """

    def write(value: Any, body: bytearray) -> None:
        if require_value(value):
            put_long(len(value), body)
            for i, item in enumerate(value):
                try:
                    inner(item, body)
                except BodyError as e:
                    e.path.append(f"[{i}]")
                    raise
        body.append(0)

    return write


def entries_in_order(value: Any) -> list[tuple[str, Any]]:
    """The entries of a map, each key once with its last value, in the order of Java's HashMap."""
    entries = dict(require_value(value))
    keys = list(entries)
    return [(keys[i], entries[keys[i]]) for i in java_order(keys)] if len(keys) > 1 else list(entries.items())


def _map_writer(inner: WriteValue) -> WriteValue:
    """The function that writes a map as one block, in the order of Java's HashMap; it raises `BodyError` for NULL.

    It adds the key to the path of a `BodyError`.
    """

    def write(value: Any, body: bytearray) -> None:
        entries = entries_in_order(value)
        if entries:
            put_long(len(entries), body)
            for key, item in entries:
                _put_bytes(key.encode(), body)
                try:
                    inner(item, body)
                except BodyError as e:
                    e.path.append(f"[{key!r}]")
                    raise
        body.append(0)

    return write


def _record_writer(fields: list[tuple[str, WriteValue]]) -> WriteValue:
    """The function that writes the fields of a record; it raises `BodyError` for NULL.

    It adds the name of the field to the path of a `BodyError`.
    """

    def write(value: Any, body: bytearray) -> None:
        require_value(value)
        for name, inner in fields:
            try:
                inner(value[name], body)
            except BodyError as e:
                e.path.append(f".{name}")
                raise

    return write
