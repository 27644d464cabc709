"""Translates constants and intervals of Flink SQL to typed Spark SQL."""

from __future__ import annotations

import re
from typing import NoReturn

from kdsl.flink_sql.expressions.casts import spark_cast
from kdsl.flink_sql.expressions.values import DayInterval, MonthInterval, TypedSql
from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.flink_sql.syntax.intervals import interval_microseconds
from kdsl.types import model as t
from kdsl.types.sql import literal
from kdsl.types.strings.temporal import parse_timestamp

_DATE = r"\d{4}-\d{2}-\d{2}"
_TIME = r"\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?"
_TIMES = {"date": _DATE, "time": _TIME, "timestamp": f"{_DATE} {_TIME}"}
"""The form of each literal of a time."""
_FORMS = {"date": "2024-12-31", "time": "23:59:59", "timestamp": "2024-12-31 23:59:59.123"}


def translate_literal(node: n.Literal, source: str) -> TypedSql:
    """Translate a constant.

    Args:
        node: The constant.
        source: The text in which positions count.
    """
    text = node.text
    match node.kind:
        case "string":
            return TypedSql(literal(text)[0], t.Char(max(len(text), 1), nullable=False), text)
        case "null":
            return TypedSql("NULL")
        case "boolean":
            return TypedSql(text, t.Boolean(nullable=False), text)
        case "bytes":
            return TypedSql(f"X'{text}'", t.Binary(max(len(text) // 2, 1), nullable=False))
        case "number":
            return _translate_number(node, source)
        case "date" if _is_time(node.kind, text):
            return TypedSql(f"DATE '{text}'", t.Date(nullable=False))
        case "time" if _is_time(node.kind, text):
            kind = t.Time(_fraction_digits(text), nullable=False)
            return TypedSql(spark_cast(f"TIME '{text}'", kind), kind)  # Spark's own literals have precision 6
        case "timestamp" if _is_time(node.kind, text):
            return TypedSql(f"TIMESTAMP_NTZ '{text}'", t.Timestamp(_fraction_digits(text), nullable=False))
    what, form = node.kind.upper(), _FORMS[node.kind]
    return _fail(source, node, what, f"{text!r} is not a valid {what}", f"write it as '{form}'")


def _translate_number(node: n.Literal, source: str) -> TypedSql:
    """Translate a number: INT, BIGINT, DECIMAL, or DOUBLE with an exponent."""
    text = node.text.removesuffix(".")
    if "e" in text.lower():
        return TypedSql(f"{text.upper().replace('E+', 'E')}D", t.Double(nullable=False), text)
    if "." in text:
        whole, _, fraction = text.partition(".")
        digits = len(whole.lstrip("0") or whole[:1]) + len(fraction)
        if digits > t.MAX_DECIMAL:
            _fail(source, node, text, f"{text} has more than 38 digits", "write at most 38 digits")
        kind = t.Decimal(max(digits, len(fraction), 1), len(fraction), nullable=False)
        return TypedSql(f"CAST('{text}' AS DECIMAL({kind.precision}, {kind.scale}))", kind, text)
    if len(text.lstrip("0")) > t.MAX_DECIMAL:
        _fail(source, node, text, f"the number has {len(text)} digits, more than 38", "write at most 38 digits")
    value = int(text)
    if value < 2**31:
        return TypedSql(str(value), t.Int(nullable=False), text)
    if value < 2**63:
        return TypedSql(f"{value}L", t.BigInt(nullable=False), text)
    return TypedSql(f"{value}BD", t.Decimal(len(str(value)), 0, nullable=False), text)


def translate_interval(node: n.Span, source: str) -> TypedSql:
    """Translate an interval; its constant is the number of microseconds, and None if it is of months.

    Args:
        node: The interval.
        source: The text in which positions count.
    """
    unit, until, text = node.unit, node.until, node.text.strip()
    months = unit in ("YEAR", "QUARTER", "MONTH")
    if unit == until and unit in ("WEEK", "QUARTER"):
        if not re.fullmatch(r"-?\d{1,9}", text):
            _fail(source, node, unit, f"{text!r} is not a number of {unit.lower()}s", f"write INTERVAL '2' {unit}")
        many, unit = (7, "DAY") if unit == "WEEK" else (3, "MONTH")
        text, until = str(int(text) * many), unit
    length = interval_microseconds(node)
    if length is None if not months else not re.fullmatch(r"-?\d+" if unit == until else r"-?\d+-\d+", text):
        _fail(source, node, "INTERVAL", f"{text!r} is not an interval of {unit}", f"write INTERVAL '5' {unit}")
    shown = unit if unit == until else f"{unit} TO {until}"
    constant = None if length is None else str(length)
    kind = MonthInterval if months else DayInterval
    return TypedSql(f"(INTERVAL '{text}' {shown})", kind(nullable=False), constant)


def _fail(source: str, node: n.Node, name: str, reason: str, fix: str) -> NoReturn:
    """Raise the error for a constant."""
    raise UntranslatableError(name, reason, fix, source, node.at)


def _is_time(kind: str, text: str) -> bool:
    """Whether the text of a literal has the form of its kind, and its day and its time exist."""
    if re.fullmatch(_TIMES[kind], text) is None:
        return False
    whole = {"date": f"{text} 00:00:00", "time": f"2000-01-01 {text}"}.get(kind, text)
    try:
        parse_timestamp(whole.replace(" ", "T"), "ISO-8601", zoned=False)  # other forms take the last day of a month
    except ValueError:
        return False
    return True


def _fraction_digits(text: str) -> int:
    """Count the digits after the point."""
    return len(text.partition(".")[2])
