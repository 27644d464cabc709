"""Compare upsert tables with a hand-written ``transformWithState`` by key, and the upsert sink with the append sink.

Change data with ``cdc-events-duplicate`` is compared with the upsert table of the same rows: as debezium-json with and
without before-images.

``python -m bench.upsert [--records N] [--batch N] [--keys N,N] [--skew SHARE] [--states NAMES] [--theirs N]
[--pairs N] [--only]``. Both sides read JSON, by default 2,000,000 upserts in micro-batches of the same size, store the
last row of each key (the hand-written query in RocksDB, kdsl in files), and discard the changes with their
before-images. The rate excludes the first batch, which starts workers; the processor time is that of the whole query.
The hand-written query gets fewer records (``--theirs``), in ten batches, because all records would take it half an
hour. ``--only`` leaves out change data and the sink.

If the reference engine is installed (see `bench.reference_engine`), it reads the same topic with ``upsert-kafka`` into
``blackhole`` with two tasks, in turn with kdsl, measured from the submission of a job to its end, less the time of an
empty job. A first run of each side does not count.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import attrs
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row, SparkSession, functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from rich.console import Console

from bench.machine import facts, session
from bench.paired import Pair, Run, compare, interval, measure
from bench.reference_engine import ReferenceEngine, missing
from kdsl import Cluster, Col, DebeziumJson, Json, KafkaTable, Key, PrimaryKey, UpsertTable
from kdsl.testing import LocalKafka

PARTITIONS = 4
SCHEMA = "user_id BIGINT, name STRING, region STRING, score DOUBLE, visits BIGINT"
CHANGED = f"_row_kind STRING, {SCHEMA}"
CHANGE = Row("_row_kind", "user_id", "name", "region", "score", "visits")
GOALS = {5_000: 2.0, 1_000_000: 20.0}
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Users(UpsertTable, topic="users", key=Json(), value=Json()):
    """Users by id."""

    user_id: PrimaryKey[int]
    name: Col[str | None]
    region: Col[str | None]
    score: Col[float | None]
    visits: Col[int | None]


class Changes(
    KafkaTable,
    topic="changes",
    key=Json(),
    value=DebeziumJson(),
    cdc_events_duplicate=True,
    startup="earliest",
):
    """The same users as changes of a database."""

    user_id: PrimaryKey[int]
    name: Col[str | None]
    region: Col[str | None]
    score: Col[float | None]
    visits: Col[int | None]


class Appended(KafkaTable, topic="appended", key=Json(), value=Json()):
    """The output for the same rows, appended."""

    user_id: Key[int]
    name: Col[str | None]
    region: Col[str | None]
    score: Col[float | None]
    visits: Col[int | None]


class Upserted(Users, topic="upserted"):
    """The output for the same rows, as upserts."""


class ByHand(StatefulProcessor):
    """Stores the last row of each key, as in Spark's guide."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._last = handle.getValueState("last", "name STRING, region STRING, score DOUBLE, visits BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timer_values: Any) -> Iterator[Row]:  # noqa: ARG002, N802
        """Return the changes of a key."""
        last = self._last.get() if self._last.exists() else None
        for row in sorted(rows, key=lambda r: (r.partition, r.offset)):
            value = (row.name, row.region, row.score, row.visits)
            if last is None:
                yield CHANGE("+I", key[0], *value)
            elif value != tuple(last):
                yield CHANGE("-U", key[0], *last)
                yield CHANGE("+U", key[0], *value)
            last = value
        if last is not None:
            self._last.update(last)

    def close(self) -> None:
        """Release nothing: there are no resources."""


@attrs.frozen
class Rate:
    """Records per second after the first batch, and the processor time of the whole query in seconds per million."""

    records: float
    batches: int
    cpu: float


ROW = b'{"user_id":%d,"name":"customer-%06d","region":"region-%02d","score":%d.5,"visits":%d}'
CHANGE_DATA = {"default": b'{"before":null,"after":%b,"op":"u"}', "full": b'{"before":%b,"after":%b,"op":"u"}'}
"""Debezium's change events if PostgreSQL's REPLICA IDENTITY of the table is DEFAULT, and if it is FULL."""


def fill(bootstrap: str, topic: str, records: int, keys: int, change: bytes = b"%b", skew: float = 0.0) -> None:
    """Fill a topic with upserts of random keys.

    Args:
        bootstrap: The brokers.
        topic: The topic.
        records: The number of upserts.
        keys: The number of keys.
        change: The template of a message, which contains the row once or twice.
        skew: The share of the records that all have the first key.
    """
    settings = {"linger.ms": 50, "batch.size": 1_000_000, "queue.buffering.max.messages": 3_000_000}
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", **settings})
    chance = random.Random(7)
    for i in range(records):
        k = chance.randrange(keys)
        if skew and chance.random() < skew:
            k = 0
        row = ROW % (k, k, i % 50, i % 1000, i)
        value = change % ((row,) * change.count(b"%b"))
        while True:
            try:
                producer.produce(topic, value, b'{"user_id":%d}' % k)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError(f"{topic} was not filled")


