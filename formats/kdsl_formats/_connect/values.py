"""Reads single values that Debezium and Kafka Connect wrote; the reference for whole columns.

A date is in days since 1970-01-01, a time in nanoseconds of the day, a timestamp in microseconds since 1970-01-01
00:00:00. Functions raise ValueError for an invalid value, and `InfiniteError` for an infinite one.

The rules are those of Debezium 3.6: https://debezium.io/documentation/reference/3.6/connectors/postgresql.html, its
sections "Temporal types" and "Decimal types".
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

from kdsl.shown_values import show_value
from kdsl.types import model as t
from kdsl.types.strings import temporal
from kdsl_formats._columns.unscaled import write_number

INFINITE_NUMBERS = ("NaN", "NAN", "Infinity", "-Infinity", "POSITIVE_INFINITY", "NEGATIVE_INFINITY")
"""Debezium's strings for values of Postgres' NUMERIC that are not finite numbers."""
INFINITE_TIMES = ("infinity", "-infinity")
"""What Debezium writes for an infinite TIMESTAMPTZ."""
INFINITE_MICROS = (9_223_372_036_825_200_000, -9_223_372_036_832_400_000)
"""The microseconds that Debezium writes for an infinite TIMESTAMP; it takes them from Postgres' JDBC driver."""
LONG = (1 << 63) - 1
MILLIS, MICROS, NANOS = 1_000_000, 1_000, 1  # in nanoseconds
FIRST_DAY = temporal.day_number(-1_000_000, 1, 1)
"""Earlier days represent infinity: Debezium writes several such numbers, and no database has such dates."""
LAST_DAY = (1 << 31) - 1
_INFINITE_DATE = re.compile(r"(\+2922(78994-08|69055-12)|-5877611-06)-[0-9]{2}Z?")
_ZONED = r"(Z|[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2})?)?"
_TIMESTAMP = re.compile(rf"([^Z]+[Tt][^Z+-]+){_ZONED}")
_TIME = re.compile(rf"([^Z+-]+){_ZONED}")
_DATE = re.compile(rf"(.[^Z+]*?){_ZONED}")
_MAX_BYTES = 8192  # of a number; Postgres' NUMERIC has fewer
_MAX_SCALE = 16_383  # of Postgres' NUMERIC
_EXACT = decimal.Context(prec=3 * _MAX_BYTES + 2 * _MAX_SCALE)


class InfiniteError(ValueError):
    """A value is infinite, or not a number; the column's type cannot hold it."""

    def __init__(self) -> None:
        super().__init__("it is infinite, which the type cannot represent; declare the column nullable to read NULL")


class InfiniteCounter:
    """Counts the infinite values that a decoder reads as NULL."""

    def __init__(self) -> None:
        self.count = 0

    def take(self) -> int:
        """Return the number of infinite values since the last call, and reset it."""
        count, self.count = self.count, 0
        return count

    @contextmanager
    def reset_on_error(self) -> Iterator[None]:
        """Forget the values that were counted inside the ``with`` statement if that raises an error, which passes."""
        count = self.count
        try:
            yield
        except Exception:
            self.count = count
            raise


class UnwritableError(ValueError):
    """A value cannot be represented on the wire."""


def infinite_of(unit: int) -> tuple[int, int]:
    """The numbers that represent an infinite timestamp, the positive and the negative one.

    Args:
        unit: The unit of the numbers, in nanoseconds.
    """
    if unit == NANOS:
        return LONG, -LONG - 1
    positive, negative = INFINITE_MICROS
    return positive * MICROS // unit, negative * MICROS // unit


def decimal_of(unscaled: bytes, scale: int, kind: t.Decimal) -> Decimal:
    """A decimal from its unscaled two's complement number, rounded half up to the column's scale."""
    if not unscaled:
        raise ValueError("a decimal of no bytes is not a number")
    if len(unscaled) > _MAX_BYTES or abs(scale) > _MAX_SCALE:
        raise ValueError("it has too many digits")
    number = Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, _EXACT)
    return round_to_type(number, kind)


