"""Tables as Flink's DDL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta

from kdsl.codegen.model import CodegenError
from kdsl.codegen.secret import Placeholders
from kdsl.codegen.with_options import with_options
from kdsl.declare.definition import MISSING, ColumnDef, TableDef, WatermarkDef
from kdsl.declare.translate import UntranslatableError, Value, typed_expression
from kdsl.durations import parse_duration
from kdsl.types import model as t
from kdsl.types.sql import quoted


def to_ddl(table: TableDef) -> str:
    """A table as a ``CREATE TABLE`` statement of Flink's SQL.

    What Flink has no words for (the default of a column) is listed in comments above it.

    Raises:
        ResolveError: The table was not read without problems.
        CodegenError: The table says something that no statement can, as an expression that only Python works out.
    """
    return ddl_of([table])[0]


def ddl_of(tables: Sequence[TableDef]) -> tuple[str, list[str]]:
    """Tables as a script, and what it does not say; see `to_ddl`."""
    statements, every = [], list[str]()
    for table in tables:
        text, notes = _statement(table)
        statements.append("".join(f"-- {line}\n" for note in notes for line in note.splitlines()) + text)
        every += notes
    return "\n".join(statements), every


def _statement(table: TableDef) -> tuple[str, list[str]]:
    placeholders = Placeholders()
    options = with_options(table, placeholders)
    notes = [*placeholders.notes, *_unsaid(table)]
    lines = [_column(table, column, notes) for column in table.columns]
    if len(table.watermarks) > 1:
        raise CodegenError(f"{table.name} has {len(table.watermarks)} watermarks, and a statement has one")
    lines += [_watermark(table, w) for w in table.watermarks]
    if table.primary_key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quoted, table.primary_key))}) NOT ENFORCED")
    body = " (\n" + ",\n".join(f"  {line}" for line in lines) + "\n)" if lines else ""
    comment = f" COMMENT {literal(table.comment)}" if table.comment is not None else ""
    clause = ",\n".join(f"  {literal(key)} = {literal(value)}" for key, value in options.items())
    return f"CREATE TABLE {quoted(table.name)}{body}{comment} WITH (\n{clause}\n);\n", notes


def _unsaid(table: TableDef) -> Iterator[str]:
    for column in table.columns:
        if column.default is not MISSING:
            yield f"not said here: the default of {column.name!r} ({column.default!r})"
        if column.type.nullable and column.name in table.primary_key:
            yield f"{column.name!r} is in the primary key, which makes it NOT NULL here"


def literal(text: str) -> str:
    """A text in quotes."""
    return "'{}'".format(text.replace("'", "''"))


def _column(table: TableDef, column: ColumnDef, notes: list[str]) -> str:
    comment = f" COMMENT {literal(column.comment)}" if column.comment is not None else ""
    match column.role:
        case "computed":
            kind = f"AS {_expression(table, column, notes)}"
        case "metadata":
            source = "" if column.shows == column.name else f" FROM {literal(column.shows)}"
            kind = f"{column.type} METADATA{source}{' VIRTUAL' if column.virtual else ''}"
        case _:
            kind = str(column.type)
    return f"{quoted(column.name)} {kind}{comment}"


def _expression(table: TableDef, column: ColumnDef, notes: list[str]) -> str:
    """A computed column's expression, in words that mean the same to Flink where that is known."""
    assert column.expression is not None
    if column.expression.column is not None:
        raise CodegenError(
            f"{table.name}.{column.name} is worked out by a Python function that calls Spark, which no SQL says"
        )
    if column.expression.flink is not None:
        return column.expression.flink
    text = column.expression.text
    types = {c.name: c.type for c in table.columns if c.role != "computed"}
    cast = f"CAST({text} AS {column.type.as_nullable()})"
    for tried in (text, cast):
        found = _read(tried, types)
        if found is not None and _alike(found.text, tried) and found.type == column.type:
            return tried
    notes.append(f"the expression of {column.name!r} is Spark's SQL, which Flink may read otherwise: {text}")
    return cast


def _read(text: str, types: dict[str, t.DataType]) -> Value | None:
    """An expression of Flink's SQL in Spark's, with its type; None where it is none."""
    try:
        return typed_expression(text, types)
    except UntranslatableError:
        return None


def _alike(a: str, b: str) -> bool:
    """Whether two expressions are the same but for brackets around the whole, back-ticks and the types of numbers."""
    return _plain(a) == _plain(b)


def _plain(text: str) -> str:
    while (shorter := _NUMBER.sub(r"\1", text)) != text:
        text = shorter
    text = re.sub(r"[`\s]", "", text).upper()
    return text[1:-1] if text.startswith("(") and text.endswith(")") and "(" not in text[1:] else text


_NUMBER = re.compile(r"CAST\((\d+) AS [A-Z]+\)")


def _watermark(table: TableDef, watermark: WatermarkDef) -> str:
    column = quoted(watermark.column)
    try:
        length = parse_duration(watermark.delay)
    except ValueError as e:
        raise CodegenError(f"{table.name}.{watermark.column}: the watermark's delay is wrong: {e}") from None
    return f"WATERMARK FOR {column} AS {column}" + (f" - {_interval(length)}" if length else "")


def _interval(length: timedelta) -> str:
    micros = length // timedelta(microseconds=1)
    for unit, size in (("DAY", 86_400), ("HOUR", 3_600), ("MINUTE", 60)):
        number, rest = divmod(micros, size * 1_000_000)
        if not rest and number <= _SHORT:
            return f"INTERVAL '{number}' {unit}"
    seconds, rest = divmod(micros, 1_000_000)
    digits = f"{rest:06d}".rstrip("0")
    long = "" if seconds <= _SHORT and not digits else f"({len(str(seconds))}{', 6' if digits else ''})"
    return f"INTERVAL '{seconds}{f'.{digits}' if digits else ''}' SECOND{long}"


_SHORT = 99  # what a unit holds without a precision
