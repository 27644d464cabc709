"""Avro bodies in Confluent's frame: read with the schema that each message names, written with a registered schema."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa

from kdsl.cluster import Registry
from kdsl.errors import KdslError
from kdsl.formats import BadRecord, Decoded, Encoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.encoder import AvroEncoder
from kdsl_formats._avro.model import MISSING, AvroTypeError, Json, RecordField, Type, schema_type
from kdsl_formats._avro.resolution import is_named, resolve
from kdsl_formats._avro.steps import find_failures
from kdsl_formats._registry.framing import Frames, describe_schema, merge_groups, split_frames

if TYPE_CHECKING:
    from kdsl.registry import RegisteredSchema, RegistryClient, SchemaId

SubjectOf = Callable[[str], str]
"""Returns the subject for the full name of a record."""


def schema_text(schema: Json) -> str:
    """The string form of a schema in which it is registered: compact JSON, with all characters as they are."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def record_name(schema: Json) -> str:
    """The full name of the (first) record of a schema, which may be a union with it; its type if it has no record."""
    kind = schema_type(schema)
    records = [one for one in (kind.branches or (kind,)) if one.kind == "record"]
    return records[0].name if records else kind.type_name


def field_names(schema: Json, within: str = "") -> tuple[str, ...]:
    """The names of the fields of a schema's record, which may be in a union with null.

    Args:
        schema: The schema.
        within: A field of the record; its record is used instead.

    Returns:
        The names; empty if there is no such record or field.
    """
    fields = _record_fields(schema_type(schema))
    if within:
        fields = next((_record_fields(field.type) for field in fields if field.name == within), ())
    return tuple(field.name for field in fields)


def null_defaults(schema: Json, within: str = "") -> dict[str, Any]:
    """The defaults, other than null, of a record's fields that may be null; arguments of `field_names`."""
    fields = _record_fields(schema_type(schema))
    if within:
        fields = next((_record_fields(field.type) for field in fields if field.name == within), ())
    return {
        field.name: field.default
        for field in fields
        if field.default not in (MISSING, None) and any(b.kind == "null" for b in field.type.branches)
    }


def _record_fields(kind: Type) -> tuple[RecordField, ...]:
    """The fields of a schema's record, which may be in a union with null; empty if there is no record."""
    return next((one.fields for one in (kind.branches or (kind,)) if one.kind == "record"), ())


class FramedReader:
    """Decodes messages whose frames name the schema that they were written with.

    A schema is fetched when the first message names it; its decoder is reused.

    Args:
        registry: The registry.
        row: The type of the rows.
        reader_schema: The schema that the writers' schemas are resolved to.
        has_rows: Whether messages with a writer's schema contain rows; others are skipped.
        find_undeclared_columns: Returns the names of columns in a writer's schema that the table does not declare.
        records: The records that are read (`resolve`); messages of others are skipped. Empty for all.
    """

    def __init__(
        self,
        registry: Registry,
        row: t.Row,
        reader_schema: Json,
        *,
        has_rows: Callable[[Json], bool] = lambda _: True,
        find_undeclared_columns: Callable[[Json], tuple[str, ...]] = lambda _: (),
        records: Sequence[str] = (),
    ) -> None:
        """Store the arguments; nothing is fetched or checked yet."""
        self._records = records
        self._registry, self._row, self._reader_schema = registry, row, reader_schema
        self._has_rows, self._undeclared_of = has_rows, find_undeclared_columns
        self._kind = arrow_type(row)
        self._readers: dict[SchemaId, AvroDecoder | _UnreadableError | None] = {}
        self._undeclared: dict[SchemaId, tuple[str, ...]] = {}

    def read(self, messages: pa.BinaryArray) -> tuple[Decoded, Frames]:
        """Decode messages; those without a frame or a readable schema, and those that cannot be read, are bad records.

        Null messages, and those whose writer's schema has no rows, produce no row. An undeclared column is counted for
        each message of a schema that has it.

        Returns:
            The rows, and the frames of the messages.
        """
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
            if find_undeclared_columns := self._undeclared.get(schema_id):
                undeclared.update(
                    dict.fromkeys(find_undeclared_columns, len(messages) if indexes is None else len(indexes))
                )
        decoded = merge_groups(groups_read, bad, len(messages), self._kind)
        return (attrs.evolve(decoded, undeclared=undeclared) if undeclared else decoded), frames

    def _reader(self, schema_id: SchemaId) -> AvroDecoder | None:
        """Return the decoder for a schema, which is fetched from the registry once; None if its messages have no rows.

        The decoder, or the error of a schema that cannot be used, and the undeclared columns of the schema are stored;
        a schema that the registry does not have is not, but its client asks for one again only after some seconds.
        """
        if schema_id not in self._readers:
            from kdsl.registry import UnknownSchemaError, registry_client
            from kdsl_formats._registry.references import whole_schema

            client = registry_client(self._registry)
            try:
                schema = whole_schema(client, client.schema(schema_id))
                chosen = self._has_rows(schema) and has_chosen_record(schema, self._records)
                self._undeclared[schema_id] = self._undeclared_of(schema) if chosen else ()
                reader_schema = _match_nullability(self._reader_schema, schema)
                self._readers[schema_id] = (
                    AvroDecoder(schema, self._row, reader_schema, records=self._records) if chosen else None
                )
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


