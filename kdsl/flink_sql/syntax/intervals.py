"""Units of time, and the lengths of SQL intervals."""

from __future__ import annotations

import re
from itertools import pairwise

from kdsl.flink_sql.syntax import tree as n

TIME_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
MICROS = {
    "WEEK": 604_800_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
}

LONGEST_IN_STEPS = 32 * MICROS["DAY"]
"""The longest interval in microseconds that an instant is moved by in steps shorter than a day."""


def is_solvable(span: n.Span) -> bool:
    """Whether Spark can use an interval to bound the times of a join: it has a fixed length of up to 32 days."""
    length = interval_microseconds(span)
    return length is not None and abs(length) <= LONGEST_IN_STEPS


def interval_microseconds(span: n.Span) -> int | None:
    """Compute the length of ``INTERVAL '5' SECOND`` or ``INTERVAL '1 02:30' DAY TO MINUTE``.

    Returns:
        Microseconds, smaller parts cut off; None if the string is not a length in these units, or for months, quarters
        and years, which vary in length.
    """
    if span.unit not in MICROS:
        return None
    units = (
        [span.unit]
        if span.unit == span.until
        else TIME_UNITS[TIME_UNITS.index(span.unit) : TIME_UNITS.index(span.until) + 1]
    )
    pattern = "([-+]?)" + _digits(units[0])
    for before, unit in pairwise(units):
        pattern += (r"\s+" if before == "DAY" else ":") + _digits(unit)
    match = re.fullmatch(pattern, span.text.strip(), re.ASCII)
    if match is None:
        return None
    length = 0
    for number, unit in zip(match.groups()[1:], units, strict=True):
        whole, _, fraction = number.partition(".")
        length += int(whole) * MICROS[unit] + int(f"{fraction:<06.6}" or 0)
    return -length if match[1] == "-" else length


def _digits(unit: str) -> str:
    """Return the regular expression, with one group, of the number of a unit; seconds may have a fraction."""
    return r"(\d{1,12}(?:\.\d{1,9})?)" if unit == "SECOND" else r"(\d{1,9})"
