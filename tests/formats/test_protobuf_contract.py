from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kdsl.types import model as t
from kdsl_formats.protobuf import Protobuf
from tests import strategies
from tests.formats.contract import FormatContract

TEXT = t.VarChar(nullable=False)
PROTO = """
edition = "2023";
package contract;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Kind { NONE = 0; SOME = 1; ALL = 2; }
message Record {
  int64 id = 1;
  string name = 2;
  Kind kind = 3;
  google.protobuf.Timestamp at = 4;
  bool ok = 5;
  double score = 6;
  bytes data = 7;
  repeated string tags = 8;
  Pair pair = 9;
  map<string, int32> counts = 10;
  google.protobuf.StringValue nick = 11;
  float ratio = 12;
  message Pair { int32 x = 1; string y = 2; }
}
"""
RECORD = Protobuf(message_class_name="contract.Record", proto_text=PROTO).portable()


class TestProtobuf(FormatContract):
    format = RECORD
    lenient = Protobuf(
        message_class_name=RECORD.message_class_name, descriptor_set=RECORD.descriptor_set, ignore_parse_errors=True
    )
    variants = (
        Protobuf(message_class_name="contract.Record", descriptor_file="records.desc", read_default_values=True),
        Protobuf(message_class_name="contract.Record", proto_file="records.proto", proto_path=("a", "b")),
        Protobuf(message_class_name="contract.Record", proto_text=PROTO, write_null_string_literal="null"),
        Protobuf(message_class_name="records_pb2:Record", write_unknown_enum="fail"),
    )
    row = t.row(
        name=t.STRING,
        id=t.BigInt(),
        kind=t.STRING,
        at=t.TimestampLtz(6),
        ok=t.Boolean(),
        score=t.Double(),
        data=t.BYTES,
        tags=t.Array(TEXT),
        pair=t.row(x=t.Int(), y=t.STRING),
        counts=t.Map(TEXT, t.Int(nullable=False)),
        nick=t.STRING,
    )

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        name = f"name {number}, é"
        kind = number % 3
        counts = _part(10, _part(1, b"k") + b"\x10" + _varint(number)) + _part(10, _part(1, b"n") + b"\x10\x00")
        data = b"".join(
            [
                b"\x08" + _varint(number),
                _part(2, name.encode()),
                b"\x18" + _varint(kind),
                _part(4, b"\x08" + _varint(1_700_000_000 + number) + b"\x10" + _varint(5_000)),
                b"\x28" + _varint(number % 2),
                b"\x31\x00\x00\x00\x00\x00\x00\xd0\x3f",
                _part(7, b"\x01\x02\x03"),
                _part(8, f"a{number}".encode()),
                _part(8, b""),
                _part(9, b"\x12\x01y"),
                counts,
                _part(11, _part(1, b"n") if number % 5 else b"") if number % 4 else b"",
            ]
        )
        values = {
            "name": name,
            "id": number,
            "kind": ("NONE", "SOME", "ALL")[kind],
            "at": (1_700_000_000 + number) * 1_000_000 + 5,
            "ok": bool(number % 2),
            "score": 0.25,
            "data": b"\1\2\3",
            "tags": [f"a{number}", ""],
            "pair": {"x": None, "y": "y"},
            "counts": [("k", number), ("n", 0)],
            "nick": ("n" if number % 5 else "") if number % 4 else None,
        }
        return data, values

    def bad_messages(self) -> list[bytes]:
        good = self.message(7)[0]
        return [
            b"\x08",
            good[:-1],
            b"\x00" + good,
            good + b"\x0c",
            good + b"\x13",
            good.replace(b"name", b"na\xffe"),
            good + _part(9, b"\x12"),
            good + _part(10, b"\x0a\x05k"),
            good + _part(4, b"\x10\x80\x94\xeb\xdc\x03"),
            b"not a message",
        ]

    def row_types(self) -> st.SearchStrategy[t.Row]:
        fields = st.lists(st.sampled_from(FIELDS), min_size=1, max_size=6, unique_by=lambda f: f.name)
        return fields.map(lambda value: t.Row(tuple(value)))

    def values(self, row: t.Row) -> st.SearchStrategy[Any]:
        return st.fixed_dictionaries({f.name: _readable(f) for f in row.fields})


def _varint(number: int) -> bytes:
    result = b""
    while number > 0x7F:
        result += bytes([number & 0x7F | 0x80])
        number >>= 7
    return result + bytes([number])


def _part(number: int, inside: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(inside)) + inside


FIELDS = [
    t.Field("id", t.BigInt()),
    t.Field("name", t.STRING),
    t.Field("kind", t.STRING),
    t.Field("kind", t.Int()),
    t.Field("at", t.TimestampLtz(6)),
    t.Field("at", t.row(seconds=t.BigInt(nullable=False), nanos=t.Int(nullable=False))),
    t.Field("ok", t.Boolean()),
    t.Field("score", t.Double()),
    t.Field("ratio", t.Float()),
    t.Field("data", t.BYTES),
    t.Field("tags", t.Array(TEXT)),
    t.Field("pair", t.row(x=t.Int(), y=t.STRING)),
    t.Field("pair", t.row(y=t.STRING)),
    t.Field("counts", t.Map(TEXT, t.Int(nullable=False))),
    t.Field("nick", t.STRING),
]


def _readable(field: t.Field) -> st.SearchStrategy[Any]:
    """Values of a field that are not replaced: no empty array or map, and names and numbers that the enum has."""
    match field.type:
        case t.Array(element=element):
            return st.none() | st.lists(strategies.values(element), min_size=1, max_size=4)
        case t.Map():
            return st.none() | strategies.values(field.type.as_nullable(False)).filter(bool)
        case kind if field.name == "kind":
            return st.sampled_from([None, *(("NONE", "SOME", "ALL") if kind == t.STRING else (0, 1, 2))])
        case kind:
            return strategies.values(kind)
