from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.formats import BadRecord, Direction
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl.types.parse import parse_type
from kdsl_formats._text.charsets import charset
from kdsl_formats.raw import Raw
from tests.formats.conformance import Case, answer, cases
from tests.problem_texts import without_code

TEXT = t.row(v=t.STRING)


@pytest.mark.parametrize("case", cases("raw"), ids=lambda c: c.id)
def test_raw_answers_as_the_reference_does(case: Case) -> None:
    assert answer(case) == case.answer


def read(raw: Raw, row: t.Row, *messages: bytes | None) -> list[Any]:
    decoded = raw.decoder(row).decode(pa.array(messages, pa.binary()))
    assert decoded.bad == ()
    return [r["v"] for r in decoded.rows.to_pylist()]


def write(raw: Raw, row: t.Row, *values: Any) -> list[Any]:
    encoded = raw.encoder(row).encode(pa.array([{"v": v} for v in values], arrow_type(row)))
    assert encoded.bad == ()
    return list(encoded.messages.to_pylist())


def problems_of(raw: Raw, row: t.Row = TEXT) -> list[str]:
    return [without_code(p) for p in (*raw.problems(), *raw.check(row, "read"))]


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("BOOLEAN", True, b"\1"),
        ("TINYINT", -2, b"\xfe"),
        ("SMALLINT", -2, b"\xff\xfe"),
        ("INT", 0x01020304, b"\1\2\3\4"),
        ("BIGINT", 0x0102030405060708, b"\1\2\3\4\5\6\7\10"),
        ("FLOAT", 1.5, b"\x3f\xc0\0\0"),
        ("DOUBLE", -2.0, b"\xc0\0\0\0\0\0\0\0"),
        ("STRING", "é", b"\xc3\xa9"),
        ("BYTES", b"\xff\0", b"\xff\0"),
    ],
)
def test_each_type_has_its_bytes(kind: str, value: Any, message: bytes) -> None:
    row = t.row(v=parse_type(kind))
    little = Raw(endianness="little-endian")
    turned = message[::-1] if kind not in ("STRING", "BYTES") else message

    assert (write(Raw(), row, value, None), read(Raw(), row, message, None)) == ([message, None], [value, None])
    assert (write(little, row, value), read(little, row, turned)) == ([turned], [value])


def test_any_byte_but_zero_is_true() -> None:
    assert read(Raw(), t.row(v=t.Boolean()), b"\0", b"\1", b"\xff") == [False, True, True]


def test_invalid_utf8_becomes_replacement_characters() -> None:
    assert read(Raw(), TEXT, b"a\xff", b"ok", b"\xed\xa0", b"\xed\xa0\x80", b"\xe2\x82") == [
        "a\ufffd",
        "ok",
        "\ufffd",
        "\ufffd" * 3,
        "\ufffd",
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("utf8", "é", b"\xc3\xa9"),
        ("ISO-8859-1", "é", b"\xe9"),
        ("latin1", "é", b"\xe9"),
        ("windows-1252", "€", b"\x80"),
        ("GBK", "你好", b"\xc4\xe3\xba\xc3"),
        ("MS932", "あ", b"\x82\xa0"),
        ("windows-31j", "あ", b"\x82\xa0"),
        ("x-windows-949", "가", b"\xb0\xa1"),
        ("EUC-KR", "가", b"\xb0\xa1"),
        ("Big5", "一", b"\xa4\x40"),
        ("GB18030", "你", b"\xc4\xe3"),
        ("Shift_JIS", "あ", b"\x82\xa0"),
        ("IBM00858", "€", b"\xd5"),
        ("UTF-16", "é", b"\xfe\xff\0\xe9"),
        ("UTF-16LE", "é", b"\xe9\0"),
        ("UTF-32", "é", b"\0\0\0\xe9"),
        ("Cp037", "a\n", b"\x81\x15"),
        ("UTF-16", "", b""),
    ],
)
def test_a_charset_of_java_reads_and_writes(name: str, text: str, message: bytes) -> None:
    raw = Raw(charset=name)

    assert problems_of(raw) == []
    assert (write(raw, TEXT, text, None), read(raw, TEXT, message, None)) == ([message, None], [text, None])


def test_utf16_and_utf32_take_the_order_of_bytes_from_the_mark() -> None:
    assert read(Raw(charset="UTF-16"), TEXT, b"\xff\xfea\0", b"\xfe\xff\0a", b"\0a") == ["a", "a", "a"]
    assert read(Raw(charset="UTF-32"), TEXT, b"\xff\xfe\0\0a\0\0\0", b"\0\0\0a") == ["a", "a"]


@given(st.text(st.characters(codec="gb18030")))
@settings(deadline=None)
def test_a_string_survives_a_charset_that_has_its_characters(text: str) -> None:
    result = charset("gb18030")

    assert result is not None
    assert result.decode(result.encode(text)) == text


def test_a_character_that_the_charset_lacks_is_an_error_of_its_row() -> None:
    encoded = (
        Raw(charset="ISO-8859-1")
        .encoder(TEXT)
        .encode(pa.array([{"v": "é"}, {"v": "a€"}, {"v": None}], arrow_type(TEXT)))
    )

    assert encoded.bad == (BadRecord(1, "the charset ISO-8859-1 has no '€'"),)
    assert encoded.messages.to_pylist() == [b"\xe9", None, None]


