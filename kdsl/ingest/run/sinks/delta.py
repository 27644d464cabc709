"""Writes the tables of Delta Lake: creates and changes them, and merges or appends rows once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs

from kdsl.changelog.target import Batch, require_same_table
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.formats import TableId
from kdsl.ingest.ends import DeltaTables
from kdsl.ingest.ends.tables import CHANGE_FEED, CHANGE_FEED_COLUMNS
from kdsl.ingest.projection import TransformedTable
from kdsl.ingest.run.sinks.writer import SinkTable, TableWriter, identify_each, refuse_large_integers
from kdsl.ingest.schema_changes import Refusal, SchemaChange
from kdsl.run.checkpoint.folder import open_folder
from kdsl.types import model as t
from kdsl.types.sql import quote_name
from kdsl.types.widening import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEED_BY_DEFAULT = "spark.databricks.delta.properties.defaults.enableChangeDataFeed"


class DeltaWriter(TableWriter):
    """Writes the tables of Delta Lake: one commit for each batch and table, and one before it for new columns.

    What reads or writes a table adds Delta to a session without it.

    Args:
        sink: The sink.
        concurrency: How many tables are written at the same time.
    """

    needs_rows_before = False
    needs_whole_partitions = False

    def __init__(self, sink: DeltaTables, concurrency: int) -> None:
        super().__init__(concurrency)
        self._sink = sink

    def target(self, table: TableId) -> DeltaTarget:
        """The Delta table of a sink table: a folder below the sink's path, or a name in its catalog."""
        if self._sink.path is not None:
            path = "/".join([self._sink.path.rstrip("/"), *table])
            return DeltaTarget(path, is_path=True, schema_evolution=False, creates=False)
        names = ".".join(map(quote_name, [*filter(None, [self._sink.catalog]), *table]))
        return DeltaTarget(names, is_path=False, schema_evolution=False, creates=False)

    def read_schema(self, spark: SparkSession, table: TableId, known: TableSchema | None) -> TableSchema | None:
        """The columns of a table, None if there is none; its primary key, which Delta does not store, is the known one.

        Raises:
            ChangelogError: A column has a type that Kafka tables do not have, or Delta cannot be added to the session.
        """
        columns = self.target(table).read_columns(spark)
        return None if columns is None else TableSchema(columns, () if known is None else known.primary_key)

    def identify(self, spark: SparkSession, tables: Sequence[TableId]) -> dict[TableId, str]:
        """Delta's ids of tables; see `SinkWriter.identify`."""
        return identify_each(spark, {table: self.target(table) for table in tables})

    def has_database(self, spark: SparkSession, database: Sequence[str]) -> bool:
        """Whether the catalog has a database; with a path, whether the database's folder there has anything.

        Raises:
            CheckpointError: There is a path, and its file system cannot be reached.
        """
        if self._sink.path is None:
            names = [*filter(None, [self._sink.catalog]), *database]
            return spark.catalog.databaseExists(".".join(map(quote_name, names)))
        folder = open_folder(spark, self._sink.path.rstrip("/"))
        return bool(folder.names("/".join(database)))

    def refuse_table(self, spark: SparkSession, table: TableId, changes: Sequence[SchemaChange]) -> list[Refusal]:
        """Refuse columns that a change data feed reserves, and changes of types that lose digits or rewrite too much.

        For the last there is one refusal, which names the first of them. Other changes are never refused. The table is
        read if a BIGINT becomes DOUBLE.

        Raises:
            ChangelogError: The table has a column of a type that the tables of kdsl do not have, or Delta cannot be
                added to the session.
        """
        altered = [change for change in changes if change.tag == "alter.column.type"]
        target = self.target(table)
        refusals = self._refuse_feed_columns(spark, table, changes)
        refusals += filter(
            None,
            [refuse_large_integers(table, change, partial(target.count_large_integers, spark)) for change in altered],
        )
        if refusals or not altered:
            return refusals
        size = target.bytes_to_rewrite(spark, [change.columns[0] for change in altered])
        if size <= self._sink.rewrite_max_bytes:
            return []
        change = altered[0]
        reason = f"the change of {change.before} to {change.columns[0].type} would rewrite {size:,} bytes"
        raised = f"sink.rewrite.max-bytes, which is {self._sink.rewrite_max_bytes:,}; or ALTER TABLE … SET "
        raised += "TBLPROPERTIES ('delta.enableTypeWidening' = 'true') if the type is only a wider number"
        fix = f"raise {raised}; or set exclude.schema.changes: alter.column.type in the sink, with which values that "
        fix += "do not fit are NULL and counted"
        return [
            Refusal(
                table, change.columns[0].name, reason, fix, change.record_id, sql_fix=f"raise {raised}", code="rewrite"
            )
        ]

    def _refuse_feed_columns(
        self, spark: SparkSession, table: TableId, changes: Sequence[SchemaChange]
    ) -> list[Refusal]:
        """Refuse new columns with the names of those of a change data feed, if the table has one, or would get one."""
        new = [
            (change, field)
            for change in changes
            for field in change.columns
            if change.tag != "alter.column.type" and field.name.lower() in CHANGE_FEED_COLUMNS
        ]
        if not new:
            return []
        if new[0][0].tag == "create.table":
            enabled = spark.conf.get(_FEED_BY_DEFAULT, "")
        else:
            enabled = self.target(table).read_property(spark, CHANGE_FEED)
        if (enabled or "").lower() != "true":
            return []
        reason, fix = "the change data feed of the table reserves the name", "rename the column with a projection"
        sql_fix = "write INSERT INTO … SELECT with another name"
        return [
            Refusal(table, field.name, reason, fix, change.record_id, sql_fix=sql_fix, code="name-reserved")
            for change, field in new
        ]

    def change_table(
        self, spark: SparkSession, table: TableId, changes: Sequence[SchemaChange], transformed: TransformedTable
    ) -> None:
        """Make changes of a table; see `TableChanger.change_table`. Effects and errors: `change_delta_table`."""
        change_delta_table(self.target(table), spark, changes, transformed.partition_keys, transformed.properties)

    def write_table(self, table: SinkTable, batch: Batch) -> None:
        """Create or change a table, then merge its last changes by the primary key, or append its inserts without one.

        See `TableWriter.write_table`. A change of the table and the rows are different commits.

        Raises:
            ChangelogError: The table has another batch with this number or a later one, or lacks a column; it is gone,
                another one than that of earlier batches, or has lost rows of them; or Delta cannot be added to the
                session.
            Exception: That of Spark, if a job fails.
        """
        target, spark = attrs.evolve(self.target(table.table), id=table.identity), table.rows.sparkSession
        if table.evolution.changes and table.identity is not None:
            require_same_table(repr(target), table.identity, target.identify(spark))
        self.change_table(spark, table.table, table.evolution.changes, table.tables[0].plan.transformed)
        if not table.schema.primary_key:
            target.append(table.inserts(), table.identify_batch(batch))
            return
        rows = table.last_changes().persist()
        try:
            target.apply(rows, table.schema.primary_key, table.identify_batch(batch))
        finally:
            rows.unpersist()


def change_delta_table(
    target: DeltaTarget,
    spark: SparkSession,
    changes: Sequence[SchemaChange],
    partition_keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> None:
    """Make changes of a table: first its creation, then new columns, then types; those that it has are not repeated.

    Delta is added to a session without it. Errors of Spark are passed on.

    Args:
        target: The table.
        spark: A classic session.
        changes: The changes.
        partition_keys: The columns by which a new table is partitioned.
        properties: The properties of a new table.

    Raises:
        ChangelogError: The table has a column of a type that the tables of kdsl do not have, or Delta cannot be added
            to the session.
    """
    added: list[t.Field] = []
    altered: list[t.Field] = []
    for change in changes:
        match change.tag:
            case "create.table":
                target.create(spark, change.columns, partition_keys, properties)
            case "add.column":
                added += change.columns
            case "alter.column.type":
                altered += change.columns
    if added:
        target.add_columns(spark, added)
    if altered:
        target.change_types(spark, altered)
