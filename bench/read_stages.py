"""Measure the stages of a read in one process without Spark: the client, Arrow columns of its records, decoding.

``python -m bench.read_stages``. The constants of `kdsl.run.librdkafka.fetch` and
`kdsl.run.librdkafka.consumers` were chosen by the lines about sizes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping

import attrs
import pyarrow as pa
from rich.console import Console
from rich.table import Table as Grid

from bench.machine import fill
from bench.paired import measure
from bench.tables import Messages, Orders
from kdsl import Cluster
from kdsl.run.librdkafka import fetch as fetching
from kdsl.run.librdkafka.consumers import SIZES, FetchSize, borrow_consumer, discard
from kdsl.run.librdkafka.fetch import Fetcher
from kdsl.run.offsets.stored import Range
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import RAW
from kdsl.table import Table
from kdsl.testing import LocalKafka

TOPIC = "orders"
PARTITIONS = 4


class Stages:
    """The stages of reading a filled topic."""

    def __init__(self, cluster: Cluster, records: int) -> None:
        self.cluster = cluster
        each = records // PARTITIONS
        self.ranges = [Range(TOPIC, p, 0, each) for p in range(PARTITIONS)]

    def raw(self, needs: Iterable[str], size: FetchSize = SIZES[-1]) -> list[pa.RecordBatch]:
        """Fetch raw batches with some fields."""
        consumer = borrow_consumer(self.cluster, f"{size}", size, {"group.id": "bench"})
        return list(Fetcher(consumer, "Orders", set(needs), 60.0).read(self.ranges))

    def consume(self) -> None:
        """Run the client alone, whose messages are freed and not used."""
        consumer = borrow_consumer(self.cluster, f"{SIZES[-1]}", SIZES[-1], {"group.id": "bench"})
        for r in self.ranges:
            consumer.assign([r])
            left = len(r)
            while left > 0:
                with consumer.consume(min(left, fetching.CHUNK_RECORDS), 1.0) as messages:
                    left -= len(messages)
        consumer.pause()

    def decoding(self, table: type[Orders] | type[Messages]) -> Callable[[], object]:
        """The stage that fetches and decodes for a table."""
        plan = Table(table.definition()).read_plan()
        decoder = RecordDecoder(plan)

        def run() -> None:
            consumer = borrow_consumer(self.cluster, f"{SIZES[-1]}", SIZES[-1], {"group.id": "bench"})
            for raw in Fetcher(consumer, plan.table, decoder.needs, 60.0).read(self.ranges):
                decoder.decode(raw)

        return run

    def with_constant(self, name: str, value: int, run: Callable[[], object]) -> Callable[[], object]:
        """A stage with another value of a constant of `kdsl.run.librdkafka.fetch`."""

        def run_changed() -> None:
            before = getattr(fetching, name)
            setattr(fetching, name, value)
            try:
                run()
            finally:
                setattr(fetching, name, before)

        return run_changed

    def with_setting(self, settings: Mapping[str, int]) -> Callable[[], object]:
        """The stage that fetches values with other settings of the consumer."""
        size = attrs.evolve(SIZES[-1], settings={**SIZES[-1].settings, **settings})

        def run() -> None:
            self.raw({"value"}, size)
            discard(borrow_consumer(self.cluster, f"{size}", size, {"group.id": "bench"}))

        return run


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", action="store_true", help="also try other sizes")
    args = parser.parse_args()
    with LocalKafka(topics={TOPIC: PARTITIONS}) as kafka:
        fill(kafka.bootstrap_servers, TOPIC, args.records, partitions=PARTITIONS)
        stages = Stages(Cluster(kafka.bootstrap_servers), args.records)
        orders = stages.decoding(Orders)
        functions: dict[str, Callable[[], object]] = {
            "consume": stages.consume,
            "value": lambda: stages.raw({"value"}),
            "value, key": lambda: stages.raw({"value", "key"}),
            "value, timestamp": lambda: stages.raw({"value", "timestamp"}),
            "all fields": lambda: stages.raw(RAW),
            "raw format": stages.decoding(Messages),
            "json format": orders,
        }
        if args.sizes:
            for n in (1_000, 2_000, 4_000, 16_000, 32_000):
                functions[f"json format, chunks of {n}"] = stages.with_constant("CHUNK_RECORDS", n, orders)
            for n in (5_000, 10_000, 40_000, 80_000):
                functions[f"json format, batches of {n}"] = stages.with_constant("BATCH_RECORDS", n, orders)
            for n in (5_000, 10_000, 100_000):
                functions[f"value, {n} messages ahead"] = stages.with_setting({"queued.min.messages": n})
            for kb in (256, 1_024, 4_096, 8_192):
                functions[f"value, fetches of {kb} KB"] = stages.with_setting({"max.partition.fetch.bytes": kb * 1024})
        grid = Grid("stage", "records/s", "CPU s per million")
        for name, stage in functions.items():
            stage()
            best = min((measure(stage) for _ in range(args.rounds)), key=lambda run: run.cpu)
            grid.add_row(name, f"{args.records / best.wall:,.0f}", f"{best.cpu / args.records * 1e6:.2f}")
    Console().print(grid)


if __name__ == "__main__":
    main()
