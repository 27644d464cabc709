"""Turns raw records into the rows of a read: the plan's output columns, or the changes that upserts cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Protocol

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.callbacks import TopicPartition
from kdsl.declare.definition import TableDef
from kdsl.plan.model import ReadPlan
from kdsl.run.arrow.computed_columns import ComputedColumns
from kdsl.run.records.decode import RecordDecoder, RowsOfRecords
from kdsl.run.records.drops import Reason
from kdsl.run.upsert.changes import AFTER, DELETE, KeyedRows, take_last_changes
from kdsl.run.upsert.chunks import Chunk, ChunkOutput, read_chunks
from kdsl.run.upsert.rows import change_row
from kdsl.run.upsert.shard_changes import chunks_of
from kdsl.run.upsert.state import UnavailableRule, add_row_kinds, report_unavailable, unavailable_rule
from kdsl.run.upsert.state_changes import open_changes
from kdsl.types.arrow import arrow_schema

Positions = Mapping[TopicPartition, int]
"""The offset of the next record of each partition."""


@attrs.frozen(eq=False)
class Part:
    """Some rows of a read, and how far it has come when they were used.

    Attributes:
        rows: The rows; there may be none.
        positions: Where the partitions of their records are then.
        decoded: The rows before columns were selected, with their records; None if rows do not belong to one record.
    """

    rows: pa.RecordBatch
    positions: Positions
    decoded: RowsOfRecords | None = None

    def take(self, count: int) -> Part:
        """Return the first rows; a partition ends before its first record whose rows are not all taken."""
        positions = dict(self.positions)
        if self.decoded is None:  # changes: the step is read again
            return Part(self.rows.slice(0, count), {})
        left = pa.table({name: self.decoded.of(name).slice(count) for name in ("topic", "partition", "offset")})
        for one in left.group_by(["topic", "partition"]).aggregate([("offset", "min")]).to_pylist():
            positions[one["topic"], one["partition"]] = one["offset_min"]
        return Part(self.rows.slice(0, count), positions)


class Output(Protocol):
    """Turns the raw records of a step into parts."""

    def add(self, raw: pa.RecordBatch) -> Iterator[Part]:
        """Decode raw records, and yield the parts that are complete."""
        ...

    def finish(self) -> Iterator[Part]:
        """Yield what remains at the end of a step."""
        ...


class OutputColumns:
    """Computes and selects the columns of a plan's output.

    Args:
        plan: The plan.
        table: The table.

    Attributes:
        schema: The schema of the output.
    """

    def __init__(self, plan: ReadPlan, table: TableDef) -> None:
        self.schema = arrow_schema(plan.output)
        self._computed = ComputedColumns(plan, table)

    def of(self, rows: pa.RecordBatch, decoded: RowsOfRecords | None = None) -> pa.RecordBatch:
        """Return the output columns of rows with the columns that a source gives, and of their records if known."""
        if rows.schema.equals(self.schema):
            return rows
        columns = dict(zip(rows.schema.names, rows.columns, strict=True)) | self._computed.of(rows, decoded)
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


class RecordOutput:
    """The rows of records, each by itself.

    Args:
        decoder: Decodes the records.
        columns: The columns of the output.
    """

    def __init__(self, decoder: RecordDecoder, columns: OutputColumns) -> None:
        self._decoder, self._columns = decoder, columns

    def add(self, raw: pa.RecordBatch) -> Iterator[Part]:
        """Decode raw records, and yield their rows."""
        decoded = self._decoder.decode_with_records(raw)
        yield Part(self._columns.of(decoded.rows, decoded), find_positions(raw), decoded)

    def finish(self) -> Iterator[Part]:
        """Yield nothing: all rows were yielded before."""
        yield from ()


class ChangeOutput:
    """The changes that upserts cause, computed at the end of each step, with the last row of each key in memory.

    Args:
        decoder: Decodes the records.
        plan: What is read.
        columns: The columns of the output.
    """

    def __init__(self, decoder: RecordDecoder, plan: ReadPlan, columns: OutputColumns) -> None:
        assert plan.upserts is not None
        self._decoder, self._plan, self._columns, self._upserts = decoder, plan, columns, plan.upserts
        self._rule = unavailable_rule(plan)
        self._schema = decoder.schema.remove(0)
        self._source = arrow_schema(change_row(plan))
        self._chunks = ChunkOutput(decoder, plan.upserts, 1)
        self._waiting: list[Chunk] = []
        self._changes = open_changes(plan, self._schema, None, None, 0, 0)

    def add(self, raw: pa.RecordBatch) -> Iterator[Part]:
        """Decode and collect raw records; yield nothing."""
        self._waiting += [chunk for chunks in self._chunks.add(raw) for _, chunk in chunks_of(chunks)]
        yield from ()

    def finish(self) -> Iterator[Part]:
        """Yield the changes that the collected records cause; the last row of each key stays in memory."""
        self._waiting += [chunk for chunks in self._chunks.finish() for _, chunk in chunks_of(chunks)]
        waiting, self._waiting = self._waiting, []
        upserts = read_chunks(waiting, self._schema, events=self._upserts.may_lack_values)
        if upserts is None:
            return
        with report_unavailable(self._plan.table, self._rule) as rule:
            for changes in self._compute(upserts, rule):
                if changes.num_rows:
                    rows = pa.RecordBatch.from_arrays(changes.columns, schema=self._source)
                    yield Part(self._columns.of(rows), {})

    def _compute(self, upserts: KeyedRows, rule: UnavailableRule) -> Iterator[pa.RecordBatch]:
        """Yield changes, with row kinds; if these have before-images, the last row of each key is kept."""
        if self._upserts.images:
            before = self._changes.nulls
            yield from self._changes.apply(upserts, rule)
            yield from self._changes.finish()
            nulls = self._changes.nulls - before
        else:
            rows, deletes, nulls = take_last_changes(upserts, self._upserts.keys, allow_nulls=rule.allow_nulls)
            yield add_row_kinds(rows, np.where(deletes, DELETE, AFTER))
        self._decoder.dropped += Counter({Reason.UNAVAILABLE: nulls})


def create_output(decoder: RecordDecoder, plan: ReadPlan, columns: OutputColumns) -> Output:
    """Create the output of a plan: rows of records, or changes of upserts."""
    if plan.upserts is None or plan.upserts.by_record:
        return RecordOutput(decoder, columns)
    return ChangeOutput(decoder, plan, columns)


def find_positions(raw: pa.RecordBatch) -> dict[TopicPartition, int]:
    """Return for each partition of some records the offset after the last of them."""
    ends = (
        pa.table(raw.select(["topic", "partition", "offset"]).columns, names=["topic", "partition", "offset"])
        .group_by(["topic", "partition"])
        .aggregate([("offset", "max")])
    )
    return {(one["topic"], one["partition"]): one["offset_max"] + 1 for one in ends.to_pylist()}


def without_deletes(changes: pa.Table, kind: str) -> pa.Table:
    """Return the rows that exist after the last change of each key, without the row kind."""
    return changes.filter(pc.not_equal(changes[kind], "-D")).drop_columns([kind])