def has_chosen_record(schema: Json, names: Sequence[str]) -> bool:
    """Whether a writer's schema has a record with one of some names, or is not a record; always without names."""
    kind = schema_type(schema)
    records = [one for one in (kind.branches or (kind,)) if one.kind == "record"]
    return not names or not records or any(is_named(record, names) for record in records)


def find_misfits(writer_schema: Json, row: t.Row, reader_schema: Json, *, records: Sequence[str] = ()) -> Iterator[str]:
    """Yield why no message of a writer's schema can be read into a table; nothing if some can, as of one union branch.

    Args:
        writer_schema: The schema that messages are written with.
        row: The type of the rows.
        reader_schema: The schema that it is resolved to.
        records: The records that are read (`resolve`).
    """
    reader, writer = schema_type(_match_nullability(reader_schema, writer_schema)), schema_type(writer_schema)
    if not has_chosen_record(writer_schema, records):
        names = ", ".join(one.name for one in writer.branches or (writer,) if one.kind == "record")
        yield f"it has the record {names}, but 'record-name' is {'; '.join(records)}"
        return
    for path, message in find_failures(resolve(writer, reader, row, exact_units=True, records=records)):
        yield f"{path}: {message}" if path else message


def list_refusals(
    writer_schema: Json, row: t.Row, reader_schema: Json, *, records: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """List the paths and reasons of all values of a writer's schema that cannot be read into a table.

    Unlike `find_misfits`, it lists types of a union that are refused although others can be read.

    Args:
        writer_schema: The schema that messages are written with.
        row: The type of the rows.
        reader_schema: The schema that it is resolved to.
        records: The records that are read (`resolve`).
    """
    reader, writer = schema_type(_match_nullability(reader_schema, writer_schema)), schema_type(writer_schema)
    return list(find_failures(resolve(writer, reader, row, exact_units=True, records=records), everywhere=True))


def _match_nullability(reader_schema: Json, writer_schema: Json) -> Json:
    """The reader's schema, in a union with null if the writer's is a union and it is not: a null has no row."""
    unions = isinstance(writer_schema, Sequence) and not isinstance(writer_schema, str)
    return ["null", reader_schema] if unions and isinstance(reader_schema, Mapping) else reader_schema


class _UnreadableError(Exception):
    """No message of a schema can be read."""


class FramedWriter:
    """Encodes rows with a schema of the registry, which is asked when the first rows are written.

    Args:
        registry: The registry.
        row: The type of the rows.
        schema: The schema of the table.
        subject_of: Returns the subject for a record's full name.
        find_or_register: Returns the id of the schema under a subject (`RegistryFormat.find_or_register`).
        latest: Whether to write with the latest schema of the subject instead.
    """

    def __init__(
        self,
        registry: Registry,
        row: t.Row,
        schema: Json,
        subject_of: SubjectOf,
        find_or_register: Callable[[RegistryClient, str, RegisteredSchema], int],
        *,
        latest: bool = False,
    ) -> None:
        """Store the arguments; the registry is not asked, and nothing is checked yet."""
        self._registry, self._row, self._schema, self._subject_of = registry, row, schema, subject_of
        self._find_or_register, self._latest = find_or_register, latest
        self._schema_id_and_writer: tuple[int, AvroEncoder] | None = None

    def write(self, rows: pa.StructArray) -> tuple[Encoded, int]:
        """Encode rows to bodies; the first call finds or registers the schema in the registry.

        Rows that the schema does not allow are bad records.

        Returns:
            The bodies, and the id of their schema.
        """
        if self._schema_id_and_writer is None:
            self._schema_id_and_writer = self._prepare()
        schema_id, writer = self._schema_id_and_writer
        return writer.encode(rows), schema_id

    def _prepare(self) -> tuple[int, AvroEncoder]:
        """Find or register the schema; return its id and an encoder, and store neither."""
        from kdsl.registry import RegisteredSchema, registry_client
        from kdsl_formats._registry.references import whole_schema

        client = registry_client(self._registry)
        subject = self._subject_of(record_name(self._schema))
        if self._latest:
            latest = client.latest(subject)
            what = f"the version {latest.version} of the subject {subject!r} (id {latest.id}) in the registry"
            return latest.id, self._new_encoder(lambda: whole_schema(client, latest.schema), f"{what} {client.address}")
        writer = self._new_encoder(lambda: self._schema, "the schema of the table")
        registered = RegisteredSchema(schema_text(self._schema))
        return self._find_or_register(client, subject, registered), writer

    def _new_encoder(self, schema: Callable[[], Json], what: str) -> AvroEncoder:
        """An encoder for a schema that a function returns, whose other errors pass; `what` names it in errors."""
        try:
            return AvroEncoder(schema(), self._row)
        except AvroTypeError as e:
            raise KdslError(f"{what} cannot hold the rows of the table: {e}") from None
