"""Copies the tables of a database once."""

from __future__ import annotations

import json
import logging
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.changelog.target import Batch
from kdsl.changelog.to_jdbc import JdbcTarget
from kdsl.errors import ChangelogError, KdslError
from kdsl.formats import TableId
from kdsl.ingest.decision import Seen, TableWork, decide_batch
from kdsl.ingest.definition import IngestionDef
from kdsl.ingest.ends import JdbcSnapshot
from kdsl.ingest.evolution import UpstreamTable
from kdsl.ingest.ids import parse_id
from kdsl.ingest.plan import plan_ingestion
from kdsl.ingest.restart import write_declaration
from kdsl.ingest.run.batch import refusal_error
from kdsl.ingest.run.rows import build_sink_tables
from kdsl.ingest.run.sinks import SinkWriter, open_writer
from kdsl.ingest.run.sinks.jdbc import find_database_table
from kdsl.ingest.state import IngestState, StateFiles
from kdsl.run.checkpoint.checkpoint import FOLDER, Checkpoint
from kdsl.spark_internals.session import is_connect
from kdsl.types import model as t
from kdsl.types.spark import from_spark
from kdsl.types.widening import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE = f"{FOLDER}/snapshot.json"
"""The file of a checkpoint that identifies a copy, and says whether it is done."""
_log = logging.getLogger(__name__)


def copy_snapshot(
    spark: SparkSession, ingestion: IngestionDef, checkpoint: str | None = None, *, writer: SinkWriter | None = None
) -> bool:
    """Copy the tables of a database into the sink.

    If a copy was interrupted, the tables that have their rows are skipped; the others get the rows that they have now.

    Args:
        spark: A classic session.
        ingestion: The ingestion, with its secrets.
        checkpoint: The folder of the checkpoint; by default the one that the ingestion declares.
        writer: Writes to the sink; by default that of the sink.

    Returns:
        Whether rows were written; False if the copy was done before.

    Raises:
        ResolveError: The ingestion has mistakes.
        IngestError: A table is refused; nothing was written.
        KdslError: There is no checkpoint, kdsl cannot read the source, or the database or the sink cannot be reached.
    """
    plan = plan_ingestion(ingestion)
    location = checkpoint or plan.pipeline.checkpoint
    source = ingestion.source
    if location is None:
        raise KdslError("an ingestion needs a checkpoint: pass its folder, or set pipeline.checkpoint")
    if is_connect(spark):
        raise KdslError("an ingestion needs a classic session; it does not run on Spark Connect")
    if not isinstance(source, JdbcSnapshot):
        raise KdslError(f"the source {source.type!r} is not copied once; only 'jdbc' is")
    folder = Checkpoint.open(spark, location).folder
    text = folder.read(FILE)
    document: dict[str, Any] = {"id": str(uuid.uuid4()), "done": False} if text is None else json.loads(text)
    if document["done"]:
        _log.info("%s: the tables were copied already", folder.location)
        return False
    folder.write(FILE, json.dumps(document))
    sink_writer = writer or open_writer(ingestion.sink, plan.pipeline.sink_concurrency)
    frames: dict[TableId, DataFrame] = {}
    upstream: dict[TableId, UpstreamTable] = {}
    for name in source.valid().tables:
        table = parse_id(name)
        target = find_database_table(source.valid(), name)
        frames[table] = target.read_rows(spark)
        upstream[table] = UpstreamTable(_read_schema(spark, target, table, frames[table]))
    seen = Seen(dict.fromkeys(upstream, 1))
    decision = decide_batch(plan, IngestState(upstream), 0, seen, partial(sink_writer.read_schema, spark))
    changes = {table: evolution.changes for table, evolution in decision.sinks.items() if evolution.changes}
    refusals = decision.refusals or sink_writer.refuse(spark, changes)
    if refusals:
        raise refusal_error("the copy", refusals)

    def read(work: TableWork) -> DataFrame:
        return frames[work.plan.table]

    note = attrs.evolve(decision.note, upstream=upstream, declared=write_declaration(plan), records={})
    StateFiles(folder).write(note, IngestState())
    tables = build_sink_tables(plan, read, decision, with_filtered=sink_writer.pairs_updates)
    sink_writer.write(list(tables), Batch(document["id"], 0, f"{document['id']}/0"))
    folder.write(FILE, json.dumps({**document, "done": True}))
    return True


def _read_schema(spark: SparkSession, target: JdbcTarget, table: TableId, rows: DataFrame) -> TableSchema:
    """The columns of a table of the source, as Spark reads them, and its primary key.

    Raises:
        ChangelogError: A column has a type that the tables of kdsl do not have.
    """
    key = target.read_key(spark, table[-2] if len(table) > 1 else None, table[-1])
    try:
        columns = [t.Field(f.name, from_spark(f.dataType, nullable=f.name not in key)) for f in rows.schema.fields]
    except TypeError as e:
        raise ChangelogError(f"{target!r} cannot be copied: {e}") from e
    return TableSchema(tuple(columns), key)
