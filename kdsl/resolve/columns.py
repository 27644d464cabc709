"""The columns by themselves: there are some, their names are distinct, Spark can hold their types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, listing
from kdsl.formats import Direction
from kdsl.options import Spelling
from kdsl.resolve.rule import problem
from kdsl.types import model as t

SPARK_PRECISION = 6


def some_columns(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """A table has columns, and a sink has some that it can write."""
    if not table.columns:
        yield problem(table, "no-columns", "the table has no columns", "declare at least one")
    elif direction == "write" and not any(c.role != "computed" and not c.virtual for c in table.columns):
        message = "every column is virtual or computed, so there is nothing to write"
        yield problem(table, "nothing-to-write", message, "declare physical columns")


def distinct_names(table: TableDef, _: Direction) -> Iterator[Problem]:
    """A name is declared once; names that differ only in case clash unless Spark is case sensitive."""
    counts = Counter(c.name for c in table.columns)
    for name in (n for n, count in counts.items() if count > 1):
        column = [c for c in table.columns if c.name == name][-1]
        yield problem(table, "column-repeated", f"the column {name!r} is declared twice", "rename one", column=column)
    for names in case_clashes(counts):
        message = f"the columns {listing(names)} differ only in letter case, which Spark does not tell apart by default"
        fix = "rename one, or set spark.sql.caseSensitive to true"
        column = next(c for c in table.columns if c.name == names[-1])
        yield problem(table, "column-case", message, fix, column=column, severity="warning")
    for column in table.columns:
        if not column.name:
            message, fix = "a column has an empty name", "give it one"
            yield problem(table, "column-name", message, fix, column=column)
        rows = [kind for kind in _inside(column.type) if isinstance(kind, t.Row)]
        for names in (clash for row in rows for clash in case_clashes(row.names)):
            message = (
                f"its members {listing(names)} differ only in letter case, which Spark does not tell apart by default"
            )
            fix = "rename one, or set spark.sql.caseSensitive to true"
            yield problem(table, "column-case", message, fix, column=column, severity="warning")


def case_clashes(names: Iterable[str]) -> list[list[str]]:
    """Groups of different names that are equal but for letter case."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(name.lower(), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def precision(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Spark holds microseconds, so finer digits of a declared precision are cut."""
    for column in table.columns:
        for kind in _inside(column.type):
            if isinstance(kind, t.Time | t.Timestamp | t.TimestampLtz) and kind.precision > SPARK_PRECISION:
                message = (
                    f"the type {kind.spelling} is finer than Spark, which holds microseconds; further digits are cut"
                )
                fix = f"write {kind.name}({SPARK_PRECISION})"
                yield problem(table, "precision", message, fix, column=column, severity="warning")


def _inside(kind: t.DataType) -> Iterator[t.DataType]:
    yield kind
    for child in t.children(kind):
        yield from _inside(child)


def primary_key(table: TableDef, _: Direction) -> Iterator[Problem]:
    """A primary key needs a format that carries changes (RULES PK-1), and columns that exist."""
    if not table.primary_key:
        return
    by_name = {c.name: c for c in table.columns}
    physical = [c.name for c in table.columns if c.role != "computed"]
    unknown = [name for name in dict.fromkeys(table.primary_key) if name not in physical]
    if unknown:
        message = f"the primary key names {listing(unknown)}, which {'is' if len(unknown) == 1 else 'are'} no column"
        yield problem(
            table, "primary-key-column", message, f"name some of {listing(physical)}", column=by_name.get(unknown[0])
        )
    twice = sorted({name for name in table.primary_key if table.primary_key.count(name) > 1})
    if twice:
        message = f"the primary key names {listing(twice)} more than once"
        yield problem(table, "primary-key-repeated", message, "name each column once", column=by_name.get(twice[0]))
    chosen = table.value_format
    if chosen is not None and chosen.insert_only and table.upserts is None:
        message = (
            f"the format {chosen.identifier!r} only inserts, so a table of the connector 'kafka' cannot keep the "
            f"promise of the primary key ({', '.join(table.primary_key)})"
        )
        how = {Spelling.PYTHON: "declare an UpsertTable"}.get(table.spelling, "use the connector 'upsert-kafka'")
        fix = f"{how}, which keeps the last row of each key; or make them key columns instead of a primary key"
        yield problem(table, "primary-key", message, fix, column=by_name.get(table.primary_key[0]))


def layout(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """A topic's partitions and buckets are not the table's to lay out: a sink refuses the clauses that do."""
    for clause, where in table.layout.items():
        if direction == "write":
            message = f"{clause} says how the rows of a table lie, which a sink of the connector 'kafka' cannot obey"
            fix = "remove it; key columns decide which partition of the topic a row goes to"
            yield problem(table, "layout", message, fix, where=where)
        else:
            message = f"{clause} has no effect on a read from a topic"
            yield problem(table, "layout", message, "remove it", where=where, severity="warning")
