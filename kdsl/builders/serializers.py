"""How rows become records in a sink of the builder (seeds 002 and 003)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import attrs
import pyarrow as pa

from kdsl.builders.calls import caller, function_name
from kdsl.builders.schemas import KafkaSerializer, MessageSchema, Side, kafka_schema
from kdsl.errors import Problem, Where, fail_on, listing
from kdsl.functions import FunctionError, name_of
from kdsl.partitioner import Partitioner
from kdsl.types import model as t

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Chosen", "KafkaRecordSerializationSchema", "KafkaRecordSerializationSchemaBuilder", "RecordSerializer"]

RecordSerializer: TypeAlias = Callable[[pa.RecordBatch], "pa.RecordBatch | pa.Table"]
"""Records of rows: it is called with one Arrow batch of the DataFrame after the other, and gives batches with some of
the columns ``topic``, ``partition``, ``key``, ``value``, ``headers`` and ``timestamp``, with any number of records."""
ColumnFunction: TypeAlias = Callable[[pa.RecordBatch], "pa.Array | pa.ChunkedArray"]
"""A value for each row of an Arrow batch."""
Headers: TypeAlias = Mapping[str, bytes | str]

_HEADER = t.Row((t.Field("key", t.STRING), t.Field("value", t.BYTES)))
TYPES: Mapping[str, t.DataType] = {
    "topic": t.STRING,
    "partition": t.Int(),
    "key": t.BYTES,
    "value": t.BYTES,
    "headers": t.Array(_HEADER),
    "timestamp": t.TimestampLtz(3),
}
"""What a record has, and the types in which a function gives it."""


@attrs.frozen
class Chosen:
    """A piece of a record that is worked out for each row.

    Attributes:
        text: A Spark SQL expression, or the name of a function, or what a Column prints.
        column: The Spark column, where one was given.
        function: The Arrow function, where one was given.
        constant: The same headers for every record.
    """

    text: str
    column: Column | None = attrs.field(default=None, eq=False, repr=False)
    function: ColumnFunction | None = attrs.field(default=None, repr=False)
    constant: tuple[tuple[str, bytes], ...] = ()


@attrs.frozen
class KafkaRecordSerializationSchema:
    """How rows become records: made by `builder`, or by `of` with one function that does it all.

    Attributes:
        topic: The topic of all records; None where each row has its own.
        topics: The topics that a selector may choose; empty is any.
        topic_selector: Chooses the topic of each row.
        key: The schema of the key; None is no key.
        value: The schema of the value.
        partitioner: ``default``, ``fixed``, ``round-robin``, or a function as ``package.module:function``.
        headers: The headers of each row.
        timestamp: The timestamp of each row; None is the time of sending.
        function: Makes records of rows, instead of all of that.
        problems: What is wrong with it.
    """

    topic: str | None = None
    topics: tuple[str, ...] = ()
    topic_selector: Chosen | None = None
    key: MessageSchema | None = None
    value: MessageSchema | None = None
    partitioner: str = "default"
    headers: Chosen | None = None
    timestamp: Chosen | None = None
    function: RecordSerializer | None = None
    problems: tuple[Problem, ...] = attrs.field(default=(), eq=False, repr=False)
    where: Where = attrs.field(factory=Where, eq=False, repr=False)

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """A fluent builder."""
        return KafkaRecordSerializationSchemaBuilder()

    @classmethod
    def of(
        cls, function: RecordSerializer, *, topic: str | None = None, topics: Sequence[str] = ()
    ) -> KafkaRecordSerializationSchema:
        """Records that a function makes, with topic, partition, key, value, headers and timestamp.

        Args:
            function: Gets Arrow batches of the DataFrame; gives batches with some of the columns ``topic`` (string),
                ``partition`` (int; NULL leaves it to the partitioner), ``key`` and ``value`` (binary; NULL is none),
                ``headers`` (a list of structs of key and value) and ``timestamp``. It travels with the query.
            topic: The topic of all records; then the function need not say it.
            topics: The topics that the function may name; empty is any.
        """
        where = caller()
        problems = []
        if not callable(function):
            problems.append(Problem("serializer", f"the function is {function!r}", "give a function", where))
        if topic is not None and topics:
            problems.append(Problem("serializer-topic", "topic= and topics= are both set", "keep one of them", where))
        return cls(topic=topic, topics=tuple(topics), function=function, problems=tuple(problems), where=where)

    def describe(self) -> list[str]:
        """What goes on top of the plan, for ``explain``."""
        if self.function is not None:
            return [f"records by {function_name(self.function)}"]
        return [f"{name} = {chosen.text}" for name, chosen in self.chosen().items()]

    def chosen(self) -> dict[str, Chosen]:
        """What is worked out for each row, beside key and value."""
        named = {"topic": self.topic_selector, "headers": self.headers, "timestamp": self.timestamp}
        return {name: chosen for name, chosen in named.items() if chosen is not None}

    def fields(self, side: Side) -> tuple[t.Field, ...]:
        """The columns of the key or of the value."""
        schema = self.key if side == "key" else self.value
        return () if schema is None else schema.fields(side)


class KafkaRecordSerializationSchemaBuilder:
    """Describes call by call how rows become records; a value schema and a topic, or a selector, are needed."""

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}
        self._problems: list[Problem] = []

    def _set(self, setting: str, value: Any, method: str) -> Self:
        if setting in self._given:
            message = f"{method}() sets what is set already, and the first call would be lost"
            self._problems.append(Problem("builder-twice", message, "call it once", caller()))
        self._given[setting] = value
        return self

    def set_topic(self, topic: str) -> Self:
        """The topic of all records."""
        return self._set("topic", topic, "set_topic")

    def set_topic_selector(self, selector: str | Column | ColumnFunction, *, topics: Sequence[str] = ()) -> Self:
        """The topic of each row.

        Args:
            selector: A Spark column, a SQL expression (``"concat('orders-', region)"``), or a function from an Arrow
                batch of rows to a text for each row.
            topics: The topics that may be chosen, another one is an error; empty is any.
        """
        self._given["topics"] = tuple(topics)
        return self._set("topic_selector", _chosen(selector), "set_topic_selector")

    def set_key_serialization_schema(self, schema: MessageSchema) -> Self:
        """The schema of the key; its columns are found in the DataFrame by name."""
        return self._message("key", schema, "set_key_serialization_schema")

    def set_value_serialization_schema(self, schema: MessageSchema) -> Self:
        """The schema of the value; its columns are found in the DataFrame by name."""
        return self._message("value", schema, "set_value_serialization_schema")

    def set_kafka_key_serializer(self, name: KafkaSerializer, column: str = "key") -> Self:
        """One of Kafka's own serializers for the key, which is one column."""
        schema = kafka_schema(name, "Serializer", caller(), column)
        return self._message("key", schema, "set_kafka_key_serializer")

    def set_kafka_value_serializer(self, name: KafkaSerializer, column: str = "value") -> Self:
        """One of Kafka's own serializers for the value, which is one column."""
        schema = kafka_schema(name, "Serializer", caller(), column)
        return self._message("value", schema, "set_kafka_value_serializer")

    def set_partitioner(self, partitioner: str | Partitioner) -> Self:
        """``default``, ``fixed``, ``round-robin``, or a function (`kdsl.partitioner`) or its name."""
        if callable(partitioner):
            try:
                partitioner = name_of(partitioner)
            except FunctionError as e:
                message = f"set_partitioner() is given a function that executors cannot import: {e.reason}"
                self._problems.append(Problem("partitioner", message, e.fix, caller()))
                partitioner = "default"
        return self._set("partitioner", partitioner, "set_partitioner")

    def set_header_provider(self, headers: Headers | str | Column | ColumnFunction) -> Self:
        """The headers of each record.

        Args:
            headers: The same for all (``{"source": b"shop"}``); or a Spark column, a SQL expression or an Arrow
                function that gives a map, or a list of structs of key and value.
        """
        if isinstance(headers, Mapping):
            pairs = tuple((k, v.encode() if isinstance(v, str) else v) for k, v in headers.items())
            return self._set("headers", Chosen(listing(dict(pairs)), constant=pairs), "set_header_provider")
        return self._set("headers", _chosen(headers), "set_header_provider")

    def set_timestamp(self, timestamp: str | Column | ColumnFunction) -> Self:
        """The timestamp of each record: a column, a SQL expression or an Arrow function; NULL is the present."""
        return self._set("timestamp", _chosen(timestamp), "set_timestamp")

    def build(self) -> KafkaRecordSerializationSchema:
        """The serializer.

        Raises:
            ResolveError: Something is missing or contradicts something else; everything is told.
        """
        where = caller()
        found = [*self._problems]
        for side in ("key", "value"):
            schema: MessageSchema | None = self._given.get(side)
            found += schema.problems if schema is not None else ()
        if "value" not in self._given:
            message = "nothing says how the value is written"
            fix = (
                "add set_value_serialization_schema(FormatSchema(Json(), 'id BIGINT')), or set_kafka_value_serializer()"
            )
            found.append(Problem("serializer-value", message, fix))
        if "topic" in self._given and "topic_selector" in self._given:
            message = "set_topic() and set_topic_selector() both say where records go"
            found.append(Problem("serializer-topic", message, "keep one of them"))
        if "topic" not in self._given and "topic_selector" not in self._given:
            message = "nothing says to which topic records go"
            found.append(Problem("serializer-topic", message, "add set_topic('orders'), or set_topic_selector()"))
        place = f" ({where.place})" if where.place else ""
        fail_on(dict.fromkeys(p.at(where) for p in found), f"KafkaRecordSerializationSchema{place}")
        return KafkaRecordSerializationSchema(**self._given, where=where)

    def _message(self, side: str, schema: object, method: str) -> Self:
        if not isinstance(schema, MessageSchema):
            message = f"{method}() is given {schema!r}"
            fix = "write SimpleStringSchema(), or a FormatSchema"
            self._problems.append(Problem("serializer-schema", message, fix, caller()))
            return self
        return self._set(side, schema, method)


def _chosen(given: str | Column | ColumnFunction) -> Chosen:
    if isinstance(given, str):
        return Chosen(str(given))
    if callable(given) and not hasattr(given, "cast"):  # a Column of either kind can be cast
        return Chosen(function_name(given), function=given)
    return Chosen(str(given), column=given)  # type: ignore[arg-type]
