"""No value of a record appears in the reason of its letter: by property, for the decoders of all formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

from kdsl import Avro, CanalJson, Csv, DebeziumJson, Json, MaxwellJson, OggJson
from kdsl.formats import Format
from kdsl.plan.model import MetadataColumn
from kdsl.run.dead_letters.reasons import write_reason
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.rejections import Rejection
from kdsl.shown_values import HIDDEN, hide_values, quote_path, quote_value, reveal_values, show_value
from kdsl.types import model as t
from tests.registry.front import Front
from tests.run.dead_letters.poison import POISON, SECRET, answer_schemas
from tests.run.dead_letters.test_rejections import Letters, plan_of, raw
from tests.strategies import examples

WORD = "QXZJKVWQ"
"""A part of all drawn values, of letters that stand in this order in no message of kdsl."""
TEXTS = st.builds("{}{}{}".format, st.text(max_size=80), st.just(WORD), st.text(max_size=80))
NUMBERS = st.integers(10**9, 10**40) | st.integers(-(10**40), -(10**9))
UNHURRIED = settings(max_examples=examples(20), deadline=None)

COLUMNS: Mapping[str, t.DataType] = {
    "id": t.BigInt(),
    "tiny": t.TinyInt(),
    "flag": t.Boolean(),
    "day": t.Date(),
    "at": t.Time(3),
    "local": t.Timestamp(3),
    "instant": t.TimestampLtz(3),
    "price": t.Decimal(10, 2),
    "weight": t.Double(),
    "data": t.BYTES,
    "numbers": t.Array(t.Int()),
    "counts": t.Map(t.STRING.as_nullable(False), t.Int()),
    "inside": t.row(a=t.Int(), b=t.Array(t.row(c=t.Date()))),
}
ROW = t.Row(tuple(t.Field(name, kind) for name, kind in COLUMNS.items()), nullable=False)
AVRO_ROW = t.Row(
    tuple(t.Field(name, kind.as_nullable(False)) for name, kind in COLUMNS.items() if name != "instant"), nullable=False
)
ENVELOPES: Mapping[str, tuple[Format, Callable[[Any], Any]]] = {
    "json": (Json(), lambda row: row),
    "json, streaming": (Json(json_parser=True), lambda row: row),
    "json, inferred": (Json(inferred_columns=True), lambda row: row),
    "debezium-json": (DebeziumJson(), lambda row: {"before": None, "after": row, "op": "c"}),
    "debezium-json, op": (DebeziumJson(), lambda row: {"before": None, "after": {}, "op": first_value(row)}),
    "canal-json": (CanalJson(), lambda row: {"data": [row], "type": "INSERT"}),
    "canal-json, type": (CanalJson(), lambda row: {"data": [{}], "type": first_value(row)}),
    "maxwell-json": (MaxwellJson(), lambda row: {"data": row, "type": "insert"}),
    "ogg-json": (OggJson(), lambda row: {"after": row, "op_type": "I"}),
    "avro, as json": (Avro(encoding="json"), lambda row: row),
}


def first_value(row: Any) -> Any:
    return next(iter(row.values())) if isinstance(row, dict) and row else row


def reasons_of(chosen: Format, row: t.Row, message: bytes, **changes: Any) -> list[str]:
    """The reasons of the letters of a message."""
    plan = attrs.evolve(plan_of(chosen, row=row, changelog=not chosen.insert_only), **changes)
    return decode_one(RecordDecoder(plan), message)


def decode_one(decoder: RecordDecoder, message: bytes) -> list[str]:
    """The reasons of the letters of a message that a decoder decodes."""
    decoder._errors.dead_letters = letters = Letters()
    decoder.decode(raw([message]))
    return [write_reason(one) for one in letters.rejections]


@cache
def create_decoder(name: str, registry: str) -> RecordDecoder:
    """The decoder of a poison's table; the compiler of .proto files is too slow to run for every message."""
    poison = POISON[name]
    chosen = poison.format_with(registry)
    return RecordDecoder(plan_of(chosen, row=poison.row, changelog=not chosen.insert_only))


def windows(text: str, size: int = 4) -> Iterator[str]:
    return (text[i : i + size] for i in range(len(text) - size + 1))


def places(value: Any) -> st.SearchStrategy[Any]:
    """A row that has a value somewhere: as a value, an element, a key, a name, or as the whole row."""
    text = value if isinstance(value, str) else str(value)
    shapes = [value, [value], [1, value], {text: value}, {"a": value}, {"a": 1, "b": [{"c": value}]}, {text: 1}]
    rows = [{name: shape} for name in COLUMNS for shape in shapes]
    return st.sampled_from([*rows, value, [value], {text: value}, {"id": 1, text: {text: value}}])


