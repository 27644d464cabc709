"""Arrow's values as Python's: every type, over its whole range."""

from __future__ import annotations

import ast
import datetime as dt
import json
import pickle
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kdsl.types.arrow_values import ArrowText, arrow_array, find_text, python_rows, python_value, python_values

UNITS = ("s", "ms", "us", "ns")
ZONES = (None, "UTC", "Europe/Berlin", "America/St_Johns", "+05:30", "No/Such")
TIMES = [
    *(pa.timestamp(unit, zone) for unit in UNITS for zone in ZONES),
    *(pa.duration(unit) for unit in UNITS),
    pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
]  # fmt: skip
OTHERS = [
    pa.null(), pa.bool_(), pa.int8(), pa.uint8(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
    pa.decimal128(38, 38), pa.decimal128(38, -5), pa.decimal256(76, 10), pa.binary(), pa.large_binary(), pa.binary(3),
    pa.binary_view(), pa.string(), pa.large_string(), pa.string_view(), pa.month_day_nano_interval(),
]  # fmt: skip


def raw_values(kind: pa.DataType, numbers: list[int]) -> pa.Array:
    """Values of a type of fixed width from their bits, as a format or Spark may hand them over."""
    ints = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.array(numbers, ints).buffers()[1]])


@st.composite
def time_arrays(draw: st.DrawFn) -> pa.Array:
    """Dates, times, timestamps and durations over all their bits."""
    kind = draw(st.sampled_from(TIMES))
    bits = 31 if kind.bit_width == 32 else 63
    whole = st.integers(-(1 << bits), (1 << bits) - 1)
    near = st.sampled_from([0, -1, 1, 253_402_300_799, 253_402_300_800, -62_135_596_800, -62_135_596_801, 86_400])
    near = near.map(lambda v: max(-(1 << bits), min((1 << bits) - 1, v)))
    numbers = draw(st.lists(whole | near, max_size=4))
    if kind == pa.date64():
        numbers = [number // 86_400_000 * 86_400_000 for number in numbers]
        numbers = [max(number, -(1 << 63) // 86_400_000 * 86_400_000 + 86_400_000) for number in numbers]
    if pa.types.is_duration(kind):  # pyarrow takes no timedelta in the second above its minimum
        numbers = [max(number, 1_000_000_000 - (1 << 63)) for number in numbers]
    return raw_values(kind, numbers)


def wrappings(array: pa.Array) -> list[pa.Array]:
    """An array inside every kind of nested type."""
    size = len(array)
    some = pa.array(range(size + 1), pa.int32())
    wide = pa.array(range(size + 1), pa.int64())
    keys = pa.array([str(i) for i in range(size)], pa.string())
    nested = [
        pa.StructArray.from_arrays([array, array], ["a", "b"]),
        pa.StructArray.from_arrays([array, array], ["a", "a"]),
        pa.ListArray.from_arrays(some, array),
        pa.LargeListArray.from_arrays(wide, array),
        pa.FixedSizeListArray.from_arrays(array, 1),
        pa.MapArray.from_arrays(some, keys, array),
        pa.UnionArray.from_sparse(pa.array([0] * size, pa.int8()), [array, array]),
        pa.ListViewArray.from_arrays(some[:-1], pa.array([1] * size, pa.int32()), array),
    ]
    return [*nested, pa.ListArray.from_arrays(some, nested[0])]


@given(time_arrays())
def test_every_time_has_a_value_and_exactly_the_ones_python_has_are_pythons(array: pa.Array) -> None:
    for scalar, value in zip(array, python_values(array), strict=True):
        if isinstance(value, ArrowText):
            assert value.scalar.equals(scalar)
            assert any(c.isdigit() for c in value)
            if pa.types.is_timestamp(array.type) and array.type.unit != "ns":
                seconds = scalar.value / {"s": 1, "ms": 1_000, "us": 1_000_000}[array.type.unit]
                assert not -62_135_596_800 <= seconds < 253_402_300_799
        else:
            again = pa.scalar(value, array.type)
            assert again.value == scalar.value
    assert arrow_array(python_values(array), array.type).equals(array)


@given(time_arrays())
def test_values_inside_others_are_those_of_a_column(array: pa.Array) -> None:
    values = python_values(array)
    struct, pairs, *lists, entries, union, views, rows = (python_values(one) for one in wrappings(array))
    assert struct == [{"a": value, "b": value} for value in values]
    assert pairs == [[("a", value), ("a", value)] for value in values]
    assert [*lists, views] == [[[value] for value in values]] * 4
    assert entries == [[(str(i), value)] for i, value in enumerate(values)]
    assert union == values
    assert rows == [[{"a": value, "b": value}] for value in values]
    for one in wrappings(array):
        shown = python_values(one)
        json.dumps(shown, default=str)
        assert (find_text(shown) is not None) == any(isinstance(value, ArrowText) for value in values)


def test_values_of_dictionaries_and_runs_are_those_of_their_types() -> None:
    far = raw_values(pa.timestamp("us", "UTC"), [1 << 60])
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), far)
    coded = pa.DictionaryArray.from_arrays(pa.array([0, None, 0]), far)
    (text,) = python_values(far)
    assert python_values(runs) == [text, text]
    assert python_values(coded) == [text, None, text]
    assert python_values(pa.chunked_array([far, far])) == [text, text]


@given(time_arrays())
def test_nested_values_become_the_arrays_that_they_were(array: pa.Array) -> None:
    struct, _, plain, *_, rows = wrappings(array)
    for one in (struct, plain, rows):
        assert arrow_array(python_values(one), one.type).equals(one)


@pytest.mark.parametrize("kind", [*OTHERS, *TIMES], ids=str)
def test_null_is_none_in_every_type(kind: pa.DataType) -> None:
    assert python_values(pa.nulls(2, kind)) == [None, None]
    assert python_values(pa.nulls(1, pa.list_(kind))) == [None]
    assert python_values(pa.nulls(1, pa.struct([("a", kind)]))) == [None]


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=10, min_value=-(10**60), max_value=10**60)))
def test_decimals_of_any_length_are_exact(numbers: list[object]) -> None:
    assert python_values(pa.array(numbers, pa.decimal256(76, 10))) == numbers


