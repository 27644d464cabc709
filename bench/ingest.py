"""Measure ingestions: ``python -m bench.ingest [CASE …] [--records N] [--pairs N]``, or ``python -m bench ingest``.

Prints a table with the target of each figure, and what it is compared with in the same run: streams of declared
tables, hand-written PySpark, the same merges by hand, and the reference engine where it is installed
(`bench.reference_engine`). What is paired runs in turn, A B B A … (`bench.paired`). All figures are stored as JSON in
bench/results/.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import attrs
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table as Grid

from bench import observe
from bench.cases import binary
from bench.ingest_baselines import EngineCopies, find_schema_by_hand, read_by_hand, run_stream
from bench.ingest_batches import TOUCHED, Batches, MergeBench, MergedTables
from bench.machine import facts, fill, session
from bench.paired import Pair, Run, compare, interval, measure
from bench.reference_engine import ReferenceEngine, missing
from bench.tables import CanalOrders, Orders
from kdsl import Cluster
from kdsl.formats import TableId
from kdsl.ingest import Blackhole, Ingestion, KafkaFeed, KafkaTopics, Pipeline, Sink
from kdsl.ingest.schema_changes import UpstreamTable
from kdsl.ingest.state import IngestState, Note, StateFiles
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.testing import LocalKafka
from kdsl.types import model as t
from kdsl.types.widening import TableSchema
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.json import Json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RESULTS = Path(__file__).parent / "results"
PARTITIONS, TABLES, COLUMNS, ROUNDS = 4, 1000, 100, 30
OBSERVED = 100_000
"""How many records are observed at once; more take longer and show no more."""


@attrs.frozen
class Figure:
    """A line of the table.

    Attributes:
        name: What is measured.
        measured: The figure, with its unit.
        target: What it should be.
        met: Whether it is.
        beside: What it is compared with.
        values: The figures as numbers.
    """

    name: str
    measured: str
    target: str
    met: bool
    beside: str = ""
    values: dict[str, Any] = attrs.field(factory=dict)


def describe_pair(pair: Pair, target: str, other: str, *more: str) -> Figure:
    """The figure of a comparison, whose target is its ratio."""
    assert pair.goal is not None
    low, high = pair.interval
    measured = f"{pair.rate(pair.ours):,.0f} records/s; {pair.ratio:.3f} ({low:.3f} to {high:.3f})"
    beside = "; ".join([f"{other} {pair.rate(pair.theirs):,.0f}", *more])
    return Figure(pair.name, measured, target, pair.ratio >= pair.goal, beside, pair.json())


class Cases:
    """The cases, over a broker.

    Args:
        spark: The session.
        kafka: The broker.
        folder: Where checkpoints and tables are.
        records: How many records of each kind are read.
        pairs: How many pairs of runs there are.
        engine: The reference engine; None if it is not installed.
    """

    def __init__(
        self,
        spark: SparkSession,
        kafka: LocalKafka,
        folder: Path,
        records: int,
        pairs: int,
        engine: ReferenceEngine | None = None,
    ) -> None:
        self.spark, self.kafka, self.folder, self.records, self.pairs = spark, kafka, folder, records, pairs
        self.cluster = Cluster(kafka.bootstrap_servers)
        self.engine = None if engine is None else EngineCopies(engine, kafka.bootstrap_servers, records)
        self._numbers = count()
        self._filled: set[str] = set()

    def new_folder(self) -> str:
        """A folder that does not exist."""
        return str(self.folder / f"f{next(self._numbers)}")

    def fill_orders(self) -> str:
        """Fill the topic of orders, once; return its name."""
        if "orders" not in self._filled:
            self.kafka.create_topic("orders", PARTITIONS)
            fill(self.kafka.bootstrap_servers, "orders", self.records, partitions=PARTITIONS)
            self._filled.add("orders")
        return "orders"

    def produce(self, topic: str, messages: Iterable[str]) -> None:
        """Create a topic, and write messages to its partitions in turn."""
        self.kafka.create_topic(topic, PARTITIONS)
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 50})
        for i, message in enumerate(messages):
            while True:
                try:
                    producer.produce(topic, message.encode(), partition=i % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(120):
            raise RuntimeError(f"{topic} was not filled")

    def feed(self, topic: str, value: Any, **options: Any) -> KafkaFeed:
        """A source of a topic from its beginning."""
        return KafkaFeed(self.cluster, topic=(topic,), value=value, startup="earliest-offset", **options)

    def run(self, feed: KafkaFeed, sink: Sink, **parts: Any) -> None:
        """Run an ingestion up to what there is."""
        query = Ingestion(feed, sink, **parts).run(self.spark, self.new_folder(), once=True)
        query.awaitTermination()

    # records

    def observe(self) -> Iterator[Figure]:
        """Observing alone, on one core: the columns are known already."""
        random, size = Random(7), min(self.records, OBSERVED)
        texts = [observe.plain(i, random) for i in range(size)]
        rate = observe.rate(Json(), binary(texts))
        lines = "\n".join(texts).encode()
        other = size / observe.seconds(partial(observe.infer_lines, lines))
        yield Figure(
            "observe JSON, one core", f"{rate:,.0f} records/s", "2,500,000", rate >= 2.5e6,
            f"pyarrow.json, with its inference: {other:,.0f}", {"rate": rate, "pyarrow.json": other},
        )  # fmt: skip

    def json(self) -> Iterator[Figure]:
        """One table, whose columns its newest records show at the start, against a stream of the declared table."""
        topic = self.fill_orders()
        pair = compare(
            "JSON, one table, dropped",
            lambda: self.run(self.feed(topic, Json()), Blackhole()),
            lambda: run_stream(Orders.read_stream(self.spark, self.cluster), self.new_folder()),
            records=self.records, pairs=self.pairs, goal=0.6,
        )  # fmt: skip
        works: dict[str, Callable[[], object]] = {
            "from_json by hand": lambda: run_stream(
                read_by_hand(self.spark, self.kafka.bootstrap_servers, topic), self.new_folder()
            ),
            "schema_of_variant_agg by hand": lambda: find_schema_by_hand(
                self.spark, self.kafka.bootstrap_servers, topic
            ),
        }
        others = {name: self._median_rate(work) for name, work in works.items()}
        if self.engine is not None:
            others["reference engine, typed"] = self.engine.read(topic, self.pairs)
        yield describe_pair(
            pair, "0.6 of the declared table", "declared table", *(f"{n} {rate:,.0f}" for n, rate in others.items())
        )

    def letters(self) -> Iterator[Figure]:
        """Dead letters, while no record is bad: against an ingestion that fails at the first one."""
        topic = self.fill_orders()
        self.kafka.create_topic("letters", PARTITIONS)
        pipeline = Pipeline(collector="kafka", collector_topic="letters")
        pair = compare(
            "dead letters, no bad record",
            lambda: self.run(self.feed(topic, Json(), ignore_errors=True), Blackhole(), pipeline=pipeline),
            lambda: self.run(self.feed(topic, Json()), Blackhole()),
            records=self.records, pairs=self.pairs, goal=0.98,
        )  # fmt: skip
        yield describe_pair(pair, "0.98 of none", "none")

    def kafka_to_kafka(self) -> Iterator[Figure]:
        """Changes of 20 tables of one topic into another topic, at least once.

        The reference engine copies the same messages in turn, as changes of one declared table. The ratio is that of
        both without their starts: less the time of a run over no records.
        """
        random = Random(7)
        texts = (
            observe.debezium(i, random).replace('"table":"orders"', f'"table":"t{i % 20}"') for i in range(self.records)
        )
        self.produce("changes", texts)

        def copy(source: str) -> Run:
            topic = self.kafka.create_topic(f"changed-{next(self._numbers)}", PARTITIONS)
            run = measure(lambda: self.run(self.feed(source, DebeziumJson()), KafkaTopics(self.cluster, topic=topic)))
            self.kafka.delete_topic(topic)  # its files would fill the disk
            return run

        copies, beside = partial(copy, "changes"), ""
        if self.engine is None:
            runs = [copies() for _ in range(self.pairs + 1)][1:]
        else:
            target = self.kafka.create_topic("engine-out", PARTITIONS)
            jobs = self.engine.prepare_change_copy("changes", target)
            starts = [statistics.median(start().wall for _ in range(3)) for start in
                      (partial(copy, self.kafka.create_topic("no-changes", PARTITIONS)), jobs["nothing"])]  # fmt: skip
            pair = compare("", copies, jobs["everything"], records=self.records, pairs=self.pairs)
            runs = list(pair.ours)
            rates = [[self.records / (run.wall - start) for run in side]
                     for start, side in zip(starts, (pair.ours, pair.theirs), strict=True)]  # fmt: skip
            ratios = [mine / theirs for mine, theirs in zip(*rates, strict=True)]
            low, high = interval(ratios)
            beside = (
                f"without starts ({starts[0]:.1f} and {starts[1]:.1f} s) {statistics.median(rates[0]):,.0f}; reference "
                f"engine, the same messages, one declared table {statistics.median(rates[1]):,.0f}, "
                f"ratio {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})"
            )
            rate = self.engine.copy(self.fill_orders(), target, self.pairs)
            self.kafka.delete_topic("engine-out")
            beside += f"; reference engine, JSON to JSON, one declared table {rate:,.0f}"
        yield self._rate("debezium-json, 20 tables, to Kafka", 250_000, [run.wall for run in runs], beside)

    def canal(self) -> Iterator[Figure]:
        """Changes that say their types."""
        random = Random(7)
        self.produce("canal", (observe.canal(i, random) for i in range(self.records)))
        value = CanalJson(infer_strategy="SQL_TYPE")
        pair = compare(
            "",
            lambda: self.run(self.feed("canal", value), Blackhole()),
            lambda: run_stream(CanalOrders.read_stream(self.spark, self.cluster), self.new_folder()),
            records=self.records, pairs=self.pairs,
        )  # fmt: skip
        beside = f"declared table {pair.rate(pair.theirs):,.0f}"
        yield self._rate("canal-json, SQL_TYPE, dropped", 300_000, [run.wall for run in pair.ours], beside)

    def _rate(self, name: str, goal: int, seconds: Sequence[float], beside: str) -> Figure:
        """The records per second of the median of some runs."""
        low, middle, high = (self.records / s for s in (max(seconds), statistics.median(seconds), min(seconds)))
        measured = f"{middle:,.0f} records/s ({low:,.0f} to {high:,.0f})"
        return Figure(name, measured, f"{goal:,}", middle >= goal, beside, {"seconds": list(seconds)})

    def _median_rate(self, work: Callable[[], object]) -> float:
        """Records per second of the median of some runs after a warm-up."""
        runs = [measure(work).wall for _ in range(self.pairs + 1)][1:]
        return self.records / statistics.median(runs)

    # tables

    def tables(self) -> Iterator[Figure]:
        """A thousand tables of one topic into Kafka: their creation, and batches that touch all or some of them."""
        topic, checkpoint = "tables", self.new_folder()
        ingestion = self._ingest_tables(topic)
        batches = Batches()
        self._touch(topic, range(TABLES))
        start = time.perf_counter()
        query = ingestion.run(self.spark, checkpoint)
        try:
            batches.wait(query, TABLES)
            seconds = time.perf_counter() - start
            yield Figure(
                f"{TABLES:,} tables of a topic are created", f"{seconds:.1f} s", "60 s", seconds <= 60,
                values={"seconds": seconds},
            )  # fmt: skip
            yield self._touch_some(query, batches, topic)
            milliseconds = []
            for _ in range(3):
                self._touch(topic, range(TABLES))
                milliseconds.append(batches.wait(query, TABLES))
        finally:
            query.stop()
        each = statistics.median(milliseconds) / TABLES
        yield Figure(
            f"a batch of {TABLES:,} tables, for each", f"{each:.2f} ms", "20 ms", each <= 20,
            values={"milliseconds": milliseconds},
        )  # fmt: skip
        yield from self._restart(ingestion, checkpoint, topic)
        yield measure_state(Path(self.new_folder()))

    def _ingest_tables(self, topic: str) -> Ingestion:
        """An ingestion of a new topic, whose messages name their table, into another new topic."""
        self.kafka.create_topic(topic)
        feed = self.feed(topic, Json(table_id_fields="t"), prefetch=0)
        return Ingestion(feed, KafkaTopics(self.cluster, topic=self.kafka.create_topic(f"{topic}-out")))

    def _touch_some(self, query: StreamingQuery, batches: Batches, topic: str) -> Figure:
        """Batches of three of many tables, in turn with those of an ingestion that has only one table."""
        other, alone = self._ingest_tables("table"), Batches()
        self._touch("table", range(1))
        single = other.run(self.spark, self.new_folder())
        sides = ((single, alone, "table", 1), (query, batches, topic, 1), (query, batches, topic, 3))
        milliseconds: list[list[float]] = [[], [], []]
        try:
            alone.wait(single, 1)
            for number in range(ROUNDS):
                for i in range(len(sides)) if number % 2 == 0 else range(len(sides))[::-1]:
                    running, own, name, touched = sides[i]
                    self._touch(name, range(touched))
                    milliseconds[i].append(own.wait(running, touched))
        finally:
            single.stop()
        only, one, three = map(statistics.median, milliseconds)
        more = statistics.median(b - a for a, b in zip(milliseconds[0], milliseconds[2], strict=True))
        return Figure(
            f"three of {TABLES:,} tables, more than the only one", f"{more:.0f} ms", "50 ms", more <= 50,
            f"the only one: {only:.0f} ms; one of {TABLES:,}: {one:.0f} ms, three: {three:.0f} ms",
            {"milliseconds": dict(zip(("only", "one", "three"), milliseconds, strict=True))},
        )  # fmt: skip

    def _touch(self, topic: str, tables: Iterable[int]) -> None:
        """Write one record with 20 columns for each of some tables."""
        members = ",".join(f'"c{value}":{value}' for value in range(20))
        self.kafka.produce(topic, *(f'{{"t":"t{i}",{members}}}' for i in tables))

    def _restart(self, ingestion: Ingestion, checkpoint: str, topic: str) -> Iterator[Figure]:
        """Start with all tables in the state, up to the end of a batch of one record; and ask for the status."""
        self._touch(topic, range(1))
        start = time.perf_counter()
        query = ingestion.run(self.spark, checkpoint)
        try:
            Batches().wait(query, 1)
            seconds = time.perf_counter() - start
        finally:
            query.stop()
        yield Figure(f"start with {TABLES:,} tables, and a batch", f"{seconds:.1f} s", "5 s", seconds <= 5,
                     values={"seconds": seconds})  # fmt: skip
        file = Path(checkpoint).with_suffix(".yaml")
        file.write_text(ingestion.to_yaml(), encoding="utf-8")
        command = [sys.executable, "-m", "kdsl", "ingest", str(file), "--checkpoint", checkpoint, "--status"]
        status = measure(partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)).wall
        yield Figure(f"--status of {TABLES:,} tables", f"{status:.1f} s", "2 s", status <= 2,
                     values={"seconds": status})  # fmt: skip

    # sinks

    def delta(self) -> Iterator[Figure]:
        """Batches of Delta tables against the same merges by hand, and a batch with a new column."""
        yield from self._merges(MergedTables.delta(self.folder))

    def postgres(self) -> Iterator[Figure]:
        """The same of tables of Postgres, if its programs are installed."""
        from tests import postgres

        if reason := postgres.missing():
            print(f"postgres: {reason}", file=sys.stderr)
            return
        with postgres.Postgres() as server:
            yield from self._merges(MergedTables.postgres(server))

    def _merges(self, tables: MergedTables) -> Iterator[Figure]:
        """Batches of tables of a sink against the same merges by hand, and a batch with a new column."""
        topic = self.kafka.create_topic(f"into-{tables.title.lower()}")
        feed = self.feed(topic, Json(table_id_fields="t"), prefetch=0)
        merges = MergeBench(self.spark, self.kafka, feed, tables).measure(self.new_folder(), self.pairs)
        own, hand = statistics.median(merges.batches), statistics.median(merges.by_hand)
        ratio = statistics.median(b / a for a, b in zip(merges.by_hand, merges.batches, strict=True))
        yield Figure(
            f"a batch of {TOUCHED} tables of {tables.title}", f"{own:.0f} ms; {ratio:.2f} of merges by hand", "1.1",
            ratio <= 1.1, f"merges by hand {hand:.0f} ms", {"batches": merges.batches, "by hand": merges.by_hand},
        )  # fmt: skip
        more = statistics.median(b - a for a, b in zip(merges.one_table, merges.one_wider, strict=True))
        yield Figure(
            f"a new column of {tables.title} in a batch", f"{more:.0f} ms more", "1,000 ms", more <= 1000,
            f"without {statistics.median(merges.one_table):.0f} ms",
            {"without": merges.one_table, "with": merges.one_wider},
        )  # fmt: skip


def measure_state(folder: Path) -> Figure:
    """The memory of the driver for what is known of many tables, read from a checkpoint."""
    schema = TableSchema(tuple(t.Field(f"column_{i}", t.BigInt()) for i in range(COLUMNS)))
    tables: dict[TableId, TableSchema] = {("shop", f"table_{i}"): schema for i in range(TABLES)}
    files = StateFiles(open_local_folder(folder))
    files.write(Note(0, {name: UpstreamTable(one) for name, one in tables.items()}, tables), IngestState())
    tracemalloc.start()
    state = files.load()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(state.sinks) == TABLES
    megabytes = size / 2**20
    return Figure(f"memory for {TABLES:,} tables of {COLUMNS} columns", f"{megabytes:.0f} MiB", "50 MiB",
                  megabytes <= 50, values={"bytes": size})  # fmt: skip


CASES = {
    "observe": Cases.observe,
    "json": Cases.json,
    "letters": Cases.letters,
    "kafka-to-kafka": Cases.kafka_to_kafka,
    "canal": Cases.canal,
    "tables": Cases.tables,
    "delta": Cases.delta,
    "postgres": Cases.postgres,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases, print a line for each figure and the table of all, and store them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{' '.join(CASES)}; all if none")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args(arguments)
    names = args.cases or list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"there is no case {unknown[0]!r}; there are {', '.join(CASES)}")
    console, figures = Console(soft_wrap=True), list[Figure]()
    if reason := missing():
        console.print(reason, highlight=False)
    with ExitStack() as stack:
        kafka = stack.enter_context(LocalKafka())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        spark = stack.enter_context(session("bench-ingest"))
        engine = None if reason else stack.enter_context(ReferenceEngine(2, reuse=True))
        cases = Cases(spark, kafka, folder, args.records, args.pairs, engine)
        for name in names:
            for figure in CASES[name](cases):
                figures.append(figure)
                beside = f"; {figure.beside}" if figure.beside else ""
                line = f"{figure.name}: {figure.measured}, target {figure.target}, {_verdict(figure)}{beside}"
                console.print(line, highlight=False)
    Console(width=160).print(grid(figures))
    store(figures, args.records, console)


def _verdict(figure: Figure) -> str:
    return "met" if figure.met else "missed"


def grid(figures: Iterable[Figure]) -> Grid:
    """All figures as a table."""
    table = Grid("what", "measured", "target", "", "beside")
    for figure in figures:
        table.add_row(figure.name, figure.measured, figure.target, _verdict(figure), figure.beside)
    return table


def store(figures: Iterable[Figure], records: int, console: Console) -> None:
    """Store figures as JSON in a new file."""
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    document = {"at": now.isoformat(), "machine": facts(), "records": records,
                "figures": [attrs.asdict(figure) for figure in figures]}  # fmt: skip
    path = RESULTS / f"ingest-{now:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    console.print(f"stored in {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
