"""Messages that are large, broken, deep or strange: an answer for each of them, and none that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._connect.values import InfiniteCounter
from kdsl_formats.json import Json
from kdsl_formats.json.decoder import JsonDecoder
from kdsl_formats.json.reference_decoder import ReadingRules, ReferenceDecoder

ROW = t.row(id=t.BigInt(), name=t.STRING, amount=t.Decimal(10, 2), at=t.Timestamp(3))
GOOD = b'{"id":7,"name":"x","amount":1.25,"at":"2024-05-01 12:00:00.5"}'
MANY = 100  # more than are read one by one


class NoReference:
    """Stands where the reference decoder is, for messages that must not reach it."""

    infinite = InfiniteCounter()
    undeclared = None

    def read_rows(self, message: bytes) -> list[dict[str, Any]]:
        raise AssertionError(message)


def by_columns(row: t.Row, messages: list[bytes], **options: Any) -> list[Any]:
    """The rows of messages that must all be read by columns."""
    decoder = JsonDecoder(row, Json(**options).reading_rules())
    decoder.reference = NoReference()  # type: ignore[assignment]
    return list(decoder.decode(pa.array(messages, pa.binary())).rows.to_pylist())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (t.Boolean(), ["true", "false", "null"]),
        (t.TinyInt(), ["1", "-128", "127", "0", "null", '"12"']),
        (t.BigInt(), ["1", "9223372036854775807", "-5", "12.0"]),
        (t.Double(), ["1", "-0.5", "1e300", "2.5E-7", "0", "null", '"7.5"']),
        (t.Float(), ["1", "-0.5", "3.4e38", "0.1"]),
        (t.Decimal(10, 2), ["1", "-0.5", "123.456", "0", '"1.50"', "1.2E+2", "null"]),
        (t.Decimal(38, 18), ["799.929496989092949698", "0.1"]),
        (
            t.STRING,
            ['"a"', '""', "null", "1.10", "true", '"\\u00e9\\n\\ud83d\\ude00"', '"é"', '{"a":[1,2],"b":"c"}', "[]"],
        ),
        (t.BYTES, ['"AQID"', '"AQI="', '""', "null"]),
        (t.Date(), ['"2024-02-29"', '"0001-01-01"', "null"]),
        (t.Time(3), ['"12:34:56"', '"12:34:56.789"']),
        (t.Timestamp(3), ['"2024-05-01 12:34:56"', '"2024-05-01 12:34:56.123456789"']),
        (t.TimestampLtz(3), ['"2024-05-01 12:34:56Z"', '"2024-05-01 12:34:56.5Z"', "null"]),
        (t.Array(t.Int()), ["[1,2]", "[]", "[ 3 , null ]", "null"]),
        (t.Array(t.STRING), ['["a,]","b"]', '["\\""]', '[""]']),
        (t.Map(t.STRING, t.Int()), ['{"a":1}', "{}", '{"b" : 2, "c":null}', "null"]),
        (t.Multiset(t.STRING), ['{"a":1}', "{}"]),
        (t.row(x=t.Int(), y=t.STRING), ['{"x":1,"y":"z"}', '{"y":null}', "{}", "null", '{ "u": {"x":[1]} }']),
        (t.Array(t.row(m=t.Map(t.STRING, t.Array(t.Int())))), ['[{"m":{"k":[1,2]}},{"m":{}}]', "[null]"]),
    ],
    ids=str,
)
def test_plain_values_are_read_by_columns(kind: t.DataType, values: list[str]) -> None:
    row = t.row(a=t.Int(), f=kind)
    messages = [f'{{"a":1,"f":{value},"b":[{{"c":"\\""}}]}}'.encode() for value in values * MANY]
    reference = ReferenceDecoder(row, ReadingRules())
    expected = [item for m in messages for item in reference.read_rows(m)]
    assert by_columns(row, messages) == pa.array(expected, arrow_type(row)).to_pylist()


def test_any_order_blanks_absent_and_unknown_members_are_read_by_columns() -> None:
    messages = [
        b'{"a":1,"b":"x"}',
        b'{"b":"x","a":1}',
        b' { "a" : 1 , "b" : "x" } \n',
        b'{"a":1}',
        b"{}",
        b'{"z":[1,{"a":2}],"b":"x","a":1,"u":null,"v":1.5e3}',
    ]
    expected: list[dict[str, Any]] = [{"a": 1, "b": "x"}] * 3 + [{"a": 1, "b": None}, {"a": None, "b": None}]
    assert by_columns(t.row(a=t.Int(), b=t.STRING), messages * MANY) == [*expected, {"a": 1, "b": "x"}] * MANY


@pytest.mark.parametrize(
    "names", [("a.b", "a"), ('q"t', "b\\"), ("A", "a"), ("naïve", "\U0001f600"), ("x" * 90, "x" * 91)]
)
def test_names_of_any_kind_are_read_and_written(names: tuple[str, str]) -> None:
    row = t.Row(tuple(t.Field(name, t.Int()) for name in names))
    rows = pa.array([{names[0]: i, names[1]: None} for i in range(MANY)], arrow_type(row))
    messages = Json().encoder(row).encode(rows).messages
    assert [json.loads(m) for m in messages.to_pylist()] == rows.to_pylist()
    assert Json().decoder(row).decode(messages).rows.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize(
    "message",
    [
        b"\xff\xfe",
        b'{"name":"\xff"}',
        b'{"name":"\xc3"}',
        b'{"name":"\xed\xa0\x80"}',
        b"\0" * 100,
        b'{"id":1}\0'[:-2],
        b"null",
        b"   ",
        b'{"id":1',
        b'{"id":1}}{'[1:],
        b'{"id":"a","name":"b","amount":"c","at":"d"}',
        b'{"u":' + b"[" * 100_000,
        b'{"u":' + b"[" * 1001 + b"]" * 1001 + b"}",
        b'{"u":' * 20_000 + b"1" + b"}" * 20_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"id":' + b"1" * 100_000 + b"}",
        b'{"amount":' + b"1" * 1001 + b"}",
        b'{"name":{"a":' + b"1" * 1001 + b"}}",
    ],
    ids=lambda value: value[:12].hex() if isinstance(value, bytes) else str(value),
)
def test_an_unreadable_message_is_reported_and_the_others_are_read(message: bytes, count: int) -> None:
    count = min(count, max(20, 1_000_000 // len(message)))  # 60 messages are read by columns, too
    messages = pa.array([GOOD, message, GOOD] * count, pa.binary())
    decoded = Json().decoder(ROW).decode(messages)
    assert [b.index for b in decoded.bad] == list(range(1, 3 * count, 3))
    assert all(0 < len(b.reason) < 300 for b in decoded.bad)
    assert decoded.messages is not None
    assert decoded.messages.to_pylist() == [i for i in range(3 * count) if i % 3 != 1]
    assert decoded.rows.field("id").to_pylist() == [7, 7] * count
    ignored = Json(ignore_parse_errors=True).decoder(ROW).decode(messages)
    assert ignored.bad == ()
    assert ignored.rows.field("id").to_pylist().count(7) == 2 * count


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b'{"amount":"abc"}', "field 'amount': 'abc' is not a DECIMAL(10, 2) (not a decimal number)"),
        (b'{"id":12345678901234567890}', "field 'id': 12345678901234567890 is not a BIGINT (out of range)"),
        (b'{"id":true}', "field 'id': true is not a BIGINT"),
        (
            b'{"at":"2024-05-01"}',
            "field 'at': '2024-05-01' is not a TIMESTAMP(3) (expected yyyy-MM-dd HH:mm:ss, an optional fraction)",
        ),
        (b'{"o":{"l":[{"x":1},{"x":"y"}]}}', "field 'o.l[1].x': 'y' is not an INT (not an integer)"),
        (b'{"m":{"k":[]}}', "field \"m['k']\": an array is not an INT"),
        (b'{"o":5}', "field 'o': 5 is not a ROW<`l` ARRAY<ROW<`x` INT>>> (it is a number)"),
        (b'{"id":"' + b"9" * 100 + b'"}', f"field 'id': '{'9' * 59}… is not a BIGINT (out of range)"),
        (b"5", "the message is a number, not an object"),
        (b"[5]", "field '[0]': the element is a number, not an object"),
        (b'{"id":1', "not JSON: expecting ',' delimiter at the end"),
        (b'{"id":x}', "not JSON: expecting value at character 7"),
        (b'{"id":NaN}', "not JSON: NaN is not a JSON value"),
        (b" ", "the message contains only blanks"),
        (b'{"name":"\xff"}', "not JSON: byte 10 is not UTF-8 (invalid start byte)"),
    ],
    ids=lambda value: value.decode("utf-8", "replace")[:30] if isinstance(value, bytes) else "",
)
def test_a_reason_names_the_location_and_the_value(message: bytes, reason: str) -> None:
    more = t.row(o=t.row(l=t.Array(t.row(x=t.Int()))), m=t.Map(t.STRING, t.Int()))
    decoded = Json().decoder(t.Row((*ROW.fields, *more.fields))).decode(pa.array([message], pa.binary()))
    assert [b.reason for b in decoded.bad] == [reason]


def test_a_missing_field_is_named() -> None:
    decoder = Json(fail_on_missing_field=True).decoder(t.row(a=t.Int(), r=t.row(b=t.Int())))
    messages = [b'{"a":1,"r":{"b":2}}', b'{"r":null}', b'{"a":1,"r":{}}'] * MANY
    decoded = decoder.decode(pa.array(messages, pa.binary()))
    assert decoded.rows.to_pylist() == [{"a": 1, "r": {"b": 2}}] * MANY
    assert [b.reason for b in decoded.bad] == ["field 'a': is missing", "field 'r.b': is missing"] * MANY


@pytest.mark.parametrize("depth", [10, pytest.param(600, marks=pytest.mark.reliability), 998])
def test_deep_values_that_the_reference_reads_are_read(depth: int) -> None:
    value = "[" * depth + "1" + "]" * depth
    message = f'{{"name":{value},"u":{value}}}'.encode()
    for count in (1, MANY):
        decoded = Json().decoder(ROW).decode(pa.array([message] * count, pa.binary()))
        assert (decoded.bad, decoded.rows.field("name").to_pylist()) == ((), [value] * count)


def test_large_messages_are_read() -> None:
    text = "é" * 5_000_000
    messages = [json.dumps({"id": 1, "name": text}, ensure_ascii=ascii_only).encode() for ascii_only in (True, False)]
    for array in (pa.array(messages), pa.array([messages[1]] + [GOOD] * MANY)):
        rows = Json().decoder(ROW).decode(array).rows
        assert rows.field("name").to_pylist() == [text] * 2 if len(array) == 2 else [text] + ["x"] * MANY
    assert Json().encoder(ROW).encode(rows).messages[1].as_py() == GOOD


@pytest.mark.parametrize("count", [0, 1, 7 * MANY])
def test_slices_nulls_and_empty_messages(count: int) -> None:
    messages: list[bytes | None] = [GOOD, None, b"", GOOD.replace(b"7", b"8"), b'[{"id":1},{"id":2}]', b"[]", b"{}"]
    whole = pa.array([b"\xff{", *(messages * MANY)[:count], b'"'], pa.binary())
    decoded = Json().decoder(ROW).decode(whole.slice(1, count))
    expected = [(i, v) for i in range(0, count, 7) for v in ((i, 7), (i + 3, 8), (i + 4, 1), (i + 4, 2), (i + 6, None))]
    shown = [pair for _, pair in expected if pair[0] < count]
    assert decoded.bad == ()
    assert decoded.rows.field("id").to_pylist() == [v for _, v in shown]
    owners = list(range(len(decoded.rows))) if decoded.messages is None else decoded.messages.to_pylist()
    assert owners == [i for i, _ in shown]


def test_bytes_under_nulls_are_ignored() -> None:
    offsets = pa.py_buffer(pa.array(range(0, 5 * (MANY + 1), 5), pa.int32()).buffers()[1])
    array = pa.Array.from_buffers(pa.binary(), MANY, [pa.py_buffer(bytes(13)), offsets, pa.py_buffer(b'{"x":' * MANY)])
    decoded = Json().decoder(ROW).decode(array)
    assert (len(decoded.rows), decoded.bad) == (0, ())


@pytest.mark.parametrize("count", [1, MANY])
def test_a_row_type_without_columns(count: int) -> None:
    decoded = Json().decoder(t.Row(())).decode(pa.array([b"{}", b'{"a":1}', b"{", b'{"a":tru}'] * count))
    assert decoded.rows.to_pylist() == [{}] * (2 * count)
    assert len(decoded.bad) == 2 * count


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-32"]
)
def test_other_encodings_and_marks_are_read_as_in_the_reference(encoding: str) -> None:
    message = '{"id":1,"name":"é"}'.encode(encoding)
    for count in (1, MANY):
        decoded = Json().decoder(ROW).decode(pa.array([message] * count, pa.binary()))
        assert (decoded.bad, decoded.rows.field("name").to_pylist()) == ((), ["é"] * count)
