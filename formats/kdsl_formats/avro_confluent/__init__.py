"""The format ``avro-confluent``: Avro whose schemas are in a schema registry."""

from __future__ import annotations

from kdsl_formats.avro_confluent.format import AvroConfluent

__all__ = ["AvroConfluent"]
