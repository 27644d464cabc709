"""Schemas inside messages: contradictions with the columns of a table are reported, and values are never misread."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl_formats._connect import schema_check
from kdsl_formats._connect.schemas import table_of_schema
from kdsl_formats.cdc_json import DebeziumJson
from kdsl_formats.json import Json

SETTINGS: dict[str, Any] = {
    "schema_include": True,
    "decimal_handling_mode": "precise",
    "time_precision_mode": "adaptive",
}
ROW = t.row(
    total=t.Decimal(10, 2),
    at=t.Timestamp(6),
    seen=t.TimestampLtz(6),
    inner=t.row(prices=t.Array(t.Decimal(5, 1))),
)


def decimal(scale: int) -> dict[str, Any]:
    name = "org.apache.kafka.connect.data.Decimal"
    return {"type": "bytes", "name": name, "parameters": {"scale": str(scale)}}


def schema(*, scale: int = 2, unit: str = "MicroTimestamp", prices: int = 1) -> dict[str, Any]:
    inner = {"type": "struct", "fields": [{"type": "array", "items": decimal(prices), "field": "prices"}]}
    fields = [
        {**decimal(scale), "field": "total"},
        {"type": "int64", "name": f"io.debezium.time.{unit}", "field": "at"},
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "field": "seen"},
        {**inner, "field": "inner"},
    ]
    return {"type": "struct", "fields": fields, "optional": False}


PAYLOAD = {"total": "AegB", "at": 1_000, "seen": "1970-01-01T00:00:01Z", "inner": {"prices": ["Bw=="]}}


def message(of: Any, payload: Any = None) -> bytes:
    return json.dumps({"schema": of, "payload": payload or PAYLOAD}, separators=(",", ":")).encode()


def decode(chosen: Json | DebeziumJson, *messages: bytes | None) -> Decoded:
    return chosen.decoder(ROW).decode(pa.array(messages, pa.binary()))


def test_a_schema_that_fits_is_read() -> None:
    decoded = decode(Json(**SETTINGS), *[message(schema())] * 100, None, b"")
    assert (len(decoded.rows), decoded.bad) == (100, ())


@pytest.mark.parametrize(
    ("wrong", "error_text"),
    [
        ({"scale": 4}, "'total' has the scale 4, but the column is DECIMAL(10, 2); declare DECIMAL(p, 4)"),
        ({"prices": 2}, "'inner.prices[]' has the scale 2, but the column is DECIMAL(5, 1)"),
        ({"unit": "Timestamp"}, "'at' is a io.debezium.time.Timestamp, but the column TIMESTAMP(6) with"),
        ({"unit": "NanoTimestamp"}, "declare TIMESTAMP(9), or set the mode of the connector"),
        ({"unit": "Date"}, "'at' is a io.debezium.time.Date, but the column is TIMESTAMP(6); declare DATE"),
    ],
)
@pytest.mark.parametrize("blank", ["", " "])
def test_a_mismatch_is_reported(wrong: dict[str, Any], error_text: str, blank: str) -> None:
    bad = message(schema(**wrong)).replace(b'"schema":', f'"schema":{blank}'.encode())
    bad = bad.replace(b',"payload":', f',{blank}"payload":'.encode())
    decoded = decode(Json(**SETTINGS), *[message(schema())] * 60, bad, *[message(schema())] * 60)
    assert [b.index for b in decoded.bad] == [60]
    assert error_text in decoded.bad[0].reason
    assert len(decoded.rows) == 120
    ignoring = decode(Json(**SETTINGS, ignore_parse_errors=True), *[message(schema())] * 60, bad)
    assert (len(ignoring.rows), ignoring.bad) == (60, ())


def test_both_images_of_changes_are_checked() -> None:
    def envelope(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
        fields = [{**before, "field": "before"}, {**after, "field": "after"}, {"type": "string", "field": "op"}]
        return {"type": "struct", "fields": fields}

    change = {"before": None, "after": PAYLOAD, "op": "c"}
    good = message(envelope(schema(), schema()), change)
    bad = message(envelope(schema(), schema(scale=0)), change)
    decoded = decode(DebeziumJson(**SETTINGS), good, bad, good)
    assert [b.index for b in decoded.bad] == [1]
    assert "'total' has the scale 0" in decoded.bad[0].reason
    assert decoded.messages is not None
    assert decoded.messages.to_pylist() == [0, 2]


def test_a_schema_with_a_member_called_payload_is_cut_where_it_ends() -> None:
    odd = schema()
    odd["parameters"] = {"a": "b", "payload": "c"}
    decoded = decode(Json(**SETTINGS), *[message(odd)] * 3, *[message({**odd, **schema(scale=3)})] * 3)
    assert [b.index for b in decoded.bad] == [3, 4, 5]


def test_a_schema_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    before = schema_check.find_contradictions

    def look(*values: Any) -> Any:
        if len(values) == 3:  # of the whole schema, and not of a part
            looked.append(values)
        return before(*values)

    monkeypatch.setattr(schema_check, "find_contradictions", look)
    decoder = Json(**SETTINGS).decoder(ROW)
    for _ in range(3):
        assert decoder.decode(pa.array([message(schema())] * 100, pa.binary())).bad == ()
    assert len(looked) == 1


def test_more_schemas_than_the_cache_holds_are_checked_equally() -> None:
    many = [{**schema(scale=2 + i % 2), "version": i} for i in range(40)]
    decoder = Json(**SETTINGS).decoder(ROW)
    for _ in range(2):
        decoded = decoder.decode(pa.array([message(one) for one in many], pa.binary()))
        assert [b.index for b in decoded.bad] == list(range(1, 40, 2))


def test_nothing_is_checked_without_settings() -> None:
    decoder = Json(schema_include=True).decoder(ROW)
    assert not isinstance(decoder, schema_check.SchemaCheckingDecoder)


MALFORMED = [
    5,
    {"type": "struct", "fields": 5},
    {"type": "struct", "fields": True},
    {"type": "struct", "fields": [{"type": "int64", "field": ["id"]}]},
    {"type": "struct", "fields": [{"type": "int64", "field": {"name": "id"}}]},
]


def envelope_of(row_schema: Any) -> dict[str, Any]:
    images = [{**row_schema, "field": name} for name in ("before", "after")] if isinstance(row_schema, dict) else 5
    return {"type": "struct", "fields": images}


@pytest.mark.parametrize("malformed", MALFORMED, ids=json.dumps)
def test_a_malformed_schema_contradicts_nothing(malformed: Any) -> None:
    change = {"before": None, "after": PAYLOAD, "op": "c"}
    for wrong in (malformed, envelope_of(malformed)):
        assert decode(Json(**SETTINGS), message(wrong)).bad == ()
        decoded = decode(DebeziumJson(**SETTINGS), message(wrong, change), message(envelope_of(schema()), change))
        assert (len(decoded.rows), decoded.bad) == (2, ())


@pytest.mark.parametrize("malformed", [*MALFORMED, {"type": "struct", "fields": [decimal(0)]}], ids=json.dumps)
@pytest.mark.parametrize("many", [1, 100], ids=["one by one", "together"])
def test_a_message_whose_columns_come_from_a_malformed_schema_is_bad(malformed: Any, many: int) -> None:
    good, row = {"type": "struct", "fields": [{"type": "int64", "field": "id"}]}, {"id": 7}
    change = {"before": None, "after": row, "op": "c", "source": {"db": "d", "schema": "s", "table": "t"}}
    cases: list[tuple[Json | DebeziumJson, Any, Any, list[Any]]] = [
        (Json(schema_include=True), row, good, [malformed]),
        (DebeziumJson(schema_include=True), change, envelope_of(good), [malformed, envelope_of(malformed)]),
    ]
    for chosen, payload, fitting, wrong in cases:
        for one in wrong:
            parts = [message(fitting, payload)] * many + [message(one, payload)] + [message(fitting, payload)] * many
            messages = pa.array(parts, pa.binary())
            decoded = chosen.reading_observed().decoder(t.row(id=t.BigInt())).decode(messages)
            observed = chosen.observer().observe(messages, {})

            assert [bad.index for bad in decoded.bad] == [bad.index for bad in observed.bad] == [many]
            assert "has no schema of a row" in decoded.bad[0].reason
            assert len(decoded.rows) == 2 * many


def test_an_infinite_scale_is_malformed() -> None:
    infinite = json.loads(json.dumps(decimal(0)).replace('"0"', "1e400"))

    assert table_of_schema({"type": "struct", "fields": [{**infinite, "field": "total"}]}) is None
