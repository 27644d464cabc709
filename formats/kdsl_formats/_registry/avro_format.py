"""The base class of the Avro formats with a registry: rules, table schemas, decoder and encoder.

The formats differ in the contents of messages: rows, or envelopes around rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.errors import KdslError, Problem
from kdsl.formats import ALONE, BadRecord, Decoded, Decoder, Direction, Encoder, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.defaults import (
    add_defaults,
    default_json,
    find_default_problems,
    parse_defaults,
    write_defaults,
)
from kdsl_formats._avro.encoder import AvroEncoder
from kdsl_formats._avro.model import AvroTypeError, Json
from kdsl_formats._avro.schema import avro_schema, avro_type_problems
from kdsl_formats._columns.merge import merge_decoded
from kdsl_formats._registry.avro import (
    find_misfits,
    has_chosen_record,
    list_refusals,
    match_nullability,
    null_defaults,
    record_name,
    schema_text,
    widen_integers,
)
from kdsl_formats._registry.differences import Parts, avro_parts
from kdsl_formats._registry.encoder import FormEncoder, RegistryEncoder, SchemaWriter, describe_version
from kdsl_formats._registry.framing import describe_schema, split_frames
from kdsl_formats._registry.options import RegistryFormat
from kdsl_formats._registry.schema_option import parse_schema_option, schema_problems

if TYPE_CHECKING:
    from kdsl.registry import RegisteredSchema, RegistryClient, SchemaId


class AvroRegistryFormat(RegistryFormat):
    """Avro whose schemas are in a schema registry.

    Attributes:
        writes_nullable: Whether the schema derived for writing is a union with null.
        empty_is_null: Whether an empty message is treated as null.
        images: The fields of the envelope that hold rows; empty if messages are the rows themselves.
    """

    connection: ClassVar[tuple[str, ...]] = (*RegistryFormat.connection, "defaults")  # they change with the columns
    images: ClassVar[tuple[str, ...]] = ()
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
    defaults: str | None = option(
        "defaults",
        "The defaults of columns and of fields inside them: a JSON object with values as in an Avro schema, by path, "
        'such as `{"status": "new", "address.city": ""}`. They take the place of what the schema of a message does not '
        "have, and are the defaults in the schema that is written (except for nullable columns). In Python, "
        "`col(default=…)` sets that of a column. Flink does not have this option.",
        default=None,
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
        if self.defaults is not None:
            yield from self._default_problems(row, direction)
        yield from self.option_problems(named=self.schema is not None, direction=direction)

    def _default_problems(self, row: t.Row, direction: Direction) -> Iterator[Problem]:
        """Report a wrong option 'defaults', and one next to a 'schema', which has defaults of its own."""
        fix = "write a JSON object with a default for each path"
        if self.schema is not None:
            yield Problem("avro-defaults", f"{self.title} has both 'schema' and 'defaults'", "write the defaults in it")
            return
        try:
            defaults = parse_defaults(self.defaults)
            schema = attrs.evolve(self, defaults=None).row_schema(row, direction)  # type: ignore[misc]
        except AvroTypeError as e:
            if not e.path:  # errors of columns are reported without the defaults
                yield Problem("avro-defaults", f"{self.title} has 'defaults' that cannot be used: {e}", fix)
            return
        for message in find_default_problems(schema, row, defaults):
            yield Problem("avro-defaults", f"{self.title} has 'defaults' that do not fit the table: {message}", fix)

    def with_defaults(self, row: t.Row, defaults: Mapping[str, Any]) -> Self:
        """The format with the defaults of columns in the option 'defaults', unless it has them already.

        A format with a 'schema' is returned as it is, and defaults that Avro cannot express are left out.
        """
        columns = {f.name: f.type for f in row.fields}
        values: dict[str, Any] = {}
        for name, value in defaults.items() if self.schema is None else ():
            with suppress(ValueError):
                values[name] = default_json(value, columns[name])
        if not values:
            return self
        with suppress(AvroTypeError):  # a wrong option is reported by `check`
            values |= parse_defaults(self.defaults)
        return attrs.evolve(self, defaults=write_defaults(values))  # type: ignore[misc]

    def prunable(self) -> bool:
        """True unless the option ``schema`` is set, which needs all columns: fields are matched by name."""
        return self.schema is None

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type, which asks the registry only when messages are decoded."""
        return _Decoder(self, row, use)

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type, which asks the registry only when rows are encoded."""
        return RegistryEncoder(self, use, partial(self._find_writer, row, use))

    def _find_writer(self, row: t.Row, use: Use, client: RegistryClient) -> SchemaWriter:
        """Find or register the schema of the rows, but not before it is known that it can hold them."""
        from kdsl.registry import RegisteredSchema
        from kdsl_formats._registry.references import whole_schema

        schema, description = self.table_schema(row, "write"), "the schema of the table"
        subject = self.subject_of(use, record_name(schema))
        latest = client.latest(subject) if self.use_latest_version else None
        try:
            if latest is not None:
                description = describe_version(latest, client)
                schema = whole_schema(client, latest.schema)
            encoder = AvroEncoder(schema, self.envelope_row(row))
        except AvroTypeError as e:
            raise KdslError(f"{description} cannot hold the rows of the table: {e}") from None
        number = (
            self.find_or_register(client, subject, RegisteredSchema(schema_text(schema)), row)
            if latest is None
            else latest.id
        )
        return SchemaWriter(number, lambda rows, kinds: encoder.encode(self.wrap_rows(row, rows, kinds)))

    def form_encoder(self, row: t.Row, form: str, use: Use = ALONE) -> Encoder:
        """An encoder of messages with the frame `form`: the fields that the named schema has, in its order and types.

        A BIGINT column is also written as an ``int``, which has the same bytes.
        """
        frame = bytes.fromhex(form)

        def create() -> Encoder:
            from kdsl_formats._registry.references import whole_schema

            client, schema, description = self.schema_named(frame, use)
            try:
                return AvroEncoder(widen_integers(whole_schema(client, schema), row), self.envelope_row(row))
            except AvroTypeError as e:
                raise KdslError(f"{description} cannot hold the rows of the table: {e}") from None

        return FormEncoder(frame, create)

    def table_schema(self, row: t.Row, direction: Direction, use: Use = ALONE) -> Json:
        """The schema of the option ``schema``, or the one derived from the columns of messages with rows of a type."""
        if self.schema is not None:
            return parse_schema_option(self.schema)
        nullable = self.writes_nullable and direction == "write"
        schema = self.row_schema(t.Row(self.envelope_row(row, use).fields, nullable=nullable), direction)
        defaults = parse_defaults(self.defaults)
        if self.images:
            defaults = {f"{image}.{path}": value for image in self.images for path, value in defaults.items()}
        return add_defaults(schema, defaults, written=direction == "write")

    def row_schema(self, row: t.Row, direction: Direction) -> Json:
        """The schema that is derived from a row type, without defaults except null."""
        derived: Json = avro_schema(
            row, legacy_timestamps=self.legacy_timestamps, for_reading=direction == "read", instants=True
        )
        return derived

    def sink_schema(self, row: t.Row, client: RegistryClient) -> tuple[str, RegisteredSchema]:
        """The record's full name and the schema that a sink registers; `client` is not used."""
        from kdsl.registry import RegisteredSchema

        schema = self.table_schema(row, "write")
        return record_name(schema), RegisteredSchema(schema_text(schema))

    def schema_parts(self, schema: RegisteredSchema, client: RegistryClient) -> Parts:
        """The names of the schema's records, and their fields; none if it is not Avro."""
        return avro_parts(json.loads(schema.text)) if schema.kind == "AVRO" else {}

    def schema_misfit(self, row: t.Row, schema: RegisteredSchema, client: RegistryClient, direction: Direction) -> str:
        """Why rows cannot be read or written with a registered schema, or "" if they can."""
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

    def find_replaced_nulls(self, row: t.Row, schema: RegisteredSchema, client: RegistryClient) -> Mapping[str, Any]:
        """The defaults of nullable columns that Kafka Connect's converter may have written in place of NULL, by column.

        None for a schema that is not valid. Errors are those of the base class.
        """
        from kdsl_formats._registry.references import whole_schema

        if "connect." not in schema.text:
            return {}
        try:
            whole = whole_schema(client, schema)
            defaults = null_defaults(whole, self.images[-1] if self.images else "")
        except AvroTypeError:
            return {}
        return {f.name: defaults[f.name] for f in row.fields if f.type.nullable and f.name in defaults}

    def list_refusals(self, row: t.Row, schema: Json) -> list[tuple[str, str]]:
        """List the columns, as paths, that cannot hold all values of a writer's schema, with the reasons.

        The path is empty for the rows as a whole.
        """
        refusals = list_refusals(schema, self.envelope_row(row), self.table_schema(row, "read"), records=self.record)
        return list(dict.fromkeys((self._strip_image(path), message) for path, message in refusals))

    def _strip_image(self, path: str) -> str:
        """The path of a column, without the field of the envelope that it is in."""
        image, _, rest = path.partition(".")
        return rest if image in self.images else path


