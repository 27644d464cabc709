"""Derives row types from message types, as a table of such messages would declare them.

Only code generation derives types; for reading and writing, `layout` uses the constants and helpers of this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

from kdsl.types import model as t
from kdsl.types.limits import MAX_DEPTH, MAX_TYPES
from kdsl_formats.protobuf.sources import SchemaError

TIMESTAMP = "google.protobuf.Timestamp"
JSON_LIKE = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
UNSIGNED = t.Decimal(20, 0)
"""The type that holds every unsigned number of 64 bits."""
WRAPPERS: Mapping[str, t.DataType] = {
    "google.protobuf.DoubleValue": t.Double(),
    "google.protobuf.FloatValue": t.Float(),
    "google.protobuf.Int64Value": t.BigInt(),
    "google.protobuf.UInt64Value": UNSIGNED,
    "google.protobuf.Int32Value": t.Int(),
    "google.protobuf.UInt32Value": t.BigInt(),
    "google.protobuf.BoolValue": t.Boolean(),
    "google.protobuf.StringValue": t.STRING,
    "google.protobuf.BytesValue": t.BYTES,
}
_F = FieldDescriptor
SCALARS: Mapping[int, t.DataType] = {
    _F.CPPTYPE_INT32: t.Int(),
    _F.CPPTYPE_UINT32: t.BigInt(),
    _F.CPPTYPE_INT64: t.BigInt(),
    _F.CPPTYPE_UINT64: UNSIGNED,
    _F.CPPTYPE_BOOL: t.Boolean(),
    _F.CPPTYPE_FLOAT: t.Float(),
    _F.CPPTYPE_DOUBLE: t.Double(),
    _F.CPPTYPE_ENUM: t.STRING,
}


def row_of(
    message: Descriptor, comments: Mapping[str, str] | None = None, *, well_known: bool = True, nullable: bool = False
) -> t.Row:
    """The row type of all fields of a message, in the order of the ``.proto`` file.

    Enums are STRING, and unsigned numbers BIGINT and DECIMAL(20, 0), which hold all of them. Columns that are never
    NULL on reading are NOT NULL: fields without presence (plain fields of proto3), required fields, elements of
    repeated fields, keys and values of maps. Repeated fields and maps themselves are NULL if they are empty. A message
    inside itself is BYTES, its serialized form, because row types cannot be recursive.

    Args:
        message: The message's descriptor.
        comments: Comments by the full names of fields (see `comments_of`); they become the comments of columns.
        well_known: Whether google.protobuf's types become the corresponding SQL types: ``Timestamp`` is
            TIMESTAMP_LTZ(6), the wrappers (``StringValue``, …) are their values, ``Struct``, ``Value`` and
            ``ListValue`` are STRING with JSON. Otherwise each is a ROW of its fields, as in Flink.
        nullable: Whether all columns are nullable, as in a Flink DDL without NOT NULL; keys of maps never are.
    """
    return _RowTypes(comments or {}, well_known=well_known, nullable=nullable).row_type(message, ())


def comments_of(files: FileDescriptorSet) -> dict[str, str]:
    """The comments of ``.proto`` files by the full names of messages, fields, enums and their values.

    A comment is the one before the declaration, or else the one after it, as one line.

    Args:
        files: Compiled with source information (``protoc --include_source_info``); without it there are no comments.
    """
    comments: dict[str, str] = {}
    for file in files.file:
        locations = {tuple(location.path): location for location in file.source_code_info.location}
        for path, name in _names_of(file):
            location = locations.get(path)
            text = "" if location is None else location.leading_comments or location.trailing_comments
            if lines := [line.strip().removeprefix("*").strip() for line in text.strip().splitlines()]:
                comments[name] = " ".join(line for line in lines if line)
    return {name: text for name, text in comments.items() if text}


class _RowTypes:
    """Derives row types from messages."""

    def __init__(self, comments: Mapping[str, str], *, well_known: bool, nullable: bool) -> None:
        self._comments = comments
        self._well_known = well_known
        self._nullable = nullable
        self._fields = 0

    def row_type(self, message: Descriptor, outer: tuple[str, ...]) -> t.Row:
        """Derive the ROW of a message inside ``outer`` ones, and count its fields."""
        inside = (*outer, message.full_name)
        self._fields += len(message.fields)
        if self._fields > MAX_TYPES:
            raise SchemaError(
                f"the message {inside[0]} has more than {MAX_TYPES:,} fields, counting those of an inner message "
                "wherever it is used",
                "declare a table with the columns that are needed",
            )
        if len(inside) > MAX_DEPTH:
            raise SchemaError(
                f"the message {inside[0]} is nested more than {MAX_DEPTH} levels deep",
                "declare a table with the columns that are needed",
            )
        return t.Row(tuple(self._field(field, inside) for field in message.fields))

    def _field(self, field: FieldDescriptor, outer: tuple[str, ...]) -> t.Field:
        """Derive the field of a row from a field of a message; `SchemaError` as in `row_type`."""
        return t.Field(field.name, self._type(field, outer), self._comments.get(field.full_name))

    def _type(self, field: FieldDescriptor, outer: tuple[str, ...]) -> t.DataType:
        """Derive the column type of a field; inner fields are counted, and `SchemaError` raised, as in `row_type`."""
        if is_map(field):
            entry = field.message_type
            assert entry is not None
            key, value = (self._value_type(entry.fields_by_name[name], outer) for name in ("key", "value"))
            return t.Map(key.as_nullable(False), value.as_nullable(self._nullable))
        if field.is_repeated:
            return t.Array(self._value_type(field, outer).as_nullable(self._nullable))
        always = field.is_required or not field.has_presence
        return self._value_type(field, outer).as_nullable(self._nullable or not always)

    def _value_type(self, field: FieldDescriptor, outer: tuple[str, ...]) -> t.DataType:
        """Derive the type of one value of a field; a message inside itself is BYTES.

        Types of google.protobuf become SQL types if `well_known` is set. Inner fields are counted, and `SchemaError`
        raised, as in `row_type`.
        """
        if field.message_type is None:
            if field.cpp_type == _F.CPPTYPE_STRING:
                return t.BYTES if field.type == _F.TYPE_BYTES else t.STRING
            return SCALARS[field.cpp_type]
        name = field.message_type.full_name
        if self._well_known and name == TIMESTAMP:
            return t.TimestampLtz(6)
        if self._well_known and name in WRAPPERS:
            return WRAPPERS[name]
        if self._well_known and name in JSON_LIKE:
            return t.STRING
        return t.BYTES if name in outer else self.row_type(field.message_type, outer)


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a ``map<…, …>``, which on the wire is a list of messages of key and value."""
    inner = field.message_type
    return inner is not None and field.is_repeated and inner.GetOptions().map_entry


