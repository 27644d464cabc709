"""Protobuf schemas in a schema registry: ``.proto`` files or descriptors in base64, with the files that they import."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path as FilePath, PurePosixPath
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import DecodeError

from kdsl.registry.errors import IncompatibleSchemaError
from kdsl.registry.model import RegisteredSchema, SchemaReference
from kdsl_formats.protobuf.confluent_frame import Path, message_paths, message_paths_in_text
from kdsl_formats.protobuf.known_files import KNOWN
from kdsl_formats.protobuf.proto_text import proto_text
from kdsl_formats.protobuf.sources import Schema, SchemaError, compile_files, schema_of

if TYPE_CHECKING:
    from kdsl.registry import RegistryClient

PROTOBUF = "PROTOBUF"
_MAIN = "main.proto"


def message_names(schema: RegisteredSchema) -> dict[Path, str]:
    """The full names of a registered schema's messages by their paths (see `message_paths`).

    The text of a ``.proto`` file is not checked, as in `message_paths_in_text`.
    """
    _check_kind(schema)
    file = _descriptor(schema.text)
    return message_paths_in_text(schema.text) if file is None else {path: name for name, path in message_paths(file)}


def load_schema(client: RegistryClient, schema: RegisteredSchema, name: str) -> Schema:
    """A message of a registered schema.

    Args:
        client: The client of the registry, for the schema's imports.
        schema: The schema.
        name: The message's full name.
    """
    return schema_of(name, load_files(client, schema))


def load_files(client: RegistryClient, schema: RegisteredSchema) -> FileDescriptorSet:
    """The files of a registered schema, its own file last; with comments if it was registered as a ``.proto`` file.

    A ``.proto`` file is compiled with protoc, in a temporary folder.
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
                    f"the schema imports {imported_name!r}, which is registered as a .proto file",
                    "register both in the same form",
                )
            descriptor.name = imported_name
            files.file.append(descriptor)
        files.file.append(main)
        return files
    with tempfile.TemporaryDirectory(prefix="kdsl-registry-") as folder:
        strings = {imported_name: one.text for imported_name, one in used.items()}
        main_name = _MAIN if _MAIN not in strings else f"_{_MAIN}"
        for imported_name, text in {**strings, main_name: schema.text}.items():
            import_path = PurePosixPath(imported_name)
            if import_path.is_absolute() or ".." in import_path.parts:
                raise SchemaError(
                    f"the schema imports {imported_name!r}, which is absolute or contains '..'",
                    "register the schema with imports that are relative to one folder",
                )
            path = FilePath(folder, import_path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return compile_files([FilePath(folder, main_name)], [folder])


def register_schema(
    client: RegistryClient,
    schema: Schema,
    find_or_register: Callable[[RegisteredSchema], int],
    *,
    register: bool,
    normalize: bool,
) -> int:
    """Find or register a message's file, and return its id; imported files have their own names as subjects.

    Args:
        client: The client of the registry.
        schema: The message.
        find_or_register: Returns the id of its file under the subject (`RegistryFormat.find_or_register`).
        register: Whether to register imported files; otherwise they must be registered already.
        normalize: Whether the registry normalizes the schema.
    """
    try:
        return find_or_register(file_to_register(client, schema, register=register, normalize=normalize))
    except IncompatibleSchemaError as e:
        if not any(file.syntax == "editions" for file in FileDescriptorSet.FromString(schema.files).file):
            raise
        raise IncompatibleSchemaError(
            f"{e}; the schema uses an edition, which this registry may not support: rewrite it in proto2 or proto3, "
            "and declare fields with presence as 'optional'"
        ) from None


def file_to_register(
    client: RegistryClient, schema: Schema, *, register: bool = False, normalize: bool = False
) -> RegisteredSchema:
    """The registered form of a message's file, with the versions of the files that it imports.

    These must be registered already, unless `register` is set; then they are registered here, but the file is not.
    """
    *imported, main = FileDescriptorSet.FromString(schema.files).file
    known: dict[str, SchemaReference] = {}
    for file in imported:  # each after its own imports
        if file.name.startswith(KNOWN):
            continue
        registered = _to_registered(file, known)
        if register:
            client.register(file.name, registered, normalize=normalize)
        version = client.look_up(file.name, registered, normalize=normalize).version
        known[file.name] = SchemaReference(file.name, file.name, version)
    return _to_registered(main, known)


def _to_registered(file: FileDescriptorProto, known: dict[str, SchemaReference]) -> RegisteredSchema:
    """The registered form of a file, with references to those of its imports that are ``known``."""
    return RegisteredSchema(proto_text(file), PROTOBUF, tuple(known[name] for name in file.dependency if name in known))


def protobuf_parts(client: RegistryClient, schema: RegisteredSchema) -> Mapping[str, str]:
    """The parts of a registered schema in words: its package, its messages and their fields, and its enums.

    Errors are those of `load_files`.
    """
    return dict(_parts_of(load_files(client, schema).file[-1]))


def _parts_of(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    """Yield the parts of a file."""

    def inside(messages: Iterable[DescriptorProto], prefix: str) -> Iterator[tuple[str, str]]:
        for message in messages:
            name = prefix + message.name
            yield f"the message {name}", "a message"
            for field in message.field:
                kind = field.type_name or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
                presence = {
                    FieldDescriptorProto.LABEL_REPEATED: "repeated ",
                    FieldDescriptorProto.LABEL_REQUIRED: "required ",
                }
                words = "optional " if field.proto3_optional else presence.get(field.label, "")
                yield f"the field {name}.{field.name}", f"{words}{kind.lstrip('.')} = {field.number}"
            yield from inside(message.nested_type, f"{name}.")

    yield "the package", file.package
    yield from inside(file.message_type, "")
    for enum in file.enum_type:
        yield f"the enum {enum.name}", ", ".join(f"{value.name} = {value.number}" for value in enum.value)


def _check_kind(schema: RegisteredSchema) -> None:
    """Check that a schema is one of Protobuf."""
    if schema.kind != PROTOBUF:
        raise SchemaError(
            f"it is a schema of the kind {schema.kind}, not a Protobuf schema", "read it with its own format"
        )


def _descriptor(text: str) -> FileDescriptorProto | None:
    """The descriptor in a base64 string; None if the string is anything else, such as a ``.proto`` file."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode("".join(text.split()), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
