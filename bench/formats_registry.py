"""Compare Avro with a schema registry with ``from_json``, on one core: ``python -m bench.formats_registry``.

Prints the rows that decoding and encoding process per second of processor time, with a real registry that is asked once
for each schema: for messages of one schema, of four schemas in turn, and for Debezium's envelopes. ``from_json`` reads
the same rows as JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa

from bench.cases import Case
from bench.formats_json import rate
from bench.from_json import from_json_rate, session
from kdsl.cluster import Registry
from kdsl.formats import Use
from kdsl.testing import LocalRegistry
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.debezium_avro_confluent import DebeziumAvroConfluent

ROW = t.row(
    order_id=t.STRING,
    user_id=t.BigInt(),
    status=t.STRING,
    amount=t.Double(),
    quantity=t.Int(),
    paid=t.Boolean(),
)
SPARK_ROW = "order_id STRING, user_id BIGINT, status STRING, amount DOUBLE, quantity INT, paid BOOLEAN"
STATES = ("NEW", "SHIPPED", "PAID")
VERSIONS = 4


def orders(count: int) -> list[dict[str, Any]]:
    """The same rows in each run."""
    r = Random(1)
    return [
        {
            "order_id": f"ord-{i:09d}",
            "user_id": r.randrange(10**6),
            "status": r.choice(STATES),
            "amount": round(r.random() * 1000, 2),
            "quantity": r.randrange(1, 20),
            "paid": r.random() < 0.5,
        }
        for i in range(count)
    ]


def version(number: int) -> t.Row:
    """The row type of an earlier version; each version lacks one more column."""
    return t.Row(ROW.fields[: len(ROW.fields) - number], nullable=False)


def cases(count: int, url: str) -> Iterator[Case]:
    """The cases of one schema, and of Debezium's envelopes; the registry is asked once for each."""
    values = orders(count)
    rows, strings = pa.array(values, arrow_type(ROW)), [json.dumps(value) for value in values]
    for format_, kinds in (
        (AvroConfluent(), None),
        (DebeziumAvroConfluent(), pa.array([(0, 3)[i % 2] for i in range(count)], pa.int8())),
    ):
        use = Use(topics=(format_.identifier,), registry=Registry(url))
        encoder = format_.encoder(ROW, use)
        yield Case(
            format_.identifier,
            encoder.encode(rows, kinds).messages,
            ROW,
            format_.decoder(ROW, use),
            encoder,
            strings,
            SPARK_ROW,
            goal=2.0 if kinds is None else None,
            reference={f"{format_.identifier}.url": url},
        )


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000, help="messages of one batch")
    parser.add_argument("--times", type=int, default=30, help="number of runs; the best counts")
    parser.add_argument("--alone", action="store_true", help="without from_json, which needs Spark")
    args = parser.parse_args()
    count, times = args.records, args.times
    pa.set_cpu_count(1)
    values = orders(count)
    spark = None if args.alone else session()
    theirs = 0.0 if spark is None else from_json_rate(spark, [json.dumps(value) for value in values], SPARK_ROW)
    if spark is not None:
        spark.stop()

    def line(name: str, rows: float) -> None:
        relative = f"{theirs / 1e6:9.3f} M/s {rows / theirs:7.2f}" if theirs else ""
        print(f"{name:44s} {rows / 1e6:7.3f} M/s {relative}", flush=True)

    with LocalRegistry() as registry:

        def use(topic: str) -> Use:
            return Use(topics=(topic,), registry=Registry(registry.url))

        print(f"{'':44s} {'kdsl':>11s} {'from_json':>13s} {'ratio':>7s}")
        rows = pa.array(values, arrow_type(ROW))
        plain, changes = AvroConfluent(), DebeziumAvroConfluent()
        encoder = plain.encoder(ROW, use("one"))
        messages = encoder.encode(rows).messages
        decoder = plain.decoder(ROW, use("one"))
        line("read avro-confluent, one schema", rate(lambda: decoder.decode(messages), count, times))
        parts = [plain.encoder(version(n), use(f"v{n}")).encode(_cut(rows, version(n))) for n in range(VERSIONS)]
        mixed = pa.concat_arrays([part.messages for part in parts]).take(
            pa.array([i % VERSIONS * count + i for i in range(count)])
        )
        line(f"read avro-confluent, {VERSIONS} schemas in turn", rate(lambda: decoder.decode(mixed), count, times))
        line("write avro-confluent", rate(lambda: encoder.encode(rows), count, times))
        kinds = pa.array([(0, 3)[i % 2] for i in range(count)], pa.int8())
        change_encoder, change_decoder = changes.encoder(ROW, use("changes")), changes.decoder(ROW, use("changes"))
        envelopes = change_encoder.encode(rows, kinds).messages
        line("read debezium-avro-confluent", rate(lambda: change_decoder.decode(envelopes), count, times))
        line("write debezium-avro-confluent", rate(lambda: change_encoder.encode(rows, kinds), count, times))


def _cut(rows: pa.StructArray, kind: t.Row) -> pa.StructArray:
    fields = list(arrow_type(kind))
    return pa.StructArray.from_arrays([rows.field(f.name) for f in fields], fields=fields)


if __name__ == "__main__":
    main()
