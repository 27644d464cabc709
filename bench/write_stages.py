"""Measure the stages of a write in one process without Spark: encoding rows, and passing records to librdkafka.

``python -m bench.write_stages``. The sink does not use ``confluent_kafka.Producer``; its lines are for comparison.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table as Grid

from bench.paired import measure
from bench.tables import OrdersOut
from kdsl import Cluster
from kdsl.declare.metadata import METADATA
from kdsl.plan.model import MetadataColumn, WritePlan
from kdsl.resolve.model import Topics
from kdsl.run.librdkafka.task_writer import write_rows
from kdsl.run.records.encode import RecordEncoder
from kdsl.table import Table
from kdsl.testing import LocalKafka
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema

PLAN = Table(OrdersOut.definition()).write_plan()
BATCH = 10_000
TOPIC = "orders"
SMALL = {"retention.bytes": "300000000", "segment.bytes": "50000000"}  # keeps many rounds from filling the disk


def orders() -> pa.RecordBatch:
    """A batch of rows of `OrdersOut`."""
    at = datetime(2024, 1, 1, tzinfo=UTC)
    functions: dict[str, Callable[[int], Any]] = {
        "order_id": lambda i: f"2024010100{i:08}",
        "order_channel": lambda i: ("webShop", "appShop", "miniAppShop")[i % 3],
        "order_time": lambda i: at.replace(second=i % 60, microsecond=i % 1000 * 1000, tzinfo=None),
        "pay_amount": lambda i: Decimal(i * 7 % 100_000) / 100,
        "quantity": lambda i: i % 9,
        "user_id": lambda i: i * 31 % 100_000,
        "user_name": lambda i: f"user {i % 1000}",
        "paid": lambda i: i % 3 == 0,
        "area_id": lambda i: f"{330_000 + i % 100}",
    }
    schema = arrow_schema(PLAN.columns)
    columns = [pa.array([functions[f.name](i) for i in range(BATCH)], f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def records(values: pa.Array) -> pa.RecordBatch:
    """Raw records with a key, a timestamp and a header."""
    return pa.record_batch(
        {
            "key": pa.array([b"%d" % i for i in range(len(values))], pa.binary()),
            "value": values,
            "timestamp": pa.array(np.arange(len(values)) + 1_700_000_000_000_000, pa.timestamp("us", tz="UTC")),
            "headers": pa.array([[("trace", b"0123456789abcdef")]] * len(values), pa.map_(pa.string(), pa.binary())),
        }
    )


def sink(names: Iterable[str], cluster: Cluster, batches: list[pa.RecordBatch]) -> Callable[[], object]:
    """The stage that writes raw records with these fields as the sink does."""
    keys = {"key": "__raw_key__", "value": "__raw_value__", "timestamp": "timestamp", "headers": "headers"}
    shown = tuple(MetadataColumn(name, keys[name], METADATA[keys[name]].type.as_nullable()) for name in names)
    row = t.Row(tuple(t.Field(m.column, m.type) for m in shown))
    plan = WritePlan("Orders", Topics((TOPIC,)), row, metadata=shown)
    return lambda: write_rows(plan, cluster, batches)


def by_record(settings: dict[str, str], batches: list[pa.RecordBatch]) -> None:
    """Call ``produce`` for each record."""
    failed: list[object] = []
    producer = Producer({**settings, "on_delivery": lambda error, _: failed.append(error), **_QUIET})
    produce = producer.produce
    for batch in batches:
        for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            while True:
                try:
                    produce(TOPIC, value, key)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    assert not failed


def by_list(settings: dict[str, str], batches: list[pa.RecordBatch]) -> None:
    """Call ``produce_batch`` for each batch."""
    failed: list[object] = []
    producer = Producer({**settings, "on_delivery": lambda error, _: failed.append(error), **_QUIET})
    for batch in batches:
        pairs = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        left = [{"key": key, "value": value} for key, value in pairs]
        while producer.produce_batch(TOPIC, left) < len(left):
            left = [{"key": m["key"], "value": m["value"]} for m in left if "_error" in m]
            producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    assert not failed


_QUIET: dict[str, Any] = {"delivery.report.only.error": True, "log_level": 0}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    count = max(1, args.records // BATCH)
    rows = orders()
    encoder = RecordEncoder(PLAN)
    raw = [records(encoder.encode(rows).column("value"))] * count
    with LocalKafka() as kafka:
        kafka.create_topic(TOPIC, 4, config=SMALL)
        cluster = Cluster(kafka.bootstrap_servers)
        settings = cluster.producer({"queue.buffering.max.messages": 100_000})

        def encode() -> None:
            for _ in range(count):
                encoder.encode(rows)

        stages: dict[str, Callable[[], object]] = {
            "encode JSON": encode,
            "send key and value": sink(("key", "value"), cluster, raw),
            "send with timestamp": sink(("key", "value", "timestamp"), cluster, raw),
            "send with timestamp and header": sink(("key", "value", "timestamp", "headers"), cluster, raw),
            "Producer.produce": lambda: by_record(settings, raw),
            "Producer.produce_batch": lambda: by_list(settings, raw),
        }
        grid = Grid("stage", "records/s", "CPU s per million")
        for name, stage in stages.items():
            stage()
            best = min((measure(stage) for _ in range(args.rounds)), key=lambda run: run.wall)
            total = count * BATCH
            grid.add_row(name, f"{total / best.wall:,.0f}", f"{best.cpu / total * 1e6:.2f}")
    Console().print(grid)


if __name__ == "__main__":
    main()
