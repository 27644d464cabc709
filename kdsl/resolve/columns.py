"""The columns by themselves: they exist, their names are distinct, and Spark has their types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.errors import Problem, listing
from kdsl.formats import ROW_KIND, UNAVAILABLE, Direction
from kdsl.options import Spelling
from kdsl.own_columns import explain_reserved, is_reserved
from kdsl.resolve.rule import problem
from kdsl.types import model as t

SPARK_PRECISION = 6
_UNREAD = ("class-decorator", "column-annotation", "column-attribute")
"""The codes of declared columns that are not among the columns of their table."""


def check_has_columns(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report a table without columns, and a sink without columns that it can write."""
    if not table.columns:
        if any(p.code in _UNREAD for p in table.problems):
            return  # declared, but in a way that cannot be read
        yield problem(table, "no-columns", "the table has no columns", "declare at least one")
    elif direction == "write" and not any(c.role != "computed" and not c.virtual for c in table.columns):
        message = "every column is virtual or computed, so there is nothing to write"
        yield problem(table, "nothing-to-write", message, "declare physical columns")


def check_distinct_names(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Report repeated, empty and reserved column names.

    Warn of names of columns, or of members of one row, that differ only in case, which Spark treats as equal.
    """
    counts = Counter(c.name for c in table.columns)
    shared = any(p.code == "column-shared" for p in table.problems)  # a column for each use of one object
    for name in (n for n, count in counts.items() if count > 1 and not shared):
        column = [c for c in table.columns if c.name == name][-1]
        yield problem(table, "column-repeated", f"the column {name!r} is declared twice", "rename one", column=column)
    for names in case_clashes(counts):
        message = f"the columns {listing(names)} differ only in letter case, which Spark treats as equal by default"
        fix = "rename one, or set spark.sql.caseSensitive to true"
        column = next(c for c in table.columns if c.name == names[-1])
        yield problem(table, "column-case", message, fix, column=column, severity="warning")
    for column in table.columns:
        if not column.name:
            message, fix = "a column has an empty name", "name it"
            yield problem(table, "column-name", message, fix, column=column)
        for name in () if table.in_ingestion else find_reserved_names(column.name, column.type):
            fix = _advise_new_name(table, column) if name == column.name else "rename the member"
            yield problem(table, "column-name", explain_reserved(name), fix, column=column)
        rows = [kind for kind in t.walk_types(column.type) if isinstance(kind, t.Row)]
        for names in (clash for row in rows for clash in case_clashes(row.names)):
            message = f"its members {listing(names)} differ only in letter case, which Spark treats as equal by default"
            fix = "rename one, or set spark.sql.caseSensitive to true"
            yield problem(table, "column-case", message, fix, column=column, severity="warning")


def _advise_new_name(table: TableDef, column: ColumnDef) -> str:
    """The advice to rename a column, with what that changes for one that shows a field of the message."""
    if column.role != "physical":
        return "rename the column"
    prefix = table.setting("value_prefix", "v_")
    fix = "rename the column, which then shows the field of its new name; if messages have a field of this name, set "
    return f"{fix}{prefix} and begin the names of all columns of the value with v_"


def find_reserved_names(name: str, kind: t.DataType) -> list[str]:
    """The names that are reserved for kdsl among that of a column and those of its members, at any depth."""
    members = (member for row in t.walk_types(kind) if isinstance(row, t.Row) for member in row.names)
    return [one for one in dict.fromkeys((name, *members)) if is_reserved(one)]


def find_case_clashes(columns: Iterable[t.Field]) -> Iterator[list[str]]:
    """Yield the names of columns, and of members of a row at any depth, that are equal except for letter case."""
    fields = list(columns)
    rows = (kind for f in fields for kind in t.walk_types(f.type) if isinstance(kind, t.Row))
    for names in ([f.name for f in fields], *(row.names for row in rows)):
        yield from case_clashes(names)


def case_clashes(names: Iterable[str]) -> list[list[str]]:
    """Groups of different names that are equal except for letter case; names without such a group are left out."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(name.lower(), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def check_precision(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Warn of types, also nested ones, with digits of a second beyond microseconds, which Spark cuts off."""
    for column in table.columns:
        for kind in t.walk_types(column.type):
            if isinstance(kind, t.Time | t.Timestamp | t.TimestampLtz) and kind.precision > SPARK_PRECISION:
                message = f"the type {kind.spelling} is finer than Spark's microseconds; further digits are cut off"
                fix = f"write {kind.name}({SPARK_PRECISION})"
                yield problem(table, "precision", message, fix, column=column, severity="warning")


def check_primary_key(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Report a primary key with unknown, computed or repeated columns, and one that cannot be enforced (RULES PK-1).

    A format that only inserts rows cannot enforce one, except in an upsert table, or if the key contains the record's
    partition and offset.
    """
    if not table.primary_key:
        return
    by_name = {c.name: c for c in table.columns}
    physical = [c.name for c in table.columns if c.role != "computed"]
    unknown = [name for name in dict.fromkeys(table.primary_key) if name not in physical]
    if unknown:
        which = "column" if len(unknown) == 1 else "columns"
        message = f"the primary key names {listing(unknown)}, but the table has no such {which}"
        yield problem(
            table, "primary-key-column", message, f"choose from {listing(physical)}", column=by_name.get(unknown[0])
        )
    twice = sorted({name for name in table.primary_key if table.primary_key.count(name) > 1})
    if twice:
        message = f"the primary key names {listing(twice)} more than once"
        yield problem(table, "primary-key-repeated", message, "name each column once", column=by_name.get(twice[0]))
    chosen = table.value_format
    if chosen is not None and chosen.insert_only and table.upserts is None and not _identifies_records(table):
        message = (
            f"the format {chosen.identifier!r} only inserts rows, so a table of the connector 'kafka' cannot "
            f"enforce the primary key ({', '.join(table.primary_key)})"
        )
        how, without = "use the connector 'upsert-kafka' with a 'key.format' and a 'value.format'", ""
        if table.spelling is Spelling.PYTHON:
            how, without = "declare an UpsertTable", " (Key[…] instead of PrimaryKey[…])"
        fix = f"{how}, which keeps the last row of each key; or remove the primary key{without}: the rows stay the same"
        yield problem(table, "primary-key", message, fix, column=by_name.get(table.primary_key[0]))


def _identifies_records(table: TableDef) -> bool:
    """Whether the primary key contains the partition and offset, and the topic if there are several."""
    shown = {c.shows for c in table.columns if c.name in table.primary_key}
    one_topic = table.options.topic_pattern is None and len(set(table.options.topic)) == 1
    return {"partition", "offset"} <= shown and (one_topic or "topic" in shown)


def check_layout(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report clauses that lay out partitions and buckets: an error for a sink, a warning for a read."""
    for clause, where in table.layout.items():
        if direction == "write":
            message = f"{clause} defines how rows are laid out, which a sink of the connector 'kafka' cannot do"
            fix = "remove it; key columns decide which partition of the topic a row goes to"
            yield problem(table, "layout", message, fix, where=where)
        else:
            message = f"{clause} has no effect on a read from a topic"
            yield problem(table, "layout", message, "remove it", where=where, severity="warning")


def check_names_of_kdsl(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Report columns that have the name of a column that kdsl adds, in any letter case.

    Tables of ingestions may have such columns.
    """
    if table.in_ingestion:
        return
    chosen = table.value_format
    keeps = chosen is not None and chosen.on_unavailable == "keep" and not table.keeps_rows
    for column in table.columns:
        if table.is_changelog and column.name.lower() == ROW_KIND:
            source = table.options.title if table.upserts else f"the format {table.value_format.identifier!r}"  # type: ignore[union-attr]
            message = f"{source} carries changes, and kdsl adds the column {ROW_KIND!r} with the row kind of each"
            yield problem(table, "row-kind", message, _advise_new_name(table, column), column=column)
        if keeps and column.name.lower() == UNAVAILABLE:
            message = (
                f"with unavailable='keep' kdsl adds the column {UNAVAILABLE!r}, which lists columns without a value"
            )
            yield problem(table, "row-kind", message, _advise_new_name(table, column), column=column)
