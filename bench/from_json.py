"""The baseline of the formats: the rows that Spark's ``from_json`` parses per second of processor time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from bench.paired import measure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def session() -> SparkSession:
    """A session with one core."""
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
    """Messages in memory, and runs over them with and without parsing.

    Args:
        spark: The session.
        strings: The messages.
        schema: Their schema, as DDL.
        copies: How often the messages are repeated, so that a run is long enough.
    """

    def __init__(self, spark: SparkSession, strings: list[str], schema: str, copies: int = 20) -> None:
        from pyspark.sql import functions as F

        messages = spark.createDataFrame(pa.table({"value": pa.array(strings, pa.string())}))
        self._lines = messages.crossJoin(spark.range(copies)).select("value").coalesce(1).cache()
        self.count = self._lines.count()
        """The number of messages in a run."""
        self._parsed = self._lines.select(F.from_json("value", schema).alias("row")).select(F.hash("row"))
        self._bare = self._lines.select(F.hash("value"))

    def parse(self) -> float:
        """The processor time of a run with parsing, in seconds."""
        return _seconds(self._parsed)

    def bare(self) -> float:
        """The processor time of the same run without parsing, in seconds."""
        return _seconds(self._bare)

    def close(self) -> None:
        """Remove the messages from memory."""
        self._lines.unpersist()


def from_json_rate(spark: SparkSession, strings: list[str], schema: str, *, times: int = 5, copies: int = 20) -> float:
    """Measure rows per second of processor time: a run with parsing, less the same run without it.

    Args:
        spark: The session.
        strings: The messages.
        schema: Their schema, as DDL.
        times: The number of runs; the best counts.
        copies: How often the messages are repeated, so that a run is long enough.
    """
    parsing = Parsing(spark, strings, schema, copies)
    parse, bare = ([run() for _ in range(times + 1)][1:] for run in (parsing.parse, parsing.bare))
    parsing.close()
    return parsing.count / max(min(parse) - min(bare), 1e-9)


def _seconds(df: DataFrame) -> float:
    return measure(lambda: df.write.format("noop").mode("overwrite").save()).cpu
