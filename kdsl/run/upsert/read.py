"""Computes changes from chunks with Spark: the chunks of one bucket meet in one task.

A stream stores the last row of each key in Spark's state; a batch begins without state. A read without before-images
stores nothing and returns the last change of each key in a micro-batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pyarrow as pa

from kdsl.plan.model import ReadPlan, Upserts
from kdsl.run.dataframes.watermark import delay_text, mark_event_time
from kdsl.run.records.drops import log_drops
from kdsl.run.session import get_setting, require_setting, session_version
from kdsl.run.upsert.changes import AFTER, DELETE, KeyedRows, compute_changes, take_last_changes
from kdsl.run.upsert.chunks import CHUNK_COLUMNS, Chunk, read_chunks
from kdsl.run.upsert.processor import CHANGED_BUCKETS, UpsertProcessor
from kdsl.run.upsert.rows import change_row
from kdsl.run.upsert.state import (
    UnavailableRule,
    add_row_kind_field,
    add_row_kinds,
    count_as_dropped,
    read_schema,
    report_unavailable,
    unavailable_rule,
)
from kdsl.spark_internals.arrow import apply_in_groups
from kdsl.spark_internals.session import is_connect, know_schema
from kdsl.spark_versions import CONNECT_STATE, require
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema
from kdsl.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
_WITHOUT_TIME = t.Row(tuple(f for f in CHUNK_COLUMNS.fields if f.name != "time"), nullable=False)
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def compute_changelog(
    chunks: DataFrame,
    plan: ReadPlan,
    observe: Callable[[DataFrame], DataFrame] | None = None,
    report: Callable[[str, Mapping[str, int]], None] = log_drops,
    *,
    streaming: bool,
) -> DataFrame:
    """Compute the changes that chunks cause; for a stream with state, set the session's state store to RocksDB.

    Such a stream also gets the plan's watermark. Without before-images the result has only the last change of each key,
    of a stream those in a micro-batch. Values that are unavailable fail the job, unless they may become NULL.

    Args:
        chunks: Chunks (`kdsl.run.upsert.chunks.CHUNK_COLUMNS`), a stream or not.
        plan: What is read.
        observe: Observes the buckets that a stream's batch has changed (`kdsl.run.upsert.processor.CHANGED_BUCKETS`)
            and returns them unchanged.
        report: Called with the table's name and what tasks have left out, by `kdsl.run.records.drops.Reason`.
        streaming: Whether the chunks are a stream.

    Returns:
        The columns of `change_row`.
    """
    upserts = plan.upserts
    assert upserts is not None
    rows = t.Row(plan.columns.fields[1:], nullable=False)
    schema = arrow_schema(rows)
    result = spark_schema(change_row(plan))
    serialized = schema.serialize().to_pybytes()
    compute = _StatelessChanges(plan.table, serialized, upserts, unavailable_rule(plan, report))
    if not streaming:
        return apply_in_groups(chunks, "bucket", compute.of_bucket(), result)
    if not upserts.images:
        together = know_schema(chunks.repartition("bucket"), spark_schema(CHUNK_COLUMNS))
        return together.mapInArrow(compute.last, result)
    if is_connect(chunks.sparkSession):
        require(CONNECT_STATE, session_version(chunks.sparkSession), plan.table)
    _use_rocksdb(chunks.sparkSession)
    chunks = know_schema(_with_watermark(chunks, plan).drop("time"), spark_schema(_WITHOUT_TIME))
    rule = compute.unavailable
    if observe is not None and rule is not None:
        rule = attrs.evolve(rule, report=None)
    processor = UpsertProcessor(plan.table, serialized, upserts.keys, upserts.buckets, rule, net=upserts.net)
    buckets = chunks.groupBy("bucket").transformWithStateInPandas(processor, CHANGED_BUCKETS, "append", "none")
    buckets = know_schema(buckets if observe is None else observe(buckets), CHANGED_BUCKETS)
    changes = buckets.mapInArrow(partial(_read_changed_rows, serialized), result)
    return changes if plan.watermark is None else mark_event_time(changes, plan.watermark, result.names)


def _with_watermark(chunks: DataFrame, plan: ReadPlan) -> DataFrame:
    """Return chunks with the plan's watermark; the chunks themselves if the plan has none.

    Spark allows no watermark after a stateful operator, but passes one through it.
    """
    return chunks if plan.watermark is None else chunks.withWatermark("time", delay_text(plan.watermark))


def _use_rocksdb(spark: SparkSession) -> None:
    """Set the session's state store to RocksDB, which Spark requires for such queries, and log it if it was another.

    A query with a checkpoint continues with the store with which it began.
    """
    if get_setting(spark, _PROVIDER) != _ROCKSDB:
        _log.info("%s is set to RocksDB, which the state of upsert tables requires", _PROVIDER)
        require_setting(spark, _PROVIDER, _ROCKSDB, "the state of upsert tables")


def _read_changed_rows(schema: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of changes, with row kinds, that the column ``rows`` has in Arrow's IPC format."""
    changed = add_row_kind_field(read_schema(schema))
    for batch in batches:
        for value in batch.column("rows"):
            yield pa.ipc.read_record_batch(value.as_buffer(), changed)


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

    def of_bucket(self) -> Callable[[pa.Table], pa.Table]:
        """Return the function that computes the changes of a bucket in a batch; one bucket at a time is in memory.

        Without before-images these are only the last change of each key.
        """
        compute = self.all if self.upserts.images else self.last

        def compute_bucket(table: pa.Table) -> pa.Table:  # Spark reads the annotations
            batches = list(compute([table]))
            return (
                pa.Table.from_batches(batches)
                if batches
                else add_row_kind_field(read_schema(self.schema)).empty_table()
            )

        return compute_bucket

    def all(self, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield all changes of chunks, in batches, with row kinds; nothing if the chunks have no rows.

        Values that became NULL are reported.
        """
        upserts = self._read_rows(tables)
        if upserts is not None:
            with report_unavailable(self.table, self.unavailable) as rule:
                changes = compute_changes(
                    None, upserts, self.upserts.keys, allow_nulls=rule.allow_nulls, net=self.upserts.net
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
        chunks = (chunk for table in tables for chunk in _chunks_of(table))
        return read_chunks(chunks, read_schema(self.schema), events=self.upserts.may_lack_values)


def _chunks_of(table: pa.Table | pa.RecordBatch) -> Iterator[Chunk]:
    """Yield the chunks of a batch from Spark."""
    columns: list[list[Any]] = [table.column(name).to_pylist() for name in ("topic", "partition", "offset", "rows")]
    yield from (Chunk(*values) for values in zip(*columns, strict=True))
