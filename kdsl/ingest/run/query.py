"""Starts the query of an ingestion."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.declare.start_and_end import StartAt
from kdsl.errors import CheckpointError, KdslError
from kdsl.formats import TableId
from kdsl.ingest.definition import IngestionDef
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.ids import format_id
from kdsl.ingest.learn import Learned
from kdsl.ingest.plan import IngestPlan, plan_ingestion
from kdsl.ingest.restart import AllowedChange, check_restart, write_declaration
from kdsl.ingest.run.batch import BatchRunner, Run
from kdsl.ingest.run.changes import TableBatchRunner
from kdsl.ingest.run.collectors import open_collector
from kdsl.ingest.run.kafka_batch import KafkaBatchRunner
from kdsl.ingest.run.prefetch import sample_tables
from kdsl.ingest.run.progress import INGEST_LOGS, IngestLog, explain_missing_topics
from kdsl.ingest.run.raw import raw_table, topic_regex
from kdsl.ingest.run.rows import RawRead
from kdsl.ingest.run.sinks import SinkWriter
from kdsl.ingest.run.sources import StreamReader, open_reader
from kdsl.ingest.state import SCHEMAS, START, STARTED, IngestState, Note, StateFiles, add_started, read_started
from kdsl.plan.plan_table import plan_read
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.driver import CurrentDriver, explain_other_driver
from kdsl.run.listeners.listener import listen, observe
from kdsl.run.listeners.start import start_query
from kdsl.run.listeners.watch import error_of
from kdsl.run.read import read_stream
from kdsl.run.records.packets import PACKET_COLUMNS, plan_packets
from kdsl.spark_internals.errors import find_reason
from kdsl.spark_internals.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)
_LOOK = "1 second"
"""How often a source other than Kafka is asked for changes, unless the pipeline says it."""
_TWO_DRIVERS = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming queries are concurrently using")
"""What Spark's errors say if another query has written an entry of a log, or the id of a query, of its checkpoint."""


@attrs.frozen
class SharedIngestion:
    """One of several ingestions that read records together.

    Attributes:
        ingestion: The ingestion, with its secrets.
        name: Its name among the others; empty if it is alone.
        new_table: A sink table that must not exist before the first run.
        new_database: A database of the sink that must not exist before the first run, if the sink can tell.
        writer: Writes to the sink; by default that of the sink.
    """

    ingestion: IngestionDef
    name: str = ""
    new_table: TableId | None = None
    new_database: tuple[str, ...] | None = None
    writer: SinkWriter | None = None


