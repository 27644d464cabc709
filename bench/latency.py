"""Measure how long a record takes from topic to topic: in micro-batches of kdsl and of Spark alone, and real-time mode.

``python -m bench.latency [--seconds N] [--rate N] [--rounds N] [--routes NAMES]`` prints the latencies in one
table, and for each route the median milliseconds of each step of a micro-batch, as Spark reports them. Each record
contains the time at which it was produced; a consumer notes the time at which the copy arrives. Records of the warm-up
do not count.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import attrs
from confluent_kafka import Consumer, Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table as Grid

from bench.machine import session
from bench.paired import measure
from kdsl import Cluster, Col, KafkaTable, Raw
from kdsl.testing import LocalKafka


class FromLibrdkafka(KafkaTable, topic="from", value=Raw(), startup="latest"):
    """The input over librdkafka."""

    stamp: Col[bytes | None]


class ToLibrdkafka(KafkaTable, topic="to", value=Raw()):
    """The output over librdkafka."""

    stamp: Col[bytes | None]


class FromJvm(KafkaTable, topic="from", value=Raw(), startup="latest", transport="jvm"):
    """The input over Spark's own connector."""

    stamp: Col[bytes | None]


class ToJvm(KafkaTable, topic="to", value=Raw(), transport="jvm"):
    """The output over Spark's own connector."""

    stamp: Col[bytes | None]


class FromRealtime(KafkaTable, topic="from", value=Raw(), startup="latest", transport="jvm", latency="realtime"):
    """The input in real-time mode."""

    stamp: Col[bytes | None]


class ToRealtime(KafkaTable, topic="to", value=Raw(), transport="jvm", latency="realtime"):
    """The output in real-time mode."""

    stamp: Col[bytes | None]


@attrs.frozen
class Route:
    """A route from topic to topic.

    Attributes:
        name: Its name.
        source: The table that is read.
        sink: The table that is written.
        trigger: The trigger; None for one micro-batch after the other.
    """

    name: str
    source: type[KafkaTable]
    sink: type[KafkaTable]
    trigger: Mapping[str, Any] | None = None

    def start(self, spark: SparkSession, bootstrap: str, folder: str) -> StreamingQuery:
        """Start the query with its checkpoint in a folder."""
        cluster = Cluster(bootstrap)
        rows = self.source.read_stream(spark, cluster)
        return self.sink.write_stream(rows, cluster, checkpoint=folder, trigger=self.trigger)


@attrs.frozen
class ByHand:
    """The same with Spark's own source and sink."""

    name: str

    def start(self, spark: SparkSession, bootstrap: str, folder: str) -> StreamingQuery:
        """Start the query with its checkpoint in a folder."""
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        rows = reader.option("subscribe", "from").option("startingOffsets", "latest").load().select("value")
        writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", "to")
        return writer.option("checkpointLocation", folder).start()


ROUTES: tuple[Route | ByHand, ...] = (
    ByHand("micro-batch, by hand"),
    Route("micro-batch, librdkafka", FromLibrdkafka, ToLibrdkafka),
    Route("micro-batch, jvm", FromJvm, ToJvm),
    Route("real-time mode, jvm", FromRealtime, ToRealtime, {"realTime": "1 minute"}),
)


def latencies(
    spark: SparkSession, bootstrap: str, route: Route | ByHand, seconds: float, rate: float, warm_up: float
) -> tuple[list[float], dict[str, float]]:
    """Measure the seconds that each record takes that is produced after the warm-up, and the steps of a micro-batch.

    Args:
        spark: The session.
        bootstrap: The brokers.
        route: The route.
        seconds: For how long records are counted.
        rate: The number of records per second.
        warm_up: The length of the warm-up in seconds, from the arrival of the first copy.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"bench-{time.time()}", "auto.offset.reset": "latest",
         "fetch.wait.max.ms": 1}
    )  # fmt: skip
    assigned: list[Any] = []
    consumer.subscribe(["to"], on_assign=lambda _, partitions: assigned.extend(partitions))
    while not assigned:
        consumer.poll(0.1)
    seconds_taken: list[float] = []
    with tempfile.TemporaryDirectory(prefix="kdsl-latency-") as folder:
        query = route.start(spark, bootstrap, folder)
        try:
            counted: float | None = None
            due = began = time.time()
            deadline = due + 120
            while (counted is None or time.time() < counted + seconds) and query.isActive:
                if time.time() >= due:
                    producer.produce("from", repr(time.time()).encode())
                    producer.poll(0)
                    due += 1 / rate
                message = consumer.poll(0.0005)
                if message is not None and message.error() is None:
                    stamp, now = float(message.value() or b"0"), time.time()
                    if stamp < began:
                        continue  # of the route before
                    counted = now + warm_up if counted is None else counted
                    if stamp > counted:
                        seconds_taken.append(now - stamp)
                elif counted is None and time.time() > deadline:
                    raise RuntimeError(f"{route.name}: nothing arrived within two minutes")
            if (error := query.exception()) is not None:
                raise error
            batches = [dict(p.durationMs) for p in query.recentProgress if p.numInputRows][-50:]
        finally:
            query.stop()
            producer.flush(10)
            consumer.close()
    steps = {name for batch in batches for name in batch}
    return sorted(seconds_taken), {
        name: statistics.median(batch.get(name, 0) for batch in batches) for name in sorted(steps)
    }


def quantile(values: list[float], share: float) -> str:
    """A quantile in milliseconds."""
    return f"{1000 * values[min(len(values) - 1, int(share * len(values)))]:.1f}" if values else "-"


def main() -> None:
    """Measure all routes, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--warm-up", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=1, help="how often the routes are measured, one after the other")
    parser.add_argument("--routes", default="", help="only the routes that contain one of these words, by commas")
    args = parser.parse_args()
    wanted = args.routes.split(",")
    routes = [route for route in ROUTES if any(text in route.name for text in wanted)]
    grid = Grid("from topic to topic", "records", "p50, ms", "p90, ms", "p99, ms", "most, ms", "processor, s")
    out = Console(width=120)
    with LocalKafka(topics={"from": 1, "to": 1}) as kafka, session("latency") as spark:
        for route in routes * args.rounds:
            measured: list[tuple[list[float], dict[str, float]]] = []
            used = measure(
                lambda of=route, to=measured: to.append(  # type: ignore[misc]
                    latencies(spark, kafka.bootstrap_servers, of, args.seconds, args.rate, args.warm_up)
                )
            )
            ((seconds_taken, steps),) = measured
            grid.add_row(
                route.name,
                f"{len(seconds_taken):,}",
                *(quantile(seconds_taken, share) for share in (0.5, 0.9, 0.99, 1)),
                f"{used.cpu:.1f}",
            )
            out.print(route.name, steps, highlight=False)
    out.print(grid)


if __name__ == "__main__":
    main()
