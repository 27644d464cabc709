"""Writes tables as YAML documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kdsl.codegen.secret import Placeholders
from kdsl.codegen.with_options import with_clause_options
from kdsl.declare.definition import MISSING, ColumnDef, TableDef
from kdsl.documents import write_yaml_text
from kdsl.schemas.model import CodegenError, comment_lines


def to_yaml(table: TableDef) -> str:
    """Write a table as a YAML document, which `kdsl.load_tables` reads, after comments on what it does not contain."""
    return write_yaml([table])[0]


def write_yaml(tables: Sequence[TableDef]) -> tuple[str, list[str]]:
    """Write tables as a document, and return it with notes on what it lacks; it raises what `to_yaml` does.

    The notes are also comments at its beginning.
    """
    notes: list[str] = []
    document = {"tables": [_convert_table(table, notes) for table in tables]}
    text = write_yaml_text(document)
    return "".join(f"# {line}\n" for note in notes for line in comment_lines(note)) + text, notes


def _convert_table(table: TableDef, notes: list[str]) -> dict[str, Any]:
    """Convert a table to a mapping of a YAML document, with references in place of secrets.

    Notes on what it does not contain, and on the secrets, are added to ``notes``.
    """
    placeholders = Placeholders()
    options = with_clause_options(table, placeholders)
    notes += [f"{table.name}: {note}" for note in placeholders.notes]
    notes += [
        f"{table.name}: not included: the default of {c.name!r} ({c.default!r})"
        for c in table.columns
        if c.default is not MISSING
    ]
    entry: dict[str, Any] = {"name": table.name}
    if table.comment is not None:
        entry["comment"] = table.comment
    entry["columns"] = [_convert_column(table, column) for column in table.columns]
    if table.primary_key:
        entry["primary_key"] = list(table.primary_key)
    if len(table.watermarks) > 1:
        raise CodegenError(
            f"{table.name} has {len(table.watermarks)} watermarks, but a document can have only one for a table; keep "
            "one of them"
        )
    for watermark in table.watermarks:
        entry["watermark"] = {"column": watermark.column, "delay": watermark.delay}
    return entry | {"options": options}


def _convert_column(table: TableDef, column: ColumnDef) -> dict[str, Any]:
    """Convert a column to a mapping of a YAML document: its name and type, what it is, and its comment, if any."""
    entry: dict[str, Any] = {"name": column.name, "type": str(column.type)}
    if column.role == "metadata":
        entry["metadata"] = True if column.shows == column.name else column.shows
        if column.virtual:
            entry["virtual"] = True
    if column.role == "computed":
        assert column.expression is not None
        if column.expression.column is not None:
            raise CodegenError(
                f"{table.name}.{column.name} is computed by a Python function that calls Spark, which SQL cannot "
                "express; declare it with expression('...')"
            )
        entry["computed"] = column.expression.text
    if column.comment is not None:
        entry["comment"] = column.comment
    return entry
