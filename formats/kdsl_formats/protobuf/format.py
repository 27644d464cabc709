"""The options of the format ``protobuf``, its plan-time rules, and the creation of its decoder and encoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import attrs
from google.protobuf.descriptor import Descriptor

from kdsl.errors import Problem
from kdsl.formats import ALONE, Decoder, Direction, Encoder, Format, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats.protobuf.decoder import ProtobufDecoder
from kdsl_formats.protobuf.encoder import ProtobufEncoder
from kdsl_formats.protobuf.layout import find_problems, layout_of
from kdsl_formats.protobuf.reference_decoder import ReadingRules
from kdsl_formats.protobuf.reference_encoder import WritingRules
from kdsl_formats.protobuf.sources import (
    Schema,
    SchemaError,
    compile_files,
    compile_text,
    import_schema,
    read_file,
    read_set,
    read_set_text,
    schema_of,
    schema_of_class,
)

COLUMN_TYPES = """\
Columns have the exact names of fields; they can be a subset of the fields, in any order.

| field | column types |
| --- | --- |
| int32, sint32, sfixed32 | INT |
| uint32, fixed32 | INT (numbers from 2³¹ on are negative), BIGINT |
| int64, sint64, sfixed64 | BIGINT |
| uint64, fixed64 | BIGINT (numbers from 2⁶³ on are negative), DECIMAL(20, 0) |
| bool, float, double | BOOLEAN, FLOAT, DOUBLE |
| string | STRING, VARCHAR(n), CHAR(n) |
| bytes | BYTES, VARBINARY(n), BINARY(n) |
| an enum | STRING (the name), INT or BIGINT (the number) |
| a message, a group | ROW of some of its fields; a message also BYTES, its serialized form |
| google.protobuf.Timestamp | TIMESTAMP_LTZ(p), or ROW<seconds BIGINT, nanos INT> |
| google.protobuf.StringValue and the like | the type of the value, or ROW<value …> |
| google.protobuf.Struct, Value, ListValue | STRING with JSON |
| repeated T | ARRAY of a type for T |
| map<K, V> | MAP of types for K and V |
| a member of a oneof | like any other field; if several are written, the last column wins |"""
_SOURCES = ("descriptor_set", "descriptor_file", "proto_file", "proto_text")


class MessageFormat(Format):
    """The base class of the formats of Protobuf messages, with their options and rules."""

    message_class_name: str | type | None = option("message-class-name", "The message.", default=None)
    ignore_parse_errors: bool = option(
        "ignore-parse-errors",
        "Read: whether an unreadable message produces no row, instead of an error.",
        default=False,
        decides="is_lenient",
    )
    read_default_values: bool = option(
        "read-default-values",
        "Read: whether absent fields have their default values; otherwise their columns are NULL. Fields of proto3 "
        "without `optional` always have default values.",
        default=False,
    )
    write_null_string_literal: str = option(
        "write-null-string-literal",
        "Write: the string to write for a NULL inside an array or a map.",
        default="",
    )
    write_unknown_enum: Literal["first", "fail"] = option(
        "write-unknown-enum",
        "Write: how to write a name or number that is not in the enum: as the enum's first value, or as an error.",
        default="first",
        ignore_case=True,
    )
    descriptor_file: str | None = option(
        "descriptor-file",
        "The path of a descriptor set with the message, as written by `protoc --include_imports --descriptor_set_out`.",
        default=None,
    )
    descriptor_set: str | None = option(
        "descriptor-set",
        "A descriptor set with the message, in base64.",
        default=None,
    )
    proto_file: str | None = option(
        "proto-file",
        "The path of a `.proto` file with the message; needs kdsl-kafka[protobuf] or protoc on the driver.",
        default=None,
    )
    proto_text: str | None = option(
        "proto-text",
        "The content of a `.proto` file with the message; needs kdsl-kafka[protobuf] or protoc on the driver.",
        default=None,
    )
    proto_path: tuple[str, ...] = option(
        "proto-path",
        "The folders that are searched for the imports of proto-file and proto-text.",
        default=(),
    )

    if not TYPE_CHECKING:

        def __init__(self, **options: Any) -> None:
            """Set the options; a class of messages is replaced by its name and descriptors."""
            super().__init__(**_resolve_class(options))

    @property
    def named_source(self) -> bool:
        """Whether an option names the source of the message."""
        return any(getattr(self, name) is not None for name in _SOURCES)

    @classmethod
    def column_types(cls) -> str:
        """The table of column types for the reference page."""
        return COLUMN_TYPES

    def schema(self) -> Schema:
        """Load the message with its descriptors: each call reads or compiles the file, or imports the class."""
        return _find_schema(self)

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report a message that cannot be loaded, columns that do not fit, and, to write, missing required fields.

        The message is loaded as in `schema`; a `SchemaError` is reported as a problem. Without a name of a message
        nothing is reported.
        """
        if self.message_class_name is None:
            return
        try:
            schema = self.schema()
        except SchemaError as e:
            yield Problem("protobuf-message", e.message, e.fix)
            return
        yield from find_problems(schema.message, row, writing=direction == "write")

    def prunable(self) -> bool:
        """True: fields are matched by name, so fields that no column reads are skipped."""
        return True

    def portable(self) -> Self:
        """The format with the message's name and descriptors instead of their source; itself if it has only these."""
        schema = self.schema()
        if (self.message_class_name, self.descriptor_set) == (schema.name, schema.text):
            return self
        options = {name: getattr(self, name) for name in attrs.fields_dict(type(self))}
        options |= dict.fromkeys(_SOURCES) | {"proto_path": ()}
        return type(self)(**{**options, "message_class_name": schema.name, "descriptor_set": schema.text})

    def display_options(self) -> Mapping[str, str]:
        """The options for display, with a digest instead of the descriptors; `SchemaError` if these are invalid."""
        return hide_descriptors(self.to_strings(), self)

    def reading_rules(self, use: Use = ALONE) -> ReadingRules:
        """The options in the form that the decoder uses; a null key produces no row, a null value is an error."""
        return ReadingRules(
            ignore_parse_errors=self.ignore_parse_errors,
            read_default_values=self.read_default_values,
            null_fails=use.side == "value",
        )

    def writing_rules(self) -> WritingRules:
        """The options in the form that the encoder uses."""
        return WritingRules(null_text=self.write_null_string_literal, unknown_fails=self.write_unknown_enum == "fail")


