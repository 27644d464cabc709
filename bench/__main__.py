"""Measure kdsl against hand-written PySpark on Spark's own Kafka connector, paired, in one run.

``python -m bench`` prints the ratios and keeps everything as JSON in bench/results/.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as F
from rich.console import Console
from rich.table import Table as Grid

from bench.machine import facts, fill, session
from bench.paired import Pair, compare
from bench.tables import Copies, DirtyOrders, Messages, Orders, OrdersOut
from kdsl import Cluster
from kdsl.testing import LocalKafka

RESULTS = Path(__file__).parent / "results"
PARTITIONS = 4


class Cases:
    """The comparisons, over topics that are filled already."""

    def __init__(self, spark: SparkSession, bootstrap: str, records: int, pairs: int) -> None:
        self.spark, self.bootstrap, self.records, self.pairs = spark, bootstrap, records, pairs
        self.cluster = Cluster(bootstrap)

    def run(self, names: list[str]) -> Iterator[Pair]:
        """The comparisons of the given names, or all."""
        cases: dict[str, Callable[[], Pair]] = {
            "raw-read": self.raw_read,
            "json-read": self.json_read,
            "dirty-json-read": self.dirty_json_read,
            "raw-write": self.raw_write,
            "json-write": self.json_write,
        }
        for name, case in cases.items():
            if not names or name in names:
                yield case()

    def jvm(self, topic: str) -> DataFrame:
        """A topic as Spark's own connector reads it."""
        return (
            self.spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )

    def raw_read(self) -> Pair:
        """The values as bytes."""
        return self._compare(
            "raw read",
            lambda: drain(Messages.read(self.spark, self.cluster)),
            lambda: drain(self.jvm("orders").select("value")),
            goal=0.9,
        )

    def json_read(self) -> Pair:
        """Orders from JSON, all good."""
        return self._compare(
            "JSON read",
            lambda: drain(Orders.read(self.spark, self.cluster)),
            lambda: drain(parsed(self.jvm("orders"), "FAILFAST")),
            goal=1.5,
        )

    def dirty_json_read(self) -> Pair:
        """Orders from JSON, one message of a hundred broken and skipped."""
        return self._compare(
            "JSON read, 1 % broken",
            lambda: drain(DirtyOrders.read(self.spark, self.cluster)),
            lambda: drain(parsed(self.jvm("dirty-orders"), "PERMISSIVE")),
            goal=1.5,
        )

    def raw_write(self) -> Pair:
        """The values as bytes, from memory."""
        values = self.cached(self.jvm("orders").select("value"))
        return self._compare(
            "raw write",
            lambda: Copies.write(values, self.cluster),
            lambda: self.jvm_write(values),
            goal=1.0,
        )

    def json_write(self) -> Pair:
        """Orders to JSON, from memory."""
        rows = self.cached(parsed(self.jvm("orders"), "FAILFAST"))
        encoded = rows.select(F.to_json(F.struct(*rows.columns)).alias("value"))
        return self._compare(
            "JSON write",
            lambda: OrdersOut.write(rows, self.cluster),
            lambda: self.jvm_write(encoded),
            goal=1.4,
        )

    def jvm_write(self, df: DataFrame) -> None:
        """Write with Spark's own connector."""
        df.write.format("kafka").option("kafka.bootstrap.servers", self.bootstrap).option("topic", "out").save()

    def cached(self, df: DataFrame) -> DataFrame:
        """The rows in memory, so that reading them costs both sides the same."""
        kept = df.cache()
        drain(kept)
        return kept

    def _compare(self, name: str, ours: Callable[[], object], theirs: Callable[[], object], goal: float) -> Pair:
        return compare(name, ours, theirs, records=self.records, pairs=self.pairs, goal=goal)


def drain(df: DataFrame) -> None:
    """Work a DataFrame out and throw it away."""
    df.write.format("noop").mode("overwrite").save()


def parsed(df: DataFrame, mode: str) -> DataFrame:
    """The orders as hand-written PySpark reads them."""
    schema = Orders.value_schema()
    row = F.from_json(F.col("value").cast("string"), schema, {"mode": mode})
    return df.select(row.alias("row")).select("row.*")


def main() -> None:
    """Fill the topics, run the comparisons, print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="raw-read json-read dirty-json-read raw-write json-write; all if none")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--bootstrap", help="an outside broker instead of one of its own")
    args = parser.parse_args()
    console = Console(width=110)
    with LocalKafka(topics=dict.fromkeys(("orders", "dirty-orders", "out"), PARTITIONS)) as kafka:
        bootstrap = kafka.bootstrap_servers
        with console.status(f"filling two topics with {args.records:,} records"):
            fill(bootstrap, "orders", args.records)
            fill(bootstrap, "dirty-orders", args.records, dirty=0.01)
        with session("bench") as spark:
            pairs = []
            for pair in Cases(spark, bootstrap, args.records, args.pairs).run(args.cases):
                pairs.append(pair)
                console.print(line(pair), highlight=False)
    console.print(grid(pairs))
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    document = {"at": now.isoformat(), "machine": facts(), "pairs": [p.json() for p in pairs]}
    path = RESULTS / f"{now:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    console.print(f"kept in {path.relative_to(Path.cwd())}" if path.is_relative_to(Path.cwd()) else f"kept in {path}")


def line(pair: Pair) -> str:
    """A comparison in a line."""
    low, high = pair.interval
    return f"{pair.name}: {pair.ratio:.2f} x ({low:.2f} to {high:.2f})"


def grid(pairs: list[Pair]) -> Grid:
    """All comparisons as a table."""
    made = Grid("case", "kdsl, rec/s", "PySpark, rec/s", "ratio", "95 %", "goal", "kdsl, CPU s/M", "PySpark, CPU s/M")
    for p in pairs:
        low, high = p.interval
        goal = "" if p.goal is None else f"{p.goal:.1f} {'met' if p.ratio >= p.goal else 'missed'}"
        made.add_row(
            p.name,
            f"{p.rate(p.ours):,.0f}",
            f"{p.rate(p.theirs):,.0f}",
            f"{p.ratio:.2f}",
            f"{low:.2f} to {high:.2f}",
            goal,
            f"{p.cpu(p.ours):.2f}",
            f"{p.cpu(p.theirs):.2f}",
        )
    return made


if __name__ == "__main__":
    main()
