"""Reads the tables of a database through its JDBC driver, each with one query, and so as it is at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kdsl.changelog.connection import DatabaseTable
from kdsl.changelog.dialects import product
from kdsl.changelog.postgres import quote_identifier
from kdsl.changelog.to_jdbc import JdbcTarget
from kdsl.errors import ChangelogError, listing, nearest
from kdsl.formats import TableId
from kdsl.ingest.ends import JdbcSnapshot
from kdsl.ingest.ids import format_id
from kdsl.ingest.run.databases import find_database_table
from kdsl.ingest.run.sources.columns import ReadColumn
from kdsl.ingest.run.sources.mysql import OPTIONS, ZERO_DATES, MySqlTable, quote_column, read_mysql_table
from kdsl.ingest.run.sources.postgres import OPTIONS as POSTGRES_OPTIONS, read_postgres_columns
from kdsl.ingest.run.sources.reader import SourceBatch, SourceTable
from kdsl.ingest.selectors import RoutePattern
from kdsl.secrets import Secret
from kdsl.spark_internals.sql_text import parse_column
from kdsl.types import model as t
from kdsl.types.spark import from_spark
from kdsl.types.widening import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MYSQL, _POSTGRES = "mysql", "postgresql"
_SHOWN = 20


class DatabaseReader:
    """Reads the tables of a database once.

    Args:
        source: The source, with its secrets.
    """

    def __init__(self, source: JdbcSnapshot) -> None:
        self._source = source.valid()
        url = self._source.url
        self._product = product(url.reveal() if isinstance(url, Secret) else str(url))

    def read_tables(self, spark: SparkSession, progress: Mapping[str, str]) -> SourceBatch:
        """Find the tables that are selected, and their columns; see `SnapshotReader.read_tables`.

        ``progress`` is ignored. Of MySQL, tables with dates or times are read once, to find values that cannot be
        copied (`read_mysql_table`).

        Raises:
            ChangelogError: The database cannot be reached, a pattern cannot be used or selects no table, or a column
                has a type that the tables of kdsl do not have.
            SecretError: A reference to a secret cannot be resolved.
        """
        del progress
        source = self._source
        every = find_database_table(source, ", ".join(source.tables))
        tables, default = every.call(
            spark, lambda connection: (connection.tables_and_views(), connection.default_schema())
        )
        try:
            selected = select_tables(tables, source.tables, source.excluded, default)
        except ValueError as e:
            raise ChangelogError(f"{every!r}: {e}") from None
        return SourceBatch([self._read_table(spark, table, entry) for table, entry in selected.items()])

    def _read_table(self, spark: SparkSession, table: TableId, entry: DatabaseTable) -> SourceTable:
        """Find the columns and the primary key of a table; its rows are not read yet, except by `read_mysql_table`.

        The driver is attached if needed.
        """
        target = find_database_table(self._source, entry.sql_name)
        key = target.call(spark, lambda connection: connection.primary_key(entry.schema, entry.name))
        fetch = {"fetchsize": str(self._source.fetch_size)}
        if self._product == _MYSQL:
            read = read_mysql_table(spark, target, table, entry, tiny_boolean=self._source.tiny_boolean)
            return _mysql_table(spark, target, table, key, read, {**fetch, **OPTIONS})
        if self._product == _POSTGRES:
            columns = read_postgres_columns(spark, target)
            build = partial(_read_rows, spark, target, columns, {**fetch, **POSTGRES_OPTIONS}, quote_identifier)
            return SourceTable(table, _schema(columns, key), build)
        return self._read_other_table(spark, target, table, key, fetch)

    def _read_other_table(
        self, spark: SparkSession, target: JdbcTarget, table: TableId, key: Sequence[str], fetch: Mapping[str, str]
    ) -> SourceTable:
        """Find the columns of a table of another database, as Spark reads them; rows are not read yet."""
        rows = target.read_rows(spark, options=fetch)
        try:
            types = {f.name: from_spark(f.dataType) for f in rows.schema.fields}
        except TypeError as e:
            raise ChangelogError(f"{target!r} cannot be copied: {e}") from e
        columns = tuple(t.Field(name, kind.as_nullable(name not in key)) for name, kind in types.items())
        return SourceTable(table, TableSchema(columns, tuple(key)), lambda: rows)


def _schema(columns: Sequence[ReadColumn], key: Sequence[str]) -> TableSchema:
    """The columns of a table that is read, nullable except those of its key, and the key."""
    return TableSchema(tuple(t.Field(c.name, c.type.as_nullable(c.name not in key)) for c in columns), tuple(key))


def _mysql_table(
    spark: SparkSession,
    target: JdbcTarget,
    table: TableId,
    key: Sequence[str],
    read: MySqlTable,
    options: Mapping[str, str],
) -> SourceTable:
    """A table of MySQL from what was read of it, with its refusals and its count of zero dates; nothing is read here.

    Columns are nullable except those of the key.
    """
    build = partial(_read_rows, spark, target, read.columns, options, quote_column)
    counts = {ZERO_DATES: read.zero_dates} if read.zero_dates else {}
    return SourceTable(table, _schema(read.columns, key), build, read.refusals, counts)


def _read_rows(
    spark: SparkSession,
    target: JdbcTarget,
    columns: Sequence[ReadColumn],
    options: Mapping[str, str],
    quote: Callable[[str], str],
) -> DataFrame:
    """Read columns with one query, and convert them. The types are read at once, rows only when a job asks for them.

    The driver is attached if needed.
    """
    selected = ", ".join(f"{column.sql} AS {quote(f'c{i}')}" for i, column in enumerate(columns))
    query = f"SELECT {selected} FROM {target.table}"  # noqa: S608  # names are quoted
    rows = target.read_rows(spark, query, options)
    return rows.select(*(parse_column(c.spark_sql(f"c{i}", repr(target))).alias(c.name) for i, c in enumerate(columns)))


def select_tables(
    tables: Sequence[DatabaseTable], patterns: Sequence[str], excluded: Sequence[str], default: str | None
) -> dict[TableId, DatabaseTable]:
    """Select the tables that patterns fit, in the order of the patterns.

    A pattern of one name selects tables of the default schema, whose ids have one name then. A view is selected only by
    a pattern that is its name. A table that several patterns fit has the id of the first.

    Args:
        tables: The tables and views.
        patterns: The patterns.
        excluded: Patterns of tables that are left out.
        default: The default schema.

    Raises:
        ValueError: A pattern of ``patterns`` fits no table, or a pattern cannot be used. One that fits only tables that
            are left out is not an error.
    """
    left_out = {entry for pattern in excluded for _, entry in _match(tables, pattern, default)}
    selected: dict[DatabaseTable, TableId] = {}
    for pattern in patterns:
        fitting = list(_match(tables, pattern, default))
        if not fitting:
            names = sorted(format_id(_id_of(entry, default, full=True)) for entry in tables)
            more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
            raise ValueError(
                f"no table fits the pattern '{pattern}'{nearest(pattern, names)}; there are "
                f"{listing(names[:_SHOWN]) or 'none'}{more}"
            )
        for table, entry in fitting:
            if entry not in left_out:
                selected.setdefault(entry, table)
    return {table: entry for entry, table in selected.items()}


def _match(
    tables: Sequence[DatabaseTable], pattern: str, default: str | None
) -> Iterator[tuple[TableId, DatabaseTable]]:
    """Yield the tables that a pattern fits, with their ids; views only if the pattern is their name.

    A pattern of one name fits only tables of the default schema. ValueError if the pattern cannot be used.
    """
    compiled, has_one_name = RoutePattern.parse(pattern), "." not in pattern.replace(r"\.", "")
    for entry in tables:
        if has_one_name and entry.schema not in (None, default):
            continue
        table = _id_of(entry, default, full=not has_one_name)
        if compiled.match(table) and (not entry.is_view or ".".join(table) == pattern):
            yield table, entry


def _id_of(entry: DatabaseTable, default: str | None, *, full: bool) -> TableId:
    """The id of a table; without its schema if it has none, or, unless it is to be full, if that is the default one."""
    return (
        (entry.name,) if entry.schema is None or (not full and entry.schema == default) else (entry.schema, entry.name)
    )
