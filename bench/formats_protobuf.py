"""Measure the Protobuf format alone, on one core: ``python -m bench.formats_protobuf [--records N]``.

Prints rows per second of processor time for reading (with 0, 0.1, 1 and 100 % invalid messages) and writing a plain
order record of six fields, with the column decoder and with the reference decoder, and for records of other shapes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from bench.cases import Case
from bench.formats_json import rate
from kdsl.types import model as t
from kdsl_formats.protobuf import Protobuf
from kdsl_formats.protobuf.decoder import ProtobufDecoder
from kdsl_formats.protobuf.encoder import ProtobufEncoder
from kdsl_formats.protobuf.layout import layout_of
from kdsl_formats.protobuf.reference_decoder import ReadingRules
from kdsl_formats.protobuf.reference_encoder import WritingRules
from kdsl_formats.protobuf.schema import row_of

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum State { NEW = 0; SHIPPED = 1; PAID = 2; }
message Order {
  string order_id = 1;
  int64 user_id = 2;
  State status = 3;
  double amount = 4;
  int32 quantity = 5;
  bool paid = 6;
}
message Customer { string name = 1; string city = 2; }
message Basket {
  int64 id = 1;
  Customer customer = 2;
  repeated string tags = 3;
  repeated int32 counts = 4;
  map<string, double> prices = 5;
  google.protobuf.Timestamp placed_at = 6;
}
"""
SPARKS = "order_id STRING, user_id BIGINT, status STRING, amount DOUBLE, quantity INT, paid BOOLEAN"
STATES = 3
ALL = 1 << 40


def orders(kind: Any, count: int, r: Random) -> Iterable[bytes]:
    """Records of about 40 bytes."""
    for i in range(count):
        message = kind(
            order_id=f"ord-{i:09d}",
            user_id=r.randrange(10**6),
            status=r.randrange(STATES),
            amount=r.random() * 1000,
            quantity=r.randrange(1, 20),
            paid=r.random() < 0.5,
        )
        yield message.SerializeToString()


def baskets(kind: Any, count: int, r: Random) -> Iterable[bytes]:
    """Records with a row, arrays, a map and a timestamp."""
    for i in range(count):
        message = kind(
            id=i,
            customer={"name": f"n{i}", "city": "c"},
            tags=[f"t{n}" for n in range(r.randrange(4))],
            counts=[r.randrange(1000) for _ in range(r.randrange(4))],
            prices={f"p{n}": r.random() for n in range(r.randrange(4))},
            placed_at={"seconds": 1_700_000_000 + i, "nanos": r.randrange(10**6) * 1000},
        )
        yield message.SerializeToString()


def damage(message: bytes, r: Random) -> bytes:
    """Truncate a record, or add a repeated field, a group, or a string that is not UTF-8."""
    return r.choice([message[:-1], message + b"\x10\x05", message + b"\x53\x54", b"\x0a\x01\xff" + message])


def cases(count: int) -> Iterator[Case]:
    """The case of plain orders. The reference engine reads Protobuf only with generated Java code."""
    format_ = Protobuf(message_class_name="shop.Order", proto_text=PROTO)
    message = format_.schema().message
    row = row_of(message, nullable=True)
    messages = pa.array(list(orders(GetMessageClass(message), count, Random(1))), pa.binary())
    decoder = format_.decoder(row)
    strings = [json.dumps(value) for value in decoder.decode(messages).rows.to_pylist()]
    yield Case("protobuf", messages, row, decoder, format_.encoder(row), strings, SPARKS, goal=3.0, reference=None)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000, help="records of one batch")
    parser.add_argument("--times", type=int, default=30, help="number of runs; the best counts")
    args = parser.parse_args()
    count, r = args.records, Random(1)
    pa.set_cpu_count(1)

    def table(name: str) -> tuple[Any, t.Row, Any]:
        schema = Protobuf(message_class_name=name, proto_text=PROTO).schema()
        row = row_of(schema.message, nullable=True)
        return layout_of(schema, row), row, GetMessageClass(schema.message)

    def read(name: str, layout: Any, row: t.Row, messages: list[bytes], *, by_reference: bool = False) -> None:
        array = pa.array(messages, pa.binary())
        decoder = ProtobufDecoder(layout, row, ReadingRules(), min_batch=ALL if by_reference else 5)
        shown = rate(lambda: decoder.decode(array), count, 3 if by_reference else args.times)
        print(f"{name:44s} {shown / 1e6:7.3f} M/s")

    def write(name: str, layout: Any, row: t.Row, messages: list[bytes], *, by_reference: bool = False) -> None:
        rows = ProtobufDecoder(layout, row, ReadingRules()).decode(pa.array(messages, pa.binary())).rows
        encoder = ProtobufEncoder(layout, WritingRules(), min_batch=ALL if by_reference else 5)
        shown = rate(lambda: encoder.encode(rows), count, 3 if by_reference else args.times)
        print(f"{name:44s} {shown / 1e6:7.3f} M/s")

    layout, row, kind = table("shop.Order")
    plain = list(orders(kind, count, r))
    for share in (0.0, 0.001, 0.01, 1.0):
        some = set(r.sample(range(count), int(count * share)))
        messages = [damage(m, r) if i in some else m for i, m in enumerate(plain)]
        read(f"read orders, {share:.1%} invalid", layout, row, messages)
    read("read orders, by the reference", layout, row, plain, by_reference=True)
    three = t.Row(row.fields[:3])
    schema = Protobuf(message_class_name="shop.Order", proto_text=PROTO).schema()
    read("read orders, three of six columns", layout_of(schema, three), three, plain)
    write("write orders", layout, row, plain)
    write("write orders, by the reference", layout, row, plain, by_reference=True)
    layout, row, kind = table("shop.Basket")
    order_with_nesting = list(baskets(kind, count, r))
    read("read row, arrays, map and timestamp", layout, row, order_with_nesting)
    read("read row, arrays, map, ts, by the reference", layout, row, order_with_nesting, by_reference=True)
    write("write row, arrays, map and timestamp", layout, row, order_with_nesting)


if __name__ == "__main__":
    main()
