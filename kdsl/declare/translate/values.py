"""Typed pieces of Spark SQL, and how Flink makes one type of two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import attrs

from kdsl.types import model as t

INTEGERS: tuple[type[t.DataType], ...] = (t.TinyInt, t.SmallInt, t.Int, t.BigInt)
TEXTS = (t.Char, t.VarChar)
_DIGITS = {t.TinyInt: 3, t.SmallInt: 5, t.Int: 10, t.BigInt: 19}

Family = Literal["boolean", "number", "text", "bytes", "date", "time", "timestamp", "interval", "other", "null"]


@attrs.frozen
class Interval(t.DataType):
    """INTERVAL, which only expressions have: of months, or of days, hours, minutes and seconds."""

    name = "INTERVAL"
    months: bool = False


@attrs.frozen
class Value:
    """A piece of Spark SQL with the type that Flink gives it.

    Attributes:
        text: The SQL; it binds as tightly as a name or a call.
        type: The type; None for a bare NULL.
        constant: The text of a constant string, or the digits of a constant number.
    """

    text: str
    type: t.DataType | None = None
    constant: str | None = None

    @property
    def family(self) -> Family:
        """The kind of type, by which operators go."""
        return family(self.type)

    @property
    def spelling(self) -> str:
        """The type's name in messages."""
        return "NULL" if self.type is None else self.type.spelling

    @property
    def nullable(self) -> bool:
        """Whether it may be NULL."""
        return self.type is None or self.type.nullable


def family(kind: t.DataType | None) -> Family:
    """The kind of a type."""
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


def spark_name(kind: t.DataType) -> str:
    """A type as Spark SQL writes it."""
    match kind:
        case t.Char() | t.VarChar():
            return "STRING"
        case t.Binary() | t.VarBinary():
            return "BINARY"
        case t.Decimal(precision=precision, scale=scale):
            return f"DECIMAL({precision}, {scale})"
        case t.Timestamp():
            return "TIMESTAMP_NTZ"
        case t.TimestampLtz():
            return "TIMESTAMP_LTZ"
        case t.Time(precision=precision):
            return f"TIME({min(precision, 6)})"
        case t.Array(element=element):
            return f"ARRAY<{spark_name(element)}>"
        case t.Map(key=key, value=value):
            return f"MAP<{spark_name(key)}, {spark_name(value)}>"
        case t.Multiset(element=element):
            return f"MAP<{spark_name(element)}, INT>"
        case t.Row(fields=fields):
            from kdsl.types.sql import quoted

            return f"STRUCT<{', '.join(f'{quoted(f.name)}: {spark_name(f.type)}' for f in fields)}>"
        case _:
            return kind.name


def same_in_spark(one: t.DataType, other: t.DataType) -> bool:
    """Whether two types are one in Spark, so that nothing needs to be cast."""
    return spark_name(one) == spark_name(other)


def as_decimal(kind: t.DataType) -> t.Decimal:
    """An exact number's type as DECIMAL."""
    if isinstance(kind, t.Decimal):
        return kind
    return t.Decimal(_DIGITS[type(kind)], 0)


def common(kinds: Iterable[t.DataType | None]) -> t.DataType | None:
    """The type that holds the values of all of these, as CASE and COALESCE need it; None where there is none."""
    found: t.DataType | None = None
    nullable = False
    for kind in kinds:
        if kind is None:
            nullable = True
            continue
        nullable = nullable or kind.nullable
        merged = kind if found is None else _merged(found, kind)
        if merged is None:
            raise NoCommonTypeError(found, kind)
        found = merged
    return None if found is None else found.as_nullable(nullable)


class NoCommonTypeError(Exception):
    """Two types have none that holds the values of both."""

    def __init__(self, one: t.DataType | None, other: t.DataType) -> None:
        super().__init__(one, other)
        self.one, self.other = one, other


def _merged(one: t.DataType, other: t.DataType) -> t.DataType | None:
    if one.as_nullable() == other.as_nullable():
        return one.as_nullable()
    kind = family(one)
    if kind != family(other):
        return None
    if kind == "other":
        return _merged_inside(one, other)
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
    return number(one, other) if kind == "number" else None


def _merged_inside(one: t.DataType, other: t.DataType) -> t.DataType | None:
    """The type of two arrays, maps or rows, whose members go together one by one."""
    try:
        match one, other:
            case t.Array(element=a), t.Array(element=b):
                return t.Array(_both(a, b))
            case t.Multiset(element=a), t.Multiset(element=b):
                return t.Multiset(_both(a, b))
            case t.Map(key=k, value=v), t.Map(key=k2, value=v2):
                return t.Map(_both(k, k2), _both(v, v2))
            case t.Row(fields=ours), t.Row(fields=theirs) if len(ours) == len(theirs):
                pairs = zip(ours, theirs, strict=True)
                return t.Row(tuple(attrs.evolve(x, type=_both(x.type, y.type)) for x, y in pairs))
    except NoCommonTypeError:
        return None
    return None


def _both(one: t.DataType, other: t.DataType) -> t.DataType:
    found = common([one, other])
    assert found is not None
    return found


def number(one: t.DataType, other: t.DataType) -> t.DataType:
    """The type that holds two numbers."""
    kinds = (type(one), type(other))
    if t.Double in kinds or (t.Float in kinds and t.Decimal in kinds):
        return t.Double()
    if t.Float in kinds:
        return t.Float()
    if t.Decimal in kinds:
        a, b = as_decimal(one), as_decimal(other)
        scale = max(a.scale, b.scale)
        return adjusted(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)
    return max(one, other, key=lambda kind: INTEGERS.index(type(kind))).as_nullable()


def adjusted(precision: int, scale: int) -> t.Decimal:
    """A DECIMAL of at most 38 digits; those before the point come first, but six behind it are kept."""
    if precision <= t.MAX_DECIMAL:
        return t.Decimal(precision, scale)
    whole = precision - scale
    return t.Decimal(t.MAX_DECIMAL, max(t.MAX_DECIMAL - whole, min(scale, 6)))


def arithmetic(operator: str, one: t.DataType, other: t.DataType) -> t.DataType:
    """The type of a sum, product, quotient or rest of two numbers."""
    if operator == "%" and isinstance(one, INTEGERS) and isinstance(other, INTEGERS):
        return other.as_nullable()
    if t.Decimal not in (type(one), type(other)) or {type(one), type(other)} & {t.Float, t.Double}:
        return number(one, other)
    a, b = as_decimal(one), as_decimal(other)
    match operator:
        case "+" | "-":
            scale = max(a.scale, b.scale)
            return adjusted(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)
        case "*":
            return adjusted(a.precision + b.precision + 1, a.scale + b.scale)
        case "/":
            scale = max(6, a.scale + b.precision + 1)
            return adjusted(a.precision - a.scale + b.scale + scale, scale)
        case _:
            scale = max(a.scale, b.scale)
            return adjusted(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)