@pytest.mark.parametrize("name", ENVELOPES)
@UNHURRIED
@given(TEXTS | NUMBERS, st.booleans(), st.data())
@example("'" * 61 + WORD, False, None).via("a value that is cut before its closing quote")
@example('token "x" ' + WORD + ' "y" ' + "z" * 60, True, None).via("a value with both quotes")
def test_no_value_of_a_document_appears_in_the_reason(name: str, value: Any, ascii_only: bool, data: Any) -> None:
    chosen, wrap = ENVELOPES[name]
    row = {"id": value} if data is None else data.draw(places(value))
    message = json.dumps(wrap(row), ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")

    for reason in reasons_of(chosen, AVRO_ROW if isinstance(chosen, Avro) else ROW, message):
        assert not [w for w in windows(WORD) if w in reason], reason
        if isinstance(value, int):
            assert not [w for w in windows(str(abs(value)), 6) if w in reason], reason


@UNHURRIED
@given(TEXTS, st.sampled_from([name for name, kind in COLUMNS.items() if not isinstance(kind, t.Map)]), st.booleans())
def test_no_value_of_a_line_appears_in_the_reason(value: str, column: str, quoted: bool) -> None:
    text = '"' + value.replace('"', '""') + '"' if quoted else value
    row = t.Row((t.Field(column, COLUMNS[column]),), nullable=False)
    if isinstance(COLUMNS[column], t.Row):
        row = t.Row((t.Field(column, t.row(a=t.Int(), b=t.Date())),), nullable=False)

    for reason in reasons_of(Csv(), row, text.encode("utf-8", "surrogatepass")):
        assert not [w for w in windows(WORD) if w in reason], reason


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with Front(answer_schemas) as front:
        yield front.url


@pytest.mark.parametrize("name", POISON)
@settings(max_examples=examples(8), deadline=None)
@given(st.text("QXZJKVW", min_size=11, max_size=11), st.binary(max_size=8))
def test_no_value_of_any_format_appears_in_the_reason(name: str, registry: str, value: str, after: bytes) -> None:
    decoder = create_decoder(name, registry)

    for message in POISON[name].messages.values():
        if len(message) < 1000:
            other = message.replace(SECRET.encode(), value.encode()) + after
            for reason in decode_one(decoder, other):
                assert not [w for w in windows(value) if w in reason], reason


def test_metadata_that_does_not_fit_is_hidden() -> None:
    shown = MetadataColumn("small", "offset", t.TinyInt())
    decoder, letters = RecordDecoder(plan_of(Json(), metadata=(shown,))), Letters()
    decoder._errors.dead_letters = letters

    decoder.decode(raw([b'{"id":1,"day":"2024-01-01","name":"a"}'], first=4711))

    (rejection,) = letters.rejections
    assert write_reason(rejection) == "column 'small': … does not fit TINYINT, whose values are -128 to 127"
    assert "4711" in rejection.reason


@UNHURRIED
@given(TEXTS)
@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (Json(infer_fixed_types="a DATE"), lambda value: {"a": value}),
        (Json(infer_fixed_types="a DATE"), lambda value: {"a": [value], value: 1, "": value}),
        (Json(infer_flatten=True), lambda value: {value: {"b": 1}, f"{value}.b": 2}),
        (Json(table_id_fields="t"), lambda value: [{"t": value}, {"t": value + "x"}]),
        (CanalJson(), lambda value: {"data": [{}], "type": value, "pkNames": [value]}),
        (CanalJson(), lambda value: {"data": [{"a": 1}], "type": "INSERT", "pkNames": [value]}),
        (CanalJson(), lambda value: {"data": [{value: 1}], "type": "INSERT", "mysqlType": {value: value}}),
    ],
)
def test_no_value_of_a_record_whose_columns_are_inferred_appears_in_the_reason(
    chosen: Format, message: Callable[[str], Any], value: str
) -> None:
    observer = chosen.observer(max_columns=1)
    assert observer is not None
    data = json.dumps(message(value)).encode()

    for bad in observer.observe(pa.array([data, data], pa.binary()), {}).bad:
        reason = write_reason(Rejection(bad.index, bad.marked_reason))
        assert not [w for w in windows(WORD) if w in reason], reason


@UNHURRIED
@given(st.lists(st.text() | st.text("\ufde0\ufde1'\"\\…", max_size=90)), st.text("ab '\"\\\n\u0085é"))
def test_marks_come_off_with_or_without_the_values(values: list[str], between: str) -> None:
    message = between.join(["", *map(quote_value, values), ""])
    cut = [repr(v).replace("\ufde0", "�").replace("\ufde1", "�") for v in values]
    cut = [v if len(v) <= 60 else v[:60] + "…" for v in cut]

    assert reveal_values(message) == between.join(["", *cut, ""])
    assert hide_values(message) == between.join(["", *[HIDDEN] * len(values), ""])


@UNHURRIED
@given(st.text(), st.text())
def test_a_path_is_quoted_as_python_quotes_it(before: str, key: str) -> None:
    path = f"{before}[{show_value(key)}]"

    assert hide_values(quote_path(before)) == repr(before) or "\ufde0" in before or "\ufde1" in before
    assert hide_values(quote_path(f"tags[{show_value(key)}].day")) == "'tags[…].day'" or "'" in key
    assert hide_values(quote_path(path)).endswith(("[…]'", '[…]"'))
