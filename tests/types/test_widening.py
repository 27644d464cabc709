"""The lattice of types: its laws, and its agreement with Flink CDC's ``SchemaMergingUtils``."""

from __future__ import annotations

from itertools import combinations_with_replacement, permutations
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.widening import PrimaryKeyError, TableSchema, holds, join, join_columns, join_schemas
from tests.strategies import examples, row_types, scalar_types

PAGE = Path(__file__).parents[2] / "docs" / "differences-ingest.md"
NAMES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(10, 2)", "DECIMAL(38, 0)", "FLOAT", "DOUBLE"),
    *("CHAR(5)", "VARCHAR(10)", "STRING", "BINARY(5)", "VARBINARY(10)", "DATE", "TIME(0)", "TIME(3)", "TIMESTAMP(3)"),
    *("TIMESTAMP_LTZ(6)", "ARRAY<INT>"),
)
PAIRS = list(combinations_with_replacement(NAMES, 2))
# What Flink CDC makes of two types. Equal types stay; every pair that is not here becomes STRING.
FLINK_CDC = {
    ("TINYINT", "SMALLINT"): "SMALLINT", ("TINYINT", "INT"): "INT", ("TINYINT", "BIGINT"): "BIGINT",
    ("TINYINT", "DECIMAL(10, 2)"): "DECIMAL(10, 2)", ("TINYINT", "DECIMAL(38, 0)"): "DECIMAL(38, 0)",
    ("TINYINT", "FLOAT"): "FLOAT", ("TINYINT", "DOUBLE"): "DOUBLE",
    ("SMALLINT", "INT"): "INT", ("SMALLINT", "BIGINT"): "BIGINT", ("SMALLINT", "DECIMAL(10, 2)"): "DECIMAL(10, 2)",
    ("SMALLINT", "DECIMAL(38, 0)"): "DECIMAL(38, 0)", ("SMALLINT", "FLOAT"): "FLOAT", ("SMALLINT", "DOUBLE"): "DOUBLE",
    ("INT", "BIGINT"): "BIGINT", ("INT", "DECIMAL(10, 2)"): "DECIMAL(12, 2)",
    ("INT", "DECIMAL(38, 0)"): "DECIMAL(38, 0)", ("INT", "FLOAT"): "DOUBLE", ("INT", "DOUBLE"): "DOUBLE",
    ("BIGINT", "DECIMAL(10, 2)"): "DECIMAL(21, 2)", ("BIGINT", "DECIMAL(38, 0)"): "DECIMAL(38, 0)",
    ("BIGINT", "FLOAT"): "DOUBLE", ("BIGINT", "DOUBLE"): "DOUBLE",
    ("DECIMAL(10, 2)", "DECIMAL(38, 0)"): "DECIMAL(38, 0)",
    ("FLOAT", "DOUBLE"): "DOUBLE",
    ("DATE", "TIMESTAMP(3)"): "TIMESTAMP(9)", ("DATE", "TIMESTAMP_LTZ(6)"): "TIMESTAMP_LTZ(9)",
    ("TIMESTAMP(3)", "TIMESTAMP_LTZ(6)"): "TIMESTAMP_LTZ(6)",
}  # fmt: skip
laws = settings(max_examples=examples(10_000), deadline=None)


def differences() -> dict[tuple[str, str], tuple[str, str]]:
    """The pairs that the page lists, with the type of Flink CDC and kdsl's."""
    section = PAGE.read_text(encoding="utf-8").partition("## Joins of types")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")]
    types = {}
    for pair, theirs, ours, _ in rows:
        first, second = (name.strip("` ") for name in pair.split("`, `"))
        types[first, second] = (theirs.strip("`"), ours.strip("`"))
    return types


def test_there_are_210_pairs() -> None:
    assert len(PAIRS) == 210
    assert FLINK_CDC.keys() <= set(PAIRS)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_two_types_join_as_in_flink_cdc_or_as_the_page_says(a: str, b: str) -> None:
    theirs = a if a == b else FLINK_CDC.get((a, b), "STRING")
    joined = join(parse_type(a), parse_type(b))
    assert joined == join(parse_type(b), parse_type(a))
    if str(joined) != theirs:
        assert differences().get((a, b)) == (theirs, str(joined))
    else:
        assert (a, b) not in differences()


def some_types() -> st.SearchStrategy[t.DataType]:
    """Scalar types, and nested ones of them."""
    scalars = scalar_types()
    nested = st.sampled_from([t.Array, t.Multiset, lambda kind: t.Map(t.STRING, kind), lambda kind: t.row(a=kind)])
    return st.one_of(scalars, scalars, st.builds(lambda make, kind: make(kind), nested, scalars))


@laws
@given(some_types(), some_types(), some_types())
def test_the_join_is_associative_commutative_and_idempotent(a: t.DataType, b: t.DataType, c: t.DataType) -> None:
    assert join(join(a, b), c) == join(a, join(b, c))
    assert join(a, b) == join(b, a)
    assert join(a, a) == a
    assert holds(join(a, b), a)
    assert join(a, b).nullable == (a.nullable or b.nullable)


NUMBERS = st.sampled_from([parse_type(name) for name in NAMES] + [t.Decimal(p, s) for p in (1, 5, 20) for s in (0, 1)])


@laws
@given(NUMBERS, NUMBERS, NUMBERS)
def test_the_laws_hold_among_types_that_meet_below_string(a: t.DataType, b: t.DataType, c: t.DataType) -> None:
    assert len({join(join(x, y), z) for x, y, z in permutations([a, b, c])}) == 1
    assert join(join(a, b), b) == join(a, b)


@settings(max_examples=examples(2_000), deadline=None)
@given(*[row_types(NUMBERS, names=st.sampled_from("abcd"), max_size=4)] * 3)
def test_the_columns_of_tables_join_in_any_order(a: t.Row, b: t.Row, c: t.Row) -> None:
    def join_all(*rows: t.Row) -> set[tuple[str, t.DataType]]:
        columns = rows[0].fields
        for row in rows[1:]:
            columns = join_columns(columns, row.fields)
        return {(f.name, f.type) for f in columns}

    assert len({frozenset(join_all(*rows)) for rows in permutations([a, b, c])}) == 1
    assert join_columns(a.fields, a.fields) == a.fields
    assert [f.name for f in join_columns(a.fields, b.fields)][: len(a.fields)] == list(a.names)


def test_a_column_that_only_some_rows_have_is_nullable() -> None:
    a = t.row(id=t.BigInt(nullable=False), name=t.STRING.as_nullable(False))
    b = t.row(id=t.BigInt(nullable=False), age=t.BigInt(nullable=False))
    expected = t.row(id=t.BigInt(nullable=False), name=t.STRING, age=t.BigInt()).fields
    assert join_columns(a.fields, b.fields) == expected


def test_schemas_with_different_primary_keys_do_not_join() -> None:
    row = t.row(a=t.Int(nullable=False), b=t.Int(nullable=False)).fields
    assert join_schemas(None, TableSchema(row, ("a",))) == TableSchema(row, ("a",))
    assert join_schemas(TableSchema(row), TableSchema(row, ("a",))) == TableSchema(row, ("a",))
    with pytest.raises(PrimaryKeyError, match=r"\(a\) in one schema of the table and \(b\) in another"):
        join_schemas(TableSchema(row, ("a",)), TableSchema(row, ("b",)))
