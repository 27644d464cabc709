"""What a checkpoint knows of the tables of an ingestion: its state, and the tables as declarations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs

from kdsl.errors import KdslError
from kdsl.ingest.definition import IngestionDef
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.ids import format_id
from kdsl.ingest.records import define_table
from kdsl.ingest.state import IngestState, StateFiles
from kdsl.run.checkpoint.checkpoint import FOLDER, Checkpoint
from kdsl.run.checkpoint.folder import open_folder, open_local_folder
from kdsl.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COPY_FILE = f"{FOLDER}/snapshot.json"
"""The file of a checkpoint that identifies a copy, and says how far it is."""


def load_state(checkpoint: str, spark: SparkSession | None = None) -> IngestState:
    """Load what a checkpoint knows.

    Args:
        checkpoint: The folder.
        spark: A session that reaches the folder; None for a folder on this machine.
    """
    state = StateFiles(open_local_folder(checkpoint) if spark is None else open_folder(spark, checkpoint)).load()
    if state.last is None:
        raise KdslError(f"{checkpoint} is not the checkpoint of an ingestion, or nothing was learned yet")
    return state


@attrs.frozen
class Progress:
    """How far an ingestion is.

    Attributes:
        state: What the finished batches learned and counted; also what others learned of tables.
        unfinished: The number of a batch that was noted, and is not finished; None if there is none.
        pending: How many records that batch has.
    """

    state: IngestState
    unfinished: int | None = None
    pending: int = 0


def load_progress(checkpoint: str) -> Progress:
    """Load how far an ingestion is from a checkpoint on this machine."""
    everything, folder = load_state(checkpoint), open_local_folder(checkpoint)
    if folder.read(COPY_FILE) is not None:  # a copy has one batch, and no log of batches
        is_done = json.loads(folder.read(COPY_FILE) or "{}").get("done", False)
        return Progress(everything, None if is_done else 0)
    done = Checkpoint(folder).last_batches()[1]
    if everything.last is None or everything.last <= done:
        return Progress(everything)
    finished = StateFiles(folder).load(done + 1)
    pending = sum(everything.records.values()) - sum(finished.records.values())
    return Progress(finished, everything.last, pending)


def load_tables(ingestion: IngestionDef, checkpoint: str, spark: SparkSession | None = None) -> dict[str, Table]:
    """Load the upstream tables that a checkpoint knows as declared tables, by their ids; see `load_state`."""
    source = ingestion.source
    if not isinstance(source, KafkaFeed):
        raise KdslError(f"only tables of Kafka topics can be declared, and the source is {source.type!r}")
    tables = load_state(checkpoint, spark).upstream
    return {format_id(table): Table(define_table(source, table, one)) for table, one in tables.items()}
