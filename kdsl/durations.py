"""Durations as Flink writes them: ``5 min``, ``1000`` (milliseconds), ``1 s``, ``PT5M``."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "min": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_NAMES = {
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("h", "hour", "hours"), "h"),
    **dict.fromkeys(("m", "min", "minute", "minutes"), "min"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("us", "µs", "micro", "micros", "microsecond", "microseconds"), "us"),
}
_SIMPLE = re.compile(r"(-?\d+)\s*([a-zµ]*)", re.IGNORECASE)
_ISO = re.compile(
    r"([-+])?P(?:([-+]?\d+)D)?(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:[.,]\d{1,9})?)S)?)?", re.IGNORECASE
)


def parse_duration(text: str) -> timedelta:
    """Parse a duration.

    Args:
        text: One integer with one unit (``d h min s ms us`` or their long names), a bare number of milliseconds, or
            ISO-8601 in days, hours, minutes and seconds (``PT5M``). Each may be negative: ``-1 ms``, ``PT-1S``. Letter
            case and blanks around it are ignored, and so are digits of seconds after the microseconds.
    """
    try:
        return _parse(text)
    except OverflowError:
        raise ValueError(f"{text!r} is too long for a duration") from None


def _parse(text: str) -> timedelta:
    """Parse a number with a unit, a number of milliseconds, or ISO-8601; see `parse_duration`."""
    stripped = text.strip()
    if simple := _SIMPLE.fullmatch(stripped):
        unit = simple[2].lower()
        if unit and unit not in _NAMES:
            raise ValueError(f"{simple[2]!r} is not a unit of time; the units are {', '.join(_UNITS)}")
        return timedelta(microseconds=int(simple[1]) * _UNITS[_NAMES[unit or "ms"]])
    if (iso := _ISO.fullmatch(stripped)) and any(iso.groups()[1:]):
        days, hours, minutes = (int(part or 0) for part in iso.groups()[1:4])
        seconds, _, fraction = (iso[5] or "0").replace(",", ".").partition(".")
        micros = int(f"{fraction:<06.6}") * (-1 if seconds.startswith("-") else 1)
        length = timedelta(days=days, hours=hours, minutes=minutes, seconds=int(seconds), microseconds=micros)
        return -length if iso[1] == "-" else length
    raise ValueError(
        f"{text!r} is not a duration; write a number and a unit such as '5 min', or ISO-8601 such as 'PT5M'"
    )


def duration_text(length: timedelta) -> str:
    """The string of a duration in the largest unit without a remainder (``0 s``), for `parse_duration`.

    A negative one is written as ISO-8601 in seconds.
    """
    micros = length // timedelta(microseconds=1)
    if micros < 0:
        return f"PT-{-micros // 1_000_000}.{-micros % 1_000_000:06d}S"
    for unit, size in _UNITS.items():
        if micros % size == 0 and (micros or unit == "s"):
            return f"{micros // size} {unit}"
    return f"{micros} us"
