"""Columns and the fields that hold them.

A `Layout` is made of a message type and a row type. It has a descriptor of its own for each ROW: the message with only
the fields that the row needs. Both decoders read with it, so that what no column reads is read over alike, and both
encoders write with it. Maps are the repeated messages in it that they are on the wire, which keeps the order of their
entries.
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
from kdsl_formats.protobuf.schema import JSON_LIKE, SCALARS, TIMESTAMP, WRAPPERS, enum_names, is_map
from kdsl_formats.protobuf.sources import Schema, pool_of

Form = Literal["scalar", "enum", "message", "timestamp", "wrapper", "json"]
_F = FieldDescriptor
_TEXTS = (t.Char, t.VarChar)
_BYTES = (t.Binary, t.VarBinary)
UNSIGNED = t.Decimal(20, 0)
"""Holds every unsigned number of 64 bits."""
_TIMESTAMP_ROW = t.row(seconds=t.BigInt(), nanos=t.Int())


@attrs.frozen(eq=False)
class Member:
    """A field of a message, and the column that shows it.

    Attributes:
        name: The name of both.
        field: The field, of the layout's own descriptor.
        kind: The type of one value: of an element where the field is repeated, of the entry (a ROW of key and value)
            where it is a map.
        form: How a value of the type is held.
        shape: Whether there is one value, or an ARRAY of them, or a MAP.
        inside: The layout of a value that is a message.
        names: The names of an enum's values by their numbers, in the order of the declaration; of several the first.
        numbers: The numbers of an enum's values by all their names.
        closed: Whether a number that the enum does not have counts as no value.
        presence: Whether a value that is absent can be told from the default.
        oneof: The oneof of which the field is one, if any.
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
        """Whether an enum is shown by its names."""
        return isinstance(self.kind, _TEXTS)


@attrs.frozen(eq=False)
class Layout:
    """A message and the row that shows it.

    Attributes:
        descriptor: The message with only the fields below.
        members: The fields that are columns, in the order of the columns.
        hidden: The other fields that must be read: those of a oneof of which a column is one, and required ones.
    """

    descriptor: Descriptor
    members: tuple[Member, ...]
    hidden: tuple[Member, ...] = ()

    @property
    def make(self) -> type[Message]:
        """The class of its messages."""
        return GetMessageClass(self.descriptor)

    def any_of(self, form: Form) -> bool:
        """Whether a value of a form is somewhere in it."""
        every = (*self.members, *self.hidden)
        return any(m.form == form or (m.inside is not None and m.inside.any_of(form)) for m in every)


def problems(message: Descriptor, row: t.Row, *, writing: bool = False) -> Iterator[Problem]:
    """What keeps a row type from showing a message.

    Args:
        message: The message.
        row: The columns.
        writing: Whether messages are made, so that required fields need a column.
    """
    yield from _problems(message, row, "", writing=writing)


def _problems(message: Descriptor, row: t.Row, path: str, *, writing: bool) -> Iterator[Problem]:
    known = message.fields_by_name
    for field in row.fields:
        place = f"{path}{field.name}"
        if field.name not in known:
            yield Problem(
                "protobuf-field",
                f"the message {message.full_name} has no field {field.name!r}{nearest(field.name, known)}",
                f"name the column like a field: {listing(list(known)) or 'there is none'}",
                Where(column=place),
            )
        else:
            yield from _field_problems(known[field.name], field.type, place, writing=writing)
    missing = [f.name for f in message.fields if f.is_required and f.name not in row.names]
    if writing and missing:
        yield Problem(
            "protobuf-required",
            f"the message {message.full_name} cannot be written without its required fields {listing(missing)}",
            f"declare columns for them{f' in {path[:-1]}' if path else ''}",
            Where(column=path[:-1] or None),
        )


def _field_problems(field: FieldDescriptor, kind: t.DataType, place: str, *, writing: bool) -> Iterator[Problem]:
    if is_map(field):
        entry = field.message_type
        if isinstance(kind, t.Map) and entry is not None:
            yield from _single_problems(entry.fields_by_name["key"], kind.key, f"{place}.key", writing=writing)
            yield from _single_problems(entry.fields_by_name["value"], kind.value, f"{place}.value", writing=writing)
        else:
            yield _misfit(field, kind, place)
    elif field.is_repeated:
        if isinstance(kind, t.Array):
            yield from _single_problems(field, kind.element, f"{place}.element", writing=writing)
        else:
            yield _misfit(field, kind, place)
    else:
        yield from _single_problems(field, kind, place, writing=writing)


def _single_problems(field: FieldDescriptor, kind: t.DataType, place: str, *, writing: bool) -> Iterator[Problem]:
    inner = field.message_type
    if inner is not None and isinstance(kind, t.Row):
        yield from _problems(inner, kind, f"{place}.", writing=writing)
    elif not any(_can_hold(kind, one) for one in _columns(field)):
        yield _misfit(field, kind, place)


def _can_hold(kind: t.DataType, one: t.DataType) -> bool:
    if isinstance(kind, t.Decimal) and isinstance(one, t.Decimal):
        return kind.precision >= one.precision and kind.scale == 0
    return type(kind) is type(one)


def _columns(field: FieldDescriptor) -> Sequence[t.DataType]:
    """The types that can show one value of a field, the best one first."""
    inner = field.message_type
    if inner is not None:
        special: list[t.DataType] = []
        if inner.full_name == TIMESTAMP:
            special = [t.TimestampLtz(6)]
        elif inner.full_name in WRAPPERS:
            special = list(_columns(inner.fields_by_name["value"]))
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