def start_ingestions(
    spark: SparkSession,
    parts: Sequence[SharedIngestion],
    checkpoint: str | None = None,
    *,
    once: bool = False,
    allow: Collection[AllowedChange] | None = None,
    forgive_errors: bool = False,
    rebuild_schemas: bool = False,
    start_at: StartAt | None = None,
) -> StreamingQuery:
    """Start one query that reads the records of ingestions whose sources differ only in their topics.

    Of sources other than Kafka there can be only one ingestion. At the first start, the newest records of Kafka are
    read before, and what is known of tables is kept with the checkpoint. The session gets kdsl's data source. Spark's
    errors are passed on.

    Args:
        spark: A classic session.
        parts: The ingestions; the settings of the first one's pipeline say when batches start.
        checkpoint: The folder of the checkpoint; by default the one that the first ingestion declares.
        once: Whether the query ends at what there is at its start.
        allow: What may differ from the run before whatever becomes of the sink tables; None if the user cannot say.
        forgive_errors: Whether records that could not be read so far no longer count towards the limit.
        rebuild_schemas: Whether what was learned of tables is set aside, and learned again.
        start_at: Where to start without a checkpoint; by default where the sources say.
    """
    plans = [plan_ingestion(part.ingestion) for part in parts]
    location = checkpoint or plans[0].pipeline.checkpoint
    if location is None:
        raise KdslError("an ingestion needs a checkpoint: pass its folder, or set pipeline.checkpoint")
    if is_connect(spark):
        raise KdslError("an ingestion needs a classic session; it does not run on Spark Connect")
    for part in parts:
        if part.ingestion.source.copied_once:
            raise KdslError(
                f"the source {part.ingestion.source.type!r} is not a stream; copy it once with Ingestion.copy"
            )
    writers: list[SinkWriter] = [
        part.writer or part.ingestion.sink.writer(plan.pipeline.sink_concurrency, part.name)
        for part, plan in zip(parts, plans, strict=True)
    ]
    feeds = [part.ingestion.source for part in parts if isinstance(part.ingestion.source, KafkaFeed)]
    reader: StreamReader | None = None
    raw: RawRead | None = None
    if feeds:
        table = raw_table(*feeds, parallelism=plans[0].pipeline.parallelism)
        whole = any(writer.needs_whole_partitions for writer in writers)
        cluster = table.cluster(feeds[0].cluster)
        packets = plan_packets(plan_read(table.definition, feeds[0].cluster, start_at=start_at))
        records = read_stream(spark, packets, cluster, whole_partitions=whole)
        if len(feeds) == 1 and records.columns == list(PACKET_COLUMNS.names):
            raw = RawRead(table.read_plan(), feeds[0].cluster)
    else:
        opened_reader = open_reader(parts[0].ingestion.source)
        assert isinstance(opened_reader, StreamReader)
        reader, records = opened_reader, opened_reader.open_stream(spark)
    opened = Checkpoint.open(spark, location)
    driver = CurrentDriver(opened.folder)
    runners: list[BatchRunner] = []
    is_once = once or plans[0].pipeline.runtime_mode == "BATCH"
    logs = [IngestLog(plan, part.name, once=is_once) for part, plan in zip(parts, plans, strict=True)]
    accepts = "sink" in (allow or ())
    for part, plan, sink_writer, log in zip(parts, plans, writers, logs, strict=True):
        files = _open_state(spark, part, plan, opened, sink_writer, allow, learns_again=rebuild_schemas)
        run = Run(plan, sink_writer, files, opened, driver, log, accepts)
        if reader is not None:
            runners.append(TableBatchRunner(run, reader))
            continue
        feed = part.ingestion.source
        assert isinstance(feed, KafkaFeed)
        collector = open_collector(spark, part.ingestion, part.name) if feed.valid().ignore_errors else None
        runners.append(KafkaBatchRunner(attrs.evolve(run, collect=collector, forgive=forgive_errors), raw))
    shared = partial(_run_all, list(zip(map(topic_regex, feeds), runners, strict=False)))
    stream = records.writeStream.foreachBatch(runners[0] if len(runners) == 1 else shared)
    for warning in filter(None, map(explain_missing_topics, feeds)):
        _log.warning("%s", warning)
    observe(INGEST_LOGS)
    listen(spark)
    query = start_query(stream, location, _trigger(plans[0], once=once), plans[0].pipeline.name)
    for log in logs:
        INGEST_LOGS.follow(query.id, log)
    return query


def _open_state(
    spark: SparkSession,
    part: SharedIngestion,
    plan: IngestPlan,
    opened: Checkpoint,
    writer: SinkWriter,
    allow: Collection[AllowedChange] | None,
    *,
    learns_again: bool,
) -> StateFiles:
    """Open the state of an ingestion; before its first batch, keep the declaration and what newest records show.

    A state that is learned again only keeps the identities of the sink tables: other tables are noticed all the same.
    """
    files = StateFiles(opened.folder, part.name)
    state = IngestState() if learns_again else files.load()
    if state.last is not None:
        _check_offset_log(opened, state.last)
        check_restart(plan, state, allow, opened.location)
        add_started(opened.folder, part.name)
        return files
    if not learns_again:
        _check_first_start(opened, files, part.name, can_rebuild=allow is not None)
    if part.new_table is not None and writer.read_schema(spark, part.new_table, None) is not None:
        raise KdslError(
            f"the table {format_id(part.new_table)} exists already; write CREATE TABLE IF NOT EXISTS to fill it, or "
            "drop it before"
        )
    if part.new_database is not None and writer.has_database(spark, part.new_database):
        raise KdslError(
            f"the database {format_id(part.new_database)} exists already; write CREATE DATABASE IF NOT EXISTS to fill "
            "it, or drop it before"
        )
    source = part.ingestion.source
    learned = sample_tables(plan, source) if isinstance(source, KafkaFeed) else Learned({})
    identities: dict[TableId, str] = {}
    if learns_again:
        identities = files.find_identities()
        files.set_aside()
    declared = write_declaration(plan)
    note = Note(START, learned.tables, declared=declared, record_ids=learned.record_ids, identities=identities)
    files.write(note, IngestState())
    add_started(opened.folder, part.name)
    return files


