"""The expression of a watermark: ``ts``, or ``ts - INTERVAL '5' SECOND``; no other one is a watermark of Spark's."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

from kdsl.declare.translate import UntranslatableError, tree as n
from kdsl.declare.translate.intervals import microseconds
from kdsl.declare.translate.reader import read_expression
from kdsl.durations import duration_text

_LONG = {"d": "day", "h": "hour", "min": "minute", "s": "second", "ms": "millisecond", "us": "microsecond"}
_FIX = "write the column, or the column - INTERVAL '5' SECOND"


def delay_of(column: str, text: str) -> str:
    """How late a row may be, as text ('5 seconds'), by the expression of a watermark.

    Args:
        column: The column of the watermark.
        text: The expression.

    Raises:
        UntranslatableError: It is another expression.
    """

    def wrong(node: n.Node, name: str, reason: str, fix: str = _FIX) -> NoReturn:
        raise UntranslatableError(name, reason, fix, text, node.at)

    node = read_expression(text)
    time, span = (node.left, node.right) if isinstance(node, n.Binary) and node.operator == "-" else (node, None)
    if not isinstance(time, n.Name):
        fix = f"{_FIX}; work anything else out in a computed column, and put the watermark on that"
        reason = f"the watermark for {column!r} is neither the column nor the column less a time"
        raise UntranslatableError(text, reason, fix, text)
    if time.parts != (column,):
        name = ".".join(time.parts)
        wrong(time, name, f"the watermark for {column!r} is made of {name!r}", f"name {column!r} in both")
    if span is None:
        return "0 seconds"
    if not isinstance(span, n.Span):
        wrong(span, "", "what is taken off the column is no INTERVAL")
    if span.unit in ("MONTH", "YEAR", "QUARTER"):
        wrong(span, "INTERVAL", f"a {span.unit} has no fixed length", "write it in days")
    length = microseconds(span)
    if length is None or abs(length) > timedelta.max // timedelta(microseconds=1):
        form = " TO ".join(dict.fromkeys((span.unit, span.until)))
        wrong(span, "INTERVAL", f"{span.text!r} is no length of an INTERVAL … {form}")
    return _long(timedelta(microseconds=length))


def _long(length: timedelta) -> str:
    text = duration_text(length)
    number, _, unit = text.partition(" ")
    return f"{number} {_LONG[unit]}{'' if number == '1' else 's'}" if unit else text
