"""Decodes Avro's JSON, one message after the other.

A value of a union is an object with the name of its type; bytes are a string of the characters U+0000 to U+00FF.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from kdsl.formats import Decoded
from kdsl.shown_values import quote_value, show_value
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl.types.strings.numbers import parse_double, parse_exact, to_float
from kdsl_formats._avro.model import Json, Type, schema_type
from kdsl_formats._avro.reference_decoder import BodyError
from kdsl_formats._avro.resolution import resolve
from kdsl_formats._avro.scalar_values import converter_of
from kdsl_formats._avro.steps import Entries, Items, Null, Record, Scalar, Step, Union
from kdsl_formats._columns.fallback import FallbackRows
from kdsl_formats.json.document import Fractional, Integer, parse, replace_surrogates

ReadValue = Callable[[Any], Any]

_BITS = {"int": 32, "long": 64}
_MAX_CHARACTERS = 400  # the longest number
_NON_FINITE = ("NaN", "Infinity", "-Infinity", "INF", "-INF")


class JsonBodyDecoder:
    """Decodes messages that contain a row in Avro's JSON.

    Args:
        schema: The schema of the rows.
        row: Their type.
        exact_units: Whether timestamps are in the unit of the schema.
    """

    def __init__(self, schema: Json, row: t.Row, *, exact_units: bool) -> None:
        """Prepare the reading of rows; `AvroTypeError` if the schema is invalid or does not fit their type."""
        kind = schema_type(schema)
        self.type = arrow_type(row)
        self._read = _reader_of(resolve(kind, kind, row, exact_units=exact_units), kind)

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode messages; null ones produce no row, unreadable ones are bad, and anything after the row is ignored."""
        held = np.flatnonzero(np.asarray(messages.is_valid()))
        fallback_rows = FallbackRows.read(messages, held, lambda message: [self._read(parse(message))])
        return fallback_rows.to_decoded(self.type, len(messages))


def _reader_of(step: Step, kind: Type) -> ReadValue:
    """The function that reads the JSON of a value; called with another value, it raises `BodyError`.

    `kind` is the type of the step on the wire.
    """
    match step:
        case Scalar():
            return _scalar_reader(step)
        case Union(branches=branches):
            return _union_reader([_reader_of(b, k) for b, k in zip(branches, kind.branches, strict=True)], kind)
        case Items(inner=inner, wire=wire):
            return _items_reader(_reader_of(inner, wire))
        case Entries(inner=inner, wire=wire):
            return _entries_reader(_reader_of(inner, wire))
        case Record(steps=steps):
            fields = {f.name: f.type for f in kind.fields}
            return _record_reader({name: _reader_of(inner, fields[name]) for inner, name in steps if name is not None})
        case Null():
            return lambda _value: None
    raise AssertionError(step)  # derived schemas contain nothing else


def _type_error(expected: str, value: Any) -> BodyError:
    """The error of a JSON value with another type than expected."""
    names = {dict: "an object", list: "an array", bool: "a boolean", type(None): "null"}
    number = isinstance(value, Integer | Fractional)
    actual = "a number" if number else names.get(type(value), "a string")
    return BodyError(f"expected {expected}, found {actual}")


def _scalar_reader(step: Scalar) -> ReadValue:
    """The function that reads a value without parts, or raises `BodyError` for one that does not fit.

    A decimal with too many digits becomes None.
    """
    read_wire = _READERS[step.wire]
    if step.target == "string":
        return read_wire
    convert = converter_of(step)

    def read(value: Any) -> Any:
        wire_value = read_wire(value)
        try:
            converted = convert(wire_value)
        except ValueError as e:
            raise BodyError(str(e)) from None
        return to_float(converted) if isinstance(step.column, t.Float) else converted

    return read


def _read_boolean(value: Any) -> bool:
    """Return a JSON boolean."""
    if not isinstance(value, bool):
        raise _type_error("a boolean", value)
    return value


