"""The watermark of a plan on a streaming DataFrame.

Spark's watermark stands on TIMESTAMP columns only, which are Flink's TIMESTAMP_LTZ. For a column of wall-clock time
(TIMESTAMP, Spark's TIMESTAMP_NTZ) it is taken from an instant beside it that has the same number of microseconds, and
the column itself is marked as the one of event time: operators compare that number with the watermark.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from kdsl.declare.translate.times import micros
from kdsl.durations import parse_duration
from kdsl.plan.model import Watermark
from kdsl.types.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MARK = "spark.watermarkDelayMs"
_BESIDE = "__kdsl_event_time"


def instant(name: str) -> str:
    """The SQL of the instant that has as many microseconds as a wall-clock time, whatever the session's zone.

    Args:
        name: The SQL of the wall-clock time.
    """
    return f"timestamp_micros({micros(name)})"


def with_watermark(df: DataFrame, watermark: Watermark) -> DataFrame:
    """A stream with a watermark on a column of time.

    Args:
        df: The stream.
        watermark: The column, and how late a row may be.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import TimestampNTZType

    text = delay_text(watermark)
    if not isinstance(df.schema[watermark.column].dataType, TimestampNTZType):
        return df.withWatermark(watermark.column, text)
    beside = df.withColumn(_BESIDE, sf.expr(instant(quoted(watermark.column)))).withWatermark(_BESIDE, text)
    return marked(beside, watermark).drop(_BESIDE)


def delay_text(watermark: Watermark) -> str:
    """How late a row may be, as Spark reads it."""
    return f"{parse_duration(watermark.delay) // timedelta(microseconds=1)} microseconds"


def marked(df: DataFrame, watermark: Watermark) -> DataFrame:
    """A stream whose watermark is made from something beside: its column is marked as the one of event time."""
    from pyspark.sql import functions as sf

    delay = parse_duration(watermark.delay) // timedelta(milliseconds=1)
    column = sf.col(quoted(watermark.column)).alias(watermark.column, metadata={_MARK: delay})
    return df.select(*(column if n == watermark.column else sf.col(quoted(n)) for n in df.columns))
