"""What three row rules cost a read of JSON without bad records: the same read with and without them, in turn.

``python -m bench.row_rules [--records N] [--pairs N]``. The goal is a ratio of at least 0.97.
"""

from __future__ import annotations

import argparse
import json

from rich.console import Console

from bench.__main__ import compute
from bench.machine import facts, fill, session
from bench.paired import compare
from bench.tables import CheckedOrders, Orders
from kdsl import Cluster
from kdsl.testing import LocalKafka

PARTITIONS = 4
GOAL = 0.97


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=7)
    arguments = parser.parse_args()
    out = Console()
    with LocalKafka(topics={"orders": PARTITIONS}) as kafka, session("row rules") as spark:
        fill(kafka.bootstrap_servers, "orders", arguments.records, partitions=PARTITIONS)
        cluster = Cluster(kafka.bootstrap_servers)
        out.print(json.dumps(facts(), default=str), highlight=False, soft_wrap=True)
        pair = compare(
            "JSON read, three rules and no bad record",
            lambda: compute(CheckedOrders.read(spark, cluster)),
            lambda: compute(Orders.read(spark, cluster)),
            records=arguments.records,
            pairs=arguments.pairs,
            goal=GOAL,
        )
        out.print(pair.describe(), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
