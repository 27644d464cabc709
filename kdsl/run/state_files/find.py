"""Finds the files of a state in a task: at the table's location of states, or else in the query's checkpoint."""

from __future__ import annotations

import attrs

from kdsl.errors import KdslError
from kdsl.run.state_files.cache import worker_cache
from kdsl.run.state_files.files import StateFiles
from kdsl.run.state_files.local import LocalFiles
from kdsl.run.state_files.location import Location
from kdsl.run.state_files.remote import StoreFiles
from kdsl.run.state_files.stores import Settings, open_store
from kdsl.spark_internals.workers import current_task, local_property

CHECKPOINT = "spark.kdsl.checkpoint"
"""The local property of Spark that contains the location of the query's checkpoint."""
FOLDER = "kdsl/state"
"""The folder of states in a checkpoint."""

_DECLARED = "state_location ('scan.changelog.state.location')"
_HADOOP = "spark.hadoop."
_KEPT, _DEFAULT_KEPT = "spark.sql.streaming.minBatchesToRetain", 100


def find_files(table: str, declared: str | None, folder: str) -> StateFiles:
    """Find the files of one state of the query that this task belongs to.

    A KdslError is raised if the location is unknown, this worker does not see it, or its file system is not supported.

    Args:
        table: The table's name, for messages.
        declared: The location of states that the table declares; None means the query's checkpoint.
        folder: The folder of the state in that of all states of the query.
    """
    return open_files(table, locate_states(table, declared, find_checkpoint()), folder, find_setting)


def find_checkpoint() -> str | None:
    """Return the location of the checkpoint of the query that this task belongs to; None if it is not known."""
    context = current_task()
    return None if context is None else local_property(context, CHECKPOINT)


def find_setting(name: str) -> str | None:
    """Return a setting of Hadoop in the session that this task belongs to; None if it is not set.

    Spark makes all settings of a session whose names begin with ``spark.`` local properties of its tasks.
    """
    context = current_task()
    return None if context is None else local_property(context, f"{_HADOOP}{name}")


def count_kept_batches() -> int:
    """Return how many of the last batches of the query of this task Spark keeps, so that they can be repeated."""
    context = current_task()
    text = None if context is None else local_property(context, _KEPT)
    return _DEFAULT_KEPT if text is None else int(text)


@attrs.frozen
class States:
    """The folder of all states of a query.

    Attributes:
        location: The folder.
        anchor: What must exist where the folder is local, so that this machine sees the same folder as others.
    """

    location: Location
    anchor: Location


def locate_states(table: str, declared: str | None, checkpoint: str | None) -> States:
    """Return the folder of all states of a query.

    In a declared location it is one for each checkpoint, so that a copy of a checkpoint has other states. A KdslError
    is raised if neither is known, or the declared location is not absolute.

    Args:
        table: The table's name, for messages.
        declared: The location of states that the table declares; None means the query's checkpoint.
        checkpoint: The location of the checkpoint; None if it is not known.
    """
    if declared is not None:
        location = Location.parse(declared)
        if not location.scheme and not location.path.startswith("/"):
            raise KdslError(
                f"{table}: {_DECLARED} is {declared!r}, which is not an absolute path; write one, such as /mnt/states "
                "or s3a://bucket/states"
            )
        of_query = location if checkpoint is None else location / Location.parse(checkpoint).digest()
        return States(of_query, location)
    if checkpoint is None:
        raise KdslError(
            f"{table}: the rows of keys are kept beside the checkpoint, whose location is not known here; start the "
            f"query in a classic session in which the table was read with read_stream, or declare {_DECLARED}"
        )
    location = Location.parse(checkpoint)
    return States(location / FOLDER, location / "metadata")  # Spark writes it when a query starts


def open_files(table: str, states: States, folder: str, setting: Settings) -> StateFiles:
    """Return the files of one state; KdslError if this machine does not see the folder, or it is not supported.

    Args:
        table: The table's name, for messages.
        states: The folder of all states of the query.
        folder: The folder of the state in it.
        setting: Returns settings of Hadoop.
    """
    local, anchor = (states.location / folder).folder, states.anchor.folder
    if local is None or anchor is None:
        return StoreFiles(open_store(table, states.location / folder, setting), worker_cache())
    if not anchor.exists():
        place = anchor.parent if anchor.name == "metadata" else anchor
        raise KdslError(
            f"{table}: the rows of keys are kept in {states.location}, but this worker does not see the folder "
            f"{place}; use a folder that all workers mount at the same place, or an object store (s3a://…) for the "
            f"checkpoint, or as {_DECLARED}"
        )
    return LocalFiles(local)
