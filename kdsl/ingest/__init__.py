"""Ingestions: many tables from Kafka or a database into Delta, a database or Kafka, with columns that may change.

`Ingestion` is the declaration, in Python or in YAML with the keys of Flink CDC. See docs/ingest.md.
"""

from __future__ import annotations

from kdsl.ingest.definition import Pipeline, Route, Transform
from kdsl.ingest.ends import (
    Blackhole,
    DeltaChanges,
    DeltaTables,
    JdbcSnapshot,
    JdbcTables,
    KafkaFeed,
    KafkaTopics,
    Memory,
    MySqlSnapshot,
    Print,
    Sink,
    SinkRules,
    Source,
    WrongOption,
)
from kdsl.ingest.ingestion import Ingestion
from kdsl.ingest.plan import IngestPlan, TablePlan

__all__ = [
    "Blackhole",
    "DeltaChanges",
    "DeltaTables",
    "IngestPlan",
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
    "SinkRules",
    "Source",
    "TablePlan",
    "Transform",
    "WrongOption",
]
