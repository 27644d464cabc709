"""Matches columns with the fields of messages.

A `Layout` is built from a message type and a row type. It has its own descriptor for each ROW: the message with only
the fields that the row needs. Both decoders use it, and therefore skip what no column reads; both encoders use it, too.
Maps are represented as the repeated messages that they are on the wire, which keeps the order of their entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import attrs
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kdsl.errors import Problem, Where, listing, nearest
from kdsl.types import model as t
from kdsl.types.limits import MAX_DEPTH
from kdsl_formats.protobuf.schema import JSON_LIKE, SCALARS, TIMESTAMP, UNSIGNED, WRAPPERS, enum_names, is_map
from kdsl_formats.protobuf.sources import Schema, SchemaError, pool_of

Form = Literal["scalar", "enum", "message", "timestamp", "wrapper", "json"]
_F = FieldDescriptor
_TEXTS = (t.Char, t.VarChar)
_BYTES = (t.Binary, t.VarBinary)
MOST_MESSAGES = 10_000
"""The maximum number of messages of a layout: each ROW of the table, and each message in a required field."""
_TIMESTAMP_ROW = t.row(seconds=t.BigInt(), nanos=t.Int())


@attrs.frozen(eq=False)
class Member:
    """A field of a message, and its column.

    Attributes:
        name: The name of both.
        field: The field, in the layout's own descriptor.
        kind: The type of one value: an element if the field is repeated, an entry (a ROW of key and value) if it is a
            map.
        form: How a value is represented by the column type.
        shape: Whether there is one value, an ARRAY of values, or a MAP.
        inside: The layout of a value that is a message.
        names: The names of an enum's values by number, in the order of the declaration; the first of several names.
        numbers: The numbers of an enum's values by name.
        closed: Whether a number that the enum does not have is treated as an absent value.
        presence: Whether an absent value can be distinguished from the default.
        oneof: The oneof that the field belongs to, if any.
    """

    name: str
    field: FieldDescriptor
    kind: t.DataType
    form: Form
    shape: Literal["one", "array", "map"] = "one"
    inside: Layout | None = None
    names: dict[int, str] = attrs.field(factory=dict)
    numbers: dict[str, int] = attrs.field(factory=dict)
    closed: bool = False
    presence: bool = True
    oneof: str | None = None

    @property
    def by_name(self) -> bool:
        """Whether the column contains the names of enum values."""
        return isinstance(self.kind, _TEXTS)


@attrs.frozen(eq=False)
class Layout:
    """A message, and the row for its columns.

    Attributes:
        descriptor: The message with only the fields below.
        members: The fields that are columns, in the order of the columns.
        hidden: The other fields that must be read: required ones, and those in a oneof with a column.
    """

    descriptor: Descriptor
    members: tuple[Member, ...]
    hidden: tuple[Member, ...] = ()

    @property
    def make(self) -> type[Message]:
        """The generated class of the message."""
        return GetMessageClass(self.descriptor)


def find_problems(message: Descriptor, row: t.Row, *, writing: bool = False) -> Iterator[Problem]:
    """Report why a row type cannot represent a message.

    Args:
        message: The message.
        row: The columns.
        writing: Whether messages are written, so that required fields need a column.
    """
    yield from _find_problems(message, row, "", writing=writing)


def _find_problems(message: Descriptor, row: t.Row, path: str, *, writing: bool) -> Iterator[Problem]:
    """Report columns that a message does not have or cannot represent; for writing also missing required fields."""
    known = message.fields_by_name
    for field in row.fields:
        path_to_field = f"{path}{field.name}"
        if field.name not in known:
            yield Problem(
                "protobuf-field",
                f"the message {message.full_name} has no field {field.name!r}{nearest(field.name, known)}",
                f"use the name of a field: {listing(known)}",
                Where(column=path_to_field),
            )
        else:
            yield from _field_problems(known[field.name], field.type, path_to_field, writing=writing)
    missing = [f.name for f in message.fields if f.is_required and f.name not in row.names]
    if writing and missing:
        yield Problem(
            "protobuf-required",
            f"the message {message.full_name} cannot be written without its required fields {listing(missing)}",
            f"declare columns for them{f' in {path[:-1]}' if path else ''}",
            Where(column=path[:-1] or None),
        )


def _field_problems(
    field: FieldDescriptor, kind: t.DataType, path_to_field: str, *, writing: bool
) -> Iterator[Problem]:
    """Report why a column type cannot represent a field, repeated or not."""
    if is_map(field):
        entry = field.message_type
        if isinstance(kind, t.Map) and entry is not None:
            yield from _single_problems(entry.fields_by_name["key"], kind.key, f"{path_to_field}.key", writing=writing)
            yield from _single_problems(
                entry.fields_by_name["value"], kind.value, f"{path_to_field}.value", writing=writing
            )
        else:
            yield _misfit_problem(field, kind, path_to_field)
    elif field.is_repeated:
        if isinstance(kind, t.Array):
            yield from _single_problems(field, kind.element, f"{path_to_field}.element", writing=writing)
        else:
            yield _misfit_problem(field, kind, path_to_field)
    else:
        yield from _single_problems(field, kind, path_to_field, writing=writing)


def _single_problems(
    field: FieldDescriptor, kind: t.DataType, path_to_field: str, *, writing: bool
) -> Iterator[Problem]:
    """Report why a type cannot represent one value of a field."""
    inner = field.message_type
    if inner is not None and isinstance(kind, t.Row):
        yield from _find_problems(inner, kind, f"{path_to_field}.", writing=writing)
    elif not fits(field, kind):
        yield _misfit_problem(field, kind, path_to_field)


def fits(field: FieldDescriptor, kind: t.DataType) -> bool:
    """Whether a type other than a ROW can represent one value of a field."""
    return any(_can_hold(kind, one) for one in column_types(field))


def _can_hold(kind: t.DataType, one: t.DataType) -> bool:
    """Whether a type can be used where another one is expected: they are of the same class, with any length.

    A DECIMAL must have at least as many digits, and a scale of 0.
    """
    if isinstance(kind, t.Decimal) and isinstance(one, t.Decimal):
        return kind.precision >= one.precision and kind.scale == 0
    return type(kind) is type(one)


def column_types(field: FieldDescriptor) -> Sequence[t.DataType]:
    """The types that can represent one value of a field, the best one first.

    Each stands for all types of its class (see `_can_hold`), such as an empty ROW for every ROW.
    """
    inner = field.message_type
    if inner is not None:
        special: list[t.DataType] = []
        if inner.full_name == TIMESTAMP:
            special = [t.TimestampLtz(6)]
        elif inner.full_name in WRAPPERS:
            special = list(column_types(inner.fields_by_name["value"]))
        elif inner.full_name in JSON_LIKE:
            special = [t.STRING, t.Char()]
        plain = [] if field.type == _F.TYPE_GROUP else [t.BYTES, t.Binary()]
        return [*special, t.Row(()), *plain]
    if field.enum_type is not None:
        return [t.STRING, t.Char(), t.Int(), t.BigInt()]
    if field.cpp_type == _F.CPPTYPE_STRING:
        return [t.BYTES, t.Binary()] if field.type == _F.TYPE_BYTES else [t.STRING, t.Char()]
    if field.cpp_type == _F.CPPTYPE_UINT32:
        return [t.Int(), t.BigInt()]
    if field.cpp_type == _F.CPPTYPE_UINT64:
        return [t.BigInt(), UNSIGNED]
    return [SCALARS[field.cpp_type]]


def _misfit_problem(field: FieldDescriptor, kind: t.DataType, path_to_field: str) -> Problem:
    """Create the problem of a column type that cannot represent a field."""
    spelled = field_type_name(field)
    if is_map(field):
        fix = "declare MAP<key, value>"
    elif field.is_repeated and not path_to_field.endswith(".element"):
        fix = "declare ARRAY<element>"
    else:
        shown = ["ROW<…> of its fields" if isinstance(k, t.Row) else k.spelling for k in column_types(field)]
        types_to_declare = [text for text in shown if text not in ("CHAR(1)", "BINARY(1)")]
        fix = f"declare {' or '.join(types_to_declare)}"
    return Problem(
        "protobuf-type",
        f"the field {field.full_name} is {spelled}, which {kind.as_nullable()} cannot hold",
        fix,
        Where(column=path_to_field),
    )


def field_type_name(field: FieldDescriptor) -> str:
    """The type of a field as in a ``.proto`` file, with ``repeated`` or ``map<…>``, and with the full names of types.

    An enum has the words ``the enum`` before its name.
    """
    inner = field.message_type
    if inner is not None and is_map(field):
        return f"map<{', '.join(field_type_name(inner.fields_by_name[name]) for name in ('key', 'value'))}>"
    named = inner or field.enum_type
    text = FieldDescriptorProto.Type.Name(FieldDescriptorProto.Type.ValueType(field.type)).removeprefix("TYPE_").lower()
    shown = named.full_name if named is not None else text
    if field.enum_type is not None:
        shown = f"the enum {shown}"
    return f"repeated {shown}" if field.is_repeated else shown


# -- building


def layout_of(schema: Schema, row: t.Row) -> Layout:
    """The layout of a message for a row type for which `find_problems` finds no problems."""
    return _LayoutBuilder(schema).layout(row)


class _LayoutBuilder:
    """Builds the descriptors of a layout: for each ROW, a copy of its message with only the needed fields."""

    def __init__(self, schema: Schema) -> None:
        self._message = schema.message
        self._files = FileDescriptorSet.FromString(schema.files)
        self._originals = dict(_messages_of(self._files))
        self._count = self._depth = 0

    def layout(self, row: t.Row) -> Layout:
        """Build the layout of the message for a row, and add its copies of messages to the builder's files."""
        name = self._copy(self._message, row)
        pool = pool_of(self._files)
        return _bind_layout(pool.FindMessageTypeByName(name), self._message, row)

    def _copy(self, message: Descriptor, row: t.Row) -> str:
        """Add a copy of a message with the fields that a row needs to its container; returns its full name.

        These are the row's columns, required fields, and the other members of the columns' oneofs.
        """
        original, container = self._originals[message.full_name]
        self._count += 1
        self._depth += 1
        if self._count > MOST_MESSAGES or self._depth > MAX_DEPTH:
            limit = (
                f"nested more than {MAX_DEPTH} levels deep"
                if self._depth > MAX_DEPTH
                else f"more than {MOST_MESSAGES:,}, counting each one wherever it is used"
            )
            raise SchemaError(
                f"the messages in required fields of {self._message.full_name} are {limit}",
                "make fields optional, or declare the column with the required message as BYTES",
            )
        copied = DescriptorProto(name=f"{original.name}_kdsl{self._count}", options=original.options)
        copied.options.ClearField("map_entry")
        copied.oneof_decl.extend(original.oneof_decl)
        shown = {f.name: f.type for f in row.fields}
        grouped = {o.full_name for o in message.oneofs if any(f.name in shown for f in o.fields)}
        for proto in original.field:
            field = message.fields_by_name[proto.name]
            inner = field.message_type
            oneof = field.containing_oneof
            if not (proto.name in shown or field.is_required or (oneof is not None and oneof.full_name in grouped)):
                continue
            copied_field = copied.field.add()
            copied_field.CopyFrom(proto)
            if inner is not None:
                self._refer_to_copy(copied_field, field, shown.get(proto.name))
        _drop_empty_oneofs(copied)
        if message.GetOptions().map_entry:
            self._set_presence(copied, message)
        container.append(copied)
        self._depth -= 1
        return message.full_name.removesuffix(original.name) + copied.name

    def _refer_to_copy(
        self, copied_field: FieldDescriptorProto, field: FieldDescriptor, kind: t.DataType | None
    ) -> None:
        """Set the type of a copied field, in place, to what its column needs: a copy of its message, or plain bytes.

        The copy is added to its container, as in `_copy`. The type stays the same for a column of another type, such as
        TIMESTAMP_LTZ. `kind` is the column's type; None for a field that is not a column.
        """
        inner = field.message_type
        assert inner is not None
        if isinstance(kind, t.Map):
            entry = t.row(key=kind.key, value=kind.value)
            copied_field.type_name = f".{self._copy(inner, entry)}"
            return
        one = kind.element if isinstance(kind, t.Array) else kind
        if isinstance(one, _BYTES) and inner.full_name != "google.protobuf.BytesValue":
            copied_field.type = FieldDescriptorProto.TYPE_BYTES
            copied_field.ClearField("type_name")
        elif isinstance(one, t.Row) or one is None:
            copied_field.type_name = f".{self._copy(inner, one if isinstance(one, t.Row) else t.Row(()))}"

    def _set_presence(self, entry: DescriptorProto, message: Descriptor) -> None:
        """Give the fields of a map's entry presence, in place, so that an absent value is distinct from the default.

        Closed enums become numbers, which readers check.
        """
        syntax = next(f for f in self._files.file if f.name == message.file.name).syntax
        for field in entry.field:
            enum = message.fields_by_name[field.name].enum_type
            if enum is not None and enum.is_closed:
                field.type = FieldDescriptorProto.TYPE_INT32
                field.ClearField("type_name")
            if syntax == "proto3":
                field.proto3_optional = True
                field.oneof_index = len(entry.oneof_decl)
                entry.oneof_decl.add(name=f"_{field.name}")
            elif syntax == "editions":
                field.options.features.field_presence = FeatureSet.EXPLICIT


