"""Format options that an error suggests: they read the whole batch, and what they read is plausible."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl import CanalJson, Csv, DebeziumJson, Json, MaxwellJson, OggJson
from kdsl.errors import RecordError
from kdsl.formats import ALONE, Format
from kdsl.run.records.alternatives import MAX_BYTES, find_alternative
from kdsl.run.records.decode import RecordDecoder
from kdsl.types import model as t
from tests.run.dead_letters.test_rejections import plan_of, raw
from tests.strategies import examples

PRICE = t.row(id=t.BigInt(), price=t.Decimal(10, 2))
AT = t.row(id=t.BigInt(), at=t.Timestamp(3))


def document(value: Any) -> bytes:
    return json.dumps(value).encode()


def with_schema(payload: Any) -> bytes:
    return document({"schema": {"type": "struct", "fields": [], "optional": True}, "payload": payload})


def suggest(chosen: Format, row: t.Row, *messages: bytes) -> Format | None:
    """The alternative for the first message that cannot be read."""
    array = pa.array(messages, pa.binary())
    bad = chosen.decoder(row).decode(array).bad
    return find_alternative(chosen, row, ALONE, array, bad[0].index)


@pytest.mark.parametrize("word", ["none", "null", "free", "test", "TODO", "None", "n/a", "unknown!", "12,5", ""])
@pytest.mark.parametrize(
    ("chosen", "wrap"),
    [
        (Json(), lambda row: row),
        (DebeziumJson(), lambda row: {"before": None, "after": row, "op": "c"}),
        (CanalJson(), lambda row: {"data": [row], "type": "INSERT"}),
        (MaxwellJson(), lambda row: {"data": row, "type": "insert"}),
        (OggJson(), lambda row: {"after": row, "op_type": "I"}),
    ],
)
def test_words_are_not_decimals_in_base64(chosen: Format, wrap: Any, word: str) -> None:
    assert suggest(chosen, PRICE, document(wrap({"id": 2, "price": word}))) is None


def test_strings_among_numbers_are_not_decimals_in_base64() -> None:
    assert suggest(Json(), PRICE, document({"id": 1, "price": 9.5}), document({"id": 2, "price": "AegB"})) is None


def test_decimals_in_base64_are_found() -> None:
    alternative = suggest(Json(), PRICE, document({"id": 1, "price": "AegB"}), document({"id": 2, "price": "SHQ="}))

    assert alternative == Json(decimal_handling_mode="precise")


def test_options_with_which_all_columns_are_null_are_not_found() -> None:
    row = t.row(id=t.Int(), n=t.Int())

    assert suggest(Json(schema_include=True), row, with_schema({"id": 2, "n": "xyz"})) is None
    assert suggest(Json(), t.row(id=t.Int()), document({"id": "x", "payload": {}})) is None
    assert suggest(Json(), t.row(id=t.Int()), document({"id": "x", "payload": {"id": None}})) is None
    assert suggest(DebeziumJson(schema_include=True), t.row(id=t.Int()), with_schema(
        {"before": None, "after": {"id": "abc"}, "op": "c"})) is None  # fmt: skip


def test_options_that_change_what_is_read_already_are_not_found() -> None:
    good, bad = with_schema({"id": 1, "payload": "a"}), with_schema({"id": "x", "payload": "b"})

    assert suggest(Json(schema_include=True), t.row(id=t.Int(), payload=t.STRING), good, bad) is None
    assert suggest(Csv(field_delimiter=";"), t.row(a=t.STRING, b=t.Int()), b"a,b;2", b"1,2") is None


def test_of_two_forms_of_time_in_one_batch_none_is_found() -> None:
    sql, iso = document({"at": "2024-05-01 12:30:00"}), document({"at": "2024-05-01T12:30:00"})

    assert suggest(Json(), AT, sql, iso) is None
    assert suggest(Json(), AT, iso, document({"at": None}), iso) == Json(timestamp_format="ISO-8601")


def test_numbers_of_another_unit_are_not_times() -> None:
    def change(number: int) -> bytes:
        return document({"before": None, "after": {"id": 1, "at": number}, "op": "c"})

    millis = DebeziumJson(decimal_handling_mode="precise", time_precision_mode="adaptive")

    assert suggest(DebeziumJson(), AT, change(1_714_566_600_000)) == millis
    assert suggest(DebeziumJson(), AT, change(1_714_566_600)) is None, "seconds, which would be of January 1970"
    assert suggest(DebeziumJson(), AT, change(1_714_566_600_000_000)) is None, "the year 56302"


def test_a_broken_message_in_the_batch_hides_no_suggestion() -> None:
    iso = document({"at": "2024-05-01T12:30:00"})

    assert suggest(Json(), AT, iso, b"{oops", iso) == Json(timestamp_format="ISO-8601")


def test_of_a_large_batch_the_first_messages_and_the_bad_one_are_tried() -> None:
    good = [document({"id": i, "note": "x" * 1000}) for i in range(200)]

    assert sum(map(len, good)) > MAX_BYTES
    assert suggest(Json(), AT, *good, document({"at": "2024-05-01T12:30:00"})) == Json(timestamp_format="ISO-8601")


OPTIONS = st.sampled_from(
    [Json(), Json(timestamp_format="ISO-8601"), Json(schema_include=True), Csv(), Csv(field_delimiter=";")]
)
VALUES = st.sampled_from(
    ["none", "AegB", "2024-05-01 10:00:00", "2024-05-01T10:00:00", "", "x", "NULL", "5"]
) | st.integers(-9, 10**18)
ROWS = st.fixed_dictionaries({}, optional={"id": VALUES, "price": VALUES, "at": VALUES, "payload": VALUES})
MESSAGES = st.one_of(
    ROWS.map(document), ROWS.map(with_schema), st.lists(VALUES, max_size=4).flatmap(
        lambda row: st.sampled_from(",;|").map(lambda mark: mark.join(map(str, row)).encode())
    )
)  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(OPTIONS, st.lists(MESSAGES, min_size=1, max_size=8))
def test_what_is_suggested_reads_the_record_and_keeps_the_rows_of_the_others(
    chosen: Any, messages: list[bytes]
) -> None:
    """The suggestion is applied as the error spells it in Python."""
    row = t.Row((t.Field("id", t.BigInt()), t.Field("price", t.Decimal(10, 2)), t.Field("at", t.Timestamp(3))))
    error = None
    try:
        RecordDecoder(plan_of(chosen, row=row)).decode(raw(messages))
    except RecordError as e:
        error = e
    if error is None:
        return
    written, offset = re.match(r"write (\w+)\((.*)\) to read it, in SQL", error.fix), error.offset
    if written is None:
        return
    call = ast.parse(f"f({written[2]})", mode="eval").body
    assert isinstance(call, ast.Call)
    changes = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}
    other = attrs.evolve(chosen, **changes)

    def rows_of(one: Format, message: bytes) -> Any:
        try:
            return RecordDecoder(plan_of(one, row=row)).decode(raw([message])).to_pylist()
        except RecordError:
            return None

    assert offset is not None
    assert any(value is not None for one in rows_of(other, messages[offset]) for value in one.values())
    for message in messages:
        before = rows_of(chosen, message)
        assert before is None or before == rows_of(other, message)
