"""Spark's ``from_json`` as the measure of formats: rows per second of processor time of the parsing alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from bench.paired import timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def session() -> SparkSession:
    """A session of one core."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )


def from_json_rate(spark: SparkSession, texts: list[str], schema: str, *, times: int = 5, copies: int = 20) -> float:
    """Rows per second of processor time: a run that parses, without what the same run costs that does not.

    Args:
        spark: The session.
        texts: The messages.
        schema: Their schema, as DDL.
        times: Runs of which the best counts.
        copies: How often the messages are taken, so that a run is long enough.
    """
    from pyspark.sql import functions as F

    found = spark.createDataFrame(pa.table({"value": pa.array(texts, pa.string())}))
    lines = found.crossJoin(spark.range(copies)).select("value").coalesce(1).cache()
    count = lines.count()
    parsed = lines.select(F.from_json("value", schema).alias("row")).select(F.hash("row"))

    def seconds(df: DataFrame) -> float:
        runs = [timed(lambda: df.write.format("noop").mode("overwrite").save()).cpu for _ in range(times + 1)]
        return min(runs[1:])

    cost = seconds(parsed) - seconds(lines.select(F.hash("value")))
    lines.unpersist()
    return count / max(cost, 1e-9)