def _misfit(field: FieldDescriptor, kind: t.DataType, place: str) -> Problem:
    spelled = type_text(field)
    if is_map(field):
        fix = "declare MAP<key, value>"
    elif field.is_repeated and not place.endswith(".element"):
        fix = "declare ARRAY<element>"
    else:
        shown = ["ROW<…> of its fields" if isinstance(k, t.Row) else k.spelling for k in _columns(field)]
        kept = [text for text in shown if text not in ("CHAR(1)", "BINARY(1)")]
        fix = f"declare {' or '.join(kept)}"
    return Problem(
        "protobuf-type",
        f"the field {field.full_name} is {spelled}, which {kind.as_nullable()} cannot hold",
        fix,
        Where(column=place),
    )


def type_text(field: FieldDescriptor) -> str:
    """The type of a field as a ``.proto`` file says it."""
    inner = field.message_type
    if inner is not None and is_map(field):
        return f"map<{', '.join(type_text(inner.fields_by_name[name]) for name in ('key', 'value'))}>"
    named = inner or field.enum_type
    text = FieldDescriptorProto.Type.Name(FieldDescriptorProto.Type.ValueType(field.type)).removeprefix("TYPE_").lower()
    shown = named.full_name if named is not None else text
    if field.enum_type is not None:
        shown = f"the enum {shown}"
    return f"repeated {shown}" if field.is_repeated else shown


# -- making


def layout_of(schema: Schema, row: t.Row) -> Layout:
    """The layout of a message for a row type that `problems` has nothing against."""
    return _Maker(schema).layout(row)


class _Maker:
    """Makes the descriptors of a layout: for each ROW a copy of its message beside it, with only the needed fields."""

    def __init__(self, schema: Schema) -> None:
        self._message = schema.message
        self._files = FileDescriptorSet.FromString(schema.files)
        self._originals = dict(_declared(self._files))
        self._count = 0

    def layout(self, row: t.Row) -> Layout:
        name = self._copy(self._message, row)
        pool = pool_of(self._files)
        return _bound(pool.FindMessageTypeByName(name), self._message, row)

    def _copy(self, message: Descriptor, row: t.Row) -> str:
        original, container = self._originals[message.full_name]
        self._count += 1
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
            made = copied.field.add()
            made.CopyFrom(proto)
            if inner is not None:
                self._refer(made, field, shown.get(proto.name))
        _drop_empty_oneofs(copied)
        if message.GetOptions().map_entry:
            self._tell_presence(copied, message)
        container.append(copied)
        return message.full_name.removesuffix(original.name) + copied.name

    def _refer(self, made: FieldDescriptorProto, field: FieldDescriptor, kind: t.DataType | None) -> None:
        """Let the copy of a field hold what its column shows: a copy of its message, or plain bytes."""
        inner = field.message_type
        assert inner is not None
        if isinstance(kind, t.Map):
            entry = t.row(key=kind.key, value=kind.value)
            made.type_name = f".{self._copy(inner, entry)}"
            return
        one = kind.element if isinstance(kind, t.Array) else kind
        if isinstance(one, _BYTES) and inner.full_name != "google.protobuf.BytesValue":
            made.type = FieldDescriptorProto.TYPE_BYTES
            made.ClearField("type_name")
        elif isinstance(one, t.Row) or one is None:
            made.type_name = f".{self._copy(inner, one if isinstance(one, t.Row) else t.Row(()))}"

    def _tell_presence(self, entry: DescriptorProto, message: Descriptor) -> None:
        """Both fields of a map's entry are always written; closed enums are looked at by the readers."""
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


def _declared(files: FileDescriptorSet) -> Iterator[tuple[str, tuple[DescriptorProto, Any]]]:
    """Every message of a set: its full name, and its declaration with the list that holds it."""

    def inside(messages: Any, prefix: str) -> Iterator[tuple[str, tuple[DescriptorProto, Any]]]:
        for message in list(messages):
            yield prefix + message.name, (message, messages)
            yield from inside(message.nested_type, f"{prefix}{message.name}.")

    for file in files.file:
        yield from inside(file.message_type, _prefix(file))


def _prefix(file: FileDescriptorProto) -> str:
    return f"{file.package}." if file.package else ""


def _drop_empty_oneofs(message: DescriptorProto) -> None:
    """Take out the oneofs that have no field left, and number the others anew."""
    used = sorted({f.oneof_index for f in message.field if f.HasField("oneof_index")})
    kept = [message.oneof_decl[i] for i in used]
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = used.index(field.oneof_index)
    del message.oneof_decl[:]
    message.oneof_decl.extend(kept)


def _bound(descriptor: Descriptor, message: Descriptor, row: t.Row) -> Layout:
    members = tuple(_member(descriptor.fields_by_name[f.name], message.fields_by_name[f.name], f) for f in row.fields)
    hidden = tuple(
        _member(field, message.fields_by_name[field.name], t.Field(field.name, _some_type(field)))
        for field in descriptor.fields
        if field.name not in row.names
    )
    return Layout(descriptor, members, hidden)


def _some_type(field: FieldDescriptor) -> t.DataType:
    """A type for a field that is read, but shown by no column."""
    one: t.DataType = t.Row(()) if field.message_type is not None else _columns(field)[0]
    return t.Array(one) if field.is_repeated else one


def _member(field: FieldDescriptor, original: FieldDescriptor, column: t.Field) -> Member:
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
    if isinstance(kind, t.Row):
        return "message", _bound(inner, whole, kind)
    if whole.full_name == TIMESTAMP:
        return "timestamp", _bound(inner, whole, _TIMESTAMP_ROW)
    if whole.full_name in JSON_LIKE:
        return "json", Layout(inner, ())
    return "wrapper", _bound(inner, whole, t.row(value=kind))
