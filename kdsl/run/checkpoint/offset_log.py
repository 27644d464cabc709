"""Whether a checkpoint's offsets can be read here, told before a query starts.

Spark's planning process, which reads them later, does not know where they stand, and could not name the place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from kdsl.run.checkpoint.kept import CheckpointError, Folder, last_batches
from kdsl.run.cluster.offsets import VERSION, offset_document


def check_offsets(folder: Folder, table: str) -> None:
    """See that a query may go on from the offsets of a checkpoint.

    Args:
        folder: The checkpoint.
        table: What is written, for messages.

    Raises:
        CheckpointError: The offset log ends before the commit log does, as when it was deleted; or its last entry was
            written by a newer kdsl. The message names the path and both versions.
    """
    planned, done = last_batches(folder)
    if planned < done:
        last = f"ends with batch {planned}" if planned >= 0 else "is gone"
        raise CheckpointError(
            f"{table}: the checkpoint {folder.place} is not whole: batch {done} is done ({folder.path('commits')}), "
            f"but the offset log {last} ({folder.path('offsets')}); restore it from a copy, or take a new checkpoint"
        )
    place = f"offsets/{planned}"
    for document in _entry(folder, place) if planned >= 0 else ():
        if {"version", "topics"} <= document.keys() and document["version"] != VERSION:
            raise CheckpointError(
                f"{table}: the offsets in {folder.path(place)} have version {document['version']}, and this kdsl reads "
                f"version {VERSION}; use the kdsl that wrote them, or a new checkpoint"
            )


def _entry(folder: Folder, place: str) -> Iterator[dict[str, Any]]:
    text = None
    with suppress(Exception):  # Spark reads the same file, and says what is wrong with it
        text = folder.read(place)
    return source_offsets(text or "")


def source_offsets(entry: str) -> Iterator[dict[str, Any]]:
    """The offsets of the sources in an entry of the offset log: a version, metadata, then a line for each source.

    Args:
        entry: The text of the entry. Lines that are no JSON document, of sources that are not Kafka, are left out.
    """
    for line in entry.splitlines()[2:]:
        document = offset_document(line)
        if document is not None:
            yield document
