"""Computes changes from chunks with Spark: the chunks of one shard meet in one task.

A stream stores the last row of each key in files (`kdsl.run.upsert.keyed_state`); a batch begins without state. A read
without before-images stores nothing and returns the last change of each key in a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import attrs
import numpy as np
import pyarrow as pa

from kdsl.own_columns import TASK_REPORT
from kdsl.plan.model import ReadPlan, Upserts
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.run.records.drops import log_drops
from kdsl.run.session import available_cores
from kdsl.run.state_files.find import find_files
from kdsl.run.upsert.changes import AFTER, DELETE, KeyedRows, compute_changes, take_last_changes
from kdsl.run.upsert.chunks import CHUNK_COLUMNS, Chunk, read_chunks
from kdsl.run.upsert.rows import change_row
from kdsl.run.upsert.shard_changes import ReportSizes, ShardOfBatch, chunks_of, compute_shard
from kdsl.run.upsert.spark_batches import TellShards, add_steps
from kdsl.run.upsert.state import (
    UnavailableRule,
    add_row_kind_field,
    add_row_kinds,
    count_as_dropped,
    read_schema,
    report_unavailable,
    unavailable_rule,
)
from kdsl.run.upsert.steps import choose_shards
from kdsl.spark_internals.arrow import apply_in_groups
from kdsl.spark_internals.session import know_schema
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema
from kdsl.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class CarrySizes(Protocol):
    """Lets changes carry the sizes of states, where tasks have no other way to report them."""

    def add_column(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return changes with the column that carries sizes."""
        ...

    def report(self, sizes: Sequence[tuple[int, int, int]]) -> Iterator[pa.RecordBatch]:
        """Yield rows that carry the sizes of states: of each the shard, the keys and the bytes."""
        ...

    def observe(self, changes: DataFrame) -> DataFrame:
        """Return changes without the column and these rows, whose sizes are reported."""
        ...


def compute_changelog(
    chunks: DataFrame,
    plan: ReadPlan,
    report: Callable[[str, Mapping[str, int]], None] = log_drops,
    sizes: ReportSizes | CarrySizes | None = None,
    *,
    streaming: bool,
    tell: TellShards | None = None,
) -> DataFrame:
    """Compute the changes that chunks cause.

    Without before-images the result has only the last change of each key, of a stream those in a micro-batch. Values
    that are unavailable fail the job, unless they may become NULL.

    Args:
        chunks: Chunks (`kdsl.run.upsert.chunks.CHUNK_COLUMNS`), a stream or not.
        plan: What is read.
        report: Called with the table's name and what tasks have left out, by `kdsl.run.records.drops.Reason`.
        sizes: Gets the size of each state that a task of a stream has stored, or lets the changes carry it; None if
            nobody wants it.
        streaming: Whether the chunks are a stream.
        tell: Tells the shards of a stream what a batch does with their states; None if the chunks say it.

    Returns:
        The columns of `change_row`.
    """
    upserts = plan.upserts
    assert upserts is not None
    rows = t.Row(plan.columns.fields[1:], nullable=False)
    result = spark_schema(change_row(plan))
    serialized = arrow_schema(rows).serialize().to_pybytes()
    rule = unavailable_rule(plan, report)
    compute = _StatelessChanges(plan.table, serialized, upserts, rule)
    if not streaming:
        return apply_in_groups(chunks, "shard", compute.of_shard(), result)
    if tell is not None and upserts.images:
        chunks = add_steps(chunks, tell)
    tasks = choose_shards(plan.parallelism or available_cores(chunks.sparkSession))
    together = know_schema(chunks.repartition(tasks, "shard"), spark_schema(CHUNK_COLUMNS))
    task = _StatefulChanges(plan_text(plan), serialized, rule, sizes) if upserts.images else compute.last
    carrier = None if not upserts.images or callable(sizes) else sizes
    changes = together.mapInArrow(task, result if carrier is None else result.add(TASK_REPORT, "string"))
    return changes if carrier is None else carrier.observe(changes)


