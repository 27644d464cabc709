"""The watermark of a plan on a streaming DataFrame.

Spark supports watermarks on TIMESTAMP columns only, which are Flink's TIMESTAMP_LTZ. For a column of wall-clock time
(TIMESTAMP, Spark's TIMESTAMP_NTZ), an additional column has the instant with the same number of microseconds and gets
the watermark. The column itself is marked as event time: operators compare that number with the watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from kdsl.durations import parse_duration
from kdsl.own_columns import EVENT_TIME_INSTANT
from kdsl.plan.model import Watermark
from kdsl.spark_internals.sql_text import parse_column
from kdsl.types.sql import microseconds_between, quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT_TIME_MARK = "spark.watermarkDelayMs"
"""The metadata key of a column that has Spark's watermark."""


def instant(name: str) -> str:
    """The SQL of the instant that has as many microseconds as a wall-clock time (SQL), whatever the session's zone."""
    return f"timestamp_micros({microseconds_between(name)})"


def with_watermark(df: DataFrame, watermark: Watermark, names: Sequence[str], *, wall_clock: bool) -> DataFrame:
    """Return a stream with a watermark on its column of time; the rows are unchanged. Spark is not asked for columns.

    Times that are too far ahead of the clock (`Watermark.max_ahead`) do not advance it.

    Args:
        df: The stream.
        watermark: The watermark.
        names: The columns of the stream.
        wall_clock: Whether the column of time is a wall-clock time (TIMESTAMP), not an instant (TIMESTAMP_LTZ).
    """
    delay, column = parse_duration(watermark.delay), quote_name(watermark.column)
    text = f"{delay // timedelta(microseconds=1)} microseconds"
    if not wall_clock and watermark.max_ahead is None:
        return df.withWatermark(column, text)  # Spark parses the name
    time = instant(column) if wall_clock else column
    if watermark.max_ahead is not None:
        ahead = watermark.max_ahead // timedelta(microseconds=1)
        # Spark takes NULL for 1970. The clock is that of the batch, which stays the same when it is repeated.
        time = f"CASE WHEN {time} <= timestampadd(MICROSECOND, {ahead}, current_timestamp()) THEN {time} END"
    beside = df.withColumn(EVENT_TIME_INSTANT, parse_column(time))
    beside = beside.withWatermark(quote_name(EVENT_TIME_INSTANT), text)
    return mark_instants(beside, {watermark.column: delay // timedelta(milliseconds=1)}, names)


def with_instants(df: DataFrame, column: str) -> DataFrame:
    """Return a stream with a column `EVENT_TIME_INSTANT` that has the mark of its wall-clock event time instead of it.

    Args:
        df: The stream.
        column: Its column of event time, a TIMESTAMP with a watermark.
    """
    from pyspark.sql import functions as sf

    delay = delay_of(df, column)
    plain = sf.col(quote_name(column)).alias(column, metadata={"kdsl": "event time as a wall clock"})
    beside = parse_column(instant(quote_name(column))).alias(EVENT_TIME_INSTANT, metadata={EVENT_TIME_MARK: delay})
    return df.select(*(plain if n == column else sf.col(quote_name(n)) for n in df.columns), beside)


def mark_instants(df: DataFrame, delays: Mapping[str, int], names: Sequence[str] | None = None) -> DataFrame:
    """Return a stream with the mark of event time on the columns in ``delays``, as before `with_instants`.

    Args:
        df: The stream.
        delays: How late a row may be in milliseconds, by the column of event time; other names are ignored.
        names: The columns of the result; None means all.
    """
    from pyspark.sql import functions as sf

    columns = (
        sf.col(quote_name(n)).alias(n, metadata={EVENT_TIME_MARK: delays[n]}) if n in delays else sf.col(quote_name(n))
        for n in (df.columns if names is None else names)
    )
    return df.select(*columns)


def delay_of(df: DataFrame, column: str) -> int:
    """Read from the mark of a column of event time how late a row may be, in milliseconds; KeyError without a mark."""
    return int(df.schema[column].metadata[EVENT_TIME_MARK])
