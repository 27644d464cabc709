"""What a checkpoint knows of the tables of an ingestion: its state, and the tables as declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdsl.errors import KdslError
from kdsl.ingest.definition import IngestionDef
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.ids import format_id
from kdsl.ingest.records import define_table
from kdsl.ingest.state import IngestState, StateFiles
from kdsl.run.checkpoint.folder import open_folder, open_local_folder
from kdsl.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load_state(checkpoint: str, spark: SparkSession | None = None) -> IngestState:
    """Load what a checkpoint knows.

    Args:
        checkpoint: The folder.
        spark: A session that reaches the folder; None for a folder on this machine.

    Raises:
        KdslError: The checkpoint has nothing of an ingestion.
        CheckpointError: It cannot be read.
    """
    state = StateFiles(open_local_folder(checkpoint) if spark is None else open_folder(spark, checkpoint)).load()
    if state.last is None:
        raise KdslError(f"{checkpoint} is not the checkpoint of an ingestion, or nothing was learned yet")
    return state


def load_tables(ingestion: IngestionDef, checkpoint: str, spark: SparkSession | None = None) -> dict[str, Table]:
    """Load the upstream tables that a checkpoint knows as declared tables, by their ids; see `load_state`.

    Raises:
        KdslError: As for `load_state`, or the source is not Kafka.
    """
    source = ingestion.source
    if not isinstance(source, KafkaFeed):
        raise KdslError(f"only tables of Kafka topics can be declared, and the source is {source.type!r}")
    tables = load_state(checkpoint, spark).upstream
    return {format_id(table): Table(define_table(source, table, one)) for table, one in tables.items()}
