"""Chooses the reader of a source."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from kdsl.errors import KdslError
from kdsl.ingest.ends import DeltaChanges, JdbcSnapshot, MySqlSnapshot, Source
from kdsl.ingest.run.sources.databases import DatabaseReader
from kdsl.ingest.run.sources.delta import DeltaChangeReader, DeltaRowReader
from kdsl.ingest.run.sources.reader import SnapshotReader, StreamReader


@runtime_checkable
class ReadableSource(Protocol):
    """A source of another package."""

    def reader(self) -> SnapshotReader | StreamReader:
        """Create what reads the source: a `SnapshotReader` if it is copied once, otherwise a `StreamReader`."""
        ...


def open_reader(source: Source) -> SnapshotReader | StreamReader:
    """Create the reader of a source other than Kafka; nothing is connected yet.

    Args:
        source: The source, with its secrets.

    Returns:
        A `SnapshotReader` if the source is copied once, otherwise a `StreamReader`.

    Raises:
        KdslError: kdsl cannot read the source, or its reader is of the other kind.
    """
    match source:
        case JdbcSnapshot():
            return DatabaseReader(source)
        case MySqlSnapshot():
            return DatabaseReader(source.valid().jdbc())
        case DeltaChanges():
            return DeltaRowReader(source.valid()) if source.copied_once else DeltaChangeReader(source.valid())
    name = type(source).__name__
    if not isinstance(source, ReadableSource):
        raise KdslError(f"{source.title} cannot be read: {name} has no method reader()")
    reader = source.reader()
    if not isinstance(reader, SnapshotReader if source.copied_once else StreamReader):
        wanted = "SnapshotReader" if source.copied_once else "StreamReader"
        raise KdslError(
            f"{source.title} cannot be read: {name}.reader() returns no {wanted}, which it must if "
            f"{name}.copied_once is {source.copied_once}"
        )
    return reader
