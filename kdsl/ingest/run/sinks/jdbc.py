"""Writes the tables of a database: creates and changes them, and upserts or inserts rows once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

import attrs

from kdsl.changelog.connection import Connection
from kdsl.changelog.postgres import (
    TableChange,
    add_column,
    change_type,
    create_schema,
    create_table,
    postgres_type,
    quote_identifier,
)
from kdsl.changelog.target import Batch
from kdsl.changelog.to_jdbc import JdbcTarget
from kdsl.formats import TableId
from kdsl.ingest.ends import JdbcTables
from kdsl.ingest.projection import TransformedTable
from kdsl.ingest.run.databases import find_database_table
from kdsl.ingest.run.sinks.last_rows import find_last_rows
from kdsl.ingest.run.sinks.writer import SinkTable, TableWriter, identify_each, refuse_large_integers
from kdsl.ingest.schema_changes import NESTED_FIX, Refusal, SchemaChange, Tag
from kdsl.types import model as t
from kdsl.types.widening import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRIAL_FIXES: Mapping[Tag, tuple[str, str]] = {
    "create.table": (
        "remove its cause in the database, or name another sink table in a route",
        "remove its cause in the database, or give the table another name",
    ),
    "add.column": (
        "remove its cause in the database, or rename the column with a projection, or leave it out",
        "remove its cause in the database, or write INSERT INTO … SELECT",
    ),
    "alter.column.type": (
        "remove its cause in the database, or TRY_CAST the column in a projection to the type that it has",
        "remove its cause in the database, or write INSERT INTO … SELECT with a TRY_CAST",
    ),
}
"""What to do about a change that the database refuses, in an ingestion and in a script."""
_SCHEMAS = "SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname = ?"


class JdbcWriter(TableWriter):
    """Writes the tables of a Postgres: one transaction for each batch and table, which also changes its columns.

    `read_schema`, `has_database` and `change_table` add the JDBC driver to a session without it; `write_table` is
    called after one of them.

    Args:
        sink: The sink, with its secrets.
        concurrency: How many tables are written at the same time.
    """

    needs_rows_before = False
    needs_whole_partitions = False
    finds_last_rows = True

    def __init__(self, sink: JdbcTables, concurrency: int) -> None:
        super().__init__(concurrency)
        self._sink = sink
        self._changing = Lock()
        self._started: set[TableId] = set()

    def target(self, table: TableId) -> JdbcTarget:
        """The database table of a sink table, each name in quotes; nothing is connected yet."""
        return find_database_table(self._sink, ".".join(map(quote_identifier, table)))

    def read_schema(self, spark: SparkSession, table: TableId, known: TableSchema | None) -> TableSchema | None:
        """The columns and the primary key of a table; None if there is no such table.

        Raises:
            ChangelogError: The database cannot be reached, or reports an error.
            SecretError: A reference to a secret cannot be resolved.
        """
        del known
        return self.target(table).read_schema(spark)

    def identify(self, spark: SparkSession, tables: Sequence[TableId]) -> dict[TableId, str]:
        """Postgres' numbers of tables; see `SinkWriter.identify`. Errors are those of `read_schema`."""
        return identify_each(spark, {table: self.target(table) for table in tables})

    def has_database(self, spark: SparkSession, database: Sequence[str]) -> bool:
        """Whether a schema exists in the database of the address.

        Raises:
            ChangelogError: The database cannot be reached, or reports an error.
            SecretError: A reference to a secret cannot be resolved.
            ValueError: ``database`` is not one name.
        """
        (schema,) = database
        return bool(self.target((schema, "")).call(spark, lambda connection: connection.query(_SCHEMAS, schema)))

    def refuse(self, spark: SparkSession, changes: Mapping[TableId, Sequence[SchemaChange]]) -> list[Refusal]:
        """Refuse columns of nested types, changes that lose digits, and those that the database refuses.

        See `SinkWriter.refuse`. The database tries each change in a transaction that is rolled back. The table is read
        if a BIGINT becomes DOUBLE.

        Raises:
            ChangelogError: The database cannot be reached, or reports an error that says nothing of a change.
            SecretError: A reference to a secret cannot be resolved.
        """
        refusals: list[Refusal] = []
        tried: list[tuple[TableId, SchemaChange]] = []
        for table, change in ((table, change) for table, own in changes.items() for change in own):
            nested = [f for f in change.columns if postgres_type(f.type) is None]
            own_refusals = [_refuse_type(table, change, field) for field in nested]
            count = partial(self.target(table).count_large_integers, spark)
            if (large := refuse_large_integers(table, change, count)) is not None:
                own_refusals.append(large)
            refusals += own_refusals
            if not own_refusals:
                tried.append((table, change))
        if not tried:
            return refusals
        trials = [
            (self.target(table).table, TableChange(
                partial(_write_changes, [change], ()), change.tag == "create.table", self._sink.lock_timeout
            ))
            for table, change in tried
        ]  # fmt: skip
        for index, reason in self.target(tried[0][0]).try_changes(spark, trials):
            table, change = tried[index]
            column = None if change.tag == "create.table" else change.columns[0].name
            reason = (
                f"the database refuses the change {attrs.evolve(change, record_id=None)}: {' '.join(reason.split())}"
            )
            fix, sql_fix = _TRIAL_FIXES[change.tag]
            refusals.append(
                Refusal(table, column, reason, fix, change.record_id, sql_fix=sql_fix, code="database-change")
            )
        return refusals

    def change_table(
        self, spark: SparkSession, table: TableId, changes: Sequence[SchemaChange], transformed: TransformedTable
    ) -> None:
        """Make changes of a table; see `TableChanger.change_table`. Effects and errors: `change_database_table`."""
        change_database_table(self.target(table), spark, changes, transformed.primary_key)

    def write(self, tables: Sequence[SinkTable], batch: Batch) -> None:
        """Write the tables at the same time; see `TableWriter.write`.

        The last changes of tables of a small batch are found before, in one job for all of them.
        """
        super().write(find_last_rows(tables), batch)

    def write_table(self, table: SinkTable, batch: Batch) -> None:
        """Create or change a table, and upsert its last changes by the primary key, or insert its inserts without one.

        A batch that the table has is skipped, which is logged. At the first write of a table, staging tables of a
        killed run are dropped; a schema that a new table needs is created. Further tables are created as for
        `JdbcTarget.apply`.

        Raises:
            ChangelogError: The database cannot be reached, it or Spark reports an error, or the table has another batch
                with this number or a later one, or lacks a column or the row of a change without all values; or it is
                gone, another one than that of earlier batches, or has lost rows of them.
            SecretError: A reference to a secret cannot be resolved.
        """
        target = attrs.evolve(self.target(table.table), id=table.identity)
        spark, keys, last = table.spark, table.schema.primary_key, table.last
        if table.table not in self._started:
            target.drop_staging_tables(spark, batch.writer)
            self._started.add(table.table)
        changes = table.evolution.changes
        creates = any(change.tag == "create.table" for change in changes)
        if creates and (schema := create_schema(target.table)) is not None:
            with self._changing:  # Postgres fails if two transactions create the same schema at once
                target.call(spark, partial(Connection.run, statement=schema))
        table_change = TableChange(partial(_write_changes, changes, keys), creates, self._sink.lock_timeout)
        rows = table.last_changes() if keys else table.inserts()
        counts = None if last is None else last.count_kinds()
        rows = rows.persist() if counts is None else rows
        try:
            change = table_change if changes else None
            target.apply(rows, keys, table.identify_batch(batch), change, counts)
        finally:
            if counts is None:
                rows.unpersist()


