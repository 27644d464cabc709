"""Measure the Avro format alone, on one core: ``python -m bench.formats_avro [--records N] [--no-spark]``.

Prints rows per second of processor time for reading (with 0, 0.1, 1 and 100 % invalid messages) and writing a plain
order record of six columns, with the column decoder and with the reference decoder, and for records of other shapes. It
also measures Spark's ``from_json`` on the same rows as JSON, and the speed of reading relative to it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from bench.cases import Case
from bench.formats_json import rate
from bench.from_json import from_json_rate, session
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.encoder import AvroEncoder
from kdsl_formats._avro.schema import avro_schema
from kdsl_formats.avro import Avro

ORDER = t.Row(
    (
        t.Field("order_id", t.STRING),
        t.Field("user_id", t.BigInt()),
        t.Field("amount", t.Decimal(10, 2)),
        t.Field("quantity", t.Int()),
        t.Field("placed_at", t.Timestamp(3)),
        t.Field("paid", t.Boolean()),
    ),
    nullable=False,
)
STRICT = t.Row(tuple(t.Field(f.name, f.type.as_nullable(False)) for f in ORDER.fields), nullable=False)
SPARKS = "order_id string, user_id bigint, amount decimal(10,2), quantity int, placed_at timestamp_ntz, paid boolean"
BASKET = t.Row(
    (
        t.Field("id", t.BigInt()),
        t.Field("customer", t.row(name=t.STRING, city=t.STRING)),
        t.Field("tags", t.Array(t.STRING)),
        t.Field("counts", t.Array(t.Int(nullable=False))),
        t.Field("prices", t.Map(t.STRING, t.Double())),
    ),
    nullable=False,
)
WIDE = t.Row(tuple(t.Field(f"c{i}", t.BigInt() if i % 2 else t.STRING) for i in range(40)), nullable=False)
ALL = 1 << 40


def order(i: int, r: Random) -> dict[str, Any]:
    return {
        "order_id": f"ord-{i:09d}",
        "user_id": r.randrange(10**6),
        "amount": Decimal(r.randrange(10**5)) / 100,
        "quantity": r.randrange(1, 20),
        "placed_at": (1_714_566_600_000 + r.randrange(10**9)) * 1000,
        "paid": r.random() < 0.5,
    }


def sparse(i: int, r: Random) -> dict[str, Any]:
    """An order in which three of ten values are NULL."""
    return {k: None if r.random() < 0.3 else v for k, v in order(i, r).items()}


def basket(i: int, r: Random) -> dict[str, Any]:
    return {
        "id": i,
        "customer": {"name": f"n{i}", "city": "c"},
        "tags": [f"t{n}" for n in range(r.randrange(4))],
        "counts": [r.randrange(1000) for _ in range(r.randrange(4))],
        "prices": [(f"p{n}", r.random()) for n in range(r.randrange(4))],
    }


def wide(i: int, r: Random) -> dict[str, Any]:
    return {f"c{n}": r.randrange(10**6) if n % 2 else f"value {i}" for n in range(40)}


def damage(body: bytes, r: Random) -> bytes:
    """Truncate a body, or put a number before it that is too long."""
    return r.choice([body[: len(body) // 2], b"\xff" * 11 + body])


def as_json(value: dict[str, Any]) -> str:
    """An order as JSON for Spark."""
    at = pa.scalar(value["placed_at"], pa.timestamp("us")).as_py()
    return json.dumps(value | {"amount": float(value["amount"]), "placed_at": at.isoformat(sep=" ")})


def cases(count: int) -> Iterator[Case]:
    """The case of plain orders."""
    r = Random(1)
    values = [order(i, r) for i in range(count)]
    decoder, encoder = Avro().decoder(ORDER), Avro().encoder(ORDER)
    messages = encoder.encode(pa.array(values, arrow_type(ORDER))).messages
    yield Case("avro", messages, ORDER, decoder, encoder, [as_json(v) for v in values], SPARKS, goal=2.0)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000, help="records of one batch")
    parser.add_argument("--times", type=int, default=30, help="number of runs; the best counts")
    parser.add_argument("--no-spark", action="store_true", help="omit from_json")
    args = parser.parse_args()
    count, r = args.records, Random(1)
    pa.set_cpu_count(1)

    def show(name: str, rows_per_second: float, measure: float | None = None) -> None:
        times = "" if measure is None else f"   {rows_per_second / measure:5.2f} x from_json"
        print(f"{name:50s} {rows_per_second / 1e6:7.3f} M/s{times}")

    def read(row: t.Row, bodies: list[bytes], writer: Any = None, *, by_reference: bool = False) -> float:
        messages = pa.array(bodies, pa.binary())
        schema = avro_schema(row)
        reader = AvroDecoder(writer or schema, row, schema, min_batch=ALL if by_reference else 32)
        return rate(lambda: reader.decode(messages), len(bodies), 2 if by_reference else args.times)

    def write(row: t.Row, values: list[dict[str, Any]], *, by_reference: bool = False) -> float:
        rows = pa.array(values, arrow_type(row))
        writer = AvroEncoder(avro_schema(row), row, min_batch=ALL if by_reference else 16)
        return rate(lambda: writer.encode(rows), len(values), 2 if by_reference else args.times)

    def bodies(row: t.Row, values: list[dict[str, Any]]) -> list[bytes]:
        encoded: list[bytes] = (
            AvroEncoder(avro_schema(row), row).encode(pa.array(values, arrow_type(row))).messages.to_pylist()
        )
        return encoded

    orders = [order(i, r) for i in range(count)]
    gaps = [v | {"quantity": v["quantity"] if i % 100 else None} for i, v in enumerate(orders)]
    messages = bodies(ORDER, orders)
    measure = None
    if not args.no_spark:
        spark = session()
        measure = from_json_rate(spark, [as_json(v) for v in orders], SPARKS)
        spark.stop()
        show("from_json, orders", measure)
    for share in (0.0, 0.001, 0.01, 1.0):
        some = set(r.sample(range(count), int(count * share)))
        mixed = [damage(m, r) if i in some else m for i, m in enumerate(messages)]
        show(f"read orders, {share:.1%} invalid", read(ORDER, mixed), measure)
    show("read orders, by the reference", read(ORDER, messages, by_reference=True), measure)
    show(
        "read orders, three of ten values NULL",
        read(ORDER, bodies(ORDER, [sparse(i, r) for i in range(count)])),
        measure,
    )
    show("read orders, NOT NULL over nullable fields", read(STRICT, messages, avro_schema(ORDER)), measure)
    show(
        "the same, 1 % of the quantities NULL",
        read(STRICT, bodies(ORDER, gaps), avro_schema(ORDER)),
        measure,
    )
    show("read row, arrays and map", read(BASKET, bodies(BASKET, [basket(i, r) for i in range(count)])))
    show("read forty columns", read(WIDE, bodies(WIDE, [wide(i, r) for i in range(count)])))
    show("write orders", write(ORDER, orders))
    show("write orders, by the reference", write(ORDER, orders, by_reference=True))
    show("write orders, three of ten values NULL", write(ORDER, [sparse(i, r) for i in range(count)]))
    show("write orders, NOT NULL, 1 % of the quantities NULL", write(STRICT, gaps))
    show("write row, arrays and map", write(BASKET, [basket(i, r) for i in range(count)]))
    show("write forty columns", write(WIDE, [wide(i, r) for i in range(count)]))
    json_format, rows = Avro(encoding="json"), pa.array(orders, arrow_type(ORDER))
    encoder, decoder = json_format.encoder(ORDER), json_format.decoder(ORDER)
    strings = encoder.encode(rows).messages
    show("read orders, Avro's JSON", rate(lambda: decoder.decode(strings), count, 2))
    show("write orders, Avro's JSON", rate(lambda: encoder.encode(rows), count, 2))


if __name__ == "__main__":
    main()
