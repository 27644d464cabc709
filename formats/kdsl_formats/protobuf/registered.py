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
from kdsl_formats.protobuf.confluent_frame import Path, message_paths, message_paths_in_text
from kdsl_formats.protobuf.proto_text import proto_text
from kdsl_formats.protobuf.sources import Schema, SchemaError, compile_files, schema_of

PROTOBUF = "PROTOBUF"
_WELL_KNOWN = ("google/protobuf/", "google/type/", "confluent/")
_MAIN = "main.proto"


def message_names(schema: RegisteredSchema) -> dict[Path, str]:
    """The full names of a registered schema's messages by their indexes.

    Raises:
        SchemaError: It is not a Protobuf schema.
    """
    _check_kind(schema)
    file = _descriptor(schema.text)
    return message_paths_in_text(schema.text) if file is None else {path: name for name, path in message_paths(file)}


def load_schema(client: RegistryClient, schema: RegisteredSchema, name: str) -> Schema:
    """A message of a registered schema.

    Args:
        client: The registry, for what the schema imports.
        schema: The schema.
        name: The message's full name.

    Raises:
        SchemaError: It is not a Protobuf schema, or there is no compiler.
        RegistryError: What it imports cannot be fetched.
    """
    return schema_of(name, load_files(client, schema))


def load_files(client: RegistryClient, schema: RegisteredSchema) -> FileDescriptorSet:
    """The files of a registered schema, its own one last; with comments where it was registered as text.

    Raises:
        SchemaError: It is not a Protobuf schema, or there is no compiler.
        RegistryError: What it imports cannot be fetched.
    """
    _check_kind(schema)
    used = client.references(schema)
    main = _descriptor(schema.text)
    if main is not None:
        files = FileDescriptorSet()
        for imported_name, one in used.items():
            descriptor = _descriptor(one.text)
            if descriptor is None:
                raise SchemaError(
                    f"the schema imports {imported_name!r}, which is registered as text", "register both alike"
                )
            descriptor.name = imported_name
            files.file.append(descriptor)
        files.file.append(main)
        return files
    with tempfile.TemporaryDirectory(prefix="kdsl-registry-") as folder:
        texts = {imported_name: one.text for imported_name, one in used.items()}
        main_name = _MAIN if _MAIN not in texts else f"_{_MAIN}"
        for imported_name, text in {**texts, main_name: schema.text}.items():
            import_path = PurePosixPath(imported_name)
            if import_path.is_absolute() or ".." in import_path.parts:
                raise SchemaError(
                    f"the schema imports {imported_name!r}, which is not the path of a file", "register it anew"
                )
            path = FilePath(folder, import_path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return compile_files([FilePath(folder, main_name)], [folder])


def register_schema(client: RegistryClient, subject: str, schema: Schema, *, register: bool, normalize: bool) -> int:
    """The id of a message's file under a subject; the files that it imports have their own names as subjects.

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
        registered = file_to_register(client, schema, register=register, normalize=normalize)
        if register:
            return client.register(subject, registered, normalize=normalize)
        return client.look_up(subject, registered, normalize=normalize).id
    except IncompatibleSchemaError as e:
        if not any(file.syntax == "editions" for file in FileDescriptorSet.FromString(schema.files).file):
            raise
        raise IncompatibleSchemaError(
            f"{e}; it is of an edition, which this registry may not know: write it in proto2 or proto3, where each "
            "field that knows whether it is there is 'optional'"
        ) from None


def file_to_register(
    client: RegistryClient, schema: Schema, *, register: bool = False, normalize: bool = False
) -> RegisteredSchema:
    """The file of a message as it is registered, with the versions of the files that it imports; see `register_schema`.

    Raises:
        RegistryError: As there, for the files that it imports.
    """
    *imported, main = FileDescriptorSet.FromString(schema.files).file
    known: dict[str, SchemaReference] = {}
    for file in imported:  # each after what it imports itself
        if file.name.startswith(_WELL_KNOWN):
            continue
        registered = _to_registered(file, known)
        if register:
            client.register(file.name, registered, normalize=normalize)
        version = client.look_up(file.name, registered, normalize=normalize).version
        known[file.name] = SchemaReference(file.name, file.name, version)
    return _to_registered(main, known)


def _to_registered(file: FileDescriptorProto, known: dict[str, SchemaReference]) -> RegisteredSchema:
    """A file as it is registered."""
    return RegisteredSchema(proto_text(file), PROTOBUF, tuple(known[name] for name in file.dependency if name in known))


def _check_kind(schema: RegisteredSchema) -> None:
    """Raise an error for a schema of another language."""
    if schema.kind != PROTOBUF:
        raise SchemaError(
            f"it is a schema of the kind {schema.kind}, and not of Protobuf", "read it with its own format"
        )


def _descriptor(text: str) -> FileDescriptorProto | None:
    """The descriptor that a string is in base64; None if it is a ``.proto`` file."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode("".join(text.split()), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
