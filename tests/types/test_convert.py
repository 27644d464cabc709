"""Conversions to other types on Spark: the same in every time zone, exact, and spelled as in messages."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from kdsl.changelog.to_memory import widen_value
from kdsl.spark_internals.arrow import dataframe_from_arrow
from kdsl.spark_internals.sql_text import parse_column
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl.types.convert import convert_exactly_sql
from kdsl.types.parse import parse_type
from kdsl.types.widening import MAX_INTEGER, can_change, can_change_key, join, needs_small_integers, stores, widen
from kdsl_formats._connect.by_schema import widen_array
from tests.zones import zones

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH = datetime(1970, 1, 1)
TIMES = [
    datetime(2024, 3, 31, 2, 30),  # a time that Berlin skips
    datetime(2024, 10, 27, 2, 30, 0, 500_000),  # one that it has twice
    datetime(2024, 6, 1), datetime(1582, 10, 10, 1, 2, 3), datetime(1, 1, 1), datetime(1900, 1, 1, 0, 0, 0, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime(1969, 12, 31, 23, 59, 59, 999_999),
]  # fmt: skip
INTEGERS = [
    0,
    1,
    -1,
    127,
    -128,
    32_767,
    2**24,
    2**24 + 1,
    2**31 - 1,
    2**53,
    2**53 + 1,
    -(2**53) - 1,
    2**63 - 1,
    -(2**63),
]
VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [n for n in INTEGERS if -128 <= n < 128],
    "INT": [n for n in INTEGERS if -(2**31) <= n < 2**31],
    "BIGINT": INTEGERS,
    "DECIMAL(38, 0)": [*map(Decimal, INTEGERS), Decimal(10**38 - 1)],
    "DECIMAL(10, 2)": [Decimal("12.50"), Decimal("0.01"), Decimal("-1.00"), Decimal("99999999.99")],
    "DECIMAL(38, 18)": [Decimal("0.000000000000000001"), Decimal("12.5"), Decimal(3)],
    "FLOAT": [0.5, 0.10000000149011612, 2.0**24, -3.0, 2.0**100],
    "DOUBLE": [0.5, 0.1, 12.5, 1.005, 1e10, 2.0**53, 2.0**53 + 2, -7.0, 1e300, 5e-324],
    "STRING": ["1", "01", "+1", " 1", "1.0", "1.50", "12.505", "1e3", "1e400", "x", "", "true", "True", "yes", "NaN",
               "2024-06-01", "2024-06-01 10:00:00", "2024-06-01T10:00:00.500Z", "2024-06-01 10:00:00+02:00",
               "2024-06-01 10:00:00.1234567", "2024-02-30", "9007199254740993", "1.5d", "eA==", "99999999999999999999"],
    "VARCHAR(3)": ["abc", "a", ""],
    "BYTES": [b"", b"x", bytes(range(256))],
    "DATE": [one.date() for one in TIMES],
    "TIMESTAMP(6)": TIMES,
    "TIMESTAMP_LTZ(6)": [one.replace(tzinfo=UTC) for one in TIMES],
}  # fmt: skip
KINDS = {name: parse_type(name) for name in VALUES}
SMALL = parse_type("VARCHAR(4)")


def convert(spark: SparkSession, name: str, targets: list[t.DataType]) -> list[list[Any]]:
    """The values of a type, converted to each of some types."""
    kind, values = KINDS[name], pa.array(VALUES[name], arrow_type(KINDS[name]))
    frame = dataframe_from_arrow(spark, pa.table({"a b": values}))
    columns = [f"{convert_exactly_sql('`a b`', kind, one)} AS c{i}" for i, one in enumerate(targets)]
    rows = frame.select(*map(parse_column, columns)).toArrow()
    return [[plain(value) for value in rows.column(i).to_pylist()] for i in range(len(targets))]


def plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def same(value: Any, other: Any) -> bool:
    """Whether two values of different types are the same: numbers by value, dates as midnight, instants in UTC."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(other, date) and not isinstance(other, datetime):
        other = datetime(other.year, other.month, other.day)
    if isinstance(value, int | float | Decimal) and isinstance(other, int | float | Decimal):
        return Fraction(value) == Fraction(other)
    return bool(plain(value) == plain(other))


