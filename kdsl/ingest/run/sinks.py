"""Writes the rows of a batch to sink tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from kdsl.changelog import Batch, Changelog, MemoryTable, delta, memory
from kdsl.errors import ChangelogError
from kdsl.formats import ROW_KIND, TableId
from kdsl.ingest.ends import Blackhole, DeltaTables, Memory, Print, Sink
from kdsl.ingest.ids import format_id
from kdsl.run.dataframes.collect import collect_arrow
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SinkWriter(Protocol):
    """Writes rows to the tables of a sink."""

    def write(self, table: TableId, rows: DataFrame, keys: Sequence[str], batch: Batch) -> None:
        """Write the rows of a batch to a table; a batch that the table has is skipped.

        Args:
            table: The sink table.
            rows: Its rows; for changes with the row kind as first column.
            keys: The primary key; empty if there is none.
            batch: The identity of the batch.
        """
        ...


class BlackholeWriter:
    """Computes the rows, and drops them."""

    def write(self, table: TableId, rows: DataFrame, keys: Sequence[str], batch: Batch) -> None:
        """See `SinkWriter`."""
        del table, keys, batch
        rows.write.format("noop").mode("append").save()


class PrintWriter:
    """Prints one line for each row: the table, the row kind and the values."""

    def write(self, table: TableId, rows: DataFrame, keys: Sequence[str], batch: Batch) -> None:
        """See `SinkWriter`."""
        del keys, batch
        for row in collect_arrow(rows).to_pylist():
            kind = row.pop(ROW_KIND, "+I")
            print(f"{format_id(table)} {kind}[{', '.join(map(str, row.values()))}]")


class MemoryWriter:
    """Keeps the tables in this process.

    Attributes:
        tables: The tables with a primary key: their current rows.
        appended: The rows of the tables without one.
    """

    def __init__(self) -> None:
        self.tables: dict[TableId, MemoryTable] = {}
        self.appended: dict[TableId, list[dict[str, object]]] = {}

    def write(self, table: TableId, rows: DataFrame, keys: Sequence[str], batch: Batch) -> None:
        """See `SinkWriter`."""
        if keys:
            Changelog(rows, keys=keys).apply_to(self.tables.setdefault(table, memory()), batch=batch)
            return
        self.appended.setdefault(table, []).extend(_inserts(table, rows).to_pylist())


class DeltaWriter:
    """Writes tables with a primary key to Delta, one MERGE for each batch.

    Args:
        sink: The sink.
    """

    def __init__(self, sink: DeltaTables) -> None:
        self._sink = sink

    def write(self, table: TableId, rows: DataFrame, keys: Sequence[str], batch: Batch) -> None:
        """See `SinkWriter`."""
        path, names = self._sink.path, (*([self._sink.catalog] if self._sink.catalog else []), *table)
        target = ".".join(map(quote_name, names)) if path is None else "/".join([path, *table])
        Changelog(rows, keys=keys).apply_to(delta(target), batch=batch)


def _inserts(table: TableId, rows: DataFrame) -> object:
    """The rows of a table without a primary key, which can only be inserted.

    Raises:
        ChangelogError: One is an update or a delete.
    """
    collected = collect_arrow(rows)
    if ROW_KIND in collected.column_names:
        kinds = set(collected.column(ROW_KIND).to_pylist()) - {"+I"}
        if kinds:
            raise ChangelogError(
                f"{format_id(table)}: a change {min(kinds)} needs a primary key; set primary-keys in a transform, or "
                "converter-after-transform: SOFT_DELETE"
            )
        collected = collected.drop_columns([ROW_KIND])
    return collected


def open_writer(sink: Sink) -> SinkWriter:
    """Create the writer of a sink."""
    match sink:
        case Blackhole():
            return BlackholeWriter()
        case Print():
            return PrintWriter()
        case Memory():
            return MemoryWriter()
        case DeltaTables():
            return DeltaWriter(sink)
    raise NotImplementedError(sink.type)
