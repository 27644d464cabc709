"""Translates arithmetic of numbers, times and intervals to Spark SQL, with the types that Flink gives the results."""

from __future__ import annotations

import re

from kdsl.flink_sql.expressions.calls import Translator
from kdsl.flink_sql.expressions.casts import cast
from kdsl.flink_sql.expressions.values import (
    DayInterval,
    Interval,
    MonthInterval,
    TypedSql,
    arithmetic_type,
    as_decimal,
    common_number_type,
    same_in_spark,
)
from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.intervals import LONGEST_IN_STEPS
from kdsl.types import model as t

_HALF_DAY = 43_200_000_000


def translate_arithmetic(translator: Translator, node: n.Binary, left: TypedSql, right: TypedSql) -> TypedSql:
    """Translate ``+ - * / %`` of numbers, or of times and intervals, with the type that Flink gives the result.

    If a number is NULL without a type, the result is NULL in the type of the other, or INT.
    """
    operator = node.operator
    if "interval" in (left.family, right.family) or {left.family, right.family} & {"date", "time", "timestamp"}:
        return _translate_moved_time(translator, node, left, right)
    for value in (left, right):
        translator.require_family(node, value, "number", operator)
    if left.type is None or right.type is None:
        kind = (left.type or right.type or t.Int()).as_nullable()
        return cast(TypedSql("NULL"), kind)
    kind = arithmetic_type(operator, left.type, right.type).as_nullable(left.nullable or right.nullable)
    if isinstance(kind, t.Decimal):
        a, b = widen(left, as_decimal(left.type)), widen(right, as_decimal(right.type))
        return TypedSql(f"CAST(({a} {operator} {b}) AS DECIMAL({kind.precision}, {kind.scale}))", kind)
    wide = common_number_type(left.type, right.type)
    a, b = widen(left, wide), widen(right, wide)
    if not same_in_spark(kind, wide):  # a remainder has the type of the divisor
        return TypedSql(f"CAST(({a} {operator} {b}) AS {kind.name})", kind)
    if operator == "/" and isinstance(kind, t.TinyInt | t.SmallInt | t.Int | t.BigInt):
        return TypedSql(f"CAST(({a} DIV {b}) AS {kind.name})", kind)
    if operator == "/" and isinstance(kind, t.Float):
        return TypedSql(f"CAST(({a} / {b}) AS FLOAT)", kind)
    return TypedSql(f"({a} {operator} {b})", kind)


def _translate_moved_time(translator: Translator, node: n.Binary, left: TypedSql, right: TypedSql) -> TypedSql:
    """Translate the sum or difference of a time and an interval or of two intervals, or an interval times a number."""
    operator = node.operator
    if left.family == "interval" and right.family != "interval" and operator == "+":
        left, right = right, left
    nullable = left.nullable or right.nullable
    match left.type, right.type:
        case (t.TimestampLtz(), DayInterval()) if operator in ("+", "-"):
            # Spark would add days of the session's zone, which may have 23 hours
            if right.constant is None:
                translator.fail(node, operator, "an instant moves by a constant here", "write INTERVAL '26' HOUR")
            return TypedSql(_move_instant(left.text, operator, int(right.constant)), left.type.as_nullable(nullable))
        case ((t.Timestamp() | t.TimestampLtz()), Interval()) if operator in ("+", "-"):
            kind = left.type.as_nullable(nullable)
            return TypedSql(f"({left.text} {operator} {right.text})", kind)
        case t.Date(), Interval() if operator in ("+", "-"):
            days = re.fullmatch(r"\(INTERVAL '(-?\d+)' (?:DAY|MONTH|YEAR)\)", right.text)
            if days or isinstance(right.type, MonthInterval):
                return TypedSql(f"({left.text} {operator} {right.text})", t.Date(nullable=nullable))
            translator.fail(
                node, operator, "a DATE moves by whole days, months or years", "CAST it to TIMESTAMP(3) first"
            )
        case Interval(), Interval() if same_in_spark(left.type, right.type) and operator in ("+", "-"):
            return TypedSql(f"({left.text} {operator} {right.text})", left.type)
        case Interval(), _ if right.family == "number" and operator == "*":
            return TypedSql(f"({left.text} * {right.text})", left.type)
        case _, Interval() if left.family == "number" and operator == "*":
            return TypedSql(f"({right.text} * {left.text})", right.type)
    reason = f"{left.spelling} {operator} {right.spelling} cannot be computed"
    return translator.fail(
        node, operator, reason, "use TIMESTAMPDIFF for the time between two, or an INTERVAL to move one"
    )


def widen(value: TypedSql, kind: t.DataType) -> str:
    """Write the SQL of a number in a wider type, without a cast if Spark's type is the same."""
    assert value.type is not None
    return value.text if same_in_spark(value.type, kind) else cast(value, kind).text


def _move_instant(text: str, operator: str, length: int) -> str:
    """Write the SQL of an instant plus or minus (``operator``) a length in microseconds, whatever the time zone."""
    sign = 1 if (length >= 0) == (operator == "+") else -1
    if abs(length) > LONGEST_IN_STEPS:
        return f"timestamp_micros(unix_micros({text}) {operator} ({length}L))"
    steps, rest = divmod(abs(length), _HALF_DAY)
    for step in [_HALF_DAY] * steps + [rest] * (rest > 0 or not steps):
        text = f"({text} {'+' if sign > 0 else '-'} INTERVAL '{step // 1_000_000}.{step % 1_000_000:06}' SECOND)"
    return text
