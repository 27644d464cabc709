"""The declaration of the format: its options, its plan-time rules, its decoder and encoder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from kdsl.errors import Problem
from kdsl.formats import ALONE, Decoded, Decoder, Direction, Encoded, Encoder, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats._avro.model import Json
from kdsl_formats._avro.schema import avro_schema, avro_type_problems
from kdsl_formats._registry.avro import FramedReader, FramedWriter, with_ids
from kdsl_formats._registry.given import given_schema, schema_problems
from kdsl_formats._registry.options import RegistryFormat
from kdsl_formats.debezium_avro_confluent.envelope import Envelopes, envelope, opened


class DebeziumAvroConfluent(RegistryFormat):
    """Debezium's envelopes as Avro with a schema registry (Flink's format ``debezium-avro-confluent``).

    Read: a create or a read is a row that is new, an update the row before it and after it, a delete a row that is
    gone. A null or empty message (the tombstone behind a delete) gives no row. Fields of the envelope other than
    ``before``, ``after`` and ``op`` are read over. The metadata ``value.schema-id`` is the id of the schema that a
    message was written with.

    Write: a row that is new is a create, one that is gone a delete; an update is both.
    """

    identifier = "debezium-avro-confluent"
    insert_only: ClassVar[bool] = False

    schema: str | None = option(
        "schema",
        "An Avro schema of the envelope that is used instead of the derived one; `before` and `after` must have "
        "exactly the table's columns.",
        default=None,
        aliases=("schema-registry.schema",),
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Rules F-11, F-12 and SR-6, and combinations of the options that contradict each other."""
        if self.schema is not None:
            yield from schema_problems(self.schema, envelope(row), self.title)
        else:
            yield from avro_type_problems(row, legacy_timestamps=True)
        yield from self.own_problems(named=self.schema is not None, direction=direction)

    def prunable(self) -> bool:
        """Fields are found by name; a schema that is given is used whole."""
        return self.schema is None

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type."""
        return _Decoder(self, row, use)

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type."""
        return _Encoder(self, row, use)

    def table_schema(self, row: t.Row, direction: Direction) -> Json:
        """The schema that is given, or that of the envelope; what is written may be null, as in the reference."""
        if self.schema is not None:
            return given_schema(self.schema)
        derived: Json = avro_schema(t.Row(envelope(row).fields, nullable=direction == "write"))
        return derived


class _Decoder:
    def __init__(self, chosen: DebeziumAvroConfluent, row: t.Row, use: Use) -> None:
        self._format, self._row, self._use = chosen, row, use
        self._reader: FramedReader | None = None

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Read an array of messages; see `kdsl.formats.Decoder`."""
        if self._reader is None:  # a plan is looked at where there is no registry
            registry = self._format.required_registry(self._use)
            self._reader = FramedReader(registry, envelope(self._row), self._format.table_schema(self._row, "read"))
        empty = pc.equal(pc.binary_length(messages), 0)
        if pc.any(empty).as_py():
            messages = pc.if_else(pc.fill_null(empty, True), pa.scalar(None, pa.binary()), messages)
        found, ids = self._reader.read(messages)
        return with_ids(opened(found), ids, self._use.metadata)


class _Encoder:
    def __init__(self, chosen: DebeziumAvroConfluent, row: t.Row, use: Use) -> None:
        self._format, self._row, self._use = chosen, row, use
        self._envelopes = Envelopes(row)
        self._writer: FramedWriter | None = None

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Write an array of rows; see `kdsl.formats.Encoder`."""
        if self._writer is None:
            self._writer = FramedWriter(
                self._format.required_registry(self._use),
                envelope(self._row),
                self._format.table_schema(self._row, "write"),
                lambda record: self._format.subject_of(self._use, record),
                register=self._format.auto_register,
                normalize=self._format.normalize,
                latest=self._format.use_latest_version,
            )
        return self._writer.write(self._envelopes.closed(rows, kinds))
