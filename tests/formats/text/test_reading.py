"""What the vectorised readers are sure of is what the judges in `numbers` and `temporal` say."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.types.strings import numbers, temporal
from kdsl_formats._columns.string_spans import StringSpans
from kdsl_formats._text import digits, reading
from kdsl_formats._text.base64_text import parse_base64

unhurried = settings(deadline=None)
WIDTHS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
NOISE = st.text("0123456789+-.:eETtZzdfx naiIN=/AQg\u0661\n", max_size=12)
INTEGERS = st.integers(-(2**64), 2**64).map(str) | st.integers(-200, 200).map(str)
NUMBERS = (
    INTEGERS
    | st.floats().map(str)
    | st.decimals(allow_nan=False, allow_infinity=False).map(str)
    | st.decimals(-(10**6), 10**6, places=4).map(str)
    | st.sampled_from(
        ["1.00000017881393432617187499", "3.4028235677973366e38", "1e400", "1e-400", "0x1p3", "1d", "NaN"]
    )
)
DAYS = st.builds(
    lambda y, m, d: f"{y:04d}-{m:02d}-{d:02d}", st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32)
)
CLOCKS = st.builds(
    lambda h, m, s, f: f"{h:02d}:{m:02d}{s}{f}",
    st.integers(0, 24),
    st.integers(0, 60),
    st.sampled_from(["", ":00", ":59", ":60", ":07"]),
    st.sampled_from(["", ".", ".1", ".123", ".123456", ".1234567", ".123456789", ".1234567891", ".12x4567"]),
)
STAMPS = st.builds(
    lambda d, s, c, z: d + s + c + z, DAYS, st.sampled_from([" ", "T", "t"]), CLOCKS, st.sampled_from(["", "Z", "z"])
)


def columns(texts: st.SearchStrategy[str]) -> st.SearchStrategy[list[str | None]]:
    return st.lists(st.none() | texts | texts | NOISE, max_size=12)


def check(
    texts: list[str | None], read: Callable[[pa.Array], tuple[pa.Array, Any]], judge: Callable[[str], Any]
) -> None:
    """Read a column, whole and as a slice of a larger one, and compare what is not in doubt with the judge."""
    for array in (pa.array(texts, pa.string()), pa.array(["7", *texts, None, "8"], pa.string()).slice(1, len(texts))):
        values, fallback = read(array)
        values.validate(full=True)
        assert len(values) == len(fallback) == len(texts)
        got = plain(values)
        for text, value, needs_fallback in zip(texts, got, fallback, strict=True):
            if text is None:
                assert (value, bool(needs_fallback)) == (None, False)
            elif needs_fallback:
                assert value is None
            else:
                assert value == judge(text)


def plain(values: pa.Array) -> list[Any]:
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    if pa.types.is_floating(values.type):
        return [None if v is None else bits(v) for v in values.to_pylist()]
    return list(values.to_pylist())


def of_spans(read: Callable[..., tuple[pa.Array, Any]], *args: Any, **options: Any) -> Callable[[pa.Array], Any]:
    """A reader of arrays, from a reader of strings in a buffer."""
    return lambda array: read(StringSpans.of(array), *args, **options)


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def no_doubts(texts: list[str], read: Callable[[pa.Array], tuple[pa.Array, Any]]) -> None:
    for array in (pa.array(texts), pa.array([*texts, "?"])):
        fallback = read(array)[1]
        assert np.flatnonzero(fallback).tolist() == ([] if len(array) == len(texts) else [len(texts)])


@unhurried
@given(columns(INTEGERS), st.sampled_from(sorted(WIDTHS)))
def test_integers_equal_the_judge(texts: list[str | None], width: int) -> None:
    check(texts, lambda a: reading.integers(a, WIDTHS[width]), lambda s: numbers.parse_integer(s, width))


@unhurried
@given(columns(NUMBERS))
def test_doubles_equal_the_judge(texts: list[str | None]) -> None:
    check(texts, lambda a: reading.floats(a, pa.float64()), lambda s: bits(numbers.parse_double(s)))


@unhurried
@given(columns(NUMBERS))
def test_floats_equal_the_judge(texts: list[str | None]) -> None:
    check(texts, lambda a: reading.floats(a, pa.float32()), lambda s: bits(numbers.parse_float(s)))


@unhurried
@given(columns(NUMBERS), st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))))
def test_decimals_equal_the_judge(texts: list[str | None], size: tuple[int, int]) -> None:
    check(texts, of_spans(reading.decimals, pa.decimal128(*size)), lambda s: numbers.parse_decimal(s, *size))


@unhurried
@given(columns(DAYS))
def test_dates_equal_the_judge(texts: list[str | None]) -> None:
    check(texts, of_spans(reading.dates), temporal.parse_date)


@unhurried
@given(columns(CLOCKS))
def test_times_equal_the_judge(texts: list[str | None]) -> None:
    check(texts, of_spans(reading.times), temporal.parse_time)


@unhurried
@given(columns(STAMPS), st.sampled_from(["SQL", "ISO-8601"]), st.booleans())
def test_timestamps_equal_the_judge(texts: list[str | None], standard: str, zoned: bool) -> None:
    check(
        texts,
        of_spans(reading.timestamps, standard, zoned=zoned),
        lambda s: temporal.parse_timestamp(s, standard, zoned=zoned),
    )


@unhurried
@given(
    columns(st.binary(max_size=20).map(lambda b: b64encode(b).decode()) | st.sampled_from(["AR==", "AQJ=", "AQ=", "="]))
)
def test_base64_equals_the_judge(texts: list[str | None]) -> None:
    check(texts, reading.base64, parse_base64)


@unhurried
@given(st.lists(st.integers(-128, 127).map(str), min_size=1))
def test_plain_integers_are_not_in_doubt(texts: list[str]) -> None:
    no_doubts(texts, lambda a: reading.integers(a, pa.int8()))


@unhurried
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False).map(str), min_size=1))
def test_plain_floats_are_not_in_doubt(texts: list[str]) -> None:
    no_doubts(texts, lambda a: reading.floats(a, pa.float64()))


@unhurried
@given(st.lists(st.decimals(-(10**8), 10**8, places=5).map(str), min_size=1))
def test_plain_decimals_are_not_in_doubt(texts: list[str]) -> None:
    no_doubts(texts, of_spans(reading.decimals, pa.decimal128(10, 2)))


@unhurried
@given(st.lists(st.dates().map(str), min_size=1))
def test_plain_dates_are_not_in_doubt(texts: list[str]) -> None:
    no_doubts([t for t in texts if t[5:] != "02-29"] or ["2024-02-29"], of_spans(reading.dates))


@unhurried
@given(st.lists(st.times().map(str), min_size=1))
def test_plain_times_are_not_in_doubt(texts: list[str]) -> None:
    no_doubts(texts, of_spans(reading.times))


@unhurried
@given(st.lists(st.datetimes(), min_size=1), st.sampled_from(["SQL", "ISO-8601"]), st.booleans())
def test_plain_timestamps_are_not_in_doubt(stamps: list[Any], standard: str, zoned: bool) -> None:
    texts = [s.isoformat("T" if standard == "ISO-8601" else " ") + "Z" * zoned for s in stamps]
    no_doubts(
        [t for t in texts if t[5:10] != "02-29"]
        or [f"2024-01-31{'T' if standard == 'ISO-8601' else ' '}00:00:00{'Z' * zoned}"],
        of_spans(reading.timestamps, standard, zoned=zoned),
    )


@pytest.mark.parametrize("read", [of_spans(reading.dates), of_spans(reading.times), reading.base64])
def test_an_empty_column_has_no_values(read: Callable[[pa.Array], tuple[pa.Array, Any]]) -> None:
    for array in (pa.array([], pa.string()), pa.array(["a"])[:0], pa.nulls(3, pa.string())):
        values, fallback = read(array)
        assert (values.null_count, fallback.any()) == (len(array), False)


@unhurried
@given(st.text("-", min_size=1, max_size=5000) | st.from_regex(r"-{0,3}[0-9]{0,17}\.?[0-9]{0,3}", fullmatch=True))
def test_signs_and_lengths_of_decimals(number: str) -> None:
    check([number], of_spans(reading.decimals, pa.decimal128(18, 2)), lambda s: numbers.parse_decimal(s, 18, 2))


@unhurried
@given(st.lists(st.from_regex(r"-?[1-9][0-9]{0,12}\.[0-9]{2}", fullmatch=True), min_size=1))
def test_decimals_of_one_scale_are_read_by_their_digits(texts: list[str]) -> None:
    values, plain = digits.decimals(StringSpans.of(pa.array(texts)), 2)
    assert plain.all()
    assert values.tolist() == [int(text.replace(".", "")) for text in texts]


def test_decimals_in_scientific_notation_are_read() -> None:
    values, fallback = reading.decimals(
        StringSpans.of(pa.array(["1.2E+2", "1E+5", "-2.5e-1", "7", "1e30"])), pa.decimal128(10, 2)
    )
    assert values.to_pylist() == [Decimal("120.00"), Decimal("100000.00"), Decimal("-0.25"), Decimal("7.00"), None]
    assert fallback.tolist() == [False, False, False, False, True]


def test_decimals_round_half_up_and_drop_what_is_too_large() -> None:
    values, fallback = reading.decimals(
        StringSpans.of(pa.array(["1.005", "-1.005", "999.994", "999.995", "1e3"])), pa.decimal128(5, 2)
    )
    assert values.to_pylist() == [Decimal("1.01"), Decimal("-1.01"), Decimal("999.99"), None, None]
    assert fallback.tolist() == [False, False, False, False, False]
