"""Hypothesis strategies that several test modules share: column types, and values of them."""

from __future__ import annotations

from hypothesis import strategies as st

from kdsl.types import model as t

SIMPLE = (t.Boolean, t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double, t.Date)
LENGTHS = st.integers(1, t.MAX_LENGTH) | st.just(t.MAX_LENGTH)
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


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
        lambda found: t.Row(tuple(found))
    )


def types() -> st.SearchStrategy[t.DataType]:
    """Every type of the model, nested."""

    def nested(inner: st.SearchStrategy[t.DataType]) -> st.SearchStrategy[t.DataType]:
        return st.one_of(
            st.builds(t.Array, inner, nullable=st.booleans()),
            st.builds(t.Multiset, inner, nullable=st.booleans()),
            st.builds(t.Map, inner, inner, nullable=st.booleans()),
            st.builds(lambda row, null: row.as_nullable(null), row_types(inner), st.booleans()),
        )

    return st.recursive(scalar_types(), nested, max_leaves=8)
