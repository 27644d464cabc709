"""The declaration of the format: rows in Debezium's envelopes, as Avro records."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from kdsl.formats import Decoded
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats._registry.avro_format import AvroRegistryFormat
from kdsl_formats.debezium_avro_confluent.envelope import closed, envelope, opened


class DebeziumAvroConfluent(AvroRegistryFormat):
    """Debezium's envelopes as Avro with a schema registry (Flink's format ``debezium-avro-confluent``).

    Read: a create or a read is a row that is new, an update the row before it and after it, a delete a row that is
    gone. A null or empty message (the tombstone behind a delete) gives no row. Fields of the envelope other than
    ``before``, ``after`` and ``op`` are read over. The metadata ``value.schema-id`` is the id of the schema that a
    message was written with.

    Write: a row that is new is a create, one that is gone a delete; an update is both.
    """

    identifier = "debezium-avro-confluent"
    insert_only: ClassVar[bool] = False
    null_written: ClassVar[bool] = True  # as in the reference
    empty_is_null: ClassVar[bool] = True

    schema: str | None = option(
        "schema",
        "An Avro schema of the envelope that is used instead of the derived one; `before` and `after` must have "
        "exactly the table's columns.",
        default=None,
        aliases=("schema-registry.schema",),
    )

    def held(self, row: t.Row) -> t.Row:
        """The type of the envelope."""
        return envelope(row)

    def opened(self, found: Decoded) -> Decoded:
        """The rows of envelopes: one of each, two of an update."""
        return opened(found)

    def closed(self, row: t.Row, rows: pa.StructArray, kinds: pa.Array | None) -> pa.StructArray:
        """The envelopes of rows, one of each."""
        return closed(row, rows, kinds)
