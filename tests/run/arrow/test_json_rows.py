"""Rows from JSON lines, for a write without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kdsl import Cluster, Col, DebeziumJson, Json, KafkaTable, Key, Table, col
from kdsl.formats import ROW_KIND
from kdsl.run.arrow.json_rows import JsonRowError, read_json_rows
from kdsl.run.records.encode import RecordEncoder

CLUSTER = Cluster("localhost:9092")


class Orders(KafkaTable, topic="orders", key=Json(), value=Json(), value_fields="EXCEPT_KEY"):
    id: Key[int]
    amount: Col[Decimal | None] = col(type="decimal(10, 2)", default=None)
    state: Col[str | None] = col(default="new")
    at: Col[datetime | None] = col(default=None)
    parts: Col[list[dict[str, int]] | None] = col(type="array<map<string, bigint>>", default=None)


class Changes(KafkaTable, topic="changes", value=DebeziumJson()):
    id: Col[int]


def rows_of(cls: Any, *lines: str) -> pa.RecordBatch:
    table: Table = cls.as_table()
    return read_json_rows(
        [line.encode() for line in lines], table.definition, table.write_plan(), CLUSTER, "rows.jsonl"
    )


def test_columns_that_are_left_out_have_their_default_or_are_null() -> None:
    rows = rows_of(Orders, '{"id": 1}', "", '{"id": 2, "state": null, "amount": 1.5, "parts": [{"a": 1}]}')

    assert rows.to_pylist() == [
        {"id": 1, "amount": None, "state": "new", "at": None, "parts": None},
        {"id": 2, "amount": Decimal("1.50"), "state": None, "at": None, "parts": [[("a", 1)]]},
    ]


def test_timestamps_may_have_either_standard() -> None:
    texts = ["2026-01-31 08:00:00Z", "2026-01-31T08:00:00Z", "2026-01-31 08:00:00.5Z"]
    rows = rows_of(Orders, *(json.dumps({"id": i, "at": text}) for i, text in enumerate(texts)))

    expected = [datetime(2026, 1, 31, 8, 0, 0, micros, tzinfo=UTC) for micros in (0, 0, 500_000)]
    assert [(row["id"], row["at"]) for row in rows.to_pylist()] == list(enumerate(expected))


def test_errors_of_encoding_are_named_with_those_of_reading_and_by_their_lines() -> None:
    lines = ['{"id": 1}', "", '{"state": "x"}', "{oops", '{"id": 2}', '{"id": null}']
    with pytest.raises(JsonRowError) as e:
        rows_of(Orders, *lines)

    null = "id is NULL, but declared NOT NULL; give it a value, or declare it nullable"
    first, second, third = str(e.value).splitlines()
    assert (first, third) == (f"rows.jsonl, line 3: {null}", f"rows.jsonl, line 6: {null}")
    assert second.startswith("rows.jsonl, line 4: it is not JSON")


def test_few_of_many_errors_are_named() -> None:
    with pytest.raises(JsonRowError) as e:
        rows_of(Orders, *['{"id": 1}', "{}"] * 500)

    shown = str(e.value).splitlines()
    assert [line.split(":")[0] for line in shown[:-1]] == [f"rows.jsonl, line {n}" for n in range(2, 41, 2)]
    assert shown[-1] == "more lines have errors"


def test_a_row_kind_that_is_not_a_string_is_named() -> None:
    with pytest.raises(JsonRowError) as e:
        rows_of(Changes, '{"id": 1, "_row_kind": 5}', '{"id": 1, "_row_kind": "x"}')

    first, second = str(e.value).splitlines()
    assert first == "rows.jsonl, line 1: _row_kind is not a string"
    assert second.startswith("rows.jsonl, line 2: the row kind 'x'")


def test_all_lines_that_are_not_rows_are_named_with_the_reason() -> None:
    with pytest.raises(JsonRowError) as e:
        rows_of(Orders, '{"id": 1}', "[1]", '{"id": 1, "sate": "x"}', "{oops", '{"id": "x"}', '{"id": 2, "at": "soon"}')

    lines = str(e.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"rows.jsonl, line {n}" for n in (2, 3, 4, 5, 6)]
    assert "it is not a JSON object" in lines[0]
    assert "'sate' cannot be written (did you mean 'state'?)" in lines[1]
    assert "it is not JSON" in lines[2]
    assert "id" in lines[3]


def test_rows_of_a_table_of_changes_have_a_kind() -> None:
    rows = rows_of(Changes, '{"id": 1}', '{"_row_kind": "-D", "id": 1}')

    assert rows.column(ROW_KIND).to_pylist() == ["+I", "-D"]
    with pytest.raises(JsonRowError, match=r"_row_kind.*cannot be written"):
        rows_of(Orders, '{"_row_kind": "-D", "id": 1}')


def test_without_lines_there_are_no_rows() -> None:
    assert rows_of(Orders, "", "  ").num_rows == 0


@given(
    st.lists(
        st.fixed_dictionaries(
            {"id": st.integers(-(1 << 63), (1 << 63) - 1)},
            optional={
                "state": st.text(),
                "amount": st.decimals(-99_999_999, 99_999_999, places=2).map(float),
                "parts": st.lists(st.dictionaries(st.text(), st.integers(0, 9), max_size=2), max_size=2),
            },
        ),
        min_size=1,
        max_size=5,
    )
)
def test_messages_contain_what_the_lines_say(objects: list[dict[str, Any]]) -> None:
    table: Table = Orders.as_table()
    rows = rows_of(Orders, *map(json.dumps, objects))

    records = RecordEncoder(table.write_plan()).encode(rows)

    for one, record in zip(objects, records.to_pylist(), strict=True):
        value = json.loads(record["value"])
        assert json.loads(record["key"]) == {"id": one["id"]}
        assert value["state"] == one.get("state", "new")
        assert value["parts"] == one.get("parts")
        assert value["amount"] == pytest.approx(one["amount"]) if "amount" in one else value["amount"] is None
