"""Dates, times and timestamps as strings, by the rules of java.time's formatters.

One value at a time; these functions define what a string means. Parsers raise ValueError for any other string.
A date is days since 1970-01-01, a time nanoseconds of the day, a timestamp microseconds since 1970-01-01 00:00:00; the
calendar is the Gregorian one for all years.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_DATE = r"(?P<year>[0-9]{4}|\+[0-9]{5,10}|-[0-9]{4,10})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{0,9}))?"
_SHORT_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{0,9}))?)?"
_OFFSET = r"(?P<sign>[+-])(?P<hours>0[0-9]|1[0-8]):(?P<minutes>[0-5][0-9])"
_DATE_ONLY = re.compile(_DATE)
_TIME_ONLY = re.compile(_TIME)
_TIMESTAMPS = {
    ("SQL", False): re.compile(f"{_DATE} {_TIME}"),
    ("SQL", True): re.compile(f"{_DATE} {_TIME}Z"),
    ("ISO-8601", False): re.compile(f"{_DATE}[Tt]{_SHORT_TIME}"),
    ("ISO-8601", True): re.compile(f"{_DATE}T{_SHORT_TIME}(?:Z|{_OFFSET})"),
}
_COMMON = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?")
_ZONES = {"SQL": " and Z", "ISO-8601": ", and Z or an offset such as +02:00"}
_EPOCH = datetime(1970, 1, 1)
_MICRO = timedelta(microseconds=1)
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LARGEST_YEAR = 999_999_999
MICROS_PER_DAY = 86_400_000_000
NANOS_PER_DAY = 86_400_000_000_000


def day_number(year: int, month: int, day: int) -> int:
    """The days from 1970-01-01 to a date of the Gregorian calendar, in any year; the date is not checked."""
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)  # a year that begins in March
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719_469


def calendar_date(days: int) -> tuple[int, int, int]:
    """The year, month and day of a number of days since 1970-01-01."""
    days += 719_468
    era, rest = divmod(days, 146_097)
    year = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    rest -= 365 * year + year // 4 - year // 100
    month = (5 * rest + 2) // 153
    day = rest - (153 * month + 2) // 5 + 1
    return era * 400 + year + (month > 9), month + 3 if month < 10 else month - 9, day


def _days_in_month(year: int, month: int) -> int:
    """Return the number of days of a month, from 1 to 12, which leap years change."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _LENGTHS[month - 1]


def _match_date(match: re.Match[str], *, lenient: bool) -> int:
    """Return the day of a matched date, in days since 1970.

    A day from 29 to 31 that its month does not have is the month's last day if ``lenient``.
    """
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    if match["year"].startswith("-") and year == 0:
        raise ValueError("there is no year -0000")
    if abs(year) > _LARGEST_YEAR or not 1 <= month <= 12 or not 1 <= day <= 31:
        raise ValueError("no such date")
    longest = _days_in_month(year, month)
    if day > longest and not lenient:
        raise ValueError("no such date")
    return day_number(year, month, min(day, longest))


def _match_nanoseconds(match: re.Match[str], *, lenient: bool) -> int:
    """Return the time of a match in nanoseconds since midnight; 24:00 is one day if ``lenient``."""
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    nano = int((match["fraction"] or "").ljust(9, "0"))
    midnight = lenient and (hour, minute, second, nano) == (24, 0, 0, 0)
    if minute > 59 or second > 59 or (hour > 23 and not midnight):
        raise ValueError("no such time")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nano


def _match_offset(match: re.Match[str]) -> int:
    """Return the offset from UTC of a match in microseconds; 0 for Z."""
    if match["sign"] is None:
        return 0
    minutes = int(match["hours"]) * 60 + int(match["minutes"])
    return (-minutes if match["sign"] == "-" else minutes) * 60_000_000


def parse_date(text: str) -> int:
    """Read ``yyyy-MM-dd`` strictly, as days since 1970-01-01; years beyond 9999 need a sign.

    Raises:
        ValueError: The string has another form, or there is no such date.
    """
    match = _DATE_ONLY.fullmatch(text)
    if not match:
        raise ValueError("expected yyyy-MM-dd")
    return _match_date(match, lenient=False)


