"""Compare kdsl with hand-written PySpark on Spark's own Kafka connector, in pairs of runs.

``python -m bench`` prints the ratios and stores all figures as JSON in bench/results/.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as F
from rich.console import Console
from rich.table import Table as Grid

from bench import ingest
from bench.machine import facts, fill, session
from bench.paired import Pair, compare
from bench.tables import Copies, DirtyOrders, Messages, Orders, OrdersOut
from kdsl import Cluster
from kdsl.testing import LocalKafka

RESULTS = Path(__file__).parent / "results"
PARTITIONS = 4
TOPICS = ("orders", "dirty-orders", "out")
CASES = ("raw-read", "json-read", "dirty-json-read", "raw-write", "json-write")


class Cases:
    """The comparisons, over filled topics."""

    def __init__(self, spark: SparkSession, bootstrap: str, records: int, pairs: int) -> None:
        self.spark, self.bootstrap, self.records, self.pairs = spark, bootstrap, records, pairs
        self.cluster = Cluster(bootstrap)

    def run(self, names: list[str]) -> Iterator[Pair]:
        """Run the comparisons with these names, or all of them."""
        cases = (self.raw_read, self.json_read, self.dirty_json_read, self.raw_write, self.json_write)
        for name, case in zip(CASES, cases, strict=True):
            if not names or name in names:
                yield case()

    def jvm(self, topic: str) -> DataFrame:
        """Read a topic with Spark's own connector."""
        return (
            self.spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )

    def raw_read(self) -> Pair:
        """Read values as bytes."""
        return self._compare(
            "raw read",
            lambda: compute(Messages.read(self.spark, self.cluster)),
            lambda: compute(self.jvm("orders").select("value")),
            goal=0.9,
        )

    def json_read(self) -> Pair:
        """Read valid orders from JSON."""
        return self._compare(
            "JSON read",
            lambda: compute(Orders.read(self.spark, self.cluster)),
            lambda: compute(parse_orders(self.jvm("orders"), "FAILFAST")),
            goal=1.5,
        )

    def dirty_json_read(self) -> Pair:
        """Read orders from JSON; one message in a hundred is invalid and skipped."""
        return self._compare(
            "JSON read, 1 % broken",
            lambda: compute(DirtyOrders.read(self.spark, self.cluster)),
            lambda: compute(parse_orders(self.jvm("dirty-orders"), "PERMISSIVE")),
            goal=1.5,
        )

    def raw_write(self) -> Pair:
        """Write values from memory as bytes."""
        values = self.cache(self.jvm("orders").select("value"))
        return self._compare(
            "raw write",
            lambda: Copies.write(values, self.cluster),
            lambda: self.jvm_write(values),
            goal=1.0,
        )

    def json_write(self) -> Pair:
        """Write orders from memory as JSON."""
        rows = self.cache(parse_orders(self.jvm("orders"), "FAILFAST"))
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

    def cache(self, df: DataFrame) -> DataFrame:
        """Cache the rows in memory, so that reading them costs both sides the same."""
        rows = df.cache()
        compute(rows)
        return rows

    def _compare(self, name: str, ours: Callable[[], object], theirs: Callable[[], object], goal: float) -> Pair:
        return compare(name, ours, theirs, records=self.records, pairs=self.pairs, goal=goal)


def fill_topics(bootstrap: str, records: int) -> None:
    """Fill the topics that the comparisons read; one message in a hundred of the dirty one is invalid."""
    fill(bootstrap, "orders", records)
    fill(bootstrap, "dirty-orders", records, dirty=0.01)


def compute(df: DataFrame) -> None:
    """Compute a DataFrame and discard its rows."""
    df.write.format("noop").mode("overwrite").save()


def parse_orders(df: DataFrame, mode: str) -> DataFrame:
    """Parse orders as hand-written PySpark does."""
    schema = Orders.value_schema()
    row = F.from_json(F.col("value").cast("string"), schema, {"mode": mode})
    return df.select(row.alias("row")).select("row.*")


def main() -> None:
    """Run the comparisons of tables, or with the argument ``ingest`` those of `bench.ingest`."""
    if sys.argv[1:2] == ["ingest"]:
        ingest.main(sys.argv[2:])
    else:
        compare_tables()


def compare_tables() -> None:
    """Fill the topics, run the comparisons, print and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"{' '.join(CASES)}; all if none")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--bootstrap", help="an external broker instead of a new one")
    args = parser.parse_args()
    console = Console(width=110)
    with LocalKafka(topics=dict.fromkeys(TOPICS, PARTITIONS)) as kafka:
        bootstrap = kafka.bootstrap_servers
        with console.status(f"filling two topics with {args.records:,} records"):
            fill_topics(bootstrap, args.records)
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
    console.print(f"stored in {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


def line(pair: Pair) -> str:
    """Format a comparison as one line."""
    low, high = pair.interval
    return f"{pair.name}: {pair.ratio:.2f} x ({low:.2f} to {high:.2f})"


def grid(pairs: list[Pair]) -> Grid:
    """Format all comparisons as a table."""
    table = Grid("case", "kdsl, rec/s", "PySpark, rec/s", "ratio", "95 %", "goal", "kdsl, CPU s/M", "PySpark, CPU s/M")
    for p in pairs:
        low, high = p.interval
        goal = "" if p.goal is None else f"{p.goal:.1f} {'met' if p.ratio >= p.goal else 'missed'}"
        table.add_row(
            p.name,
            f"{p.rate(p.ours):,.0f}",
            f"{p.rate(p.theirs):,.0f}",
            f"{p.ratio:.2f}",
            f"{low:.2f} to {high:.2f}",
            goal,
            f"{p.cpu(p.ours):.2f}",
            f"{p.cpu(p.theirs):.2f}",
        )
    return table


if __name__ == "__main__":
    main()
