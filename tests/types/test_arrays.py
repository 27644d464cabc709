"""The comparison of Arrow values, the numbers of equal ones, and their bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kdsl.types.arrays import compare_values, number_rows, number_values, value_bytes

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


FLOATS = st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]) | st.none()
NUMBERS = st.integers(0, 2) | st.none()
STRUCTS = st.fixed_dictionaries({"a": NUMBERS, "b": FLOATS}) | st.none()
CASES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), NUMBERS),
    (pa.float64(), FLOATS),
    (pa.float32(), FLOATS),
    (pa.string(), st.sampled_from(["", "a", "b"]) | st.none()),
    (pa.struct({"a": pa.int64(), "b": pa.float64()}), STRUCTS),
    (pa.list_(pa.float64()), st.lists(FLOATS, max_size=2) | st.none()),
    (pa.list_(pa.list_(pa.int64())), st.lists(st.lists(NUMBERS, max_size=2) | st.none(), max_size=2) | st.none()),
    (pa.list_(pa.struct({"a": pa.int64(), "b": pa.float64()})), st.lists(STRUCTS, max_size=2) | st.none()),
    (
        pa.map_(pa.string(), pa.float64()),
        st.lists(st.tuples(st.sampled_from("ab"), FLOATS), max_size=2, unique_by=lambda entry: entry[0]) | st.none(),
    ),
    (pa.struct({}), st.just({}) | st.none()),
]


def to_comparable(value: Any) -> Any:
    """A value that is equal to another one of these if their values are: NaN to NaN, -0.0 to 0.0."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case dict():
            return tuple((name, to_comparable(inner)) for name, inner in sorted(value.items()))
        case list() | tuple():
            return tuple(map(to_comparable, value))
    return value


@pytest.mark.parametrize(("kind", "values"), CASES, ids=[str(kind) for kind, _ in CASES])
@given(data=st.data())
def test_values_are_equal_if_their_numbers_are(
    kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(values, min_size=1, max_size=12))
    start = data.draw(st.integers(0, len(drawn) - 1))
    array, expected = pa.array(drawn, kind)[start:], [to_comparable(value) for value in drawn[start:]]

    numbers, count = number_values(array)

    assert all(0 <= number < count for number in numbers)
    assert [[a == b for b in numbers] for a in numbers] == [[a == b for b in expected] for a in expected]
    reverse = array.take(pa.array(range(len(array) - 1, -1, -1)))
    assert compare_values(array, reverse).tolist() == [
        a == b for a, b in zip(expected, reversed(expected), strict=True)
    ]
    rows, _ = number_rows([array, reverse])
    pairs = list(zip(expected, reversed(expected), strict=True))
    assert [[a == b for b in rows] for a in rows] == [[a == b for b in pairs] for a in pairs]
