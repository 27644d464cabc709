"""The expression of a watermark: ``ts``, or ``ts - INTERVAL '5' SECOND``; no other one is a watermark of Spark's."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import pairwise

from kdsl.declare.ddl.lexer import Token, tokens
from kdsl.durations import duration_text

UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
_MICROS = {
    "WEEK": 604_800_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
}
_LONG = {"d": "day", "h": "hour", "min": "minute", "s": "second", "ms": "millisecond", "us": "microsecond"}
FIX = "write the column, or the column - INTERVAL '5' SECOND"


class NoDelayError(ValueError):
    """An expression is no watermark that Spark can keep.

    Attributes:
        fix: What to write instead.
        position: Where it is wrong in the expression, from 0.
        length: How many characters are meant.
    """

    def __init__(self, message: str, fix: str, token: Token) -> None:
        super().__init__(message)
        self.fix, self.position, self.length = fix, token.start, max(len(token.text), 1)


def delay_of(column: str, text: str) -> str:
    """How late a row may be, as text ('5 seconds'), by the expression of a watermark.

    Args:
        column: The column of the watermark.
        text: The expression.

    Raises:
        NoDelayError: It is another expression.
    """
    words = tokens(text)
    while len(words) > 2 and words[0].text == "(" and words[-2].text == ")":
        words = [*words[1:-2], words[-1]]
    words += words[-1:] * len(words)  # the end, as often as anybody looks further
    first = words[0]
    if first.kind not in ("word", "quoted") or first.value != column or words[1].text not in ("", "-"):
        name = first.value if first.kind in ("word", "quoted") else ""
        if words[1].text in ("", "-") and name and first.upper != "INTERVAL":
            raise NoDelayError(f"the watermark for {column!r} is made of {name!r}", f"name {column!r} in both", first)
        fix = f"{FIX}; work anything else out in a computed column, and put the watermark on that"
        raise NoDelayError(f"the watermark for {column!r} is neither the column nor the column less a time", fix, first)
    if words[1].kind == "end":
        return "0 seconds"
    return _long(_interval(words[2:]))


def _long(length: timedelta) -> str:
    text = duration_text(length)
    number, _, unit = text.partition(" ")
    return f"{number} {_LONG[unit]}{'' if number == '1' else 's'}" if unit else text


def _interval(words: list[Token]) -> timedelta:
    """``INTERVAL '5' SECOND``, ``INTERVAL '1 02:30' DAY TO MINUTE``."""
    if words[0].upper != "INTERVAL":
        raise NoDelayError("what is taken off the column is no INTERVAL", FIX, words[0])
    rest = words[1:]
    minus = rest[0].text == "-"
    rest = rest[minus:]
    if rest[0].kind != "text":
        raise NoDelayError("the length of the INTERVAL is a text in quotes", FIX, rest[0])
    text = rest[0].value
    units, after = _units(rest[1:])
    if after.kind != "end":
        raise NoDelayError("the watermark goes on after the INTERVAL", FIX, after)
    length = _length(text, units)
    if length is None:
        form = " TO ".join(dict.fromkeys((units[0], units[-1])))
        raise NoDelayError(f"{rest[0].text} is no length of an INTERVAL … {form}", FIX, rest[0])
    return -length if minus else length


def _units(words: list[Token]) -> tuple[list[str], Token]:
    """The units from the first to the last one, and the token behind them."""
    first, rest = _unit(words)
    if rest[0].upper != "TO":
        return [first], rest[0]
    last, rest = _unit(rest[1:])
    known = first in UNITS and last in UNITS
    span = UNITS[UNITS.index(first) : UNITS.index(last) + 1] if known else ()
    if len(span) < 2:
        message = f"an INTERVAL goes from a longer unit to a shorter one, not from {first} to {last}"
        raise NoDelayError(message, FIX, rest[0])
    return list(span), rest[0]


def _unit(words: list[Token]) -> tuple[str, list[Token]]:
    unit = words[0].upper.removesuffix("S")
    if unit in ("MONTH", "YEAR", "QUARTER"):
        raise NoDelayError(f"a {unit} has no fixed length", "write it in days", words[0])
    if unit not in _MICROS:
        raise NoDelayError(f"an INTERVAL needs a unit: {', '.join(_MICROS)}", FIX, words[0])
    rest = words[1:]
    if rest[0].text == "(":  # a precision, which says nothing about the length
        end = next((i + 1 for i, word in enumerate(rest) if word.text == ")"), len(rest) - 1)
        rest = rest[end:]
    return unit, rest


def _length(text: str, units: list[str]) -> timedelta | None:
    """The length that a text says in units, as ``1 02:30`` for days to minutes."""
    forms = {"WEEK": r"(\d+)", "DAY": r"(\d+)", "HOUR": r"(\d+)", "MINUTE": r"(\d+)", "SECOND": r"(\d+(?:\.\d{1,9})?)"}
    pattern = r"([-+]?)" + forms[units[0]]
    for before, unit in pairwise(units):
        pattern += (r"\s+" if before == "DAY" else ":") + forms[unit]
    found = re.fullmatch(pattern, text.strip(), re.ASCII)
    if found is None:
        return None
    try:
        micros = 0
        for number, unit in zip(found.groups()[1:], units, strict=True):
            whole, _, fraction = number.partition(".")
            micros += int(whole) * _MICROS[unit] + int(f"{fraction:<06.6}" or 0)
        return timedelta(microseconds=-micros if found[1] == "-" else micros)
    except (OverflowError, ValueError):  # more digits than a time has, or than Python reads
        return None
