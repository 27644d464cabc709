"""Encodes rows as Avro's JSON, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from kdsl.formats import Encoded
from kdsl.types import model as t
from kdsl.types.strings.numbers import format_double, format_float
from kdsl_formats._avro.model import Json, schema_type
from kdsl_formats._avro.reference_decoder import BodyError
from kdsl_formats._avro.reference_encoder import entries_in_order, require_value, wire_value
from kdsl_formats._avro.write_steps import ArrayOf, MapOf, Optional, RecordOf, Value, WriteStep, plan_write
from kdsl_formats._columns.fallback import write_fallback_rows
from kdsl_formats.json.reference_encoder import escape

WriteValue = Callable[[Any], str]


class JsonBodyEncoder:
    """Encodes rows as Avro's JSON.

    Args:
        schema: The schema of the rows.
        row: Their type.
        exact_units: Whether timestamps are in the unit of the schema.
    """

    def __init__(self, schema: Json, row: t.Row, *, exact_units: bool) -> None:
        """Prepare the writing of rows; `AvroTypeError` if the schema is invalid or cannot hold their type."""
        self._write = _writer_of(plan_write(schema_type(schema), row, exact_units=exact_units))

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Encode rows, whatever their kinds; rows that the schema does not allow become bad records."""
        return write_fallback_rows(
            rows, None, np.ones(len(rows), dtype=bool), lambda value: self._write(value).encode()
        )


def _writer_of(step: WriteStep) -> WriteValue:
    """The function that writes a column's values; it raises `BodyError` for one that the schema does not allow."""
    match step:
        case Value():
            text = _WRITERS[step.wire]
            return lambda v: text(wire_value(step, require_value(v)))
        case Optional(inner=inner, null=null, name=name):
            return _optional_writer(_writer_of(inner), escape(name), nullable=null is not None)
        case ArrayOf(inner=inner):
            return _array_writer(_writer_of(inner))
        case MapOf(inner=inner):
            return _map_writer(_writer_of(inner))
        case RecordOf(fields=fields):
            return _record_writer([(name, escape(name), _writer_of(inner)) for name, inner in fields])
    raise AssertionError(step)  # derived schemas contain nothing else


def _name_or_number(text: str) -> str:
    """A floating-point number as JSON; NaN and infinities are in quotes, as Jackson writes them."""
    return text if text[-1].isdigit() else f'"{text}"'


_WRITERS: dict[str, WriteValue] = {
    "boolean": lambda v: "true" if v else "false",
    "int": str,
    "long": str,
    "float": lambda v: _name_or_number(format_float(v)),
    "double": lambda v: _name_or_number(format_double(v)),
    "string": escape,
    "bytes": lambda v: escape(v.decode("iso-8859-1")),
}


def _optional_writer(inner: WriteValue, name: str, *, nullable: bool) -> WriteValue:
    """The function that writes a value in an object with the name of its type, and None as ``null`` if `nullable`.

    Otherwise it raises `BodyError` for None. It also raises that of ``inner``.
    """

    def write(value: Any) -> str:
        if value is None and nullable:
            return "null"
        return f"{{{name}:{inner(require_value(value))}}}"

    return write


def _array_writer(inner: WriteValue) -> WriteValue:
    """The function that writes a list as JSON, in a string; it raises `BodyError` for None.

    It adds the index of the item to the path of a `BodyError`.
    """

    def write(value: Any) -> str:
        items = []
        for i, item in enumerate(require_value(value)):
            try:
                items.append(inner(item))
            except BodyError as e:
                e.path.append(f"[{i}]")
                raise
        return f"[{','.join(items)}]"

    return write


def _map_writer(inner: WriteValue) -> WriteValue:
    """The function that writes lists of pairs as objects, each key once with its last value.

    The order is that of Java's HashMap. It raises `BodyError` for None, and adds the key to the path of a `BodyError`.
    """

    def write(value: Any) -> str:
        entries = []
        for key, item in entries_in_order(value):
            try:
                entries.append(f"{escape(key)}:{inner(item)}")
            except BodyError as e:
                e.path.append(f"[{key!r}]")
                raise
        return f"{{{','.join(entries)}}}"

    return write


def _record_writer(fields: list[tuple[str, str, WriteValue]]) -> WriteValue:
    """The function that writes dicts as objects, from the name of each field, its JSON and its writer.

    It raises `BodyError` for None, and adds the name of the field to the path of a `BodyError`.
    """

    def write(value: Any) -> str:
        require_value(value)
        fields_written = []
        for name, shown, inner in fields:
            try:
                fields_written.append(f"{shown}:{inner(value[name])}")
            except BodyError as e:
                e.path.append(f".{name}")
                raise
        return f"{{{','.join(fields_written)}}}"

    return write
