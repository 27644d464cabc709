"""Casts of nested columns, where Arrow's own cast fails or loses values."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.types import model as t
from kdsl.types.arrow import arrow_field, arrow_type, cast_array, cast_batch, list_of_entries, plain_values
from tests import strategies
from tests.arrow_rows import in_spark_layout
from tests.strategies import examples

ROW = pa.struct([pa.field("x", pa.int64(), False), pa.field("on", pa.date32(), False)])
VALUES = [{"x": 1, "on": date(2024, 5, 1)}, None]
WIDE = pa.struct([pa.field("x", pa.decimal128(30, 0), False), pa.field("on", pa.date32(), False)])


@pytest.mark.parametrize(
    ("kind", "values", "to"),
    [
        (ROW, VALUES, WIDE),
        (pa.list_(ROW), [VALUES, None, []], pa.list_(WIDE)),
        (pa.large_list(ROW), [VALUES, None, []], pa.list_(WIDE)),
        (pa.list_(ROW, 2), [VALUES, None, VALUES], pa.list_(WIDE)),
        (pa.list_view(ROW), [VALUES, None, []], pa.list_(WIDE)),
        (pa.map_(pa.string(), ROW), [[("a", VALUES[0]), ("b", None)], None, []], pa.map_(pa.string(), WIDE)),
        (pa.struct([("inner", ROW)]), [{"inner": VALUES[0]}, {"inner": None}, None], pa.struct([("inner", WIDE)])),
    ],
    ids=lambda v: str(v) if isinstance(v, pa.DataType) else "",
)
def test_null_rows_with_members_that_are_not_null_are_cast(
    kind: pa.DataType, values: list[Any], to: pa.DataType
) -> None:
    array = pa.array(values, kind)
    for laid_out in (array, in_spark_layout(array)):
        for start in range(len(values) + 1):
            result = cast_array(laid_out[start:], to)

            result.validate(full=True)
            assert result.type == to
            assert result.to_pylist() == array[start:].to_pylist()


@given(st.data())
@settings(deadline=None, max_examples=examples(200))
def test_every_column_is_cast_to_a_type_with_other_names_of_elements(data: st.DataObject) -> None:
    kind = data.draw(strategies.types())
    array = pa.array(data.draw(st.lists(strategies.values(kind.as_nullable()), max_size=6)), arrow_type(kind))
    start = data.draw(st.integers(0, len(array)))
    renamed = cast_array(in_spark_layout(array)[start:], rename_elements(array.type))

    renamed.validate(full=True)
    assert repr(plain_values(renamed)) == repr(plain_values(array[start:]))  # NaN equals nothing


def rename_elements(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(pa.field("item", rename_elements(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(rename_elements(kind.key_type), rename_elements(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, rename_elements(f.type)) for f in kind])
    return kind


def test_members_are_found_by_name() -> None:
    array = pa.array([{"a": 1, "b": "x"}, None])

    assert cast_array(array, pa.struct([("b", pa.string()), ("a", pa.int8()), ("c", pa.int8())])).to_pylist() == [
        {"b": "x", "a": 1, "c": None},
        None,
    ]


@pytest.mark.parametrize(
    ("array", "kind", "reason"),
    [
        (
            pa.array([{"a": 1, "b": 2}]),
            pa.struct([("a", pa.int64()), pa.field("c", pa.int64(), False)]),
            "it has 'b', which struct<a: int64, c: int64 not null> does not have, and it lacks 'c', declared NOT NULL",
        ),
        (pa.array([1]), ROW, "int64 cannot be cast to struct<x: int64 not null, on: date32[day] not null>"),
        (pa.array([[1]]), ROW, "list<item: int64> cannot be cast to"),
        (pa.array([{"a": 1}]), pa.int64(), "struct<a: int64> cannot be cast to int64"),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), pa.list_(pa.int8()), "its entries are rows of a key"),
    ],
)
def test_what_has_another_shape_is_refused(array: pa.Array, kind: pa.DataType, reason: str) -> None:
    with pytest.raises(pa.ArrowTypeError) as e:
        cast_array(array, kind)

    assert reason in str(e.value)


def test_a_value_that_does_not_fit_is_refused_inside_a_row() -> None:
    with pytest.raises(pa.ArrowInvalid, match="300"):
        cast_array(pa.array([{"a": 300}]), pa.struct([("a", pa.int8())]))


def test_a_column_of_nulls_takes_any_type() -> None:
    result = cast_array(pa.nulls(2), WIDE)

    assert (result.type, result.to_pylist()) == (WIDE, [None, None])


def test_entries_of_maps_are_rows() -> None:
    maps = in_spark_layout(pa.array([[("a", VALUES[0]), ("b", None)], None], pa.map_(pa.string(), ROW)))

    assert list_of_entries(maps).to_pylist() == [
        [{"key": "a", "value": VALUES[0]}, {"key": "b", "value": None}],
        None,
    ]
    assert cast_array(maps, pa.list_(pa.struct([("name", pa.string()), ("row", ROW)]))).to_pylist()[0] == [
        {"name": "a", "row": VALUES[0]},
        {"name": "b", "row": None},
    ]


def test_a_batch_is_cast_by_the_names_of_its_columns() -> None:
    rows = in_spark_layout(pa.array(VALUES, ROW))
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), rows], ["n", "row"])
    wanted = pa.schema([pa.field("row", WIDE), pa.field("n", pa.decimal128(30, 0))])

    assert cast_batch(batch, wanted).schema == wanted
    assert cast_batch(batch, wanted).to_pylist() == [{"row": VALUES[0], "n": 1}, {"row": None, "n": 2}]


def test_plain_values_equal_those_in_arrow() -> None:
    kind = t.row(
        at=t.Timestamp(6),
        inner=t.row(on=t.Date(nullable=False), n=t.Int(nullable=False)),
        none=t.row(n=t.Int(nullable=False)),
    )
    rows = [{"at": datetime(1970, 1, 2), "inner": {"on": date(1970, 1, 2), "n": 3}, "none": None}, None]
    array = in_spark_layout(pa.array(rows, arrow_field("row", kind).type))
    expected = [{"at": 86_400_000_000, "inner": {"on": 1, "n": 3}, "none": None}, None]

    assert plain_values(array) == expected
    assert plain_values(pa.chunked_array([array, array[:1]])) == [*expected, expected[0]]
