"""Tables as YAML documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from kdsl.codegen.model import CodegenError
from kdsl.codegen.secret import Placeholders
from kdsl.codegen.with_options import with_options
from kdsl.declare.definition import MISSING, ColumnDef, TableDef


def to_yaml(table: TableDef) -> str:
    """A table as a YAML document, which `kdsl.load_tables` reads.

    What a document has no words for (the default of a column) is listed in comments at its top.

    Raises:
        ResolveError: The table was not read without problems.
        CodegenError: The table says something that no document can, as an expression that only Python works out.
    """
    return yaml_of([table])[0]


def yaml_of(tables: Sequence[TableDef]) -> tuple[str, list[str]]:
    """Tables as a document, and what it does not say; see `to_yaml`."""
    notes: list[str] = []
    document = {"tables": [_table(table, notes) for table in tables]}
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    return "".join(f"# {line}\n" for note in notes for line in note.splitlines()) + text, notes


def _table(table: TableDef, notes: list[str]) -> dict[str, Any]:
    placeholders = Placeholders()
    options = with_options(table, placeholders)
    notes += [f"{table.name}: {note}" for note in placeholders.notes]
    notes += [
        f"{table.name}: not said here: the default of {c.name!r} ({c.default!r})"
        for c in table.columns
        if c.default is not MISSING
    ]
    made: dict[str, Any] = {"name": table.name}
    if table.comment is not None:
        made["comment"] = table.comment
    made["columns"] = [_column(table, column) for column in table.columns]
    if table.primary_key:
        made["primary_key"] = list(table.primary_key)
    if len(table.watermarks) > 1:
        raise CodegenError(f"{table.name} has {len(table.watermarks)} watermarks, and a document has one")
    for watermark in table.watermarks:
        made["watermark"] = {"column": watermark.column, "delay": watermark.delay}
    return made | {"options": options}


def _column(table: TableDef, column: ColumnDef) -> dict[str, Any]:
    made: dict[str, Any] = {"name": column.name, "type": str(column.type)}
    if column.role == "metadata":
        made["metadata"] = True if column.shows == column.name else column.shows
        if column.virtual:
            made["virtual"] = True
    if column.role == "computed":
        assert column.expression is not None
        if column.expression.column is not None:
            raise CodegenError(
                f"{table.name}.{column.name} is worked out by a Python function that calls Spark, which no SQL says"
            )
        made["computed"] = column.expression.text
    if column.comment is not None:
        made["comment"] = column.comment
    return made