@attrs.frozen
class _StatefulChanges:
    """Computes changes of chunks in tasks of a stream, which store the states of shards.

    Attributes:
        plan: The plan, as text.
        schema: The schema of the rows, in Arrow's IPC format.
        unavailable: What happens to values that messages do not contain.
        sizes: As for `compute_changelog`.
    """

    plan: str
    schema: bytes
    unavailable: UnavailableRule | None
    sizes: ReportSizes | CarrySizes | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a task's chunks, with row kinds, and store the states of its shards.

        Values that became NULL and the sizes of the states are reported.
        """
        plan, schema = read_plan_text(self.plan, ReadPlan), read_schema(self.schema)
        changed = add_row_kind_field(schema)
        sizes = self.sizes
        finish = _return_unchanged if sizes is None or callable(sizes) else sizes.add_column
        shards: dict[int, list[Chunk]] = {}
        for batch in batches:
            for shard, chunk in chunks_of(batch):
                if shard < 0:
                    yield finish(pa.ipc.read_record_batch(pa.py_buffer(chunk.rows), changed))
                else:
                    shards.setdefault(shard, []).append(chunk)
        assert plan.upserts is not None
        open_files = partial(find_files, plan.table, plan.upserts.location)
        for shard, chunks in sorted(shards.items()):
            of_batch = ShardOfBatch.of(plan.table, shard, chunks)
            stored: list[tuple[int, int, int]] = []
            report = sizes if callable(sizes) else stored.extend
            yield from map(finish, compute_shard(of_batch, plan, schema, open_files, self.unavailable, report))
            if sizes is not None and not callable(sizes):
                yield from sizes.report(stored)


def _return_unchanged(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows themselves."""
    return rows


@attrs.frozen
class _StatelessChanges:
    """Computes changes of chunks without state, in tasks.

    Attributes:
        table: The table's name.
        schema: The schema of the rows, in Arrow's IPC format.
        upserts: How changes are computed.
        unavailable: What happens to values that messages do not contain.
    """

    table: str
    schema: bytes
    upserts: Upserts
    unavailable: UnavailableRule | None

    def of_shard(self) -> Callable[[pa.Table], pa.Table]:
        """Return the function that computes the changes of a shard in a batch; one shard at a time is in memory.

        Without before-images these are only the last change of each key.
        """
        compute = self.all if self.upserts.images else self.last

        def compute_shard_of_batch(table: pa.Table) -> pa.Table:  # Spark reads the annotations
            batches = list(compute([table]))
            return (
                pa.Table.from_batches(batches)
                if batches
                else add_row_kind_field(read_schema(self.schema)).empty_table()
            )

        return compute_shard_of_batch

    def all(self, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield all changes of chunks, in batches, with row kinds; nothing if the chunks have no rows.

        Values that became NULL are reported.
        """
        upserts = self._read_rows(tables)
        if upserts is not None:
            with report_unavailable(self.table, self.unavailable) as rule:
                changes = compute_changes(
                    upserts, self.upserts.keys, allow_nulls=rule.allow_nulls, net=self.upserts.net
                )
            if rule.report is not None:
                rule.report(self.table, count_as_dropped(changes.nulls))
            yield from (add_row_kinds(*batch) for batch in changes.batches())

    def last(self, batches: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the last change of each key in chunks, ``+U`` or ``-D``, as one batch; nothing without rows.

        Values that became NULL are reported.
        """
        upserts = self._read_rows(batches)
        if upserts is not None:
            with report_unavailable(self.table, self.unavailable) as rule:
                last, deletes, nulls = take_last_changes(upserts, self.upserts.keys, allow_nulls=rule.allow_nulls)
            if rule.report is not None:
                rule.report(self.table, count_as_dropped(nulls))
            yield add_row_kinds(last, np.where(deletes, DELETE, AFTER))

    def _read_rows(self, tables: Iterable[pa.Table | pa.RecordBatch]) -> KeyedRows | None:
        """Read the rows of chunks as `read_chunks` does; None if the chunks have none."""
        chunks = (chunk for table in tables for _, chunk in chunks_of(table))
        return read_chunks(chunks, read_schema(self.schema), events=self.upserts.may_lack_values)
