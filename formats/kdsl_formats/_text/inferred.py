"""The column types that strings look like, and the reading of those that have more than one form.

A column that was inferred may hold dates beside timestamps, and timestamps in either form, with a zone or without one.
"""

from __future__ import annotations

import re
from datetime import date

from kdsl.types import model as t
from kdsl.types.strings import temporal

_MOMENT = re.compile(
    r"(?:(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]|$))?"
    r"(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.(?P<fraction>[0-9]{1,6}))?(?P<zone>Z?))?"
)
_CLOCK = 8  # characters of HH:mm:ss
_DAY = 10  # characters of yyyy-MM-dd
LONGEST_MOMENT = 27  # characters


def type_of_text(text: str) -> t.DataType:
    """The type that a string has as a whole: DATE, TIME, TIMESTAMP, TIMESTAMP_LTZ, or STRING for all others.

    Dates are those of the calendar from the year 1 to 9999. Fractions of a second have up to 6 digits, and the types
    have 0, 3 or 6 of them. An instant ends with ``Z``.
    """
    if not _CLOCK <= len(text) <= LONGEST_MOMENT:
        return t.STRING
    match = _MOMENT.fullmatch(text)
    if match is None:
        return t.STRING
    day, zone = match["day"], match["zone"]
    if day is None:
        return t.STRING if zone else t.Time(_digits(match["fraction"]))
    if not _is_date(day) or len(text) == _DAY + 1:
        return t.STRING
    if len(text) == _DAY:
        return t.Date()
    return (t.TimestampLtz if zone else t.Timestamp)(_digits(match["fraction"]))


def _digits(fraction: str | None) -> int:
    """The digits of a second that a type needs for a fraction."""
    return 0 if fraction is None else 3 if len(fraction) <= 3 else 6


def _is_date(text: str) -> bool:
    """Whether a string of the form ``yyyy-MM-dd``, which is not checked, is a day of the calendar."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def parse_moment(text: str, *, zoned: bool) -> int:
    """Read a date or a timestamp of either form, as microseconds since 1970-01-01.

    Args:
        text: ``yyyy-MM-dd``, or a timestamp of the forms SQL or ISO-8601.
        zoned: Whether it may end with ``Z``. Without it, it is taken as UTC.
    """
    if len(text) == _DAY:
        return temporal.parse_date(text) * temporal.MICROS_PER_DAY
    standard = "ISO-8601" if text[_DAY : _DAY + 1] in ("T", "t") else "SQL"
    return temporal.parse_timestamp(text, standard, zoned=zoned and text.endswith("Z"))
