"""Measure the cost of metrics and of commits to the group for a stream of JSON, in pairs of runs.

``python -m bench.metrics_cost [--records N] [--batch N] [--pairs N]``. The runs to compare with
have no reports of tasks, no statistics of the clients, no commits and no query listener. The goal is that all of them
take at most 3 % of the time: a ratio of at least 0.97.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from bench.machine import facts, fill, session
from bench.paired import compare
from bench.tables import Orders, OrdersOut
from kdsl import Cluster, metrics
from kdsl.run.listeners.listener import _listeners
from kdsl.run.metrics.source_reports import SWITCH
from kdsl.testing import LocalKafka

PARTITIONS = 4
GOAL = 0.97
OFF = {
    "commit.offsets.on.checkpoint": "false",
    "register.consumer.metrics": "false",
    "register.producer.metrics": "false",
}


class Jobs:
    """A stream over a filled topic.

    Args:
        spark: The session.
        bootstrap: The brokers.
        records: The number of records in the topic.
        batch: The maximum number of records of a micro-batch.
    """

    def __init__(self, spark: SparkSession, bootstrap: str, records: int, batch: int) -> None:
        self._spark, self._records = spark, records
        each = {"group.id": "bench"}
        self._on = Cluster(bootstrap, properties=each)
        self._off = Cluster(bootstrap, properties={**each, **OFF})
        self._source: Any = type("Source", (Orders,), {}, topic="orders", max_records_per_trigger=batch)

    def run(self, *, on: bool, copy: bool) -> None:
        """Read the topic as a stream, and discard the rows or write them to another topic.

        Args:
            on: Whether to use metrics and commits.
            copy: Whether to write the orders to the topic ``out``.
        """
        cluster = self._on if on else self._off
        self._spark.conf.set(SWITCH, str(on).lower())
        rows = self._source.read_stream(self._spark, cluster)
        with tempfile.TemporaryDirectory() as checkpoint:
            if not on:
                self._forget()
            if copy:
                query = OrdersOut.write_stream(rows, cluster, checkpoint=checkpoint, trigger={"availableNow": True})
                if not on:
                    self._forget()
            else:
                writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
                query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            if on:
                source = metrics(query).source
                assert source.num_records_in == self._records, source.num_records_in

    @staticmethod
    def _forget() -> None:
        for listener in _listeners.values():
            assert listener.in_spark is not None
            listener.session.streams.removeListener(listener.in_spark)
        _listeners.clear()


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=500_000, help="the maximum number of records of a micro-batch")
    parser.add_argument("--pairs", type=int, default=7)
    args = parser.parse_args()
    out = Console()
    with LocalKafka(topics={"orders": PARTITIONS, "out": PARTITIONS}) as kafka, session("metrics cost") as spark:
        fill(kafka.bootstrap_servers, "orders", args.records, partitions=PARTITIONS)
        jobs = Jobs(spark, kafka.bootstrap_servers, args.records, args.batch)
        out.print(json.dumps(facts(), default=str), highlight=False, soft_wrap=True)
        for name, copy in (("JSON stream into nothing", False), ("JSON stream into a topic", True)):
            pair = compare(
                name,
                lambda copy=copy: jobs.run(on=True, copy=copy),  # type: ignore[misc]
                lambda copy=copy: jobs.run(on=False, copy=copy),  # type: ignore[misc]
                records=args.records,
                pairs=args.pairs,
                goal=GOAL,
            )
            out.print(pair.describe(), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
