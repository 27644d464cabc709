"""Dates, times and timestamps as texts, by the rules of java.time's formatters.

One value at a time; these functions decide what a text means. Readers raise ValueError for a text of another form.
A date is days since 1970-01-01, a time nanoseconds of the day, a timestamp microseconds since 1970-01-01 00:00:00; the
calendar is the Gregorian one for all years.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_DATE = r"(?P<year>[0-9]{4}|\+[0-9]{5,10}|-[0-9]{4,10})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{0,9}))?"
_SHORT_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{0,9}))?)?"
_DATE_ONLY = re.compile(_DATE)
_TIME_ONLY = re.compile(_TIME)
_TIMESTAMPS = {
    ("SQL", False): re.compile(f"{_DATE} {_TIME}"),
    ("SQL", True): re.compile(f"{_DATE} {_TIME}Z"),
    ("ISO-8601", False): re.compile(f"{_DATE}[Tt]{_SHORT_TIME}"),
    ("ISO-8601", True): re.compile(f"{_DATE}T{_SHORT_TIME}Z"),
}
_COMMON = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?")
_EPOCH = datetime(1970, 1, 1)
_MICRO = timedelta(microseconds=1)
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LARGEST_YEAR = 999_999_999
MICROS_PER_DAY = 86_400_000_000
NANOS_PER_DAY = 86_400_000_000_000


def days_of(year: int, month: int, day: int) -> int:
    """The day number of a date of the Gregorian calendar."""
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)  # a year that begins in March
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719_469


def date_of(days: int) -> tuple[int, int, int]:
    """The year, month and day of a day number."""
    days += 719_468
    era, rest = divmod(days, 146_097)
    year = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    rest -= 365 * year + year // 4 - year // 100
    month = (5 * rest + 2) // 153
    day = rest - (153 * month + 2) // 5 + 1
    return era * 400 + year + (month > 9), month + 3 if month < 10 else month - 9, day


def _length(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _LENGTHS[month - 1]


def _date(found: re.Match[str], *, lenient: bool) -> int:
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"])
    if found["year"].startswith("-") and year == 0:
        raise ValueError("there is no year -0000")
    if abs(year) > _LARGEST_YEAR or not 1 <= month <= 12 or not 1 <= day <= 31:
        raise ValueError("no such date")
    longest = _length(year, month)
    if day > longest and not lenient:
        raise ValueError("no such date")
    return days_of(year, month, min(day, longest))


def _nanos(found: re.Match[str], *, lenient: bool) -> int:
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"] or 0)
    nano = int((found["fraction"] or "").ljust(9, "0"))
    midnight = lenient and (hour, minute, second, nano) == (24, 0, 0, 0)
    if minute > 59 or second > 59 or (hour > 23 and not midnight):
        raise ValueError("no such time")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nano


def parse_date(text: str) -> int:
    """Read ``yyyy-MM-dd`` strictly; years beyond 9999 need a sign."""
    found = _DATE_ONLY.fullmatch(text)
    if not found:
        raise ValueError("expected yyyy-MM-dd")
    return _date(found, lenient=False)


def parse_time(text: str) -> int:
    """Read ``HH:mm:ss`` with up to nine digits of a fraction; ``24:00:00`` is midnight."""
    found = _TIME_ONLY.fullmatch(text)
    if not found:
        raise ValueError("expected HH:mm:ss and an optional fraction")
    return _nanos(found, lenient=True) % NANOS_PER_DAY


def parse_timestamp(text: str, standard: str, *, zoned: bool) -> int:
    """Read a timestamp, cut to microseconds.

    Args:
        text: ``yyyy-MM-dd HH:mm:ss[.fraction]`` for SQL, ``yyyy-MM-ddTHH:mm[:ss[.fraction]]`` for ISO-8601.
        standard: ``"SQL"`` or ``"ISO-8601"``.
        zoned: Whether it is an instant, with a ``Z`` at the end.

    A day of the month that the month lacks becomes its last day, and ``24:00:00`` the next midnight, except in
    ISO-8601 without a zone, which is strict.
    """
    plain = text[:-1] if zoned and text.endswith("Z") else "" if zoned else text
    if _COMMON.fullmatch(plain) and plain[10] == ("T" if standard == "ISO-8601" else " "):
        try:
            return (datetime.fromisoformat(plain) - _EPOCH) // _MICRO
        except ValueError:
            pass  # a day or an hour for the rules below
    found = _TIMESTAMPS[standard, zoned].fullmatch(text)
    if not found:
        separator, seconds = ("T", "[:ss]") if standard == "ISO-8601" else (" ", ":ss")
        raise ValueError(f"expected yyyy-MM-dd{separator}HH:mm{seconds}, an optional fraction{' and Z' * zoned}")
    lenient = zoned or standard == "SQL"
    micros = _date(found, lenient=lenient) * MICROS_PER_DAY + _nanos(found, lenient=lenient) // 1000
    if not -(2**63) <= micros < 2**63:
        raise ValueError("beyond the years that microseconds reach")
    return micros


def date_text(days: int) -> str:
    """A date as ``yyyy-MM-dd``; years beyond 9999 get a sign."""
    year, month, day = date_of(days)
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+d}" if year > 9999 else f"-{-year:04d}"
    return f"{shown}-{month:02d}-{day:02d}"


def time_text(nanos: int) -> str:
    """A time as ``HH:mm:ss`` and the fraction that it has, without trailing zeros."""
    seconds, nano = divmod(nanos, 1_000_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{nano:09d}".rstrip("0") if nano else text


def timestamp_text(micros: int, standard: str, *, zoned: bool) -> str:
    """A timestamp in the form that `parse_timestamp` reads, always with seconds."""
    days, rest = divmod(micros, MICROS_PER_DAY)
    separator = "T" if standard == "ISO-8601" else " "
    return f"{date_text(days)}{separator}{time_text(rest * 1000)}{'Z' * zoned}"
