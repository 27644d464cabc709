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
_INTEGERS = tuple(_DIGITS)
_NUMBERS = (*_INTEGERS, t.Decimal, t.Float, t.Double)
MAX_INTEGER = 1 << 53
"""Up to this integer, and down to its negative, DOUBLE holds all."""
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


def stores(wide: t.DataType, narrow: t.DataType) -> bool:
    """Whether a column of a type stores every value of another one, except for NULL: as the same value.

    A date is its midnight in a timestamp. A time without a zone in a column of instants is one of UTC, and an instant
    in a column of times without a zone is its time in UTC. BIGINT does not fit into FLOAT and DOUBLE, which do not hold
    all integers beyond 2^24 and 2^53.
    """
    match wide, narrow:
        case ((t.Double() | t.Float()), t.BigInt()):
            return False
        case ((t.Timestamp() | t.TimestampLtz()), t.Date()):
            return True
        case t.Timestamp(precision=p), t.TimestampLtz(precision=q):
            return p >= q
        case t.Char(length=m), (t.Char(length=n) | t.VarChar(length=n)):
            return m >= n
    return holds(wide, narrow)


def can_change(before: t.DataType, after: t.DataType) -> bool:
    """Whether a column with rows can get another type: each of its values then is the same, and written the same.

    A type becomes a string only if its values are spelled in one way, as the same values in messages are: integers,
    DECIMAL without a scale, BOOLEAN, DATE and bytes (base64). It does not for numbers with fractions (``1.5``,
    ``1.50``, ``15e-1``), times and timestamps. Times with and without a zone never replace each other, CHAR and nested
    types never change. BIGINT becomes DOUBLE only if no row has an integer beyond 2^53; `needs_small_integers` says
    so, and who changes the table checks it.

    Args:
        before: The type that the column has.
        after: The type that it would get.
    """
    if not (stores(after, before) or needs_small_integers(before, after)):
        return False
    match before, after:
        case ((t.Char() | t.Array() | t.Map() | t.Multiset() | t.Row()), _):
            return False
        case (t.Timestamp(), t.TimestampLtz()) | (t.TimestampLtz(), t.Timestamp()) | (t.Date(), t.TimestampLtz()):
            return False
        case t.VarChar(), (t.Char() | t.VarChar()):
            return True
        case _, (t.Char() | t.VarChar()):
            one_spelling = isinstance(before, (t.Boolean, t.Date, *_BYTES)) or type(before) in _DIGITS
            return one_spelling or (isinstance(before, t.Decimal) and before.scale == 0)
    return True


def widen(before: t.DataType, shown: t.DataType) -> t.DataType | None:
    """The type that a column with rows gets, so that it also stores values of another type; None if there is none.

    It is the column's own type if that stores them. Among numbers it is never a string, and a date or a time without a
    zone that meets an instant becomes, or stays, a time without a zone, in UTC.

    Args:
        before: The type that the column has.
        shown: The type of the values.
    """
    if stores(before, shown):
        return before
    after = join(before, shown).as_nullable(before.nullable)
    if isinstance(before, (t.Date, t.Timestamp)) and isinstance(after, t.TimestampLtz):
        after = t.Timestamp(after.precision, nullable=before.nullable)
    if isinstance(after, _TEXTS) and isinstance(before, _NUMBERS) and isinstance(shown, _NUMBERS):
        return None
    return after if stores(after, shown) and can_change(before, after) else None


def needs_small_integers(before: t.DataType, after: t.DataType) -> bool:
    """Whether a change of type keeps integers only up to 2^53: from BIGINT to DOUBLE."""
    return isinstance(before, t.BigInt) and isinstance(after, t.Double)


def can_change_key(before: t.DataType, after: t.DataType) -> bool:
    """Whether a column of a primary key can get another type: only a longer one of the same kind.

    Keys then neither become equal nor different: a wider integer, a longer string, more digits of a second.
    """
    same = type(before) is type(after) or (type(before) in _INTEGERS and type(after) in _INTEGERS)
    return same and not isinstance(before, (t.Decimal, t.Float, t.Double)) and can_change(before, after)


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
