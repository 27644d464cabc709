"""The base class of the Avro formats with a registry: rules, table schemas, decoder and encoder.

The formats differ in the contents of messages: rows, or envelopes around rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from kdsl.errors import Problem
from kdsl.formats import ALONE, Decoded, Decoder, Direction, Encoded, Encoder, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats._avro.encoder import AvroEncoder
from kdsl_formats._avro.model import AvroTypeError, Json
from kdsl_formats._avro.schema import avro_schema, avro_type_problems
from kdsl_formats._registry.avro import FramedReader, FramedWriter, find_misfits, record_name, schema_text
from kdsl_formats._registry.differences import Parts, avro_parts
from kdsl_formats._registry.options import RegistryFormat
from kdsl_formats._registry.schema_option import parse_schema_option, schema_problems

if TYPE_CHECKING:
    from kdsl.registry import RegisteredSchema, RegistryClient


class AvroRegistryFormat(RegistryFormat):
    """Avro whose schemas are in a schema registry.

    Attributes:
        writes_nullable: Whether the schema derived for writing is a union with null.
        empty_is_null: Whether an empty message is treated as null.
    """

    writes_nullable: ClassVar[bool] = False
    empty_is_null: ClassVar[bool] = False

    schema: str | None = option(
        "schema",
        "An Avro schema that is used instead of the derived one; it must have exactly the table's columns. For a table "
        'of one column it may be the schema of its values, such as `"string"`: then a message is that value, and not '
        "a record with it.",
        default=None,
        aliases=("schema-registry.schema",),
    )
    legacy_timestamps: bool = option(
        "timestamp_mapping.legacy",
        "Write: whether TIMESTAMP is Avro's timestamp-millis, as Flink writes it; otherwise it is local-timestamp-…, "
        "the type that Avro has for it. TIMESTAMP_LTZ is timestamp-… in both cases. When messages are read, the "
        "writer's schema decides. Flink does not have this option here.",
        default=True,
    )
    record: tuple[str, ...] = option(
        "record-name",
        "Read: the record types that become rows, by full name (`shop.Created`) or without the namespace (`Created`), "
        "separated by ';' (in Python also a list). Records of other types produce no row, and are counted as `no-row`. "
        "By default all do, except that records of a schema that is a union of several record types are errors.",
        default=(),
        side="read",
    )

    def envelope_row(self, row: t.Row, use: Use = ALONE) -> t.Row:
        """The type of the record in a message that contains rows of a type; here that type itself."""
        return row

    def row_extractor(self, row: t.Row, use: Use = ALONE) -> Callable[[Decoded], Decoded]:
        """The function that extracts the rows from decoded records; here the records are the rows."""
        return lambda decoded: decoded

    def has_rows(self, schema: Json) -> bool:
        """Whether messages with a writer's schema contain rows; others are skipped."""
        return True

    def find_undeclared_columns(self, row: t.Row, schema: Json) -> tuple[str, ...]:
        """The columns of a writer's schema that a row type lacks, if they should be reported; here none."""
        return ()

    def wrap_rows(self, row: t.Row, rows: pa.StructArray, kinds: pa.Array | None) -> pa.StructArray:
        """The records that contain rows; here the rows themselves."""
        return rows

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report contradicting options, and a 'schema' that does not match the columns (rule SR-6).

        Without a 'schema', report columns that Avro lacks (F-11, F-12).
        """
        if self.schema is not None:
            yield from schema_problems(self.schema, self.envelope_row(row), self.title)
        else:
            yield from avro_type_problems(row, self.legacy_timestamps, for_reading=direction == "read", instants=True)
        yield from self.option_problems(named=self.schema is not None, direction=direction)

    def prunable(self) -> bool:
        """True unless the option ``schema`` is set, which needs all columns: fields are matched by name."""
        return self.schema is None

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type, which asks the registry only when messages are decoded."""
        return _Decoder(self, row, use)

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type, which asks the registry only when rows are encoded."""
        return _Encoder(self, row, use)

    def table_schema(self, row: t.Row, direction: Direction, use: Use = ALONE) -> Json:
        """The schema of the option ``schema``, or the one derived from the columns of messages with rows of a type.

        Raises:
            AvroTypeError: The option is not an Avro schema, or Avro does not support a column; `check` reports both.
        """
        if self.schema is not None:
            return parse_schema_option(self.schema)
        envelope = t.Row(self.envelope_row(row, use).fields, nullable=self.writes_nullable and direction == "write")
        derived: Json = avro_schema(
            envelope, legacy_timestamps=self.legacy_timestamps, for_reading=direction == "read", instants=True
        )
        return derived

    def sink_schema(self, row: t.Row, client: RegistryClient) -> tuple[str, RegisteredSchema]:
        """The record's full name and the schema that a sink registers; `client` is not used.

        Raises:
            AvroTypeError: As in `table_schema`.
        """
        from kdsl.registry import RegisteredSchema

        schema = self.table_schema(row, "write")
        return record_name(schema), RegisteredSchema(schema_text(schema))

    def schema_parts(self, schema: RegisteredSchema, client: RegistryClient) -> Parts:
        """The names of the schema's records, and their fields; none if it is not Avro."""
        return avro_parts(json.loads(schema.text)) if schema.kind == "AVRO" else {}

    def schema_misfit(self, row: t.Row, schema: RegisteredSchema, client: RegistryClient, direction: Direction) -> str:
        """Why rows cannot be read or written with a registered schema, or "" if they can.

        Raises:
            RegistryError: A schema that it refers to cannot be fetched, or they refer to each other in a circle.
        """
        from kdsl_formats._registry.references import whole_schema

        try:
            whole = whole_schema(client, schema)
            if direction == "read":
                reader = self.table_schema(row, "read")
                return "; ".join(find_misfits(whole, self.envelope_row(row), reader, records=self.record))
            AvroEncoder(whole, self.envelope_row(row))
        except AvroTypeError as e:
            return str(e)
        return ""


