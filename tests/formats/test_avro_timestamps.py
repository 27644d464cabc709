"""Instants and local timestamps in Avro with a registry: written, read by others, generated, and advised."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.schemas.avro import avro_draft
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type, plain_values
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.encoder import AvroEncoder
from kdsl_formats._avro.model import AvroTypeError
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.debezium_avro_confluent import DebeziumAvroConfluent
from tests.strategies import examples

KINDS = (AvroConfluent, DebeziumAvroConfluent)
FORMATS = [kind(legacy_timestamps=legacy) for kind in KINDS for legacy in (True, False)]
STAMPS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))
EPOCH = dt.datetime(1970, 1, 1)


def rows_of(**fields: t.DataType) -> t.Row:
    kind = t.row(**fields).as_nullable(False)
    assert isinstance(kind, t.Row)
    return kind


def logical(name: str) -> dict[str, Any]:
    return {"type": "long", "logicalType": name}


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": kind} for n, kind in fields]}


@given(st.lists(STAMPS, min_size=1, max_size=20), st.booleans(), st.sampled_from([3, 6]))
@settings(deadline=None, max_examples=examples(40))
def test_other_readers_see_instants_and_local_times(stamps: list[dt.datetime], legacy: bool, precision: int) -> None:
    instant, local = t.TimestampLtz(precision), t.Timestamp(3 if legacy else precision)
    row = rows_of(
        seen=instant, at=local, many=t.Array(instant), by_name=t.Map(t.STRING.as_nullable(False), t.row(seen=instant))
    )
    stamps = [one.replace(microsecond=one.microsecond // 1000 * 1000) for one in stamps]
    values = [
        {"seen": one.replace(tzinfo=dt.UTC), "at": one, "many": [one.replace(tzinfo=dt.UTC)],
         "by_name": [("k", {"seen": one.replace(tzinfo=dt.UTC)})]}
        for one in stamps
    ]  # fmt: skip
    chosen = AvroConfluent(legacy_timestamps=legacy)
    assert list(chosen.check(row, "write")) == []
    schema: Any = chosen.table_schema(row, "write")
    rows = pa.array(values, arrow_type(row))
    encoded = AvroEncoder(schema, row).encode(rows)
    assert encoded.bad == ()
    parsed = fastavro.parse_schema(schema)
    for message, one in zip(encoded.messages.to_pylist(), stamps, strict=True):
        read: Any = fastavro.schemaless_reader(io.BytesIO(message), parsed, None)
        aware = one.replace(tzinfo=dt.UTC)
        assert (read["seen"], read["many"], read["by_name"]) == (aware, [aware], {"k": {"seen": aware}})
        # fastavro returns the number of a local timestamp in microseconds or milliseconds as a datetime without a zone
        assert read["at"] == (aware if legacy else one)
    decoded = AvroDecoder(schema, row, chosen.table_schema(row, "read")).decode(encoded.messages)
    assert plain_values(decoded.rows) == plain_values(rows)


@pytest.mark.parametrize("chosen", FORMATS, ids=lambda f: f"{f.identifier}-{f.legacy_timestamps}")
def test_the_advice_of_each_refused_timestamp_works(chosen: AvroConfluent | DebeziumAvroConfluent) -> None:
    kinds = [kind(n) for kind in (t.Timestamp, t.TimestampLtz) for n in (0, 3, 6, 9)]
    nested = [wrap for kind in kinds for wrap in (kind, t.Array(kind), t.Map(t.STRING, kind), t.row(x=kind))]
    advised = 0
    for kind in nested:
        for problem in chosen.check(rows_of(c=kind), "write"):
            assert problem.fix is not None
            if "'timestamp_mapping.legacy' to 'false'" in problem.fix:
                other = type(chosen).from_strings({"timestamp_mapping.legacy": "false"})
                assert list(other.check(rows_of(c=kind), "write")) == []
                advised += 1
            use = problem.fix.rpartition("use ")[2].removeprefix("a ")
            name, digits = use.rstrip(")").split("(")
            better = (t.Timestamp if name == "TIMESTAMP" else t.TimestampLtz)(int(digits))
            assert list(chosen.check(rows_of(c=better), "write")) == []
    assert advised == (4 if chosen.legacy_timestamps else 0)


@pytest.mark.parametrize("chosen", KINDS)
def test_an_instant_can_be_written(chosen: type[AvroConfluent | DebeziumAvroConfluent]) -> None:
    row = rows_of(seen=t.TimestampLtz(6))
    assert list(chosen().check(row, "write")) == []
    assert '"timestamp-micros"' in json.dumps(chosen().table_schema(row, "write"))


@pytest.mark.parametrize("kind", ["TIMESTAMP_LTZ(3)", "TIMESTAMP(3)"])
def test_the_option_schema_takes_both_mappings(kind: str) -> None:
    column = t.TimestampLtz(3, nullable=False) if "LTZ" in kind else t.Timestamp(3, nullable=False)
    chosen = AvroConfluent(schema=json.dumps(record(("at", logical("timestamp-millis")))))
    assert list(chosen.check(rows_of(at=column), "write")) == []
    assert list(chosen.check(rows_of(at=column), "read")) == []
    (problem,) = chosen.check(rows_of(at=t.STRING), "write")
    assert problem.fix is not None
    assert "TIMESTAMP_LTZ(3) NOT NULL" in problem.fix


def test_generated_tables_have_instants() -> None:
    schema = record(
        ("seen", logical("timestamp-millis")),
        ("fine", logical("timestamp-micros")),
        ("many", {"type": "array", "items": logical("timestamp-millis")}),
    )
    draft = avro_draft(schema, chosen=AvroConfluent(legacy_timestamps=False)).table
    assert [str(c.type) for c in draft.columns] == [
        "TIMESTAMP_LTZ(3) NOT NULL",
        "TIMESTAMP_LTZ(6) NOT NULL",
        "ARRAY<TIMESTAMP_LTZ(3) NOT NULL> NOT NULL",
    ]
    assert draft.value_format == AvroConfluent()
    local = avro_draft(record(("at", logical("local-timestamp-millis"))), chosen=AvroConfluent(legacy_timestamps=False))
    assert [str(c.type) for c in local.table.columns] == ["TIMESTAMP(3) NOT NULL"]
    assert local.table.value_format == AvroConfluent(legacy_timestamps=False)
    flink = avro_draft(schema, chosen=AvroConfluent())
    assert [str(c.type) for c in flink.table.columns][:2] == ["TIMESTAMP(3) NOT NULL", "TIMESTAMP(6) NOT NULL"]


def test_connects_own_timestamp_is_an_instant_except_in_debeziums_envelopes() -> None:
    stamp = {**logical("timestamp-millis"), "connect.name": "org.apache.kafka.connect.data.Timestamp"}
    draft = avro_draft(record(("at", stamp)), chosen=AvroConfluent(legacy_timestamps=False)).table
    assert str(draft.columns[0].type) == "TIMESTAMP_LTZ(3) NOT NULL"
    change = record(("before", ["null", record(("at", stamp)) | {"name": "Value"}]), ("after", ["null", "Value"]))
    change["fields"].append({"name": "op", "type": "string"})
    draft = avro_draft(change, chosen=DebeziumAvroConfluent(legacy_timestamps=False)).table
    assert str(draft.columns[0].type) == "TIMESTAMP(3) NOT NULL"


@pytest.mark.parametrize(
    ("wire", "kind", "message"),
    [
        (logical("local-timestamp-millis"), t.TimestampLtz(3), "long (local-timestamp-millis) here, which cannot hold"),
        ({"type": "int", "logicalType": "time-millis"}, t.Date(), "int (time-millis) here, which cannot hold DATE"),
        ({"type": "int", "logicalType": "date"}, t.Time(3), "int (date) here, which cannot hold TIME(3)"),
        ("long", t.Timestamp(6), "long here, which cannot hold TIMESTAMP(6); declare the column as BIGINT"),
    ],
)
def test_columns_are_not_written_as_something_else(wire: Any, kind: t.DataType, message: str) -> None:
    with pytest.raises(AvroTypeError) as error:
        AvroEncoder(record(("x", wire)), rows_of(x=kind))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "kind", "number"),
    [
        ("MicroTimestamp", t.Timestamp(6), 1_000_001),
        ("NanoTimestamp", t.Timestamp(6), 1_000_001_000),
        ("Timestamp", t.Timestamp(6), 1000),
        ("MicroTime", t.Time(6), 1_000_001),
    ],
)
def test_connects_names_decide_the_unit_of_what_is_written(name: str, kind: t.DataType, number: int) -> None:
    schema = record(("x", {"type": "long", "connect.name": f"io.debezium.time.{name}"}))
    row = rows_of(x=kind)
    value = dt.time(0, 0, 1, 1) if isinstance(kind, t.Time) else EPOCH + dt.timedelta(microseconds=1_000_001)
    for count in (1, 40):
        encoded = AvroEncoder(schema, row).encode(pa.array([{"x": value}] * count, arrow_type(row)))
        (message, *_) = encoded.messages.to_pylist()
        plain = fastavro.parse_schema(record(("x", "long")))
        assert fastavro.schemaless_reader(io.BytesIO(message), plain, None) == {"x": number}
