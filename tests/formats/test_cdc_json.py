"""Change data in JSON: the reference's recorded answers, the options, and the plan-time rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kdsl.formats import ROW_KINDS, Direction, Use, format_class
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats.cdc_json import CanalJson, DebeziumJson, MaxwellJson, OggJson
from kdsl_formats.cdc_json.decoder import ChangeDecoder
from kdsl_formats.cdc_json.encoder import ChangeEncoder, change_frames
from kdsl_formats.cdc_json.formats import ChangeJson
from kdsl_formats.json.errors import FieldError
from kdsl_formats.json.reference_encoder import ReferenceEncoder
from tests.formats.conformance import (
    DATA,
    ERROR,
    Case,
    answer,
    answer_of,
    arrow_value,
    cases,
    differences,
    has_null_key,
    read_case,
    share,
)
from tests.formats.test_json import as_python
from tests.resolve.tables import codes, table, warnings

FORMATS: tuple[type[ChangeJson], ...] = (CanalJson, DebeziumJson, MaxwellJson, OggJson)
CASES = cases("cdc")
RECORDED = DATA / "cdc-expected-rows.jsonl"
MESSAGES = Path(__file__).parents[3] / "shared" / "anchors" / "data" / "cdc"
DIFFERENCES = [d for kind in FORMATS for d in differences(kind.identifier)]
HOLDABLE = [c for c in CASES if c.kind == "encode" and c.answer != ERROR and not has_null_key(c.values, c.row)]


def change_answer(case: Case) -> Any:
    """What kdsl answers; a map with a NULL key, which no array holds, is given to the reference encoder itself."""
    if case.kind == "decode" or not has_null_key(case.values, case.row):
        return answer(case)
    result = case.table_format()
    assert isinstance(result, ChangeJson)
    there, gone = change_frames(result.dialect, result.writing_rules())
    frame = there if case.kind_of_row in ("+I", "+U") else gone
    try:
        values = {
            field.name: as_python(value) if isinstance(value, dict) else arrow_value(value, field.type)
            for value, field in zip(case.values, case.row.fields, strict=True)
        }
        row = ReferenceEncoder(case.row, result.writing_rules()).message(values)
    except FieldError:
        return ERROR
    return frame.before + row + frame.after


def by_columns(case: Case) -> ChangeDecoder:
    result = case.table_format()
    assert isinstance(result, ChangeJson)
    return ChangeDecoder(result.change_rules(case.row, case.use), min_batch=1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_answer_is_the_references_or_differs_on_purpose(case: Case) -> None:
    meant = [d.reason for d in DIFFERENCES if d.covers(case)]
    if meant:
        assert change_answer(case) != case.answer, f"no longer differs: {meant}"
    else:
        assert change_answer(case) == case.answer


@pytest.mark.parametrize("case", [c for c in CASES if c.kind == "decode"], ids=lambda case: case.id)
def test_reading_by_columns_returns_the_same_result(case: Case) -> None:
    decoded = by_columns(case).decode(pa.array([case.input] * 3, pa.binary()))
    expected = answer(case)
    if expected == ERROR:
        assert [b.index for b in decoded.bad] == [0, 1, 2]
    else:
        assert answer_of(case, decoded) == expected * 3


@pytest.mark.parametrize("case", HOLDABLE, ids=lambda case: case.id)
def test_writing_by_columns_returns_the_same_result(case: Case) -> None:
    result = case.table_format()
    assert isinstance(result, ChangeJson)
    rows = pa.array([arrow_value(case.values, case.row)] * 2, arrow_type(case.row))
    kinds = pa.array([ROW_KINDS.index(case.kind_of_row)] * 2, pa.int8())
    encoder = ChangeEncoder(result.dialect, case.row, result.writing_rules(), min_batch=0)

    assert encoder.encode(rows, kinds).messages.to_pylist() == [case.answer] * 2


def test_most_answers_are_the_references(record_property: Any) -> None:
    same = sum(change_answer(case) == case.answer for case in CASES)
    message = share("change data in JSON", same, len(CASES) - same)
    record_property("share", message)
    print(message)
    assert len(CASES) - same == sum(any(d.covers(case) for d in DIFFERENCES) for case in CASES)


def load_recorded_rows() -> dict[str, list[dict[str, Any]]]:
    """The recorded rows of each file of messages, by the name of the case."""
    results: dict[str, list[dict[str, Any]]] = {}
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        results.setdefault(record["case"], []).append(record)
    return results


@pytest.mark.parametrize("min_batch", [1, 1_000])
@pytest.mark.parametrize("records", load_recorded_rows().values(), ids=load_recorded_rows())
def test_files_of_messages_return_the_references_rows(records: list[dict[str, Any]], min_batch: int) -> None:
    path = MESSAGES / records[0]["data_file"]
    if not path.exists():
        pytest.skip(f"{path.name} is test data of Apache Flink, which is not part of this repository")
    lines = path.read_bytes().splitlines()
    one_by_one = [_line_case(record, lines[record["line"] - 1]) for record in records]
    first = one_by_one[0]
    result = first.table_format()
    assert isinstance(result, ChangeJson)
    decoder = ChangeDecoder(result.change_rules(first.row, first.use), min_batch=min_batch)
    decoded = decoder.decode(pa.array([case.input for case in one_by_one], pa.binary()))

    assert [b.index for b in decoded.bad] == [i for i, case in enumerate(one_by_one) if case.answer == ERROR]
    assert answer_of(first, decoded) == [row for case in one_by_one if case.answer != ERROR for row in case.answer]


def _line_case(record: dict[str, Any], message: bytes) -> Case:
    results = {**record, "id": f"{record['case']}-{record['line']}", "kind": "decode", "input": message.decode()}
    return read_case(results)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_options_are_those_of_the_reference(kind: type[ChangeJson]) -> None:
    settings = {
        "ignore-parse-errors": "true",
        "timestamp-format.standard": "ISO-8601",
        "map-null-key.mode": "drop",
        "map-null-key.literal": "none",
        "encode.decimal-as-plain-number": "true",
        "encode.ignore-null-fields": "true",
    }
    result = kind(
        ignore_parse_errors=True,
        timestamp_format="ISO-8601",
        map_null_key_mode="DROP",
        map_null_key_literal="none",
        decimal_as_plain_number=True,
        ignore_null_fields=True,
    )

    assert kind.from_strings(settings) == result
    assert format_class(kind.identifier) is kind
    assert not kind.insert_only
    assert list(result.check(t.row(a=t.Int()), "read")) == []


def test_the_options_of_single_formats() -> None:
    assert DebeziumJson.from_strings({"schema-include": "true"}) == DebeziumJson(schema_include=True)
    settings = {"database.include": "a.*", "table.include": "b"}
    assert CanalJson.from_strings(settings) == CanalJson(database_include="a.*", table_include="b")


@pytest.mark.parametrize(
    ("value", "direction", "codes"),
    [
        (DebeziumJson(schema_include=True), "read", []),
        (DebeziumJson(schema_include=True), "write", ["format-read-only"]),
        (CanalJson(database_include="["), "read", ["canal-json-include"]),
        (CanalJson(table_include="*a"), "read", ["canal-json-include"]),
        (CanalJson(table_include=r"[a-z&&[^b]]"), "read", ["canal-json-include"]),
        (CanalJson(table_include=r"\p{Lower}+"), "read", ["canal-json-include"]),
        (CanalJson(table_include=r"a&&b"), "read", []),
        (CanalJson(database_include="[", table_include="*a"), "write", []),
        (CanalJson(database_include="[", table_include="*a"), "read", ["canal-json-include"] * 2),
        (MaxwellJson(timestamp_format="sql"), "read", ["option-value"]),  # type: ignore[arg-type]
        (OggJson(map_null_key_mode="x"), "write", ["option-value"]),  # type: ignore[arg-type]
        (OggJson(map_null_key_mode="literal"), "write", []),  # type: ignore[arg-type]
    ],
)
def test_wrong_options_are_reported(value: ChangeJson, direction: Direction, codes: list[str]) -> None:
    results = [*value.problems(), *value.check(t.row(a=t.Int()), direction)]

    assert [p.code for p in results] == codes


@pytest.mark.parametrize("name", ["json", *(kind.identifier for kind in FORMATS)])
def test_a_wrong_mode_of_null_keys_is_an_error_only_when_writing(name: str) -> None:
    result = table(options={"format": name, f"{name}.map-null-key.mode": "x"}, without=("properties.group.id",))

    assert ("option-value" in codes(result, "read"), "option-value" in warnings(result, "read")) == (False, True)
    assert "option-value" in codes(result, "write")


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("direction", ["read", "write"])
def test_maps_need_strings_as_keys(kind: type[ChangeJson], direction: Direction) -> None:
    results = list(kind().check(t.row(wrong=t.Map(t.Int(), t.STRING)), direction))

    assert [(p.where.column, p.code) for p in results] == [("wrong", "json-map-key")]


def test_a_multi_row_update_of_canal_has_the_before_image_of_each_row() -> None:
    message = (
        b'{"data":[{"id":"1","a":"x2","b":"y"},{"id":"2","a":"p","b":"q2"}],'
        b'"old":[{"a":"x1"},{"b":"q1"}],"type":"UPDATE"}'
    )
    decoder = CanalJson().decoder(t.row(id=t.Int(), a=t.STRING, b=t.STRING))
    rows = decoder.decode(pa.array([message], pa.binary())).rows.to_pylist()

    assert [tuple(row.values()) for row in rows] == [(1, "x1", "y"), (1, "x2", "y"), (2, "p", "q1"), (2, "p", "q2")]


def test_the_schema_next_to_the_payload_is_metadata() -> None:
    message = b'{"payload":{"after":{"id":1},"op":"c","ts_ms":5},"schema":{ "type" : "struct", "n": 1.50 }}'
    actual = DebeziumJson(schema_include=True)
    for min_batch in (1, 100):
        use = Use(metadata=("schema", "ingestion-timestamp"))
        decoded = ChangeDecoder(actual.change_rules(t.row(id=t.Int()), use), min_batch=min_batch).decode(
            pa.array([message] * 3, pa.binary())
        )

        assert decoded.metadata["schema"].to_pylist() == ['{"type":"struct","n":1.5}'] * 3
        assert decoded.metadata["ingestion-timestamp"].cast(pa.int64()).to_pylist() == [5_000] * 3


@pytest.mark.parametrize(("kind", "rows"), [(DebeziumJson, 1), (OggJson, 1), (CanalJson, None), (MaxwellJson, None)])
def test_an_array_of_one_change_is_a_change_where_the_reference_has_it_so(
    kind: type[ChangeJson], rows: int | None
) -> None:
    there, _ = change_frames(kind.dialect, kind().writing_rules())
    change = (there.before + b'{"id":1}' + there.after).decode()
    decoder = kind().decoder(t.row(id=t.Int()))
    for text, expected in ((change, 1), (f"[{change}]", rows), (f"[{change},{change}]", None), ("[]", None)):
        for many in (1, 100):
            decoded = decoder.decode(pa.array([text.encode()] * many, pa.binary()))

            assert (len(decoded.rows), len(decoded.bad)) == ((0, many) if expected is None else (expected * many, 0))
