"""Finds the folder in which tasks keep the last row of each key by topic partition: it is in the query's checkpoint."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark import TaskContext

from kdsl.errors import KdslError
from kdsl.spark_internals.workers import local_property

CHECKPOINT = "spark.kdsl.checkpoint"
"""The local property of Spark that contains the location of the query's checkpoint."""
FOLDER = Path("kdsl", "state")
"""The folder in a checkpoint."""

_INSTEAD = "or declare changelog_state='buckets' ('scan.changelog.state' = 'buckets')"


def state_folder(table: str) -> Path:
    """Return the folder of the states of the query that this task belongs to.

    Args:
        table: The table's name, for messages.
    """
    context = TaskContext.get()
    location = None if context is None else local_property(context, CHECKPOINT)
    if location is None:
        raise KdslError(
            f"{table}: changelog_state='partition' keeps rows beside the checkpoint, whose location is not known here; "
            "start the query in a classic session in which the table was read with read_stream, " + _INSTEAD
        )
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        raise KdslError(
            f"{table}: changelog_state='partition' keeps rows beside the checkpoint, but {location} is not a folder "
            "that Python tasks can map into memory; use a checkpoint on a file system that all workers mount, "
            + _INSTEAD
        )
    checkpoint = Path(unquote(parts.path))
    if not (checkpoint / "metadata").is_file():  # Spark writes it when a query starts
        raise KdslError(
            f"{table}: changelog_state='partition' keeps rows beside the checkpoint, but this worker does not see the "
            f"folder {checkpoint} of the driver; use a checkpoint on a file system that all workers mount at the same "
            f"place, {_INSTEAD}"
        )
    return checkpoint / FOLDER
