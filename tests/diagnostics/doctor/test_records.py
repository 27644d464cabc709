"""What the doctor says about the last records of a topic."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kdsl import Avro, AvroConfluent, Col, DebeziumJson, Json, KafkaTable, Raw
from kdsl.cluster import Cluster
from kdsl.diagnostics.doctor import examine
from kdsl.diagnostics.doctor.records import check_frame_headers, check_inline_defaults
from kdsl.formats import Format, Side
from kdsl.plan.model import Part
from kdsl.run.records.metadata import HEADERS
from kdsl.table import Table
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types import model as t

ROW = t.Row((t.Field("id", t.BigInt(nullable=False)), t.Field("n", t.BigInt()), t.Field("o", t.BigInt())))
ID = b"\0\0\0\0\x07"


def raw(*records: tuple[bytes | None, list[dict[str, Any]] | None]) -> pa.RecordBatch:
    values, headers = zip(*records, strict=True)
    arrays = [pa.array(values, pa.binary()), pa.array(headers, HEADERS)]
    return pa.RecordBatch.from_arrays(arrays, ["value", "headers"])


def part(chosen: Format) -> Part:
    return Part(chosen, ROW, ROW.names)


@pytest.mark.parametrize(
    ("chosen", "state", "says"),
    [
        (AvroConfluent(), "ok", "which Orders reads"),
        (Avro(), "warning", "in a registry, and Orders reads all with one schema"),
        (Json(), "ok", "the format 'json' of Orders does not need it"),
        (Raw(), "ok", "the format 'raw' of Orders does not need it"),
    ],
    ids=lambda one: getattr(one, "identifier", None),
)
@pytest.mark.parametrize("side", ["key", "value"])
def test_headers_that_name_schemas_are_reported(chosen: Format, state: str, says: str, side: Side) -> None:
    records = raw((b"", [{"key": f"__{side}_schema_id", "value": ID}]), (b"", []), (b"", None))

    (finding,) = check_frame_headers("Orders", "orders", side, part(chosen), records)

    assert (finding.check, finding.state) == (f"{side} schemas of orders", state)
    assert f"the header '__{side}_schema_id' of 1 of the last 3 records names the schema" in finding.message
    assert says in finding.message


@pytest.mark.parametrize("side", ["key", "value"])
def test_other_headers_say_nothing(side: Side) -> None:
    other: Side = "value" if side == "key" else "key"
    records = raw((b"", [{"key": f"__{other}_schema_id", "value": ID}, {"key": "x", "value": ID}]))

    assert not list(check_frame_headers("Orders", "orders", side, part(Avro()), records))


def message(row: dict[str, Any], *, changes: bool) -> bytes:
    fields: list[dict[str, Any]] = [
        {"field": "id", "type": "int64", "optional": False, "default": 3},
        {"field": "n", "type": "int64", "optional": True, "default": 5},
        {"field": "o", "type": "int64", "optional": True},
    ]
    rows = {"type": "struct", "fields": fields, "optional": changes}
    if not changes:
        return json.dumps({"schema": rows, "payload": row}).encode()
    envelope = {"type": "struct", "fields": [{**rows, "field": "before"}, {**rows, "field": "after"}]}
    payload = {"before": None, "after": row, "op": "c"}
    return json.dumps({"schema": envelope, "payload": payload}).encode()


@pytest.mark.parametrize("changes", [False, True], ids=["rows", "changes"])
def test_nulls_that_may_arrive_as_defaults_are_warned_of_unless_one_arrived(changes: bool) -> None:
    chosen = DebeziumJson(schema_include=True) if changes else Json(schema_include=True)
    rows: list[dict[str, Any]] = [{"id": 1, "n": 5, "o": None}, {"id": 2, "n": 6, "o": 1}]
    records = raw(*((message(row, changes=changes), None) for row in rows), (None, None))

    (finding,) = check_inline_defaults("orders", part(chosen), records)

    assert finding.state == "warning"
    assert finding.message.startswith("NULL may arrive as the default in n (5): ")
    assert "replace.null.with.default=false" in finding.fix
    seen = raw((message({"id": 3, "n": None, "o": 1}, changes=changes), None))
    assert not list(check_inline_defaults("orders", part(chosen), seen))
    assert not list(check_inline_defaults("orders", part(Json()), records))
    assert not list(check_inline_defaults("orders", part(chosen), raw((b"x", None), (b"[]", None))))


@pytest.mark.kafka
def test_the_doctor_reads_the_last_records_of_a_topic(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic, cluster = kdsl_topic("orders"), Cluster(kdsl_kafka.bootstrap_servers)
    value = message({"id": 1, "n": 5, "o": None}, changes=False)
    kdsl_kafka.produce(topic, Record(value=value, headers=[("__value_schema_id", ID)]))

    class Orders(KafkaTable, topic=topic, value=Json(schema_include=True), startup="earliest"):
        id: Col[int]
        n: Col[int | None]

    findings = {f.check: f for f in examine(cluster, [Table(Orders.definition()).read_plan()])}

    assert (
        "the header '__value_schema_id' of 1 of the last 1 record names"
        in findings[f"value schemas of {topic}"].message
    )
    assert "NULL may arrive as the default in n (5)" in findings[f"values of {topic}"].message
