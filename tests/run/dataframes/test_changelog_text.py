"""Rows of a changelog as lines of text, as the reference prints them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, types as s

from kdsl.run.dataframes.changelog_text import changelog_lines
from tests.arrow_rows import in_spark_layout


def test_each_row_shows_its_kind() -> None:
    rows = pa.table({"_row_kind": ["+I", "-U", "+U", "-D"], "id": [1, 2, 3, None], "name": ["a", None, "c, d", ""]})

    assert list(changelog_lines(rows)) == ["+I[1, a]", "-U[2, null]", "+U[3, c, d]", "-D[null, ]"]
    assert list(changelog_lines(rows.drop_columns("_row_kind")))[3] == "+I[null, ]"
    assert list(changelog_lines(rows.slice(1, 1).to_batches()[0])) == ["-U[2, null]"]
    assert list(changelog_lines(rows.select(["_row_kind"])))[:2] == ["+I[]", "-U[]"]


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (True, pa.bool_(), "true"),
        (1e10, pa.float64(), "1.0E10"),
        (0.1, pa.float32(), "0.1"),
        (float("nan"), pa.float64(), "NaN"),
        (Decimal("100.000"), pa.decimal128(10, 3), "100.000"),
        (b"\xff\x01", pa.binary(), "[-1, 1]"),
        (date(2024, 5, 1), pa.date32(), "2024-05-01"),
        (time(12, 30), pa.time64("ns"), "12:30"),
        (time(12, 30, 1, 120_000), pa.time64("us"), "12:30:01.120"),
        (datetime(2024, 5, 1, 12, 30), pa.timestamp("us"), "2024-05-01T12:30"),
        (datetime(2024, 5, 1, 12, 30, 5, 123_456), pa.timestamp("us"), "2024-05-01T12:30:05.123456"),
        (datetime(2024, 5, 1, 12, 30, tzinfo=UTC), pa.timestamp("us", "UTC"), "2024-05-01T12:30:00Z"),
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), pa.timestamp("ms", "UTC"), "1969-12-31T23:59:59Z"),
        ([1, None], pa.list_(pa.int32()), "[1, null]"),
        ([("k", 1.5), ("l", None)], pa.map_(pa.string(), pa.float64()), "{k=1.5, l=null}"),
        (
            {"a": 1, "b": [date(2024, 5, 1)]},
            pa.struct([("a", pa.int8()), ("b", pa.list_(pa.date32()))]),
            "+I[1, [2024-05-01]]",
        ),
    ],
)
def test_values_are_spelled_as_the_reference_spells_them(value: Any, kind: pa.DataType, shown: str) -> None:
    rows = pa.table({"v": pa.array([value, None], kind)})

    assert list(changelog_lines(rows)) == [f"+I[{shown}]", "+I[null]"]


def test_null_rows_are_shown_with_the_values_beside_them() -> None:
    inner = pa.struct([pa.field("x", pa.int64(), False), pa.field("on", pa.date32(), False)])
    values = [{"x": 1, "on": date(2024, 5, 1)}, None]
    nested = pa.table({"row": in_spark_layout(pa.array(values, inner)), "list": [[1], None]})
    lists = pa.table({"list": in_spark_layout(pa.array([values, None], pa.list_(inner)))})

    assert list(changelog_lines(nested)) == ["+I[+I[1, 2024-05-01], [1]]", "+I[null, null]"]
    assert list(changelog_lines(lists)) == ["+I[[+I[1, 2024-05-01], null]]", "+I[null]"]


def test_a_data_frame_with_null_rows_is_shown(spark: SparkSession) -> None:
    inner = s.StructType([s.StructField("x", s.LongType(), False)])
    names = s.StructType(
        [s.StructField("a.b", inner), s.StructField("l", s.ArrayType(inner)), s.StructField("n", s.LongType())]
    )
    df = spark.createDataFrame([((1,), [(2,), None], 3), (None, None, None)], names)

    assert list(changelog_lines(df.coalesce(1))) == ["+I[+I[1], [+I[2], null], 3]", "+I[null, null, null]"]


def test_a_data_frame_is_shown_too(spark: SparkSession) -> None:
    df = spark.sql("SELECT '-D' AS _row_kind, 1 AS id, TIMESTAMP_NTZ '2024-05-01 12:30:00' AS at")

    assert list(changelog_lines(df)) == ["-D[1, 2024-05-01T12:30]"]
