"""Rows to Avro's JSON, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from kdsl.formats import Encoded
from kdsl.types import model as t
from kdsl.types.texts.numbers import double_text, float_text
from kdsl_formats._avro.model import Json, schema_type
from kdsl_formats._avro.reference_decoder import BodyError
from kdsl_formats._avro.reference_encoder import entries_of, is_present, wire_value
from kdsl_formats._avro.target import ArrayOf, MapOf, Optional, RecordOf, Target, Value, target_of
from kdsl_formats._columns.doubts import mended
from kdsl_formats.json.reference_encoder import escaped

Writing = Callable[[Any], str]


class JsonBodyEncoder:
    """Writes a row as Avro's JSON.

    Args:
        schema: The schema of the rows.
        row: Their type.
        exact_units: Whether timestamps are in the unit that the schema says.
    """

    def __init__(self, schema: Json, row: t.Row, *, exact_units: bool) -> None:
        self._write = _writing(target_of(schema_type(schema), row, exact_units=exact_units))

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Write rows."""
        return mended(rows, None, np.ones(len(rows), dtype=bool), lambda value: self._write(value).encode())


def _writing(target: Target) -> Writing:
    """What writes a column's values."""
    match target:
        case Value():
            text = _TEXTS[target.wire]
            return lambda v: text(wire_value(target, is_present(v)))
        case Optional(inner=inner, null=null, name=name):
            return _optional(_writing(inner), escaped(name), nullable=null is not None)
        case ArrayOf(inner=inner):
            return _array(_writing(inner))
        case MapOf(inner=inner):
            return _map(_writing(inner))
        case RecordOf(fields=fields):
            return _record([(name, escaped(name), _writing(inner)) for name, inner in fields])
    raise AssertionError(target)  # a schema that is derived from a table has nothing else


def _name_or_number(text: str) -> str:
    """The text of a floating number; what is no number is a text, as Jackson writes it."""
    return text if text[-1].isdigit() else f'"{text}"'


_TEXTS: dict[str, Writing] = {
    "boolean": lambda v: "true" if v else "false",
    "int": str,
    "long": str,
    "float": lambda v: _name_or_number(float_text(v)),
    "double": lambda v: _name_or_number(double_text(v)),
    "string": escaped,
    "bytes": lambda v: escaped(v.decode("iso-8859-1")),
}


def _optional(inner: Writing, name: str, *, nullable: bool) -> Writing:
    def write(value: Any) -> str:
        if value is None and nullable:
            return "null"
        return f"{{{name}:{inner(is_present(value))}}}"

    return write


def _array(inner: Writing) -> Writing:
    def write(value: Any) -> str:
        made = []
        for i, item in enumerate(is_present(value)):
            try:
                made.append(inner(item))
            except BodyError as e:
                e.path.append(f"[{i}]")
                raise
        return f"[{','.join(made)}]"

    return write


def _map(inner: Writing) -> Writing:
    def write(value: Any) -> str:
        made = []
        for key, item in entries_of(value):
            try:
                made.append(f"{escaped(key)}:{inner(item)}")
            except BodyError as e:
                e.path.append(f"[{key!r}]")
                raise
        return f"{{{','.join(made)}}}"

    return write


def _record(fields: list[tuple[str, str, Writing]]) -> Writing:
    def write(value: Any) -> str:
        is_present(value)
        made = []
        for name, shown, inner in fields:
            try:
                made.append(f"{shown}:{inner(value[name])}")
            except BodyError as e:
                e.path.append(f".{name}")
                raise
        return f"{{{','.join(made)}}}"

    return write
