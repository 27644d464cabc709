"""The interface of the writers of sinks, and what those share whose tables are written one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.changelog.target import Batch, IdentifiedTarget
from kdsl.errors import KdslError, pluralize
from kdsl.formats import TableId
from kdsl.ingest.decision import TableWork
from kdsl.ingest.evolution import SinkEvolution
from kdsl.ingest.ids import format_id
from kdsl.ingest.packets import Reporter
from kdsl.ingest.projection import TransformedTable
from kdsl.ingest.schema_changes import Refusal, SchemaChange
from kdsl.own_columns import INDEX, KIND, ORDER, PLACE, UNAVAILABLE
from kdsl.plan.model import ReadPlan
from kdsl.run.dataframes.latest import last_changes
from kdsl.spark_internals.arrow import dataframe_from_arrow
from kdsl.spark_internals.errors import find_reason
from kdsl.spark_internals.threads import run_in_session
from kdsl.types import model as t
from kdsl.types.spark import spark_schema
from kdsl.types.sql import quote_name
from kdsl.types.widening import TableSchema, needs_small_integers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@attrs.frozen(eq=False)
class PlainRows:
    """Rows that go into a sink table as they are read: without expressions, a filter, or other types.

    Attributes:
        packets: The packets of the batch.
        table: The upstream table, as packets name it.
        plan: How its records are read.
        reporter: Sends the counts of values that change while they are read.
    """

    packets: DataFrame
    table: str
    plan: ReadPlan
    reporter: Reporter | None = None


@attrs.frozen(eq=False)
class LastRows:
    """The last changes of a table that are found already, in the memory of the driver.

    Attributes:
        rows: The row kind and the columns, as `SinkTable.last_changes` has them.
        types: The types of the columns.
    """

    rows: pa.Table
    types: t.Row

    def count_kinds(self) -> dict[str, int]:
        """How many rows of each kind there are."""
        return {one["values"]: one["counts"] for one in pc.value_counts(self.rows.column(KIND)).to_pylist()}

    def create_frame(self, spark: SparkSession) -> DataFrame:
        """The rows as a DataFrame of one partition."""
        types = {f.name: f.type for f in self.types.fields} | {KIND: t.STRING}
        columns = t.Row(tuple(t.Field(name, types[name].as_nullable()) for name in self.rows.column_names))
        return dataframe_from_arrow(spark, self.rows, spark_schema(columns)).coalesce(1)


@attrs.frozen(eq=False)
class SinkTable:
    """The rows of a batch for a sink table.

    Attributes:
        table: The sink table.
        evolution: How its columns change, and what they are then.
        tables: The upstream tables that the rows come from.
        build_rows: Builds the DataFrame of `rows`.
        plain: Where the rows are, if they are written as they are read.
        in_one_task: Whether one task finds the last change of each key; see `kdsl.run.dataframes.latest.last_changes`.
        identity: The identity of the sink table that earlier batches wrote to (`SinkWriter.identify`); None if there
            was none.
        previous: The last batch before this one that wrote to the table of that identity; None if it is not known.
        is_accepted: Whether the table is accepted as it is, even if it has lost rows of earlier batches.
        last: Its last changes, if they are found already.
    """

    table: TableId
    evolution: SinkEvolution
    tables: tuple[TableWork, ...]
    build_rows: Callable[[], DataFrame]
    plain: PlainRows | None = None
    in_one_task: bool = False
    identity: str | None = None
    previous: int | None = None
    is_accepted: bool = False
    last: LastRows | None = None

    @property
    def spark(self) -> SparkSession:
        """The session; the rows are not built for it if they are written as they are read."""
        return self.rows.sparkSession if self.plain is None else self.plain.packets.sparkSession

    def identify_batch(self, batch: Batch) -> Batch:
        """The identity of a batch, with what is known of earlier ones of the table."""
        return attrs.evolve(batch, previous=self.previous, adopt=self.is_accepted)

    @cached_property
    def rows(self) -> DataFrame:
        """The rows: the row kind (`kdsl.own_columns.KIND`), then columns of the sink table with its types.

        They are in the order of the changes of each key, unless they have columns for it (`order`). They may have the
        columns ``PASSES`` and `kdsl.own_columns.UNAVAILABLE`, too.
        """
        return self.build_rows()

    @property
    def order(self) -> tuple[str, ...]:
        """The columns of the rows by which the changes of a key are ordered.

        They are those of the time in the source (`ORDER`), if changes of a key may be in several partitions. If rows of
        several upstream tables come from Kafka, they are those of the record (`PLACE`). Otherwise there are none.
        """
        columns = set(self.rows.columns)
        by_time = tuple(name for name in ORDER if name in columns)
        return by_time or tuple(name for name in PLACE if name in columns)

    @property
    def schema(self) -> TableSchema:
        """The columns of the sink table after its changes, and its primary key."""
        return self.evolution.schema

    def last_changes(self) -> DataFrame:
        """The last change of each key: ``+U`` with its present row, or ``-D``. A NULL in a key fails the job."""
        if self.last is not None:
            return self.last.create_frame(self.spark)
        last = last_changes(self.rows, self.schema.primary_key, self.order, in_one_task=self.in_one_task)
        return last.drop(*ORDER, *PLACE)

    def inserts(self) -> DataFrame:
        """The rows of a table without a primary key, to which rows can only be added.

        A row that is an update or a delete, or lacks a value that a change does not contain, fails the job.
        """
        from pyspark.sql import functions as F

        reason = F.concat(
            F.lit(f"{format_id(self.table)}: a change "), F.col(KIND),
            F.lit(" needs a primary key; set primary-keys in a transform, and start once with --allow transform, or, "
                  "if the table has rows of earlier batches, remove it and start with a new checkpoint; in a script "
                  "write PRIMARY KEY (…) NOT ENFORCED, and start with a new checkpoint"),
        )  # fmt: skip
        is_insert = F.col(KIND) == "+I"
        if UNAVAILABLE in self.rows.columns:  # no row has the values
            is_insert &= F.size(UNAVAILABLE) == 0
        rows = self.rows.drop(*ORDER, *PLACE).where(F.when(is_insert, is_insert).otherwise(F.raise_error(reason)))
        return rows.drop(UNAVAILABLE)

    @property
    def written(self) -> TableSchema:
        """The columns that the rows have, in their order, and the primary key."""
        names = set(self.rows.columns)
        return TableSchema(tuple(f for f in self.schema.columns if f.name in names), self.schema.primary_key)

    def changes(self) -> DataFrame:
        """All changes, without columns by which they are ordered.

        Those of a key are in their order, in one partition if the writer needs that
        (`SinkWriter.needs_whole_partitions`), and the row before an update is right before the row after it. Without a
        primary key all changes are in one partition.
        """
        return self._sort(self.order).drop(*ORDER, *PLACE) if self.order else self.rows

    def _sort(self, order: Sequence[str]) -> DataFrame:
        """Sort the rows by the order, within the partitions that it makes; rows that are equal in it stay as they are.

        With a primary key, a partition has all rows of a key, and the key comes before the last column of the order.
        Without one there is one partition, and the last column counts only in `ORDER` and `PLACE`.
        """
        from pyspark.sql import functions as F

        keys = [F.col(quote_name(name)) for name in self.schema.primary_key]
        rows = self.rows.withColumn(INDEX, F.monotonically_increasing_id())
        if not keys:  # the two rows of an update are next to each other in the files of a change data feed
            first = order if tuple(order) in (ORDER, PLACE) else order[:-1]
            return rows.coalesce(1).sortWithinPartitions(*first, INDEX).drop(INDEX)
        return rows.repartition(*keys).sortWithinPartitions(*order[:-1], *keys, order[-1], INDEX).drop(INDEX)


class TableWriteError(KdslError):
    """A sink table could not be written."""


def _write_failure(failures: Mapping[TableId, BaseException], missed: Sequence[TableId]) -> str:
    """The message of a write that failed: the tables with the reason of the first, and those that were not written."""
    first, *others = failures
    text = f"the table {format_id(first)} cannot be written: {find_reason(failures[first])}"
    text += f"; nor can {', '.join(map(format_id, others))}" if others else ""
    return text + (f"; not written because of it: {', '.join(map(format_id, missed))}" if missed else "")


class SinkWriter(Protocol):
    """Creates and changes the tables of a sink, and writes rows to them.

    Attributes:
        pairs_updates: Whether it writes the two rows of an update together. Its rows then contain those that do not
            meet the filter of their table, with a column that says so (`kdsl.own_columns.PASSES`).
        needs_rows_before: Whether it needs the whole rows before changes. If not, it writes the last changes of tables
            with a primary key, and an update may lack its row before: the kinds of such rows need not be those of
            the changes after a filter.
        needs_whole_partitions: Whether tasks write changes as they get them (`SinkTable.changes`), so those of a key
            stay in their order only if one task gets them all. A partition of Kafka is then read by one task; otherwise
            several tasks may read it, in whose order the rows are.
        finds_last_rows: Whether it finds the last changes of small batches by itself, in the packets of those tables
            whose rows are written as they are read.
    """

    pairs_updates: bool = False
    needs_rows_before: bool = True
    needs_whole_partitions: bool = True
    finds_last_rows: bool = False

    def read_schema(self, spark: SparkSession, table: TableId, known: TableSchema | None) -> TableSchema | None:
        """The columns and the primary key that a table has in the sink; None if there is no such table.

        Args:
            spark: The session.
            table: The table.
            known: What the checkpoint says of it. The result of sinks that cannot tell.
        """
        ...

    def identify(self, spark: SparkSession, tables: Sequence[TableId]) -> dict[TableId, str]:
        """The identities of tables, which others that are created under their names later do not have.

        Tables that do not exist, or whose identity the sink cannot tell, are left out; by default all. Errors are those
        of the sink.
        """
        del spark, tables
        return {}

    def has_database(self, spark: SparkSession, database: Sequence[str]) -> bool | None:
        """Whether a database exists in the sink; None, the result by default, if the sink cannot tell.

        Args:
            spark: The session.
            database: The names before that of a table in its id.
        """
        del spark, database
        return None

    def refuse(self, spark: SparkSession, changes: Mapping[TableId, Sequence[SchemaChange]]) -> list[Refusal]:
        """The changes that the sink cannot make to its tables; nothing of the batch is written then.

        Args:
            spark: The session.
            changes: The changes, by table; each has at least one.
        """
        ...

    def write(self, tables: Sequence[SinkTable], batch: Batch) -> None:
        """Make the changes of tables, and write the rows of a batch to them.

        A batch may be repeated after a failure: changes that a table has already are not repeated, and rows that it
        has already are not written again. Errors are those of the sink and of Spark.

        Args:
            tables: The tables.
            batch: The identity of the batch.
        """
        ...


def identify_each(spark: SparkSession, targets: Mapping[TableId, IdentifiedTarget]) -> dict[TableId, str]:
    """The identities of tables, asked one by one; those without one are left out. Errors are those of the targets."""
    return {table: id_ for table, target in targets.items() if (id_ := target.identify(spark)) is not None}


@runtime_checkable
class TableChanger(SinkWriter, Protocol):
    """A writer that can read and change the columns of tables apart from a batch, for `kdsl diff` and `kdsl apply`."""

    def target(self, table: TableId) -> Any:
        """The table that a sink table is; it is printed without secrets."""
        ...

    def change_table(
        self, spark: SparkSession, table: TableId, changes: Sequence[SchemaChange], transformed: TransformedTable
    ) -> None:
        """Make changes of a table. Changes that it has already are not repeated.

        Args:
            spark: The session.
            table: The table.
            changes: The changes, in order.
            transformed: What becomes of an upstream table that goes into it.
        """
        ...


class TableWriter(SinkWriter):
    """A writer that writes each table by itself, several at a time.

    Args:
        concurrency: How many.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency

    def read_schema(self, spark: SparkSession, table: TableId, known: TableSchema | None) -> TableSchema | None:
        """See `SinkWriter.read_schema`; here what is known."""
        del spark, table
        return known

    def refuse(self, spark: SparkSession, changes: Mapping[TableId, Sequence[SchemaChange]]) -> list[Refusal]:
        """Ask `refuse_table` for each table; see `SinkWriter.refuse`."""
        return [one for table, own in changes.items() for one in self.refuse_table(spark, table, own)]

    def refuse_table(self, spark: SparkSession, table: TableId, changes: Sequence[SchemaChange]) -> list[Refusal]:
        """The changes of a table that the sink cannot make; here none."""
        del spark, table, changes
        return []

    def write(self, tables: Sequence[SinkTable], batch: Batch) -> None:
        """Write the tables at the same time, each with a batch identity of its own; see `SinkWriter.write`.

        If some fail, the others are written; one at a time, the first that fails is the last.

        Raises:
            TableWriteError: A table could not be written, which it names, as it does those that were not tried; its
                cause is the first error.
        """
        failures: dict[TableId, Exception] = {}
        if len(tables) <= 1 or self._concurrency == 1:
            for i, table in enumerate(tables):
                try:
                    self.write_table(table, batch.of_part(*table.table))
                except Exception as e:
                    missed = [later.table for later in tables[i + 1 :]]
                    raise TableWriteError(_write_failure({table.table: e}, missed)) from e
            return
        with ThreadPoolExecutor(self._concurrency, "kdsl sink") as pool:
            futures = [
                pool.submit(run_in_session(table.spark, self.write_table), table, batch.of_part(*table.table))
                for table in tables
            ]
        for table, future in zip(tables, futures, strict=True):
            try:
                future.result()
            except Exception as e:  # noqa: BLE001  # raised below, with those of other tables
                failures[table.table] = e
        if failures:
            raise TableWriteError(_write_failure(failures, ())) from next(iter(failures.values()))

    @abstractmethod
    def write_table(self, table: SinkTable, batch: Batch) -> None:
        """Make the changes of a table, and write the rows of a batch to it; errors are those of sink and Spark."""


def refuse_large_integers(table: TableId, change: SchemaChange, count: Callable[[str], int]) -> Refusal | None:
    """The refusal of a change of a BIGINT column to DOUBLE, if rows of the table have integers that DOUBLE lacks.

    None for every other change, for which nothing is counted.

    Args:
        table: The table.
        change: The change.
        count: Counts the integers of a column beyond 2^53.
    """
    if change.tag != "alter.column.type" or change.before is None:
        return None
    field = change.columns[0]
    if not needs_small_integers(change.before, field.type) or not (number := count(field.name)):
        return None
    values = pluralize(number, "row has an integer", "rows have integers")
    reason = f"it would change from {change.before} to {field.type}, and {values} beyond 2^53, which would lose digits"
    fixed = f"'{quote_name(field.name)} STRING'"
    fix = f"set infer-schema.fixed-types: {fixed[1:-1]} of the format, or exclude.schema.changes: alter.column.type in "
    fix += "the sink, with which values that do not fit are NULL and counted"
    sql_fix = f"set 'infer-schema.fixed-types' = {fixed} of the format"
    return Refusal(table, field.name, reason, fix, change.record_id, sql_fix=sql_fix, code="lost-values")
