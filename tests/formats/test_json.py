"""The format ``json``: the reference's recorded answers, its options, and its plan-time rules."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from kdsl.errors import Problem
from kdsl.formats import Direction, format_class
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats.json import Json
from kdsl_formats.json.decoder import JsonDecoder
from kdsl_formats.json.encoder import JsonEncoder
from kdsl_formats.json.errors import FieldError
from kdsl_formats.json.reference_encoder import ReferenceEncoder
from tests.formats.conformance import (
    ERROR,
    Case,
    answer,
    arrow_value,
    cases,
    differences,
    from_arrow,
    has_null_key,
    python_rows,
    share,
)
from tests.problem_texts import without_code

CASES = cases("json")
DIFFERENCES = differences("json")
HOLDABLE = [c for c in CASES if c.kind == "encode" and c.answer != ERROR and not has_null_key(c.values, c.row)]


def json_answer(case: Case) -> Any:
    """What kdsl answers; a map with a NULL key, which no array holds, is given to the reference encoder itself."""
    if case.kind == "decode" or not has_null_key(case.values, case.row):
        return answer(case)
    result = Json.from_strings(case.options)
    if problems(result, case.row, "write"):
        return ERROR
    try:
        row = dict(zip(case.row.names, map(as_python, case.values), strict=True))
        return ReferenceEncoder(case.row, result.writing_rules()).message(row)
    except FieldError:
        return ERROR


def as_python(value: Any) -> Any:
    """A recorded map as the encoder takes it: pairs, with None for the key ``null``."""
    if not isinstance(value, dict):
        return value
    return [(None if k == "null" else k, as_python(v)) for k, v in value.items()]


def problems(value: Json, row: t.Row, direction: Direction) -> list[Problem]:
    return [*value.problems(), *value.check(row, direction)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_answer_is_the_references_or_differs_on_purpose(case: Case) -> None:
    meant = [d.reason for d in DIFFERENCES if d.covers(case)]
    if meant:
        assert json_answer(case) != case.answer, f"no longer differs: {meant}"
    else:
        assert json_answer(case) == case.answer


@pytest.mark.parametrize("case", [c for c in CASES if c.kind == "decode"], ids=lambda case: case.id)
def test_reading_by_columns_returns_the_same_result(case: Case) -> None:
    result = Json.from_strings(case.options)
    expected = answer(case)
    if problems(result, case.row, "read"):
        assert expected == ERROR
        return
    decoded = JsonDecoder(case.row, result.reading_rules(), min_batch=1).decode(pa.array([case.input] * 3, pa.binary()))
    if expected == ERROR:
        assert [b.index for b in decoded.bad] == [0, 1, 2]
    else:
        assert [from_arrow(v, case.row) for v in python_rows(decoded.rows)] == expected * 3


@pytest.mark.parametrize("case", HOLDABLE, ids=lambda case: case.id)
def test_writing_by_columns_returns_the_same_result(case: Case) -> None:
    rows = pa.array([arrow_value(case.values, case.row)] * 2, arrow_type(case.row))
    encoder = JsonEncoder(case.row, Json.from_strings(case.options).writing_rules(), min_batch=0)
    assert encoder.encode(rows).messages.to_pylist() == [case.answer] * 2


def test_most_answers_are_the_references(record_property: Any) -> None:
    same = sum(json_answer(case) == case.answer for case in CASES)
    message = share("json", same, len(CASES) - same)
    record_property("share", message)
    print(message)
    assert len(CASES) - same == sum(any(d.covers(case) for d in DIFFERENCES) for case in CASES)


def test_the_options_are_those_of_the_reference() -> None:
    settings = {
        "fail-on-missing-field": "true",
        "ignore-parse-errors": "true",
        "timestamp-format.standard": "ISO-8601",
        "map-null-key.mode": "drop",
        "map-null-key.literal": "none",
        "encode.decimal-as-plain-number": "true",
        "encode.ignore-null-fields": "true",
        "decode.json-parser.enabled": "false",
    }
    json = Json(
        fail_on_missing_field=True,
        ignore_parse_errors=True,
        timestamp_format="ISO-8601",
        map_null_key_mode="DROP",
        map_null_key_literal="none",
        decimal_as_plain_number=True,
        ignore_null_fields=True,
        json_parser=False,
    )
    assert Json.from_strings(settings) == json
    assert Json.from_strings(json.to_strings()) == json
    assert pickle.loads(pickle.dumps(json)) == json
    assert format_class("json") is Json


@pytest.mark.parametrize(
    ("options", "direction", "codes"),
    [
        ({}, "read", []),
        ({"fail_on_missing_field": True, "ignore_parse_errors": True}, "read", ["json-missing-and-ignore"]),
        ({"fail_on_missing_field": True, "ignore_parse_errors": True}, "write", []),
        ({"timestamp_format": "sql"}, "read", ["option-value"]),
        ({"timestamp_format": "sql"}, "write", ["option-value"]),
        ({"map_null_key_mode": "x"}, "write", ["option-value"]),
        ({"map_null_key_mode": "literal"}, "write", []),
    ],
)
def test_wrong_options_are_reported(options: dict[str, Any], direction: Direction, codes: list[str]) -> None:
    assert [p.code for p in problems(Json(**options), t.row(a=t.Int()), direction)] == codes


@pytest.mark.parametrize("direction", ["read", "write"])
def test_maps_need_strings_as_keys(direction: Direction) -> None:
    row = t.row(
        fine=t.Map(t.Char(3), t.Multiset(t.STRING)),
        wrong=t.Map(t.Int(), t.STRING),
        inside=t.Array(t.row(m=t.Map(t.STRING, t.Multiset(t.Date())))),
    )
    actual = problems(Json(), row, direction)
    assert [(p.where.column, p.code) for p in actual] == [("wrong", "json-map-key"), ("inside", "json-map-key")]
    assert without_code(actual[0]) == (
        "wrong: the type MAP<INT, STRING> is not supported by JSON, where the keys of an object are strings; "
        "use MAP<STRING, STRING>, or ARRAY<ROW<`key` INT, `value` STRING>>"
    )
    assert actual[1].message.startswith(
        "the type MULTISET<DATE> inside ARRAY<ROW<`m` MAP<STRING, MULTISET<DATE>>>> is not supported by JSON"
    )
    assert actual[1].fix == "use MULTISET<STRING>, or ARRAY<DATE>"
