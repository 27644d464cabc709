"""Metadata columns: their keys exist, can be read or written, and fit their types (RULES MD-1 to MD-12)."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.declare.metadata import IN_VALUE, METADATA
from kdsl.errors import Problem, listing, nearest
from kdsl.formats import Direction
from kdsl.options import Spelling
from kdsl.resolve.keys import value_columns
from kdsl.resolve.rule import problem
from kdsl.types import model as t

STRINGS = (t.Char, t.VarChar)
BYTES = (t.Binary, t.VarBinary)
VIRTUAL = {Spelling.PYTHON: "virtual(...)", Spelling.DDL: "VIRTUAL", Spelling.YAML: "'virtual: true'"}
NUMBERS = (t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double, t.Decimal)


def metadata_columns(table: TableDef, direction: Direction) -> tuple[ColumnDef, ...]:
    """The metadata columns that a direction uses: for a write without the virtual ones."""
    return tuple(c for c in table.columns if c.role == "metadata" and not (direction == "write" and c.virtual))


def check_metadata_keys(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report columns of metadata that does not exist, and written columns of metadata that cannot be written.

    Writes leave out virtual columns. Metadata of a value format that could not be read is not reported.
    """
    several = len(set(table.options.topic)) > 1 or table.options.topic_pattern is not None
    writable = [k.name for k in METADATA.values() if k.writable and (k.name != "topic" or several)]
    readable = [*METADATA, *(IN_VALUE + name for name in (table.value_format.metadata if table.value_format else ()))]
    for column in metadata_columns(table, direction):
        key = column.shows
        if key not in readable and "value" in table.unread and key.startswith(IN_VALUE):
            continue  # it may be metadata of the format that could not be read
        if key not in readable:
            message = f"there is no metadata {key!r}{nearest(key, readable)}"
            yield problem(table, "metadata-key", message, f"use one of {listing(readable)}", column=column)
        elif direction == "write" and key not in writable:
            message = f"the metadata {key!r} cannot be written"
            if key == "topic":
                message += ", because the table names a single topic"
            fix = f"declare the column {VIRTUAL[table.spelling]} if it is only read; writable are {listing(writable)}"
            yield problem(table, "metadata-read-only", message, fix, column=column)


def check_metadata_types(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report metadata columns with a type to which the metadata cannot be cast (MD-5).

    Columns whose type could not be read are left out, and for a write the virtual ones.
    """
    formats = table.value_format.metadata if table.value_format else {}
    types = {key: metadata.type for key, metadata in METADATA.items()}
    types |= {IN_VALUE + name: kind for name, kind in formats.items()}
    for column in metadata_columns(table, direction):
        kind = types.get(column.shows)
        if kind is not None and column.type_known and not castable(kind, column.type):
            message = (
                f"the metadata {column.shows!r} is {kind.spelling}, which cannot be cast to {column.type.spelling}"
            )
            yield problem(table, "metadata-type", message, f"declare the column as {kind.spelling}", column=column)


def castable(kind: t.DataType, to: t.DataType) -> bool:
    """Whether metadata of a type can be cast to another type and back."""
    match kind:
        case t.VarChar():
            return isinstance(to, STRINGS)
        case t.VarBinary():
            return isinstance(to, STRINGS + BYTES)
        case t.Int() | t.BigInt():
            return isinstance(to, NUMBERS + STRINGS)
        case t.TimestampLtz():
            return isinstance(to, (t.TimestampLtz, t.Timestamp, t.Date, *STRINGS))
        case t.Map(key=key, value=value):
            return isinstance(to, t.Map) and castable(key, to.key) and castable(value, to.value)
        case t.Array(element=element):
            return isinstance(to, t.Array) and castable(element, to.element)
        case t.Row(fields=fields):
            return (
                isinstance(to, t.Row)
                and len(fields) == len(to.fields)
                and all(castable(a.type, b.type) for a, b in zip(fields, to.fields, strict=True))
            )
        case _:
            return kind.as_nullable() == to.as_nullable()


def check_headers_once(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a write, each column that writes the same metadata as an earlier one; virtual columns write none.

    ``headers`` and ``header-list`` are the same metadata here (MD-6, MD-7).
    """
    if direction != "write":
        return
    written: dict[str, ColumnDef] = {}
    for column in metadata_columns(table, direction):
        key = "headers" if column.shows == "header-list" else column.shows
        if key in written:
            message = f"both {written[key].name!r} and this column would write the record's {key}"
            yield problem(table, "metadata-twice", message, "declare one of them virtual", column=column)
        written.setdefault(key, column)


def check_raw_key_and_value(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a write, a raw key beside key columns or a key format, and a raw value beside value columns."""
    if direction != "write":
        return
    keys = table.message_key
    values = [c.name for c in value_columns(table)]
    for column in metadata_columns(table, direction):
        if column.shows == "__raw_key__" and (table.key_format is not None or keys):
            message = "the raw key and the key format would both write the message key"
            fix = "declare this column virtual, or remove the key format and its columns"
            yield problem(table, "raw-key", message, fix, column=column)
        if column.shows == "__raw_value__" and values:
            message = f"the raw value and the value columns {listing(values)} would both write the message value"
            fix = "declare this column virtual, or remove the value columns"
            yield problem(table, "raw-value", message, fix, column=column)