def to_unscaled(number: Decimal, scale: int) -> bytes:
    """The shortest two's complement of a decimal without its point, as in ``BigInteger``, cut to the scale."""
    return write_number(int(number.scaleb(scale, _EXACT)))


def round_to_type(number: Decimal, kind: t.Decimal) -> Decimal:
    """Round a number half up to a column's scale."""
    number = number.quantize(Decimal(1).scaleb(-kind.scale), decimal.ROUND_HALF_UP, _EXACT)
    if number.copy_abs() >= 10 ** (kind.precision - kind.scale):  # abs would round
        raise ValueError("it has too many digits")
    return number


def days_of_number(days: int) -> int:
    """Convert a number of days to days since 1970-01-01."""
    if days < FIRST_DAY:
        raise InfiniteError
    if days > LAST_DAY:
        raise ValueError("out of range")
    return days


def days_of_string(string: str) -> int:
    """Convert an ISO date such as ``2017-09-15Z`` to days since 1970-01-01; the zone may be missing, and is ignored."""
    if string in INFINITE_TIMES or _INFINITE_DATE.fullmatch(string):
        raise InfiniteError
    match = _DATE.fullmatch(string)
    if match is None:
        raise ValueError("expected a date as 2017-09-15Z")
    return days_of_number(temporal.parse_date(match[1]))


def time_of_number(number: int, unit: int, precision: int) -> int:
    """Convert a number of units to the nanoseconds of a time of day; the end of the day becomes midnight.

    Digits beyond the precision are cut off.
    """
    nanos = number * unit
    if not 0 <= nanos <= temporal.NANOS_PER_DAY:
        raise ValueError("a TIME is between 00:00:00 and 24:00:00")
    return _truncate(nanos, precision)


def time_of_string(string: str, precision: int) -> int:
    """Convert an ISO time such as ``04:05:11.789Z`` to nanoseconds of the day in UTC, which is also the default zone.

    Digits beyond the precision are cut off.
    """
    match = _TIME.fullmatch(string)
    if match is None:
        raise ValueError("expected a time as 04:05:11.789Z")
    return _truncate(temporal.parse_time(match[1]) - _offset(match[2]) * 1_000, precision)


def _truncate(nanos: int, precision: int) -> int:
    """Bring nanoseconds into one day, and cut off the digits beyond a precision."""
    unit = temporal.time_unit(precision)
    return nanos % temporal.NANOS_PER_DAY // unit * unit


def timestamp_of_number(number: int, unit: int) -> int:
    """Convert a number of units, which are given in nanoseconds, to microseconds since 1970-01-01, rounded down."""
    if number in infinite_of(unit):
        raise InfiniteError
    micros = number * unit // 1_000
    if not -LONG - 1 <= micros <= LONG:
        raise ValueError("beyond the years that microseconds reach")
    return micros


def timestamp_of_string(string: str, *, zoned: bool) -> int:
    """Convert an ISO timestamp such as ``2019-07-09T02:28:57.123456Z`` to microseconds in UTC.

    Args:
        string: The string.
        zoned: Whether the zone is required; otherwise it is UTC by default.
    """
    if string in INFINITE_TIMES:
        raise InfiniteError
    match = _TIMESTAMP.fullmatch(string)
    if match is None or (zoned and not match[2]):
        raise ValueError(f"expected a timestamp as 2019-07-09T02:28:57.123456Z{', with its zone' * zoned}")
    utc = bool(match[2])
    micros = temporal.parse_timestamp(match[1] + "Z" * utc, "ISO-8601", zoned=utc) - _offset(match[2])
    if micros in INFINITE_MICROS:
        raise InfiniteError
    if not -LONG - 1 <= micros <= LONG:
        raise ValueError("beyond the years that microseconds reach")
    return micros


def _offset(zone: str | None) -> int:
    """The offset of a zone from UTC in microseconds; 0 for ``Z`` and for none."""
    if not zone or zone == "Z":
        return 0
    hours, minutes, seconds = (int(part) for part in f"{zone[1:]}:00".split(":")[:3])
    offset = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    if hours > 18 or minutes > 59 or seconds > 59:
        raise ValueError(f"there is no zone {show_value(zone)}")
    return -offset if zone[0] == "-" else offset
