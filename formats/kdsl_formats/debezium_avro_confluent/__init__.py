"""The format ``debezium-avro-confluent``: changes of a database as Debezium writes them, as Avro with a registry."""

from __future__ import annotations

from kdsl_formats.debezium_avro_confluent.format import DebeziumAvroConfluent

__all__ = ["DebeziumAvroConfluent"]
