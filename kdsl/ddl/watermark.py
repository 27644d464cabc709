"""The expression of a watermark: ``ts``, or ``ts - INTERVAL '5' SECOND``; Spark has no other watermarks."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

from kdsl.durations import duration_text
from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.flink_sql.syntax.expression_reader import read_expression
from kdsl.flink_sql.syntax.intervals import interval_microseconds

_LONG = {"d": "day", "h": "hour", "min": "minute", "s": "second", "ms": "millisecond", "us": "microsecond"}
_FIX = "write the column, or the column - INTERVAL '5' SECOND"


def watermark_delay(column: str, text: str) -> str:
    """Read from the expression of a watermark how late a row may be, as Spark writes it ('5 seconds').

    A negative interval is accepted here, and returned as ISO-8601.
    """

    def wrong(node: n.Node, name: str, reason: str, fix: str = _FIX) -> NoReturn:
        raise UntranslatableError(name, reason, fix, text, node.at)

    node = read_expression(text)
    time, span = (node.left, node.right) if isinstance(node, n.Binary) and node.operator == "-" else (node, None)
    if not isinstance(time, n.Name):
        fix = f"{_FIX}; compute anything else in a computed column, and declare the watermark for that column"
        reason = f"the watermark for {column!r} is neither the column nor the column minus an interval"
        raise UntranslatableError(text, reason, fix, text)
    if time.parts != (column,):
        name = ".".join(time.parts)
        wrong(time, name, f"the watermark for {column!r} is computed from {name!r}", f"write {column!r} in both")
    if span is None:
        return "0 seconds"
    if not isinstance(span, n.Span):
        wrong(span, "", "what is subtracted from the column is not an INTERVAL")
    if span.unit in ("MONTH", "YEAR", "QUARTER"):
        wrong(span, "INTERVAL", f"a {span.unit} has no fixed length", "write it in days")
    length = interval_microseconds(span)
    if length is None or abs(length) > timedelta.max // timedelta(microseconds=1):
        form = " TO ".join(dict.fromkeys((span.unit, span.until)))
        wrong(span, "INTERVAL", f"{span.text!r} is not a valid INTERVAL … {form}")
    return _format_delay(timedelta(microseconds=length))


def _format_delay(length: timedelta) -> str:
    """Format a delay as Spark writes it, such as ``5 seconds``, in the largest unit without a remainder.

    A negative one is written as ISO-8601 in seconds.
    """
    text = duration_text(length)
    number, _, unit = text.partition(" ")
    return f"{number} {_LONG[unit]}{'' if number == '1' else 's'}" if unit else text
