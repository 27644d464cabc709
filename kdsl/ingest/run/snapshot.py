"""Copies the tables of a source once."""

from __future__ import annotations

import json
import logging
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.changelog.target import Batch
from kdsl.errors import CheckpointError, KdslError
from kdsl.ingest.definition import IngestionDef
from kdsl.ingest.learned import COPY_FILE
from kdsl.ingest.plan import IngestPlan, plan_ingestion
from kdsl.ingest.restart import write_declaration
from kdsl.ingest.run.batch import configure_session, open_decision, refusal_error, with_losses
from kdsl.ingest.run.changes import decide_tables, row_reader
from kdsl.ingest.run.rows import build_sink_tables, count_losses, refuse_losses, refuse_rows
from kdsl.ingest.run.sinks import SinkWriter
from kdsl.ingest.run.sources import SnapshotReader, open_reader
from kdsl.ingest.state import IngestState, StateFiles
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.driver import FILE as DRIVER, CurrentDriver
from kdsl.run.checkpoint.folder import Folder
from kdsl.spark_internals.session import active_session, clone_session, is_connect, java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def copy_snapshot(
    spark: SparkSession, ingestion: IngestionDef, checkpoint: str | None = None, *, writer: SinkWriter | None = None
) -> bool:
    """Copy the tables of a source into the sink.

    If a copy was interrupted, the tables that have their rows are skipped; the others get the rows that they have now.
    Whether it is done is noted in the checkpoint, which this driver takes over. It runs in a clone of the session.

    Args:
        spark: A classic session.
        ingestion: The ingestion, with its secrets.
        checkpoint: The folder of the checkpoint; by default the one that the ingestion declares.
        writer: Writes to the sink; by default that of the sink.

    Returns:
        Whether rows were written; False if the copy was done before.
    """
    plan = plan_ingestion(ingestion)
    location = checkpoint or plan.pipeline.checkpoint
    source = ingestion.source
    if location is None:
        raise KdslError("an ingestion needs a checkpoint: pass its folder, or set pipeline.checkpoint")
    if is_connect(spark):
        raise KdslError("an ingestion needs a classic session; it does not run on Spark Connect")
    if not source.copied_once:
        raise KdslError(f"the source {source.type!r} is not copied once: it is a stream of changes; run it")
    folder = Checkpoint.open(spark, location).folder
    document = identify_copy(folder)
    driver = CurrentDriver(folder)
    driver.take_over()
    if document["done"]:
        _log.info("%s: the tables were copied already", folder.location)
        return False
    session = clone_session(spark)
    configure_session(session, plan.pipeline)
    with active_session(jvm_of(session), java_session(session)):
        _copy(session, ingestion, plan, folder, document, writer, driver)
    folder.write(COPY_FILE, json.dumps({**document, "done": True}))
    return True


def identify_copy(folder: Folder) -> dict[str, Any]:
    """Read the id of a checkpoint's copy and whether it is done: ``id``, ``done``; an unused checkpoint gets a new one.

    The file must not be damaged, nor missing although a copy has begun.
    """
    text = folder.read(COPY_FILE)
    if text is None and folder.read(DRIVER) is None:
        document: dict[str, Any] = {"id": str(uuid.uuid4()), "done": False}
        folder.write(COPY_FILE, json.dumps(document))  # before a driver takes the checkpoint over
        return document
    try:
        document = dict(json.loads(text or ""))
        if {"id", "done"} <= document.keys():
            return document
    except (ValueError, TypeError):
        pass
    state = "is missing, although a copy has begun" if text is None else "is damaged"
    raise CheckpointError(
        f"{folder.path(COPY_FILE)} {state}: it says which rows the sink tables have already, and without it they would "
        "be written again; restore it from a copy of the checkpoint, or empty the sink and start with a new checkpoint"
    )


def _copy(
    session: SparkSession,
    ingestion: IngestionDef,
    plan: IngestPlan,
    folder: Folder,
    document: dict[str, Any],
    writer: SinkWriter | None,
    driver: CurrentDriver,
) -> None:
    """Judge, note and write the tables; the progress is added to ``document``, which is written to the folder."""
    reader = open_reader(ingestion.source)
    assert isinstance(reader, SnapshotReader)
    batch = reader.read_tables(session, document.get("progress", {}))
    document["progress"] = dict(batch.progress)
    folder.write(COPY_FILE, json.dumps(document))
    sink_writer: SinkWriter = writer or ingestion.sink.writer(plan.pipeline.sink_concurrency)
    decision = decide_tables(plan, IngestState(), 0, batch, partial(sink_writer.read_schema, session))
    open_decision(session, plan, decision)
    changes = {table: evolution.changes for table, evolution in decision.sinks.items() if evolution.changes}
    read = row_reader(batch)
    pairs, needs_kinds = sink_writer.pairs_updates, sink_writer.needs_rows_before
    tables = list(build_sink_tables(plan, read, decision, with_filtered=pairs, needs_kinds=needs_kinds))
    refusals = [*decision.refusals, *refuse_rows(tables), *(sink_writer.refuse(session, changes) if changes else ())]
    if refusals:
        raise refusal_error("the copy", refusals, plan)
    losses = count_losses(plan, read, decision)
    if lossy := refuse_losses(plan, decision, losses):
        raise refusal_error("the copy", lossy, plan)
    decision = with_losses(decision, losses)
    note = attrs.evolve(decision.note, declared=write_declaration(plan))
    driver.require()
    StateFiles(folder).write(note, IngestState())
    sink_writer.write(tables, Batch(document["id"], 0, f"{document['id']}/0"))
