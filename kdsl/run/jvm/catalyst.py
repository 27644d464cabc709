"""Decodes and encodes records with Spark's own expressions, for real-time mode, which runs no Python.

It covers only what Spark can do exactly as the formats do; `kdsl.resolve.transport` refuses the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdsl.plan.model import MetadataColumn, Part, ReadPlan, WritePlan
from kdsl.run.java_clients.options import anchor_pattern
from kdsl.run.records.encode import names_topics
from kdsl.run.records.metadata import TIMESTAMP_TYPES
from kdsl.types import model as t
from kdsl.types.spark import spark_type
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def decode_columns(df: DataFrame, plan: ReadPlan) -> DataFrame:
    """Decode the plan's columns from raw records, as `kdsl.run.records.decode.RecordDecoder` does.

    A key or value that is NULL in a NOT NULL column fails the job.

    Args:
        df: The columns of Spark's Kafka source.
        plan: The read plan: keys and values of the format ``raw``, metadata in its own types.
    """
    from pyspark.sql import functions as sf

    by_name: dict[str, Column] = {}
    for source, part in (("key", plan.key), ("value", plan.value)):
        if part is not None:
            by_name[part.columns[0]] = _text_or_bytes(part, sf.col(source))
    by_name |= {m.column: _metadata(m) for m in plan.metadata}
    columns = []
    for field in plan.columns.fields:
        column = by_name[field.name]
        if not field.type.nullable and field.name not in {m.column for m in plan.metadata}:
            column = sf.coalesce(column, _missing(plan, field))
        columns.append(column.cast(spark_type(field.type)).alias(field.name))
    return df.select(*columns)


def _text_or_bytes(part: Part, value: Column) -> Column:
    """Return a key or value as the type of its column: bytes, or a string with invalid UTF-8 replaced."""
    from pyspark.sql import functions as sf

    if isinstance(part.row.fields[0].type, t.Binary | t.VarBinary):
        return value
    return sf.make_valid_utf8(value.cast("string"))


def _missing(plan: ReadPlan, field: t.Field) -> Column:
    """Return a column whose evaluation fails the job: an error with topic, partition and offset of a missing value."""
    from pyspark.sql import functions as sf

    return sf.raise_error(
        sf.concat(
            sf.lit(f"read {plan.table}: topic "),
            sf.col("topic"),
            sf.lit(", partition "),
            sf.col("partition").cast("string"),
            sf.lit(", offset "),
            sf.col("offset").cast("string"),
            sf.lit(
                f": column {field.name!r} is NULL, but it is declared NOT NULL; declare it nullable: {field.name}: … | "
                "None (in SQL without NOT NULL)"
            ),
        )
    )


def _metadata(column: MetadataColumn) -> Column:
    """Return the column of a metadata key, computed from the columns of Spark's Kafka source.

    A missing timestamp is NULL if the column is nullable. Of headers with the same name, a map has the last one.
    """
    from pyspark.sql import functions as sf

    match column.key:
        case "topic" | "partition" | "offset":
            return sf.col(column.key)
        case "__raw_key__" | "__raw_value__":
            return sf.col(column.key.strip("_").removeprefix("raw_"))
        case "timestamp":
            known = sf.col("timestamp") > sf.timestamp_millis(sf.lit(-1))
            return sf.when(known, sf.col("timestamp")) if column.type.nullable else sf.col("timestamp")
        case "timestamp-type":
            name_of_type = sf.lit(None)
            for code, name in enumerate(TIMESTAMP_TYPES, -1):
                name_of_type = sf.when(sf.col("timestampType") == code, sf.lit(name)).otherwise(name_of_type)
            return name_of_type
        case "header-list":
            # Spark takes the keys for nullable, which those of Kafka's headers never are.
            headers = sf.transform("headers", lambda h: _header(sf.coalesce(h["key"], sf.lit("")), h["value"]))
            return sf.coalesce(headers, sf.array())
        case _:  # for a repeated name, the last header is used
            return sf.coalesce(
                sf.expr(
                    "map_from_entries(filter(headers, (h, i) -> NOT exists(slice(headers, i + 2, size(headers)), "
                    "later -> later.key = h.key)))"
                ),
                sf.map_from_arrays(sf.array(), sf.array()),
            )


def _header(key: Column, value: Column) -> Column:
    """Return a struct with a header's key and value."""
    from pyspark.sql import functions as sf

    return sf.struct(key.alias("key"), value.alias("value"))


def encode_columns(df: DataFrame, plan: WritePlan) -> DataFrame:
    """Encode rows as raw records, as `kdsl.run.records.encode.RecordEncoder` does.

    A NULL in a NOT NULL column, and a topic that the table does not have, fail the job.

    Args:
        df: The plan's columns.
        plan: The write plan: keys and values of the format ``raw``, metadata in its own types.

    Returns:
        Columns that Spark's Kafka sink takes: ``key``, ``value``, ``topic``, and ``headers`` if the table writes them.
    """
    return df.select(*_record_columns(plan))


def _record_columns(plan: WritePlan) -> Iterator[Column]:
    """Yield the columns of `encode_columns`; a forbidden NULL or topic fails the job when it is computed.

    Headers without a name are left out.
    """
    from pyspark.sql import functions as sf

    metadata = {m.key: m.column for m in plan.metadata}
    required = {f.name for f in plan.columns.fields if not f.type.nullable}

    def column(name: str) -> Column:
        value = sf.col(quote_name(name))
        if name not in required:
            return value
        return sf.coalesce(
            value,
            sf.raise_error(
                sf.lit(
                    f"write {plan.table}: {name!r} is NULL, but declared NOT NULL; give it a value, or declare it "
                    "nullable"
                )
            ),
        )

    for field, part, raw in (("key", plan.key, "__raw_key__"), ("value", plan.value, "__raw_value__")):
        name = metadata.get(raw) or (part.columns[0] if part else None)
        message = sf.lit(None) if name is None else column(name)
        yield message.cast("binary").alias(field)
    if not names_topics(plan.topics):
        yield sf.lit(plan.topics.names[0]).alias("topic")
    else:
        topic = sf.col(quote_name(metadata["topic"]))
        yield sf.coalesce(_allow_topic(plan, topic), _no_topic(plan, topic)).alias("topic")
    for key in metadata.keys() & {"headers", "header-list"}:
        headers = sf.col(quote_name(metadata[key]))
        entries = headers if key == "header-list" else sf.map_entries(headers)
        with_key = sf.filter(sf.coalesce(entries, sf.array()), lambda h: h["key"].isNotNull())
        yield sf.transform(with_key, lambda h: _header(h["key"], h["value"].cast("binary"))).alias("headers")


def _allow_topic(plan: WritePlan, topic: Column) -> Column:
    """Return a column with the topic of a row if the table allows it, otherwise NULL."""
    from pyspark.sql import functions as sf

    pattern = plan.topics.pattern
    fits = topic.isin(list(plan.topics.names)) if pattern is None else topic.rlike(anchor_pattern(pattern))
    return sf.when(fits, topic)


def _no_topic(plan: WritePlan, topic: Column) -> Column:
    """Return a column whose evaluation fails the job with an error about a topic that the table does not have."""
    from pyspark.sql import functions as sf

    prefix = sf.lit(f"write {plan.table}: a row names the topic ")
    return sf.raise_error(
        sf.concat(prefix, sf.coalesce(topic, sf.lit("NULL")), sf.lit(f"; the table has {plan.topics}"))
    )
