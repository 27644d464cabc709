"""What identifies the content of a batch: the query, and a digest of the batch's offsets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kdsl.errors import CheckpointError
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.spark_internals.queries import query_of
from kdsl.spark_internals.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def compute_content_of_micro_batch(rows: DataFrame, number: int) -> str:
    """Compute the content of the batch whose ``foreachBatch`` runs; empty outside of one, and for Spark Connect."""
    query = None if is_connect(rows.sparkSession) else query_of(rows)
    if query is None:
        return ""
    return compute_content(query.id, Checkpoint.open(rows.sparkSession, query.checkpoint), number)


def compute_content(query_id: str, checkpoint: Checkpoint, number: int) -> str:
    """Return what identifies the content of a batch: the query, and a digest of the batch's offsets."""
    return f"{query_id}/{checkpoint.batch_digest(number)}"


def read_query_id(checkpoint: Checkpoint) -> str | None:
    """Read the id of a checkpoint's query; None before its first start."""
    text = checkpoint.folder.read("metadata")
    try:
        return None if text is None else str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(
            f"the file metadata of the checkpoint {checkpoint.location} does not have the id of a query ({e!r}); "
            "restore it, or start with a new checkpoint"
        ) from e