def enum_names(enum: EnumDescriptor) -> dict[int, str]:
    """The names of an enum's values by number; the first of several names."""
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return names


def _names_of(file: FileDescriptorProto) -> Iterator[tuple[tuple[int, ...], str]]:
    """The messages, fields, enums and enum values of a file: their paths in its source information, and full names."""
    prefix = f"{file.package}." if file.package else ""
    for i, message in enumerate(file.message_type):
        yield from _names_inside(message, (4, i), prefix)
    for i, enum in enumerate(file.enum_type):
        yield (5, i), prefix + enum.name
        yield from (((5, i, 2, n), prefix + value.name) for n, value in enumerate(enum.value))


def _names_inside(
    message: DescriptorProto, path: tuple[int, ...], prefix: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    """A message, and the messages, fields, enums and enum values inside it, as in `_names_of`."""
    name = prefix + message.name
    yield path, name
    yield from (((*path, 2, i), f"{name}.{field.name}") for i, field in enumerate(message.field))
    for i, nested in enumerate(message.nested_type):
        yield from _names_inside(nested, (*path, 3, i), f"{name}.")
    for i, enum in enumerate(message.enum_type):
        yield (*path, 4, i), f"{name}.{enum.name}"
        yield from (((*path, 4, i, 2, n), f"{name}.{value.name}") for n, value in enumerate(enum.value))
