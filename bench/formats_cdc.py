"""Compare change data in JSON, and CSV, with ``from_json``, on one core: ``python -m bench.formats_cdc``.

Prints rows per second of processor time: inserts, updates and deletes in turn, of rows with six columns, in each
dialect. Rows are those of the changelog, in which an update has two; ``from_json`` reads the same messages with
``before`` and ``after`` as structs, one row each. The ratio is per message.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa

from bench.cases import Case, binary
from bench.formats_json import rate
from bench.from_json import from_json_rate, session
from kdsl.formats import Use
from kdsl.types import model as t
from kdsl_formats.cdc_json import CanalJson, DebeziumJson, MaxwellJson, OggJson
from kdsl_formats.cdc_json.decoder import ChangeDecoder
from kdsl_formats.cdc_json.formats import ChangeJson
from kdsl_formats.csv import Csv

ROW = t.row(
    order_id=t.STRING,
    user_id=t.BigInt(),
    status=t.STRING,
    amount=t.Decimal(10, 2),
    quantity=t.Int(),
    paid=t.Boolean(),
)
SPARK_ROW = "order_id STRING, user_id BIGINT, status STRING, amount DECIMAL(10, 2), quantity INT, paid BOOLEAN"
STATES = ("NEW", "SHIPPED", "PAID")


def source(i: int) -> str:
    """The member ``source`` of a Debezium event."""
    return (
        f'{{"version":"2.7.0.Final","connector":"mysql","name":"shop","ts_ms":{1714566896000 + i},"snapshot":"false",'
        f'"db":"shop","table":"orders","server_id":1,"gtid":null,"file":"mysql-bin.000003",'
        f'"pos":{154 + 97 * i},"row":0}}'
    )


def image(i: int, r: Random) -> str:
    """A row of about 110 bytes."""
    return (
        f'{{"order_id":"ord-{i:09d}","user_id":{r.randrange(10**6)},"status":"{r.choice(STATES)}",'
        f'"amount":{r.random() * 1000:.2f},"quantity":{r.randrange(1, 20)},"paid":{r.choice(("true", "false"))}}}'
    )


def debezium(i: int, r: Random) -> str:
    """A Debezium event with its source."""
    before = "null" if i % 3 == 0 else image(i, r)
    after = "null" if i % 3 == 2 else image(i, r)
    return (
        f'{{"before":{before},"after":{after},"source":{source(i)},"op":"{"cud"[i % 3]}","ts_ms":{1714566896000 + i}}}'
    )


def _schema() -> str:
    """The schema that Kafka Connect writes into each message, of about 1700 bytes."""
    kinds = ("string", "int64", "string", "double", "int32", "boolean")
    image = _struct("shop.orders.Value", _fields(dict(zip(ROW.names, kinds, strict=True))))
    numbers = dict.fromkeys(("ts_ms", "server_id", "pos", "row"), "int64")
    strings = dict.fromkeys(("version", "connector", "name", "snapshot", "db", "table", "gtid", "file"), "string")
    origin = _struct("io.debezium.connector.mysql.Source", _fields({**strings, **numbers}))
    members = [{**image, "field": "before"}, {**image, "field": "after"}, {**origin, "field": "source"}]
    whole = _struct("shop.orders.Envelope", members + _fields({"op": "string", "ts_ms": "int64"}))
    return json.dumps(whole, separators=(",", ":"))


def _fields(kinds: dict[str, str]) -> list[dict[str, Any]]:
    return [{"type": kind, "optional": True, "field": name} for name, kind in kinds.items()]


def _struct(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "struct", "fields": fields, "optional": True, "name": name}


def with_schema(i: int, r: Random) -> str:
    """A Debezium event with its schema."""
    return f'{{"schema":{SCHEMA},"payload":{debezium(i, r)}}}'


def ogg(i: int, r: Random) -> str:
    """A message of GoldenGate."""
    before = "null" if i % 3 == 0 else image(i, r)
    after = "null" if i % 3 == 2 else image(i, r)
    return (
        f'{{"table":"SHOP.ORDERS","op_type":"{"IUD"[i % 3]}","op_ts":"2024-05-01 12:34:56.{i % 10**6:06d}",'
        f'"pos":"{i:020d}","before":{before},"after":{after}}}'
    )


def maxwell(i: int, r: Random) -> str:
    """A message of Maxwell."""
    kind = ("insert", "update", "delete")[i % 3]
    old = ',"old":{"status":"NEW","amount":1.00}' if i % 3 == 1 else ""
    return f'{{"database":"shop","table":"orders","type":"{kind}","ts":1714566896,"data":{image(i, r)}{old}}}'


def canal(i: int, r: Random) -> str:
    """A message of Canal with one row."""
    kind = ("INSERT", "UPDATE", "DELETE")[i % 3]
    old = '[{"status":"NEW","amount":"1.00"}]' if i % 3 == 1 else "null"
    return (
        f'{{"data":[{image(i, r)}],"database":"shop","es":1714566896000,"id":{i},"isDdl":false,"old":{old},'
        f'"pkNames":["order_id"],"sql":"","table":"orders","ts":1714566896123,"type":"{kind}"}}'
    )


def csv(i: int, r: Random) -> str:
    """The same row as a line of CSV."""
    return f"ord-{i:09d},{r.randrange(10**6)},{r.choice(STATES)},{r.random() * 1000:.2f},{r.randrange(1, 20)},true"


SCHEMA = _schema()
_BOTH = f"before STRUCT<{SPARK_ROW}>, after STRUCT<{SPARK_ROW}>"
CASES: tuple[tuple[ChangeJson, Callable[[int, Random], str], str, tuple[str, ...]], ...] = (
    (DebeziumJson(), debezium, f"{_BOTH}, op STRING", ("source.timestamp", "source.table")),
    (
        DebeziumJson(schema_include=True),
        with_schema,
        f"payload STRUCT<{_BOTH}, op STRING>",
        ("source.timestamp", "source.table"),
    ),
    (OggJson(), ogg, f"{_BOTH}, op_type STRING", ("event-timestamp", "table")),
    (
        MaxwellJson(),
        maxwell,
        f"data STRUCT<{SPARK_ROW}>, old STRUCT<{SPARK_ROW}>, type STRING",
        ("database", "ingestion-timestamp"),
    ),
    (
        CanalJson(),
        canal,
        f"data ARRAY<STRUCT<{SPARK_ROW}>>, old ARRAY<STRUCT<{SPARK_ROW}>>, type STRING",
        ("database", "pk-names"),
    ),
)


def cases(count: int) -> Iterator[Case]:
    """The cases of the four dialects, and of csv."""
    for format_, message, schema, _ in CASES:
        r = Random(1)
        strings = [message(i, r) for i in range(count)]
        with_schemas = isinstance(format_, DebeziumJson) and format_.schema_include
        yield Case(
            format_.identifier,
            binary(strings),
            ROW,
            format_.decoder(ROW),
            format_.encoder(ROW),
            strings,
            schema,
            goal=1.0,
            reference={"debezium-json.schema-include": "true"} if with_schemas else {},
            variant="with schema" if with_schemas else "",
        )
    r = Random(1)
    lines = binary([csv(i, r) for i in range(count)])
    strings = [image(i, r) for i in range(count)]
    yield Case("csv", lines, ROW, Csv().decoder(ROW), Csv().encoder(ROW), strings, SPARK_ROW, goal=1.0)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000, help="messages of one batch")
    parser.add_argument("--times", type=int, default=30, help="number of runs; the best counts")
    parser.add_argument("--alone", action="store_true", help="without from_json, which needs Spark")
    args = parser.parse_args()
    count, times = args.records, args.times
    pa.set_cpu_count(1)
    spark = None if args.alone else session()

    def line(name: str, rows: float, messages: float = 0.0, theirs: float = 0.0) -> None:
        relative = f"{theirs / 1e6:9.3f} M/s {messages / theirs:7.2f}" if theirs else ""
        print(f"{name:44s} {rows / 1e6:7.3f} M/s {relative}", flush=True)

    print(f"{'':44s} {'kdsl':>11s} {'from_json':>13s} {'ratio':>7s}")
    for format_, message, schema, keys in CASES:
        r = Random(1)
        strings = [message(i, r) for i in range(count)]
        theirs = 0.0 if spark is None else from_json_rate(spark, strings, schema)
        batch = pa.array([text.encode() for text in strings], pa.binary())
        for variant, use, min_batch in (
            ("", Use(), 48),
            (", metadata", Use(metadata=keys), 48),
            (", reference", Use(), count + 1),
        ):
            decoder = ChangeDecoder(format_.change_rules(ROW, use), min_batch=min_batch)
            shown = rate(lambda d=decoder, b=batch: d.decode(b), count, 3 if min_batch > 48 else times)  # type: ignore[misc]
            rows = shown * len(decoder.decode(batch).rows) / count
            line(
                f"read {format_.identifier}{' with schema' * format_.change_rules(ROW).payload}{variant}",
                rows,
                shown,
                theirs if min_batch == 48 else 0.0,
            )
        decoded = decoder.decode(batch)
        encoder = format_.encoder(ROW)
        line(
            f"write {format_.identifier}",
            rate(lambda e=encoder, d=decoded: e.encode(d.rows, d.kinds), len(decoded.rows), times),  # type: ignore[misc]
        )
    r = Random(1)
    theirs = 0.0 if spark is None else from_json_rate(spark, [image(i, r) for i in range(count)], SPARK_ROW)
    batch = pa.array([csv(i, r).encode() for i in range(count)], pa.binary())
    reader, writer = Csv().decoder(ROW), Csv().encoder(ROW)
    shown = rate(lambda: reader.decode(batch), count, times)
    line("read csv", shown, shown, theirs)
    line("write csv", rate(lambda: writer.encode(reader.decode(batch).rows), count, times))
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