class Protobuf(MessageFormat):
    """One Protobuf message per Kafka message, with columns matched to fields by name (Flink's format ``protobuf``).

    The message is a class that protoc generated (``message_class_name=Order``, or its name ``shop_pb2:Order``), or the
    name of a message (``shop.Order``, or its Java name ``com.shop.Orders$Order``) in a descriptor set
    (``descriptor_file=``), a ``.proto`` file (``proto_file=``) or the content of one (``proto_text=``). Only the driver
    reads these sources: the plan carries the descriptor to the executors.
    """

    identifier = "protobuf"
    registered_format = "protobuf-confluent"

    message_class_name: str | type = option(
        "message-class-name",
        "The message: the name of a generated Python class (`module:Class`), its full name in Protobuf, or the name "
        "of its Java class. In Python also the class itself.",
    )

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type, which `check` accepts."""
        return ProtobufDecoder(layout_of(self.schema(), row), row, self.reading_rules(use))

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type, which `check` accepts."""
        return ProtobufEncoder(layout_of(self.schema(), row), self.writing_rules())


def _resolve_class(options: dict[str, Any]) -> dict[str, Any]:
    """Replace a class in the options, if there is one, by its name and its descriptors in base64.

    A class that is not one of Protobuf messages stays. A descriptor set that is also an option stays beside the name.
    """
    kind = options.get("message_class_name")
    if isinstance(kind, type) and isinstance(getattr(kind, "DESCRIPTOR", None), Descriptor):
        schema = schema_of_class(kind)
        return {"descriptor_set": schema.text, **options, "message_class_name": schema.name}
    return options


def _find_schema(options: MessageFormat) -> Schema:
    """Load the message that the options name, from the source that they name."""
    name = options.message_class_name
    if not isinstance(name, str):
        return schema_of_class(name)
    sources = {n: value for n in _SOURCES if (value := getattr(options, n)) is not None}
    if len(sources) > 1:
        keys = [repr(getattr(attrs.fields(type(options)), n).metadata["key"]) for n in sources]
        raise SchemaError(f"both {' and '.join(keys)} name a source of the message {name!r}", "set one of them")
    for source, value in sources.items():
        match source:
            case "descriptor_set":
                return schema_of(name, read_set_text(value))
            case "descriptor_file":
                return schema_of(name, read_set(read_file(value), f"the file {value!r}"))
            case "proto_file":
                return schema_of(name, compile_files([value], options.proto_path))
            case _:
                return schema_of(name, compile_text(value, options.proto_path))
    schema = import_schema(name)
    if schema is None:
        raise SchemaError(
            f"there is no class {name!r} that Python can import, and no option names another source of the message",
            "write 'module:Class', or name the message and set descriptor-file, proto-file or proto-text",
        )
    return schema


def hide_descriptors(texts: dict[str, str], options: MessageFormat) -> dict[str, str]:
    """Replace descriptors in options as strings with a digest, in place, and return the options."""
    if "descriptor-set" in texts:
        texts["descriptor-set"] = f"sha256:{options.schema().digest}"
    return texts