def parse_time(text: str) -> int:
    """Read ``HH:mm:ss`` with up to nine digits of a fraction, as nanoseconds; ``24:00:00`` is midnight, which is 0.

    Raises:
        ValueError: The string has another form, or there is no such time.
    """
    match = _TIME_ONLY.fullmatch(text)
    if not match:
        raise ValueError("expected HH:mm:ss and an optional fraction")
    return _match_nanoseconds(match, lenient=True) % NANOS_PER_DAY


def parse_timestamp(text: str, standard: str, *, zoned: bool) -> int:
    """Read a timestamp as microseconds since 1970-01-01; finer digits are cut off.

    A day of the month that the month lacks becomes its last day, and ``24:00:00`` the next midnight, except in
    ISO-8601 without a zone, which is strict.

    Args:
        text: ``yyyy-MM-dd HH:mm:ss[.fraction]`` for SQL, ``yyyy-MM-ddTHH:mm[:ss[.fraction]]`` for ISO-8601.
        standard: ``"SQL"`` or ``"ISO-8601"``.
        zoned: Whether it is an instant, with a ``Z`` at the end, or in ISO-8601 an offset such as ``+02:00``.

    Raises:
        ValueError: The string has another form, there is no such time, or it does not fit in 64 bits.
    """
    plain = text[:-1] if zoned and text.endswith("Z") else "" if zoned else text
    if _COMMON.fullmatch(plain) and plain[10] == ("T" if standard == "ISO-8601" else " "):
        try:
            return (datetime.fromisoformat(plain) - _EPOCH) // _MICRO
        except ValueError:
            pass  # a day for the rules below
    match = _TIMESTAMPS[standard, zoned].fullmatch(text)
    if not match:
        form = "yyyy-MM-ddTHH:mm[:ss]" if standard == "ISO-8601" else "yyyy-MM-dd HH:mm:ss"
        raise ValueError(f"expected {form}, an optional fraction{_ZONES[standard] * zoned}")
    lenient = zoned or standard == "SQL"
    micros = _match_date(match, lenient=lenient) * MICROS_PER_DAY + _match_nanoseconds(match, lenient=lenient) // 1000
    if zoned and standard == "ISO-8601":
        micros -= _match_offset(match)
    if not -(2**63) <= micros < 2**63:
        raise ValueError("beyond the years that microseconds reach")
    return micros


def time_unit(precision: int) -> int:
    """The unit, in nanoseconds, to which a TIME of a precision is kept.

    It is a millisecond up to precision 3, a tenth of that for each further digit, and a microsecond from 6 on.
    """
    return {4: 100_000, 5: 10_000}.get(precision, 1_000_000 if precision < 4 else 1_000)


def format_date(days: int) -> str:
    """Write a date as ``yyyy-MM-dd``; years beyond 9999 get a plus sign, those before 0 a minus sign."""
    year, month, day = calendar_date(days)
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+d}" if year > 9999 else f"-{-year:04d}"
    return f"{shown}-{month:02d}-{day:02d}"


def format_time(nanos: int) -> str:
    """Write a time as ``HH:mm:ss`` and its fraction, without trailing zeros."""
    seconds, nano = divmod(nanos, 1_000_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{nano:09d}".rstrip("0") if nano else text


def format_instant(millis: int) -> str:
    """Write an instant in milliseconds since 1970, of any year, in UTC: ``2025-01-31T08:00:00.000+00:00``."""
    days, rest = divmod(millis, MICROS_PER_DAY // 1000)
    seconds, fraction = divmod(rest, 1000)
    return f"{format_date(days)}T{format_time(seconds * 1_000_000_000)}.{fraction:03d}+00:00"


def format_timestamp(micros: int, standard: str, *, zoned: bool) -> str:
    """Write a timestamp in microseconds, of any year, in the form that `parse_timestamp` reads, with seconds."""
    days, rest = divmod(micros, MICROS_PER_DAY)
    separator = "T" if standard == "ISO-8601" else " "
    return f"{format_date(days)}{separator}{format_time(rest * 1000)}{'Z' * zoned}"