class _Decoder:
    """Decodes messages with the schemas that they name."""

    def __init__(self, chosen: AvroRegistryFormat, row: t.Row, use: Use) -> None:
        """Store the arguments; the registry is asked only when messages are decoded."""
        self._format, self._row, self._use = chosen, row, use
        self._reader: FramedReader | None = None
        self._extract_rows = chosen.row_extractor(row, use)

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode an array of messages; schemas are fetched from the registry when they occur first.

        Null messages produce no row, nor do empty ones if the format treats them as null. The result has the schema ids
        under the keys of metadata that the table reads.

        Raises:
            KdslError: There is no registry, or as in `FramedReader.read`.
            AvroTypeError: As in `AvroRegistryFormat.table_schema`.
        """
        chosen = self._format
        if self._reader is None:  # created late, because a plan can be built without a registry
            registry = chosen.require_registry(self._use)
            self._reader = FramedReader(
                registry,
                chosen.envelope_row(self._row, self._use),
                chosen.table_schema(self._row, "read", self._use),
                has_rows=chosen.has_rows,
                find_undeclared_columns=self._find_undeclared_columns,
                records=chosen.record,
            )
        if chosen.empty_is_null:
            empty = pc.equal(pc.binary_length(messages), 0)
            if pc.any(empty).as_py():
                messages = pc.if_else(pc.fill_null(empty, True), pa.scalar(None, pa.binary()), messages)
        decoded, frames = self._reader.read(messages)
        return chosen.add_schema_ids(self._extract_rows(decoded), frames, self._use)

    def _find_undeclared_columns(self, schema: Json) -> tuple[str, ...]:
        """The columns of a writer's schema that the table does not declare.

        Formats of inserts only return them if the use counts them, otherwise none; the other formats always do.

        Raises:
            AvroTypeError: The schema is invalid, and the columns are returned.
        """
        if self._format.insert_only and not self._use.count_undeclared:
            return ()
        return self._format.find_undeclared_columns(self._row, schema)


class _Encoder:
    """Encodes rows with the schema that the options choose."""

    def __init__(self, chosen: AvroRegistryFormat, row: t.Row, use: Use) -> None:
        """Store the arguments; the registry is asked only when rows are encoded."""
        self._format, self._row, self._use = chosen, row, use
        self._writer: FramedWriter | None = None

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Encode an array of rows; the first call that has rows finds or registers the schema in the registry.

        Rows that the schema does not allow are bad records.

        Raises:
            KdslError: There is no registry, or as in `FramedWriter.write`.
            AvroTypeError: As in `AvroRegistryFormat.table_schema`.
        """
        chosen = self._format
        if not len(rows):
            return Encoded(pa.array([], pa.binary()))
        if self._writer is None:
            self._writer = FramedWriter(
                chosen.require_registry(self._use),
                chosen.envelope_row(self._row),
                chosen.table_schema(self._row, "write"),
                lambda record: chosen.subject_of(self._use, record),
                lambda client, subject, schema: chosen.find_or_register(client, subject, schema, self._row),
                latest=chosen.use_latest_version,
            )
        encoded, schema_id = self._writer.write(chosen.wrap_rows(self._row, rows, kinds))
        return chosen.add_frames(encoded, schema_id, self._use)