@pytest.mark.spark
@pytest.mark.parametrize("name", VALUES)
def test_a_conversion_gives_the_same_value_or_null_in_every_time_zone(spark: SparkSession, name: str) -> None:
    others = [one for one in KINDS.values() if not isinstance(one, (t.Char, t.VarChar))]
    results = []
    for zone in ("UTC", "Europe/Berlin", "America/New_York"):
        with zones(spark, zone):
            results.append(convert(spark, name, [*others, SMALL, t.STRING]))

    assert results[0] == results[1] == results[2]
    for kind, converted in zip(others, results[0], strict=False):
        for value, got in zip(VALUES[name], converted, strict=True):
            assert got is not None or not stores(kind, KINDS[name]), f"{value!r} as {kind}"
            # a decimal is the number that the shortest text of a double says
            number = Decimal(repr(value)) if isinstance(value, float) and isinstance(got, Decimal) else value
            number = float(value) if isinstance(value, Decimal) and isinstance(got, float) else number
            if {name, kind.name} & {"FLOAT"} and got is not None:
                number, got = np.float32(number).item(), np.float32(got).item()
            is_text = isinstance(KINDS[name], t.VarChar)
            assert is_text or got is None or same(number, got), f"{value!r} as {kind}: {got!r}"
    assert all(text is None or len(text) <= 4 for text in results[0][-2])


@pytest.mark.spark
def test_a_string_is_a_value_of_a_type_only_if_it_is_written_like_one(spark: SparkSession) -> None:
    expected: dict[str, dict[str, Any]] = {
        "BOOLEAN": {"true": True},
        "BIGINT": {"1": 1, "9007199254740993": 9007199254740993},
        "DECIMAL(10, 2)": {"1": 1, "01": 1, "+1": 1, "1.0": 1, "1.50": Decimal("1.5")},
        "DATE": {"2024-06-01": date(2024, 6, 1)},
        "TIMESTAMP(6)": {
            "2024-06-01": datetime(2024, 6, 1), "2024-06-01 10:00:00": datetime(2024, 6, 1, 10),
            "2024-06-01T10:00:00.500Z": datetime(2024, 6, 1, 10, 0, 0, 500_000),
            "2024-06-01 10:00:00+02:00": datetime(2024, 6, 1, 8),
        },
        "BYTES": {"eA==": b"x", "": b"", "true": b"\xb6\xbb\x9e", "True": b"N\xbb\x9e",
                  **{text: base64.b64decode(text) for text in ("9007199254740993", "99999999999999999999")}},
    }  # fmt: skip
    expected["TIMESTAMP_LTZ(6)"] = expected["TIMESTAMP(6)"]

    with zones(spark, "Europe/Berlin"):
        converted = convert(spark, "STRING", [KINDS[name] for name in expected])

    for (name, values), column in zip(expected.items(), converted, strict=True):
        got = dict(zip(VALUES["STRING"], column, strict=True))
        assert {text: value for text, value in got.items() if value is not None} == values, name


CHANGES = [(a, b) for a in KINDS for b in KINDS if a != b and can_change(KINDS[a], KINDS[b])]


@pytest.mark.spark
def test_what_a_stored_column_can_become_keeps_every_value_and_its_text(spark: SparkSession) -> None:
    """Strings are spelled as in messages, and as readers of Arrow write them."""
    with zones(spark, "Europe/Berlin"):
        for name in dict.fromkeys(a for a, _ in CHANGES):
            targets = [b for a, b in CHANGES if a == name]
            for target, column in zip(targets, convert(spark, name, [KINDS[b] for b in targets]), strict=True):
                small = needs_small_integers(KINDS[name], KINDS[target])
                for value, got in zip(VALUES[name], column, strict=True):
                    assert got is None or got == plain(widen_value(value, arrow_type(KINDS[target])))
                    if isinstance(KINDS[target], t.VarChar):
                        assert got == spell(value), (name, target, value)
                    elif not small or abs(value) <= MAX_INTEGER:
                        assert same(value, got), (name, target, value)
                if isinstance(KINDS[target], t.VarChar):
                    array = pa.array(VALUES[name], arrow_type(KINDS[name]))
                    assert widen_array(array, KINDS[name], t.STRING).to_pylist() == column


def spell(value: Any) -> str:
    """A value as a JSON message spells it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_a_column_becomes_a_string_only_if_its_values_have_one_spelling() -> None:
    assert {a for a, b in CHANGES if b == "STRING"} == {
        "BOOLEAN", "TINYINT", "INT", "BIGINT", "DECIMAL(38, 0)", "VARCHAR(3)", "BYTES", "DATE",
    }  # fmt: skip


def test_what_a_column_becomes_stores_both_types_or_it_stays() -> None:
    for a in KINDS.values():
        for b in KINDS.values():
            wide = widen(a, b)
            assert wide is None or wide == a or can_change(a, wide)
            assert wide is None or stores(wide, b)
            assert not can_change_key(a, b) or (can_change(a, b) and join(a, b) == b)
