"""The lattice of column types: the narrowest type that holds the values of two, and the same for tables.

`join` is associative, commutative and idempotent, so that what many messages show can be joined in any order, repeated
and replayed. It follows the tree of Flink CDC's ``SchemaMergingUtils``; `docs/differences-ingest.md` lists where it
does not. No information is lost: a value that a type holds can be read as every wider type.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kdsl.types import model as t

_DIGITS: dict[type[t.DataType], int] = {t.TinyInt: 3, t.SmallInt: 5, t.Int: 10, t.BigInt: 19}
_WIDER: dict[type[t.DataType], tuple[type[t.DataType], ...]] = {
    t.TinyInt: (t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double),
    t.SmallInt: (t.SmallInt, t.Int, t.BigInt, t.Float, t.Double),
    t.Int: (t.Int, t.BigInt, t.Double),
    t.BigInt: (t.BigInt, t.Double),
    t.Float: (t.Float, t.Double),
    t.Double: (t.Double,),
}
_MICROS = 6  # digits of a second that Spark's timestamps have
_INSTANTS = (t.Date, t.Timestamp, t.TimestampLtz)
_TEXTS = (t.Char, t.VarChar)
_BYTES = (t.Binary, t.VarBinary)


class PrimaryKeyError(ValueError):
    """Two schemas of one table have different primary keys."""


@attrs.frozen
class TableSchema:
    """The physical columns of a table, and its primary key.

    Attributes:
        columns: The columns, in order; their names are those in messages.
        primary_key: The names of the key columns; empty where no key is known.
    """

    columns: tuple[t.Field, ...]
    primary_key: tuple[str, ...] = ()

    @property
    def row(self) -> t.Row:
        """The columns as a row type."""
        return t.Row(self.columns)


def join(a: t.DataType, b: t.DataType) -> t.DataType:
    """The narrowest type that holds the values of both types; STRING where only a string does.

    The result is nullable if one of them is. Nested types (ARRAY, MAP, MULTISET, ROW) that are not equal join to
    STRING, which holds their values as JSON.
    """
    if a == b:
        return a
    return _join_not_null(a.as_nullable(False), b.as_nullable(False)).as_nullable(a.nullable or b.nullable)


def holds(wide: t.DataType, narrow: t.DataType) -> bool:
    """Whether a type holds every value of another one, except for NULL."""
    return join(wide, narrow).as_nullable() == wide.as_nullable()


def _join_not_null(a: t.DataType, b: t.DataType) -> t.DataType:
    """Join two types that are both NOT NULL, or whose nullability does not matter; STRING where only a string fits."""
    if a == b:
        return a
    if isinstance(a, t.Decimal) or isinstance(b, t.Decimal):
        return _join_decimals(a, b)
    if isinstance(a, _INSTANTS) and isinstance(b, _INSTANTS):
        zoned = isinstance(a, t.TimestampLtz) or isinstance(b, t.TimestampLtz)
        return (t.TimestampLtz if zoned else t.Timestamp)(max(_second_digits(a), _second_digits(b)))
    match a, b:
        case t.Time(precision=p), t.Time(precision=q):
            return t.Time(max(p, q))
        case t.Char(length=m), t.Char(length=n):
            return t.Char(max(m, n))
        case t.Binary(length=m), t.Binary(length=n):
            return t.Binary(max(m, n))
        case ((t.Char(length=m) | t.VarChar(length=m)), (t.Char(length=n) | t.VarChar(length=n))):
            return t.VarChar(max(m, n))
        case ((t.Binary(length=m) | t.VarBinary(length=m)), (t.Binary(length=n) | t.VarBinary(length=n))):
            return t.VarBinary(max(m, n))
    for kind in _WIDER.get(type(a), ()):
        if kind in _WIDER.get(type(b), ()):
            return kind()
    return t.STRING


def _second_digits(kind: t.DataType) -> int:
    """The digits of a second that a date or timestamp brings into a timestamp: 6 for a date."""
    return kind.precision if isinstance(kind, (t.Timestamp, t.TimestampLtz)) else _MICROS


def _join_decimals(a: t.DataType, b: t.DataType) -> t.DataType:
    """Join two types, at least one of them a DECIMAL: a DECIMAL for both, or STRING if 38 digits do not suffice.

    It is also STRING if the other one is neither a DECIMAL nor an integer, as for DOUBLE.
    """
    sizes = []
    for kind in (a, b):
        match kind:
            case t.Decimal(precision=precision, scale=scale):
                sizes.append((precision - scale, scale))
            case _ if type(kind) in _DIGITS:
                sizes.append((_DIGITS[type(kind)], 0))
            case _:
                return t.STRING
    whole, scale = (max(side) for side in zip(*sizes, strict=True))
    return t.Decimal(whole + scale, scale) if whole + scale <= t.MAX_DECIMAL else t.STRING


def join_columns(a: Sequence[t.Field], b: Sequence[t.Field]) -> tuple[t.Field, ...]:
    """The columns of both lists: first those of `a` in their order, then those that only `b` has.

    A column that one list does not have is nullable, because rows without it are NULL there. Which columns there are,
    and their types, does not depend on the order of the lists.
    """
    first, second = ({field.name: field for field in fields} for fields in (a, b))
    joined = []
    for name in dict.fromkeys([*first, *second]):
        one, other = first.get(name), second.get(name)
        if one is not None and other is not None:
            joined.append(attrs.evolve(one, type=join(one.type, other.type), comment=one.comment or other.comment))
        else:
            only = one or other
            assert only is not None
            joined.append(attrs.evolve(only, type=only.type.as_nullable()))
    return tuple(joined)


def join_schemas(a: TableSchema | None, b: TableSchema | None) -> TableSchema | None:
    """The schema of a table that two schemas describe; None stands for a table that is not known yet.

    The columns are joined by `join_columns`; a primary key that only one of them has is kept.

    Raises:
        PrimaryKeyError: They have different primary keys.
    """
    if a is None or b is None:
        return a or b
    if a.primary_key and b.primary_key and a.primary_key != b.primary_key:
        raise PrimaryKeyError(
            f"the primary key is ({', '.join(a.primary_key)}) in one schema of the table and "
            f"({', '.join(b.primary_key)}) in another"
        )
    return TableSchema(join_columns(a.columns, b.columns), a.primary_key or b.primary_key)
