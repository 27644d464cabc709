"""Writers without tables elsewhere: the console, nothing, and the memory of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kdsl.changelog.target import Batch, is_applied
from kdsl.changelog.to_memory import MemoryTable, memory, widen_value
from kdsl.formats import TableId
from kdsl.ingest.ids import format_id
from kdsl.ingest.run.sinks.writer import SinkTable, TableWriter, refuse_large_integers
from kdsl.ingest.schema_changes import Refusal, SchemaChange
from kdsl.own_columns import KIND
from kdsl.run.dataframes.collect import collect_arrow
from kdsl.types.arrow_values import python_rows
from kdsl.types.widening import MAX_INTEGER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class BlackholeWriter(TableWriter):
    """Computes the rows, and drops them."""

    needs_whole_partitions = False

    def write_table(self, table: SinkTable, batch: Batch) -> None:
        """Compute the rows; see `TableWriter.write_table`."""
        del batch
        table.rows.write.format("noop").mode("append").save()


class PrintWriter(TableWriter):
    """Prints one line for each row: the table, the row kind and the values."""

    needs_whole_partitions = False

    def write_table(self, table: SinkTable, batch: Batch) -> None:
        """Print the changes of the table and then of its rows, which are collected; see `TableWriter.write_table`.

        A batch that is repeated is printed again.
        """
        del batch
        for change in table.evolution.changes:
            print(change)
        for row in python_rows(collect_arrow(table.changes())):
            kind = row.pop(KIND)
            print(f"{format_id(table.table)} {kind}[{', '.join(map(str, row.values()))}]")


class MemoryWriter(TableWriter):
    """Keeps the tables in this process.

    Attributes:
        tables: The tables with a primary key: their current rows.
        appended: The rows of the tables without one.
    """

    needs_rows_before = False
    needs_whole_partitions = False

    def __init__(self, concurrency: int = 1) -> None:
        super().__init__(concurrency)
        self.tables: dict[TableId, MemoryTable] = {}
        self.appended: dict[TableId, list[dict[str, Any]]] = {}
        self._applied: dict[tuple[TableId, str], Batch] = {}

    def refuse_table(self, spark: SparkSession, table: TableId, changes: Sequence[SchemaChange]) -> list[Refusal]:
        """Refuse changes of types by which rows would lose digits."""
        del spark

        def count(column: str) -> int:
            keyed = self.tables[table].rows() if table in self.tables else []
            values = (row.get(column) for row in (*keyed, *self.appended.get(table, ())))
            return sum(isinstance(value, int) and abs(value) > MAX_INTEGER for value in values)

        return list(filter(None, (refuse_large_integers(table, change, count) for change in changes)))

    def write_table(self, table: SinkTable, batch: Batch) -> None:
        """Apply the last changes by the primary key, or append the inserts of a table without one.

        The rows are collected. A batch that is applied already is skipped; see `TableWriter.write_table`.

        Raises:
            ChangelogError: The table has another batch with this number or a later one; or a change lacks a value, and
                the table does not have its row.
        """
        name = table.table
        if table.schema.primary_key:
            rows = table.last_changes().persist()
            try:
                self.tables.setdefault(name, memory()).apply(rows, table.schema.primary_key, batch)
            finally:
                rows.unpersist()
            return
        if is_applied(format_id(name), batch, self._applied.get((name, batch.writer))):
            return
        rows = collect_arrow(table.inserts().drop(KIND))
        altered = [c.columns[0].name for c in table.evolution.changes if c.tag == "alter.column.type"]
        for row in self.appended.get(name, ()) if altered else ():
            row |= {one: widen_value(row[one], rows.schema.field(one).type) for one in altered if one in row}
        self.appended.setdefault(name, []).extend(python_rows(rows))
        self._applied[name, batch.writer] = batch
