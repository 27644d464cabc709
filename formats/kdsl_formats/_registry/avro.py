"""Avro schemas of a registry: their text, their records, and how they fit the columns of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kdsl.types import model as t
from kdsl_formats._avro.model import MISSING, Json, RecordField, Type, schema_type
from kdsl_formats._avro.resolution import is_named, resolve
from kdsl_formats._avro.steps import find_failures


def schema_text(schema: Json) -> str:
    """The string form of a schema in which it is registered: compact JSON, with all characters as they are."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def record_name(schema: Json) -> str:
    """The full name of the (first) record of a schema, which may be a union with it; its type if it has no record."""
    kind = schema_type(schema)
    records = [one for one in (kind.branches or (kind,)) if one.kind == "record"]
    return records[0].name if records else kind.type_name


def field_names(schema: Json, within: str = "") -> tuple[str, ...]:
    """The names of the fields of a schema's record, which may be in a union with null.

    Args:
        schema: The schema.
        within: A field of the record; its record is used instead.

    Returns:
        The names; empty if there is no such record or field.
    """
    fields = _record_fields(schema_type(schema))
    if within:
        fields = next((_record_fields(field.type) for field in fields if field.name == within), ())
    return tuple(field.name for field in fields)


def null_defaults(schema: Json, within: str = "") -> dict[str, Any]:
    """The defaults, other than null, of a record's fields that may be null; arguments of `field_names`."""
    fields = _record_fields(schema_type(schema))
    if within:
        fields = next((_record_fields(field.type) for field in fields if field.name == within), ())
    return {
        field.name: field.default
        for field in fields
        if field.default not in (MISSING, None) and any(b.kind == "null" for b in field.type.branches)
    }


def _record_fields(kind: Type) -> tuple[RecordField, ...]:
    """The fields of a schema's record, which may be in a union with null; empty if there is no record."""
    return next((one.fields for one in (kind.branches or (kind,)) if one.kind == "record"), ())


def widen_integers(schema: Json, row: t.Row) -> Json:
    """The schema of a record, with ``long`` instead of ``int`` in the fields of BIGINT columns: its bytes are the same.

    Dates and times, which are integers of another type, stay. A schema that is not a record is returned as it is.
    """
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        return schema
    wide = {f.name for f in row.fields if isinstance(f.type, t.BigInt)}
    fields = [{**f, "type": _widen(f["type"])} if f["name"] in wide else f for f in schema["fields"]]
    return {**schema, "fields": fields}


def _widen(kind: Json) -> Json:
    """The type of a field, with ``long`` instead of ``int``, also as a branch of a union."""
    if isinstance(kind, Mapping):
        return {**kind, "type": "long"} if kind.get("type") == "int" and "logicalType" not in kind else kind
    if isinstance(kind, str):
        return "long" if kind == "int" else kind
    return [_widen(branch) for branch in kind]


def has_chosen_record(schema: Json, names: Sequence[str]) -> bool:
    """Whether a writer's schema has a record with one of some names, or is not a record; always without names."""
    kind = schema_type(schema)
    records = [one for one in (kind.branches or (kind,)) if one.kind == "record"]
    return not names or not records or any(is_named(record, names) for record in records)


def find_misfits(writer_schema: Json, row: t.Row, reader_schema: Json, *, records: Sequence[str] = ()) -> Iterator[str]:
    """Yield why no message of a writer's schema can be read into a table; nothing if some can, as of one union branch.

    Args:
        writer_schema: The schema that messages are written with.
        row: The type of the rows.
        reader_schema: The schema that it is resolved to.
        records: The records that are read (`resolve`).
    """
    reader, writer = schema_type(match_nullability(reader_schema, writer_schema)), schema_type(writer_schema)
    if not has_chosen_record(writer_schema, records):
        names = ", ".join(one.name for one in writer.branches or (writer,) if one.kind == "record")
        yield f"it has the record {names}, but 'record-name' is {'; '.join(records)}"
        return
    for path, message in find_failures(resolve(writer, reader, row, exact_units=True, records=records)):
        yield f"{path}: {message}" if path else message


def list_refusals(
    writer_schema: Json, row: t.Row, reader_schema: Json, *, records: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """List the paths and reasons of all values of a writer's schema that cannot be read into a table.

    Unlike `find_misfits`, it lists types of a union that are refused although others can be read.

    Args:
        writer_schema: The schema that messages are written with.
        row: The type of the rows.
        reader_schema: The schema that it is resolved to.
        records: The records that are read (`resolve`).
    """
    reader, writer = schema_type(match_nullability(reader_schema, writer_schema)), schema_type(writer_schema)
    return list(find_failures(resolve(writer, reader, row, exact_units=True, records=records), everywhere=True))


def match_nullability(reader_schema: Json, writer_schema: Json) -> Json:
    """The reader's schema, in a union with null if the writer's is a union and it is not: a null has no row."""
    unions = isinstance(writer_schema, Sequence) and not isinstance(writer_schema, str)
    return ["null", reader_schema] if unions and isinstance(reader_schema, Mapping) else reader_schema
