"""Avro's JSON to rows, one message after the other.

A value of a union has the name of its type around it; bytes are a text of the characters U+0000 to U+00FF.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl.types.texts.numbers import exact, parse_double, to_float
from kdsl_formats._avro.model import Json, Type, schema_type
from kdsl_formats._avro.reference_decoder import BodyError
from kdsl_formats._avro.resolution import Entries, Items, Null, Record, Scalar, Step, Union, conversion, resolve
from kdsl_formats._columns.doubts import Odd
from kdsl_formats.json.document import Fractional, Integer, clean, parse

Reading = Callable[[Any], Any]

_BITS = {"int": 32, "long": 64}
_MOST_DIGITS = 400  # of a number that is written out
_NAMES = ("NaN", "Infinity", "-Infinity", "INF", "-INF")


class JsonBodyDecoder:
    """Reads messages that hold a row in Avro's JSON.

    Args:
        schema: The schema of the rows.
        row: Their type.
        exact_units: Whether timestamps are in the unit that the schema says.
    """

    def __init__(self, schema: Json, row: t.Row, *, exact_units: bool) -> None:
        kind = schema_type(schema)
        self.type = arrow_type(row)
        self._read = _reading(resolve(kind, kind, row, exact_units=exact_units), kind)

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Read an array of messages; a null one gives no row, what follows the row is not looked at."""
        held = np.flatnonzero(np.asarray(messages.is_valid()))
        odd = Odd.read(messages, held, lambda message: [self._read(parse(message))])
        return odd.decoded(self.type, len(messages))


def _reading(step: Step, kind: Type) -> Reading:
    """What reads the JSON of a value; the type is that of the step on the wire."""
    match step:
        case Scalar():
            return _scalar(step)
        case Union(branches=branches):
            return _union([_reading(b, k) for b, k in zip(branches, kind.branches, strict=True)], kind)
        case Items(inner=inner, wire=wire):
            return _items(_reading(inner, wire))
        case Entries(inner=inner, wire=wire):
            return _entries(_reading(inner, wire))
        case Record(steps=steps):
            fields = {f.name: f.type for f in kind.fields}
            return _record({name: _reading(inner, fields[name]) for inner, name in steps if name is not None})
        case Null():
            return lambda _value: None
    raise AssertionError(step)  # a schema that is derived from a table has nothing else


def _expected(what: str, found: Any) -> BodyError:
    names = {dict: "an object", list: "an array", bool: "a boolean", type(None): "null"}
    number = isinstance(found, Integer | Fractional)
    told = "a number" if number else names.get(type(found), "a text")
    return BodyError(f"expected {what}, found {told}")


def _scalar(step: Scalar) -> Reading:
    wire = _WIRE[step.wire]
    if step.target == "string":
        return wire
    convert = conversion(step)

    def read(value: Any) -> Any:
        found = wire(value)
        try:
            made = convert(found)
        except ValueError as e:
            raise BodyError(str(e)) from None
        return to_float(made) if isinstance(step.column, t.Float) else made

    return read


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _expected("a boolean", value)
    return value


def _whole(bits: int) -> Reading:
    def read(value: Any) -> int:
        if not isinstance(value, Integer | Fractional):
            raise _expected("a number", value)
        if len(value) > _MOST_DIGITS:
            raise BodyError(f"a number of {len(value)} characters is no number of {bits} bits")
        try:
            number = exact(value)
        except ArithmeticError:  # an exponent beyond every number
            raise BodyError(f"{value} is no whole number of {bits} bits") from None
        if number.copy_abs() > 1 << bits or number != int(number):  # abs would round
            raise BodyError(f"{value} is no whole number of {bits} bits")
        if not -1 << bits - 1 <= number < 1 << bits - 1:
            raise BodyError(f"{value} is no whole number of {bits} bits")
        return int(number)

    return read


def _floating(value: Any) -> float:
    if isinstance(value, Integer | Fractional):
        return parse_double(value)
    if isinstance(value, str) and value in _NAMES:
        return float(value)
    raise _expected("a number", value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, Integer | Fractional):
        raise _expected("a text", value)
    return clean(value)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str) or isinstance(value, Integer | Fractional):
        raise _expected("a text", value)
    try:
        return value.encode("iso-8859-1")
    except UnicodeEncodeError:
        raise BodyError("a text of bytes holds a character above U+00FF") from None


_WIRE: dict[str, Reading] = {
    "boolean": _boolean,
    "int": _whole(_BITS["int"]),
    "long": _whole(_BITS["long"]),
    "float": _floating,
    "double": _floating,
    "string": _text,
    "bytes": _bytes,
}


def _union(branches: list[Reading], kind: Type) -> Reading:
    names = {b.called: read for b, read in zip(kind.branches, branches, strict=True) if b.kind != "null"}
    nullable = len(names) < len(branches)

    def read(value: Any) -> Any:
        if value is None and nullable:
            return None
        if not isinstance(value, dict) or len(value) != 1:
            raise _expected(f"null or an object with the name of the type ({', '.join(names)})", value)
        ((name, inside),) = value.items()
        if name not in names:
            raise BodyError(f"a union has no type {name!r}; it has {', '.join(names)}")
        return names[name](inside)

    return read


def _items(inner: Reading) -> Reading:
    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _expected("an array", value)
        made = []
        for i, item in enumerate(value):
            try:
                made.append(inner(item))
            except BodyError as e:
                e.path.append(f"[{i}]")
                raise
        return made

    return read


def _entries(inner: Reading) -> Reading:
    def read(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise _expected("an object", value)
        made: dict[str, Any] = {}
        for key, item in value.items():
            try:
                made[clean(key)] = inner(item)
            except BodyError as e:
                e.path.append(f"[{key!r}]")
                raise
        return list(made.items())

    return read


def _record(fields: dict[str, Reading]) -> Reading:
    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _expected("an object", value)
        made = {}
        for name, inner in fields.items():
            if name not in value:
                raise BodyError(f"the field {name!r} is missing")
            try:
                made[name] = inner(value[name])
            except BodyError as e:
                e.path.append(f".{name}")
                raise
        unknown = value.keys() - fields.keys()
        if unknown:
            raise BodyError(f"the schema has no field {', '.join(map(repr, sorted(unknown)))}")
        return made

    return read
