"""Prepares a DataFrame for a sink: what is computed for each row becomes a column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kdsl.datastream.batches import AddedColumn, BatchMapper, ColumnAppender
from kdsl.datastream.calls import function_name
from kdsl.datastream.serializers import RECORD_TYPES, KafkaRecordSerializationSchema, RecordSerializer, RowExpression
from kdsl.declare.definition import ColumnDef
from kdsl.declare.metadata import METADATA, RECORD_FIELDS
from kdsl.errors import Problem, fail_on, listing
from kdsl.own_columns import is_reserved
from kdsl.spark_internals.arrow import map_in_arrow
from kdsl.spark_internals.columns import cast_or_null
from kdsl.spark_internals.sql_text import parse_column
from kdsl.types import model as t
from kdsl.types.spark import spark_schema, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEYS = {name: RECORD_FIELDS[name] for name in ("topic", "headers", "timestamp", "key", "value")}
_METHODS: Mapping[str, tuple[str, str]] = {
    "topic": ("set_topic_selector", "a STRING, with a cast if its string form is really the name of a topic"),
    "headers": ("set_header_provider", "a MAP, or an ARRAY of STRUCTs of key and value"),
    "timestamp": ("set_timestamp", "a TIMESTAMP, or an integer of milliseconds since 1970-01-01 UTC"),
}
"""For each part of a record that is computed per row: the method of the serializer's builder, and the allowed types."""
PARTITION = "__partition__"


def hidden_column(name: str) -> str:
    """The name of the column that holds a part of a record, among the user's columns."""
    return f"__{name}__"


def record_fields(serializer: KafkaRecordSerializationSchema) -> tuple[str, ...]:
    """The parts that a function over whole records returns: all, except the topic if it is fixed."""
    return tuple(name for name in RECORD_TYPES if name != "topic" or serializer.topic is None)


def metadata_columns(serializer: KafkaRecordSerializationSchema) -> tuple[ColumnDef, ...]:
    """The metadata columns of a sink's table definition: the parts of a record that are computed for each row.

    A function over rows computes all parts, also key and value. The columns are nullable, and have the names of
    `hidden_column`. The partition of a record is only in the plan.
    """
    names = record_fields(serializer) if serializer.function is not None else tuple(serializer.row_expressions())
    return tuple(
        ColumnDef(
            hidden_column(name), METADATA[_KEYS[name]].type.as_nullable(), role="metadata", metadata_key=_KEYS[name]
        )
        for name in names
        if name in _KEYS
    )


def serialize_rows(df: DataFrame, function: RecordSerializer, fields: tuple[str, ...]) -> DataFrame:
    """Return the records that a function makes of the rows: a hidden column (`hidden_column`) for each of ``fields``.

    The function runs in Spark's tasks, when the result is read.

    Args:
        df: The rows.
        function: The user's function.
        fields: The parts of a record that it returns; it may leave out nullable ones, which are then NULL.
    """
    from pyspark.sql import functions as F

    row = t.Row(tuple(t.Field(name, RECORD_TYPES[name]) for name in fields), nullable=False)
    mapper = BatchMapper(function, function_name(function), row, optional=True)
    mapped = map_in_arrow(df, mapper, spark_schema(row))
    return mapped.select(*(F.col(name).alias(hidden_column(name)) for name in row.names))


def add_row_expressions(df: DataFrame, expressions: Mapping[str, RowExpression], sink: str) -> DataFrame:
    """Return the rows with a hidden column (`hidden_column`) for each expression; functions run in Spark's tasks.

    Args:
        df: The rows.
        expressions: The expressions, by the part of a record that they compute.
        sink: The sink's name in messages.
    """
    from pyspark.sql import types as s

    visible = tuple(df.columns)
    functions = {
        hidden_column(name): AddedColumn(
            expression.function, expression.text, RECORD_TYPES[name], by_row=name == "topic"
        )
        for name, expression in expressions.items()
        if expression.function is not None
    }
    problems: list[Problem] = []
    for name, expression in expressions.items():
        if expression.function is None:
            column = _cast_column(df, name, expression, problems)
            df = df if column is None else df.withColumn(hidden_column(name), column)
    fail_on(problems, sink)
    if functions:
        fields = [s.StructField(name, spark_type(column.type)) for name, column in functions.items()]
        df = map_in_arrow(df, ColumnAppender(functions, visible), s.StructType([*df.schema.fields, *fields]))
    return df


def _column(expression: RowExpression) -> Column:
    """Return the Spark column of an expression: the user's, parsed SQL, or constant headers as an array of structs."""
    from pyspark.sql import functions as F

    if expression.column is not None:
        return expression.column
    if not expression.constant:
        return parse_column(expression.text)
    pairs = [F.struct(F.lit(key).alias("key"), F.lit(value).alias("value")) for key, value in expression.constant]
    return F.array(*pairs)


def _cast_column(df: DataFrame, name: str, expression: RowExpression, problems: list[Problem]) -> Column | None:
    """Cast an expression without a function to the type of its part of a record: topic, timestamp or headers.

    Integers are milliseconds, and maps are lists of headers. A string that is not a timestamp fails the Spark job. If
    Spark rejects the expression, or its type does not fit, a problem is added, and None returned.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import (
        functions as F,
        types as s,
    )

    method, expected = _METHODS[name]
    try:
        column = _column(expression)
        kind = df.select(column.alias(name)).schema[name].dataType
    except AnalysisException as e:  # a ParseException, too
        message = (
            f"{method}() has {expression.text!r}, which Spark rejects for this DataFrame: {str(e).splitlines()[0]}"
        )
        fix = f"correct the expression; the columns are {listing(c for c in df.columns if not is_reserved(c))}"
        problems.append(Problem("serializer-column", message, fix))
        return None
    kinds: dict[str, tuple[type[s.DataType], ...]] = {
        "topic": (s.StringType, s.VarcharType, s.CharType),
        "timestamp": (s.TimestampType, s.TimestampNTZType, s.DateType, s.IntegralType, s.StringType),
        "headers": (s.MapType, s.ArrayType),
    }
    if not isinstance(kind, (*kinds[name], s.NullType)):
        message = f"{method}() has {expression.text!r}, which is {kind.simpleString()} in this DataFrame"
        problems.append(Problem("serializer-column", message, f"make it {expected}"))
        return None
    if isinstance(kind, s.IntegralType):
        return F.timestamp_millis(column)
    if name == "timestamp" and isinstance(kind, s.StringType):  # without ANSI mode a bad string would be NULL: now
        reason = F.concat(F.lit(f"{method}(): the string '"), column, F.lit("' is not a timestamp"))
        return F.coalesce(cast_or_null(column), F.when(column.isNotNull(), F.raise_error(reason)))
    if isinstance(kind, s.MapType):
        column = F.map_entries(column)
    return column.cast(spark_type(RECORD_TYPES[name]))
