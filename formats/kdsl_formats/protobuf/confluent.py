"""The format ``protobuf-confluent``: Protobuf messages in the frame of a schema registry."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Self

import attrs
import numpy as np
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from kdsl.errors import KdslError, Problem
from kdsl.formats import ALONE, BadRecord, Decoded, Decoder, Direction, Encoder, Use
from kdsl.options import option
from kdsl.shown_values import quote_value
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._columns.merge import merge_decoded
from kdsl_formats._registry.differences import Parts
from kdsl_formats._registry.encoder import FormEncoder, RegistryEncoder, SchemaWriter
from kdsl_formats._registry.framing import describe_schema, read_frame, split_frames
from kdsl_formats._registry.options import RegistryFormat
from kdsl_formats.protobuf.confluent_frame import Path, encode_path, path_of, split_indexes
from kdsl_formats.protobuf.decoder import ProtobufDecoder
from kdsl_formats.protobuf.encoder import ProtobufEncoder
from kdsl_formats.protobuf.format import MessageFormat
from kdsl_formats.protobuf.layout import find_problems, layout_of
from kdsl_formats.protobuf.older_versions import complete_array, readable_part
from kdsl_formats.protobuf.sources import Schema, SchemaError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from kdsl.registry import RegisteredSchema, RegistryClient, SchemaId


class ProtobufConfluent(MessageFormat, RegistryFormat):
    """Protobuf messages whose schemas are in a schema registry (Confluent's wire format).

    When it is read, if the message is defined as for the format ``protobuf``, each message is read as that one, and
    the registry is only used to check that it is one. Otherwise each message is read with the schema that it names:
    nullable columns that its version lacks are NULL, and narrower numbers are widened; executors then need
    kdsl-kafka[protobuf] or protoc if the registry has ``.proto`` files. When it is written, the file of the message is
    registered, and the files that it imports, under their names.

    A null message produces no row. The metadata ``value.schema-id`` is the id of the schema that a message was written
    with.
    """

    identifier = "protobuf-confluent"

    message_class_name: str | type | None = option(
        "message-class-name",
        "The message, as for the format `protobuf`, or its full name in the registry. Read: by default, messages with "
        "any name are read. Write: required, unless the latest schema has only one message.",
        default=None,
    )

    def prunable(self) -> bool:
        """False if messages with any name are read: all columns decide whether a message has one of them."""
        return self.message_class_name is not None or bool(self.named_source)

    def readable_part(self, message: Descriptor, row: t.Row) -> t.Row:
        """The part of the columns that is read from messages of a registered schema (`older_versions.readable_part`).

        A message that none of the columns is in has the wrong name, unless the options name it.
        """
        return readable_part(message, row, may_lack_all=self.message_class_name is not None)

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report what `MessageFormat.check` does of the message that the options name, and contradicting options.

        Of a sink that does not use the latest version, also report that its message is unknown. The registry is not
        asked; the message is loaded, which may import a module.
        """
        if self._has_own_message:
            yield from super().check(row, direction)
        elif direction == "write" and not self.use_latest_version:
            yield Problem(
                "protobuf-message",
                f"{self.title} does not say which message is written",
                "set 'message-class-name' and its source (such as 'proto-file'), or set 'use-latest-version'",
            )
        named = self.message_class_name is not None
        for problem in self.option_problems(named=named, direction=direction):
            if problem.code != "registry-latest" or self.named_source:
                yield problem

    @property
    def _has_own_message(self) -> bool:
        """Whether the message is known without the registry: the options name a source or a class, or Python finds it.

        To find a name, its module may be imported. False if the options use the latest version of the subject and only
        name the message. A name with a colon counts as known even if it cannot be imported, so that its error is
        reported.
        """
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

    def read_frame(self, frame: bytes) -> bytes:
        """The frame in a header's value, with the indexes that name the message; ValueError if there is none."""
        framed, bad = split_indexes(pa.array([frame[len(read_frame(frame)) :]], pa.binary()))
        if bad:
            raise ValueError("the indexes after the schema, which name the message, cannot be read")
        return frame[: len(frame) - len(framed[0].messages[0].as_py())]

    def portable(self) -> Self:
        """The format with the descriptors of the message that the options name; itself if only the registry has it."""
        return super().portable() if self._has_own_message else self

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type, which asks the registry only when messages are decoded."""
        return _Decoder(self, row, use)

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type, which finds its schema only when rows are encoded."""
        return RegistryEncoder(self, use, partial(self._find_writer, row, use))

    def _find_writer(self, row: t.Row, use: Use, client: RegistryClient) -> SchemaWriter:
        """Find or register the schema, and the path of its message, which is a part of the frame."""
        from kdsl_formats.protobuf.registered import load_schema, message_names, register_schema

        if self.use_latest_version:
            own = self.own_schema()
            name = own.name if own is not None else self.message_class_name
            latest = client.latest(self.subject_of(use, str(name)))
            names = {full: path for path, full in message_names(latest.schema).items()}
            if not names:
                raise KdslError(
                    f"the latest schema of the subject {latest.subject!r} in the registry {client.address} has no "
                    f"message; {_advice_without_messages(name)}"
                )
            if name is None and len(names) == 1:
                name = next(iter(names))
            full = next((one for one in names if name in (one, one.rpartition(".")[2])), None)
            if full is None:
                raise KdslError(
                    f"the subject {latest.subject!r} in the registry {client.address} has "
                    f"{'several messages' if name is None else f'no message {name}'}; "
                    f"set 'message-class-name' to one of {', '.join(names)}"
                )
            schema, path, number = load_schema(client, latest.schema, full), names[full], latest.id
        else:
            schema = self.schema()
            file = FileDescriptorSet.FromString(schema.files).file[-1]
            path = path_of(file, schema.name)
            subject = self.subject_of(use, schema.name)
            number = register_schema(
                client,
                schema,
                lambda registered: self.find_or_register(client, subject, registered, row),
                register=self.auto_register,
                normalize=self.normalize,
            )
        misfits = list(find_problems(schema.message, row, writing=True))
        if misfits:
            raise KdslError(f"the message {schema.name} cannot hold the rows of the table: {misfits[0]}")
        encoder = ProtobufEncoder(layout_of(schema, row), self.writing_rules())
        return SchemaWriter(number, lambda rows, _: encoder.encode(rows), encode_path(path))

    def form_encoder(self, row: t.Row, form: str, use: Use = ALONE) -> Encoder:
        """An encoder of messages with the frame `form`, whose indexes name the message in the schema."""
        frame = bytes.fromhex(form)

        def create() -> Encoder:
            from kdsl_formats.protobuf.registered import load_schema, message_names

            client, registered, description = self.schema_named(frame, use)
            (framed,), _ = split_indexes(pa.array([frame[len(read_frame(frame)) :]], pa.binary()))
            name = message_names(registered).get(framed.path)
            if name is None:
                raise KdslError(f"{description} has no message at {quote_value(list(framed.path))}")
            schema = load_schema(client, registered, name)
            misfits = list(find_problems(schema.message, row, writing=True))
            if misfits:
                raise KdslError(f"{description} cannot hold the rows of the table: {misfits[0]}")
            return ProtobufEncoder(layout_of(schema, row), self.writing_rules())

        return FormEncoder(frame, create)

    def own_schema(self) -> Schema | None:
        """The message that the options name; None if it is only in the registry. `SchemaError` as in `schema`."""
        return self.schema() if self._has_own_message else None

    def sink_schema(self, row: t.Row, client: RegistryClient) -> tuple[str, RegisteredSchema]:
        """The full name of the message, and the file that a sink registers; nothing is registered here."""
        from kdsl_formats.protobuf.registered import file_to_register

        schema = self.schema()
        return schema.name, file_to_register(client, schema, normalize=self.normalize)

    def schema_parts(self, schema: RegisteredSchema, client: RegistryClient) -> Parts:
        """The package of the schema, its messages and their fields, and its enums."""
        from kdsl_formats.protobuf.registered import protobuf_parts

        return protobuf_parts(client, schema)

    def schema_misfit(self, row: t.Row, schema: RegisteredSchema, client: RegistryClient, direction: Direction) -> str:
        """Why rows cannot be read or written with a registered schema, or "" if they can.

        If several of its messages may be meant, one that fits is enough; otherwise the reason is that of the first. If
        the options define the message that is read, only its name is compared.
        """
        from kdsl_formats.protobuf.registered import load_schema, message_names

        own = self.own_schema()
        wanted = own.name if own is not None else self.message_class_name
        try:
            names = list(message_names(schema).values())
            if not names:
                return f"it has no message; {_advice_without_messages(wanted)}"
            candidates = [name for name in names if wanted is None or wanted in (name, name.rpartition(".")[2])]
            if not candidates:
                return f"it has no message {wanted}, but {', '.join(names)}"
            if own is not None and direction == "read":
                return ""
            mismatches = []
            for message in (load_schema(client, schema, name).message for name in candidates):
                columns = row if direction == "write" else self.readable_part(message, row)
                problems = find_problems(message, columns, writing=direction == "write")
                mismatches.append(next(iter(problems), None))
        except SchemaError as e:
            return str(e)
        return "" if None in mismatches else str(mismatches[0])


def _advice_without_messages(wanted: object) -> str:
    """What to do about a registered schema without messages, such as one of enums.

    `wanted` is the name of the message; None if any message will do.
    """
    message = "a message" if wanted is None else f"the message {wanted}"
    return f"register a schema that defines {message}, or set 'subject' to the subject of one"


class _Decoder:
    """Decodes messages by the ids and indices before them; the decoders are reused."""

    def __init__(self, chosen: ProtobufConfluent, row: t.Row, use: Use) -> None:
        """Load the message that the options name, if they do, and build its decoder."""
        self._format, self._row, self._use = chosen, row, use
        self._rules = chosen.reading_rules(use)
        self._own_schema = chosen.own_schema()
        self._own_decoder = None if self._own_schema is None else self._new_decoder(self._own_schema, row)
        self._decoders: dict[tuple[SchemaId, Path], _VersionDecoder | SchemaError] = {}

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode messages with the schemas that they name, which are fetched once; null messages produce no row.

        Messages without a frame, whose schema is not in the registry or does not match the table, or that cannot be
        read are bad, or left out if errors are ignored. The result has the schema ids under the keys of metadata that
        the table reads.
        """
        frames = split_frames(messages)
        bodies, bad = frames.bodies, list(frames.bad)
        parts = []
        for schema_id, where in frames.groups():
            message_indexes = np.arange(len(messages)) if where is None else where
            framed, wrong = split_indexes(bodies if where is None else bodies.take(pa.array(where)))
            bad += [attrs.evolve(one, index=int(message_indexes[one.index])) for one in wrong]
            for one in framed:
                indexes = message_indexes[one.indexes]
                try:
                    reader = self._decoder_for(schema_id, one.path)
                except SchemaError as e:
                    bad += [BadRecord(int(i), e.message) for i in indexes]
                    continue
                parts.append((None if len(indexes) == len(messages) else indexes, reader.decode(one.messages)))
        reported = () if self._format.ignore_parse_errors else bad
        merged = merge_decoded(parts, reported, Decoded(pa.array([], arrow_type(self._row))))
        return self._format.add_schema_ids(merged, frames, self._use)

    def _decoder_for(self, schema_id: SchemaId, path: Path) -> _VersionDecoder:
        """Return the decoder for the messages at a path of a schema, which is fetched from the registry once.

        The decoder is stored, and so is the error of a schema that does not match.
        """
        decoder = self._decoders.get((schema_id, path))
        if decoder is None:
            from kdsl.registry import UnknownSchemaError, registry_client

            client = registry_client(self._format.require_registry(self._use))
            try:
                schema = client.schema(schema_id)
            except UnknownSchemaError as e:
                raise SchemaError(str(e), "check that it is the writer's registry") from None
            try:
                decoder = self._build_decoder(client, schema, path, f"{describe_schema(schema_id)} in the registry")
            except SchemaError as e:
                decoder = e
            self._decoders[schema_id, path] = decoder
        if isinstance(decoder, SchemaError):
            raise decoder.with_traceback(None)
        return decoder

    def _build_decoder(
        self, client: RegistryClient, schema: RegisteredSchema, path: Path, description: str
    ) -> _VersionDecoder:
        """A decoder for a message of a registered schema, which `description` names in errors.

        If the options define the message, it is the decoder for that one.
        """
        from kdsl_formats.protobuf.registered import load_schema, message_names

        what = f"{description} {client.address}"
        name = message_names(schema).get(path)
        if name is None:
            raise SchemaError(
                f"{what} has no message at {quote_value(list(path))}", "check that it is the writer's registry"
            )
        wanted = self._own_schema.name if self._own_schema is not None else self._format.message_class_name
        if wanted is not None and wanted not in (name, name.rpartition(".")[2]):
            raise SchemaError(f"it is a message {name}, by {what}, and not {wanted}", "read it with another table")
        if self._own_decoder is not None:
            return self._own_decoder
        try:
            version = load_schema(client, schema, name)
            return self._new_decoder(version, self._format.readable_part(version.message, self._row))
        except SchemaError as e:
            raise SchemaError(f"{what} cannot be used: {e}", e.fix) from None

    def _new_decoder(self, schema: Schema, part: t.Row) -> _VersionDecoder:
        """A decoder for a part of the columns; `SchemaError` if they do not fit the message, and as in `layout_of`."""
        misfits = list(find_problems(schema.message, part))
        if misfits:
            raise SchemaError(f"the columns do not fit the message {schema.name}: {misfits[0]}", misfits[0].fix)
        return _VersionDecoder(ProtobufDecoder(layout_of(schema, part), part, self._rules), part, self._row)


class _VersionDecoder:
    """Decodes messages of one version of a schema.

    Args:
        decoder: Reads the columns that the version has.
        part: Their types.
        row: The whole row type.
    """

    def __init__(self, decoder: ProtobufDecoder, part: t.Row, row: t.Row) -> None:
        self._decoder, self._part, self._row = decoder, part, row

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode an array of messages as whole rows."""
        decoded = self._decoder.decode(messages)
        if self._part == self._row:
            return decoded
        return attrs.evolve(decoded, rows=complete_array(decoded.rows, self._part, self._row))