def _messages_of(files: FileDescriptorSet) -> Iterator[tuple[str, tuple[DescriptorProto, Any]]]:
    """Every message of a set: its full name, its declaration, and the list that contains it."""

    def inside(messages: Any, prefix: str) -> Iterator[tuple[str, tuple[DescriptorProto, Any]]]:
        for message in list(messages):
            yield prefix + message.name, (message, messages)
            yield from inside(message.nested_type, f"{prefix}{message.name}.")

    for file in files.file:
        yield from inside(file.message_type, _prefix(file))


def _prefix(file: FileDescriptorProto) -> str:
    """What the full names of a file's messages begin with."""
    return f"{file.package}." if file.package else ""


def _drop_empty_oneofs(message: DescriptorProto) -> None:
    """Remove the oneofs that have no field left from a message, in place, and renumber the others."""
    used = sorted({f.oneof_index for f in message.field if f.HasField("oneof_index")})
    used_oneofs = [message.oneof_decl[i] for i in used]
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = used.index(field.oneof_index)
    del message.oneof_decl[:]
    message.oneof_decl.extend(used_oneofs)


def _bind_layout(descriptor: Descriptor, message: Descriptor, row: t.Row) -> Layout:
    """The layout of a copy (`descriptor`) of a message for a row, all of whose fields the copy has.

    Fields of the copy without a column become hidden members, which are read, too.
    """
    members = tuple(
        _bind_member(descriptor.fields_by_name[f.name], message.fields_by_name[f.name], f) for f in row.fields
    )
    hidden = tuple(
        _bind_member(field, message.fields_by_name[field.name], t.Field(field.name, _hidden_type(field)))
        for field in descriptor.fields
        if field.name not in row.names
    )
    return Layout(descriptor, members, hidden)