def _refuse_type(table: TableId, change: SchemaChange, field: t.Field) -> Refusal:
    """Refuse a column of a nested type."""
    sql_fix = "declare it as STRING in the table that is copied, in which it is JSON"
    reason = f"a database has no type for {field.type}"
    return Refusal(table, field.name, reason, NESTED_FIX, change.record_id, sql_fix=sql_fix, code="database-type")


def change_database_table(
    target: JdbcTarget, spark: SparkSession, changes: Sequence[SchemaChange], keys: Sequence[str]
) -> None:
    """Make changes of a table of Postgres apart from a batch; each is committed by itself.

    A schema that a new table needs is created. The driver is attached if needed.

    Args:
        target: The table.
        spark: A classic session.
        changes: The changes, in order.
        keys: The primary key of a new table.

    Raises:
        ChangelogError: The driver cannot be attached, or the database cannot be reached or reports an error.
        SecretError: A reference to a secret cannot be resolved.
    """
    creates = any(change.tag == "create.table" for change in changes)
    schema = create_schema(target.table) if creates else None
    statements = [*([schema] if schema else ()), *_write_changes(changes, keys, target.table)]
    target.call(spark, lambda connection: [connection.run(statement) for statement in statements])


def _write_changes(changes: Sequence[SchemaChange], keys: Sequence[str], table: str) -> list[str]:
    """Write the statements that make changes of a table."""
    statements: list[str] = []
    for change in changes:
        match change.tag:
            case "create.table":
                statements.append(create_table(table, change.columns, keys))
            case "add.column":
                statements += (add_column(table, field) for field in change.columns)
            case "alter.column.type":
                assert change.before is not None
                statements.append(change_type(table, change.columns[0], change.before))
    return statements
