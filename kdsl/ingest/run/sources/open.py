"""Opens the reader of a source."""

from __future__ import annotations

from kdsl.errors import KdslError
from kdsl.ingest.ends import Source
from kdsl.ingest.run.sources.reader import SnapshotReader, StreamReader


def open_reader(source: Source) -> SnapshotReader | StreamReader:
    """Create the reader of a source other than Kafka; nothing is connected yet.

    Args:
        source: The source, with its secrets.

    Returns:
        A `SnapshotReader` if the source is copied once, otherwise a `StreamReader`.

    Raises:
        KdslError: The source cannot be read, or its reader is of the other kind.
    """
    reader = source.reader()
    wanted = SnapshotReader if source.copied_once else StreamReader
    if isinstance(reader, wanted):
        return reader
    name = type(source).__name__
    raise KdslError(
        f"{source.title} cannot be read: {name}.reader() returns no {wanted.__name__}, which it must if "
        f"{name}.copied_once is {source.copied_once}"
    )
