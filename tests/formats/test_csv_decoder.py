from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kdsl.formats import BadRecord
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats.csv import Csv
from kdsl_formats.csv.decoder import CsvDecoder
from kdsl_formats.csv.grammar import Dialect, decode_message, split_row
from tests.formats import csv_messages
from tests.formats.conformance import Case, answer, cases, python_rows
from tests.strategies import examples

THREE = t.row(a=t.STRING, b=t.Int(), c=t.STRING)


@pytest.mark.parametrize("case", [c for c in cases("csv") if c.kind == "decode"], ids=lambda c: c.id)
def test_a_message_means_what_it_means_to_the_reference(case: Case) -> None:
    assert answer(case) == case.answer


def read(csv: Csv, row: t.Row, *messages: bytes | None) -> tuple[list[tuple[object, ...]], list[BadRecord]]:
    decoded = csv.decoder(row).decode(pa.array(messages, pa.binary()))
    return [tuple(r.values()) for r in python_rows(decoded.rows)], list(decoded.bad)


@given(st.data())
@settings(
    deadline=None, max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_the_fast_decoder_equals_the_reference(data: st.DataObject) -> None:
    csv, row = data.draw(csv_messages.dialects()), data.draw(csv_messages.rows())
    messages = data.draw(st.lists(csv_messages.messages(row, csv), max_size=20))
    assert list(csv.problems()) == list(csv.check(row, "read")) == []
    decoder = csv.decoder(row)
    assert isinstance(decoder, CsvDecoder)
    decoded = decoder.decode(pa.array([b"before", *messages, b"behind"], pa.binary())[1:-1])
    rows, owners, bad = [], [], []
    for i, message in enumerate(messages):
        if message is None:
            continue
        try:
            values = decoder.reference.values(message)
        except ValueError as e:
            bad.append(BadRecord(i, str(e)))
            continue
        if values is not None:
            rows.append(dict(zip(row.names, values, strict=True)))
            owners.append(i)
    expected = pa.array(rows, arrow_type(row))
    decoded.rows.validate(full=True)

    assert [repr(r) for r in python_rows(decoded.rows)] == [repr(r) for r in python_rows(expected)]
    assert (list(range(len(messages))) if decoded.messages is None else decoded.messages.to_pylist()) == owners
    assert list(decoded.bad) == bad


@pytest.mark.parametrize("size", [1_000])
def test_plain_and_quoted_messages_do_not_need_the_reference(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    row = t.row(
        id=t.BigInt(), name=t.STRING, day=t.Date(), at=t.Timestamp(3), pay=t.Decimal(10, 2), tags=t.Array(t.Int())
    )
    lines = [
        f'{i},"name, ""{i}""",2024-03-01,"2024-03-01 10:11:12.{i % 10}",{i}.25,{i};2'.encode() for i in range(size)
    ]
    decoder = Csv().decoder(row)
    assert isinstance(decoder, CsvDecoder)
    monkeypatch.setattr(decoder, "reference", None)

    assert len(decoder.decode(pa.array(lines, pa.binary())).rows) == size


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "the message is empty"),
        (b"a", "the row has 1 value, but the table has 3 columns"),
        (b"a,1,b,c", "the row has more values than the table's 3 columns"),
        (b'"a,1,b', "a quoted value has no closing quote"),
        (b'"a"x,1,b', "'x' follows a closing quote at character 4; expected ',' or the end of the line"),
        (b"a,x,b", "field 'b': 'x' is not an INT (not an integer)"),
        (b"a,1,\xff", "byte 5 is not UTF-8 (invalid start byte)"),
    ],
)
def test_the_reason_of_a_bad_message_is_reported(message: bytes, reason: str) -> None:
    assert read(Csv(), THREE, message) == ([], [BadRecord(0, reason)])


def test_the_error_of_a_bad_element_names_its_location() -> None:
    row = t.row(a=t.Array(t.Int()), b=t.row(x=t.Int(), y=t.Int()))
    _, bad = read(Csv(), row, b"1;x,1;2", b"1,1", b"1,1;y")

    assert [record.reason for record in bad] == [
        "field 'a': 'x' is not an INT (not an integer)",
        "field 'b': '1' has 1 value, but the ROW has 2 members",
        "field 'b': member 'y': 'y' is not an INT (not an integer)",
    ]


def test_a_long_bad_value_is_cut_in_the_message() -> None:
    _, bad = read(Csv(), THREE, b"a," + b"9" * 1000 + b",b")

    assert bad[0].reason == f"field 'b': '{'9' * 59}… is not an INT (out of range)"


def test_a_message_in_utf16_or_utf32_is_known_by_its_mark() -> None:
    text = "\ufeffé,1,b"
    encodings = ("utf-8", "utf-16-be", "utf-16-le", "utf-32-be", "utf-32-le")

    assert read(Csv(), THREE, *(text.encode(e) for e in encodings)) == ([("é", 1, "b")] * 5, [])


def test_a_zero_byte_does_not_make_a_message_utf16() -> None:
    assert read(Csv(), THREE, b"a\0,1,b", b"\0a,1,b", b'"\0a",1,b') == (
        [("a\0", 1, "b"), ("\0a", 1, "b"), ("\0a", 1, "b")],
        [],
    )


def test_javas_own_utf8_is_read_and_half_a_character_is_not() -> None:
    assert decode_message(b"a\xc0\x80\xed\xa0\xbd\xed\xb8\x80") == "a\0😀"
    with pytest.raises(ValueError, match="byte 2 is not UTF-8"):
        decode_message(b"a\xed\xa0\xbd")


def test_what_follows_the_first_line_is_not_read() -> None:
    assert split_row('a,1,"b\nc"\n"never closed', Dialect(), 3) == ["a", "1", "b\nc"]


def test_a_null_literal_distinguishes_null_from_the_empty_string() -> None:
    assert read(Csv(null_literal="NULL"), THREE, b"NULL,NULL,") == ([(None, None, "")], [])
    assert read(Csv(ignore_parse_errors=True), THREE, b",,") == ([("", None, "")], [])


def test_a_delimiter_of_two_bytes_is_read() -> None:
    assert read(Csv(field_delimiter="€"), THREE, 'a€1€"b€c"'.encode()) == ([("a", 1, "b€c")], [])


def test_wide_delimiters_and_quotes_do_not_need_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Csv(field_delimiter="\xfe", quote_character="\u20ac", escape_character="\u20ac").decoder(THREE)
    quoted = Csv(field_delimiter="\xfe", quote_character="\u20ac").decoder(THREE)
    for own in (decoder, quoted):
        monkeypatch.setattr(own, "reference", None)

    plain = decoder.decode(pa.array(["a\xfe1\xfeb".encode()] * 3, pa.binary()))
    inside = quoted.decode(pa.array(["\u20aca\xfe\u20ac\u20ac\u20ac\xfe1\xfeb".encode()] * 3, pa.binary()))

    assert list(python_rows(plain.rows)) == [{"a": "a", "b": 1, "c": "b"}] * 3
    assert list(python_rows(inside.rows)) == [{"a": "a\xfe\u20ac", "b": 1, "c": "b"}] * 3


def test_messages_that_use_every_control_character_are_still_read() -> None:
    text = "".join(map(chr, range(1, 32))).replace("\r", "").replace("\n", "")

    assert read(Csv(field_delimiter="\xfe"), THREE, f"{text}\xfe1\xfeb".encode()) == ([(text, 1, "b")], [])
