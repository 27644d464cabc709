"""Starts the query of an ingestion."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from kdsl.errors import KdslError
from kdsl.ingest.definition import IngestionDef
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.plan import IngestPlan, plan_ingestion
from kdsl.ingest.restart import AllowedChange, check_restart, write_declaration
from kdsl.ingest.run.batch import BatchRunner, KafkaBatchRunner
from kdsl.ingest.run.changes import TableBatchRunner
from kdsl.ingest.run.collectors import open_collector
from kdsl.ingest.run.prefetch import sample_tables
from kdsl.ingest.run.raw import raw_table
from kdsl.ingest.run.sinks import SinkWriter, open_writer
from kdsl.ingest.run.sources import StreamReader, open_reader
from kdsl.ingest.state import START, IngestState, Note, StateFiles
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.listeners.start import start_query
from kdsl.run.listeners.watch import error_of
from kdsl.spark_internals.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK = "1 second"
"""How often a source other than Kafka is asked for changes, unless the pipeline says it."""
_OWN_ERROR = re.compile(r"^kdsl\.[\w.]+Error: (.*?)(?:\n\s*at .*|\n\n.*)?\Z", re.MULTILINE | re.DOTALL)
"""An error of kdsl in the message of a query's error, up to Java's stack trace."""


def start_ingestion(
    spark: SparkSession,
    ingestion: IngestionDef,
    checkpoint: str | None = None,
    *,
    once: bool = False,
    writer: SinkWriter | None = None,
    allow: Collection[AllowedChange] = (),
    forgive_errors: bool = False,
) -> StreamingQuery:
    """Start the query of an ingestion.

    Args:
        spark: A classic session.
        ingestion: The ingestion, with its secrets.
        checkpoint: The folder of the checkpoint; by default the one that the ingestion declares.
        once: Whether the query ends at what there is at its start.
        writer: Writes to the sink; by default that of the sink.
        allow: What may differ from the run before whatever becomes of the sink tables.
        forgive_errors: Whether records that could not be read so far no longer count towards the limit.

    Raises:
        CheckpointError: The checkpoint was written with other routes or transforms, and sink tables would lose columns.
        ResolveError: The ingestion has mistakes.
        KdslError: There is no checkpoint, kdsl cannot run the ingestion, or a cluster or a sink cannot be reached.
    """
    plan = plan_ingestion(ingestion)
    location = checkpoint or plan.pipeline.checkpoint
    if location is None:
        raise KdslError("an ingestion needs a checkpoint: pass its folder, or set pipeline.checkpoint")
    if is_connect(spark):
        raise KdslError("an ingestion needs a classic session; it does not run on Spark Connect")
    source = ingestion.source
    if source.copied_once:
        raise KdslError(f"the source {source.type!r} is not a stream; copy it once with Ingestion.copy")
    sink_writer = writer or open_writer(ingestion.sink, plan.pipeline.sink_concurrency)
    reader = None if isinstance(source, KafkaFeed) else open_reader(source)
    if isinstance(source, KafkaFeed):
        records = raw_table(source, plan.pipeline.parallelism).read_stream(spark, source.cluster)
    else:
        assert isinstance(reader, StreamReader)
        records = reader.open_stream(spark)
    opened = Checkpoint.open(spark, location)
    files = StateFiles(opened.folder)
    state = files.load()
    if state.last is None:
        tables = sample_tables(plan, source) if isinstance(source, KafkaFeed) else {}
        files.write(Note(START, tables, declared=write_declaration(plan)), IngestState())
    else:
        check_restart(plan, state, allow, opened.location)
    runner: BatchRunner
    if isinstance(source, KafkaFeed):
        collector = open_collector(spark, source, ingestion.pipeline.valid()) if source.valid().ignore_errors else None
        runner = KafkaBatchRunner(plan, sink_writer, files, opened, collector, forgive=forgive_errors)
    else:
        assert isinstance(reader, StreamReader)
        runner = TableBatchRunner(plan, reader, sink_writer, files, opened)
    stream = records.writeStream.foreachBatch(runner)
    return start_query(stream, location, _trigger(plan, once=once), plan.pipeline.name)


def _trigger(plan: IngestPlan, *, once: bool) -> dict[str, Any]:
    """The arguments of Spark's trigger."""
    if once or plan.pipeline.runtime_mode == "BATCH":
        return {"availableNow": True}
    if plan.pipeline.trigger is None:
        return {} if isinstance(plan.source, KafkaFeed) else {"processingTime": _LOOK}
    return {"processingTime": f"{round(plan.pipeline.trigger.total_seconds() * 1000)} milliseconds"}


def explain_end(spark: SparkSession, query: StreamingQuery) -> str | None:
    """Why a query failed; None if it did not. Of an error of kdsl only its message remains."""
    error = error_of(spark, query)
    if error is None:
        return None
    own = _OWN_ERROR.search(str(error))
    return str(error) if own is None else own[1].strip()
