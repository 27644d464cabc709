"""Reads the dead letters of a table as a DataFrame of the original records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.plan.model import MetadataColumn, ReadPlan, Start, Topics
from kdsl.run.dead_letters.cluster import letter_cluster
from kdsl.run.dead_letters.headers import (
    ATTEMPTS,
    CONNECT,
    OFFSET,
    OWN,
    PARTITION,
    REASON,
    SIDE,
    TABLE,
    TIMESTAMP,
    TOPIC,
)
from kdsl.run.read import read
from kdsl.spark_versions import PYTHON_SOURCES
from kdsl.types import model as t

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_HEADER = t.Row((t.Field("key", t.STRING), t.Field("value", t.BYTES)))
_COLUMNS = (
    ("key", "__raw_key__", t.BYTES),
    ("value", "__raw_value__", t.BYTES),
    ("sent", "timestamp", t.TimestampLtz(3)),
    ("headers", "header-list", t.Array(_HEADER)),
)


def read_letters(spark: SparkSession, plan: ReadPlan, cluster: Cluster) -> DataFrame:
    """Read the dead letters of a plan's table, up to the present end of their topic; those of other tables are skipped.

    They are read by librdkafka, whatever the plan's transport is, unless Spark has no data sources in Python. The
    session changes as by a `read`.

    Args:
        spark: The session.
        plan: The read plan of the table.
        cluster: The cluster that the table is read from.

    Returns:
        The columns ``table``, ``side``, ``reason``, ``attempts``, ``topic``, ``partition``, ``offset``, ``timestamp``,
        ``headers``, ``key``, ``value``: the records as they were, without the headers that letters add. A column is
        NULL where the letter does not have its header; ``timestamp``, too, where the record had none.
    """
    from pyspark.sql import functions as F

    at = letter_cluster(plan, cluster)
    if plan.dead_letters is None or at is None:
        raise KdslError(
            f"{plan.table} declares no dead letters; write dead_letters=DeadLetters('{plan.table.lower()}.dead'), in "
            "SQL and YAML 'scan.dead-letter.topic'"
        )
    columns = t.Row(tuple(t.Field(name, kind) for name, _, kind in _COLUMNS), nullable=False)
    letters = ReadPlan(
        table=plan.table,
        topics=Topics((plan.dead_letters.topic,)),
        start=Start("earliest"),
        group_id=plan.group_id,
        transport="librdkafka" if PYTHON_SOURCES.is_in(spark.version) else "jvm",
        metadata=tuple(MetadataColumn(*column) for column in _COLUMNS),
        columns=columns,
        output=columns,
    )
    records = read(spark, letters, at)

    def text(name: str) -> Column:
        matching = F.filter("headers", lambda header: header["key"] == name)
        return F.try_element_at(matching, F.lit(-1))["value"].cast("string")

    def is_own(header: Column) -> Column:
        return header["key"].startswith(CONNECT) | header["key"].startswith(OWN)

    millis = text(TIMESTAMP).cast("bigint")
    original = F.when(millis.isNull(), F.col("sent")).when(millis >= 0, F.timestamp_millis(millis))
    return records.where(text(TABLE) == plan.table).select(
        text(TABLE).alias("table"),
        text(SIDE).alias("side"),
        text(REASON).alias("reason"),
        text(ATTEMPTS).cast("int").alias("attempts"),
        text(TOPIC).alias("topic"),
        text(PARTITION).cast("int").alias("partition"),
        text(OFFSET).cast("bigint").alias("offset"),
        original.alias("timestamp"),
        F.filter("headers", lambda header: ~is_own(header)).alias("headers"),
        "key",
        "value",
    )
