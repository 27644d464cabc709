"""Writes a file's descriptor as a ``.proto`` file, the form that registries store and compare.

Compiling it returns the same descriptor; it has no comments and no custom options. Apicurio's registry also stores a
descriptor in base64, but then rejects all later versions of the subject, since it compares ``.proto`` files only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.message import Message

_F = FieldDescriptorProto
_LAST_FIELD = (1 << 29) - 1
_LAST_ENUM = (1 << 31) - 1


def proto_text(file: FileDescriptorProto) -> str:
    """The content of the ``.proto`` file, without comments, custom options and services."""
    return "\n".join(_FileWriter(file).lines()) + "\n"


class _FileWriter:
    """Writes one file; see `proto_text`."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._plain = file.syntax in ("", "proto2")

    def lines(self) -> Iterator[str]:
        """The lines of the file: syntax, package, imports, options, enums, messages, extensions; not its services."""
        file = self._file
        if file.syntax == "editions":
            yield f'edition = "{Edition.Name(file.edition).removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        for i, name in enumerate(file.dependency):
            kind = "public " if i in file.public_dependency else "weak " if i in file.weak_dependency else ""
            yield f"import {kind}{json.dumps(name)};"
        yield from (f"option {option};" for option in _options(file.options))
        for enum in file.enum_type:
            yield from self._write_enum(enum, "")
        for message in file.message_type:
            yield from self._write_message(message, "", _join_name("", file.package))
        yield from self._write_extensions(file.extension, "", {})

    def _write_message(self, message: DescriptorProto, indent: str, scope: str) -> Iterator[str]:
        """Write a message, line by line; `scope` is the full name of what contains it, with a dot before it."""
        yield f"{indent}message {message.name} {{"
        yield from self._write_body(message, f"{indent}  ", _join_name(scope, message.name))
        yield f"{indent}}}"

    def _write_body(self, message: DescriptorProto, indent: str, scope: str) -> Iterator[str]:
        """Write the body of a message, line by line; `scope` is the message's full name, with a dot before it.

        The fields of groups and maps refer to messages inside by their full names.
        """
        inside = {_join_name(scope, one.name): one for one in message.nested_type}
        declared = set()  # messages that a field declares: groups and the entries of maps
        yield from (f"{indent}option {option};" for option in _options(message.options, without=("map_entry",)))
        for enum in message.enum_type:
            yield from self._write_enum(enum, indent)
        synthetic = {f.oneof_index for f in message.field if f.proto3_optional}
        opened_oneofs: set[int] = set()
        for field in message.field:
            if field.type == _F.TYPE_GROUP or (field.type_name in inside and inside[field.type_name].options.map_entry):
                declared.add(field.type_name)
            if not field.HasField("oneof_index") or field.oneof_index in synthetic:
                yield from self._write_field(field, indent, inside)
            elif field.oneof_index not in opened_oneofs:
                opened_oneofs.add(field.oneof_index)
                oneof = message.oneof_decl[field.oneof_index]
                yield f"{indent}oneof {oneof.name} {{"
                yield from (f"{indent}  option {option};" for option in _options(oneof.options))
                for member in message.field:
                    if member.HasField("oneof_index") and member.oneof_index == field.oneof_index:
                        yield from self._write_field(member, f"{indent}  ", inside, label=False)
                yield f"{indent}}}"
        for extension in message.extension:
            if extension.type == _F.TYPE_GROUP:
                declared.add(extension.type_name)
        for name, one in inside.items():
            if name not in declared:
                yield from self._write_message(one, indent, scope)
        yield from self._write_extensions(message.extension, indent, inside)
        for span in message.extension_range:
            yield f"{indent}extensions {_spell_span(span.start, span.end - 1, _LAST_FIELD)};"
        yield from self._write_reserved(
            [_spell_span(one.start, one.end - 1, _LAST_FIELD) for one in message.reserved_range],
            message.reserved_name,
            indent,
        )

    def _write_extensions(
        self, fields: Sequence[FieldDescriptorProto], indent: str, inside: dict[str, DescriptorProto]
    ) -> Iterator[str]:
        """Write extensions, line by line, each in an ``extend`` block of its own; `inside` as in `_write_field`."""
        for field in fields:
            yield f"{indent}extend {field.extendee} {{"
            yield from self._write_field(field, f"{indent}  ", inside)
            yield f"{indent}}}"

    def _write_field(
        self, field: FieldDescriptorProto, indent: str, inside: dict[str, DescriptorProto], *, label: bool = True
    ) -> Iterator[str]:
        """Write a field, line by line: a map or a group with the message that it declares.

        Args:
            field: The field.
            indent: The blanks before each line.
            inside: The messages that are declared beside the field, by their full names; it is not changed.
            label: Whether to write the field's label, which members of a oneof do not have.
        """
        entry = inside.get(field.type_name)
        options = _field_options(field)
        shown = f" [{', '.join(options)}]" if options else ""
        if entry is not None and entry.options.map_entry:
            key, value = (_spell_type(one) for one in entry.field)
            yield f"{indent}map<{key}, {value}> {field.name} = {field.number}{shown};"
            return
        before = self._label(field) if label else ""
        if field.type == _F.TYPE_GROUP and entry is not None:
            yield f"{indent}{before}group {entry.name} = {field.number}{shown} {{"
            yield from self._write_body(entry, f"{indent}  ", field.type_name)
            yield f"{indent}}}"
            return
        yield f"{indent}{before}{_spell_type(field)} {field.name} = {field.number}{shown};"

    def _label(self, field: FieldDescriptorProto) -> str:
        """The label of a field with a blank after it; empty if the syntax needs none."""
        if field.label == _F.LABEL_REPEATED:
            return "repeated "
        if field.label == _F.LABEL_REQUIRED:
            return "required "
        return "optional " if self._plain or field.proto3_optional else ""

    def _write_enum(self, enum: EnumDescriptorProto, indent: str) -> Iterator[str]:
        """Write an enum, line by line, without comments."""
        yield f"{indent}enum {enum.name} {{"
        yield from (f"{indent}  option {option};" for option in _options(enum.options))
        for value in enum.value:
            options = ", ".join(_options(value.options))
            yield f"{indent}  {value.name} = {value.number}{f' [{options}]' if options else ''};"
        spans = [_spell_span(one.start, one.end, _LAST_ENUM) for one in enum.reserved_range]
        yield from self._write_reserved(spans, enum.reserved_name, f"{indent}  ")
        yield f"{indent}}}"

    def _write_reserved(self, spans: Sequence[str], names: Sequence[str], indent: str) -> Iterator[str]:
        """Write a line of reserved numbers and one of names, if there are any; editions do not quote names."""
        if spans:
            yield f"{indent}reserved {', '.join(spans)};"
        if names:
            quoted = names if self._file.syntax == "editions" else [json.dumps(name) for name in names]
            yield f"{indent}reserved {', '.join(quoted)};"


