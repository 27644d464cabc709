"""The declaration of the format: rows as Avro records."""

from __future__ import annotations

from kdsl_formats._registry.avro_format import AvroRegistryFormat


class AvroConfluent(AvroRegistryFormat):
    """Avro records whose schemas are in a schema registry (Flink's format ``avro-confluent``).

    Read: each message names the schema that it was written with, which is resolved to the table's columns by name:
        fields
    that the table lacks are skipped, nullable columns that the message lacks are NULL, numbers are widened. Write: the
    schema is derived from the table, and registered when the first rows are written.

    A null message produces no row; an empty one is an error. Types are those of the format ``avro`` with its legacy
    timestamps. The metadata ``value.schema-id`` is the id of the schema that a message was written with.
    """

    identifier = "avro-confluent"