def ours(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    batch: int,
    base: type[KafkaTable] = Users,
    state: str = "key",
    place: str | None = None,
) -> DataFrame:
    """The changelog of kdsl."""
    options = {"max_records_per_trigger": batch, "changelog_state": state, "state_location": place}
    table: Any = type("Users", (base,), {}, topic=topic, **options)
    return table.read_stream(spark, Cluster(bootstrap))  # type: ignore[no-any-return]


def by_hand(spark: SparkSession, bootstrap: str, topic: str, batch: int) -> DataFrame:
    """The changelog of a hand-written query."""
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(batch))
        .load()
    )
    rows = raw.select(sf.from_json(sf.col("value").cast("string"), SCHEMA).alias("v"), "partition", "offset")
    return (
        rows.select("v.*", "partition", "offset")
        .groupBy("user_id")
        .transformWithState(ByHand(), CHANGED, "append", "none")
    )


def rate(df: DataFrame) -> Rate:
    """Run a stream to the current end of its topic."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = df.writeStream.format("noop").option("checkpointLocation", checkpoint)
        progresses: list[dict[str, Any]] = []

        def run() -> None:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            progresses.extend(json.loads(progress.json) for progress in query.recentProgress)

        used = measure(run)
    busy = [p for p in progresses if p["numInputRows"]]
    seconds = sum(p["durationMs"]["triggerExecution"] for p in busy[1:]) / 1000
    cpu = used.cpu / sum(map(_records, busy)) * 1e6
    return Rate(sum(map(_records, busy[1:])) / seconds, len(busy) - 1, cpu)


def _records(progress: dict[str, Any]) -> int:
    """Return how many records a batch has read; kdsl's source returns chunks of them, which Spark counts as rows."""
    observed = [
        row["metrics"]["numRecordsIn"] for row in progress.get("observedMetrics", {}).values() if "metrics" in row
    ]
    return int(observed[0]) if observed else int(progress["numInputRows"])


