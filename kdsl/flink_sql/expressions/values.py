"""Pieces of Spark SQL with types, and Flink's rules for the common type of two types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import attrs

from kdsl.types import model as t
from kdsl.types.spark import spark_type_name

INTEGERS: tuple[type[t.DataType], ...] = (t.TinyInt, t.SmallInt, t.Int, t.BigInt)
STRINGS = (t.Char, t.VarChar)
_DIGITS = {t.TinyInt: 3, t.SmallInt: 5, t.Int: 10, t.BigInt: 19}

Family = Literal["boolean", "number", "text", "bytes", "date", "time", "timestamp", "interval", "other", "null"]


@attrs.frozen
class Interval(t.DataType):
    """INTERVAL, which only expressions have: `MonthInterval` or `DayInterval`."""


@attrs.frozen
class MonthInterval(Interval):
    """INTERVAL YEAR TO MONTH, a number of months."""

    name = "INTERVAL YEAR TO MONTH"


@attrs.frozen
class DayInterval(Interval):
    """INTERVAL DAY TO SECOND, a number of microseconds."""

    name = "INTERVAL DAY TO SECOND"


@attrs.frozen
class TypedSql:
    """A piece of Spark SQL with the type that Flink gives it.

    Attributes:
        text: The SQL; it needs no brackets around it.
        type: The type; None for a NULL without a type.
        constant: The content of a constant string, or the digits of a constant number.
    """

    text: str
    type: t.DataType | None = None
    constant: str | None = None

    @property
    def family(self) -> Family:
        """The family of the type, on which operators depend."""
        return type_family(self.type)

    @property
    def spelling(self) -> str:
        """The type's name in messages."""
        return "NULL" if self.type is None else self.type.spelling

    @property
    def nullable(self) -> bool:
        """Whether it may be NULL."""
        return self.type is None or self.type.nullable


def type_family(kind: t.DataType | None) -> Family:
    """The family of a type: numbers, strings and so on.

    It is ``null`` for None, and ``other`` for arrays, maps, multisets and rows.
    """
    match kind:
        case None:
            return "null"
        case t.Boolean():
            return "boolean"
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt() | t.Float() | t.Double() | t.Decimal():
            return "number"
        case t.Char() | t.VarChar():
            return "text"
        case t.Binary() | t.VarBinary():
            return "bytes"
        case t.Date():
            return "date"
        case t.Time():
            return "time"
        case t.Timestamp() | t.TimestampLtz():
            return "timestamp"
        case Interval():
            return "interval"
        case _:
            return "other"


def same_in_spark(one: t.DataType, other: t.DataType) -> bool:
    """Whether two types are the same Spark type, nullability aside, so that no cast is needed."""
    return spark_type_name(one) == spark_type_name(other)


def as_decimal(kind: t.DataType) -> t.Decimal:
    """Return the DECIMAL that stores all numbers of an integer type; a DECIMAL as it is; KeyError for other types."""
    if isinstance(kind, t.Decimal):
        return kind
    return t.Decimal(_DIGITS[type(kind)], 0)


def common_type(kinds: Iterable[t.DataType | None]) -> t.DataType | None:
    """Find the type that can store values of several types, for CASE and COALESCE; None stands for NULL.

    Returns:
        The type, nullable if one of them is; None if all are NULL.
    """
    result: t.DataType | None = None
    nullable = False
    for kind in kinds:
        if kind is None:
            nullable = True
            continue
        nullable = nullable or kind.nullable
        merged = kind if result is None else _merge_types(result, kind)
        if merged is None:
            raise NoCommonTypeError(result, kind)
        result = merged
    return None if result is None else result.as_nullable(nullable)


class NoCommonTypeError(Exception):
    """Two types have no common type."""

    def __init__(self, one: t.DataType | None, other: t.DataType) -> None:
        super().__init__(one, other)
        self.one, self.other = one, other


