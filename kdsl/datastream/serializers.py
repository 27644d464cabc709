"""How rows become records in a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import attrs
import pyarrow as pa

from kdsl.callbacks import FunctionError, Partitioner, import_name
from kdsl.datastream.calls import caller_location, function_name
from kdsl.datastream.expressions import syntax_error
from kdsl.datastream.schemas import KafkaSerializer, MessageSchema, Side, SimpleStringSchema, kafka_schema
from kdsl.errors import Problem, Where, fail_on, listing
from kdsl.types import model as t

if TYPE_CHECKING:
    from pyspark.sql import Column, Row

__all__ = [
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "RecordSerializer",
    "RowExpression",
]

RecordSerializer: TypeAlias = Callable[[pa.RecordBatch], "pa.RecordBatch | pa.Table"]
"""A function that makes records from rows: it gets one Arrow batch of the DataFrame at a time, and returns batches with
some of the columns ``topic``, ``partition``, ``key``, ``value``, ``headers`` and ``timestamp``, with any number of
records."""
ColumnFunction: TypeAlias = Callable[[pa.RecordBatch], "pa.Array | pa.ChunkedArray"]
"""A value for each row of an Arrow batch."""
TopicFunction: TypeAlias = "ColumnFunction | Callable[[Row], str]"
"""The topic of each row of an Arrow batch, or of a single row, like PyFlink's topic selectors."""
Headers: TypeAlias = Mapping[str, bytes | str]

_HEADER = t.Row((t.Field("key", t.STRING), t.Field("value", t.BYTES)))
RECORD_TYPES: Mapping[str, t.DataType] = {
    "topic": t.STRING,
    "partition": t.Int(),
    "key": t.BYTES,
    "value": t.BYTES,
    "headers": t.Array(_HEADER),
    "timestamp": t.TimestampLtz(3),
}
"""The parts of a record, and the types in which a function returns them."""


@attrs.frozen
class RowExpression:
    """A part of a record that is computed for each row.

    Attributes:
        text: A Spark SQL expression, the name of a function, or the printed form of a Column.
        column: The Spark column, if the user passed one.
        function: The function, if the user passed one.
        constant: Headers that are the same for every record.
    """

    text: str
    column: Column | None = attrs.field(default=None, eq=False, repr=False)
    function: TopicFunction | None = attrs.field(default=None, repr=False)
    constant: tuple[tuple[str, bytes], ...] = ()


@attrs.frozen
class KafkaRecordSerializationSchema:
    """How rows become records. Use `builder`, or `of` with one function that does everything.

    Attributes:
        topic: The topic of all records; None if each row has its own.
        topics: The topics that a selector may choose; empty means any.
        topic_selector: Chooses the topic of each row.
        key: The schema of the key; None means no key.
        value: The schema of the value.
        partitioner: ``default``, ``fixed``, ``round-robin``, or a function as ``package.module:function``.
        headers: The headers of each row.
        timestamp: The timestamp of each row; None means its event time, or else the time of sending.
        function: Makes records from rows; it replaces all of the above.
        problems: Mistakes in the arguments.
        where: The location of the call that made it.
    """

    topic: str | None = None
    topics: tuple[str, ...] = ()
    topic_selector: RowExpression | None = None
    key: MessageSchema | None = None
    value: MessageSchema | None = None
    partitioner: str = "default"
    headers: RowExpression | None = None
    timestamp: RowExpression | None = None
    function: RecordSerializer | None = None
    problems: tuple[Problem, ...] = attrs.field(default=(), eq=False, repr=False)
    where: Where = attrs.field(factory=Where, eq=False, repr=False)

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Create a fluent builder of a serializer."""
        return KafkaRecordSerializationSchemaBuilder()

    @classmethod
    def of(
        cls, function: RecordSerializer, *, topic: str | None = None, topics: Sequence[str] = ()
    ) -> KafkaRecordSerializationSchema:
        """Describe records that a function makes, with topic, partition, key, value, headers and timestamp.

        Mistakes are reported when the sink is built.

        Args:
            function: Gets Arrow batches of the DataFrame; returns batches with some of the columns ``topic`` (string),
                ``partition`` (int; NULL leaves it to the partitioner), ``key`` and ``value`` (binary; NULL means
                none), ``headers`` (a list of structs of key and value) and ``timestamp``. It must be picklable.
            topic: The topic of all records; then the function need not return it.
            topics: The topics that the function may choose; empty means any.
        """
        where = caller_location()
        problems = []
        if not callable(function):
            problems.append(Problem("serializer", f"{function!r} is not a function", "pass a function", where))
        if topic is not None and topics:
            problems.append(Problem("serializer-topic", "topic= and topics= are both set", "keep one of them", where))
        return cls(topic=topic, topics=tuple(topics), function=function, problems=tuple(problems), where=where)

    def describe(self) -> list[str]:
        """Return lines for ``explain``: what the plan does not contain."""
        if self.function is not None:
            return [f"records by {function_name(self.function)}"]
        return [f"{name} = {expression.text}" for name, expression in self.row_expressions().items()]

    def row_expressions(self) -> dict[str, RowExpression]:
        """Those of the parts topic, headers and timestamp that are computed for each row, by these names."""
        parts = {"topic": self.topic_selector, "headers": self.headers, "timestamp": self.timestamp}
        return {name: expression for name, expression in parts.items() if expression is not None}

    def runs_python(self) -> bool:
        """Whether it calls a function of the user's: for whole records, or for topic, headers or timestamp."""
        expressions = self.row_expressions().values()
        return self.function is not None or any(expression.function is not None for expression in expressions)

    def fields(self, side: Side) -> tuple[t.Field, ...]:
        """The columns of the key or of the value; none without a schema for it."""
        schema = self.key if side == "key" else self.value
        return () if schema is None else schema.fields(side)


