"""The declaration of the format: its options, its plan-time rules, its decoder and encoder."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from kdsl.errors import Problem
from kdsl.formats import ALONE, Decoded, Decoder, Direction, Encoded, Encoder, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats._avro.model import Json
from kdsl_formats._avro.schema import avro_schema, avro_type_problems
from kdsl_formats._registry.avro import FramedReader, FramedWriter, with_ids
from kdsl_formats._registry.given import given_schema, schema_problems
from kdsl_formats._registry.options import RegistryFormat


class AvroConfluent(RegistryFormat):
    """Avro records whose schemas stand in a schema registry (Flink's format ``avro-confluent``).

    Read: each message names the schema that it was written with, which is resolved to the table's columns, by name:
    fields that the table lacks are read over, nullable columns that the message lacks are NULL, numbers are widened.
    Write: the schema is derived from the table, and registered when the first rows come.

    A null message gives no row; an empty one is an error. Types are those of the format ``avro`` with its legacy
    timestamps. The metadata ``value.schema-id`` is the id of the schema that a message was written with.
    """

    identifier = "avro-confluent"

    schema: str | None = option(
        "schema",
        "An Avro schema that is used instead of the derived one; it must have exactly the table's columns.",
        default=None,
        aliases=("schema-registry.schema",),
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Rules F-11, F-12 and SR-6, and combinations of the options that contradict each other."""
        if self.schema is not None:
            yield from schema_problems(self.schema, row, self.title)
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

    def table_schema(self, row: t.Row) -> Json:
        """The schema that is given, or that of the columns."""
        return avro_schema(row.as_nullable(False)) if self.schema is None else given_schema(self.schema)  # type: ignore[arg-type]


class _Decoder:
    def __init__(self, chosen: AvroConfluent, row: t.Row, use: Use) -> None:
        self._format, self._row, self._use = chosen, row, use
        self._reader: FramedReader | None = None

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Read an array of messages; see `kdsl.formats.Decoder`."""
        if self._reader is None:  # a plan is looked at where there is no registry
            registry = self._format.required_registry(self._use)
            self._reader = FramedReader(registry, self._row, self._format.table_schema(self._row))
        return with_ids(*self._reader.read(messages), self._use.metadata)


class _Encoder:
    def __init__(self, chosen: AvroConfluent, row: t.Row, use: Use) -> None:
        self._format, self._row, self._use = chosen, row, use
        self._writer: FramedWriter | None = None

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Write an array of rows; see `kdsl.formats.Encoder`."""
        if self._writer is None:
            self._writer = FramedWriter(
                self._format.required_registry(self._use),
                self._row,
                self._format.table_schema(self._row),
                lambda record: self._format.subject_of(self._use, record),
                register=self._format.auto_register,
                normalize=self._format.normalize,
                latest=self._format.use_latest_version,
            )
        return self._writer.write(rows)