def test_an_unknown_charset_is_reported_with_a_suggestion() -> None:
    assert problems_of(Raw(charset="ISO-8859-99")) == [
        "charset= has the value 'ISO-8859-99'; "
        "write the name of a charset as Java spells it, such as UTF-8, ISO-8859-1 or GBK (did you mean 'ISO-8859-9'?)"
    ]


@pytest.mark.parametrize(
    "name", ["Cp949", "IBM950", "949", "x-MacGreek", "idna", "hex", "utf-7", "raw_unicode_escape", "\0"]
)
def test_what_is_another_charset_in_java_or_not_a_charset_is_unknown(name: str) -> None:
    assert charset(name) is None


def test_ascii_is_found_in_bytes_below_128_only_where_they_are_ascii() -> None:
    results = {name: charset(name) for name in ("ISO-8859-1", "GBK", "UTF-16", "ISO-2022-JP", "IBM037", "IBM864")}

    assert [name for name, result in results.items() if result and result.keeps_ascii] == ["ISO-8859-1", "GBK"]


def test_lines_of_a_message_are_rows_of_it() -> None:
    decoded = (
        Raw(line_delimiter="\n").decoder(TEXT).decode(pa.array([b"a\n\nb\n\n", None, b"", b"\n", b"c"], pa.binary()))
    )

    assert [r["v"] for r in decoded.rows.to_pylist()] == ["a", "", "b", "", "", "c"]
    assert decoded.messages is not None
    assert decoded.messages.to_pylist() == [0, 0, 0, 0, 3, 4]


def test_lines_in_a_wide_charset_are_split_as_text() -> None:
    raw = Raw(charset="UTF-16BE", line_delimiter="\n")

    assert read(raw, TEXT, "ਊa\nĊ".encode("utf-16-be")) == ["ਊa", "Ċ"]
    assert write(raw, TEXT, "a") == ["a\n".encode("utf-16-be")]


def test_a_line_of_the_wrong_size_fails_its_message() -> None:
    row = t.row(v=t.SmallInt())
    decoded = Raw(line_delimiter=",").decoder(row).decode(pa.array([b"\0\1,\0\2", b"\0\1,x", b"\0\3"], pa.binary()))

    assert [r["v"] for r in decoded.rows.to_pylist()] == [1, 2, 3]
    assert decoded.bad == (
        BadRecord(1, "a part between line delimiters has 1 byte, but the type SMALLINT takes 2 bytes"),
    )


def test_the_delimiter_is_used_unchanged() -> None:
    assert read(Raw(line_delimiter="\\n"), TEXT, b"a\nb\\nc") == ["a\nb", "c"]
    assert problems_of(Raw(line_delimiter="")) == [
        "line_delimiter= has the value ''; write at least one character, or leave the option out"
    ]


@pytest.mark.parametrize("kind", ["STRING", "INT"])
@pytest.mark.parametrize("direction", ["read", "write"])
def test_a_delimiter_that_the_charset_lacks_is_reported(kind: str, direction: Direction) -> None:
    row = t.row(v=parse_type(kind))
    wrong = Raw(charset="US-ASCII", line_delimiter="→")

    assert [(p.code, without_code(p)) for p in wrong.check(row, direction)] == [
        (
            "raw-delimiter",
            "the format 'raw' has the line delimiter '→', but the charset US-ASCII has no '→'; choose another line "
            "delimiter, or a charset that has its characters",
        )
    ]
    assert list(Raw(charset="UTF-16", line_delimiter="→").check(row, direction)) == []
    assert list(Raw(charset="unknown", line_delimiter="→").check(row, direction)) == []


def test_a_message_of_the_wrong_size_is_reported() -> None:
    decoded = Raw().decoder(t.row(v=t.Int())).decode(pa.array([b"abc"], pa.binary()))

    assert decoded.bad == (BadRecord(0, "the message has 3 bytes, but the type INT takes 4 bytes"),)


def test_the_order_of_bytes_is_named_in_any_letter_case() -> None:
    assert Raw.from_strings({"endianness": "Little-Endian"}) == Raw(endianness="little-endian")
    assert write(Raw(endianness="LITTLE-ENDIAN"), t.row(v=t.SmallInt()), 1) == [b"\1\0"]  # type: ignore[arg-type]


def test_the_order_of_bytes_is_one_of_two() -> None:
    assert problems_of(Raw(endianness="BIG_ENDIAN")) == [  # type: ignore[arg-type]
        "endianness= has the value 'BIG_ENDIAN' (did you mean 'big-endian'?); set endianness= to 'big-endian' or "
        "'little-endian'"
    ]


@pytest.mark.parametrize("kind", ["DECIMAL(5, 2)", "TIMESTAMP(3)", "DATE", "TIME", "ARRAY<INT>", "ROW<a INT>"])
def test_a_type_without_a_form_is_refused(kind: str) -> None:
    assert [(p.code, p.where.column) for p in Raw().check(t.row(v=parse_type(kind)), "write")] == [("raw-type", "v")]


@pytest.mark.parametrize("row", [t.row(), t.row(a=t.STRING, b=t.STRING)])
def test_a_table_has_one_column(row: t.Row) -> None:
    assert [p.code for p in Raw().check(row, "read")] == ["raw-one-column"]
