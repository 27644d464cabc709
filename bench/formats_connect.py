"""Compare reading Debezium's decimals and times as typed columns with reading them as raw columns.

``python -m bench.formats_connect`` times both in turn on one core (`bench.paired`) and prints the ratio per case: above
1, reading typed columns is faster than reading the numbers and strings of the messages. The goal is 0.9.
"""

from __future__ import annotations

import argparse
import base64
import io
from collections.abc import Iterator
from random import Random
from typing import Any

import attrs
import fastavro
import pyarrow as pa

from bench.cases import binary
from bench.paired import compare
from kdsl.formats import Decoder
from kdsl.types import model as t
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.schema import avro_schema
from kdsl_formats.cdc_json import DebeziumJson
from kdsl_formats.json import Json

GOAL = 0.9
_PLAIN = {"id": t.BigInt(), "customer": t.BigInt(), "status": t.STRING, "note": t.STRING, "paid": t.Boolean()}
TYPED = t.row(**_PLAIN, total=t.Decimal(10, 2), tax=t.Decimal(10, 2), due=t.Date(), at=t.Timestamp(6))
NUMBERS = t.row(**_PLAIN, total=t.STRING, tax=t.STRING, due=t.Int(), at=t.BigInt())
TEXTS = t.row(**_PLAIN, total=t.STRING, tax=t.STRING, due=t.STRING, at=t.STRING)
ZONED = t.row(**_PLAIN, total=t.Decimal(10, 2), tax=t.Decimal(10, 2), due=t.Date(), at=t.TimestampLtz(6))
_WIRE = (
    *(("id", "long"), ("customer", "long"), ("status", "string"), ("note", "string"), ("paid", "boolean")),
    ("total", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    ("tax", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    ("due", {"type": "int", "connect.name": "io.debezium.time.Date"}),
    ("at", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}),
)
_FIELDS: list[dict[str, Any]] = [{"name": name, "type": kind} for name, kind in _WIRE]
SCHEMA: dict[str, Any] = {"type": "record", "name": "Value", "fields": _FIELDS}


@attrs.frozen
class Comparison:
    """Messages, and two decoders for them.

    Attributes:
        name: The name of the comparison.
        messages: The messages.
        typed: Reads typed columns.
        raw: Reads the values as they are in the messages.
    """

    name: str
    messages: pa.BinaryArray
    typed: Decoder
    raw: Decoder


def digits(number: int) -> bytes:
    """A number in two's complement."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def order(i: int, r: Random, *, strings: bool = False, variable: bool = False) -> str:
    """A row of about 180 bytes in the connector's form."""
    total, tax = r.randrange(10**7), r.randrange(10**5)
    due, at = 19_000 + i % 1000, 1_714_566_896_000_000 + 1_000_017 * i
    amounts = [f'"{base64.b64encode(digits(n)).decode()}"' for n in (total, tax)]
    times = [str(due), str(at)]
    if variable:
        amounts = [f'{{"scale":2,"value":{amount}}}' for amount in amounts]
    if strings:
        amounts = [f'"{n / 100:.2f}"' for n in (total, tax)]
        times = ['"2024-05-01Z"', f'"2024-05-01T12:{i // 60 % 60:02d}:{i % 60:02d}.{i % 10**6:06d}Z"']
    return (
        f'{{"id":{i},"customer":{r.randrange(10**6)},"status":"{r.choice(("NEW", "SHIPPED", "PAID"))}",'
        f'"note":"order number {i} of this day","paid":{r.choice(("true", "false"))},"total":{amounts[0]},'
        f'"tax":{amounts[1]},"due":{times[0]},"at":{times[1]}}}'
    )


def change(i: int, r: Random) -> str:
    """An update event."""
    return f'{{"before":{order(i, r)},"after":{order(i, r)},"op":"u","ts_ms":{1_714_566_896_000 + i}}}'


def body(i: int, r: Random) -> bytes:
    """The same row as an Avro body."""
    row: dict[str, Any] = {
        "id": i,
        "customer": r.randrange(10**6),
        "status": r.choice(("NEW", "SHIPPED", "PAID")),
        "note": f"order number {i} of this day",
        "paid": True,
        "total": digits(r.randrange(10**7)),
        "tax": digits(r.randrange(10**5)),
        "due": 19_000 + i % 1000,
        "at": 1_714_566_896_000_000 + 1_000_017 * i,
    }
    plain = {**SCHEMA, "fields": [{**f, "type": _bare(f["type"])} for f in SCHEMA["fields"]]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), row)
    return out.getvalue()


def _bare(kind: Any) -> Any:
    return kind["type"] if isinstance(kind, dict) else kind


def comparisons(count: int) -> Iterator[Comparison]:
    """JSON with numbers, strings and variable scales; change events; Avro."""
    r = Random(1)
    numbers = Json(decimal_handling_mode="precise", time_precision_mode="adaptive")
    strings = Json(decimal_handling_mode="string", time_precision_mode="isostring")
    changes = DebeziumJson(decimal_handling_mode="precise", time_precision_mode="adaptive")
    plain = Json()
    messages = binary([order(i, r) for i in range(count)])
    yield Comparison("json, precise and adaptive", messages, numbers.decoder(TYPED), plain.decoder(NUMBERS))
    messages = binary([order(i, r, strings=True) for i in range(count)])
    yield Comparison("json, string and isostring", messages, strings.decoder(TYPED), plain.decoder(TEXTS))
    yield Comparison("json, string and isostring, instants", messages, strings.decoder(ZONED), plain.decoder(TEXTS))
    messages = binary([order(i, r, variable=True) for i in range(count)])
    yield Comparison("json, variable scales", messages, numbers.decoder(TYPED), plain.decoder(NUMBERS))
    messages = binary([change(i, r) for i in range(count)])
    raw = DebeziumJson().decoder(NUMBERS)
    yield Comparison("debezium-json, precise and adaptive", messages, changes.decoder(TYPED), raw)
    bodies = pa.array([body(i, r) for i in range(count)], pa.binary())
    yield Comparison("avro, connect.name", bodies, _avro(TYPED), _avro(t.row(**_PLAIN, **_AVRO_RAW)))


_AVRO_RAW = {"total": t.BYTES, "tax": t.BYTES, "due": t.Int(), "at": t.BigInt()}


def _avro(row: t.Row) -> Decoder:
    """A decoder of rows that are not nullable, as in the schema."""
    held = t.Row(tuple(t.Field(f.name, f.type.as_nullable(False)) for f in row.fields), nullable=False)
    return AvroDecoder(SCHEMA, held, avro_schema(held, for_reading=True))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000, help="messages of one batch")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of runs")
    args = parser.parse_args()
    pa.set_cpu_count(1)
    print(f"{'':40s} {'typed':>11s} {'raw':>11s} {'ratio':>7s}")
    for one in comparisons(args.records):
        pair = compare(
            one.name,
            lambda c=one: c.typed.decode(c.messages),  # type: ignore[misc]
            lambda c=one: c.raw.decode(c.messages),  # type: ignore[misc]
            records=args.records,
            pairs=args.pairs,
            goal=GOAL,
        )
        low, high = pair.interval
        typed, raw = (pair.rate(runs) / 1e6 for runs in (pair.ours, pair.theirs))
        print(f"{one.name:40s} {typed:7.3f} M/s {raw:7.3f} M/s {pair.ratio:7.2f} [{low:.2f}, {high:.2f}]", flush=True)


if __name__ == "__main__":
    main()
