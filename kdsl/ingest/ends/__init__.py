"""The ends of an ingestion: sources of tables and sinks for tables, each a group of options.

They are plug-ins of the groups ``kdsl.sources`` and ``kdsl.sinks``, as those of other packages: each has the name of
its type, and is a subclass of `Source` or `Sink`.
"""

from __future__ import annotations

from kdsl.ingest.ends.end import End, Sink, SinkRules, Source, WrongOption
from kdsl.ingest.ends.kafka import KafkaFeed, KafkaTopics
from kdsl.ingest.ends.plain import Blackhole, Memory, Print
from kdsl.ingest.ends.registry import end_class, end_types
from kdsl.ingest.ends.tables import DeltaChanges, DeltaTables, JdbcSnapshot, JdbcTables, MySqlSnapshot

__all__ = [
    "Blackhole",
    "DeltaChanges",
    "DeltaTables",
    "End",
    "JdbcSnapshot",
    "JdbcTables",
    "KafkaFeed",
    "KafkaTopics",
    "Memory",
    "MySqlSnapshot",
    "Print",
    "Sink",
    "SinkRules",
    "Source",
    "WrongOption",
    "end_class",
    "end_types",
]
