"""The columns of a query matched with those of a sink, by position as in SQL, with the casts that need no CAST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from kdsl.declare.ddl.tables import DeclaredTable
from kdsl.declare.definition import ColumnDef
from kdsl.declare.translate import Query, Value
from kdsl.declare.translate.casts import goes_into
from kdsl.errors import Problem, Where, listing, nearest
from kdsl.types import model as t


@attrs.frozen
class Column:
    """A column as a sink gets it.

    Attributes:
        name: The sink's name.
        type: The sink's type.
        given: The type that the query gives; None for a NULL.
        index: Which column of the query it is; None where it has a constant, or NULL.
        constant: The Spark SQL of its constant value.
    """

    name: str
    type: t.DataType
    given: t.DataType | None
    index: int | None = None
    constant: str | None = None


def written(table: DeclaredTable) -> tuple[ColumnDef, ...]:
    """The columns that a sink takes: those in the message, and metadata that is not VIRTUAL."""
    return tuple(c for c in table.columns if c.role == "physical" or (c.role == "metadata" and not c.virtual))


def matched(
    table: DeclaredTable, query: Query, names: Sequence[str], constants: Mapping[str, Value]
) -> tuple[tuple[Column, ...], list[Problem]]:
    """Each column of a sink with its column of the query, and what does not fit.

    Args:
        table: The sink.
        query: What is written.
        names: The columns that the query gives, in its order; none means all.
        constants: The columns of ``PARTITION (name = value)``.
    """
    sink = written(table)
    by_name = {c.name: c for c in sink}
    problems: list[Problem] = []
    for name in [*names, *constants]:
        if name not in by_name:
            hint = nearest(name, by_name)
            message = f"{table.name} does not write a column {name!r}{hint}"
            problems.append(_problem("insert-column", message, f"use {listing(by_name)}", name))
    twice = {name for name in names if list(names).count(name) > 1}
    problems += [_problem("insert-column", f"the column {n!r} is named twice", "name it once", n) for n in twice]
    wanted = [by_name[n] for n in names if n in by_name] if names else [c for c in sink if c.name not in constants]
    given = query.columns.fields
    if problems:
        return (), problems
    if len(given) != len(wanted):
        message = f"the query gives {len(given)} columns ({_spelled(given)}), and {table.name} takes {len(wanted)} "
        message += f"({', '.join(f'{c.name} {c.type.spelling}' for c in wanted)})"
        unwritten = [c.name for c in table.columns if c not in sink]
        fix = "select as many columns as the table takes, in its order"
        fix += f"; {listing(unwritten)} cannot be written" if unwritten else ""
        return (), [Problem("insert-count", message, fix)]
    found: dict[str, Column] = {}
    for index, (field, column) in enumerate(zip(given, wanted, strict=True)):
        found[column.name] = Column(column.name, column.type, field.type, index)
        if not goes_into(field.type, column.type):
            message = f"column {index + 1} of the query, {field.name!r}, is {field.type.spelling}, and "
            message += f"{table.name}.{column.name} is {column.type.spelling}"
            fix = f"write CAST(… AS {column.type.spelling}) in the query"
            problems.append(_problem("insert-type", message, fix, column.name))
    for name, value in constants.items():
        found[name] = Column(name, by_name[name].type, value.type, constant=value.text)
        if not goes_into(value.type, by_name[name].type):
            message = f"the constant of {name!r} is {value.spelling}, and the column {by_name[name].type.spelling}"
            problems.append(_problem("insert-type", message, "write CAST(… AS …)", name))
    for column in sink:
        if column.name not in found:
            found[column.name] = Column(column.name, column.type, None)
            if not column.type.nullable:
                message = f"the column {column.name!r} is NOT NULL, and the statement gives it no value"
                problems.append(_problem("insert-null", message, "name it in INSERT INTO t (…)", column.name))
    return tuple(found[c.name] for c in sink), problems


def _spelled(fields: Sequence[t.Field]) -> str:
    return ", ".join(f"{f.name} {f.type.spelling}" for f in fields)


def _problem(code: str, message: str, fix: str, column: str) -> Problem:
    return Problem(code, message, fix, Where(column=column))
