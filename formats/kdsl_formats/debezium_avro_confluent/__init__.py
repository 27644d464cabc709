"""The format ``debezium-avro-confluent``: Debezium's change events as Avro with a schema registry."""

from __future__ import annotations

from kdsl_formats.debezium_avro_confluent.format import DebeziumAvroConfluent

__all__ = ["DebeziumAvroConfluent"]