def _hidden_type(field: FieldDescriptor) -> t.DataType:
    """A type for a field that is read but has no column: an empty ROW for a message, otherwise the best column type.

    A repeated field has an ARRAY of it.
    """
    one: t.DataType = t.Row(()) if field.message_type is not None else column_types(field)[0]
    return t.Array(one) if field.is_repeated else one


def _bind_member(field: FieldDescriptor, original: FieldDescriptor, column: t.Field) -> Member:
    """The member for a field of a copied message, the same field of the original message, and a column that fits it."""
    kind, shape = column.type, "one"
    if isinstance(kind, t.Map):
        kind, shape = t.row(key=kind.key, value=kind.value), "map"
    elif isinstance(kind, t.Array):
        kind, shape = kind.element, "array"
    oneof = field.containing_oneof
    inner, whole = field.message_type, original.message_type
    form: Form = "scalar"
    inside = None
    if inner is not None and whole is not None:
        form, inside = _message_form(inner, whole, kind)
    elif original.enum_type is not None:
        form = "enum"
    return Member(
        name=column.name,
        field=field,
        kind=kind,
        form=form,
        shape=shape,  # type: ignore[arg-type]
        inside=inside,
        names=enum_names(original.enum_type) if original.enum_type is not None else {},
        numbers={v.name: v.number for v in original.enum_type.values} if original.enum_type is not None else {},
        closed=original.enum_type is not None and original.enum_type.is_closed,
        presence=field.has_presence,
        oneof=oneof.name if oneof is not None and len(oneof.fields) > 1 else None,
    )


def _message_form(inner: Descriptor, whole: Descriptor, kind: t.DataType) -> tuple[Form, Layout]:
    """The form in which a type represents a message (`inner` is its copy, `whole` the original), and its layout.

    The type fits the message: what is not a ROW, and neither a timestamp nor JSON, is the value of a wrapper. The
    layout of JSON has no members.
    """
    if isinstance(kind, t.Row):
        return "message", _bind_layout(inner, whole, kind)
    if whole.full_name == TIMESTAMP:
        return "timestamp", _bind_layout(inner, whole, _TIMESTAMP_ROW)
    if whole.full_name in JSON_LIKE:
        return "json", Layout(inner, ())
    return "wrapper", _bind_layout(inner, whole, t.row(value=kind))