def _join_name(scope: str, name: str) -> str:
    """A name inside a scope; the scope itself if the name is empty."""
    return f"{scope}.{name}" if name else scope


def _spell_span(first: int, last: int, end: int) -> str:
    """A range of numbers, both included, or its only number; the last is written as ``max`` if it is `end`."""
    if first == last:
        return str(first)
    return f"{first} to {'max' if last == end else last}"


def _spell_type(field: FieldDescriptorProto) -> str:
    """The name of a field's type."""
    return field.type_name or _F.Type.Name(field.type).removeprefix("TYPE_").lower()


def _field_options(field: FieldDescriptorProto) -> list[str]:
    """The options of a field as ``name = value``, with its default and a JSON name other than the usual one."""
    options = []
    if field.HasField("default_value"):
        text = field.default_value
        if field.type == _F.TYPE_STRING:
            text = f'"{_escape(text.encode())}"'
        elif field.type == _F.TYPE_BYTES:
            text = f'"{text.replace(chr(34), chr(92) + chr(34)) if chr(92) not in text else text}"'
        options.append(f"default = {text}")
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        options.append(f"json_name = {json.dumps(field.json_name)}")
    return [*options, *_options(field.options)]


def _json_name(name: str) -> str:
    """The JSON name that Protobuf derives from a field's name."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _escape(data: bytes) -> str:
    """Bytes as the inside of a string: all but plain ASCII as octal escapes."""
    return "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:03o}" for b in data)


def _options(options: Message, *, without: Sequence[str] = (), prefix: str = "") -> Iterator[str]:
    """The options that are set, as ``name = value``; options of messages by their paths.

    Custom options (extensions) and those named in `without` are left out.
    """
    for field, value in options.ListFields():
        name = f"{prefix}{field.name}"
        if field.name in without or field.is_extension:
            continue
        for one in value if field.is_repeated else [value]:
            if field.message_type is not None:
                yield from _options(one, prefix=f"{name}.")
            else:
                yield f"{name} = {_spell_value(field, one)}"


def _spell_value(field: FieldDescriptor, value: Any) -> str:
    """The value of an option as it is written in the file."""
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, bytes)):
        return f'"{_escape(value.encode() if isinstance(value, str) else value)}"'
    return str(value)