def _integer_reader(bits: int) -> ReadValue:
    """The function that reads a signed integer of some bits, or raises `BodyError` for any other value.

    The number may be spelled with a fraction or an exponent, such as ``1.0``.
    """

    def read(value: Any) -> int:
        if not isinstance(value, Integer | Fractional):
            raise _type_error("a number", value)
        if len(value) > _MAX_CHARACTERS:
            raise BodyError(f"a number of {len(value)} characters is not a number of {bits} bits")
        try:
            number = parse_exact(value)
        except ArithmeticError:  # the exponent is too large
            raise BodyError(f"{show_value(value)} is not an integer of {bits} bits") from None
        if number.copy_abs() > 1 << bits or number != int(number):  # abs would round
            raise BodyError(f"{show_value(value)} is not an integer of {bits} bits")
        if not -1 << bits - 1 <= number < 1 << bits - 1:
            raise BodyError(f"{show_value(value)} is not an integer of {bits} bits")
        return int(number)

    return read


def _read_float(value: Any) -> float:
    """Return a JSON number as a float, infinite if it is too large.

    The value may also be the string ``NaN``, ``Infinity`` or ``INF``; the latter two may have a minus sign.
    """
    if isinstance(value, Integer | Fractional):
        return parse_double(value)
    if isinstance(value, str) and value in _NON_FINITE:
        return float(value)
    raise _type_error("a number", value)


def _read_string(value: Any) -> str:
    """Return a JSON string; lone surrogates are replaced."""
    if not isinstance(value, str) or isinstance(value, Integer | Fractional):
        raise _type_error("a string", value)
    return replace_surrogates(value)


def _read_bytes(value: Any) -> bytes:
    """Return the bytes of a JSON string, whose characters are their numbers."""
    if not isinstance(value, str) or isinstance(value, Integer | Fractional):
        raise _type_error("a string", value)
    try:
        return value.encode("iso-8859-1")
    except UnicodeEncodeError:
        raise BodyError("a string of bytes has a character above U+00FF") from None


_READERS: dict[str, ReadValue] = {
    "boolean": _read_boolean,
    "int": _integer_reader(_BITS["int"]),
    "long": _integer_reader(_BITS["long"]),
    "float": _read_float,
    "double": _read_float,
    "string": _read_string,
    "bytes": _read_bytes,
}


def _union_reader(branches: list[ReadValue], kind: Type) -> ReadValue:
    """The function that reads an object with the name of a type, and null if it is in the union.

    It raises `BodyError` for any other value.
    """
    names = {b.type_name: read for b, read in zip(kind.branches, branches, strict=True) if b.kind != "null"}
    nullable = len(names) < len(branches)

    def read(value: Any) -> Any:
        if value is None and nullable:
            return None
        if not isinstance(value, dict) or len(value) != 1:
            shapes = " or ".join(f'{{"{name}": …}}' for name in names)
            raise _type_error(f"null or {shapes}, as Avro's JSON writes nullable values", value)
        ((name, inside),) = value.items()
        if name not in names:
            raise BodyError(f"a union has no type {quote_value(name)}; it has {', '.join(names)}")
        return names[name](inside)

    return read


def _items_reader(inner: ReadValue) -> ReadValue:
    """The function that reads an array; `BodyError` for any other value.

    It adds the index of the item to the path of a `BodyError`.
    """

    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _type_error("an array", value)
        items = []
        for i, item in enumerate(value):
            try:
                items.append(inner(item))
            except BodyError as e:
                e.path.append(f"[{i}]")
                raise
        return items

    return read


def _entries_reader(inner: ReadValue) -> ReadValue:
    """The function that reads a map, as a list of pairs; `BodyError` for any other value.

    Lone surrogates in keys are replaced; a key that is then repeated has its last value. It adds the key to the path of
    a `BodyError`.
    """

    def read(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise _type_error("an object", value)
        entries: dict[str, Any] = {}
        for key, item in value.items():
            try:
                entries[replace_surrogates(key)] = inner(item)
            except BodyError as e:
                e.path.append(f"[{quote_value(key)}]")
                raise
        return list(entries.items())

    return read


def _record_reader(fields: dict[str, ReadValue]) -> ReadValue:
    """The function that reads a record; `BodyError` if it is not an object with exactly the fields.

    It adds the name of the field to the path of a `BodyError`.
    """

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _type_error("an object", value)
        row = {}
        for name, inner in fields.items():
            if name not in value:
                raise BodyError(f"the field {name!r} is missing")
            try:
                row[name] = inner(value[name])
            except BodyError as e:
                e.path.append(f".{name}")
                raise
        unknown = value.keys() - fields.keys()
        if unknown:
            raise BodyError(f"the schema has no field {', '.join(show_value(repr(name)) for name in sorted(unknown))}")
        return row

    return read
