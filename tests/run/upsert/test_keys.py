"""The hash of a key never changes: state is found again by it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.run.upsert.keys import assign_shards, hash_keys
from tests.arrow_rows import in_spark_layout

MAP = pa.map_(pa.string(), pa.struct([pa.field("x", pa.int64(), False)]))


def columns() -> dict[str, pa.Array]:
    return {
        "bool": pa.array([True, False, None]),
        "tinyint": pa.array([1, -1, None], pa.int8()),
        "int": pa.array([1, -1, None], pa.int32()),
        "bigint": pa.array([1, 1 << 62, None], pa.int64()),
        "float": pa.array([1.5, -2.5, None], pa.float32()),
        "double": pa.array([1.5, -2.5, None], pa.float64()),
        "decimal": pa.array([Decimal("1.50"), Decimal("-7.25"), None], pa.decimal128(10, 2)),
        "string": pa.array(["", "a longer key than eight bytes", None]),
        "bytes": pa.array([b"\x00", b"\x00\x00", None]),
        "date": pa.array([dt.date(2024, 2, 29), dt.date(1969, 1, 1), None]),
        "timestamp": pa.array([dt.datetime(2024, 2, 29, 1, 2, 3, 4), dt.datetime(1, 1, 1), None], pa.timestamp("us")),
        "row": pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}, None]),
        "array": pa.array([[1], [1, 2], None]),
        "map": in_spark_layout(pa.array([[("a", {"x": 1})], [("a", None), ("b", {"x": 1})], None], MAP)),
    }


NUMBERS = {
    "bool": [2072007709074090988, 0, 10619448085380636937],
    "tinyint": [2072007709074090988, 12295136561472696349, 10619448085380636937],
    "int": [2072007709074090988, 12295136561472696349, 10619448085380636937],
    "bigint": [2072007709074090988, 13059039716200778587, 10619448085380636937],
    "float": [17893111857382162126, 17984292160385560016, 10619448085380636937],
    "double": [17893111857382162126, 17984292160385560016, 10619448085380636937],
    "decimal": [13810687608544146521, 18127654154232776929, 10619448085380636937],
    "string": [0, 2719400001286179505, 10619448085380636937],
    "bytes": [5812993414723107217, 13292848318682711622, 10619448085380636937],
    "date": [12070454089125285193, 12571308883258927367, 10619448085380636937],
    "timestamp": [15740474419599373939, 8358182347886306768, 10619448085380636937],
    "row": [8886315714799979226, 1554279756823976612, 10619448085380636937],
    "array": [12750315969589635144, 8042209169696862704, 10619448085380636937],
    "map": [6257828030377466701, 647717169438450068, 10619448085380636937],
}


@pytest.mark.parametrize("name", list(columns()))
def test_the_number_of_a_key_is_what_it_was_in_every_release(name: str) -> None:
    assert hash_keys([columns()[name]]).tolist() == NUMBERS[name]


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(max_size=40)), min_size=1, max_size=20), st.integers(0, 5))
def test_equal_keys_have_equal_numbers_whatever_the_layout(texts: list[str | None], before: int) -> None:
    array = pa.array(texts, pa.string())
    shifted = pa.concat_arrays([pa.array(["x"] * before, pa.string()), array]).slice(before)

    assert hash_keys([shifted]).tolist() == hash_keys([array]).tolist()
    assert hash_keys([array]).tolist() == [int(hash_keys([pa.array([one], pa.string())])[0]) for one in texts]


LISTS = st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.text(max_size=9)), max_size=4)), min_size=1)


@settings(deadline=None)
@given(LISTS, LISTS)
def test_lists_have_the_numbers_of_their_elements_and_places(lists: list[Any], before: list[Any]) -> None:
    kind = pa.list_(pa.string())
    array = pa.array([*before, *lists], kind).slice(len(before))

    numbers = hash_keys([array]).tolist()

    assert numbers == [int(hash_keys([pa.array([one], kind)])[0]) for one in lists]
    different = {repr(one): number for one, number in zip(lists, numbers, strict=True)}
    assert len(set(different.values())) == len(different)


def test_lists_of_lists_and_lists_in_rows_differ_by_their_elements() -> None:
    nested = [[[1], [2]], [[1, 2]], [[2], [1]], [[1, 2], []], [[], [1, 2]], [[]], [], [None], None]
    rows = [
        {"of": [1, 2], "n": 3},
        {"of": [1], "n": 3},
        {"of": [], "n": 3},
        {"of": None, "n": 3},
        {"of": [2, 1], "n": 3},
    ]

    for array in (pa.array(nested, pa.list_(pa.list_(pa.int32()))), pa.array(rows)):
        assert len(set(hash_keys([array]).tolist())) == len(array)


def test_zero_has_one_number_whatever_its_sign() -> None:
    assert len(set(hash_keys([pa.array([0.0, -0.0])]).tolist())) == 1


@pytest.mark.parametrize("keys", [range(20_000), range(0, 20_000 * 64, 64)])
def test_keys_are_spread_over_the_shards(keys: range) -> None:
    for array in (pa.array(keys), pa.array([f"customer-{k}" for k in keys])):
        counts = np.bincount(assign_shards([array], 64), minlength=64)

        assert len(counts) == 64
        assert counts.min() > 20_000 / 64 * 0.7
        assert counts.max() < 20_000 / 64 * 1.3
