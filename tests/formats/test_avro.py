"""The format ``avro``: the reference's recorded answers, its options, and its plan-time rules."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kdsl.errors import Problem
from kdsl.formats import Direction
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.encoder import AvroEncoder
from kdsl_formats._avro.schema import avro_schema, row_of
from kdsl_formats.avro import Avro
from tests.formats.conformance import DATA, ERROR, Case, answer, arrow_value, cases, from_arrow, python_rows, share
from tests.problem_texts import without_code

CASES = cases("avro")
SCHEMAS = {
    record["id"]: record["avro_schema"]
    for record in map(json.loads, (DATA / "avro-cases.jsonl").read_text(encoding="utf-8").splitlines())
    if "avro_schema" in record
}
BINARY = [c for c in CASES if "encoding" not in c.options]


def present(row: t.Row) -> t.Row:
    result = row.as_nullable(False)
    assert isinstance(result, t.Row)
    return result


def legacy(case: Case) -> bool:
    return case.options.get("timestamp_mapping.legacy", "true") == "true"


def problems(value: Avro, row: t.Row, direction: Direction = "read") -> list[Problem]:
    return [*value.problems(), *value.check(row, direction)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_answer_is_the_references(case: Case) -> None:
    assert answer(case) == case.answer


@pytest.mark.parametrize("case", [c for c in CASES if c.id in SCHEMAS], ids=lambda case: case.id)
def test_the_schema_is_the_references(case: Case) -> None:
    schema = avro_schema(present(case.row), legacy_timestamps=legacy(case))

    assert json.dumps(schema, separators=(",", ":")) == SCHEMAS[case.id]
    if legacy(case):
        assert avro_schema(row_of(schema)) == schema


@pytest.mark.parametrize("case", [c for c in BINARY if c.kind == "decode"], ids=lambda case: case.id)
def test_reading_by_columns_returns_the_same_result(case: Case) -> None:
    schema = avro_schema(present(case.row), legacy_timestamps=legacy(case))
    reader = AvroDecoder(schema, present(case.row), schema, exact_units=False, min_batch=1)
    decoded = reader.decode(pa.array([case.input] * 3, pa.binary()))

    if case.answer == ERROR:
        assert [b.index for b in decoded.bad] == [0, 1, 2]
    else:
        assert [from_arrow(v, case.row) for v in python_rows(decoded.rows)] == case.answer * 3


@pytest.mark.parametrize(
    "case", [c for c in BINARY if c.kind == "encode" and c.answer != ERROR], ids=lambda case: case.id
)
def test_writing_by_columns_returns_the_same_result(case: Case) -> None:
    schema = avro_schema(present(case.row), legacy_timestamps=legacy(case))
    rows = pa.array([arrow_value(case.values, case.row)] * 2, arrow_type(case.row))
    encoded = AvroEncoder(schema, present(case.row), exact_units=False, min_batch=0).encode(rows)

    assert encoded.messages.to_pylist() == [case.answer] * 2


def test_all_answers_are_the_references(record_property: Any) -> None:
    same = sum(answer(case) == case.answer for case in CASES)
    message = share("avro", same, len(CASES) - same)
    record_property("share", message)
    print(message)

    assert same == len(CASES)


def test_the_options_are_those_of_the_reference_and_one_more() -> None:
    settings = {
        "encoding": "JSON",
        "timestamp_mapping.legacy": "false",
        "timestamp_mapping.micros": "true",
        "codec": "deflate",
    }
    result = Avro.from_strings(settings)

    assert (result.encoding, result.legacy_timestamps, result.micros, result.codec) == ("json", False, True, "deflate")
    assert result.to_strings() == settings | {"encoding": "json"}
    assert (Avro().encoding, Avro().legacy_timestamps, Avro().micros, Avro().codec) == ("binary", True, False, "snappy")
    assert [p.code for p in problems(Avro.from_strings({"encoding": "xml"}), t.row(a=t.Int()))] == ["option-value"]


@pytest.mark.parametrize(
    ("kind", "codes", "modern"),
    [
        (t.Timestamp(3), [], []),
        (t.Timestamp(6), ["avro-timestamp"], ["avro-micros"]),
        (t.Timestamp(9), ["avro-timestamp"], ["avro-timestamp", "avro-micros"]),
        (t.TimestampLtz(3), ["avro-timestamp-ltz"], []),
        (t.TimestampLtz(6), ["avro-timestamp-ltz"], ["avro-micros"]),
        (t.Array(t.TimestampLtz(3)), ["avro-timestamp-ltz"], ["avro-timestamp-ltz"]),
        (t.Map(t.STRING, t.Timestamp(6)), ["avro-timestamp"], ["avro-timestamp"]),
        (t.row(x=t.Timestamp(6)), ["avro-timestamp"], ["avro-micros"]),
        (t.Time(3), [], []),
        (t.Time(6), ["avro-time"], ["avro-time"]),
        (t.Map(t.Int(), t.Int()), ["avro-map-key"], ["avro-map-key"]),
        (t.Multiset(t.Int()), ["avro-map-key"], ["avro-map-key"]),
        (t.Row((t.Field("a-b", t.Int()),)), ["avro-name"], ["avro-name"]),
    ],
    ids=str,
)
def test_unsupported_types_are_reported(kind: t.DataType, codes: list[str], modern: list[str]) -> None:
    row = t.row(fine=t.Int(), f=kind)

    for direction in ("read", "write"):
        assert [p.code for p in problems(Avro(), row, direction)] == codes
        assert [p.code for p in problems(Avro(legacy_timestamps=False), row, direction)] == modern
    assert {p.where.column for p in problems(Avro(), row)} <= {"f"}


def test_a_problem_names_what_to_write_instead() -> None:
    row = t.row(at=t.TimestampLtz(3), when=t.Timestamp(6), inside=t.Array(t.Timestamp(6)))

    assert [without_code(p) for p in problems(Avro(), row)] == [
        "at: the type TIMESTAMP_LTZ(3) is not supported by Avro in the legacy mapping of timestamps; set "
        "'timestamp_mapping.legacy' to 'false', or use a TIMESTAMP(3)",
        "when: Avro in the legacy mapping of timestamps supports TIMESTAMP with up to 3 digits, but "
        "TIMESTAMP(6) has 6; set 'timestamp_mapping.legacy' to 'false', or use TIMESTAMP(3)",
        "inside: Avro in the legacy mapping of timestamps supports TIMESTAMP with up to 3 digits, but "
        "TIMESTAMP(6) has 6 (at inside[]); use TIMESTAMP(3)",
    ]


def test_digits_that_get_lost_are_a_warning_unless_micros_are_meant() -> None:
    row = t.row(at=t.Timestamp(6))
    (sample,) = problems(Avro(legacy_timestamps=False), row, "write")

    assert (sample.code, sample.severity, sample.where.column) == ("avro-micros", "warning", "at")
    assert problems(Avro(legacy_timestamps=False, micros=True), row, "write") == []


def test_micros_follow_the_schema_if_requested() -> None:
    row = t.row(at=t.Timestamp(6), seen=t.TimestampLtz(6))
    value = {"at": 1_577_882_096_789_123, "seen": 1}
    rows = pa.array([value], arrow_type(row))
    exact, cut = Avro(legacy_timestamps=False, micros=True), Avro(legacy_timestamps=False)

    assert exact.decoder(row).decode(exact.encoder(row).encode(rows).messages).rows == rows
    assert cut.encoder(row).encode(rows).messages[0].as_py() == bytes.fromhex("02aad2d091ec5b0200")
    assert list(python_rows(cut.decoder(row).decode(cut.encoder(row).encode(rows).messages).rows)) == [
        {"at": 1_577_882_096_789_000, "seen": 0}
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the message is empty"),
        ("{", "not JSON"),
        ("[]", "expected an object, found an array"),
        ("null", "expected an object, found null"),
        ('{"id":1}', "the field 'name' is missing"),
        ('{"id":1,"name":null,"more":2}', "the schema has no field 'more'"),
        ('{"id":1,"name":"x"}', "field 'name': expected null or {\"string\": …}, as Avro's JSON writes"),
        ('{"id":1,"name":{"int":5}}', "field 'name': a union has no type 'int'; it has string"),
        ('{"id":1,"name":{"string":5}}', "field 'name': expected a string, found a number"),
        ('{"id":null,"name":null}', "field 'id': expected a number, found null"),
        ('{"id":1.5,"name":null}', "field 'id': 1.5 is not an integer of 64 bits"),
        ('{"id":9223372036854775808,"name":null}', "field 'id': 9223372036854775808 is not an integer of 64 bits"),
        ('{"id":1e999999999,"name":null}', "field 'id': 1e999999999 is not an integer of 64 bits"),
        ('{"id":NaN,"name":null}', "not JSON"),
        ('{"id":' + "[" * 100_000, "nested deeper"),
    ],
    ids=lambda v: v[:30],
)
def test_json_that_is_not_a_row_is_an_error_with_its_location(text: str, reason: str) -> None:
    row = t.row(id=t.BigInt(nullable=False), name=t.STRING)
    decoded = Avro(encoding="json").decoder(row).decode(pa.array([text.encode()], pa.binary()))

    (bad,) = decoded.bad
    assert (bad.index, len(decoded.rows)) == (0, 0)
    assert reason in bad.reason


def test_json_supports_every_type() -> None:
    row = t.row(
        f=t.Float(),
        d=t.Double(nullable=False),
        b=t.BYTES,
        m=t.Map(t.STRING, t.row(x=t.Boolean())),
        day=t.Date(),
        c=t.Time(3),
        at=t.Timestamp(3),
        s=t.STRING,
    )
    value: dict[str, Any] = {
        "f": 0.5,
        "d": float("-inf"),
        "b": b"\0\xff",
        "m": [("b", {"x": True}), ("a", {"x": None})],
        "day": 19_000,
        "c": 1_000_000,
        "at": 1000,
        "s": 'é\n"\U0001f600',
    }
    rows = pa.array([value], arrow_type(row))
    format_ = Avro(encoding="json")
    encoded = format_.encoder(row).encode(rows)

    assert encoded.messages[0].as_py().decode() == (
        '{"f":{"float":0.5},"d":"-Infinity","b":{"bytes":"\\u0000ÿ"},"m":{"map":{"a":{"org.apache.flink.avro.generated.'
        'record_m":{"x":null}},"b":{"org.apache.flink.avro.generated.record_m":{"x":{"boolean":true}}}}},'
        '"day":{"int":19000},"c":{"int":1},"at":{"long":1},"s":{"string":"é\\n\\"\\uD83D\\uDE00"}}'
    )
    decoded = format_.decoder(row).decode(encoded.messages).rows.to_pylist()[0]
    assert sorted(decoded.pop("m")) == sorted(value["m"])
    assert decoded == {k: v for k, v in rows.to_pylist()[0].items() if k != "m"}
