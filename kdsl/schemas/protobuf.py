"""Converts a Protobuf message type to a table: the columns of the format, with names, comments and enums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.errors import listing
from kdsl.formats import Format
from kdsl.schemas.model import (
    ITEMS,
    STARTUP,
    VALUES,
    CodegenError,
    Hint,
    Path,
    RelativePath,
    Symbol,
    TableDraft,
    check_members,
)
from kdsl.schemas.read_back import correct_columns
from kdsl.schemas.samples import protobuf_samples
from kdsl.types import model as t

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from kdsl.registry import RegisteredSchema, RegistryClient


def protobuf_draft(
    file: str,
    *,
    message: str = "",
    folders: tuple[str, ...] = (),
    topic: str = "",
    name: str = "",
    beside: str | None = None,
) -> TableDraft:
    """Draft a table of a message of a ``.proto`` file.

    Args:
        file: The file.
        message: The message's name; not needed if exactly one message of the file is not used by another.
        folders: The folders of imports.
        topic: The topic; by default the message's name.
        name: The table's name; by default the message's.
        beside: The folder of the generated module, to which its paths are relative. Without it, paths are unchanged.
    """
    from kdsl_formats.protobuf.format import Protobuf
    from kdsl_formats.protobuf.sources import SchemaError, compile_files

    try:
        files = compile_files([file], folders)
    except (SchemaError, OSError) as e:
        raise CodegenError(str(e)) from None

    def make_format(full: str) -> Format:
        path, *folder_paths = (one if beside is None else RelativePath.of(one, beside) for one in (file, *folders))
        return Protobuf(message_class_name=full, proto_file=path, proto_path=tuple(folder_paths))

    return _draft_message(files, message, make_format, topic, name)


def draft_registered_protobuf(
    client: RegistryClient,
    schema: RegisteredSchema,
    url: str | None,
    *,
    message: str = "",
    topic: str = "",
    name: str = "",
) -> TableDraft:
    """Draft a table of a message of a registered schema and what it imports; see `protobuf_draft`."""
    from kdsl_formats.protobuf import ProtobufConfluent
    from kdsl_formats.protobuf.registered import load_files
    from kdsl_formats.protobuf.sources import SchemaError

    try:
        files = load_files(client, schema)
    except SchemaError as e:
        raise CodegenError(str(e)) from None
    return _draft_message(files, message, lambda full: ProtobufConfluent(url=url, message_class_name=full), topic, name)


def _draft_message(
    files: FileDescriptorSet, message: str, make_format: Callable[[str], Format], topic: str, name: str
) -> TableDraft:
    """Draft a table of a message of compiled files: the named one, or the only one that no other uses."""
    from kdsl_formats.protobuf.format import Protobuf
    from kdsl_formats.protobuf.schema import comments_of, row_of
    from kdsl_formats.protobuf.sources import SchemaError, schema_of

    own = files.file[-1]
    prefix = f"{own.package}." if own.package else ""
    messages = [prefix + m.name for m in own.message_type]
    if not messages:
        raise CodegenError("the file declares no message to make a table of; name a file that does")
    if not message:
        used = {f.type_name.lstrip(".") for m in own.message_type for f in m.field}
        outer = [n for n in messages if n not in used] or messages
        if len(outer) != 1:
            raise CodegenError(
                f"the schema has the messages {listing(messages)}; name one of them with --message, with which "
                "`kdsl codegen` generates its table"
            )
        message = outer[0]
    try:
        schema = schema_of(prefix + message if prefix + message in messages else message, files)
    except SchemaError as e:
        raise CodegenError(str(e)) from None
    descriptor, comments = schema.message, comments_of(files)
    try:
        row = row_of(descriptor, comments)
    except SchemaError as e:
        raise CodegenError(str(e)) from None
    check_members(row)
    notes = list(_describe_oneofs(descriptor))
    table = TableDef(
        name or descriptor.name,
        tuple(ColumnDef(f.name, f.type, comment=f.comment) for f in row.fields),
        options=KafkaOptions(topic=(topic or descriptor.name,), startup=STARTUP),
        value_format=make_format(descriptor.full_name),
        comment=comments.get(descriptor.full_name),
    )
    draft = TableDraft(table, dict(_collect_hints(descriptor, (), row, comments)), tuple(notes))
    own_format = Protobuf(message_class_name=schema.name, descriptor_set=schema.text)  # needs no registry and no file
    samples = [{"key": None, "value": body} for body in protobuf_samples(descriptor)]
    corrected, _ = correct_columns(
        attrs.evolve(draft, table=attrs.evolve(table, value_format=own_format)), samples, None, {}
    )
    return attrs.evolve(corrected, table=attrs.evolve(corrected.table, value_format=table.value_format))


def _describe_oneofs(descriptor: Any) -> Iterator[str]:
    """Yield a note on each oneof of a message (a Protobuf descriptor) that has several fields."""
    for one in descriptor.oneofs:
        names = [f.name for f in one.fields]
        if len(names) > 1:
            yield f"{listing(names)} are a oneof ({one.name}): at most one of them has a value"


def _collect_hints(descriptor: Any, path: Path, row: t.Row, comments: Mapping[str, str]) -> Iterator[tuple[Path, Hint]]:
    """Yield the names, comments and values of the messages and enums inside a message (its descriptor), by path."""
    for field, member in zip(descriptor.fields, row.fields, strict=True):
        inside, kind, of = (*path, field.name), member.type, field
        if isinstance(kind, t.Map):
            inside, kind, of = (*inside, VALUES), kind.value, field.message_type.fields_by_name["value"]
        elif isinstance(kind, t.Array):
            inside, kind = (*inside, ITEMS), kind.element
        if of.enum_type is not None and isinstance(kind, t.VarChar):
            enum = of.enum_type.full_name
            scopes = (enum, enum.rpartition(".")[0])  # a value is in the scope that contains its enum
            values = (
                Symbol(v.name, next((c for s in scopes if (c := comments.get(f"{s}.{v.name}".lstrip(".")))), None))
                for v in of.enum_type.values
            )
            yield inside, Hint(of.enum_type.name, comments.get(of.enum_type.full_name), tuple(values))
        elif of.message_type is not None and isinstance(kind, t.Row):
            yield inside, Hint(of.message_type.name, comments.get(of.message_type.full_name))
            yield from _collect_hints(of.message_type, inside, kind, comments)
