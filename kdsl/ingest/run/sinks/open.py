"""Chooses the writer of a sink."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from kdsl.errors import KdslError
from kdsl.ingest.ends import Blackhole, DeltaTables, HologresTables, JdbcTables, KafkaTopics, Memory, Print, Sink
from kdsl.ingest.run.sinks.delta import DeltaWriter
from kdsl.ingest.run.sinks.jdbc import JdbcWriter
from kdsl.ingest.run.sinks.kafka import KafkaWriter
from kdsl.ingest.run.sinks.plain import BlackholeWriter, MemoryWriter, PrintWriter
from kdsl.ingest.run.sinks.writer import SinkWriter


@runtime_checkable
class WritableSink(Protocol):
    """A sink of another package."""

    def writer(self, concurrency: int) -> SinkWriter:
        """Create what writes to the sink.

        Args:
            concurrency: How many tables may be written at the same time.
        """
        ...


def open_writer(sink: Sink, concurrency: int, name: str = "") -> SinkWriter:
    """Create the writer of a sink; nothing is connected yet.

    Args:
        sink: The sink, with its secrets.
        concurrency: How many tables are written at the same time; the sink ``print`` writes one at a time.
        name: The name of the ingestion, if several share a query; only for Kafka.

    Raises:
        KdslError: The sink is not one of kdsl's, and its class has no method ``writer``.
        ResolveError: As for `kdsl.ingest.run.sinks.kafka.plan_write`.
    """
    match sink:
        case Blackhole():
            return BlackholeWriter(concurrency)
        case Print():
            return PrintWriter(concurrency=1)
        case Memory():
            return MemoryWriter(concurrency)
        case DeltaTables():
            return DeltaWriter(sink.valid(), concurrency)
        case JdbcTables():
            return JdbcWriter(sink.valid(), concurrency)
        case KafkaTopics():
            return KafkaWriter(sink, sink.cluster, name)
        case HologresTables():
            return JdbcWriter(sink.valid().jdbc(), concurrency)
    if isinstance(sink, WritableSink):
        return sink.writer(concurrency)
    raise KdslError(f"{sink.title} cannot be written: {type(sink).__name__} has no method writer()")
