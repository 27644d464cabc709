"""What dead letters cost a JSON read: paired with the plain read.

``python -m bench.dead_letters_cost [--records N] [--pairs N]`` measures dead letters with three row rules, dead letters
alone, and dead letters where one record of a hundred is bad. The goal is that they cost at most 3 % while no record is
bad: a ratio of at least 0.97. With bad records the plain read drops them (``ignore_parse_errors``).
"""

from __future__ import annotations

import argparse
import json
from functools import partial

from pyspark.sql import SparkSession
from rich.console import Console

from bench.__main__ import compute
from bench.machine import facts, fill, session
from bench.paired import compare
from bench.tables import CheckedOrdersWithLetters, DirtyOrders, DirtyOrdersWithLetters, Orders, OrdersWithLetters
from kdsl import Cluster, KafkaTable
from kdsl.testing import LocalKafka

PARTITIONS = 4
GOAL = 0.97


def read_all(table: type[KafkaTable], spark: SparkSession, cluster: Cluster) -> None:
    """Read and decode all records of a table."""
    compute(table.read(spark, cluster))


def main() -> None:
    """Fill the topics, run the comparisons, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=7)
    args = parser.parse_args()
    console = Console(width=110)
    with LocalKafka(topics=dict.fromkeys(("orders", "dirty-orders", "dead-orders"), PARTITIONS)) as kafka:
        fill(kafka.bootstrap_servers, "orders", args.records)
        fill(kafka.bootstrap_servers, "dirty-orders", args.records, dirty=0.01)
        cluster = Cluster(kafka.bootstrap_servers)
        with session("bench") as spark:
            for name, with_letters, plain, goal in (
                ("dead letters and three rules, no bad record", CheckedOrdersWithLetters, Orders, GOAL),
                ("dead letters, no bad record", OrdersWithLetters, Orders, GOAL),
                ("dead letters, 1 % bad", DirtyOrdersWithLetters, DirtyOrders, None),
            ):
                pair = compare(
                    name,
                    partial(read_all, with_letters, spark, cluster),
                    partial(read_all, plain, spark, cluster),
                    records=args.records,
                    pairs=args.pairs,
                    goal=goal,
                )
                console.print(pair.describe(), highlight=False, soft_wrap=True)
                console.print(json.dumps({**pair.json(), "machine": facts()}, default=str), highlight=False)


if __name__ == "__main__":
    main()
