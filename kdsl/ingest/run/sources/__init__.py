"""Readers of sources other than Kafka: each finds the tables of a copy or of a batch of changes, and their rows."""

from __future__ import annotations

from kdsl.ingest.run.sources.open import open_reader
from kdsl.ingest.run.sources.reader import RANK, VERSION, SnapshotReader, SourceBatch, SourceTable, StreamReader
from kdsl.own_columns import KIND

__all__ = ["KIND", "RANK", "VERSION", "SnapshotReader", "SourceBatch", "SourceTable", "StreamReader", "open_reader"]