class Reference:
    """A job of the reference engine for each topic, and the time of the same job over no records.

    Args:
        engine: The engine.
        bootstrap: The brokers.
        topic: The topic of upserts.
    """

    def __init__(self, engine: ReferenceEngine, bootstrap: str, topic: str) -> None:
        self._engine, self._bootstrap = engine, bootstrap
        self._job = self._declare(topic, topic, {"scan.bounded.mode": "latest-offset"})
        bound = {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": "0"}
        empty = self._declare(topic, f"{topic}-nothing", bound)
        measure(self._job)
        runs = [measure(empty) for _ in range(4)][1:]
        self._empty = Run(statistics.median(r.wall for r in runs), statistics.median(r.cpu for r in runs))

    def run(self) -> Run:
        """Read the topic once: the seconds of all records, less those of the empty job."""
        whole = measure(self._job)
        return Run(whole.wall - self._empty.wall, whole.cpu - self._empty.cpu)

    def _declare(self, topic: str, name: str, bound: dict[str, str]) -> Callable[[], object]:
        """Declare the tables of a job, and return the job."""
        columns = SCHEMA.replace("user_id BIGINT", "user_id BIGINT NOT NULL")
        table = name.replace("-", "_")
        options = {
            "connector": "upsert-kafka",
            "topic": topic,
            "properties.bootstrap.servers": self._bootstrap,
            "key.format": "json",
            "value.format": "json",
            **bound,
        }
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
        run = self._engine.run
        run(f"CREATE TABLE {table} ({columns}, PRIMARY KEY (user_id) NOT ENFORCED) WITH ({properties})")
        run(f"CREATE TABLE {table}_nowhere ({columns}) WITH ('connector' = 'blackhole')")
        return partial(run, f"INSERT INTO {table}_nowhere SELECT * FROM {table}")


def compare_change_data(
    spark: SparkSession, bootstrap: str, users: str, records: int, keys: int, batch: int, pairs: int, state: str
) -> Iterator[str]:
    """Compare change data with ``cdc-events-duplicate`` with the upsert table of the same rows, in pairs."""
    for identity, change in CHANGE_DATA.items():
        topic = f"changes-{identity}-{keys}"
        fill(bootstrap, topic, records, keys, change)
        rates = [
            (
                rate(ours(spark, bootstrap, topic, batch, Changes, state)),
                rate(ours(spark, bootstrap, users, batch, state=state)),
            )
            for _ in range(pairs)
        ]
        ratio = statistics.median(changes.records / upserts.records for changes, upserts in rates)
        ours_rate = statistics.median(changes.records for changes, _ in rates)
        yield (
            f"{keys:,} keys, change data (REPLICA IDENTITY {identity.upper()}), {state}: {ours_rate:,.0f} "
            f"records/s, {ratio:.2f} times the upsert table, goal 0.8"
        )


def compare_sinks(spark: SparkSession, bootstrap: str, records: int, pairs: int) -> Pair:
    """Compare the upsert sink with the append sink: the same rows from memory."""
    rows = spark.range(0, records, 1, PARTITIONS).selectExpr(
        "id % 100000 AS user_id",
        "concat('customer-', id % 100000) AS name",
        "concat('region-', id % 50) AS region",
        "(id % 1000) + 0.5D AS score",
        "id AS visits",
    )
    rows.cache().count()
    cluster = Cluster(bootstrap)
    return compare(
        "upserts",
        lambda: Upserted.write(rows, cluster),
        lambda: Appended.write(rows, cluster),
        records=records,
        pairs=pairs,
        goal=0.8,
    )


def run_in_turn(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    args: argparse.Namespace,
    states: Sequence[str],
    reference: Reference | None,
) -> tuple[dict[str, list[Rate]], list[Rate], list[Run]]:
    """Run kdsl with each kind of state, the hand-written query, and the reference engine in turn, A B B A …

    Returns:
        The runs of kdsl by kind of state, of the hand-written query, and of the reference engine.
    """
    mine: dict[str, list[Rate]] = {state: [] for state in states}
    other: list[Rate] = []
    engines: list[Run] = []
    for number in range(args.pairs + 1):
        if reference is not None and number % 2:
            engines.append(reference.run())
        for state in states:
            mine[state].append(rate(ours(spark, bootstrap, topic, args.batch, state=state)))
        if args.theirs and number:
            other.append(rate(by_hand(spark, bootstrap, f"{topic}-fewer", args.theirs // 10)))
        if reference is not None and not number % 2:
            engines.append(reference.run())
    return {state: rates[1:] for state, rates in mine.items()}, other, engines[1:]


def describe(rates: Sequence[float]) -> str:
    """Write the median of some rates, and all of them."""
    return f"{statistics.median(rates):,.0f} records/s ({', '.join(f'{rate:,.0f}' for rate in rates)})"


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=500_000, help="the records of a micro-batch")
    parser.add_argument("--keys", default="5000,1000000", help="numbers of keys, separated by commas")
    parser.add_argument("--theirs", type=int, default=500_000, help="the records of the hand-written query")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--skew", type=float, default=0.0, help="the share of records that have the same key")
    parser.add_argument("--states", default="partition,key", help="values of changelog_state")
    parser.add_argument("--only", action="store_true", help="neither change data nor the sink")
    args = parser.parse_args()
    out = Console()
    out.print(json.dumps(facts(), default=str), highlight=False, soft_wrap=True)
    with LocalKafka(topics={"appended": PARTITIONS, "upserted": PARTITIONS}) as kafka, session("upsert") as spark:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        servers = kafka.bootstrap_servers
        for keys in map(int, filter(None, args.keys.split(","))):
            topic = f"users-{keys}"
            for name in () if args.only else CHANGE_DATA:
                kafka.create_topic(f"changes-{name}-{keys}", PARTITIONS)
            for name, records in ((topic, args.records), (f"{topic}-fewer", args.theirs)):
                kafka.create_topic(name, PARTITIONS)
                fill(servers, name, records, keys, skew=args.skew)
            states = args.states.split(",")
            with ExitStack() as stack:
                reference = None
                if missing() is None:
                    engine = stack.enter_context(ReferenceEngine(2, reuse=True))
                    reference = Reference(engine, servers, topic)
                mine, other, engines = run_in_turn(spark, servers, topic, args, states, reference)
            if engines:
                rates, cpu = [args.records / r.wall for r in engines], statistics.median(r.cpu for r in engines)
                line = f"{keys:,} keys: reference engine {describe(rates)}, {cpu / args.records * 1e6:.2f} s "
                out.print(line + "of processor time per million", highlight=False, soft_wrap=True)
            for state, rates_of in mine.items():
                rates = [r.records for r in rates_of]
                line = f"{keys:,} keys, {state}: {describe(rates)}, "
                line += f"{statistics.median(r.cpu for r in rates_of):.2f} s of processor time per million"
                if other:
                    theirs = statistics.median(r.records for r in other)
                    line += f"; by hand {theirs:,.0f}, ratio {statistics.median(rates) / theirs:.1f}, "
                    line += f"goal {GOALS.get(keys)}"
                if engines:
                    ratios = [one * r.wall / args.records for one, r in zip(rates, engines, strict=True)]
                    low, high = interval(ratios)
                    line += f"; {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f}) of the reference engine"
                out.print(line, highlight=False, soft_wrap=True)
            for state in () if args.only else states:
                for line in compare_change_data(
                    spark, servers, topic, args.records, keys, args.batch, args.pairs, state
                ):
                    out.print(line, highlight=False, soft_wrap=True)
        if args.only:
            return
        pair = compare_sinks(spark, servers, args.records, args.pairs)
        out.print(
            f"sink: {pair.rate(pair.ours):,.0f} upserts/s, {pair.rate(pair.theirs):,.0f} appended/s; ratio "
            f"{pair.ratio:.2f} ({pair.interval[0]:.2f} to {pair.interval[1]:.2f}), goal 0.8",
            highlight=False,
            soft_wrap=True,
        )


if __name__ == "__main__":
    main()
