"""What ``SHOW`` and ``DESCRIBE`` show: the names of catalogs, databases and tables, and the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence

from kdsl.ddl.statements import Show
from kdsl.ddl.tables import DeclaredTable
from kdsl.declare.definition import ColumnDef
from kdsl.scripts.catalogs import ScriptCatalogs
from kdsl.scripts.inferred_tables import InferredTables
from kdsl.scripts.script_plan import Listing
from kdsl.types import model as t

_DESCRIBED = ("name", "type", "null", "key", "extras", "watermark")


def show_names(
    statement: Show, catalogs: ScriptCatalogs, inferred_tables: InferredTables, own: Sequence[str]
) -> Listing | None:
    """What a ``SHOW`` statement shows; None if the cluster is not asked or does not answer, or a name does not exist.

    None also for the tables of a sink's catalog.

    Args:
        statement: The statement.
        catalogs: The catalogs of the script.
        inferred_tables: Their tables; the cluster may be asked for their names.
        own: The names of the tables and views of the script.
    """
    names: Sequence[str] | None
    match statement.kind:
        case "CATALOGS":
            title, names = "catalog name", sorted(catalogs.names())
        case "DATABASES":
            catalog = catalogs.current[0] if statement.within is None else statement.within.last
            known = statement.within is None or catalogs.exists(catalog, statement.within.where)
            title, names = "database name", [catalogs.database_of(catalog)] if known else None
        case "TABLES":
            title, names = "table name", _list_tables(statement, catalogs, inferred_tables, own)
    if names is None:
        return None
    shown = [name for name in names if statement.like is None or statement.like.matches(name)]
    return Listing((title,), tuple((name,) for name in shown))


def _list_tables(
    statement: Show, catalogs: ScriptCatalogs, inferred_tables: InferredTables, own: Sequence[str]
) -> Sequence[str] | None:
    """Return the names among which the pattern of ``SHOW TABLES`` chooses, or None as `show_names` does.

    They are those of the script, or those of a Kafka catalog. Problems are recorded.
    """
    catalog, database = catalogs.complete_database(statement.within)
    if statement.within is not None and not catalogs.has_database(catalog, database, statement.within.where):
        return None
    return own if catalogs.is_own(catalog) else inferred_tables.list_table_names(catalog, statement.where)


def describe_table(table: DeclaredTable) -> Listing:
    """List the columns of a table as Flink's ``DESCRIBE`` does, with a column of comments if there are any."""
    key = table.statement.primary_key
    primary = () if key is None else key.columns
    marks = {mark.column: mark.expression.text for mark in table.statement.watermarks}
    return _make_listing(
        [_describe_column(c, primary, marks.get(c.name)) for c in table.columns], [c.comment for c in table.columns]
    )


def describe_row(row: t.Row) -> Listing:
    """List the columns of a view as `describe_table` does, without keys and watermarks."""
    columns = [ColumnDef(f.name, f.type) for f in row.fields]
    return _make_listing([_describe_column(c, (), None) for c in columns], [f.comment for f in row.fields])


def _describe_column(column: ColumnDef, primary: Sequence[str], mark: str | None) -> tuple[str | None, ...]:
    """Return the row that describes a column: name, type, nullability, key, expression or metadata, and watermark.

    ``primary`` is the primary key; ``mark`` the SQL of the column's watermark, None without one.
    """
    extras = None
    if column.role == "metadata":
        source = f" FROM '{column.metadata_key}'" if column.metadata_key is not None else ""
        extras = f"METADATA{source}{' VIRTUAL' if column.virtual else ''}"
    elif column.expression is not None:
        extras = f"AS {column.expression.flink or column.expression.text}"
    null = "TRUE" if column.type.nullable else "FALSE"
    key = f"PRI({', '.join(primary)})" if column.name in primary else None
    return (column.name, str(column.type.as_nullable()), null, key, extras, mark)


def _make_listing(rows: Sequence[tuple[str | None, ...]], comments: Sequence[str | None]) -> Listing:
    """Make a listing of columns that are described; the column ``comment`` is left out if there are no comments."""
    if not any(comments):
        return Listing(_DESCRIBED, tuple(rows))
    with_comments = ((*row, comment) for row, comment in zip(rows, comments, strict=True))
    return Listing((*_DESCRIBED, "comment"), tuple(with_comments))
