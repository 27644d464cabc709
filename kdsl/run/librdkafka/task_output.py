"""What a source task returns: rows, packets of raw records, chunks of upserts or their changes; the columns of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from kdsl.plan.model import ReadPlan
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.packets import PACKET_COLUMNS, Divider, find_divider, write_packets
from kdsl.run.upsert.chunks import CHUNK_COLUMNS, ChunkOutput
from kdsl.run.upsert.partition_changes import PartitionChanges, StateSteps
from kdsl.run.upsert.rows import event_time_column, record_row
from kdsl.types import model as t


class TaskOutput(Protocol):
    """Turns raw records into the batches that a source task returns."""

    def add(self, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Decode raw records, and yield the batches that are complete."""
        ...

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining batches."""
        ...

    def sizes(self) -> Sequence[tuple[int, int, int]]:
        """Return the partition, keys and bytes of each state that `finish` has stored."""
        ...


Report = Callable[[RecordDecoder, str, pa.RecordBatch], None]
"""Called after a decoder has decoded records, with the table's name and the records."""


class RowOutput:
    """Decodes records to rows.

    Args:
        decoder: Decodes the records.
        table: The table's name, for the function for reports.
        report: Called once for each batch of records; its errors are passed on.
    """

    def __init__(self, decoder: RecordDecoder, table: str, report: Report | None = None) -> None:
        self._decoder, self._table, self._report = decoder, table, report

    def add(self, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Decode raw records, and yield their rows if there are any."""
        rows = self._decoder.decode(raw)
        if self._report is not None and raw.num_rows:
            self._report(self._decoder, self._table, raw)
        if rows.num_rows:
            yield rows

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield nothing: all rows were yielded before."""
        yield from ()

    def sizes(self) -> Sequence[tuple[int, int, int]]:
        """Return nothing: there are no states."""
        return ()


class _PacketOutput(RowOutput):
    def __init__(self, decoder: RecordDecoder, table: str) -> None:
        super().__init__(decoder, table)
        self._divide: Divider = find_divider() or write_packets

    def add(self, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the records that the header filter lets through as packets, if there are any; none is decoded.

        The decoder counts those that it leaves out.
        """
        records = self._decoder.filter(raw)
        if records.num_rows:
            yield self._divide(records)


def create_task_output(
    decoder: RecordDecoder,
    plan: ReadPlan,
    steps: StateSteps | None = None,
    folder: Path | None = None,
    report: Report | None = None,
) -> TaskOutput:
    """Create the output of one task of a plan: rows, packets, changes, or chunks.

    Args:
        decoder: Decodes the records.
        plan: The plan.
        steps: What the task does with the states of its partitions; None if they have none.
        folder: The folder of all states, in which those of the partitions are created; None keeps nothing.
        report: Called for the records of rows, also of upserts by record; not for packets, changes and chunks.
    """
    if plan.upserts is None:
        return _PacketOutput(decoder, plan.table) if plan.packed else RowOutput(decoder, plan.table, report)
    if plan.upserts.by_record:
        return RowOutput(decoder, plan.table, report)
    if steps is not None:
        return PartitionChanges(decoder, plan, steps, folder)
    ahead = None if plan.watermark is None else plan.watermark.max_ahead
    return ChunkOutput(decoder, plan.upserts, event_time_column(plan), ahead)


def source_row(plan: ReadPlan) -> t.Row:
    """Return the columns that a source returns: those of the plan, of packets, of records, or of chunks of upserts."""
    if plan.packed:
        return PACKET_COLUMNS
    if plan.upserts is None or plan.upserts.by_partition:
        return plan.columns
    return record_row(plan) if plan.upserts.by_record else CHUNK_COLUMNS