def _check_first_start(checkpoint: Checkpoint, files: StateFiles, name: str, *, can_rebuild: bool) -> None:
    """Check that an ingestion without a state has never started: a lost state is not taken for that."""
    started = read_started(checkpoint.folder)
    planned, done = checkpoint.last_batches()
    last = max(planned, done)
    if started is None and last < 0:
        return
    if started is not None and name not in started:
        return
    evidence = (
        f"{checkpoint.folder.path('offsets')} has batch {last}"
        if last >= 0
        else (f"{checkpoint.folder.path(STARTED)} says that the ingestion has started")
    )
    remedy = "start with a new checkpoint"
    if can_rebuild:
        remedy = (
            "start once with --rebuild-schemas (rebuild_schemas=True), which learns the tables again from newest "
            "messages and sink tables, and counts from 0"
        )
    raise CheckpointError(
        f"{files.location} is missing, but {evidence}: what was learned of the tables is lost, with the counts of "
        f"records that could not be read; restore it from a copy of the checkpoint, or {remedy}"
    )


def _check_offset_log(checkpoint: Checkpoint, last: int) -> None:
    """Check that Spark's offset log has the last batch of the state; without it the source would start again."""
    planned, _ = checkpoint.last_batches()
    if planned < last:
        missing = checkpoint.explain_short_log(planned, f"{checkpoint.folder.path(SCHEMAS)} has batch {last}")
        raise CheckpointError(
            f"{missing}, and records would be read again from the start; restore it from a copy, or start with a new "
            "checkpoint"
        )


def _run_all(runners: Sequence[tuple[str, BatchRunner]], records: DataFrame, number: int) -> None:
    """Run a batch of several ingestions, one after the other, each with the records of its topics.

    The records are read once.
    """
    from pyspark.sql import functions as F

    topic = F.col("table" if "table" in records.columns else "topic")  # of packets, or of rows
    records = records.persist()
    try:
        for topics, runner in runners:
            runner(records.where(topic.rlike(f"^(?:{topics})$")), number)
    finally:
        records.unpersist()


def _trigger(plan: IngestPlan, *, once: bool) -> dict[str, Any]:
    """The arguments of Spark's trigger: all that there is, if ``once`` or the pipeline says so; or its interval.

    Without an interval, batches of Kafka follow at once, and other sources are looked at every second.
    """
    if once or plan.pipeline.runtime_mode == "BATCH":
        return {"availableNow": True}
    if plan.pipeline.trigger is None:
        return {} if isinstance(plan.source, KafkaFeed) else {"processingTime": _LOOK}
    return {"processingTime": f"{round(plan.pipeline.trigger.total_seconds() * 1000)} milliseconds"}


def explain_end(spark: SparkSession, query: StreamingQuery, checkpoint: str) -> str | None:
    """Why a query failed; None if it did not.

    Of an error of kdsl only its message remains; of two drivers on one checkpoint, what to do about them.

    Args:
        spark: The session.
        query: The query, which has ended.
        checkpoint: The folder of its checkpoint, for messages.
    """
    error = error_of(spark, query)
    if error is None:
        return None
    if any(words in str(error) for words in _TWO_DRIVERS):
        return explain_other_driver(checkpoint)
    return find_reason(error)
