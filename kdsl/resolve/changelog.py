"""Tables whose rows are changes: those whose value format carries them."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.declare.definition import TableDef
from kdsl.errors import Problem
from kdsl.formats import ROW_KIND, Direction
from kdsl.resolve.rule import problem


def changes(table: TableDef) -> bool:
    """Whether the rows of a table are changes, so that its DataFrame begins with the row kind."""
    if table.upserts is not None:
        return True
    return table.value_format is not None and not table.value_format.insert_only


def row_kind(table: TableDef, _: Direction) -> Iterator[Problem]:
    """No column of a changelog takes the name of the row kind, in any letter case."""
    if not changes(table):
        return
    for column in table.columns:
        if column.name.lower() == ROW_KIND:
            what = table.options.title if table.upserts else f"the format {table.value_format.identifier!r}"  # type: ignore[union-attr]
            message = f"{what} carries changes, and {ROW_KIND!r} is the column that says of each row which change it is"
            yield problem(table, "row-kind", message, "give this column another name", column=column)