class _Decoder:
    """Decodes messages with the schemas that they name.

    A schema is fetched when the first message names it, because a plan can be built without a registry; what reads its
    messages is kept.
    """

    def __init__(self, chosen: AvroRegistryFormat, row: t.Row, use: Use) -> None:
        self._format, self._row, self._use = chosen, row, use
        self._records = chosen.envelope_row(row, use)
        self._extract_rows = chosen.row_extractor(row, use)
        self._readers: dict[SchemaId, AvroDecoder | _UnreadableError | None] = {}
        self._undeclared: dict[SchemaId, tuple[str, ...]] = {}

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode messages; those without a frame or a readable schema, and those that cannot be read, are bad records.

        Null messages produce no row, nor do empty ones if the format treats them as null, and those whose schema has no
        rows. An undeclared column is counted for each message of a schema that has it. The result has the schema ids
        under the keys of metadata that the table reads.
        """
        chosen = self._format
        if chosen.empty_is_null:
            empty = pc.equal(pc.binary_length(messages), 0)
            if pc.any(empty).as_py():
                messages = pc.if_else(pc.fill_null(empty, True), pa.scalar(None, pa.binary()), messages)
        frames = split_frames(messages)
        bodies, bad = frames.bodies, list(frames.bad)
        groups_read = []
        undeclared: Counter[str] = Counter()
        for schema_id, indexes in frames.groups():
            try:
                reader = self._reader(schema_id)
            except _UnreadableError as e:
                failed = range(len(messages)) if indexes is None else indexes
                bad += [BadRecord(int(i), str(e)) for i in failed]
                continue
            if reader is not None:
                groups_read.append(
                    (indexes, reader.decode(bodies if indexes is None else bodies.take(pa.array(indexes))))
                )
            if columns := self._undeclared.get(schema_id):
                undeclared.update(dict.fromkeys(columns, len(messages) if indexes is None else len(indexes)))
        decoded = merge_decoded(groups_read, bad, Decoded(pa.array([], arrow_type(self._records))))
        if undeclared:
            decoded = attrs.evolve(decoded, undeclared=undeclared)
        return chosen.add_schema_ids(self._extract_rows(decoded), frames, self._use)

    def _reader(self, schema_id: SchemaId) -> AvroDecoder | None:
        """Return the decoder for a schema; None if its messages have no rows.

        A schema that the registry does not have is not remembered, because it may be registered later; its client asks
        for one again only after some seconds.
        """
        if schema_id not in self._readers:
            from kdsl.registry import UnknownSchemaError, registry_client
            from kdsl_formats._registry.references import whole_schema

            chosen = self._format
            client = registry_client(chosen.require_registry(self._use))
            try:
                schema = whole_schema(client, client.schema(schema_id))
                decoder = None
                if chosen.has_rows(schema) and has_chosen_record(schema, chosen.record):
                    if not chosen.insert_only or self._use.count_undeclared:
                        self._undeclared[schema_id] = chosen.find_undeclared_columns(self._row, schema)
                    reader_schema = match_nullability(chosen.table_schema(self._row, "read", self._use), schema)
                    decoder = AvroDecoder(schema, self._records, reader_schema, records=chosen.record)
                self._readers[schema_id] = decoder  # at the end: an error of another kind is not remembered
            except UnknownSchemaError as e:
                raise _UnreadableError(str(e)) from None
            except AvroTypeError as e:
                self._readers[schema_id] = _UnreadableError(
                    f"{describe_schema(schema_id)} in the registry {client.address} cannot be used: {e}"
                )
        reader = self._readers[schema_id]
        if isinstance(reader, _UnreadableError):
            raise reader.with_traceback(None)
        return reader


class _UnreadableError(Exception):
    """No message of a schema can be read."""
