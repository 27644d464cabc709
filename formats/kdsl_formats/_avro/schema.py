"""Avro schemas from column types, as the reference derives them, and column types from Avro schemas.

A table's columns become the record ``org.apache.flink.avro.generated.record``; a ROW in the column ``f`` the record
``record_f`` (deeper ones ``record_f_g``); a nullable type the union ``["null", T]``, with the default null where it is a
field (FORMATS section 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kdsl.errors import Problem, Where
from kdsl.types import model as t
from kdsl_formats._avro.model import AvroTypeError, Json, Type, is_name, json_of, schema_type

__all__ = ["AvroTypeError", "Json", "avro_schema", "avro_type_problems", "parsed", "row_of"]

NAMESPACE = "org.apache.flink.avro.generated"
RECORD = "record"
_SIMPLE: dict[type[t.DataType], str] = {
    t.Boolean: "boolean",
    t.TinyInt: "int",
    t.SmallInt: "int",
    t.Int: "int",
    t.BigInt: "long",
    t.Float: "float",
    t.Double: "double",
    t.Char: "string",
    t.VarChar: "string",
    t.Binary: "bytes",
    t.VarBinary: "bytes",
}
_LEGACY_FIX = "set 'timestamp_mapping.legacy' to 'false', or declare a TIMESTAMP(3)"


def avro_schema(row: t.Row, *, legacy_timestamps: bool = True) -> dict[str, Any]:
    """The schema of a table's rows, as the reference derives it.

    Args:
        row: The columns; their names are those on the wire. A nullable row becomes the union with null.
        legacy_timestamps: Whether a TIMESTAMP is ``timestamp-millis`` and a TIMESTAMP_LTZ has no form; otherwise a
            TIMESTAMP is ``local-timestamp-…`` and a TIMESTAMP_LTZ ``timestamp-…``. Inside of an ARRAY, MAP or MULTISET
            it is always true, as in the reference.

    Raises:
        AvroTypeError: A column has a type, or a name, that such a schema cannot hold.
    """
    return _Deriving(legacy_timestamps).record(row, RECORD, "")


def avro_type_problems(row: t.Row, legacy_timestamps: bool) -> Iterator[Problem]:
    """What `avro_schema` would refuse, for each column at once (rules F-11 and F-12)."""
    raise NotImplementedError


def row_of(schema: Json, *, legacy_timestamps: bool = True) -> t.Row:
    """The column types of an Avro schema's records.

    Args:
        schema: A record, or a union of a record and null (the row is nullable then).
        legacy_timestamps: Whether ``timestamp-…`` is a TIMESTAMP and ``local-timestamp-…`` a BIGINT, as the reference
            has it by default; otherwise they are TIMESTAMP_LTZ and TIMESTAMP.

    Returns:
        A row whose columns are NOT NULL but where the schema has a union with null. An enum is a STRING, a fixed a
        VARBINARY of its size, a decimal a DECIMAL, a map a MAP from STRING. A union of several types, which the
        reference cannot hold, is a ROW with a nullable column ``member0``, ``member1``, … for each type but null, of
        which one has a value. The type null is a STRING that is always NULL.

    Raises:
        AvroTypeError: It is no schema of records, or a record holds itself.
    """
    raise NotImplementedError


def parsed(text: str) -> Any:
    """The JSON of an Avro schema, checked.

    Raises:
        AvroTypeError: The text is no JSON, or the JSON is no Avro schema.
    """
    schema = json_of(text)
    schema_type(schema)
    return schema
