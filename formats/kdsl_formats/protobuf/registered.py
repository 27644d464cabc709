"""Protobuf schemas in a schema registry: as text or as a descriptor in base64, with the files that they import."""

from __future__ import annotations

import base64
import binascii
import tempfile
from pathlib import Path as FilePath, PurePosixPath

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from kdsl.registry.client import RegistryClient
from kdsl.registry.errors import IncompatibleSchemaError
from kdsl.registry.model import RegisteredSchema, SchemaReference
from kdsl_formats.protobuf.confluent_frame import Path, places, places_in_text
from kdsl_formats.protobuf.proto_text import proto_text
from kdsl_formats.protobuf.sources import Schema, SchemaError, compiled, schema_of

PROTOBUF = "PROTOBUF"
_WELL_KNOWN = ("google/protobuf/", "google/type/", "confluent/")
_MAIN = "main.proto"


def names_of(schema: RegisteredSchema) -> dict[Path, str]:
    """The full names of a registered schema's messages by their indexes.

    Raises:
        SchemaError: It is no schema of Protobuf.
    """
    _check(schema)
    file = _descriptor(schema.text)
    return places_in_text(schema.text) if file is None else {path: name for name, path in places(file)}


def registered_schema(client: RegistryClient, schema: RegisteredSchema, name: str) -> Schema:
    """A message of a registered schema.

    Args:
        client: The registry, for what the schema imports.
        schema: The schema.
        name: The message's full name.

    Raises:
        SchemaError: It is no schema of Protobuf, or there is no compiler.
        RegistryError: What it imports cannot be had.
    """
    return schema_of(name, registered_files(client, schema))


def registered_files(client: RegistryClient, schema: RegisteredSchema) -> FileDescriptorSet:
    """The files of a registered schema, its own one last; with comments where it was registered as text.

    Raises:
        SchemaError: It is no schema of Protobuf, or there is no compiler.
        RegistryError: What it imports cannot be had.
    """
    _check(schema)
    used = client.references(schema)
    main = _descriptor(schema.text)
    if main is not None:
        files = FileDescriptorSet()
        for called, one in used.items():
            made = _descriptor(one.text)
            if made is None:
                raise SchemaError(f"the schema imports {called!r}, which is registered as text", "register both alike")
            made.name = called
            files.file.append(made)
        files.file.append(main)
        return files
    with tempfile.TemporaryDirectory(prefix="kdsl-registry-") as folder:
        texts = {called: one.text for called, one in used.items()}
        main_name = _MAIN if _MAIN not in texts else f"_{_MAIN}"
        for called, text in {**texts, main_name: schema.text}.items():
            place = PurePosixPath(called)
            if place.is_absolute() or ".." in place.parts:
                raise SchemaError(f"the schema imports {called!r}, which is no path of a file", "register it anew")
            path = FilePath(folder, place)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return compiled([FilePath(folder, main_name)], [folder])


def registered_id(client: RegistryClient, subject: str, schema: Schema, *, register: bool, normalize: bool) -> int:
    """The id of a message's file under a subject; the files that it imports stand under their own names.

    Args:
        client: The registry.
        subject: The subject.
        schema: The message.
        register: Whether what is not there is registered; otherwise it must be there already.
        normalize: Whether the registry brings it into its normal form.

    Raises:
        UnknownSubjectError: It is not there, and is not registered.
        IncompatibleSchemaError: The registry does not take it.
        RegistryError: The registry does not answer, or refuses.
    """
    try:
        made = registered_text(client, schema, register=register, normalize=normalize)
        if register:
            return client.register(subject, made, normalize=normalize)
        return client.look_up(subject, made, normalize=normalize).id
    except IncompatibleSchemaError as e:
        if not any(file.syntax == "editions" for file in FileDescriptorSet.FromString(schema.files).file):
            raise
        raise IncompatibleSchemaError(
            f"{e}; it is of an edition, which this registry may not know: write it in proto2 or proto3, where each "
            "field that knows whether it is there is 'optional'"
        ) from None


def registered_text(
    client: RegistryClient, schema: Schema, *, register: bool = False, normalize: bool = False
) -> RegisteredSchema:
    """The file of a message as it is registered, with the versions of the files that it imports; see `registered_id`.

    Raises:
        RegistryError: As there, for the files that it imports.
    """
    *imported, main = FileDescriptorSet.FromString(schema.files).file
    known: dict[str, SchemaReference] = {}
    for file in imported:  # each behind what it imports itself
        if file.name.startswith(_WELL_KNOWN):
            continue
        made = _text(file, known)
        if register:
            client.register(file.name, made, normalize=normalize)
        version = client.look_up(file.name, made, normalize=normalize).version
        known[file.name] = SchemaReference(file.name, file.name, version)
    return _text(main, known)


def _text(file: FileDescriptorProto, known: dict[str, SchemaReference]) -> RegisteredSchema:
    return RegisteredSchema(proto_text(file), PROTOBUF, tuple(known[name] for name in file.dependency if name in known))


def _check(schema: RegisteredSchema) -> None:
    if schema.kind != PROTOBUF:
        raise SchemaError(
            f"it is a schema of the kind {schema.kind}, and not of Protobuf", "read it with its own format"
        )


def _descriptor(text: str) -> FileDescriptorProto | None:
    """The descriptor that a text is in base64; None where it is a ``.proto`` file."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode("".join(text.split()), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
