"""Measure the JSON format alone, on one core: ``python -m bench.formats_json [--records N]``.

Prints rows per second of processor time for reading (with 0, 0.1, 1 and 100 % invalid messages) and writing the plain
order record, with the column decoder and with the reference decoder, and for records of other shapes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa

from bench.cases import Case, binary
from kdsl.types import model as t
from kdsl_formats.json import Json
from kdsl_formats.json.decoder import JsonDecoder
from kdsl_formats.json.encoder import JsonEncoder
from kdsl_formats.raw import Raw

ORDER = t.row(
    order_id=t.STRING,
    user_id=t.BigInt(),
    status=t.STRING,
    amount=t.Decimal(10, 2),
    quantity=t.Int(),
    currency=t.STRING,
    placed_at=t.Timestamp(3),
    note=t.STRING,
    paid=t.Boolean(),
)
NESTED = t.row(
    id=t.BigInt(),
    customer=t.row(name=t.STRING, city=t.STRING),
    tags=t.Array(t.STRING),
    prices=t.Map(t.STRING, t.Double()),
)
SPARKS = (
    "order_id STRING, user_id BIGINT, status STRING, amount DECIMAL(10, 2), quantity INT, currency STRING, "
    "placed_at TIMESTAMP_NTZ, note STRING, paid BOOLEAN"
)
STATES = ("NEW", "SHIPPED", "PAID")
NOTE = "please ring the bell"


def order(i: int, r: Random) -> str:
    """A record of about 180 bytes."""
    return (
        f'{{"order_id":"ord-{i:09d}","user_id":{r.randrange(10**6)},"status":"{r.choice(STATES)}",'
        f'"amount":{r.random() * 1000:.2f},"quantity":{r.randrange(1, 20)},"currency":"EUR",'
        f'"placed_at":"2024-05-{r.randrange(1, 31):02d} 12:34:{r.randrange(60):02d}.{r.randrange(1000):03d}",'
        f'"note":"{NOTE[: r.randrange(20)]}","paid":{r.choice(("true", "false"))}}}'
    )


def loose(i: int, r: Random) -> str:
    """An order with blanks, and three members that may be absent or null."""
    text = order(i, r).replace('":', '": ').replace(',"', ', "')
    for name in ("note", "status", "currency"):
        if r.random() < 0.3:
            start = text.index(f'"{name}": ')
            end = text.index(", ", start) + 2
            text = text[:start] + (f'"{name}": null, ' if r.random() < 0.5 else "") + text[end:]
    return text


def order_with_escape(i: int, r: Random) -> str:
    """An order with an escape in its note."""
    return order(i, r).replace('"note":"', '"note":"\\u00e9 \\"')


def order_with_nesting(i: int, r: Random) -> str:
    """A record with a row, an array and a map."""
    tags = ",".join(f'"t{n}"' for n in range(r.randrange(4)))
    prices = ",".join(f'"p{n}":{r.random():.3f}' for n in range(r.randrange(4)))
    return f'{{"id":{i},"customer":{{"name":"n{i}","city":"c"}},"tags":[{tags}],"prices":{{{prices}}}}}'


def damage(text: str, r: Random) -> str:
    """Truncate a record, or make it invalid JSON, or give it an invalid value or a repeated key."""
    return r.choice(
        [
            text[:100],
            "not json",
            text.replace('"quantity":', '"quantity":"x","z":'),
            text.replace('"amount":', '"amount":1,"amount":'),
        ]
    )


def rate(run: Callable[[], Any], count: int, times: int) -> float:
    """Measure rows per second of processor time; returns the best of several runs."""
    run()
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return count / best


def cases(count: int) -> Iterator[Case]:
    """The cases of json and, with the same messages, raw."""
    r = Random(1)
    strings = [order(i, r) for i in range(count)]
    messages = binary(strings)
    yield Case("json", messages, ORDER, Json().decoder(ORDER), Json().encoder(ORDER), strings, SPARKS)
    whole = t.row(value=t.BYTES)
    yield Case("raw", messages, whole, Raw().decoder(whole), Raw().encoder(whole), strings, SPARKS, reference=None)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000, help="records of one batch")
    parser.add_argument("--times", type=int, default=30, help="number of runs; the best counts")
    args = parser.parse_args()
    count, r = args.records, Random(1)
    pa.set_cpu_count(1)

    def read(name: str, row: t.Row, strings: list[str], *, by_reference: bool = False) -> None:
        messages = pa.array([text.encode() for text in strings], pa.binary())
        decoder = JsonDecoder(row, Json().reading_rules(), min_batch=len(strings) + 1 if by_reference else 48)
        shown = rate(lambda: decoder.decode(messages), count, 3 if by_reference else args.times)
        print(f"{name:44s} {shown / 1e6:7.3f} M/s")

    def write(name: str, row: t.Row, strings: list[str], *, by_reference: bool = False) -> None:
        messages = pa.array([text.encode() for text in strings], pa.binary())
        rows = JsonDecoder(row, Json().reading_rules()).decode(messages).rows
        encoder = JsonEncoder(row, Json().writing_rules(), min_batch=len(strings) + 1 if by_reference else 48)
        shown = rate(lambda: encoder.encode(rows), count, 3 if by_reference else args.times)
        print(f"{name:44s} {shown / 1e6:7.3f} M/s")

    orders = [order(i, r) for i in range(count)]
    for share in (0.0, 0.001, 0.01, 1.0):
        some = set(r.sample(range(count), int(count * share)))
        read(
            f"read orders, {share:.1%} invalid", ORDER, [damage(m, r) if i in some else m for i, m in enumerate(orders)]
        )
    read("read orders, by the reference", ORDER, orders, by_reference=True)
    read("read orders, three of nine columns", t.Row(ORDER.fields[:3]), orders)
    read("read orders, blanks and absent members", ORDER, [loose(i, r) for i in range(count)])
    read("read orders, a string with escapes", ORDER, [order_with_escape(i, r) for i in range(count)])
    read("read row, array and map", NESTED, [order_with_nesting(i, r) for i in range(count)])
    write("write orders", ORDER, orders)
    write("write orders, by the reference", ORDER, orders, by_reference=True)
    write("write orders, a string with escapes", ORDER, [order_with_escape(i, r) for i in range(count)])
    write("write row, array and map", NESTED, [order_with_nesting(i, r) for i in range(count)])


if __name__ == "__main__":
    main()
