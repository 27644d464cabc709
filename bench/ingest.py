"""Measure ingestions: ``python -m bench.ingest [CASE …] [--records N] [--pairs N]``, or ``python -m bench ingest``.

Each case prints a line with its goal. What is paired is compared with work by hand in turn, A B B A …
(`bench.paired`).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from bench.machine import fill, session
from bench.observe import canal, debezium
from bench.paired import compare
from bench.tables import Orders
from kdsl import Cluster
from kdsl.changelog import Batch
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.formats import ROW_KIND
from kdsl.ingest import Blackhole, DeltaTables, Ingestion, KafkaFeed, KafkaTopics, Pipeline, Sink, Transform
from kdsl.spark_internals.threads import run_in_session
from kdsl.testing import LocalKafka
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.json import Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS, TABLES, TOUCHED, ROUNDS = 4, 1000, 50, 30
KEYED = Transform(r"\.*.\.*", primary_keys=("id",))


class Cases:
    """The cases, over a broker.

    Args:
        spark: The session.
        kafka: The broker.
        folder: Where checkpoints and tables are.
        records: How many records of each kind are read.
        pairs: How many pairs of runs there are.
    """

    def __init__(self, spark: SparkSession, kafka: LocalKafka, folder: Path, records: int, pairs: int) -> None:
        self.spark, self.kafka, self.folder, self.records, self.pairs = spark, kafka, folder, records, pairs
        self.cluster = Cluster(kafka.bootstrap_servers)
        self._numbers = count()
        self._last_batch = -1

    def new_folder(self) -> str:
        """A folder that does not exist."""
        return str(self.folder / f"f{next(self._numbers)}")

    def produce(self, topic: str, messages: Iterable[str]) -> None:
        """Write messages to the partitions of a topic in turn."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 50})
        for i, message in enumerate(messages):
            producer.produce(topic, message.encode(), partition=i % PARTITIONS)
            if i % 10_000 == 0:
                producer.poll(0)
        producer.flush()

    def feed(self, topic: str, value: Any, **options: Any) -> KafkaFeed:
        """A source of a topic from its beginning."""
        return KafkaFeed(self.cluster, topic=(topic,), value=value, startup="earliest-offset", **options)

    def run(self, feed: KafkaFeed, sink: Sink, *, checkpoint: str | None = None, **parts: Any) -> None:
        """Run an ingestion up to what there is."""
        query = Ingestion(feed, sink, **parts).run(self.spark, checkpoint or self.new_folder(), once=True)
        query.awaitTermination()

    def steady(self) -> None:
        """One table whose columns are known, against a stream of the table as it is declared."""
        self.kafka.create_topic("orders", PARTITIONS)
        fill(self.kafka.bootstrap_servers, "orders", self.records, partitions=PARTITIONS)

        def read_declared_table() -> None:
            stream = Orders.read_stream(self.spark, self.cluster).writeStream.format("noop").trigger(availableNow=True)
            stream.option("checkpointLocation", self.new_folder()).start().awaitTermination()

        pair = compare(
            "JSON, one table, dropped",
            lambda: self.run(self.feed("orders", Json()), Blackhole()),
            read_declared_table, records=self.records, pairs=self.pairs, goal=0.6,
        )  # fmt: skip
        print(pair.describe(), flush=True)

    def kafka_to_kafka(self) -> None:
        """Changes of 20 tables of one topic into another topic, at least once."""
        random = Random(7)
        self.kafka.create_topic("changes", PARTITIONS)
        texts = (debezium(i, random).replace('"table":"orders"', f'"table":"t{i % 20}"') for i in range(self.records))
        self.produce("changes", texts)
        self.kafka.create_topic("changed", PARTITIONS)
        self._rate(
            "debezium-json, 20 tables, to Kafka", 250_000,
            lambda: self.run(self.feed("changes", DebeziumJson()), KafkaTopics(self.cluster, topic="changed")),
        )  # fmt: skip

    def canal(self) -> None:
        """Changes that say their types."""
        random = Random(7)
        self.kafka.create_topic("canal", PARTITIONS)
        self.produce("canal", (canal(i, random) for i in range(self.records)))
        value = CanalJson(infer_strategy="SQL_TYPE")
        self._rate("canal-json, SQL_TYPE, dropped", 300_000, lambda: self.run(self.feed("canal", value), Blackhole()))

    def _rate(self, name: str, goal: int, work: Callable[[], None]) -> None:
        """Print the records per second of the median of some runs after a warm-up."""
        work()
        rates = []
        for _ in range(self.pairs):
            start = time.perf_counter()
            work()
            rates.append(self.records / (time.perf_counter() - start))
        low, high = min(rates), max(rates)
        middle = statistics.median(rates)
        print(f"{name}: {middle:,.0f} records/s ({low:,.0f} to {high:,.0f}), goal {goal:,}", flush=True)

    def tables(self) -> None:
        """A thousand tables of one topic into Kafka: their creation, and batches that touch all or some of them."""
        topic, checkpoint = "tables", self.new_folder()
        self.kafka.create_topic(topic)
        self.kafka.create_topic("tables-out")
        feed = self.feed(topic, Json(table_id_fields="t"), prefetch=0)
        ingestion = Ingestion(feed, KafkaTopics(self.cluster, topic="tables-out"))
        columns = {f"c{i}": i for i in range(20)}
        self._touch(topic, range(TABLES), columns)
        start = time.perf_counter()
        query = ingestion.run(self.spark, checkpoint)
        self._wait(query, TABLES)
        print(f"{TABLES:,} tables are created: {time.perf_counter() - start:.1f} s, goal 60 s", flush=True)
        try:
            milliseconds: dict[int, list[float]] = {1: [], 3: [], TABLES: []}
            for number in range(ROUNDS):
                for touched in (1, 3) if number % 2 == 0 else (3, 1):
                    self._touch(topic, range(touched), columns)
                    milliseconds[touched].append(self._wait(query, touched))
            for _ in range(3):
                self._touch(topic, range(TABLES), columns)
                milliseconds[TABLES].append(self._wait(query, TABLES))
        finally:
            query.stop()
        one, three, all_ = (statistics.median(milliseconds[n]) for n in (1, 3, TABLES))
        pairs = [b - a for a, b in zip(milliseconds[1], milliseconds[3], strict=True)]
        more = statistics.median(pairs)
        print(
            f"a batch of one of {TABLES:,} tables: {one:.0f} ms; of three: {three:.0f} ms; {more:.0f} ms more in the "
            f"median pair, goal 50 ms", flush=True,
        )  # fmt: skip
        print(f"a batch of {TABLES:,} tables: {all_ / TABLES:.1f} ms a table, goal 20 ms", flush=True)
        self._restart(ingestion, checkpoint)

    def _touch(self, topic: str, tables: Iterable[int], columns: dict[str, int]) -> None:
        """Write one record of each of some tables."""
        members = ",".join(f'"{name}":{value}' for name, value in columns.items())
        self.kafka.produce(topic, *(f'{{"t":"t{i}",{members}}}' for i in tables))

    def _wait(self, query: StreamingQuery, records: int) -> float:
        """Wait until some records are processed, and return how many milliseconds their batches took."""
        total, milliseconds, last = 0, 0.0, self._last_batch
        while total < records:
            for progress in query.recentProgress:
                if progress.batchId > last:
                    last, total = progress.batchId, total + progress.numInputRows
                    milliseconds += progress.durationMs["triggerExecution"] if progress.numInputRows else 0
            assert query.isActive, query.exception()
            time.sleep(0.005)
        self._last_batch = last
        return milliseconds

    def _restart(self, ingestion: Ingestion, checkpoint: str) -> None:
        """Start with all tables in the state, and ask for the status."""
        start = time.perf_counter()
        query = ingestion.run(self.spark, checkpoint)
        while not query.lastProgress:
            time.sleep(0.01)
        print(f"the start with {TABLES:,} tables: {time.perf_counter() - start:.1f} s, goal 5 s", flush=True)
        query.stop()
        file = Path(checkpoint).with_suffix(".yaml")
        file.write_text(ingestion.to_yaml(), encoding="utf-8")
        command = [sys.executable, "-m", "kdsl", "ingest", str(file), "--checkpoint", checkpoint, "--status"]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print(f"--status of {TABLES:,} tables: {time.perf_counter() - start:.1f} s, goal 2 s", flush=True)

    def delta(self) -> None:
        """Batches of 50 Delta tables, against the same merges of rows that are there; and a batch with a new column."""
        topic, checkpoint, random = "lake", self.new_folder(), Random(7)
        self.kafka.create_topic(topic)
        feed = self.feed(topic, Json(table_id_fields="t"), prefetch=0)
        lake, ids = self.new_folder(), count()

        def produce(**more: int) -> None:
            members = "".join(f',"{name}":{value}' for name, value in more.items())
            rows = ((table, next(ids) % 5000, random.random()) for table in range(TOUCHED) for _ in range(20))
            self.kafka.produce(topic, *(f'{{"t":"t{t}","id":{i},"x":{x}{members}}}' for t, i, x in rows))

        def ingest(**more: int) -> None:
            produce(**more)
            transform = [Transform(r"\.*", primary_keys=("id",))]
            self.run(feed, DeltaTables(lake), checkpoint=checkpoint, transform=transform,
                     pipeline=Pipeline(sink_concurrency=4))  # fmt: skip

        by_hand = self.new_folder()
        targets = [DeltaTarget(f"{by_hand}/t{i}", is_path=True, schema_evolution=False) for i in range(TOUCHED)]
        batches = count()

        def merge_by_hand() -> None:
            number = next(batches)
            rows = [(next(ids) % 5000, random.random(), "+U") for _ in range(20)]
            frame = self.spark.createDataFrame(rows, f"id long, x double, {ROW_KIND} string").persist()
            _merge(self.spark, targets, frame, Batch("hand", number, str(number)))
            frame.unpersist()

        pair = compare(f"{TOUCHED} Delta tables a batch, against merges by hand", ingest, merge_by_hand,
                       records=TOUCHED * 20, pairs=self.pairs, goal=0.9)  # fmt: skip
        print(pair.describe(), flush=True)
        names = count()
        wide = compare(
            "a new column in each of them", lambda: ingest(**{f"n{next(names)}": 1}), ingest, records=TOUCHED * 20,
            pairs=self.pairs,
        )  # fmt: skip
        more = statistics.median(a.wall - b.wall for a, b in zip(wide.ours, wide.theirs, strict=True))
        print(f"{wide.describe()}; {more / TOUCHED * 1000:.0f} ms more a table, goal 1,000 ms", flush=True)


def _merge(spark: SparkSession, targets: Sequence[DeltaTarget], rows: DataFrame, batch: Batch) -> None:
    """Merge rows into tables, four at a time."""
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(run_in_session(spark, target.apply), rows, ("id",), batch) for target in targets]
    for future in futures:
        future.result()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases, and print a line for each."""
    names = ("steady", "kafka-to-kafka", "canal", "tables", "delta")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"{' '.join(names)}; all if none")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args(arguments)
    with LocalKafka() as kafka, tempfile.TemporaryDirectory() as folder, session("bench-ingest") as spark:
        cases = Cases(spark, kafka, Path(folder), args.records, args.pairs)
        for name in args.cases or names:
            getattr(cases, name.replace("-", "_"))()


if __name__ == "__main__":
    main()
