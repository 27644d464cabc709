"""A Protobuf message type as a table: the columns that the format has, with names, comments and enums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kdsl.codegen.model import ITEMS, VALUES, Beside, CodegenError, Draft, Hint, Path, Symbol
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.errors import listing
from kdsl.formats import Format
from kdsl.types import model as t

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from kdsl.registry import RegisteredSchema, RegistryClient


def protobuf_file(
    file: str,
    *,
    message: str = "",
    folders: tuple[str, ...] = (),
    topic: str = "",
    name: str = "",
    beside: str | None = None,
) -> Draft:
    """A table of a message of a ``.proto`` file.

    Args:
        file: The file.
        message: The message's name; not needed where the file has one that no other one holds.
        folders: Where imports are looked for.
        topic: The topic; by default called as the message.
        name: The table's name; by default the message's.
        beside: The folder of the module that is written: the paths in it are relative to it. Without one they stay as
            they are given.

    Raises:
        CodegenError: The file cannot be compiled, or has no such message.
    """
    from kdsl_formats.protobuf.format import Protobuf
    from kdsl_formats.protobuf.sources import SchemaError, compiled

    try:
        files = compiled([file], folders)
    except (SchemaError, OSError) as e:
        raise CodegenError(str(e)) from None

    def chosen(full: str) -> Format:
        place, *places = (one if beside is None else Beside.of(one, beside) for one in (file, *folders))
        return Protobuf(message_class_name=full, proto_file=place, proto_path=tuple(places))

    return _draft(files, message, chosen, topic, name)


def protobuf_registered(
    client: RegistryClient, schema: RegisteredSchema, url: str, *, message: str = "", topic: str = "", name: str = ""
) -> Draft:
    """A table of a message of a registered schema and what it imports; see `protobuf_file`.

    Raises:
        CodegenError: The schema cannot be compiled, or has no such message.
        RegistryError: What it imports cannot be had.
    """
    from kdsl_formats.protobuf import ProtobufConfluent
    from kdsl_formats.protobuf.registered import registered_files
    from kdsl_formats.protobuf.sources import SchemaError

    try:
        files = registered_files(client, schema)
    except SchemaError as e:
        raise CodegenError(str(e)) from None
    return _draft(files, message, lambda full: ProtobufConfluent(url=url, message_class_name=full), topic, name)


def _draft(files: FileDescriptorSet, message: str, chosen: Callable[[str], Format], topic: str, name: str) -> Draft:
    from kdsl_formats.protobuf.schema import comments_of, row_of
    from kdsl_formats.protobuf.sources import SchemaError, schema_of

    own = files.file[-1]
    prefix = f"{own.package}." if own.package else ""
    there = [prefix + m.name for m in own.message_type]
    if not there:
        raise CodegenError("the file has no message")
    if not message:
        used = {f.type_name.lstrip(".") for m in own.message_type for f in m.field}
        outer = [n for n in there if n not in used] or there
        if len(outer) != 1:
            raise CodegenError(f"the file has the messages {listing(there)}; name one of them with --message")
        message = outer[0]
    try:
        descriptor = schema_of(prefix + message if prefix + message in there else message, files).message
    except SchemaError as e:
        raise CodegenError(str(e)) from None
    comments = comments_of(files)
    row = row_of(descriptor, comments)
    notes = list(_notes(descriptor))
    table = TableDef(
        name or descriptor.name,
        tuple(ColumnDef(f.name, f.type, comment=f.comment) for f in row.fields),
        options=KafkaOptions(topic=(topic or descriptor.name,)),
        value_format=chosen(descriptor.full_name),
        comment=comments.get(descriptor.full_name),
    )
    return Draft(table, dict(_hints(descriptor, (), row, comments)), tuple(notes))


def _notes(descriptor: Any) -> Iterator[str]:
    for one in descriptor.oneofs:
        names = [f.name for f in one.fields]
        if len(names) > 1:
            yield f"{listing(names)} are a oneof ({one.name}): at most one of them has a value"


def _hints(descriptor: Any, path: Path, row: t.Row, comments: Mapping[str, str]) -> Iterator[tuple[Path, Hint]]:
    """The names and comments of the messages and enums inside a message."""
    for field, member in zip(descriptor.fields, row.fields, strict=True):
        inside, kind, of = (*path, field.name), member.type, field
        if isinstance(kind, t.Map):
            inside, kind, of = (*inside, VALUES), kind.value, field.message_type.fields_by_name["value"]
        elif isinstance(kind, t.Array):
            inside, kind = (*inside, ITEMS), kind.element
        if of.enum_type is not None and isinstance(kind, t.VarChar):
            enum = of.enum_type.full_name
            scopes = (enum, enum.rpartition(".")[0])  # a value stands beside its enum
            values = (
                Symbol(v.name, next((c for s in scopes if (c := comments.get(f"{s}.{v.name}".lstrip(".")))), None))
                for v in of.enum_type.values
            )
            yield inside, Hint(of.enum_type.name, comments.get(of.enum_type.full_name), tuple(values))
        elif of.message_type is not None and isinstance(kind, t.Row):
            yield inside, Hint(of.message_type.name, comments.get(of.message_type.full_name))
            yield from _hints(of.message_type, inside, kind, comments)
