"""Ingestions: many tables from Kafka or a database into Delta, a database or Kafka, with columns that may change.

`Ingestion` is the declaration, in Python or in YAML with the keys of Flink CDC. See docs/ingest.md.
"""

from __future__ import annotations

from kdsl.ingest.definition import Ingestion, Pipeline, Route, Transform
from kdsl.ingest.ends import (
    Blackhole,
    DeltaChanges,
    DeltaTables,
    HologresTables,
    JdbcSnapshot,
    JdbcTables,
    KafkaFeed,
    KafkaTopics,
    Memory,
    MySqlSnapshot,
    Print,
    Sink,
    Source,
    WrongOption,
)

__all__ = [
    "Blackhole",
    "DeltaChanges",
    "DeltaTables",
    "HologresTables",
    "Ingestion",
    "JdbcSnapshot",
    "JdbcTables",
    "KafkaFeed",
    "KafkaTopics",
    "Memory",
    "MySqlSnapshot",
    "Pipeline",
    "Print",
    "Route",
    "Sink",
    "Source",
    "Transform",
    "WrongOption",
]
