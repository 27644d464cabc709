"""Avro bodies in Confluent's frame: read with the schema that each message names, written with a registered one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kdsl.cluster import Registry
from kdsl.errors import KdslError
from kdsl.formats import BadRecord, Decoded, Encoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.encoder import AvroEncoder
from kdsl_formats._avro.model import AvroTypeError, Json, schema_type
from kdsl_formats._avro.resolution import Chosen, Entries, Fail, Items, Null, Record, Step, Union, resolve
from kdsl_formats._registry.framing import Ids, groups, joined, split, together

if TYPE_CHECKING:
    from kdsl.registry import RegistryClient

SubjectOf = Callable[[str], str]
"""Gives the subject for the full name of a record."""


def text_of(schema: Json) -> str:
    """A schema as the text that is registered."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def record_name(schema: Json) -> str:
    """The full name of the record that a schema is, or that stands in its union with null."""
    found = schema_type(schema)
    records = [one for one in (found.branches or (found,)) if one.kind == "record"]
    return records[0].name if records else found.called


class FramedReader:
    """Reads messages whose frames name the schema that they were written with.

    The registry is asked for a schema when the first message names it; the readers are kept.

    Args:
        registry: The registry.
        row: The type of the rows.
        reader_schema: The schema that the writers' are resolved to.
    """

    def __init__(self, registry: Registry, row: t.Row, reader_schema: Json) -> None:
        self._registry, self._row, self._reader_schema = registry, row, reader_schema
        self._kind = arrow_type(row)
        self._readers: dict[int, AvroDecoder | _UnreadableError] = {}

    def read(self, messages: pa.BinaryArray) -> tuple[Decoded, Ids]:
        """Read messages; a null message gives no row.

        Returns:
            The rows, and for each message the id of its schema.

        Raises:
            RegistryError: The registry does not answer, or refuses.
        """
        ids, bodies, unframed = split(messages)
        bad = list(unframed)
        parts = []
        for schema_id, places in groups(ids):
            try:
                reader = self._reader(schema_id)
            except _UnreadableError as e:
                failed = range(len(messages)) if places is None else places
                bad += [BadRecord(int(i), str(e)) for i in failed]
                continue
            parts.append((places, reader.decode(bodies if places is None else bodies.take(pa.array(places)))))
        return together(parts, bad, len(messages), self._kind), ids

    def _reader(self, schema_id: int) -> AvroDecoder:
        """The reader for a schema.

        What cannot be used stays so, since nothing under an id ever changes; what the registry does not have may come
        yet, so that its client is asked each time, which remembers for some seconds.
        """
        found = self._readers.get(schema_id)
        if found is None:
            from kdsl.registry import UnknownSchemaError, registry_client
            from kdsl_formats._registry.references import whole_schema

            client = registry_client(self._registry)
            try:
                schema = whole_schema(client, client.schema(schema_id))
                found = AvroDecoder(schema, self._row, _alike(self._reader_schema, schema))
            except UnknownSchemaError as e:
                raise _UnreadableError(str(e)) from None
            except AvroTypeError as e:
                found = _UnreadableError(
                    f"the schema of the id {schema_id} in the registry {client.address} cannot be used: {e}"
                )
            self._readers[schema_id] = found
        if isinstance(found, _UnreadableError):
            raise found.with_traceback(None)
        return found


def misfits(writer_schema: Json, row: t.Row, reader_schema: Json) -> Iterator[str]:
    """What no message of a writer's schema gives a table.

    Args:
        writer_schema: The schema that messages are written with.
        row: The type of the rows.
        reader_schema: The schema that it is resolved to.

    Raises:
        AvroTypeError: A schema is none.
    """
    reader = schema_type(_alike(reader_schema, writer_schema))
    yield from _misfits(resolve(schema_type(writer_schema), reader, row, exact_units=True), "")


def _misfits(step: Step, place: str) -> Iterator[str]:
    match step:
        case Fail(message=message):
            yield f"{place}: {message}" if place else message
        case Record(steps=steps):
            for inner, name in steps:
                yield from _misfits(inner, name or place)
        case Items(inner=inner) | Entries(inner=inner) | Chosen(inner=inner):
            yield from _misfits(inner, place)
        case Union(branches=branches):
            found = [list(_misfits(branch, place)) for branch in branches if not isinstance(branch, Null)]
            if found and all(found):
                yield from found[-1]


def _alike(reader_schema: Json, writer_schema: Json) -> Json:
    """The reader's schema in a union with null where the writer's is: a null gives no row, and the rest is quick."""
    unions = isinstance(writer_schema, Sequence) and not isinstance(writer_schema, str)
    return ["null", reader_schema] if unions and isinstance(reader_schema, Mapping) else reader_schema


class _UnreadableError(Exception):
    """No message of a schema can be read."""


class FramedWriter:
    """Writes rows with a schema of the registry, which is asked when the first rows come.

    Args:
        registry: The registry.
        row: The type of the rows.
        schema: The schema of the table.
        subject_of: Gives the subject for a record's full name.
        register: Whether the schema is registered where it is not.
        normalize: Whether the registry normalizes it.
        latest: Write with the latest schema of the subject instead.
    """

    def __init__(
        self,
        registry: Registry,
        row: t.Row,
        schema: Json,
        subject_of: SubjectOf,
        *,
        register: bool = True,
        normalize: bool = False,
        latest: bool = False,
    ) -> None:
        self._registry, self._row, self._schema, self._subject_of = registry, row, schema, subject_of
        self._register, self._normalize, self._latest = register, normalize, latest
        self._made: tuple[int, AvroEncoder] | None = None

    def write(self, rows: pa.StructArray) -> Encoded:
        """Write rows.

        Raises:
            RegistryError: The registry does not answer, refuses, or does not take the schema.
            KdslError: The latest schema of the subject cannot hold the rows.
        """
        if not len(rows):
            return Encoded(pa.array([], pa.binary()))
        if self._made is None:
            self._made = self._prepared()
        schema_id, writer = self._made
        found = writer.encode(rows)
        return Encoded(joined(schema_id, found.messages), found.bad)

    def _prepared(self) -> tuple[int, AvroEncoder]:
        from kdsl.registry import RegisteredSchema, registry_client
        from kdsl_formats._registry.references import whole_schema

        client = registry_client(self._registry)
        subject = self._subject_of(record_name(self._schema))
        if self._latest:
            found = client.latest(subject)
            what = f"the version {found.version} of the subject {subject!r} (id {found.id}) in the registry"
            return found.id, self._writer(lambda: whole_schema(client, found.schema), f"{what} {client.address}")
        writer = self._writer(lambda: self._schema, "the schema of the table")
        return self._schema_id(client, subject, RegisteredSchema(text_of(self._schema))), writer

    def _writer(self, schema: Callable[[], Json], what: str) -> AvroEncoder:
        try:
            return AvroEncoder(schema(), self._row)
        except AvroTypeError as e:
            raise KdslError(f"{what} cannot hold the rows of the table: {e}") from None

    def _schema_id(self, client: RegistryClient, subject: str, schema: Any) -> int:
        if self._register:
            return client.register(subject, schema, normalize=self._normalize)
        return client.look_up(subject, schema, normalize=self._normalize).id
