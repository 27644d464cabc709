"""Writes a table as an Avro schema: the one that kdsl and Flink write messages with, plus docs and defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from kdsl.declare.definition import MISSING, ColumnDef, TableDef
from kdsl.errors import fail_on
from kdsl.formats import Side
from kdsl.resolve.keys import value_columns
from kdsl.schemas.model import CodegenError
from kdsl.types import model as t
from kdsl_formats.avro.schemas import AvroTypeError, schema_of_columns

_PLAIN = (t.Boolean, t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double, t.Char, t.VarChar)


def to_avro(table: TableDef, *, side: Side = "value") -> str:
    """Write the Avro schema of a table's messages, as JSON.

    Args:
        table: The table.
        side: Whether to write the schema of the message key or of the message value.
    """
    fail_on(table.problems, table.name)
    columns = _columns(table, side)
    if not columns:
        raise CodegenError(
            f"{table.name} has no columns in the message {side}, so there is no schema to write; declare a column of "
            f"the {side}"
        )
    prefix = table.options.key_prefix if side == "key" else table.options.value_prefix
    chosen = table.key_format if side == "key" else table.value_format
    row = t.Row(tuple(t.Field(c.name.removeprefix(prefix), c.type, c.comment) for c in columns), nullable=False)
    try:
        schema = schema_of_columns(chosen, row)
    except AvroTypeError as e:
        raise CodegenError(f"{table.name}: Avro cannot represent its columns: {e}") from None
    schema = _with_docs(schema, row)
    if table.comment is not None:
        schema = {
            **{k: v for k, v in schema.items() if k != "fields"},
            "doc": table.comment,
            "fields": schema["fields"],
        }
    for column, field in zip(columns, schema["fields"], strict=True):
        if not column.type.nullable and column.default is not MISSING:
            field.update(dict(_write_default(column)))
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _columns(table: TableDef, side: Side) -> list[ColumnDef]:
    """Return the columns of a side of the message, in the order of the message."""
    if side == "value":
        return list(value_columns(table))
    by_name = {c.name: c for c in table.physical}
    return [by_name[name] for name in table.message_key if name in by_name]


def _with_docs(schema: Any, kind: t.DataType) -> Any:
    """Return a copy of a schema of type ``kind`` with the comments of its rows' fields as docs."""
    if isinstance(schema, list):
        return [s if s == "null" else _with_docs(s, kind) for s in schema]
    if not isinstance(schema, dict):
        return schema
    match kind:
        case t.Row(fields=fields) if "fields" in schema:
            members = []
            for member, field in zip(schema["fields"], fields, strict=True):
                doc = {} if field.comment is None else {"doc": field.comment}
                rest = {k: v for k, v in member.items() if k not in ("name", "type")}
                members.append({"name": member["name"], **doc, "type": _with_docs(member["type"], field.type), **rest})
            return {**schema, "fields": members}
        case t.Array(element=element):
            return {**schema, "items": _with_docs(schema["items"], element)}
        case t.Map(value=value):
            return {**schema, "values": _with_docs(schema["values"], value)}
        case _:
            return schema


def _write_default(column: ColumnDef) -> Iterator[tuple[str, Any]]:
    """Yield ``"default"`` and a default in Avro's JSON form; nothing for others, such as a date or a filled array."""
    value, kind = column.default, column.type
    if isinstance(kind, _PLAIN):
        yield "default", value
    elif isinstance(value, bytes):
        yield "default", value.decode("latin-1")
    elif isinstance(kind, t.Array | t.Map) and not value:
        yield "default", type(value)()
    elif isinstance(kind, t.Decimal) and isinstance(value, Decimal | int):
        unscaled = int(Decimal(value).scaleb(kind.scale))
        data = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
        yield "default", data.decode("latin-1")
