"""The vectorised writers write what the judges in `numbers` and `temporal` write."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.types.strings import numbers, temporal
from kdsl_formats._text import writing

unhurried = settings(deadline=None)
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p)))
ROUND = st.integers(-400, 400).map(lambda n: n * 10**12)
MICROS = st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**17), 3 * 10**17) | ROUND
NANOS = st.integers(0, temporal.NANOS_PER_DAY - 1) | st.integers(0, 86_399_999).map(lambda n: n * 10**6)


def check(
    values: list[Any], array: pa.Array, write: Callable[[pa.Array], pa.Array], judge: Callable[[Any], str]
) -> None:
    """Write a column, whole and as a slice of a larger one."""
    expected = [None if v is None else judge(v) for v in values]
    more = pa.concat_arrays([array, array]).slice(len(array) // 2, len(array))
    turned = expected[len(array) // 2 :] + expected[: len(array) // 2]
    for given_array, texts in ((array, expected), (more, turned)):
        result = write(given_array)
        result.validate(full=True)
        assert (result.type, result.to_pylist()) == (pa.string(), texts)


def column(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values | values, max_size=12)


@unhurried
@given(column(st.floats() | st.floats(-1e8, 1e8) | st.integers(-400, 400).map(lambda e: float(f"1e{e}"))))
def test_doubles_equal_the_judge(values: list[float | None]) -> None:
    check(values, pa.array(values, pa.float64()), writing.floats, numbers.format_double)


@unhurried
@given(column(st.floats(width=32) | st.floats(-1e4, 1e4, width=32)))
def test_floats_equal_the_judge(values: list[float | None]) -> None:
    check(values, pa.array(values, pa.float32()), writing.floats, numbers.format_float)


@unhurried
@given(DECIMALS, st.booleans(), st.data())
def test_decimals_equal_the_judge(size: tuple[int, int], plain: bool, data: st.DataObject) -> None:
    precision, scale = size
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    short = st.builds(lambda n, e: n * 10**e, st.integers(-99, 99), st.integers(0, max(precision - 2, 0)))
    some = unscaled | short.filter(lambda n: abs(n) < 10**precision)
    values = data.draw(column(some.map(lambda n: numbers.parse_exact(f"{n}e-{scale}"))))
    array = pa.array(values, pa.decimal128(precision, scale))
    check(
        array.to_pylist(),
        array,
        lambda a: writing.decimals(a, plain=plain),
        lambda v: numbers.format_decimal(v, plain=plain),
    )


@unhurried
@given(column(st.integers(-(2**31), 2**31 - 1) | st.integers(-800_000, 3_000_000)))
def test_dates_equal_the_judge(values: list[int | None]) -> None:
    check(values, pa.array(values, pa.int32()).view(pa.date32()), writing.dates, temporal.format_date)


@unhurried
@given(column(NANOS))
def test_times_equal_the_judge(values: list[int | None]) -> None:
    check(values, pa.array(values, pa.int64()).view(pa.time64("ns")), writing.times, temporal.format_time)


@unhurried
@given(column(MICROS), st.sampled_from(["SQL", "ISO-8601"]), st.booleans())
def test_timestamps_equal_the_judge(values: list[int | None], standard: str, zoned: bool) -> None:
    kind = pa.timestamp("us", tz="UTC") if zoned else pa.timestamp("us")
    check(
        values,
        pa.array(values, pa.int64()).view(kind),
        lambda a: writing.timestamps(a, standard),
        lambda v: temporal.format_timestamp(v, standard, zoned=zoned),
    )


@unhurried
@given(column(st.binary(max_size=10)))
def test_base64_equals_the_standard_one(values: list[bytes | None]) -> None:
    check(values, pa.array(values, pa.binary()), writing.base64, lambda v: b64encode(v).decode())


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int8(), pa.int64()])
def test_booleans_and_integers_are_written_plainly(kind: pa.DataType) -> None:
    values = pa.array([1, None, 0]).cast(kind)
    write = writing.booleans if kind == pa.bool_() else writing.integers
    assert write(values).to_pylist() == (["true", None, "false"] if kind == pa.bool_() else ["1", None, "0"])
