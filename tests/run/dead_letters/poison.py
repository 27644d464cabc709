"""Records that a format cannot read: twenty kinds for each format, and records that it can read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import attrs

from kdsl import (
    Avro,
    AvroConfluent,
    CanalJson,
    Csv,
    DebeziumAvroConfluent,
    DebeziumJson,
    Json,
    JsonSchemaConfluent,
    MaxwellJson,
    OggJson,
    Protobuf,
    ProtobufConfluent,
    Raw,
)
from kdsl.formats import Format
from kdsl.types import model as t
from kdsl_formats.registry import RegistryFormat
from tests.registry.front import Answer, Request

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
_LEFT_OUT = ("open string", "single quotes")
"""Kinds that make room for those below, so that there are twenty."""
_STRICT: Mapping[str, bytes] = {
    "two documents": _OBJECT + b"}" + _OBJECT + b"}",
    "half of a surrogate pair": _OBJECT[:-1] + b'\\ud800"}',
}
"""What is read in columns that are declared, as Flink does: the first document, and ``?``."""
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
_NAMED = ("id BIGINT NOT NULL", "name STRING NOT NULL")
_NAMED_ROW = t.Row((ROW.fields[0], ROW.fields[2]), nullable=False)
_PROTO = 'syntax = "proto3"; message Order { int64 id = 1; string name = 2; }'
_PROTOBUF: Mapping[str, bytes] = {
    "tag without value": b"\x08",
    "tag that does not end": b"\xff",
    "field number 0": b"\x00\x01",
    "field number out of range": b"\xff\xff\xff\xff\x7f\x01",
    "wire type 6": b"\x0e\x01",
    "wire type 7": b"\x0f\x01",
    "end of no group": b"\x0c",
    "group without end": b"\x7b\x08\x01",
    "number that does not end": b"\x08\xff",
    "number of 11 bytes": b"\x08" + b"\xff" * 10 + b"\x01",
    "string beyond the end": b"\x12\x20geheim-4711",
    "length that does not end": b"\x12\xff",
    "negative length": b"\x12" + b"\xff" * 9 + b"\x01geheim-4711",
    "no UTF-8": b"\x12\x02\xff\xfe",
    "cut UTF-8": b"\x12\x0cgeheim-4711\xc3",
    "half of a surrogate pair": b"\x12\x03\xed\xa0\x80",
    "unknown field beyond the end": b"\x7a\x20geheim-4711",
    "unknown fixed64 that is cut": b"\x79\x00\x00",
    "unknown fixed32 that is cut": b"\x7d\x00",
    "JSON": _OBJECT + b"}",
}
_AVRO_ROW = bytes([2]) + b"\x80\xb4\x02" + bytes([2 * 22]) + b"geheim-4711-and-longer"


_AVRO_FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "name", "type": "string"},
]
_RECORD = {"type": "record", "name": "Order", "fields": _AVRO_FIELDS}
_IMAGES = [{"name": "before", "type": ["null", _RECORD]}, {"name": "after", "type": ["null", "Order"]}]
_AVRO_SCHEMA, _ENVELOPE, _JSON_SCHEMA, _PROTO_SCHEMA = range(1, 5)
_SCHEMAS: Mapping[int, Mapping[str, str]] = {
    _AVRO_SCHEMA: {"schema": json.dumps(_RECORD)},
    _ENVELOPE: {
        "schema": json.dumps(
            {"type": "record", "name": "Envelope", "fields": [*_IMAGES, {"name": "op", "type": "string"}]}
        )
    },
    _JSON_SCHEMA: {"schemaType": "JSON", "schema": '{"type":"object"}'},
    _PROTO_SCHEMA: {"schemaType": "PROTOBUF", "schema": _PROTO},
}
_FRAMES: Mapping[str, bytes] = {
    "empty": b"",
    "no frame": b"geheim-4711",
    "part of an id": b"\0\0\0\0",
    "another magic byte": b"\1\0\0\0\1geheim-4711",
    "unknown schema": b"\0\0\0\xff\xffgeheim-4711",
}
"""Messages that no format with a registry reads."""


def _frame(number: int) -> bytes:
    """What a message with the schema of this id begins with."""
    return b"\0" + number.to_bytes(4, "big")


def _add_frames(number: int, bodies: Mapping[str, bytes], *, empty: bool = True) -> Mapping[str, bytes]:
    """Bad frames, and bodies behind the id of their schema: twenty in all.

    Args:
        number: The id.
        bodies: Twenty bodies; the first ones are used.
        empty: Whether an empty message is bad.
    """
    frames = {name: frame for name, frame in _FRAMES.items() if frame or empty}
    return {**frames, **{name: _frame(number) + body for name, body in list(bodies.items())[: 20 - len(frames)]}}


def _cut(body: bytes, count: int) -> Mapping[str, bytes]:
    """Starts of a message, from none of its bytes to one less than ``count``."""
    return {f"cut after {size} bytes": body[:size] for size in range(count)}


def _avro_row(number: int) -> bytes:
    """A row in Avro."""
    return bytes([2 * (number % 50)]) + b"\x80\xb4\x02" + b"\x02a"


def _protobuf_row(number: int) -> bytes:
    """A row in Protobuf."""
    return b"\x08" + bytes([number % 100]) + b"\x12\x01a"


def _within(before: bytes, after: bytes) -> Mapping[str, bytes]:
    """The poison inside the envelope of a change; a row that is not an object has no envelope."""
    return {**_BROKEN, **{name: before + row + after for name, row in _ROWS.items()}}


@attrs.frozen
class Poison:
    """What a format refuses, and what it reads.

    Attributes:
        format: The format.
        messages: Twenty messages that it refuses, by their kinds.
        good: Makes a message that it reads from a number below 100,000.
        columns: The columns of its tables in SQL.
        row: Their types.
    """

    format: Format
    messages: Mapping[str, bytes]
    good: Callable[[int], bytes]
    columns: tuple[str, ...] = COLUMNS
    row: t.Row = ROW

    def format_with(self, registry: str) -> Format:
        """The format, with the URL of a registry if it needs one."""
        if not isinstance(self.format, RegistryFormat):
            return self.format
        return type(self.format).from_strings({**self.format.to_strings(), "url": registry})


POISON: Mapping[str, Poison] = {
    "json": Poison(Json(), {**_BROKEN, **_ROWS}, lambda i: b'{"id":%d,"day":"2024-01-01","name":"a"}' % i),
    "json, inferred columns": Poison(
        Json(inferred_columns=True),
        {**_BROKEN, **{name: row for name, row in _ROWS.items() if name not in _LEFT_OUT}, **_STRICT},
        lambda i: b'{"id":%d,"day":"2024-01-01","name":"a"} ' % i,
    ),
    "csv": Poison(Csv(), _CSV, lambda i: b"%d,2024-01-01,a" % i),
    "raw": Poison(
        Raw(),
        {f"{size} bytes": b"x" * size for size in range(1, 22) if size != 8},
        lambda i: i.to_bytes(8, "big"),
        COLUMNS[:1],
        t.Row(ROW.fields[:1], nullable=False),
    ),
    "debezium-json": Poison(
        DebeziumJson(),
        _within(b'{"before":null,"op":"c","after":', b"}"),
        lambda i: b'{"before":null,"after":{"id":%d,"day":"2024-01-01","name":"a"},"op":"c"}' % i,
    ),
    "canal-json": Poison(
        CanalJson(),
        _within(b'{"type":"INSERT","data":[', b"]}"),
        lambda i: b'{"data":[{"id":"%d","day":"2024-01-01","name":"a"}],"type":"INSERT"}' % i,
    ),
    "maxwell-json": Poison(
        MaxwellJson(),
        _within(b'{"type":"insert","data":', b"}"),
        lambda i: b'{"data":{"id":%d,"day":"2024-01-01","name":"a"},"type":"insert"}' % i,
    ),
    "ogg-json": Poison(
        OggJson(),
        _within(b'{"op_type":"I","after":', b"}"),
        lambda i: b'{"after":{"id":%d,"day":"2024-01-01","name":"a"},"op_type":"I"}' % i,
    ),
    "json-schema-confluent": Poison(
        JsonSchemaConfluent(),
        _add_frames(_JSON_SCHEMA, {**_BROKEN, **_ROWS}),
        lambda i: _frame(_JSON_SCHEMA) + b'{"id":%d,"day":"2024-01-01","name":"a"}' % i,
    ),
    "avro": Poison(Avro(), _cut(_AVRO_ROW, 20), lambda i: _avro_row(i)),
    "avro-confluent": Poison(
        AvroConfluent(),
        _add_frames(_AVRO_SCHEMA, _cut(_AVRO_ROW, 20)),
        lambda i: _frame(_AVRO_SCHEMA) + _avro_row(i),
    ),
    "debezium-avro-confluent": Poison(
        DebeziumAvroConfluent(),
        _add_frames(_ENVELOPE, _cut(b"\0\2" + _AVRO_ROW, 20), empty=False),
        lambda i: _frame(_ENVELOPE) + b"\0\2" + _avro_row(i) + b"\2c",
    ),
    "protobuf": Poison(
        Protobuf(message_class_name="Order", proto_text=_PROTO),
        _PROTOBUF,
        lambda i: _protobuf_row(i),
        _NAMED,
        _NAMED_ROW,
    ),
    "protobuf-confluent": Poison(
        ProtobufConfluent(message_class_name="Order", proto_text=_PROTO),
        _add_frames(_PROTO_SCHEMA, {name: b"\0" + body for name, body in _PROTOBUF.items()}),
        lambda i: _frame(_PROTO_SCHEMA) + b"\0" + _protobuf_row(i),
        _NAMED,
        _NAMED_ROW,
    ),
}
"""By the name of a format: the format, twenty messages that it refuses, and a message that it reads."""


def answer_schemas(request: Request) -> Answer:
    """The answers of a registry that has the schemas of the framed messages."""
    parts = request.path.partition("?")[0].strip("/").split("/")
    if parts[:2] == ["schemas", "ids"] and int(parts[2]) in _SCHEMAS:
        return 200, _SCHEMAS[int(parts[2])]
    return 404, {"error_code": 40403, "message": "Schema not found"}
