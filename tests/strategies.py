"""Hypothesis strategies that several test modules share: column types, and values of them."""

from __future__ import annotations

import decimal
import os
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from kdsl.types import model as t

SIMPLE = (t.Boolean, t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double, t.Date)
LENGTHS = st.integers(1, t.MAX_LENGTH) | st.just(t.MAX_LENGTH)
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
ODD_NAMES = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from(" .`\"'$<>/\\\t\n\0\u2028\ufdd0{}[](),:"), max_size=8
)
"""Names that nobody would choose: of any characters, with blanks around them, dots and quotes, or empty."""
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)

EFFORT = float(os.environ.get("KDSL_TEST_EFFORT", "0.15"))  # 10 for a night: new examples are drawn in each run

_WIDE = decimal.Context(prec=t.MAX_DECIMAL)


def examples(count: int) -> int:
    """How many examples a costly property draws, of as many as an effort of 1 would draw."""
    return max(20, round(count * EFFORT))


def table_ids(*, min_size: int = 0) -> st.SearchStrategy[tuple[str, ...]]:
    """Ids of one to three names.

    Args:
        min_size: The length of the shortest name.
    """
    names = ODD_NAMES.filter(lambda name: len(name) >= min_size)
    return st.lists(names, min_size=1, max_size=3).map(tuple)


def scalar_types(nullable: st.SearchStrategy[bool] | None = None) -> st.SearchStrategy[t.DataType]:
    """Types without parts."""
    null = st.booleans() if nullable is None else nullable
    decimals = st.integers(1, t.MAX_DECIMAL).flatmap(
        lambda p: st.builds(t.Decimal, st.just(p), st.integers(0, p), nullable=null)
    )
    return st.one_of(
        *(st.builds(kind, nullable=null) for kind in SIMPLE),
        *(st.builds(kind, LENGTHS, nullable=null) for kind in (t.Char, t.VarChar, t.Binary, t.VarBinary)),
        *(st.builds(kind, st.integers(0, 9), nullable=null) for kind in (t.Time, t.Timestamp, t.TimestampLtz)),
        decimals,
    )


def row_types(
    member: st.SearchStrategy[t.DataType],
    *,
    names: st.SearchStrategy[str] = NAMES,
    min_size: int = 0,
    max_size: int = 4,
) -> st.SearchStrategy[t.Row]:
    """Rows of members of the given types, with distinct names."""
    fields = st.builds(t.Field, names, member, st.none() | TEXTS)
    return st.lists(fields, unique_by=lambda f: f.name, min_size=min_size, max_size=max_size).map(
        lambda value: t.Row(tuple(value))
    )


def types() -> st.SearchStrategy[t.DataType]:
    """Every type of the model, nested."""

    def nest(inner: st.SearchStrategy[t.DataType]) -> st.SearchStrategy[t.DataType]:
        return st.one_of(
            st.builds(t.Array, inner, nullable=st.booleans()),
            st.builds(t.Multiset, inner, nullable=st.booleans()),
            st.builds(t.Map, inner, inner, nullable=st.booleans()),
            st.builds(lambda row, null: row.as_nullable(null), row_types(inner), st.booleans()),
        )

    return st.recursive(scalar_types(), nest, max_leaves=8)


def values(
    kind: t.DataType, override: Callable[[t.DataType], st.SearchStrategy[Any] | None] = lambda _kind: None
) -> st.SearchStrategy[Any]:
    """Values of a type as Arrow takes them: dates, times and timestamps as numbers, rows as dicts, maps as pairs.

    Args:
        kind: The type; None is among the values when it is nullable.
        override: Gives the strategy of a type's values (except None) where the usual one does not fit.
    """
    chosen = override(kind)
    result = _present_values(kind, override) if chosen is None else chosen
    return st.none() | result if kind.nullable else result


def _present_values(
    kind: t.DataType, override: Callable[[t.DataType], st.SearchStrategy[Any] | None]
) -> st.SearchStrategy[Any]:
    match kind:
        case t.Char() | t.VarChar():
            return TEXTS
        case t.Binary() | t.VarBinary():
            return st.binary(max_size=30)
        case t.Boolean():
            return st.booleans()
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            bound = 1 << {t.TinyInt: 7, t.SmallInt: 15, t.Int: 31, t.BigInt: 63}[type(kind)]
            return st.integers(-bound, bound - 1)
        case t.Float():
            return st.floats(width=32)
        case t.Double():
            return st.floats()
        case t.Decimal(precision=precision, scale=scale):
            bound = 10**precision
            return st.integers(1 - bound, bound - 1).map(lambda v: decimal.Decimal(v).scaleb(-scale, _WIDE))
        case t.Date():
            return st.integers(-719_162, 2_932_896)  # 0001-01-01 to 9999-12-31
        case t.Time(precision=precision):
            unit = 10 ** (9 - precision)
            return st.integers(0, 86_400 * 10**precision - 1).map(lambda v: v * unit)
        case t.Timestamp() | t.TimestampLtz():
            return st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)  # the same years
        case t.Array(element=element):
            return st.lists(values(element, override), max_size=4)
        case t.Map(key=key, value=value):
            return _pairs(key, values(value, override), override)
        case t.Multiset(element=element):
            return _pairs(element, st.integers(1, 2**31 - 1), override)
        case t.Row(fields=fields):
            return st.fixed_dictionaries({f.name: values(f.type, override) for f in fields})
    raise AssertionError(kind)


def _pairs(
    key: t.DataType,
    value: st.SearchStrategy[Any],
    override: Callable[[t.DataType], st.SearchStrategy[Any] | None],
) -> st.SearchStrategy[Any]:
    keys = values(key.as_nullable(False), override)
    return st.lists(st.tuples(keys, value), max_size=3, unique_by=lambda pair: repr(pair[0]))
