"""The assertions of kdsl.testing: what they take, and what they say."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from kdsl.testing import Record, assert_messages, assert_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: list[dict[str, Any]] = [
    {"id": 1, "amount": Decimal("9.50"), "at": datetime(2026, 1, 31, 8, tzinfo=UTC), "x": float("nan"), "b": b"\xff"},
    {"id": 2, "amount": None, "at": None, "x": 0.1, "b": b"a"},
]
TEXT: list[dict[str, Any]] = [
    {"id": "1", "amount": "9.5", "at": "2026-01-31 09:00:00+01:00", "x": "NaN", "b": {"$hex": "ff"}},
    {"id": "2", "amount": None, "at": None, "x": "0.10", "b": "a"},
]


@pytest.mark.parametrize("expected", [ROWS, TEXT], ids=["values", "text"])
@pytest.mark.parametrize(
    "actual",
    [
        ROWS,
        pa.Table.from_pylist(ROWS),
        pa.RecordBatch.from_pylist(ROWS),
        pa.RecordBatchReader.from_batches(
            pa.Table.from_pylist(ROWS).schema, pa.Table.from_pylist(ROWS).to_batches()
        ).read_all(),
        pl.DataFrame(pa.Table.from_pylist(ROWS)),
    ],
    ids=["dicts", "table", "batch", "reader", "polars"],
)
def test_equal_rows(actual: Any, expected: Any) -> None:
    assert_rows(actual, expected)
    assert_rows(actual, list(reversed(expected)), ordered=False)


def test_differences_name_the_columns() -> None:
    with pytest.raises(AssertionError) as e:
        assert_rows(ROWS, [{**TEXT[0], "amount": "9.51", "note": 5}, {"id": 2}])

    assert str(e.value).splitlines() == [
        "rows differ (2 expected, got 2):",
        "  row 1:",
        "    amount: expected 9.51, got 9.50",
        "    note: expected 5, but there is none",
        "  row 2:",
        "    amount: it is not in what is expected, got null",
        "    at: it is not in what is expected, got null",
        "    x: it is not in what is expected, got 0.1",
        "    b: it is not in what is expected, got a",
    ]


def test_missing_and_further_rows() -> None:
    with pytest.raises(AssertionError, match=r"row 2 is missing: \{id: 3\}"):
        assert_rows([{"id": 1}, {"id": 2}], [{"id": 1}, {"id": 3}, {"id": 2}])
    with pytest.raises(AssertionError, match=r"row 1 is not expected: \{id: 1\}"):
        assert_rows([{"id": 1}], [])
    with pytest.raises(AssertionError, match=r"expected row 1, id: 'one' is not an integer"):
        assert_rows([{"id": 1}], [{"id": "one"}])
    assert_rows([], [])


@pytest.mark.parametrize("actual", [5, "text", {"id": 1}, [1]])
def test_what_is_not_rows(actual: object) -> None:
    with pytest.raises(TypeError, match="is not"):
        assert_rows(actual, [])


def test_a_dataframe(spark: SparkSession) -> None:
    df = spark.sql("SELECT 1 AS id, map('a', 1.50BD) AS m, named_struct('x', TIMESTAMP '2026-01-31 08:00:00') AS r")

    assert_rows(df, [{"id": 1, "m": {"a": "1.5"}, "r": {"x": "2026-01-31T08:00:00Z"}}])
    with pytest.raises(AssertionError, match=r"expected \{a: 1.60\}, got \{a: 1.50\}"):
        assert_rows(df, [{"id": 1, "m": {"a": "1.6"}, "r": {"x": "2026-01-31T08:00:00Z"}}])


def test_messages() -> None:
    records = [Record('{"a": 1.0, "b": []}', "k", [("h", b"x"), ("h", None)], 1, 5), Record(None)]

    assert_messages(
        records, [{"key": b"k", "value": {"b": [], "a": 1}, "headers": [("h", "x"), ("h", None)]}, {}], ordered=False
    )
    with pytest.raises(AssertionError) as e:
        assert_messages(records, [{"value": "{}", "key": "k", "headers": {"h": "x"}, "timestamp": 6}])
    assert str(e.value).splitlines() == [
        "messages differ (1 expected, got 2):",
        "  message 1:",
        """    value: expected '{}', got '{"a": 1.0, "b": []}'""",
        "    headers: expected [{h: x}], got [{h: x}, {h: null}]",
        "    timestamp: expected 6, got 5",
        "  message 2 is not expected: {key: null, value: null, timestamp: null}",
    ]
    with pytest.raises(TypeError, match="5 is not the content of a message"):
        assert_messages([], [{"value": 5}])
