"""The declaration of the format: rows as JSON objects whose schema is in a registry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.errors import KdslError, Problem
from kdsl.formats import ALONE, BadRecord, Decoded, Decoder, Direction, Encoder, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats._registry.differences import Parts, json_parts
from kdsl_formats._registry.encoder import FormEncoder, RegistryEncoder, SchemaWriter, describe_version
from kdsl_formats._registry.framing import split_frames
from kdsl_formats._registry.options import RegistryFormat
from kdsl_formats.json.decoder import JsonDecoder
from kdsl_formats.json.encoder import JsonEncoder
from kdsl_formats.json.format import ValueModesJson
from kdsl_formats.json.reference_decoder import ReadingRules
from kdsl_formats.json_schema_confluent.schema import (
    JSON_SCHEMA,
    SchemaError,
    derive_schema,
    find_misfits,
    find_replaced_nulls,
    parse_schema,
    title_of,
)

if TYPE_CHECKING:
    from kdsl.registry import RegisteredSchema, RegistryClient

_TITLE = "Record"


class JsonSchemaConfluent(ValueModesJson, RegistryFormat):
    """JSON objects whose JSON Schemas are in a schema registry (Confluent's wire format).

    When it is read, the rows are those that the format ``json`` reads after the frame of each message; which schema
    it names does not matter, because JSON names its members itself. When it is written, the schema is derived from
    the table, with Kafka Connect's types, and registered when the first rows come.

    A null message gives no row; one with a frame and nothing after it is an error. The metadata ``value.schema-id`` is
    the id of the schema that a message was written with.
    """

    identifier = "json-schema-confluent"

    timestamp_format: Literal["SQL", "ISO-8601"] = option(
        "timestamp-format.standard",
        "The form of timestamps: 2024-05-01T12:30:00.123 (ISO-8601), which is the form `date-time` of JSON Schema, or "
        "2024-05-01 12:30:00.123 (SQL).",
        default="ISO-8601",
    )
    schema: str | None = option(
        "schema",
        "A JSON Schema that is registered instead of the derived one; it must allow the objects that the table's "
        "columns give.",
        default=None,
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report map keys that JSON lacks, a wrong ``schema``, and, to write, lost digits and contradictory options."""
        yield from super().check(row, direction)
        if self.schema is not None:
            yield from self._schema_problems(self.schema, row, direction)
        yield from self.option_problems(named=self.schema is not None, direction=direction)

    def _schema_problems(self, text: str, row: t.Row, direction: Direction) -> Iterator[Problem]:
        """Report an option ``schema`` that is not a JSON Schema, lacks a needed title, or does not match the table.

        Of many differences, ten are named.
        """
        try:
            schema = parse_schema(text)
        except SchemaError as e:
            message = f"{self.title} has a 'schema' that cannot be used: {e}"
            yield Problem("registry-schema", message, "write a JSON Schema of an object")
            return
        if self.names_subject_after("record") and direction == "write" and not title_of(schema):
            message = f"{self.title} names the subject after the record, and its 'schema' has no title"
            yield Problem("registry-subject", message, "add a 'title' to the schema")
        misfits = list(find_misfits(schema, {}, row, self.writing_rules(), writing=direction == "write"))
        if misfits:
            message = f"{self.title} has a 'schema' that does not match the table: {'; '.join(misfits[:10])}"
            yield Problem(
                "registry-schema",
                message,
                "change the columns or the schema accordingly, or remove 'schema' to derive it from the table",
            )

    def prunable(self) -> bool:
        """True unless the option ``schema`` is set, which needs all columns: members are found by name."""
        return self.schema is None

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type, which asks the registry only for the ids of schemas that GUIDs name."""
        return _Decoder(self, row, use)

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type, which asks the registry only when rows are encoded."""
        return RegistryEncoder(self, use, partial(self._find_writer, row, use))

    def _find_writer(self, row: t.Row, use: Use, client: RegistryClient) -> SchemaWriter:
        """Find the schema that rows are written with, and register it if the options say so."""
        title, schema = self.sink_schema(row, client)
        subject = self.subject_of(use, title)
        encoder = JsonEncoder(row, self.writing_rules())
        if not self.use_latest_version:
            return SchemaWriter(self.find_or_register(client, subject, schema, row), encoder.encode)
        latest = client.latest(subject)
        misfit = self.schema_misfit(row, latest.schema, client, "write")
        if misfit:
            raise KdslError(f"{describe_version(latest, client)} cannot hold the rows of the table: {misfit}")
        return SchemaWriter(latest.id, encoder.encode)

    def form_encoder(self, row: t.Row, form: str, use: Use = ALONE) -> Encoder:
        """An encoder of messages with the frame `form`; the registry is not asked, as JSON names its members itself."""
        return FormEncoder(bytes.fromhex(form), lambda: JsonEncoder(row, self.writing_rules()))

    def reading_rules(self) -> ReadingRules:
        """What the options about errors, timestamps and the form of values mean for the decoder."""
        return ReadingRules(
            ignore_parse_errors=self.ignore_parse_errors, standard=self.timestamp_format, modes=self.modes
        )

    def sink_schema(self, row: t.Row, client: RegistryClient) -> tuple[str, RegisteredSchema]:
        """The schema's title ("" without one) and the schema that a sink registers; the registry is not asked."""
        from kdsl.registry import RegisteredSchema

        if self.schema is not None:
            schema = parse_schema(self.schema)
            return title_of(schema), RegisteredSchema(self.schema, JSON_SCHEMA)
        text = json.dumps(derive_schema(row, self.writing_rules(), _TITLE), separators=(",", ":"), ensure_ascii=False)
        return _TITLE, RegisteredSchema(text, JSON_SCHEMA)

    def schema_parts(self, schema: RegisteredSchema, client: RegistryClient) -> Parts:
        """The title of the schema and its members; none if it is not a JSON Schema."""
        return json_parts(parse_schema(schema.text)) if schema.kind == JSON_SCHEMA else {}

    def schema_misfit(self, row: t.Row, schema: RegisteredSchema, client: RegistryClient, direction: Direction) -> str:
        """Why rows cannot be read, or written, with a registered schema, or "" if they can."""
        if schema.kind != JSON_SCHEMA:
            return f"it is a schema of the type {schema.kind}, and not a JSON Schema"
        try:
            others = {name: parse_schema(one.text) for name, one in client.references(schema).items()}
            document: dict[str, Any] = parse_schema(schema.text)
        except SchemaError as e:
            return str(e)
        return "; ".join(find_misfits(document, others, row, self.writing_rules(), writing=direction == "write"))

    def find_replaced_nulls(self, row: t.Row, schema: RegisteredSchema, client: RegistryClient) -> Mapping[str, Any]:
        """The defaults of nullable columns that Kafka Connect's converter may have written in place of NULL, by column.

        None for a schema that is not one of that converter, or not a JSON Schema.
        """
        del client  # the converter references no other schemas
        if schema.kind != JSON_SCHEMA or "connect." not in schema.text:
            return {}
        try:
            defaults = find_replaced_nulls(parse_schema(schema.text))
        except SchemaError:
            return {}
        return {f.name: defaults[f.name] for f in row.fields if f.type.nullable and f.name in defaults}


class _Decoder:
    """Takes the frames off messages, and reads the JSON in them."""

    def __init__(self, chosen: JsonSchemaConfluent, row: t.Row, use: Use) -> None:
        """Create the decoder of the JSON; the registry is asked only for the ids of schemas that GUIDs name."""
        self._format, self._use, self._ignore = chosen, use, chosen.ignore_parse_errors
        self._decoder = JsonDecoder(row, chosen.reading_rules())

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode messages, whatever schema they name; null ones produce no row.

        Messages without a frame, with nothing after it, or with JSON that cannot be read are bad, or left out if errors
        are ignored. The result has the schema ids under the keys of metadata that the table reads.
        """
        frames = split_frames(messages)
        bodies, unframed = frames.bodies, frames.bad
        decoded = self._decoder.decode(bodies)
        if not self._ignore:
            empty = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(pc.binary_length(bodies), 0), False)))
            reason = "the message has the frame of a schema registry and no JSON after it"
            bad = [*unframed, *(BadRecord(int(i), reason) for i in empty)]
            if bad:
                every = sorted([*bad, *decoded.bad], key=lambda record: record.index)
                decoded = attrs.evolve(decoded, bad=tuple(every))
        return self._format.add_schema_ids(decoded, frames, self._use)
