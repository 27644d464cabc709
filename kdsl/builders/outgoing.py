"""A DataFrame made ready for a sink of the builder: what is chosen for each row becomes a column of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kdsl.builders.batches import Added, Mapped
from kdsl.builders.calls import function_name
from kdsl.builders.serializers import TYPES, Chosen, KafkaRecordSerializationSchema, RecordSerializer
from kdsl.declare.definition import ColumnDef
from kdsl.declare.metadata import METADATA
from kdsl.types import model as t
from kdsl.types.spark import spark_schema, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEYS: Mapping[str, str] = {
    "topic": "topic",
    "headers": "header-list",
    "timestamp": "timestamp",
    "key": "__raw_key__",
    "value": "__raw_value__",
}
PARTITION = "__partition__"


def hidden(name: str) -> str:
    """The column of a piece of a record, beside those of the user."""
    return f"__{name}__"


def record_fields(serializer: KafkaRecordSerializationSchema) -> tuple[str, ...]:
    """What a function that makes whole records gives: all of it, but for a topic that is given."""
    return tuple(name for name in TYPES if name != "topic" or serializer.topic is None)


def metadata_columns(serializer: KafkaRecordSerializationSchema) -> tuple[ColumnDef, ...]:
    """The metadata columns of the definition behind a sink; the partition of a record stands in the plan alone."""
    names = record_fields(serializer) if serializer.function is not None else tuple(serializer.chosen())
    return tuple(
        ColumnDef(hidden(name), METADATA[_KEYS[name]].type.as_nullable(), role="metadata", metadata_key=_KEYS[name])
        for name in names
        if name in _KEYS
    )


def by_function(df: DataFrame, function: RecordSerializer, fields: tuple[str, ...]) -> DataFrame:
    """The records that a function makes of the rows."""
    from pyspark.sql import functions as F

    row = t.Row(tuple(t.Field(name, TYPES[name]) for name in fields), nullable=False)
    mapped = df.mapInArrow(Mapped(function, function_name(function), row, optional=True), spark_schema(row))
    return mapped.select(*(F.col(name).alias(hidden(name)) for name in row.names))


def with_chosen(df: DataFrame, chosen: Mapping[str, Chosen]) -> DataFrame:
    """The rows with the columns that are chosen for each of them."""
    from pyspark.sql import types as s

    functions = {name: one for name, one in chosen.items() if one.function is not None}
    columns = {hidden(name): _column(one) for name, one in chosen.items() if one.function is None}
    before = df
    if columns:
        df = df.withColumns(columns)
        df = df.withColumns({hidden(n): _typed(df, n) for n in chosen if hidden(n) in columns})
    if functions:
        made = {hidden(n): (one.function, one.text, TYPES[n]) for n, one in functions.items() if one.function}
        added = [s.StructField(hidden(name), spark_type(TYPES[name])) for name in functions]
        df = df.mapInArrow(Added(made, tuple(before.columns)), s.StructType([*df.schema.fields, *added]))
    return df


def _column(chosen: Chosen) -> Column:
    from pyspark.sql import functions as F

    if chosen.column is not None:
        return chosen.column
    if not chosen.constant:
        return F.expr(chosen.text)
    pairs = [F.struct(F.lit(key).alias("key"), F.lit(value).alias("value")) for key, value in chosen.constant]
    return F.array(*pairs)


def _typed(df: DataFrame, name: str) -> Column:
    """A chosen column in the type of the record: whole numbers are milliseconds, maps are lists of headers."""
    from pyspark.sql import (
        functions as F,
        types as s,
    )

    column, given = F.col(hidden(name)), df.schema[hidden(name)].dataType
    if name == "timestamp" and isinstance(given, s.IntegralType):
        return F.timestamp_millis(column)
    if name == "headers" and isinstance(given, s.MapType):
        column = F.map_entries(column)
    return column.cast(spark_type(TYPES[name]))
