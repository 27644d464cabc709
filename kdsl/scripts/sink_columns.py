"""Matches the columns of a query with those of a sink, by position as in SQL, with Flink's implicit casts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from kdsl.ddl.tables import DeclaredTable
from kdsl.declare.definition import ColumnDef
from kdsl.errors import Problem, Where, listing, nearest, pluralize
from kdsl.flink_sql.expressions.casts import NoCastError, cast, is_assignable
from kdsl.flink_sql.expressions.values import TypedSql
from kdsl.scripts.queries.translator import TranslatedQuery
from kdsl.types import model as t


@attrs.frozen
class SinkColumn:
    """A column that is written to a sink.

    Attributes:
        name: Its name in the sink.
        type: Its type in the sink.
        query_type: The type of the query's column; None for a NULL.
        index: The index of the query's column; None if the value is a constant or NULL.
        constant: The Spark SQL of the constant.
    """

    name: str
    type: t.DataType
    query_type: t.DataType | None
    index: int | None = None
    constant: str | None = None


def list_writable_columns(table: DeclaredTable) -> tuple[ColumnDef, ...]:
    """The columns that can be written to a sink: those in the message, and metadata that is not VIRTUAL."""
    return tuple(c for c in table.columns if c.role == "physical" or (c.role == "metadata" and not c.virtual))


def match_columns(
    table: DeclaredTable, query: TranslatedQuery, names: Sequence[str], constants: Mapping[str, TypedSql]
) -> tuple[tuple[SinkColumn, ...], list[Problem]]:
    """Match each column of a sink that can be written with a column of the query or a constant.

    Args:
        table: The sink.
        query: The query whose rows are written.
        names: The columns that the query writes, in its order; empty means all that can be written and are not in
            ``constants``.
        constants: The columns of ``PARTITION (name = value)``.

    Returns:
        The columns that can be written, in the order of the sink, NULL for those that nothing is written to; empty if
        names are wrong or named twice, or the numbers of columns differ. And the problems: these, types that do not
        match, and NOT NULL columns that nothing is written to.
    """
    sink = list_writable_columns(table)
    by_name = {c.name: c for c in sink}
    problems: list[Problem] = []
    for name in [*names, *constants]:
        if name not in by_name:
            hint = nearest(name, by_name)
            message = f"{table.name} has no column {name!r} that can be written{hint}"
            problems.append(_create_problem("insert-column", message, f"use {listing(by_name)}", name))
    twice = {name for name, count in Counter([*names, *constants]).items() if count > 1}
    once = "name it once, and select one value for it"
    problems += [_create_problem("insert-column", f"the column {n!r} is named twice", once, n) for n in twice]
    wanted = [by_name[n] for n in names if n in by_name] if names else [c for c in sink if c.name not in constants]
    fields = query.columns.fields
    if problems:
        return (), problems
    if len(fields) != len(wanted):
        selected, taken = (", ".join(f"{c.name} {c.type.spelling}" for c in each) for each in (fields, wanted))
        message = (
            f"the query has {pluralize(len(fields), 'column')} ({selected}), and {table.name} takes {len(wanted)} "
            f"({taken})"
        )
        unwritten = [c.name for c in table.columns if c not in sink]
        fix = "select the columns that the table takes, in its order"
        fix += f"; {listing(unwritten)} cannot be written" if unwritten else ""
        return (), [Problem("insert-count", message, fix)]
    columns: dict[str, SinkColumn] = {}
    for index, (field, column) in enumerate(zip(fields, wanted, strict=True)):
        columns[column.name] = SinkColumn(column.name, column.type, field.type, index)
        if not is_assignable(field.type, column.type):
            message = f"column {index + 1} of the query, {field.name!r}, is {field.type.spelling}, and "
            message += f"{table.name}.{column.name} is {column.type.spelling}"
            problems.append(_create_problem("insert-type", message, _advise_cast(field.type, column.type), column.name))
    for name, value in constants.items():
        columns[name] = SinkColumn(name, by_name[name].type, value.type, constant=value.text)
        if not is_assignable(value.type, by_name[name].type):
            message = f"the constant of {name!r} is {value.spelling}, and the column {by_name[name].type.spelling}"
            fix = _advise_cast(value.type, by_name[name].type)
            problems.append(_create_problem("insert-type", message, fix, name))
    for column in sink:
        if column.name not in columns:
            columns[column.name] = SinkColumn(column.name, column.type, None)
            if not column.type.nullable:
                message = f"the column {column.name!r} is NOT NULL, and the statement writes no value to it"
                fix = f"name it in INSERT INTO {table.name} (…), and select a value for it"
                problems.append(_create_problem("insert-null", message, fix, column.name))
    return tuple(columns[c.name] for c in sink), problems


def _advise_cast(have: t.DataType | None, want: t.DataType) -> str:
    """The advice to cast a value, or what to write if there is no such cast."""
    try:
        cast(TypedSql("NULL", have), want)
    except NoCastError as e:
        return e.fix
    return f"write CAST(… AS {want.spelling})"


def _create_problem(code: str, message: str, fix: str, column: str) -> Problem:
    """Return a problem at a column of the sink."""
    return Problem(code, message, fix, Where(column=column))
