"""The format ``protobuf-confluent``: Protobuf messages in the frame of a schema registry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from kdsl.errors import KdslError, Problem
from kdsl.formats import ALONE, BadRecord, Decoded, Decoder, Direction, Encoded, Encoder, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._registry.framing import groups, joined, split, together, with_ids
from kdsl_formats._registry.options import RegistryFormat
from kdsl_formats.protobuf.confluent_frame import Path, indexes, path_of, without_indexes
from kdsl_formats.protobuf.decoder import ProtobufDecoder
from kdsl_formats.protobuf.encoder import ProtobufEncoder
from kdsl_formats.protobuf.format import MessageFormat
from kdsl_formats.protobuf.layout import layout_of, problems
from kdsl_formats.protobuf.sources import Schema, SchemaError

if TYPE_CHECKING:
    from kdsl.registry import RegisteredSchema, RegistryClient


class ProtobufConfluent(MessageFormat, RegistryFormat):
    """Protobuf messages whose schemas stand in a schema registry (Confluent's wire format).

    Read: with a message that is told as for the format ``protobuf``, each message is read as that one, and the registry
    only says whether it is one; without, each is read with the schema that it names (which needs kdsl[protobuf] or
    protoc on the executors where the registry holds texts). Write: the file of the message is registered, and those
    that it imports, under their names.

    A null message gives no row. The metadata ``value.schema-id`` is the id of the schema that a message was written
    with.
    """

    identifier = "protobuf-confluent"

    message_class_name: str | type | None = option(
        "message-class-name",
        "The message, as for the format `protobuf`, or its full name in the registry. Read: without one, messages of "
        "every name are read. Write: required, unless the latest schema has one message only.",
        default=None,
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """A message that is told has a field for each column; a sink knows what it writes."""
        if self._is_told:
            yield from super().check(row, direction)
        elif direction == "write" and not self.use_latest_version:
            yield Problem(
                "protobuf-message",
                f"{self.title} does not say which message is written",
                "give 'message-class-name' and where it is (as 'proto-file'), or set 'use-latest-version'",
            )
        named = self.message_class_name is not None
        for problem in self.own_problems(named=named, direction=direction):
            if problem.code != "registry-latest" or self.named_source:
                yield problem

    @property
    def _is_told(self) -> bool:
        """Whether the message is known without the registry."""
        if self.named_source:
            return True
        if not isinstance(self.message_class_name, str):
            return self.message_class_name is not None
        if self.use_latest_version:
            return False
        try:
            self.schema()
        except SchemaError:
            return ":" in self.message_class_name
        return True

    def portable(self) -> Self:
        """The format with the descriptors of a message that is told."""
        return super().portable() if self._is_told else self

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type."""
        return _Decoder(self, row, use)

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type."""
        return _Encoder(self, row, use)

    def told_schema(self) -> Schema | None:
        """The message that is told; None where only the registry has it."""
        return self.schema() if self._is_told else None

    def registered(self, row: t.Row, client: RegistryClient) -> tuple[str, RegisteredSchema]:
        """The message's full name and the file that a sink registers."""
        del row
        from kdsl_formats.protobuf.registered import registered_text

        schema = self.schema()
        return schema.name, registered_text(client, schema, normalize=self.normalize)

    def misfit(self, row: t.Row, schema: RegisteredSchema, client: RegistryClient, direction: Direction) -> str:
        """Why rows cannot be read, or written, with a registered schema; see `RegistryFormat`."""
        from kdsl_formats.protobuf.registered import names_of, registered_schema

        told = self.told_schema()
        wanted = told.name if told is not None else self.message_class_name
        try:
            names = list(names_of(schema).values())
            found = [name for name in names if wanted is None or wanted in (name, name.rpartition(".")[2])]
            if not found:
                return f"it has no message {wanted}, but {', '.join(names)}"
            if told is not None and direction == "read":
                return ""
            messages = (registered_schema(client, schema, name).message for name in found)
            whys = [next(iter(problems(message, row, writing=direction == "write")), None) for message in messages]
        except SchemaError as e:
            return str(e)
        return "" if None in whys else str(whys[0])


class _Decoder:
    """Reads messages by the ids and indexes before them; the readers are kept."""

    def __init__(self, chosen: ProtobufConfluent, row: t.Row, use: Use) -> None:
        self._format, self._row, self._use = chosen, row, use
        self._rules = chosen.reading_rules(use)
        self._told = chosen.told_schema()
        self._own = None if self._told is None else self._reader_of(self._told)
        self._readers: dict[tuple[int, Path], ProtobufDecoder | SchemaError] = {}

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Read an array of messages; see `kdsl.formats.Decoder`."""
        ids, bodies, unframed = split(messages)
        bad = list(unframed)
        parts = []
        for schema_id, where in groups(ids):
            among = np.arange(len(messages)) if where is None else where
            framed, wrong = without_indexes(bodies if where is None else bodies.take(pa.array(where)))
            bad += [BadRecord(int(among[one.index]), one.reason) for one in wrong]
            for one in framed:
                at = among[one.places]
                try:
                    reader = self._reader(schema_id, one.path)
                except SchemaError as e:
                    bad += [BadRecord(int(i), e.message) for i in at]
                    continue
                parts.append((None if len(at) == len(messages) else at, reader.decode(one.messages)))
        told = () if self._format.ignore_parse_errors else bad
        if self._format.ignore_parse_errors and len(parts) == 1 and parts[0][0] is None:
            return with_ids(parts[0][1], ids, self._use.metadata)
        return with_ids(together(parts, told, len(messages), arrow_type(self._row)), ids, self._use.metadata)

    def _reader(self, schema_id: int, path: Path) -> ProtobufDecoder:
        """The reader for the messages at a place of a schema.

        What cannot be used stays so, since nothing under an id ever changes; what the registry does not have may come
        yet, so that its client is asked each time, which remembers for some seconds.
        """
        found = self._readers.get((schema_id, path))
        if found is None:
            from kdsl.registry import UnknownSchemaError, registry_client

            client = registry_client(self._format.required_registry(self._use))
            try:
                schema = client.schema(schema_id)
            except UnknownSchemaError as e:
                raise SchemaError(str(e), "see that it is the registry of the writer") from None
            try:
                found = self._made(client, schema, path, f"the schema of the id {schema_id} in the registry")
            except SchemaError as e:
                found = e
            self._readers[schema_id, path] = found
        if isinstance(found, SchemaError):
            raise found.with_traceback(None)
        return found

    def _made(self, client: RegistryClient, schema: RegisteredSchema, path: Path, called: str) -> ProtobufDecoder:
        from kdsl_formats.protobuf.registered import names_of, registered_schema

        what = f"{called} {client.address}"
        name = names_of(schema).get(path)
        if name is None:
            raise SchemaError(f"{what} has no message at {list(path)}", "see that it is the registry of the writer")
        wanted = self._told.name if self._told is not None else self._format.message_class_name
        if wanted is not None and wanted not in (name, name.rpartition(".")[2]):
            raise SchemaError(f"it is a message {name}, by {what}, and not {wanted}", "read it with another table")
        if self._own is not None:
            return self._own
        try:
            return self._reader_of(registered_schema(client, schema, name))
        except SchemaError as e:
            raise SchemaError(f"{what} cannot be used: {e}", e.fix) from None

    def _reader_of(self, schema: Schema) -> ProtobufDecoder:
        misfits = list(problems(schema.message, self._row))
        if misfits:
            raise SchemaError(f"the columns do not fit the message {schema.name}: {misfits[0]}", misfits[0].fix)
        return ProtobufDecoder(layout_of(schema, self._row), self._row, self._rules)


class _Encoder:
    """Writes rows as messages of a registered schema, which is asked for when the first rows come."""

    def __init__(self, chosen: ProtobufConfluent, row: t.Row, use: Use) -> None:
        self._format, self._row, self._use = chosen, row, use
        self._made: tuple[int, bytes, ProtobufEncoder] | None = None

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Write an array of rows; see `kdsl.formats.Encoder`."""
        if not len(rows):
            return Encoded(pa.array([], pa.binary()))
        if self._made is None:
            self._made = self._prepared()
        schema_id, before, encoder = self._made
        found = encoder.encode(rows)
        bodies = pc.binary_join_element_wise(
            pa.scalar(before, pa.binary()), found.messages, pa.scalar(b"", pa.binary())
        )
        return Encoded(joined(schema_id, bodies), found.bad)

    def _prepared(self) -> tuple[int, bytes, ProtobufEncoder]:
        from kdsl.registry import registry_client
        from kdsl_formats.protobuf.registered import names_of, registered_id, registered_schema

        chosen = self._format
        client = registry_client(chosen.required_registry(self._use))
        if chosen.use_latest_version:
            told = chosen.told_schema()
            name = told.name if told is not None else chosen.message_class_name
            latest = client.latest(chosen.subject_of(self._use, str(name)))
            names = {full: path for path, full in names_of(latest.schema).items()}
            if name is None and len(names) == 1:
                name = next(iter(names))
            full = next((one for one in names if name in (one, one.rpartition(".")[2])), None)
            if full is None:
                raise KdslError(
                    f"the subject {latest.subject!r} in the registry {client.address} has "
                    f"{'several messages' if name is None else f'no message {name}'}; give 'message-class-name' one of "
                    f"{', '.join(names)}"
                )
            schema, path, number = registered_schema(client, latest.schema, full), names[full], latest.id
        else:
            schema = chosen.schema()
            file = FileDescriptorSet.FromString(schema.files).file[-1]
            path = path_of(file, schema.name)
            subject = chosen.subject_of(self._use, schema.name)
            number = registered_id(client, subject, schema, register=chosen.auto_register, normalize=chosen.normalize)
        misfits = list(problems(schema.message, self._row, writing=True))
        if misfits:
            raise KdslError(f"the message {schema.name} cannot hold the rows of the table: {misfits[0]}")
        return number, indexes(path), ProtobufEncoder(layout_of(schema, self._row), chosen.writing_rules())
