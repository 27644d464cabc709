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
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )


class Parsing:
    """Messages in memory, and runs over them that parse or do not.

    Args:
        spark: The session.
        texts: The messages.
        schema: Their schema, as DDL.
        copies: How often the messages are taken, so that a run is long enough.
    """

    def __init__(self, spark: SparkSession, texts: list[str], schema: str, copies: int = 20) -> None:
        from pyspark.sql import functions as F

        found = spark.createDataFrame(pa.table({"value": pa.array(texts, pa.string())}))
        self._lines = found.crossJoin(spark.range(copies)).select("value").coalesce(1).cache()
        self.count = self._lines.count()
        """How many messages a run has."""
        self._parsed = self._lines.select(F.from_json("value", schema).alias("row")).select(F.hash("row"))
        self._bare = self._lines.select(F.hash("value"))

    def parse(self) -> float:
        """Seconds of processor time of a run that parses."""
        return _seconds(self._parsed)

    def bare(self) -> float:
        """Seconds of processor time of the same run without the parsing."""
        return _seconds(self._bare)

    def close(self) -> None:
        """Let the messages go."""
        self._lines.unpersist()


def from_json_rate(spark: SparkSession, texts: list[str], schema: str, *, times: int = 5, copies: int = 20) -> float:
    """Rows per second of processor time: a run that parses, without what the same run costs that does not.

    Args:
        spark: The session.
        texts: The messages.
        schema: Their schema, as DDL.
        times: Runs of which the best counts.
        copies: How often the messages are taken, so that a run is long enough.
    """
    parsing = Parsing(spark, texts, schema, copies)
    parse, bare = ([run() for _ in range(times + 1)][1:] for run in (parsing.parse, parsing.bare))
    parsing.close()
    return parsing.count / max(min(parse) - min(bare), 1e-9)


def _seconds(df: DataFrame) -> float:
    return timed(lambda: df.write.format("noop").mode("overwrite").save()).cpu
