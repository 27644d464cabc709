"""Tables of Postgres: their columns as column types, and the SQL that creates and changes them.

The types are those of https://www.postgresql.org/docs/current/datatype.html.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import attrs

from kdsl.changelog.connection import Connection
from kdsl.types import model as t
from kdsl.types.widening import TableSchema

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, array_position(i.indkey::int[], a.attnum::int)
FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = to_regclass(?) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_SIMPLE: dict[str, t.DataType] = {
    "boolean": t.Boolean(),
    "smallint": t.SmallInt(),
    "integer": t.Int(),
    "bigint": t.BigInt(),
    "numeric": t.Decimal(38, 18),
    "real": t.Float(),
    "double precision": t.Double(),
    "bytea": t.BYTES,
    "date": t.Date(),
}
_WITH_LENGTH = re.compile(r"([a-z ]+?)(?:\((\d+)(?:,(\d+))?\))?( with(?:out)? time zone)?")
_MICROS = 6
_MAX_DIGITS = 38


def read_postgres_schema(connection: Connection, table: str) -> TableSchema | None:
    """Read the columns and the primary key of a table; None if there is no such table.

    Args:
        connection: A connection to Postgres.
        table: The table, as in SQL.
    """
    rows = connection.query(_COLUMNS, table)
    columns = tuple(
        t.Field(name or "", column_type(kind or "").as_nullable(required != "t")) for name, kind, required, _ in rows
    )
    keys = sorted((int(position), name or "") for name, _, _, position in rows if position is not None)
    return TableSchema(columns, tuple(name for _, name in keys)) if rows else None


def column_type(name: str) -> t.DataType:
    """The column type of a type of Postgres; STRING for those that kdsl has no type for.

    A NUMERIC without a precision, or of more than 38 digits, is DECIMAL(38, 18).

    Args:
        name: The type, as ``format_type`` spells it.
    """
    match = _WITH_LENGTH.fullmatch(name)
    base, first, second, zone = match.groups() if match is not None else (name, None, None, None)
    length = None if first is None else int(first)
    match base:
        case "numeric" if length is not None:
            return t.Decimal(length, int(second or 0)) if length <= _MAX_DIGITS else t.Decimal(38, 18)
        case "character varying" if length is not None:
            return t.VarChar(length)
        case "character" if length is not None:
            return t.Char(length)
        case "timestamp":
            digits = _MICROS if length is None else length
            return t.TimestampLtz(digits) if zone == " with time zone" else t.Timestamp(digits)
        case "time" if zone == " without time zone":
            return t.Time(_MICROS if length is None else length)
    return _SIMPLE.get(name, t.STRING)


def postgres_type(kind: t.DataType) -> str | None:
    """The type of Postgres for a column type, with at most 6 digits of a second; None for nested types."""
    match kind:
        case t.Boolean():
            return "boolean"
        case t.TinyInt() | t.SmallInt():
            return "smallint"
        case t.Int():
            return "integer"
        case t.BigInt():
            return "bigint"
        case t.Decimal(precision=precision, scale=scale):
            return f"numeric({precision},{scale})"
        case t.Float():
            return "real"
        case t.Double():
            return "double precision"
        case t.Char(length=length):
            return f"character varying({length})"
        case t.VarChar(length=length):
            return "text" if length == t.STRING.length else f"character varying({length})"
        case t.Binary() | t.VarBinary():
            return "bytea"
        case t.Date():
            return "date"
        case t.Time(precision=precision):
            return f"time({min(precision, _MICROS)})"
        case t.Timestamp(precision=precision):
            return f"timestamp({min(precision, _MICROS)})"
        case t.TimestampLtz(precision=precision):
            return f"timestamp({min(precision, _MICROS)}) with time zone"
    return None


def quote_identifier(name: str) -> str:
    """Put a name in double quotes, and double those in it."""
    return '"{}"'.format(name.replace('"', '""'))


def _definition(field: t.Field) -> str:
    """The definition of a column in SQL, NOT NULL if its type is not nullable."""
    required = "" if field.type.nullable else " NOT NULL"
    return f"{quote_identifier(field.name)} {postgres_type(field.type)}{required}"


def create_schema(table: str) -> str | None:
    """Write the statement that creates the schema that a table is in, if it does not exist; None without a schema."""
    schema, dot, _ = table.rpartition(".")
    return f"CREATE SCHEMA IF NOT EXISTS {schema}" if dot else None


def create_table(table: str, columns: Sequence[t.Field], keys: Sequence[str]) -> str:
    """Write the statement that creates a table, if it does not exist; its schema exists."""
    parts = [_definition(field) for field in columns]
    if keys:
        parts.append(f"PRIMARY KEY ({', '.join(map(quote_identifier, keys))})")
    return f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(parts)})"


def add_column(table: str, field: t.Field) -> str:
    """Write the statement that adds a column; nothing changes if the table has it."""
    return f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {_definition(field)}"


def change_type(table: str, field: t.Field, before: t.DataType) -> str:
    """Write the statement that gives a column a wider type (`kdsl.types.widening.can_change`).

    Bytes that become strings are written in base64. Times with and without a zone never replace each other, for which
    Postgres would use the time zone of the JVM.

    Args:
        table: The table.
        field: The column with its new type.
        before: The type that it has.
    """
    name, kind = quote_identifier(field.name), postgres_type(field.type)
    value = f"{name}::{kind}"
    if isinstance(before, t.Binary | t.VarBinary) and isinstance(field.type, t.Char | t.VarChar):
        value = f"replace(encode({name}, 'base64'), chr(10), '')"
    return f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {kind} USING {value}"


@attrs.frozen
class TableChange:
    """A change of the columns of a Postgres table, which is made in the transaction of a batch.

    Attributes:
        write: Writes its statements for a table of a given name, as in SQL.
        creates: Whether the statements create the table; otherwise it exists.
        lock_timeout: How long a statement waits for a lock.
    """

    write: Callable[[str], Sequence[str]]
    creates: bool
    lock_timeout: timedelta


def write_trial(table: str, change: TableChange) -> Iterator[str]:
    """Yield the statements that make a change of the columns of a table of Postgres, or of an empty copy of it."""
    yield f"SET LOCAL lock_timeout = {change.lock_timeout // timedelta(milliseconds=1)}"
    schema, dot, _ = table.rpartition(".")
    if change.creates:
        if (statement := create_schema(table)) is not None:
            yield statement
        yield from change.write(table)
        return
    name = f"{schema}{dot}kdsl_{uuid.uuid4().hex}"
    yield f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)"
    yield from change.write(name)
