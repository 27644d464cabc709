"""The declaration of the format: rows in Debezium's envelopes, as Avro records."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pyarrow as pa

from kdsl.formats import ALONE, Decoded, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats._avro.model import Json
from kdsl_formats._debezium import DebeziumFormat, PlaceholderFinder
from kdsl_formats._debezium.events import TRUNCATE, key_row
from kdsl_formats._registry.avro import field_names
from kdsl_formats._registry.avro_format import AvroRegistryFormat
from kdsl_formats.debezium_avro_confluent.envelope import SKIPPED, envelope, extract_rows, wrap_in_envelopes


class DebeziumAvroConfluent(DebeziumFormat, AvroRegistryFormat):
    """Debezium's envelopes as Avro with a schema registry (Flink's format ``debezium-avro-confluent``).

    When it is read, a create or a read inserts a row, an update replaces its before-image by its after-image, and a
    delete deletes a row. A null or empty message (the tombstone after a delete) produces no row, nor do messages
    about transactions and the database's own messages (``m``). Fields of the envelope other than ``before``,
    ``after`` and ``op`` are skipped. The metadata ``value.schema-id`` is the id of the schema that a message was
    written with.

    When it is written, an inserted row becomes a create, a deleted row a delete, and an update both.
    """

    identifier = "debezium-avro-confluent"
    insert_only: ClassVar[bool] = False
    images: ClassVar[tuple[str, ...]] = ("before", "after")
    writes_nullable: ClassVar[bool] = True  # as in Flink
    empty_is_null: ClassVar[bool] = True

    schema: str | None = option(
        "schema",
        "An Avro schema of the envelope that is used instead of the derived one; `before` and `after` must have "
        "exactly the table's columns.",
        default=None,
        aliases=("schema-registry.schema",),
    )

    def envelope_row(self, row: t.Row, use: Use = ALONE) -> t.Row:
        """The type of the envelope.

        For a table that keeps the last row of each key, the before-image has only the row's key columns, if it has any;
        with the option 'schema' it has all columns.
        """
        key = None if self.schema is not None else key_row(row, use.keyed)
        return envelope(row, key)

    def row_extractor(self, row: t.Row, use: Use = ALONE) -> Callable[[Decoded], Decoded]:
        """The function that extracts rows and bad records from envelopes (`extract_rows`), placeholders as NULL."""
        unavailable = PlaceholderFinder(row, self.unavailable_value_placeholder)
        apply = self.truncate == "apply" and bool(use.keyed)
        skipped = (*SKIPPED, TRUNCATE) if self.truncate == "skip" or apply else SKIPPED
        return lambda decoded: unavailable.replace_placeholders(
            extract_rows(decoded, row, skipped, use.keyed, truncates=apply)
        )

    def has_rows(self, schema: Json) -> bool:
        """False only for schemas of messages about transactions, and of logical decoding messages (``m``)."""
        names = set(field_names(schema))
        return bool(names & {"before", "after"}) or not ({"op", "message"} <= names or {"status", "id"} <= names)

    def find_undeclared_columns(self, row: t.Row, schema: Json) -> tuple[str, ...]:
        """The columns of a writer's rows, by the field ``after``, that the table does not declare."""
        return tuple(name for name in field_names(schema, "after") if name not in row.names)

    def wrap_rows(self, row: t.Row, rows: pa.StructArray, kinds: pa.Array | None) -> pa.StructArray:
        """Wrap each row in an envelope; see `wrap_in_envelopes`."""
        return wrap_in_envelopes(row, rows, kinds)
