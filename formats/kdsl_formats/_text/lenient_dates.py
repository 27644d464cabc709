"""Dates and times as Flink's CSV format reads them: ``java.sql.Date.valueOf`` and ``LocalTime.parse``.

Functions read one value and raise ValueError for an invalid string. Units are those of `temporal`.
"""

from __future__ import annotations

import re

from kdsl.types.strings.temporal import day_number

_DATE = re.compile(r"([+\d]\d{3})-(\+?\d|\d\d)-(\+?\d|\d\d)", re.UNICODE)
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{0,9}))?)?")
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_GREGORIAN = (1582, 10, 15)


def parse_jdbc_date(text: str) -> int:
    """Read ``yyyy-[m]m-[d]d`` as days since 1970-01-01; a day after the end of the month is a day of the next month.

    Days before 1582-10-15 are days of the Julian calendar and keep their name, as in Flink: a 29 February that exists
    only in that calendar is an error, and the year 0 becomes the year 1. The ten days before it, which no calendar has,
    become those from it on.
    """
    match = _DATE.fullmatch(text)
    if not match or any(c > "\uffff" for c in text):
        raise ValueError("expected yyyy-MM-dd")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        raise ValueError("no such date")
    if (year, month, day) < _GREGORIAN:
        if (year, month) == (1582, 10) and day >= 5:
            day += 10  # the ten days that the change of calendars skipped
        longest = 29 if month == 2 and year % 4 == 0 else _LENGTHS[month - 1]
        if day > longest:
            month, day = month + 1, day - longest
        elif (month, day) == (2, 29) and not _is_leap(max(year, 1)):
            raise ValueError("no such date")
        return day_number(max(year, 1), month, day)
    longest = 29 if month == 2 and _is_leap(year) else _LENGTHS[month - 1]
    if day > longest:
        month, day = month + 1, day - longest
    return day_number(year, month, day)


def _is_leap(year: int) -> bool:
    """Whether a year is a leap year of the Gregorian calendar."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def parse_local_time(text: str) -> int:
    """Read ``HH:mm[:ss[.fraction]]`` with up to nine digits of a fraction as nanoseconds of the day."""
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError("expected HH:mm[:ss[.fraction]]")
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("no such time")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + int((match[4] or "").ljust(9, "0"))
