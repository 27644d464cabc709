"""The names of messages in Protobuf and in Java, where Flink's users take them from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto


def message_names(file: FileDescriptorProto) -> Iterator[str]:
    """The full names of the messages of a file, without the entries of maps."""
    prefix = f"{file.package}." if file.package else ""
    yield from (prefix + name for name in _message_names(file.message_type))


def java_names(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    """The Java names of a file's messages, with a dot for each ``$``, and their full names.

    Each message is listed with and without its outer class, so that the file's option ``java_multiple_files`` does not
    matter.
    """
    package = file.options.java_package if file.options.HasField("java_package") else file.package
    before = f"{package}." if package else ""
    own = f"{file.package}." if file.package else ""
    outer = outer_class(file)
    for name in _message_names(file.message_type):
        yield f"{before}{name}", own + name
        yield f"{before}{outer}.{name}", own + name


def outer_class(file: FileDescriptorProto) -> str:
    """The name of the outer Java class that protoc generates for a file."""
    if file.options.HasField("java_outer_classname"):
        return file.options.java_outer_classname
    stem = file.name.rpartition("/")[2].removesuffix(".proto")
    camel_case, upper = "", True
    for letter in stem:
        if letter.isascii() and letter.isalpha():
            camel_case += letter.upper() if upper else letter
            upper = False
        else:
            camel_case += letter if letter.isdigit() else ""
            upper = True
    inside = [*_names_in(file.message_type), *(e.name for e in file.enum_type), *(s.name for s in file.service)]
    return f"{camel_case}OuterClass" if camel_case in inside else camel_case


def _names_in(messages: Iterable[DescriptorProto]) -> Iterator[str]:
    """The short names of all messages and enums, also of those inside messages."""
    for message in messages:
        yield message.name
        yield from (enum.name for enum in message.enum_type)
        yield from _names_in(message.nested_type)


def _message_names(messages: Iterable[DescriptorProto], prefix: str = "") -> Iterator[str]:
    """The names of messages and those inside them, with a prefix and without the entries of maps."""
    for message in messages:
        if not message.options.map_entry:
            yield prefix + message.name
            yield from _message_names(message.nested_type, f"{prefix}{message.name}.")