def _merge_types(one: t.DataType, other: t.DataType) -> t.DataType | None:
    """Return the common type of two types, as nullable; None if there is none."""
    if one.as_nullable() == other.as_nullable():
        return one.as_nullable()
    kind = type_family(one)
    if kind != type_family(other):
        return None
    if kind == "other":
        return _merge_nested_types(one, other)
    match one, other:
        case ((t.Char(length=m) | t.VarChar(length=m)), (t.Char(length=n) | t.VarChar(length=n))):
            return t.VarChar(max(m, n))
        case ((t.Binary(length=m) | t.VarBinary(length=m)), (t.Binary(length=m2) | t.VarBinary(length=m2))):
            return t.VarBinary(max(m, m2))
        case t.Timestamp(precision=m), t.Timestamp(precision=n):
            return t.Timestamp(max(m, n))
        case t.TimestampLtz(precision=m), t.TimestampLtz(precision=n):
            return t.TimestampLtz(max(m, n))
        case t.Time(precision=m), t.Time(precision=n):
            return t.Time(max(m, n))
    return common_number_type(one, other) if kind == "number" else None


def _merge_nested_types(one: t.DataType, other: t.DataType) -> t.DataType | None:
    """Find the common type of two arrays, maps or rows, member by member; None if there is none."""
    try:
        match one, other:
            case t.Array(element=a), t.Array(element=b):
                return t.Array(_common_of_two(a, b))
            case t.Multiset(element=a), t.Multiset(element=b):
                return t.Multiset(_common_of_two(a, b))
            case t.Map(key=k, value=v), t.Map(key=k2, value=v2):
                return t.Map(_common_of_two(k, k2), _common_of_two(v, v2))
            case t.Row(fields=ours), t.Row(fields=theirs) if len(ours) == len(theirs):
                pairs = zip(ours, theirs, strict=True)
                return t.Row(tuple(attrs.evolve(x, type=_common_of_two(x.type, y.type)) for x, y in pairs))
    except NoCommonTypeError:
        return None
    return None


def _common_of_two(one: t.DataType, other: t.DataType) -> t.DataType:
    """Return the common type of two types; raise NoCommonTypeError if there is none."""
    kind = common_type([one, other])
    assert kind is not None
    return kind


def common_number_type(one: t.DataType, other: t.DataType) -> t.DataType:
    """Return the nullable type for numbers of two types; a DECIMAL may lose digits beyond 38 (`limit_decimal`)."""
    kinds = (type(one), type(other))
    if t.Double in kinds or (t.Float in kinds and t.Decimal in kinds):
        return t.Double()
    if t.Float in kinds:
        return t.Float()
    if t.Decimal in kinds:
        a, b = as_decimal(one), as_decimal(other)
        scale = max(a.scale, b.scale)
        return limit_decimal(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)
    return max(one, other, key=lambda kind: INTEGERS.index(type(kind))).as_nullable()


def limit_decimal(precision: int, scale: int) -> t.Decimal:
    """Return a DECIMAL of at most 38 digits; those before the point have priority, but up to six after it are kept."""
    if precision <= t.MAX_DECIMAL:
        return t.Decimal(precision, scale)
    whole = precision - scale
    return t.Decimal(t.MAX_DECIMAL, max(t.MAX_DECIMAL - whole, min(scale, 6)))


def arithmetic_type(operator: str, one: t.DataType, other: t.DataType) -> t.DataType:
    """Return the nullable type that Flink gives the result of ``+``, ``-``, ``*``, ``/`` or ``%`` of two numbers."""
    if operator == "%" and isinstance(one, INTEGERS) and isinstance(other, INTEGERS):
        return other.as_nullable()
    if t.Decimal not in (type(one), type(other)) or {type(one), type(other)} & {t.Float, t.Double}:
        return common_number_type(one, other)
    a, b = as_decimal(one), as_decimal(other)
    match operator:
        case "+" | "-":
            scale = max(a.scale, b.scale)
            return limit_decimal(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)
        case "*":
            return limit_decimal(a.precision + b.precision + 1, a.scale + b.scale)
        case "/":
            scale = max(6, a.scale + b.precision + 1)
            return limit_decimal(a.precision - a.scale + b.scale + scale, scale)
        case _:
            scale = max(a.scale, b.scale)
            return limit_decimal(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)
