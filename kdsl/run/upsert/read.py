"""Packets to changes on Spark: those of one bucket meet in one task.

A stream keeps the last row of each key in Spark's state; a batch begins with none. What has no before-images keeps
nothing, and gives the last change of each key in a micro-batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kdsl.plan.model import ReadPlan, Upserts as UpsertPlan
from kdsl.run.frames.watermark import delay_text, marked
from kdsl.run.upsert.changes import AFTER, DELETE, Upserts, changes, last_of_each
from kdsl.run.upsert.packets import Packet, unpacked
from kdsl.run.upsert.rows import change_row
from kdsl.run.upsert.state import CHANGED, UpsertProcessor, changed_rows, changed_schema, read_schema
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema
from kdsl.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def changelog(
    packets: DataFrame, plan: ReadPlan, observed: Callable[[DataFrame], DataFrame] | None = None
) -> DataFrame:
    """The changes that packets make.

    Args:
        packets: Packets (`kdsl.run.upsert.packets.PACKETS`), a stream or not.
        plan: What is read.
        observed: Looks on at the buckets that a stream's batch has touched (`kdsl.run.upsert.state.CHANGED`), and
            gives them on as they are.

    Returns:
        The columns of `change_row`.
    """
    upserts = plan.upserts
    assert upserts is not None
    rows = t.Row(plan.columns.fields[1:], nullable=False)
    schema = arrow_schema(rows)
    shown = spark_schema(change_row(plan))
    sent = schema.serialize().to_pybytes()
    if not packets.isStreaming:
        return packets.groupBy("bucket").applyInArrow(_of_bucket(sent, upserts), shown)
    if not upserts.images:
        together = packets.repartition("bucket")
        return together.mapInArrow(partial(_last_changes, sent, upserts), shown)
    _use_rocksdb(packets.sparkSession)
    packets = _with_watermark(packets, plan).drop("time")
    processor = UpsertProcessor(plan.table, sent, upserts.keys, upserts.buckets)
    found = packets.groupBy("bucket").transformWithStateInPandas(processor, CHANGED, "append", "none")
    found = found if observed is None else observed(found)
    made = found.mapInArrow(partial(_opened, sent), shown)
    return made if plan.watermark is None else marked(made, plan.watermark)


def _with_watermark(packets: DataFrame, plan: ReadPlan) -> DataFrame:
    """Packets with the plan's watermark: Spark takes none behind state, and brings one that is before it through."""
    return packets if plan.watermark is None else packets.withWatermark("time", delay_text(plan.watermark))


def _use_rocksdb(spark: SparkSession) -> None:
    """Let queries that begin from now on keep their state in RocksDB, without which Spark runs no such query.

    A query that has a checkpoint goes on with the store that it began with.
    """
    if spark.conf.get(_PROVIDER, "") != _ROCKSDB:
        _log.info("%s is set to RocksDB, which the state of upsert tables needs", _PROVIDER)
        spark.conf.set(_PROVIDER, _ROCKSDB)


def _opened(schema: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    changed = changed_schema(read_schema(schema))
    for batch in batches:
        for value in batch.column("rows"):
            yield pa.ipc.read_record_batch(value.as_buffer(), changed)


def _of_bucket(schema: bytes, upserts: UpsertPlan) -> Callable[[pa.Table], pa.Table]:
    """What a batch makes of the packets of a bucket: one bucket at a time is in memory."""
    make = _all_changes if upserts.images else _last_changes

    def grouped(table: pa.Table) -> pa.Table:  # Spark reads the annotations
        made = list(make(schema, upserts, [table]))
        return pa.Table.from_batches(made) if made else changed_schema(read_schema(schema)).empty_table()

    return grouped


def _all_changes(schema: bytes, upserts: UpsertPlan, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    found = _unpacked(schema, tables)
    if found is not None:
        yield from (changed_rows(*part) for part in changes(None, found, upserts.keys).parts())


def _last_changes(schema: bytes, upserts: UpsertPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = _unpacked(schema, batches)
    if found is not None:
        last, deletes = last_of_each(found, upserts.keys)
        yield changed_rows(last, np.where(deletes, DELETE, AFTER))


def _unpacked(schema: bytes, tables: Iterable[pa.Table | pa.RecordBatch]) -> Upserts | None:
    return unpacked((packet for table in tables for packet in _packets(table)), read_schema(schema))


def _packets(table: pa.Table | pa.RecordBatch) -> Iterator[Packet]:
    columns: list[list[Any]] = [table.column(name).to_pylist() for name in ("topic", "partition", "offset", "rows")]
    yield from (Packet(*values) for values in zip(*columns, strict=True))
