"""Values of Debezium and Kafka Connect: what they mean, and whole columns of them against single values."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type, plain_values
from kdsl_formats._columns.string_spans import StringSpans
from kdsl_formats._connect.columns import ReadColumn
from kdsl_formats._connect.values import InfiniteError
from kdsl_formats._connect.wires import Modes, Wire, wire_of

INFINITE = "infinite"
BAD = "bad"
DECIMALS = [t.Decimal(10, 2), t.Decimal(18, 0), t.Decimal(19, 4), t.Decimal(38, 10), t.Decimal(1, 1), t.Decimal(4, 4)]
TIMES = [t.Time(0), t.Time(3), t.Time(4), t.Time(6), t.Time(9)]
TIMESTAMPS = [t.Timestamp(3), t.Timestamp(6), t.Timestamp(9), t.TimestampLtz(3), t.TimestampLtz(6)]
KINDS: list[t.DataType] = [*DECIMALS, t.Date(), *TIMES, *TIMESTAMPS, t.BYTES]
MODES = [
    *(Modes(decimals=mode) for mode in ("precise", "string", "double")),
    *(
        Modes(times=mode)
        for mode in (
            "adaptive",
            "adaptive_time_microseconds",
            "connect",
            "isostring",
            "microseconds",
            "nanoseconds",
        )
    ),
    *(Modes(binary=mode) for mode in ("bytes", "base64", "base64-url-safe", "hex")),
]
WIRES = [wire for modes in MODES for kind in KINDS if (wire := wire_of(kind, modes)) is not None]
FAR = [
    9_223_372_036_825_200_000, -9_223_372_036_832_400_000, 9_223_372_036_825_200, -9_223_372_036_832_400,
    (1 << 63) - 1, -(1 << 63), -2_147_472_692, -2_147_472_691, -622_191_233, -625_821_272, 86_400_000, 86_400_000_000,
]  # fmt: skip
ISO = [
    "infinity", "-infinity", "2017-09-15Z", "2017-09-15", "2017-02-30Z", "2017-09-15+02:00", "+292278994-08-17Z",
    "+292269055-12-02Z", "-5877611-06-21Z", "+294247-01-10T04:00:25.2Z", "+294247-01-10T04:00:25.200Z",
    "-290308-12-21T19:59:27.6Z", "04:05:11.789Z", "04:05:11Z", "04:05:11.123456789Z", "04:05:11+02:30", "24:00:00Z",
    "04:05Z", "2019-07-09T02:28:57.123456Z", "2019-07-09T02:28:57.123456789Z", "2019-07-09T02:28:57+05:30",
    "2019-07-09T02:28:57", "2019-07-09T02:28Z", "2019-07-09 02:28:57Z", "2019-02-30T24:00:00Z", "NaN", "Infinity",
    "POSITIVE_INFINITY", "", "Z", "T", "12.345", "-0.5", "1e3", "0012", "99999999999.9", "+99:00", "1T1+99:00",
]  # fmt: skip
TEXTS = st.one_of(
    st.sampled_from(ISO),
    st.binary(max_size=20).map(lambda b: base64.b64encode(b).decode()),
    st.binary(max_size=9).map(bytes.hex),
    st.text("ABab01+/=-_.:TZ ", max_size=24),
    st.datetimes().map(lambda d: f"{d.isoformat()}Z"),
    st.times().map(lambda d: f"{d.isoformat()}Z"),
    st.dates().map(lambda d: f"{d.isoformat()}Z"),
    st.decimals(-(10**12), 10**12, allow_nan=False).map(str),
)
NUMBERS = st.one_of(
    st.sampled_from(FAR),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-90_000, 90_000),
    st.integers(0, 10**14),
)
SPELLED = st.one_of(NUMBERS.map(str), st.sampled_from(["1.5", "1E3", "-0", "0.00", "12345678901234567890", "99.995"]))


def column(read: ReadColumn) -> list[Any]:
    """What a column says of each value; nothing of those in doubt."""
    infinite = np.zeros(len(read.fallback), dtype=bool) if read.infinite is None else read.infinite
    values = plain_values(read.values)
    return [... if d else INFINITE if i else v for d, i, v in zip(read.fallback, infinite, values, strict=True)]


def single(wire: Wire, read: str, value: Any) -> Any:
    if value is None:
        return None
    try:
        return getattr(wire, read)(value)
    except InfiniteError:
        return INFINITE
    except ValueError:
        return BAD


def agree(wire: Wire, columns: str, one: str, values: list[Any], kind: pa.DataType) -> None:
    """What is not in doubt in a column is what single values are."""
    array = pa.array([None, *values], kind).slice(1)
    column_of = StringSpans.of(array) if pa.types.is_string(kind) else array
    for item, value in zip(column(getattr(wire, columns)(column_of)), values, strict=True):
        if item is not ...:
            assert item == single(wire, one, value), value


@given(st.sampled_from(WIRES), st.lists(st.none() | TEXTS, max_size=12))
def test_columns_of_strings_equal_single_strings(wire: Wire, values: list[str | None]) -> None:
    agree(wire, "read_strings", "from_string", values, pa.string())


@given(st.sampled_from(WIRES), st.lists(st.none() | SPELLED, max_size=12))
def test_columns_of_numbers_are_as_single_ones(wire: Wire, values: list[str | None]) -> None:
    agree(wire, "read_numbers", "from_number", values, pa.string())


@given(
    st.sampled_from([w for w in WIRES if hasattr(w, "read_longs")]),
    st.lists(st.none() | NUMBERS, max_size=12),
)
def test_columns_of_longs_are_as_single_ones(wire: Wire, values: list[int | None]) -> None:
    agree(wire, "read_longs", "from_long", values, pa.int64())


@given(
    st.sampled_from(DECIMALS),
    st.lists(
        st.tuples(st.integers(-5, 30) | st.just(12345), st.binary(max_size=20).map(lambda b: base64.b64encode(b))),
        max_size=12,
    ),
    st.text('{}"scalevu:,01A=', max_size=30),
)
def test_columns_of_variable_scales_are_as_single_ones(
    kind: t.Decimal, values: list[tuple[int, bytes]], other: str
) -> None:
    wire = wire_of(kind, Modes(decimals="precise"))
    assert wire is not None
    spelled = [f'{{"scale":{scale},"value":"{value.decode()}"}}' for scale, value in values] + [f'{{"{other}}}']
    result = column(wire.read_objects(StringSpans.of(pa.array(spelled, pa.string()))))
    for one, (scale, value) in zip(result, values, strict=False):
        if one is not ...:
            assert one == single(wire, "from_object", {"scale": str(scale), "value": value.decode()})
    assert result[-1] is ... or other.startswith("scale")


@given(st.sampled_from(WIRES), st.data())
def test_what_is_written_is_read(wire: Wire, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | _values(wire.kind), max_size=8))
    array = pa.array([None, *values], pa.int64() if _is_time(wire.kind) else arrow_type(wire.kind)).slice(1)
    array = array.cast(pa.int32()).view(pa.date32()) if isinstance(wire.kind, t.Date) else array
    if _is_time(wire.kind):
        array = array.view(arrow_type(wire.kind))
    texts = wire.write_column(array).to_pylist()
    assert texts == [None if v is None else wire.write(v) for v in values]
    for text, value in zip(texts, values, strict=True):
        if value is not None:
            again = single(wire, "from_string" if wire.quoted else "from_number", text)
            assert again == value or _coarse(wire, again, value)


def _is_time(kind: t.DataType) -> bool:
    return isinstance(kind, t.Date | t.Time | t.Timestamp | t.TimestampLtz)


def _coarse(wire: Wire, again: Any, value: Any) -> bool:
    """Whether a value was cut to the unit on the wire."""
    if isinstance(wire.kind, t.Decimal):  # a double, which may be rounded to more digits than the type has
        return again == BAD or float(again) == float(value)
    result = 1_000_000 if isinstance(wire.kind, t.Time) else 1_000
    return bool(again // result == value // result)


def _values(kind: t.DataType) -> st.SearchStrategy[Any]:
    match kind:
        case t.Decimal(precision=precision, scale=scale):
            bound = 10**precision - 1
            return st.integers(-bound, bound).map(lambda n: Decimal(f"{n}E-{scale}"))
        case t.Date():
            return st.integers(-700_000, 3_000_000)
        case t.Time():
            return st.integers(0, 86_399_999_999).map(lambda n: n * 1_000)
        case t.Timestamp() | t.TimestampLtz():
            return st.integers(-(2**53), 2**53)
        case _:
            return st.binary(max_size=20)


CASES = [
    (t.Decimal(10, 2), Modes(decimals="precise"), "from_string", "AegB", Decimal("1249.29")),
    (t.Decimal(10, 2), Modes(decimals="precise"), "from_string", "/w==", Decimal("-0.01")),
    (t.Decimal(4, 2), Modes(decimals="precise"), "from_string", "AegB", BAD),
    (t.Decimal(10, 2), Modes(decimals="precise"), "from_string", "", BAD),
    (t.Decimal(10, 2), Modes(decimals="precise"), "from_number", "12.5", Decimal("12.50")),
    (t.Decimal(10, 2), Modes(decimals="precise"), "from_object", {"scale": "3", "value": "MDk="}, Decimal("12.35")),
    (t.Decimal(10, 2), Modes(decimals="string"), "from_string", "12.50", Decimal("12.50")),
    (t.Decimal(10, 2), Modes(decimals="string"), "from_string", "POSITIVE_INFINITY", INFINITE),
    (t.Decimal(10, 2), Modes(decimals="double"), "from_string", "NaN", INFINITE),
    (t.Date(), Modes(times="adaptive"), "from_number", "17424", 17_424),
    (t.Date(), Modes(times="adaptive"), "from_number", "-2147472692", INFINITE),
    (t.Date(), Modes(times="adaptive"), "from_string", "2017-09-15", BAD),
    (t.Date(), Modes(times="isostring"), "from_string", "2017-09-15Z", 17_424),
    (t.Date(), Modes(times="isostring"), "from_string", "+292278994-08-17Z", INFINITE),
    (t.Time(3), Modes(times="adaptive"), "from_number", "14711789", 14_711_789_000_000),
    (t.Time(6), Modes(times="adaptive"), "from_number", "14711789123", 14_711_789_123_000),
    (t.Time(3), Modes(times="adaptive_time_microseconds"), "from_number", "14711789000", 14_711_789_000_000),
    (t.Time(6), Modes(times="connect"), "from_number", "86400000", 0),
    (t.Time(6), Modes(times="connect"), "from_number", "-1", BAD),
    (t.Time(6), Modes(times="adaptive"), "from_string", "13:51:30.123Z", 49_890_123_000_000),
    (t.Timestamp(3), Modes(times="adaptive"), "from_number", "1529507596945", 1_529_507_596_945_000),
    (t.Timestamp(6), Modes(times="adaptive"), "from_number", "1529507596945104", 1_529_507_596_945_104),
    (t.Timestamp(9), Modes(times="adaptive"), "from_number", "1529507596945104999", 1_529_507_596_945_104),
    (t.Timestamp(6), Modes(times="connect"), "from_number", "1529507596945", 1_529_507_596_945_000),
    (t.Timestamp(6), Modes(times="connect"), "from_number", "9223372036825200", INFINITE),
    (t.Timestamp(6), Modes(times="microseconds"), "from_number", "-9223372036832400000", INFINITE),
    (t.Timestamp(6), Modes(times="nanoseconds"), "from_number", "9223372036854775807", INFINITE),
    (t.Timestamp(6), Modes(times="adaptive"), "from_string", "2018-06-20T15:13:16Z", BAD),
    (t.Timestamp(6), Modes(times="isostring"), "from_string", "2019-07-09T02:28:57.123456Z", 1_562_639_337_123_456),
    (t.Timestamp(6), Modes(times="isostring"), "from_string", "+294247-01-10T04:00:25.2Z", INFINITE),
    (t.TimestampLtz(6), Modes(times="adaptive"), "from_string", "2019-07-09T02:28:57.123456Z", 1_562_639_337_123_456),
    (t.TimestampLtz(6), Modes(times="adaptive"), "from_string", "2019-07-09T04:28:57+02:00", 1_562_639_337_000_000),
    (t.TimestampLtz(6), Modes(times="adaptive"), "from_string", "infinity", INFINITE),
    (t.TimestampLtz(3), Modes(times="connect"), "from_number", "1529507596945", 1_529_507_596_945_000),
    (t.BYTES, Modes(binary="hex"), "from_string", "00ff", b"\0\xff"),
    (t.BYTES, Modes(binary="hex"), "from_string", "00f", BAD),
    (t.BYTES, Modes(binary="base64-url-safe"), "from_string", "-_8=", b"\xfb\xff"),
]


@pytest.mark.parametrize(("kind", "modes", "read", "value", "wanted"), CASES)
def test_what_a_value_means(kind: t.DataType, modes: Modes, read: str, value: Any, wanted: Any) -> None:
    wire = wire_of(kind, modes)
    assert wire is not None
    assert single(wire, read, value) == wanted


def test_plain_columns_are_read_at_once() -> None:
    values = [base64.b64encode(n.to_bytes(3, "big", signed=True)).decode() for n in range(-500, 500)]
    read = wire_of(t.Decimal(10, 2), Modes(decimals="precise"))
    assert read is not None
    result = read.read_strings(StringSpans.of(pa.array(values)))
    assert not result.fallback.any()
    assert result.values.to_pylist() == [Decimal(n).scaleb(-2) for n in range(-500, 500)]
    objects = read.read_objects(
        StringSpans.of(pa.array([f'{{"scale":{i % 5},"value":"{v}"}}' for i, v in enumerate(values)]))
    )
    assert not objects.fallback.any()


def test_infinite_values_of_a_column_are_not_read_one_by_one() -> None:
    wire = wire_of(t.TimestampLtz(6), Modes(times="adaptive"))
    assert wire is not None
    result = wire.read_strings(StringSpans.of(pa.array(["infinity", "2019-07-09T02:28:57.5Z", None, "-infinity"])))
    assert not result.fallback.any()
    assert result.infinite is not None
    assert result.infinite.tolist() == [True, False, False, True]


def test_a_timestamp_beyond_nanoseconds_is_not_written() -> None:
    wire = wire_of(t.Timestamp(6), Modes(times="nanoseconds"))
    assert wire is not None
    far = 253_402_300_799_000_000
    with pytest.raises(ValueError, match="1677 to 2262"):
        wire.write(far)
    with pytest.raises(ValueError, match="nanoseconds reach"):
        wire.write_column(pa.array([0, far], pa.int64()).view(pa.timestamp("us")))
