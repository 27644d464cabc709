"""What a source task returns: rows, packets of raw records, chunks of upserts or their changes; the columns of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from kdsl.cluster import Registry
from kdsl.plan.model import ReadPlan
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import field_of
from kdsl.run.records.packets import PACKET_COLUMNS, Divider, find_divider, write_packets
from kdsl.run.upsert.chunks import CHUNK_COLUMNS, ChunkOutput
from kdsl.run.upsert.partition_changes import PartitionChanges
from kdsl.run.upsert.rows import record_row
from kdsl.run.upsert.shard_changes import AllShards, PackedChanges
from kdsl.run.upsert.steps import OpenFiles, PartitionSteps, ShardStep
from kdsl.types import model as t

_GATHERED_RECORDS, _GATHERED_BYTES = 50_000, 16 << 20
"""From how many records or bytes on they are divided: each table costs about a millisecond, however few it has."""


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


BATCH_SHARDS = 64
"""The number of shards of a read without states; one at a time is in memory."""

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
        self._waiting: list[pa.RecordBatch] = []

    def add(self, raw: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Gather the records that the header filter lets through, and yield many as packets; none is decoded.

        The decoder counts those that it leaves out.
        """
        records = self._decoder.filter(raw)
        if records.num_rows:
            self._waiting.append(records)
        rows, size = (sum(getattr(one, name) for one in self._waiting) for name in ("num_rows", "nbytes"))
        if rows >= _GATHERED_RECORDS or size >= _GATHERED_BYTES:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the records that wait as packets."""
        if self._waiting:
            records, self._waiting = pa.concat_batches(self._waiting), []
            yield self._divide(records)


def create_task_output(
    decoder: RecordDecoder,
    plan: ReadPlan,
    steps: PartitionSteps | ShardStep | None = None,
    open_files: OpenFiles | None = None,
    report: Report | None = None,
    registry: Registry | None = None,
) -> TaskOutput:
    """Create the output of one task of a plan: rows, packets, changes, or chunks.

    Args:
        decoder: Decodes the records.
        plan: The plan.
        steps: What the task does with states; None if it has none.
        open_files: Opens the files of states; None keeps nothing.
        report: Called for the records of rows, also of upserts by record; not for packets, changes and chunks.
        registry: The registry of the schemas that keys name.
    """
    if plan.upserts is None:
        return _PacketOutput(decoder, plan.table) if plan.packed else RowOutput(decoder, plan.table, report)
    if plan.upserts.by_record:
        return RowOutput(decoder, plan.table, report)
    if isinstance(steps, PartitionSteps):
        changes = PartitionChanges(decoder, plan, steps, open_files, registry)
        return changes if plan.upserts.by_partition else PackedChanges(changes)
    if steps is not None and plan.upserts.by_partition:
        assert open_files is not None
        return AllShards(decoder, plan, steps, open_files)
    return ChunkOutput(decoder, plan.upserts, BATCH_SHARDS if steps is None else steps.shards, steps)


def choose_fields(decoder: RecordDecoder, plan: ReadPlan, steps: PartitionSteps | ShardStep | None) -> frozenset[str]:
    """Return the fields of raw records that a task fetches: those that its decoder needs.

    A task with states of partitions fetches no timestamps if no column shows them: it goes by the records' offsets.
    """
    by_offsets = isinstance(steps, PartitionSteps) and plan.upserts is not None and not plan.upserts.by_record
    if by_offsets and all(field_of(column.key) != "timestamp" for column in plan.metadata):
        return decoder.needs - {"timestamp"}
    return decoder.needs


def source_row(plan: ReadPlan) -> t.Row:
    """Return the columns that a source returns: those of the plan, of packets, of records, or of chunks of upserts."""
    if plan.packed:
        return PACKET_COLUMNS
    if plan.upserts is None or plan.upserts.by_partition:
        return plan.columns
    return record_row(plan) if plan.upserts.by_record else CHUNK_COLUMNS
