"""Writes tables as Flink's DDL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta

from kdsl.codegen.secret import Placeholders
from kdsl.codegen.with_options import with_clause_options
from kdsl.declare.definition import MISSING, ColumnDef, TableDef, WatermarkDef
from kdsl.durations import parse_duration
from kdsl.flink_sql.expressions.translator import translate_expression
from kdsl.flink_sql.expressions.values import TypedSql
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.schemas.model import CodegenError, comment_lines
from kdsl.types import model as t
from kdsl.types.sql import quote_name


def to_ddl(table: TableDef) -> str:
    """Write a table as a ``CREATE TABLE`` statement of Flink's SQL, after comments on what it does not contain."""
    return write_ddl([table])[0]


def write_ddl(tables: Sequence[TableDef]) -> tuple[str, list[str]]:
    """Write tables as a script, and return it with notes on what it does not contain; it raises what `to_ddl` does.

    The notes are also comments in the script.
    """
    statements, all_notes = [], list[str]()
    for table in tables:
        statement, notes = _write_statement(table)
        statements.append("".join(f"-- {line}\n" for note in notes for line in comment_lines(note)) + statement)
        all_notes += notes
    return "\n".join(statements), all_notes


def _write_statement(table: TableDef) -> tuple[str, list[str]]:
    """Write a table as ``CREATE TABLE``; also return notes about what it cannot express, and about replaced secrets."""
    placeholders = Placeholders()
    options = with_clause_options(table, placeholders)
    notes = [*placeholders.notes, *_describe_losses(table)]
    lines = [_write_column(table, column, notes) for column in table.columns]
    if len(table.watermarks) > 1:
        raise CodegenError(
            f"{table.name} has {len(table.watermarks)} watermarks, but a statement can have only one; keep one of them"
        )
    lines += [_write_watermark(table, w) for w in table.watermarks]
    if table.primary_key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quote_name, table.primary_key))}) NOT ENFORCED")
    body = " (\n" + ",\n".join(f"  {line}" for line in lines) + "\n)" if lines else ""
    comment = f" COMMENT {literal(table.comment)}" if table.comment is not None else ""
    clause = ",\n".join(f"  {literal(key)} = {literal(value)}" for key, value in options.items())
    return f"CREATE TABLE {quote_name(table.name)}{body}{comment} WITH (\n{clause}\n);\n", notes


def _describe_losses(table: TableDef) -> Iterator[str]:
    """Describe what the statement of a table cannot express: defaults, and nullable columns in the primary key."""
    for column in table.columns:
        if column.default is not MISSING:
            yield f"not included: the default of {column.name!r} ({column.default!r})"
        if column.type.nullable and column.name in table.primary_key:
            yield f"{column.name!r} is in the primary key, which makes it NOT NULL here"


def literal(string: str) -> str:
    """Write a string as a literal of SQL."""
    return "'{}'".format(string.replace("'", "''"))


def _write_column(table: TableDef, column: ColumnDef, notes: list[str]) -> str:
    """Write a column of the statement; a note about its expression may be added to ``notes``."""
    comment = f" COMMENT {literal(column.comment)}" if column.comment is not None else ""
    match column.role:
        case "computed":
            kind = f"AS {_write_expression(table, column, notes)}"
        case "metadata":
            source = "" if column.shows == column.name else f" FROM {literal(column.shows)}"
            kind = f"{column.type} METADATA{source}{' VIRTUAL' if column.virtual else ''}"
        case _:
            kind = str(column.type)
    return f"{quote_name(column.name)} {kind}{comment}"


def _write_expression(table: TableDef, column: ColumnDef, notes: list[str]) -> str:
    """Write a computed column's expression: one that means the same in Flink, or Spark's with a note in ``notes``."""
    assert column.expression is not None
    if column.expression.column is not None:
        raise CodegenError(
            f"{table.name}.{column.name} is computed by a Python function that calls Spark, which SQL cannot express; "
            "declare it with expression('...')"
        )
    if column.expression.flink is not None:
        return column.expression.flink
    text = column.expression.text
    types = {c.name: c.type for c in table.columns if c.role != "computed"}
    cast = f"CAST({text} AS {column.type.as_nullable()})"
    for candidate in (text, cast):
        translated = _translate(candidate, types)
        if translated is not None and _is_equivalent(translated.text, candidate) and translated.type == column.type:
            return candidate
    notes.append(f"the expression of {column.name!r} is Spark's SQL, which may have another meaning in Flink: {text}")
    return cast


def _translate(text: str, types: dict[str, t.DataType]) -> TypedSql | None:
    """Translate an expression from Flink's SQL to Spark's, with its type; None if it cannot be translated."""
    try:
        return translate_expression(text, types)
    except UntranslatableError:
        return None


def _is_equivalent(a: str, b: str) -> bool:
    """Whether two expressions are equal, except for outer parentheses, backquotes and the types of numbers."""
    return _normalize(a) == _normalize(b)


def _normalize(text: str) -> str:
    """Return an expression in upper case without casts of integers, backquotes, blanks and outer parentheses."""
    while (shorter := _NUMBER.sub(r"\1", text)) != text:
        text = shorter
    text = re.sub(r"[`\s]", "", text).upper()
    return text[1:-1] if text.startswith("(") and text.endswith(")") and "(" not in text[1:] else text


_NUMBER = re.compile(r"CAST\((\d+) AS [A-Z]+\)")


def _write_watermark(table: TableDef, watermark: WatermarkDef) -> str:
    """Write the ``WATERMARK`` clause."""
    column = quote_name(watermark.column)
    try:
        length = parse_duration(watermark.delay)
    except ValueError as e:
        raise CodegenError(
            f"{table.name}.{watermark.column}: the watermark's delay {watermark.delay!r} is invalid: {e}; write a "
            "delay such as '5 seconds'"
        ) from None
    return f"WATERMARK FOR {column} AS {column}" + (f" - {_write_interval(length)}" if length else "")


def _write_interval(length: timedelta) -> str:
    """Write a duration as an INTERVAL in the longest unit that needs no fraction and at most two digits.

    If there is none, it is in seconds with as many digits as needed.
    """
    micros = length // timedelta(microseconds=1)
    for unit, size in (("DAY", 86_400), ("HOUR", 3_600), ("MINUTE", 60)):
        number, rest = divmod(micros, size * 1_000_000)
        if not rest and number <= _SHORT:
            return f"INTERVAL '{number}' {unit}"
    seconds, rest = divmod(micros, 1_000_000)
    digits = f"{rest:06d}".rstrip("0")
    long = "" if seconds <= _SHORT and not digits else f"({len(str(seconds))}{', 6' if digits else ''})"
    return f"INTERVAL '{seconds}{f'.{digits}' if digits else ''}' SECOND{long}"


_SHORT = 99  # the greatest value of a unit without a precision
