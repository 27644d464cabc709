"""Writers of sinks: each creates and changes the tables of a sink, and writes the rows of batches to them."""

from __future__ import annotations

from kdsl.ingest.run.sinks.plain import MemoryWriter
from kdsl.ingest.run.sinks.writer import SinkTable, SinkWriter, TableWriter
from kdsl.own_columns import KIND, UNAVAILABLE

__all__ = ["KIND", "UNAVAILABLE", "MemoryWriter", "SinkTable", "SinkWriter", "TableWriter"]
