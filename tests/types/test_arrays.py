"""The comparison of Arrow values, and their bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from kdsl.types.arrays import compare_values, value_bytes

PAIRS = [
    (math.nan, math.nan, True),
    (math.nan, 1.0, False),
    (math.nan, None, False),
    (None, None, True),
    (None, 0.0, False),
    (0.0, -0.0, True),
    (math.inf, math.inf, True),
    (math.inf, -math.inf, False),
    (1.5, 1.5, True),
    (1.5, 2.5, False),
]


@pytest.mark.parametrize("number", [pa.float32(), pa.float64()])
@pytest.mark.parametrize(
    ("nested", "wrap"),
    [
        (lambda kind: kind, lambda value: value),
        (pa.list_, lambda value: [1.0, value]),
        (lambda kind: pa.struct([("a", kind), ("b", pa.int32())]), lambda value: {"a": value, "b": 1}),
        (lambda kind: pa.list_(pa.struct([("a", kind)])), lambda value: [{"a": 1.0}, {"a": value}]),
        (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)]),
    ],
    ids=["plain", "list", "struct", "list of structs", "map"],
)
def test_values_are_equal_alike_in_columns_and_inside_of_others(
    nested: Callable[[pa.DataType], pa.DataType], wrap: Callable[[Any], Any], number: pa.DataType
) -> None:
    left, right = (pa.array([wrap(pair[side]) for pair in PAIRS], nested(number)) for side in (0, 1))

    assert compare_values(left, right).tolist() == [equal for *_, equal in PAIRS]


@pytest.mark.parametrize(
    ("kind", "values"),
    [(pa.string(), ["", "a", None]), (pa.list_(pa.string()), [[], ["a"], None]), (pa.bool_(), [True, False, None])],
)
def test_null_equals_null_only(kind: pa.DataType, values: list[Any]) -> None:
    left, right = (pa.array(side, kind) for side in ([*values] * 3, [v for v in values for _ in range(3)]))

    assert compare_values(left, right).tolist() == [i % 3 == i // 3 for i in range(9)]


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()])
def test_the_bytes_of_a_slice_are_those_of_its_values(kind: pa.DataType) -> None:
    array = pa.array(["abc", None, "\u6c34", "", "de"], kind)

    assert [value_bytes(array.slice(start)) for start in range(6)] == [8, 5, 5, 2, 2, 0]
    assert value_bytes(array.slice(1, 2)) == 3
    assert value_bytes(pa.nulls(3, kind)) == 0
