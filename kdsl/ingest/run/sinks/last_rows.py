"""The last changes of the tables of a small batch, found by one task for all tables.

If many tables get few rows each, the Spark jobs of a table take much longer than the work that they do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import ROW_KINDS
from kdsl.ingest.changes import AFTER, DELETE, INSERT
from kdsl.ingest.packets import Reporter, join_packets
from kdsl.ingest.run.sinks.writer import LastRows, SinkTable
from kdsl.own_columns import INDEX, KIND, UNAVAILABLE
from kdsl.plan.model import ReadPlan
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.packets import write_packet
from kdsl.run.session import get_zone
from kdsl.run.upsert.keys import mark_last_rows
from kdsl.types.arrays import number_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FOUND = "sink int, rows binary"


def find_last_rows(tables: Sequence[SinkTable]) -> list[SinkTable]:
    """Find the last changes of tables with a primary key whose rows are written as they are read, in one Spark job.

    The driver gets the rows, so they must be few. Tables whose rows need more than that stay as they are: those with
    an expression, those whose changes lack values or have NULL in the key, and those with records that cannot be
    decoded, which is then the error of a job of theirs. Spark's errors are passed on.

    Args:
        tables: The sink tables of a batch; all packets are of one DataFrame.

    Returns:
        The tables in their order, with the rows that were found.
    """
    from pyspark.sql import functions as F

    wanted: dict[int, _Wanted] = {}
    sinks: dict[str, list[int]] = {}
    packets: DataFrame | None = None
    for index, table in enumerate(tables):
        plain = table.plain
        if plain is None or not table.schema.primary_key:
            continue
        packets = plain.packets
        names = tuple(column.name for work in table.tables for column in work.plan.transformed.columns)
        wanted[index] = _Wanted(plain.plan, names, table.schema.primary_key, plain.reporter)
        sinks.setdefault(plain.table, []).append(index)
    if packets is None:
        return list(tables)
    finder = _Finder(wanted, sinks, get_zone(packets.sparkSession))
    place = F.monotonically_increasing_id().alias(INDEX)  # one task gets the partitions in any order
    own = packets.where(F.col("table").isin(*sinks)).select("table", "records", place).coalesce(1)
    packets_found = own.mapInArrow(finder, _FOUND).collect()
    last = {
        index: LastRows(pa.ipc.open_stream(rows).read_all(), wanted[index].plan.columns)
        for index, rows in packets_found
    }
    return [attrs.evolve(table, last=last.get(index)) for index, table in enumerate(tables)]


@attrs.frozen(eq=False)
class _Wanted:
    """A sink table whose last changes are wanted.

    Attributes:
        plan: How its records are read.
        names: The columns that are written.
        keys: The primary key.
        report: Sends the counts of values that change while records are decoded.
    """

    plan: ReadPlan
    names: tuple[str, ...]
    keys: tuple[str, ...]
    report: Reporter | None


@attrs.frozen
class _Finder:
    """Finds the last changes of tables in the packets of a task; a function for ``mapInArrow``.

    Attributes:
        wanted: The sink tables, by number.
        sinks: The numbers of the sink tables that get the rows of an upstream table, by its name in packets.
        zone: The time zone of the session.
    """

    wanted: Mapping[int, _Wanted]
    sinks: Mapping[str, Sequence[int]]
    zone: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return a row for each sink table whose last changes are found: its number, and a packet of them."""
        every = list(batches)
        if not every:
            return
        packets = pa.Table.from_batches(every).sort_by(INDEX)
        names, values = packets.column("table").to_pylist(), packets.column("records")
        records: dict[str, list[pa.RecordBatch]] = {}
        for name, joined in join_packets((name, v.as_buffer()) for name, v in zip(names, values, strict=True)):
            records.setdefault(name, []).append(joined)
        for name, own in records.items():
            for sink in self.sinks[name]:
                last = self._find(self.wanted[sink], own)
                if last is not None:
                    arrays = [pa.array([sink], pa.int32()), pa.array([write_packet(last)], pa.binary())]
                    yield pa.RecordBatch.from_arrays(arrays, ["sink", "rows"])

    def _find(self, table: _Wanted, records: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
        """The last changes of a table; None if a job of the table must find them, which then reports the counts."""
        decoder = RecordDecoder(table.plan, self.zone)
        rows: list[pa.RecordBatch] = []
        dropped: list[Counter[str]] = []
        try:
            for batch in records:
                rows.append(decoder.decode(batch))
                dropped.append(decoder.dropped)
                decoder.dropped = Counter()
        except Exception:  # noqa: BLE001  # the job of the table fails with it, and other tables are written
            return None
        last = keep_last(pa.concat_batches(rows), table.keys)
        if last is None:
            return None
        for batch, counts in zip(records, dropped, strict=True):
            if table.report is not None:
                decoder.dropped = counts
                table.report(decoder, table.plan.table, batch)
        return last.select([KIND, *table.names])


def keep_last(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch | None:
    """Keep the last change of each key, like `kdsl.run.dataframes.latest.last_changes`: ``+U`` with its row, or ``-D``.

    Args:
        rows: The changes in their order. Without a row kind each is the present row of its key.
        keys: The columns of the key.

    Returns:
        The rows, in their order; None if that does not suffice: a key has NULL, or a type whose equal values may differ
        in their bytes, or a change lacks values.
    """
    columns = [rows.column(name) for name in keys]
    if any(column.null_count or not _is_compared_by_bytes(column.type) for column in columns):
        return None
    if UNAVAILABLE in rows.schema.names:
        lengths = pc.list_value_length(rows.column(UNAVAILABLE))
        if pc.any(pc.greater(lengths, 0)).as_py():
            return None
    last_rows = rows.filter(pa.array(mark_last_rows(number_rows(columns)[0])))
    if KIND not in rows.schema.names:
        return last_rows.append_column(KIND, pa.repeat(ROW_KINDS[AFTER], last_rows.num_rows))
    is_present = pc.is_in(last_rows.column(KIND), pa.array([ROW_KINDS[INSERT], ROW_KINDS[AFTER]]))
    kinds = pc.if_else(is_present, ROW_KINDS[AFTER], ROW_KINDS[DELETE])
    return last_rows.set_column(last_rows.schema.get_field_index(KIND), KIND, kinds)


def _is_compared_by_bytes(kind: pa.DataType) -> bool:
    """Whether equal values of a type have the same bytes, in Arrow as in Spark; floating-point numbers do not."""
    types = pa.types
    tests = (
        types.is_integer, types.is_boolean, types.is_decimal, types.is_temporal, types.is_string, types.is_binary,
    )  # fmt: skip
    return any(test(kind) for test in tests)
