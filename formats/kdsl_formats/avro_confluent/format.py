"""The declaration of the format: rows as Avro records."""

from __future__ import annotations

from kdsl.formats import ALONE, Decoder, Use
from kdsl.types import model as t
from kdsl_formats._avro.model import Json
from kdsl_formats._debezium import PlaceholderFormat
from kdsl_formats._registry.avro import field_names
from kdsl_formats._registry.avro_format import AvroRegistryFormat


class AvroConfluent(PlaceholderFormat, AvroRegistryFormat):
    """Avro records whose schemas are in a schema registry (Flink's format ``avro-confluent``).

    When it is read, each message names the schema that it was written with, which is resolved to the table's
    columns by name: fields that the table lacks are skipped, nullable columns that the message lacks are NULL,
    numbers are widened. When it is written, the schema is derived from the table, and registered when the first
    rows are written.

    A null message produces no row; an empty one is an error. Written types are those of the format ``avro`` with its
    legacy timestamps, and a TIMESTAMP_LTZ is ``timestamp-…``, Avro's instant, with up to six digits. The metadata
    ``value.schema-id`` is the id of the schema that a message was written with.
    """

    identifier = "avro-confluent"

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type, which asks the registry only when messages are decoded.

        Placeholders in message values become NULL and are marked in `Decoded.unavailable`.
        """
        return self.replace_placeholders_of(super().decoder(row, use), row, use)

    def find_undeclared_columns(self, row: t.Row, schema: Json) -> tuple[str, ...]:
        """The fields of a writer's schema that the table does not declare; `AvroTypeError` if the schema is invalid."""
        return tuple(name for name in field_names(schema) if name not in row.names)
