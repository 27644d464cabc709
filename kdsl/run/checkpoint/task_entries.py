"""Reads the checkpoint of a query in its tasks."""

from __future__ import annotations

from contextlib import suppress

from kdsl.errors import KdslError
from kdsl.run.checkpoint.store_folder import open_folder_without_spark
from kdsl.run.state_files.find import find_checkpoint, find_setting


def read_entry_in_task(table: str, batch: int) -> bytes:
    """Return the entry of a batch in the offset log of the query of this task; empty if kdsl cannot open its folder.

    A KdslError is raised if the entry does not exist.

    Args:
        table: The table's name, for messages.
        batch: The batch.
    """
    location, folder = find_checkpoint(), None
    if location is not None:
        with suppress(KdslError):  # a file system of Spark's alone
            folder = open_folder_without_spark(location, find_setting)
    if folder is None:
        return b""
    entry = folder.read(f"offsets/{batch}")
    if entry is None:
        raise KdslError(
            f"{table}: {folder.path(f'offsets/{batch}')} does not exist, or this worker does not see it, and it says "
            "which last rows of the keys the batch follows; use a folder that all workers mount at the same place, or "
            "an object store, for the checkpoint, without asyncProgressTrackingEnabled"
        )
    return entry.encode()
