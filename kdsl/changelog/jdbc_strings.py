"""Dates and times as strings, which Spark's JDBC writer does not change.

The writer converts dates and timestamps to the classes of ``java.sql``. These use the time zone of the JVM, and the
Julian calendar before October 1582: 02:30 becomes 03:30 on the day on which clocks are put forward, and 10 October 1582
becomes the 20th. Times of the day it cannot write at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_ZONED = ("timestamptz", "_timestamptz")


def write_as_strings(changes: DataFrame, types: Mapping[str, str], *, postgres: bool) -> DataFrame:
    """Convert times of the day to strings; for Postgres also dates and timestamps, all of them also in arrays.

    A timestamp with time zone becomes one in UTC with its offset; if the column of the table has no time zone, it
    becomes the wall-clock time of the session.

    Args:
        changes: The rows.
        types: The driver's name of each column's type in the database, by the columns of the rows; other columns stay
            as they are.
        postgres: Whether the strings are read by Postgres, which casts them to the types of its columns.

    Returns:
        The rows, with the same columns.
    """
    conversions = {
        name: _choose_conversion(changes.schema[name].dataType, kind, postgres=postgres) for name, kind in types.items()
    }
    strings = {name: convert(changes[quote_name(name)]) for name, convert in conversions.items() if convert is not None}
    return changes.withColumns(strings) if strings else changes


def _choose_conversion(kind: DataType, database: str, *, postgres: bool) -> Callable[[Column], Column] | None:
    """Return what converts values of a type to strings, or arrays to arrays of strings; None for other types."""
    from pyspark.sql import functions as F, types as s

    if isinstance(kind, s.ArrayType):
        convert = _choose_conversion(kind.elementType, database, postgres=postgres)
        return None if convert is None else lambda array: F.transform(array, convert)
    if kind.simpleString().startswith("time("):
        return lambda time: time.cast("string")
    if not postgres:
        return None
    if isinstance(kind, s.TimestampType) and database in _ZONED:
        return lambda instant: _spell(_in_utc(instant), "+00")
    if isinstance(kind, s.TimestampType | s.DateType | s.TimestampNTZType):
        return lambda moment: _spell(moment, "")
    return None


def _in_utc(instant: Column) -> Column:
    """Return the wall-clock time of an instant in UTC, whatever the session's time zone."""
    from pyspark.sql import functions as F

    seconds = (F.unix_micros(instant).cast("decimal(20,0)") / 1_000_000).cast("decimal(18,6)")
    return F.expr("timestamp_ntz'1970-01-01 00:00:00'") + F.make_dt_interval(secs=seconds)


def _spell(value: Column, offset: str) -> Column:
    """Write a date or timestamp, then an offset, as Postgres does: ``BC`` for years before 1, no plus for late ones."""
    from pyspark.sql import functions as F

    text, year = value.cast("string"), F.year(value)
    after_year = F.substr(text, F.locate("-", text, 2))
    before_christ = F.concat(F.lpad((1 - year).cast("string"), 4, "0"), after_year, F.lit(f"{offset} BC"))
    later = F.concat(F.when(text.startswith("+"), F.substr(text, F.lit(2))).otherwise(text), F.lit(offset))
    return F.when(year < 1, before_christ).otherwise(later)
