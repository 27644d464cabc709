"""Records that a format cannot read: twenty kinds for each format, and records that it can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kdsl import Avro, CanalJson, Csv, DebeziumJson, Json, MaxwellJson, OggJson
from kdsl.formats import Format
from kdsl.types import model as t

COLUMNS = ("id BIGINT NOT NULL", "`day` DATE NOT NULL", "name STRING NOT NULL")
"""The columns of the tables: each type refuses some values."""
ROW = t.Row(
    (
        t.Field("id", t.BigInt(nullable=False)),
        t.Field("day", t.Date(nullable=False)),
        t.Field("name", t.STRING.as_nullable(False)),
    ),
    nullable=False,
)
SECRET = "geheim-4711"
"""A string in most of the poison, which no reason may quote."""

_OBJECT = b'{"id":1,"day":"2024-01-01","name":"geheim-4711"'
_BROKEN: Mapping[str, bytes] = {
    "blank": b"  \n",
    "number": b"123.4",
    "array of a number": b"[1]",
    "string": b'"geheim-4711"',
    "true": b"true",
    "no JSON": b"geheim-4711",
    "member without value": b'{"geheim-4711"}',
    "binary": bytes(range(256)),
}
_ROWS: Mapping[str, bytes] = {
    "open object": _OBJECT,
    "open string": _OBJECT[:-1],
    "cut UTF-8": _OBJECT[:-1] + b"\xc3",
    "single quotes": b"{'id':'geheim-4711'}",
    "trailing comma": _OBJECT + b",}",
    "NaN": b'{"id":NaN,"day":"2024-01-01","name":"geheim-4711"}',
    "huge exponent": b'{"id":1e999999999,"day":"2024-01-01","name":"geheim-4711"}',
    "number out of range": b'{"id":9223372036854775808,"day":"2024-01-01","name":"a"}',
    "no number": b'{"id":"geheim-4711","day":"2024-01-01","name":"a"}',
    "no such day": b'{"id":1,"day":"2024-02-30","name":"geheim-4711"}',
    "depth 10,000": _OBJECT + b',"more":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "NULL for NOT NULL": b'{"id":null,"day":"2024-01-01","name":"geheim-4711"}',
}
LARGE = _OBJECT[:-1] + b"x" * 10_000_000
"""Ten megabytes that end too early; larger than a topic accepts by default."""

_CSV: Mapping[str, bytes] = {
    "empty": b"",
    "blank": b" ",
    "comma": b",",
    "one value": b"1",
    "two values": b"1,2024-01-01",
    "four values": b"1,2024-01-01,geheim-4711,2",
    "no number": b"geheim-4711,2024-01-01,a",
    "fraction": b"1.5,2024-01-01,geheim-4711",
    "exponent": b"1e3,2024-01-01,geheim-4711",
    "number out of range": b"9223372036854775808,2024-01-01,a",
    "hexadecimal number": b"0x1F,2024-01-01,a",
    "number with blanks inside": b"1 000,2024-01-01,a",
    "no date": b"1,geheim-4711,a",
    "date with a time": b"1,2024-01-01T00:00,geheim-4711",
    "American date": b"1,02/29/2024,geheim-4711",
    "month 13": b"1,2024-13-01,geheim-4711",
    "open quote": b'1,2024-01-01,"geheim-4711',
    "text after a quote": b'1,2024-01-01,"geheim"-4711',
    "no UTF-8": b"1,2024-01-01,\xff\xfe",
    "cut UTF-8": b"1,2024-01-01,a\xc3",
}
_AVRO_ROW = bytes([2]) + b"\x80\xb4\x02" + bytes([2 * 22]) + b"geheim-4711-and-longer"


def _within(before: bytes, after: bytes) -> Mapping[str, bytes]:
    """The poison inside the envelope of a change; a row that is not an object has no envelope."""
    return {**_BROKEN, **{name: before + row + after for name, row in _ROWS.items()}}


POISON: Mapping[str, tuple[Format, Mapping[str, bytes], Callable[[int], bytes]]] = {
    "json": (Json(), {**_BROKEN, **_ROWS}, lambda i: b'{"id":%d,"day":"2024-01-01","name":"a"}' % i),
    "csv": (Csv(), _CSV, lambda i: b"%d,2024-01-01,a" % i),
    "debezium-json": (
        DebeziumJson(),
        _within(b'{"before":null,"op":"c","after":', b"}"),
        lambda i: b'{"before":null,"after":{"id":%d,"day":"2024-01-01","name":"a"},"op":"c"}' % i,
    ),
    "canal-json": (
        CanalJson(),
        _within(b'{"type":"INSERT","data":[', b"]}"),
        lambda i: b'{"data":[{"id":"%d","day":"2024-01-01","name":"a"}],"type":"INSERT"}' % i,
    ),
    "maxwell-json": (
        MaxwellJson(),
        _within(b'{"type":"insert","data":', b"}"),
        lambda i: b'{"data":{"id":%d,"day":"2024-01-01","name":"a"},"type":"insert"}' % i,
    ),
    "ogg-json": (
        OggJson(),
        _within(b'{"op_type":"I","after":', b"}"),
        lambda i: b'{"after":{"id":%d,"day":"2024-01-01","name":"a"},"op_type":"I"}' % i,
    ),
    "avro": (
        Avro(),
        {f"cut after {i} bytes": _AVRO_ROW[:i] for i in range(20)},
        lambda i: bytes([2 * (i % 50)]) + b"\x80\xb4\x02" + b"\x02a",
    ),
}
"""By the name of a format: the format, twenty messages that it refuses, and a message that it reads."""
