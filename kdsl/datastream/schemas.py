"""How a key or a value is encoded: one description for both directions, like Flink's schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

import attrs

from kdsl.datastream.calls import caller_location
from kdsl.errors import Problem, Where, listing, nearest
from kdsl.formats import Format, UnknownFormatError, format_class
from kdsl.types import model as t
from kdsl.types.parse import TypeSyntaxError, parse_type
from kdsl.types.python import AnnotationError, column_type
from kdsl.types.spark import from_spark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Columns", "FormatSchema", "KafkaDeserializer", "KafkaSerializer", "MessageSchema", "SimpleStringSchema"]

Columns: TypeAlias = "str | StructType | t.Row | Mapping[str, Any]"
"""Columns and their types: ``"id BIGINT NOT NULL, name STRING"`` in Flink's SQL, a StructType, or annotations by name
(``{"id": int, "name": str | None}``)."""

Side = Literal["key", "value"]
KafkaDeserializer = Literal[
    "StringDeserializer",
    "IntegerDeserializer",
    "LongDeserializer",
    "ShortDeserializer",
    "FloatDeserializer",
    "DoubleDeserializer",
    "BooleanDeserializer",
    "BytesDeserializer",
    "ByteArrayDeserializer",
    "ByteBufferDeserializer",
    "UUIDDeserializer",
]
KafkaSerializer = Literal[
    "StringSerializer",
    "IntegerSerializer",
    "LongSerializer",
    "ShortSerializer",
    "FloatSerializer",
    "DoubleSerializer",
    "BooleanSerializer",
    "BytesSerializer",
    "ByteArraySerializer",
    "ByteBufferSerializer",
    "UUIDSerializer",
]
_KAFKA: Mapping[str, t.DataType] = {
    "String": t.STRING,
    "Integer": t.Int(),
    "Long": t.BigInt(),
    "Short": t.SmallInt(),
    "Float": t.Float(),
    "Double": t.Double(),
    "Boolean": t.Boolean(),
    "Bytes": t.BYTES,
    "ByteArray": t.BYTES,
    "ByteBuffer": t.BYTES,
    "UUID": t.STRING,  # Kafka's serializer writes the UUID as a string
}
_FUNCTIONS: Mapping[str, str] = {
    "Deserializer": "KafkaRecordDeserializationSchema.of(function, columns)",
    "Serializer": "KafkaRecordSerializationSchema.of(function)",
}
_ALTERNATIVES: Mapping[str, str] = {
    "VoidDeserializer": "use 'BytesDeserializer', whose column is NULL if a record has no value",
    "VoidSerializer": "leave out the key; for records without a value use 'BytesSerializer' and a column that is NULL",
    "ListDeserializer": f"unpack the list in a function over Arrow batches: {_FUNCTIONS['Deserializer']}",
    "ListSerializer": f"pack the list in a function over Arrow batches: {_FUNCTIONS['Serializer']}",
}
"""What to write instead of those Kafka classes that kdsl does not support."""
_PACKAGE = "org.apache.kafka.common.serialization."


@attrs.frozen
class MessageSchema:
    """The format of a key or a value, and its columns.

    Attributes:
        format: The format of the bytes.
        row: The columns; the single column of a simple schema has no name until a side is known.
        problems: Mistakes in the arguments.
    """

    format: Format
    row: t.Row
    problems: tuple[Problem, ...] = attrs.field(default=(), eq=False, repr=False, kw_only=True)

    def fields(self, side: Side) -> tuple[t.Field, ...]:
        """The columns; a column without a name gets that of its side, ``key`` or ``value``."""
        return tuple(attrs.evolve(f, name=f.name or side) for f in self.row.fields)


@attrs.frozen(init=False)
class FormatSchema(MessageSchema):
    """A kdsl format with the columns that it holds: ``FormatSchema(Json(), "id BIGINT, amount DECIMAL(10, 2)")``."""

    def __init__(self, format: Format | str, columns: Columns) -> None:  # noqa: A002 (the word for it)
        """Describe a message. Mistakes in the arguments are reported when the source or the serializer is built.

        Args:
            format: The format, or its name.
            columns: Its columns.
        """
        where = caller_location()
        problems: list[Problem] = []
        instance = _format(format, where, problems)
        row = parse_columns(columns, where, problems)
        self.__attrs_init__(instance, row, problems=tuple(problems))  # pyright: ignore[reportAttributeAccessIssue]


@attrs.frozen(init=False)
class SimpleStringSchema(MessageSchema):
    """The whole message is one string: the column ``value`` (or ``key``) STRING."""

    def __init__(self, charset: str = "UTF-8", *, column: str = "") -> None:
        """Describe a message.

        Args:
            charset: Its charset, under Java's name.
            column: The column's name; by default that of its side, ``value`` or ``key``.
        """
        self.__attrs_init__(format_class("raw").from_strings({"charset": charset}), _single_column(t.STRING, column))  # pyright: ignore[reportAttributeAccessIssue]


def kafka_schema(
    name: str, kind: Literal["Serializer", "Deserializer"], where: Where, column: str = ""
) -> MessageSchema:
    """Return the schema of one of Kafka's own serializers or deserializers.

    An unknown name becomes a problem of the schema.

    Args:
        name: The class name, with or without the package.
        kind: Whether it names a serializer or a deserializer.
        where: The location, for messages.
        column: The column's name; by default that of its side.
    """
    short = name.removeprefix(_PACKAGE)
    value_type = _KAFKA.get(short.removesuffix(kind)) if short.endswith(kind) else None
    if value_type is not None:
        return MessageSchema(format_class("raw")(), _single_column(value_type, column))
    known = get_args(KafkaDeserializer if kind == "Deserializer" else KafkaSerializer)
    hint = "" if short in _ALTERNATIVES else nearest(short, known)
    message = f"kdsl has no counterpart of Kafka's {kind.lower()} {name!r}{hint}"
    fix = _ALTERNATIVES.get(short) or (
        f"use one of {listing(known)}, a FormatSchema, or a function of your own: {_FUNCTIONS[kind]}"
    )
    problem = Problem("kafka-serializer", message, fix, where)
    return MessageSchema(format_class("raw")(), _single_column(t.BYTES, column), problems=(problem,))


def parse_columns(columns: Columns, where: Where, problems: list[Problem]) -> t.Row:
    """Convert columns, as the user wrote them, to a row type, which is NOT NULL.

    Args:
        columns: The user's columns: SQL, a StructType, a `t.Row`, or annotations by name.
        where: The location, for messages.
        problems: Receives the problem if the columns cannot be read or there are none; the result is then only a
            placeholder.
    """

    def fail(message: str, fix: str) -> t.Row:
        problems.append(Problem("columns", message, fix, where))
        return t.Row((t.Field("value", t.BYTES),), nullable=False)

    match columns:
        case t.Row():
            row = columns
        case str():
            try:
                row = cast("t.Row", parse_type(f"ROW<{columns}>"))
            except TypeSyntaxError as e:
                reason = str(e).splitlines()[0]
                return fail(f"the columns {columns!r} cannot be parsed: {reason}", "write 'id BIGINT, name STRING'")
        case Mapping():
            try:
                row = t.Row(tuple(t.Field(name, column_type(annotation)) for name, annotation in columns.items()))
            except AnnotationError as e:
                return fail(f"the columns cannot be read: {e.message}", e.fix)
        case _:
            from pyspark.sql.types import StructType

            if not isinstance(columns, StructType):
                return fail(f"{columns!r} does not describe columns", "write 'id BIGINT, name STRING', or a StructType")
            try:
                row = cast("t.Row", from_spark(columns))
            except TypeError as e:
                return fail(str(e), "use another type")
    if not row.fields:
        return fail("there are no columns", "write 'id BIGINT, name STRING'")
    return attrs.evolve(row, nullable=False)


def _single_column(kind: t.DataType, column: str) -> t.Row:
    """Return a row type with one column, which is NOT NULL itself."""
    return t.Row((t.Field(column, kind),), nullable=False)


def _format(argument: object, where: Where, problems: list[Problem]) -> Format:
    """Return a format, or the format of a name with its default options.

    If it is neither, a problem is added to ``problems``, and the result is the format ``raw``.
    """
    if isinstance(argument, Format):
        return argument
    if isinstance(argument, str):
        try:
            return format_class(argument)()
        except UnknownFormatError as e:
            problems.append(Problem("format-unknown", str(e), "name one of them, or pass a format object", where))
    else:
        described = f"the class {argument.__name__}" if isinstance(argument, type) else repr(argument)
        message = f"{described} is not a format"
        problems.append(Problem("format", message, "write Json(), or another format, or its name", where))
    return format_class("raw")()