class KafkaRecordSerializationSchemaBuilder:
    """Describes call by call how rows become records; a value schema and a topic or topic selector are required."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}
        self._problems: list[Problem] = []

    def _set(self, setting: str, value: Any, method: str) -> Self:
        """Store a setting, in place of an earlier value, record a repetition as a problem, and return the builder."""
        if setting in self._settings:
            message = f"{method}() is called twice, and the first call would be lost"
            self._problems.append(Problem("builder-twice", message, "call it once", caller_location()))
        self._settings[setting] = value
        return self

    def set_topic(self, topic: str) -> Self:
        """Set the topic of all records."""
        return self._set("topic", topic, "set_topic")

    def set_topic_selector(self, selector: str | Column | TopicFunction, *, topics: Sequence[str] = ()) -> Self:
        """Set what chooses the topic of each row. `build` reports SQL that cannot be parsed.

        Args:
            selector: A Spark column, a SQL expression (``"concat('orders-', region)"``), a function from an Arrow batch
                of rows to an array of strings, or a function from a single `pyspark.sql.Row` to a string, which is
                called for each row and is therefore slow.
            topics: The allowed topics; a row with another topic is an error. Empty means any.
        """
        self._settings["topics"] = tuple(topics)
        return self._set(
            "topic_selector", self._convert_expression(selector, "set_topic_selector"), "set_topic_selector"
        )

    def set_key_serialization_schema(self, schema: MessageSchema) -> Self:
        """Set the schema of the key; its columns are matched with the DataFrame's by name.

        `build` reports its problems, or that it is not a schema.
        """
        return self._set_schema("key", schema, "set_key_serialization_schema")

    def set_value_serialization_schema(self, schema: MessageSchema) -> Self:
        """Set the schema of the value; its columns are matched with the DataFrame's by name.

        `build` reports its problems, or that it is not a schema.
        """
        return self._set_schema("value", schema, "set_value_serialization_schema")

    def set_kafka_key_serializer(self, name: KafkaSerializer, column: str = "key") -> Self:
        """Set one of Kafka's own serializers for the key, which is one column; `build` reports an unknown one."""
        schema = kafka_schema(name, "Serializer", caller_location(), column)
        return self._set_schema("key", schema, "set_kafka_key_serializer")

    def set_kafka_value_serializer(self, name: KafkaSerializer, column: str = "value") -> Self:
        """Set one of Kafka's own serializers for the value, which is one column; `build` reports an unknown one."""
        schema = kafka_schema(name, "Serializer", caller_location(), column)
        return self._set_schema("value", schema, "set_kafka_value_serializer")

    def set_partitioner(self, partitioner: str | Partitioner) -> Self:
        """Set ``default``, ``fixed``, ``round-robin``, or a function (see `kdsl.callbacks`) or its name.

        `build` reports a function that executors cannot import.
        """
        if callable(partitioner):
            try:
                partitioner = import_name(partitioner)
            except FunctionError as e:
                message = f"executors cannot import the function of set_partitioner(): {e.reason}"
                self._problems.append(Problem("partitioner", message, e.fix, caller_location()))
                partitioner = "default"
        return self._set("partitioner", partitioner, "set_partitioner")

    def set_header_provider(self, headers: Headers | str | Column | ColumnFunction) -> Self:
        """Set the headers of each record. `build` reports SQL that cannot be parsed.

        Args:
            headers: The same for all (``{"source": b"shop"}``, strings in UTF-8); or a Spark column, a SQL expression
                or an Arrow function that returns a map, or a list of structs of key and value.
        """
        if isinstance(headers, Mapping):
            pairs = tuple((k, v.encode() if isinstance(v, str) else v) for k, v in headers.items())
            return self._set("headers", RowExpression(listing(dict(pairs)), constant=pairs), "set_header_provider")
        return self._set("headers", self._convert_expression(headers, "set_header_provider"), "set_header_provider")

    def set_timestamp(self, timestamp: str | Column | ColumnFunction) -> Self:
        """Set the timestamp of each record; by default the event time of its row, if the DataFrame has one.

        `build` reports SQL that cannot be parsed.

        Args:
            timestamp: A Spark column, a SQL expression or an Arrow function; integers are milliseconds since
                1970-01-01 UTC. NULL means the time of sending; thus ``set_timestamp("NULL")`` writes no event time.
        """
        return self._set("timestamp", self._convert_expression(timestamp, "set_timestamp"), "set_timestamp")

    def build(self) -> KafkaRecordSerializationSchema:
        """Build the serializer.

        Raises:
            ResolveError: A setting is missing, wrong, made twice, or contradicts another; all problems are reported at
                once.
        """
        where = caller_location()
        problems = [*self._problems]
        for side in ("key", "value"):
            schema: MessageSchema | None = self._settings.get(side)
            problems += schema.problems if schema is not None else ()
        if "value" not in self._settings:
            message = "nothing defines how the value is written"
            fix = (
                "add set_value_serialization_schema(FormatSchema(Json(), 'id BIGINT')), or set_kafka_value_serializer()"
            )
            problems.append(Problem("serializer-value", message, fix))
        if "topic" in self._settings and "topic_selector" in self._settings:
            message = "set_topic() and set_topic_selector() both choose the topic of the records"
            problems.append(Problem("serializer-topic", message, "keep one of them"))
        if "topic" not in self._settings and "topic_selector" not in self._settings:
            message = "nothing chooses the topic of the records"
            problems.append(Problem("serializer-topic", message, "add set_topic('orders'), or set_topic_selector()"))
        built_at = f" ({where.location})" if where.location else ""
        fail_on(dict.fromkeys(p.at(where) for p in problems), f"KafkaRecordSerializationSchema{built_at}")
        return KafkaRecordSerializationSchema(**self._settings, where=where)

    def _set_schema(self, side: str, schema: object, method: str) -> Self:
        """Set the schema of a side, or record a problem if it is not a schema or set twice; return the builder."""
        if not isinstance(schema, MessageSchema):
            message = f"{method}() expects a schema, not {schema!r}"
            fix = "write SimpleStringSchema(), or a FormatSchema"
            self._problems.append(Problem("serializer-schema", message, fix, caller_location()))
            schema = SimpleStringSchema()  # no schema would be a second problem
        return self._set(side, schema, method)

    def _convert_expression(self, value: str | Column | TopicFunction, method: str) -> RowExpression:
        """Convert SQL, a Column or a function to an expression of a row.

        SQL that Spark cannot parse is recorded as a problem, and becomes an expression all the same.
        """
        if isinstance(value, str):
            reason = syntax_error(str(value))
            if reason is not None:
                message = f"{method}() has the SQL expression {str(value)!r}, which Spark cannot parse: {reason}"
                fix = "correct the expression; write a column's name as it is, a fixed string in quotes: \"'orders'\""
                self._problems.append(Problem("serializer-sql", message, fix, caller_location()))
            return RowExpression(str(value))
        if callable(value) and not hasattr(value, "cast"):  # a Column of either kind can be cast
            return RowExpression(function_name(value), function=value)
        return RowExpression(str(value), column=value)  # type: ignore[arg-type]
