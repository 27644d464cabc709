"""Starts the query of an ingestion, and runs its batches."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.changelog.target import Batch
from kdsl.cluster import Cluster
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import TableDef
from kdsl.errors import KdslError
from kdsl.formats import ROW_KIND, TableId
from kdsl.ingest.decision import Decision, Seen, TableWork, decide_batch
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.evolution import SinkEvolution
from kdsl.ingest.ids import format_id, parse_id
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.records import initial_tables, plan_table
from kdsl.ingest.run.sinks import SinkWriter
from kdsl.ingest.run.tasks import PACKETS, decode_task, raw_columns, split_task
from kdsl.ingest.state import START, IngestState, Note, StateFiles
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.listeners.start import start_query
from kdsl.table import Table
from kdsl.types.spark import spark_schema, spark_type_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class IngestError(KdslError):
    """A batch of an ingestion is refused; nothing was written."""


def raw_table(feed: KafkaFeed, parallelism: int | None) -> Table:
    """The table whose rows are the raw records of a source."""
    chosen = feed.valid()
    options = KafkaOptions(
        topic=chosen.topic,
        topic_pattern=chosen.topic_pattern,
        startup=chosen.startup,
        startup_timestamp=chosen.startup_timestamp,
        startup_offsets=chosen.startup_offsets,
        header_filter=chosen.header_filter,
        check_group=chosen.check_group,
        discovery=chosen.discovery,
        max_records_per_trigger=chosen.max_records_per_trigger,
        max_records_per_partition=chosen.max_records_per_partition,
        transport=chosen.transport,
        scan_parallelism=parallelism,
    )
    return Table(TableDef(feed.name or "ingestion", raw_columns(), options=options))


def start_ingestion(
    spark: SparkSession,
    plan: IngestPlan,
    cluster: Cluster,
    writer: SinkWriter,
    checkpoint: str,
    *,
    once: bool = False,
) -> StreamingQuery:
    """Start the query.

    Args:
        spark: The session.
        plan: The plan.
        cluster: The cluster of the source, with its secrets.
        writer: Writes to the sink.
        checkpoint: The folder of the checkpoint.
        once: Whether the query ends at what there is at its start.
    """
    assert isinstance(plan.source, KafkaFeed)
    records = raw_table(plan.source, plan.pipeline.parallelism).read_stream(spark, cluster)
    opened = Checkpoint.open(spark, checkpoint)
    files = StateFiles(opened.folder)
    if files.load().last is None and plan.initial_schemas:
        files.write(Note(START, initial_tables(plan.initial_schemas)), IngestState())
    batches = _Batches(plan, writer, files, opened)
    trigger: dict[str, Any] = {"availableNow": True} if once or plan.pipeline.runtime_mode == "BATCH" else {}
    if not trigger and plan.pipeline.trigger is not None:
        trigger = {"processingTime": f"{plan.pipeline.trigger.total_seconds()} seconds"}
    return start_query(records.writeStream.foreachBatch(batches.run), checkpoint, trigger, plan.pipeline.name)


@attrs.frozen
class _Batches:
    """Runs the batches of a query."""

    plan: IngestPlan
    writer: SinkWriter
    files: StateFiles
    checkpoint: Checkpoint

    def run(self, records: DataFrame, number: int) -> None:
        """Run a batch: divide, decide, note, write.

        Raises:
            IngestError: The batch is refused.
        """
        assert isinstance(self.plan.source, KafkaFeed)
        state = self.files.load(number)
        split = split_task(self.plan.source, self.plan.pipeline.max_columns, state.upstream)
        packets = records.mapInArrow(split, PACKETS).persist()
        try:
            decision = decide_batch(self.plan, state, number, _collect_seen(packets))
            if decision.refusals:
                lines = "\n".join(f"  {refusal}" for refusal in decision.refusals)
                raise IngestError(f"the batch {number} is refused, and nothing was written:\n{lines}")
            self.files.write(decision.note, state)
            for target, rows, keys in _rows_of_sinks(self.plan, packets, decision):
                self.writer.write(target, rows, keys, self._identity(number))
        finally:
            packets.unpersist()

    def _identity(self, number: int) -> Batch:
        """The identity of a batch, by which sinks recognize one that is repeated."""
        metadata = self.checkpoint.folder.read("metadata")
        query = "" if metadata is None else str(json.loads(metadata)["id"])
        return Batch(query, number, f"{query}/{self.checkpoint.batch_digest(number)}")


def _collect_seen(packets: DataFrame) -> Seen:
    """What the tasks counted and observed."""
    rows: dict[TableId, int] = {}
    deltas, reasons, dirty = [], [], 0
    for row in packets.select("table", "rows", "dirty", "reasons", "delta").collect():
        if row["table"] is None:
            dirty += row["dirty"]
            reasons += row["reasons"]
            continue
        table = parse_id(row["table"])
        rows[table] = rows.get(table, 0) + row["rows"]
        if row["delta"] is not None:
            deltas.append(pickle.loads(row["delta"]))  # noqa: S301  # of our own tasks
    return Seen(rows, tuple(deltas), dirty, tuple(reasons))


def _rows_of_sinks(
    plan: IngestPlan, packets: DataFrame, decision: Decision
) -> Iterable[tuple[TableId, DataFrame, tuple[str, ...]]]:
    """The rows of each sink table, with its primary key."""
    for target, sink in decision.sinks.items():
        parts = [_sink_rows(plan, packets, work, sink) for work in decision.tables if target in work.plan.targets]
        rows = parts[0]
        for other in parts[1:]:
            rows = rows.unionByName(other, allowMissingColumns=True)
        yield target, rows, sink.schema.primary_key


def _sink_rows(plan: IngestPlan, packets: DataFrame, work: TableWork, sink: SinkEvolution) -> DataFrame:
    """The rows of an upstream table, with the columns and types of a sink table."""
    from pyspark.sql import functions as F

    assert isinstance(plan.source, KafkaFeed)
    transformed = work.plan.transformed
    read = plan_table(plan.source, work.plan.table, work.upstream)
    zone = packets.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
    own = packets.where(F.col("table") == format_id(work.plan.table)).select("records")
    rows = own.mapInArrow(decode_task(read, zone), spark_schema(read.columns))
    if transformed.filter is not None:
        rows = rows.where(transformed.filter)
    names = {f.name: f.type for f in sink.schema.columns}
    columns = []
    for column in transformed.columns:
        if column.name in sink.left_out:
            continue
        cast = "TRY_CAST" if column.name in sink.narrowed else "CAST"
        sql = f"{cast}({column.sql} AS {spark_type_name(names[column.name])})"
        columns.append(F.expr(sql).alias(column.name))
    kind = F.col(ROW_KIND)
    if ROW_KIND in rows.columns:
        soft = F.when(kind == "-D", F.lit("+I")).otherwise(kind) if transformed.soft_delete else kind
        columns.insert(0, soft.alias(ROW_KIND))
    return rows.select(*columns)