@given(st.lists(st.binary(max_size=6)), st.sampled_from([pa.string(), pa.large_string()]))
def test_strings_that_are_not_utf_8_have_escapes(parts: list[bytes], kind: pa.DataType) -> None:
    data = pa.array(parts, pa.binary() if kind == pa.string() else pa.large_binary())
    texts = pa.Array.from_buffers(kind, len(data), data.buffers())
    values = python_values(texts)
    for value, part in zip(values, parts, strict=True):
        assert value == part.decode(errors="backslashreplace")
        assert isinstance(value, ArrowText) == (value.encode() != part)
    assert arrow_array(values, kind).equals(texts)


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (pa.timestamp("us", "UTC"), 1_796_000_000_000_000_000, "+58882-12-22 00:53:20+00:00"),
        (pa.timestamp("us", "Europe/Berlin"), 1_796_000_000_000_000_000, "+58882-12-22 00:53:20+00:00"),
        (pa.timestamp("us"), -62_135_596_800_000_001, "0000-12-31 23:59:59.999999"),
        (pa.timestamp("ns"), 1, "1970-01-01 00:00:00.000000001"),
        (pa.date32(), -800_000, "-0221-09-04"),
        (pa.date32(), 1 << 30, "+2941775-04-07"),
        (pa.time64("us"), 90_000_000_000, "25:00:00"),
        (pa.time64("us"), -1_000_000, "-00:00:01"),
        (pa.time64("ns"), 1, "00:00:00.000000001"),
        (pa.duration("s"), 1 << 60, "1152921504606846976 s"),
    ],
)
def test_what_python_does_not_have_is_readable(kind: pa.DataType, number: int, text: str) -> None:
    value = python_value(raw_values(kind, [number])[0])
    assert (type(value), value) == (ArrowText, text)
    again = pickle.loads(pickle.dumps(value))
    assert again == value
    assert again.scalar.equals(value.scalar)


def test_an_instant_that_only_its_zone_moves_beyond_python_is_in_utc() -> None:
    last = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
    (value,) = python_values(pa.array([last]).cast(pa.timestamp("us", "Europe/Berlin")))
    assert (value, value.tzinfo) == (last, ZoneInfo("UTC"))


def test_rows_are_dicts_by_column_also_of_a_table_without_columns() -> None:
    rows = pa.table({"id": [1], "at": raw_values(pa.timestamp("us"), [1 << 60])})
    assert python_rows(rows) == [{"id": 1, "at": "+38504-08-17 21:30:06.846976"}]
    assert python_rows(rows.to_batches()[0]) == python_rows(rows)
    assert python_rows(rows.slice(1)) == []
    assert python_rows(rows.select([])) == [{}]


SHOWN = ("cli", "changelog", "datastream", "ingest/run/sinks", "run/dataframes")
"""Folders of kdsl in which values of rows become Python's."""


def test_no_module_that_hands_values_to_people_uses_what_fails_outside_pythons_ranges() -> None:
    uses = []
    for file in sorted(file for folder in SHOWN for file in Path("kdsl", folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("to_pylist", "as_py", "fromtimestamp"):
                uses.append(f"{file.relative_to('kdsl').as_posix()}: {ast.unparse(node.value)}")
    assert uses == [
        "cli/starts.py: datetime",  # an argument, whose range is checked
        "datastream/batches.py: self._array(whole.value, kind, batch)[0]",  # a string of the user's function
        "datastream/batches.py: batch.column(name)[at]",  # the topic, the partition and the offset of a record
        "ingest/run/sinks/last_rows.py: pc.any(pc.greater(lengths, 0))",
        "ingest/run/sinks/last_rows.py: packets.column('table')",  # names of tables
        "ingest/run/sinks/writer.py: pc.value_counts(self.rows.column(KIND))",
        "run/dataframes/changelog_text.py: table.column(ROW_KIND)",
        "run/dataframes/rows.py: rows.column(ROW_KIND)",
    ]
