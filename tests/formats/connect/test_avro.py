"""Avro that Kafka Connect's converters wrote: the writer's schema says what numbers, strings and records mean."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl.types.arrow import plain_values
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.reference_decoder import ReferenceDecoder
from kdsl_formats._avro.schema import avro_schema
from kdsl_formats._registry.avro import find_misfits
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.debezium_avro_confluent import DebeziumAvroConfluent
from kdsl_formats.debezium_avro_confluent.envelope import envelope, extract_rows
from tests.strategies import examples

CONNECT, DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.doc": "Variable scaled decimal",
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
NUMBERS = st.one_of(
    st.sampled_from([9_223_372_036_825_200_000, -9_223_372_036_832_400, -(1 << 63), (1 << 63) - 1, 86_400_000_000]),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 10**11),
)
TEXTS = st.one_of(
    st.sampled_from(
        ["infinity", "2017-09-15Z", "04:05:11.789Z", "2019-07-09T02:28:57.5Z", "2019-07-09T02:28:57+02:00", "", "NaN"]
    ),
    st.datetimes().map(lambda d: f"{d.isoformat()}Z"),
    st.decimals(-(10**8), 10**8, allow_nan=False, allow_infinity=False).map(str),
    st.text(max_size=5),
)
PAIRS = st.fixed_dictionaries({"scale": st.integers(-3, 12), "value": st.binary(max_size=18)})


def connect_type(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


def decoder(schema: Any, row: t.Row, min_batch: int) -> AvroDecoder:
    return AvroDecoder(schema, row, avro_schema(row, for_reading=True), min_batch=min_batch)


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Value",
        "namespace": "shop",
        "fields": [{"name": n, "type": k} for n, k in fields],
    }


def body(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(_without_logical(schema)), value)
    return out.getvalue()


def _without_logical(schema: Any) -> Any:
    """A schema whose values are written as they are."""
    if isinstance(schema, dict):
        return {k: _without_logical(v) for k, v in schema.items() if k != "logicalType"}
    return [_without_logical(one) for one in schema] if isinstance(schema, list) else schema


def read(schema: Any, kind: t.DataType, *values: Any) -> Decoded:
    row = t.row(x=kind).as_nullable(False)
    assert isinstance(row, t.Row)
    whole = record(("x", schema))
    messages = pa.array([body(whole, {"x": v}) for v in values], pa.binary())
    one, many = (decoder(whole, row, min_batch).decode(messages) for min_batch in (len(values) + 1, 1))
    assert (one.bad, one.infinite) == (many.bad, many.infinite)
    assert plain_values(one.rows) == plain_values(many.rows)
    many.rows.validate(full=True)
    return many


CASES: list[tuple[Any, t.DataType, st.SearchStrategy[Any]]] = [
    (connect_type("int", f"{DEBEZIUM}Date"), t.Date(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (connect_type("int", f"{DEBEZIUM}Time"), t.Time(3), st.integers(-5, 86_400_005)),
    (connect_type("long", f"{DEBEZIUM}MicroTime"), t.Time(6), NUMBERS),
    (connect_type("long", f"{DEBEZIUM}NanoTime"), t.Time(3), NUMBERS),
    (connect_type("long", f"{DEBEZIUM}Timestamp"), t.Timestamp(3), NUMBERS),
    (connect_type("long", f"{DEBEZIUM}MicroTimestamp"), t.Timestamp(6), NUMBERS),
    (connect_type("long", f"{DEBEZIUM}MicroTimestamp"), t.Timestamp(6, nullable=False), NUMBERS),
    (connect_type("long", f"{DEBEZIUM}NanoTimestamp"), t.TimestampLtz(6), NUMBERS),
    (connect_type("string", f"{DEBEZIUM}IsoDate"), t.Date(), TEXTS),
    (connect_type("string", f"{DEBEZIUM}IsoTime"), t.Time(6), TEXTS),
    (connect_type("string", f"{DEBEZIUM}IsoTimestamp"), t.Timestamp(6), TEXTS),
    (connect_type("string", f"{DEBEZIUM}ZonedTimestamp"), t.TimestampLtz(6), TEXTS),
    (connect_type("string", f"{DEBEZIUM}ZonedTime"), t.Time(6), TEXTS),
    (connect_type("int", f"{CONNECT}Date", logicalType="date"), t.Date(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (connect_type("int", f"{CONNECT}Time", logicalType="time-millis"), t.Time(3), st.integers(-5, 86_400_005)),
    (connect_type("long", f"{CONNECT}Timestamp", logicalType="timestamp-millis"), t.TimestampLtz(3), NUMBERS),
    ({"type": "long", "logicalType": "time-micros"}, t.Time(3), NUMBERS),
    (VARIABLE, t.Decimal(20, 3), PAIRS),
    ("string", t.Decimal(10, 2), TEXTS),
    ("double", t.Decimal(10, 2), st.floats() | st.floats(-1e6, 1e6)),
]


@pytest.mark.parametrize(("schema", "kind", "values"), CASES, ids=lambda v: v if isinstance(v, str) else None)
def test_columns_are_as_single_bodies(schema: Any, kind: t.DataType, values: st.SearchStrategy[Any]) -> None:
    @given(st.lists(values, min_size=1, max_size=8), st.booleans())
    @settings(deadline=None, max_examples=examples(25))
    def check(actual: list[Any], optional: bool) -> None:
        read(["null", schema] if optional else schema, kind, *actual, *([None] if optional and kind.nullable else []))
        array = {"type": "array", "items": ["null", schema]}
        read(array, t.Array(kind), actual, [], [None, *actual] if kind.nullable else [])

    check()


@pytest.mark.parametrize(
    ("schema", "kind", "value", "wanted"),
    [
        (connect_type("int", f"{DEBEZIUM}Date"), t.Date(), 17_424, 17_424),
        (connect_type("long", f"{DEBEZIUM}MicroTime"), t.Time(6), 14_711_789_123, 14_711_789_123_000),
        (connect_type("long", f"{DEBEZIUM}Timestamp"), t.Timestamp(6), 1_529_507_596_945, 1_529_507_596_945_000),
        (
            connect_type("long", f"{DEBEZIUM}MicroTimestamp"),
            t.Timestamp(3),
            1_529_507_596_945_104,
            1_529_507_596_945_104,
        ),
        (
            connect_type("long", f"{DEBEZIUM}NanoTimestamp"),
            t.Timestamp(9),
            1_529_507_596_945_104_999,
            1_529_507_596_945_104,
        ),
        (connect_type("string", f"{DEBEZIUM}ZonedTimestamp"), t.TimestampLtz(6), "1970-01-01T00:00:01Z", 1_000_000),
        (VARIABLE, t.Decimal(10, 2), {"scale": 3, "value": b"\x30\x39"}, Decimal("12.35")),
        ("string", t.Decimal(10, 2), "12.5", Decimal("12.50")),
        ("double", t.Decimal(10, 2), 0.1, Decimal("0.10")),
    ],
)
def test_what_a_value_means(schema: Any, kind: t.DataType, value: Any, wanted: Any) -> None:
    rows = read(schema, kind, value)
    assert rows.bad == ()
    assert plain_values(rows.rows) == [{"x": wanted}]


def test_infinity_is_null_and_counted_where_the_column_is_nullable() -> None:
    schema = connect_type("long", f"{DEBEZIUM}MicroTimestamp")
    rows = read(schema, t.Timestamp(6), 9_223_372_036_825_200_000, 1)
    assert (plain_values(rows.rows), rows.infinite) == ([{"x": None}, {"x": 1}], 1)
    rows = read(schema, t.Timestamp(6, nullable=False), 9_223_372_036_825_200_000, 1)
    assert [bad.index for bad in rows.bad] == [0]
    assert "field 'x'" in rows.bad[0].reason
    assert "declare the column nullable" in rows.bad[0].reason


@pytest.mark.parametrize("count", [1, 100])
def test_infinite_values_of_bad_bodies_are_not_counted(count: int) -> None:
    row = t.row(at=t.Timestamp(6, nullable=True), day=t.Date(nullable=False)).as_nullable(False)
    assert isinstance(row, t.Row)
    schema = record(
        ("at", connect_type("long", f"{DEBEZIUM}MicroTimestamp")), ("day", connect_type("string", f"{DEBEZIUM}IsoDate"))
    )
    bodies = [body(schema, {"at": 9_223_372_036_825_200_000, "day": day}) for day in ("soon", "2017-09-15Z")]
    decoded = decoder(schema, row, 32).decode(pa.array(bodies * count, pa.binary()))
    assert (len(decoded.bad), decoded.infinite) == (count, count)


def test_the_error_of_an_unreadable_value_names_its_location() -> None:
    rows = read(connect_type("string", f"{DEBEZIUM}IsoTimestamp"), t.Timestamp(6), "soon")
    assert rows.bad[0].reason == (
        "field 'x': 'soon' is not a TIMESTAMP(6): expected a timestamp as 2019-07-09T02:28:57.123456Z"
    )


def test_plain_columns_need_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReferenceDecoder, "value", lambda *_: pytest.fail("read one by one"))
    row = t.row(at=t.Timestamp(6), seen=t.TimestampLtz(6), price=t.Decimal(20, 2)).as_nullable(False)
    assert isinstance(row, t.Row)
    schema = record(
        ("at", ["null", connect_type("long", f"{DEBEZIUM}MicroTimestamp")]),
        ("seen", ["null", connect_type("string", f"{DEBEZIUM}ZonedTimestamp")]),
        ("price", ["null", VARIABLE]),
    )
    value = {"at": 9_223_372_036_825_200_000, "seen": "infinity", "price": {"scale": 1, "value": b"\1"}}
    messages = pa.array([body(schema, value)] * 100, pa.binary())
    assert decoder(schema, row, 32).decode(messages).infinite == 200


def test_changes_contain_both_images() -> None:
    """The records have other names than those of the table, so that they are chosen by what fits."""
    row = t.row(at=t.Timestamp(6), seen=t.Array(t.TimestampLtz(6)), price=t.Decimal(10, 2))
    fields = [
        {"name": "at", "type": ["null", connect_type("long", f"{DEBEZIUM}MicroTimestamp")]},
        {"name": "seen", "type": {"type": "array", "items": connect_type("string", f"{DEBEZIUM}ZonedTimestamp")}},
        {"name": "price", "type": ["null", VARIABLE]},
    ]
    image = {"type": "record", "name": "Value", "fields": fields}
    schema = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", image]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }
    rest = {"seen": ["1970-01-01T00:00:01Z"], "price": {"scale": 1, "value": b"\x07"}}
    change = {"before": {"at": 9_223_372_036_825_200_000, **rest}, "after": {"at": 7, **rest}, "op": "u"}
    messages = pa.array([body(schema, change)] * 40, pa.binary())
    result = extract_rows(decoder(schema, envelope(row), 1).decode(messages), row)
    wanted = {"seen": [1_000_000], "price": Decimal("0.70")}
    assert (plain_values(result.rows)[:2], result.infinite) == ([{"at": None, **wanted}, {"at": 7, **wanted}], 40)


@pytest.mark.parametrize("chosen", [AvroConfluent(), DebeziumAvroConfluent()], ids=["rows", "changes"])
def test_all_times_may_be_read_but_not_written(chosen: AvroConfluent | DebeziumAvroConfluent) -> None:
    row = t.row(clock=t.Time(6), at=t.Timestamp(9), seen=t.Array(t.TimestampLtz(6)))
    assert list(chosen.check(row, "read")) == []
    assert [p.code for p in chosen.check(row, "write")] == ["avro-time", "avro-timestamp", "avro-timestamp-ltz"]


def test_misfits_are_reported_with_the_paths_of_their_columns() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "b", "type": "string"}]}
    schema = record(
        ("b", "int"),
        ("o", inner),
        ("many", {"type": "array", "items": "Inner"}),
        ("by_name", {"type": "map", "values": "string"}),
    )
    number = t.Int().as_nullable(False)
    part = t.row(b=number).as_nullable(False)
    row = t.row(
        b=number,
        o=part,
        many=t.Array(part).as_nullable(False),
        by_name=t.Map(t.STRING.as_nullable(False), number).as_nullable(False),
    )
    assert list(find_misfits(schema, row, avro_schema(row.as_nullable(False), for_reading=True))) == [  # type: ignore[arg-type]
        f"{path}: the writer's schema has string here, which INT cannot hold; declare the column as STRING"
        for path in ("o.b", "many[].b", "by_name[]")
    ]


def test_a_column_of_another_kind_is_still_reported() -> None:
    row = t.row(at=t.Timestamp(6))
    schema = record(("at", connect_type("string", f"{DEBEZIUM}ZonedTimestamp")))
    assert list(find_misfits(schema, row, avro_schema(row.as_nullable(False), for_reading=True)))  # type: ignore[arg-type]
