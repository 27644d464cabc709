"""Rows to raw records, without Spark and without Kafka."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import attrs
import pyarrow as pa
import pytest

from kdsl.errors import RecordError
from kdsl.formats import Format
from kdsl.plan.model import WritePlan
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.resolve.model import Part
from kdsl.run.records.encode import RecordEncoder
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema
from kdsl_formats.avro import Avro
from kdsl_formats.json import Json
from kdsl_formats.protobuf import Protobuf
from tests.arrow_rows import in_spark_layout
from tests.run.write_plans import part, row, write_plan

HEADERS = {"headers": "headers"}


def batch(plan: WritePlan, *rows: dict[str, Any]) -> pa.RecordBatch:
    """Rows as Spark hands them over: each column may hold NULLs, whatever the plan says."""
    nullable = t.Row(tuple(t.Field(f.name, loose(f.type)) for f in plan.columns.fields))
    columns = [[r.get(f.name) for r in rows] for f in plan.columns.fields]
    schema = arrow_schema(nullable)
    return pa.RecordBatch.from_arrays(
        [pa.array(c, kind) for c, kind in zip(columns, schema.types, strict=True)], schema=schema
    )


def loose(kind: t.DataType) -> t.DataType:
    match kind:
        case t.Array(element=element):
            return t.Array(loose(element))
        case t.Map(key=key, value=value):
            return t.Map(key, loose(value))
        case t.Row(fields=fields):
            return t.Row(tuple(t.Field(f.name, loose(f.type)) for f in fields))
        case _:
            return kind.as_nullable()


def encode(plan: WritePlan, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = RecordEncoder(plan).encode(batch(plan, *rows)).to_pylist()
    return records


def reason(plan: WritePlan, *rows: dict[str, Any]) -> str:
    with pytest.raises(RecordError) as caught:
        encode(plan, *rows)
    assert caught.value.action == "write"
    return str(caught.value)


@pytest.mark.parametrize("rows", [1, 2, 20, 60])
@pytest.mark.parametrize(
    "value",
    [
        Avro(legacy_timestamps=False),
        Avro(encoding="json", legacy_timestamps=False),
        Json(),
        Protobuf(
            message_class_name="M",
            proto_text="""
                syntax = "proto3";
                import "google/protobuf/timestamp.proto";
                message In { int64 x = 1; }
                message M { google.protobuf.Timestamp at = 1; In inner = 2; map<string, In> more = 3; }
            """,
        ),
    ],
    ids=lambda v: f"{v.identifier}-{getattr(v, 'encoding', '')}" if isinstance(v, Format) else "",
)
def test_null_rows_whose_members_are_not_null_are_written(value: Format, rows: int) -> None:
    kind = "ROW<x BIGINT NOT NULL>"
    types = {"at": "TIMESTAMP_LTZ(3)", "inner": kind, "more": f"MAP<STRING NOT NULL, {kind}>"}
    if isinstance(value, Protobuf):  # whose maps have no values that are NULL
        types["more"] = f"MAP<STRING NOT NULL, {kind} NOT NULL>"
    plan = write_plan(types)
    plan = attrs.evolve(plan, value=Part(value, row(types), tuple(types)))
    second = {"x": 2} if isinstance(value, Protobuf) else None
    values: list[dict[str, Any]] = [{"at": 0, "inner": {"x": 1}, "more": [("a", {"x": 1}), ("b", second)]}, {"at": 0}]
    values = [values[i % 2] for i in range(rows)]
    kinds = arrow_schema(plan.columns)
    columns = [in_spark_layout(pa.array([one.get(f.name) for one in values], f.type)) for f in kinds]
    records = RecordEncoder(plan).encode(pa.RecordBatch.from_arrays(columns, schema=kinds))
    written = value.decoder(row(types)).decode(records.column("value")).rows
    mores = written.field(2).to_pylist()

    assert written.field(1).to_pylist() == [one.get("inner") for one in values]
    assert mores[::2] == [values[0]["more"]] * len(mores[::2])


def test_key_and_value_are_written_under_their_wire_names() -> None:
    plan = write_plan({"name": "STRING"})
    plan = WritePlan(
        "Orders",
        plan.topics,
        t.Row((t.Field("k_id", t.BigInt()), *plan.columns.fields)),
        key=part("json", {"k_id": "BIGINT"}, prefix="k_"),
        value=plan.value,
    )

    assert encode(plan, {"k_id": 7, "name": "x"}) == [{"key": b'{"id":7}', "value": b'{"name":"x"}'}]


def test_a_column_may_be_in_key_and_value() -> None:
    plan = write_plan({"id": "INT", "name": "STRING"})
    plan = WritePlan("Orders", plan.topics, plan.columns, key=part("csv", {"id": "INT"}), value=plan.value)

    assert encode(plan, {"id": 1, "name": "x"}) == [{"key": b"1", "value": b'{"id":1,"name":"x"}'}]


def test_a_value_without_columns_is_an_empty_row() -> None:
    plan = write_plan(key={"id": "INT"})
    plan = WritePlan("Orders", plan.topics, plan.columns, key=plan.key, value=part("json", {}))

    assert encode(plan, {"id": 1}, {"id": 2}) == [
        {"key": b'{"id":1}', "value": b"{}"},
        {"key": b'{"id":2}', "value": b"{}"},
    ]


def test_without_a_key_format_there_is_no_key() -> None:
    assert encode(write_plan({"id": "INT"}), {"id": 1}) == [{"key": None, "value": b'{"id":1}'}]


@pytest.mark.parametrize("kind", ["BYTES", "STRING"])
def test_a_raw_key_and_value_are_the_whole_key_and_value(kind: str) -> None:
    names = {"k": "__raw_key__", "v": "__raw_value__"}
    plan = write_plan(metadata=names, types=dict.fromkeys(names, kind))
    some: Any = b"a" if kind == "BYTES" else "a"
    none: Any = b"" if kind == "BYTES" else ""

    assert encode(plan, {"k": some, "v": None}, {"k": None, "v": none}) == [
        {"key": b"a", "value": None},
        {"key": None, "value": b""},
    ]


def test_a_null_value_of_a_raw_format_is_a_tombstone() -> None:
    plan = write_plan({"payload": "STRING"}, value_format="raw")

    assert encode(plan, {"payload": None}, {"payload": "x"}) == [
        {"key": None, "value": None},
        {"key": None, "value": b"x"},
    ]


def test_headers_keep_null_values_and_a_null_map_has_no_headers() -> None:
    plan = write_plan({"id": "INT"}, metadata=HEADERS)
    rows: list[dict[str, Any]] = [{"id": 1, "headers": [("k1", b"\xc0\xff\xee"), ("k2", None), ("k3", b"")]}, {"id": 2}]

    assert [r["headers"] for r in encode(plan, *rows)] == [
        [
            {"key": "k1", "value": b"\xc0\xff\xee"},
            {"key": "k2", "value": None},
            {"key": "k3", "value": b""},
        ],
        [],
    ]


def test_headers_of_a_sliced_batch_are_those_of_its_rows() -> None:
    plan = write_plan({"id": "INT"}, metadata=HEADERS)
    rows: list[dict[str, Any]] = [{"id": n, "headers": [(f"h{n}", b"%d" % n)] * n} for n in range(4)]
    sliced = batch(plan, *rows).slice(1, 2)

    records = RecordEncoder(plan).encode(sliced)

    assert records.column("headers").to_pylist() == [
        [{"key": "h1", "value": b"1"}],
        [{"key": "h2", "value": b"2"}, {"key": "h2", "value": b"2"}],
    ]


def test_headers_may_be_strings() -> None:
    plan = write_plan({"id": "INT"}, metadata=HEADERS, types={"headers": "MAP<STRING, STRING>"})

    assert encode(plan, {"id": 1, "headers": [("k", "é")]})[0]["headers"] == [{"key": "k", "value": "é".encode()}]


def test_a_header_list_keeps_order_and_repeated_names_and_loses_nulls() -> None:
    plan = write_plan({"id": "INT"}, metadata={"h": "header-list"})
    lists: list[Any] = [
        [{"key": "k1", "value": b"\xc0"}, {"key": "k1", "value": b"\xba"}],
        None,
        [{"key": "k1", "value": b"\x10"}, {"key": None, "value": b"\xde"}, {"key": "k3", "value": None}],
        [{"key": "ka", "value": b"\x01"}, None, {"key": "kb", "value": None}],
    ]

    headers = [r["headers"] for r in encode(plan, *({"id": n, "h": h} for n, h in enumerate(lists)))]

    assert headers == [
        [{"key": "k1", "value": b"\xc0"}, {"key": "k1", "value": b"\xba"}],
        [],
        [{"key": "k1", "value": b"\x10"}, {"key": "k3", "value": None}],
        [{"key": "ka", "value": b"\x01"}, {"key": "kb", "value": None}],
    ]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("TIMESTAMP_LTZ(3)", datetime(2020, 3, 8, 13, 12, 11, 123999, UTC), 1583673131123),
        ("TIMESTAMP(3)", datetime(2020, 3, 8, 13, 12, 11, 123000), 1583673131123),
        ("DATE", date(2020, 3, 8), 1583625600000),
        ("STRING", "2020-03-08 13:12:11.123", 1583673131123),
        ("STRING", "2020-03-08T13:12:11.123Z", 1583673131123),
        ("TIMESTAMP_LTZ(3)", None, None),
    ],
)
def test_timestamps_are_milliseconds(kind: str, value: object, expected: int | None) -> None:
    plan = write_plan({"id": "INT"}, metadata={"ts": "timestamp"}, types={"ts": kind})

    assert [r["timestamp"] for r in encode(plan, {"id": 1, "ts": value})] == [expected]


def test_the_error_of_a_timestamp_out_of_range_names_row_and_column() -> None:
    plan = write_plan({"id": "INT"}, metadata={"ts": "timestamp"})
    early = datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)

    assert reason(plan, {"id": 1}, {"id": 2, "ts": early}, {"id": 3, "ts": early}) == (
        "Orders: cannot write the record at topic orders: row 2: the timestamp 1969-12-31 23:59:59+00:00 "
        "in the column 'ts' is before 1970, where Kafka's timestamps begin; 1 more record of this batch has errors"
    )


def test_the_error_of_an_invalid_timestamp_names_row_and_column() -> None:
    plan = write_plan({"id": "INT"}, metadata={"ts": "timestamp"}, types={"ts": "STRING"})

    message = reason(plan, {"id": 1, "ts": "2020-03-08 13:12:11"}, {"id": 2, "ts": "soon"}, {"id": 3})

    assert "row 2: the string 'soon' in the column 'ts' is not a timestamp" in message


def test_a_single_topic_is_not_read_from_the_rows() -> None:
    assert "topic" not in RecordEncoder(write_plan({"id": "INT"})).schema.names


def test_rows_name_their_topic_in_a_list() -> None:
    plan = write_plan({"id": "INT"}, metadata={"topic": "topic"}, topics=("t1", "t2"))

    assert [r["topic"] for r in encode(plan, {"id": 1, "topic": "t2"}, {"id": 2, "topic": "t1"})] == ["t2", "t1"]


def test_a_topic_that_is_not_in_the_list_is_refused() -> None:
    plan = write_plan({"id": "INT"}, metadata={"to": "topic"}, topics=("orders-a", "orders-b"))

    assert reason(plan, {"id": 1, "to": "orders-a"}, {"id": 2, "to": "order-b"}) == (
        "Orders: cannot write the record at topic order-b: row 2: the topic 'order-b' in the column 'to' "
        "is not one of 'orders-a' and 'orders-b' (did you mean 'orders-b'?); name a topic of the table in each row"
    )


def test_a_topic_must_match_the_whole_pattern() -> None:
    plan = write_plan({"id": "INT"}, metadata={"to": "topic"}, pattern="topic.")

    assert [r["topic"] for r in encode(plan, {"id": 1, "to": "topic1"})] == ["topic1"]
    message = reason(plan, {"id": 1, "to": "topic12"})
    assert "the topic 'topic12' in the column 'to' does not match the pattern 'topic.'" in message


def test_a_missing_topic_is_refused() -> None:
    plan = write_plan({"id": "INT"}, metadata={"to": "topic"}, topics=("a", "b"))
    assert "the column 'to' is NULL, but it must name the topic of the row" in reason(plan, {"id": 1})

    without = write_plan({"id": "INT"}, topics=("a", "b"))
    assert "no column names its topic, and the table has 'a' and 'b'" in reason(without, {"id": 1})


@pytest.mark.parametrize(
    ("kind", "good", "bad", "path"),
    [
        ("INT NOT NULL", 1, None, "c"),
        ("ROW<a INT NOT NULL, b INT>", {"a": 1, "b": None}, {"a": None, "b": 1}, "c.a"),
        ("ARRAY<INT NOT NULL>", [1, 2], [1, None], "c.element"),
        ("MAP<STRING, INT NOT NULL>", [("a", 1)], [("a", 1), ("b", None)], "c.value"),
        ("ARRAY<ROW<a ARRAY<INT NOT NULL>>>", [{"a": [1]}, None], [{"a": [1]}, {"a": [None]}], "c.element.a.element"),
    ],
)
def test_not_null_is_enforced_at_any_depth(kind: str, good: object, bad: object, path: str) -> None:
    plan = write_plan({"c": kind, "d": "INT"})

    assert len(encode(plan, {"c": good}, {"c": good})) == 2
    assert reason(plan, {"c": good}, {"c": bad}, {"c": good}, {"c": bad}) == (
        f"Orders: cannot write the record at topic orders: row 2: {path} is NULL, but declared NOT NULL; "
        "1 more record of this batch has errors; give it a value, or declare it nullable"
    )


def test_a_null_struct_has_no_null_members() -> None:
    plan = write_plan({"c": "ROW<a INT NOT NULL>", "d": "ARRAY<INT NOT NULL>"})

    assert [json.loads(r["value"]) for r in encode(plan, {"c": None, "d": None})] == [{"c": None, "d": None}]


def test_rows_that_a_format_cannot_write_are_named_and_counted() -> None:
    plan = write_plan({"v": "STRING"}, key={"k": "STRING"}, key_format="raw")
    ascii_only = part("raw", {"v": "STRING"}, charset="US-ASCII")
    plan = WritePlan("Orders", plan.topics, plan.columns, key=plan.key, value=ascii_only)
    rows = batch(plan, {"k": "a", "v": "x"}, {"k": "b", "v": "é"}, {"k": "c", "v": "ü"})

    with pytest.raises(RecordError) as caught:
        RecordEncoder(plan).encode(rows, first_row=10)

    assert caught.value.topic == "orders"
    assert caught.value.more == 1
    assert "row 12: the value cannot be encoded: " in str(caught.value)


def test_a_serialized_plan_encodes_equally() -> None:
    plan = write_plan({"id": "INT"}, metadata=HEADERS | {"ts": "timestamp"})
    rows = {"id": 1, "headers": [("a", b"b")], "ts": datetime(2024, 1, 1, tzinfo=UTC)}

    assert encode(read_plan_text(plan_text(plan), WritePlan), rows) == encode(plan, rows)


def test_no_rows_result_in_no_records() -> None:
    plan = write_plan({"id": "INT"}, metadata=HEADERS | {"ts": "timestamp", "to": "topic"}, topics=("a", "b"))

    assert encode(plan) == []


def test_a_null_row_may_have_members_that_are_never_null() -> None:
    plan = write_plan({"place": "ROW<name STRING NOT NULL, tags ARRAY<ROW<x INT NOT NULL>>>"})

    assert encode(plan, {"place": None}, {"place": {"name": "x", "tags": [None, {"x": 1}]}}) == [
        {"key": None, "value": b'{"place":null}'},
        {"key": None, "value": b'{"place":{"name":"x","tags":[null,{"x":1}]}}'},
    ]
