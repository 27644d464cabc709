"""How long an interval is."""

from __future__ import annotations

import re
from itertools import pairwise

from kdsl.declare.translate import tree as n

CLOCK = ("DAY", "HOUR", "MINUTE", "SECOND")
MICROS = {
    "WEEK": 604_800_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
}


def microseconds(span: n.Span) -> int | None:
    """The length of ``INTERVAL '5' SECOND`` or ``INTERVAL '1 02:30' DAY TO MINUTE``.

    Returns:
        Microseconds; None where the text is no length in these units, or months have no fixed length.
    """
    if span.unit not in MICROS:
        return None
    units = [span.unit] if span.unit == span.until else CLOCK[CLOCK.index(span.unit) : CLOCK.index(span.until) + 1]
    pattern = "([-+]?)" + _digits(units[0])
    for before, unit in pairwise(units):
        pattern += (r"\s+" if before == "DAY" else ":") + _digits(unit)
    found = re.fullmatch(pattern, span.text.strip(), re.ASCII)
    if found is None:
        return None
    length = 0
    for number, unit in zip(found.groups()[1:], units, strict=True):
        whole, _, fraction = number.partition(".")
        length += int(whole) * MICROS[unit] + int(f"{fraction:<06.6}" or 0)
    return -length if found[1] == "-" else length


def _digits(unit: str) -> str:
    return r"(\d{1,12}(?:\.\d{1,9})?)" if unit == "SECOND" else r"(\d{1,9})"
