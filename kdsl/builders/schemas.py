"""What the bytes of a key or a value mean: one description for both directions, as Flink's own schemas have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

import attrs

from kdsl.builders.calls import caller
from kdsl.errors import Problem, Where, listing, nearest
from kdsl.formats import Format, UnknownFormatError, format_class
from kdsl.types import model as t
from kdsl.types.parse import TypeSyntaxError, parse_type
from kdsl.types.python import AnnotationError, column_type
from kdsl.types.spark import from_spark
from kdsl_formats.raw import Raw

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
    "UUID": t.STRING,  # its text is what Kafka's serializer writes
}
_PACKAGE = "org.apache.kafka.common.serialization."


@attrs.frozen
class MessageSchema:
    """The format of a key or a value, and its columns.

    Attributes:
        format: How the bytes are read and written.
        row: The columns; the only one of a simple schema has no name until a side is known.
        problems: What is wrong with it.
    """

    format: Format
    row: t.Row
    problems: tuple[Problem, ...] = attrs.field(default=(), eq=False, repr=False, kw_only=True)

    def fields(self, side: Side) -> tuple[t.Field, ...]:
        """The columns; a column without a name is called like its side, ``key`` or ``value``."""
        return tuple(attrs.evolve(f, name=f.name or side) for f in self.row.fields)


@attrs.frozen(init=False)
class FormatSchema(MessageSchema):
    """A kdsl format with the columns that it holds: ``FormatSchema(Json(), "id BIGINT, amount DECIMAL(10, 2)")``."""

    def __init__(self, format: Format | str, columns: Columns) -> None:  # noqa: A002 (the word for it)
        """Describe a message.

        Args:
            format: The format, or its name.
            columns: Its columns.
        """
        where = caller()
        problems: list[Problem] = []
        chosen = _format(format, where, problems)
        row = columns_of(columns, where, problems)
        self.__attrs_init__(chosen, row, problems=tuple(problems))  # pyright: ignore[reportAttributeAccessIssue]


@attrs.frozen(init=False)
class SimpleStringSchema(MessageSchema):
    """The whole message is one text, the column ``value`` (or ``key``) STRING."""

    def __init__(self, charset: str = "UTF-8", *, column: str = "") -> None:
        """Describe a message.

        Args:
            charset: Its charset, as Java spells the name.
            column: The column's name; by default that of its side, ``value`` or ``key``.
        """
        self.__attrs_init__(Raw(charset=charset), _one(t.STRING, column))  # pyright: ignore[reportAttributeAccessIssue]


def kafka_schema(
    name: str, kind: Literal["Serializer", "Deserializer"], where: Where, column: str = ""
) -> MessageSchema:
    """The schema of one of Kafka's own serializers or deserializers.

    Args:
        name: Its name, with or without the package.
        kind: Which of the two it is.
        where: The place, for messages.
        column: The column's name; by default that of its side.
    """
    short = name.removeprefix(_PACKAGE)
    found = _KAFKA.get(short.removesuffix(kind)) if short.endswith(kind) else None
    if found is not None:
        return MessageSchema(Raw(), _one(found, column))
    known = get_args(KafkaDeserializer if kind == "Deserializer" else KafkaSerializer)
    message = f"kdsl has no counterpart of Kafka's {kind.lower()} {name!r}{nearest(short, known)}"
    fix = f"use one of {listing(known)}, or a FormatSchema"
    return MessageSchema(Raw(), _one(t.BYTES, column), problems=(Problem("kafka-serializer", message, fix, where),))


def columns_of(given: Columns, where: Where, problems: list[Problem]) -> t.Row:
    """Columns as a row type; what is wrong with them goes to the problems."""

    def wrong(message: str, fix: str) -> t.Row:
        problems.append(Problem("columns", message, fix, where))
        return t.Row((t.Field("value", t.BYTES),), nullable=False)

    match given:
        case t.Row():
            found = given
        case str():
            try:
                found = cast("t.Row", parse_type(f"ROW<{given}>"))
            except TypeSyntaxError as e:
                return wrong(
                    f"the columns {given!r} cannot be read: {_first_line(e)}", "write 'id BIGINT, name STRING'"
                )
        case Mapping():
            try:
                found = t.Row(tuple(t.Field(name, column_type(kind)) for name, kind in given.items()))
            except AnnotationError as e:
                return wrong(f"the columns cannot be read: {e.message}", e.fix)
        case _:
            from pyspark.sql.types import StructType

            if not isinstance(given, StructType):
                return wrong(f"the columns are {given!r}", "write 'id BIGINT, name STRING', or a StructType")
            try:
                found = cast("t.Row", from_spark(given))
            except TypeError as e:
                return wrong(str(e), "use another type")
    if not found.fields:
        return wrong("there are no columns", "write 'id BIGINT, name STRING'")
    return attrs.evolve(found, nullable=False)


def _first_line(e: Exception) -> str:
    return str(e).splitlines()[0]


def _one(kind: t.DataType, column: str) -> t.Row:
    return t.Row((t.Field(column, kind),), nullable=False)


def _format(given: object, where: Where, problems: list[Problem]) -> Format:
    if isinstance(given, Format):
        return given
    if isinstance(given, str):
        try:
            return format_class(given)()
        except UnknownFormatError as e:
            problems.append(Problem("format-unknown", str(e), "name one of them, or write the format itself", where))
    else:
        shown = f"the class {given.__name__}" if isinstance(given, type) else repr(given)
        problems.append(
            Problem("format", f"the format is {shown}", "write Json(), or another format, or its name", where)
        )
    return Raw()
