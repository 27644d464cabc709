"""Measure how kdsl scales with the number of partitions, columns, tables and records.

``python -m bench.scale`` measures an empty and a small micro-batch over 4 and over 1,000 partitions, resolving and
planning wide and many tables, and the memory of Python workers over 20,000,000 records.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from bench.machine import facts, fill, session
from kdsl import Cluster, Col, Json, KafkaTable, Raw
from kdsl.declare.document import read_tables
from kdsl.plan.build import read_plan
from kdsl.resolve import resolve
from kdsl.testing import LocalKafka

RESULTS = Path(__file__).parent / "results"
BATCHES = 12
SMALL = 1000


class Narrow(KafkaTable, topic="narrow", value=Raw(), startup="earliest"):
    """A topic of 4 partitions."""

    value: Col[bytes | None]


class Broad(KafkaTable, topic="broad", value=Raw(), startup="earliest"):
    """A topic of 1,000 partitions."""

    value: Col[bytes | None]


class Long(KafkaTable, topic="long", value=Json(), startup="earliest", max_records_per_trigger=1_000_000):
    """A topic of many records, read in batches of a million."""

    order_id: Col[str | None]
    quantity: Col[int | None]
    user_name: Col[str | None]


def definitions() -> dict[str, float]:
    """Measure the seconds to resolve and plan a table of 500 columns, and 200 tables of 20 columns in one file."""
    options = "{connector: kafka, topic: t, format: json}"
    wide = ", ".join(f'{{name: c{i}, type: "DECIMAL(10, 2)"}}' for i in range(500))
    columns = ", ".join(f"{{name: c{i}, type: STRING NOT NULL}}" for i in range(20))
    many = "tables:\n" + "".join(f"  - {{name: t{i}, columns: [{columns}], options: {options}}}\n" for i in range(200))
    one = read_tables(f"name: wide\ncolumns: [{wide}]\noptions: {options}")
    several = read_tables(many)
    classes = [_table_class(i) for i in range(200)]
    return {
        "500 columns": seconds(lambda: [read_plan(resolve(table, "read")) for table in one]),
        "200 tables": seconds(lambda: [read_plan(resolve(table, "read")) for table in several]),
        "200 classes": seconds(lambda: [read_plan(resolve(table.definition(), "read")) for table in classes]),
    }


def _table_class(index: int) -> type[KafkaTable]:
    body: dict[str, Any] = {"__annotations__": {f"c{i}": Col[str] for i in range(20)}, "__module__": __name__}
    return type(f"T{index}", (KafkaTable,), body, topic="t", value=Json())


def seconds(work: Callable[[], object]) -> float:
    """The elapsed time of one call, in seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def micro_batches(spark: SparkSession, kafka: LocalKafka, table: type[KafkaTable], partitions: int) -> dict[str, float]:
    """Measure the median seconds of a small micro-batch, and of a check that finds no records, for a table."""
    cluster = Cluster(kafka.bootstrap_servers)
    topic = table.definition().options.topic[0]
    with running(table.read_stream(spark, cluster)) as query:
        small = []
        for _ in range(BATCHES):
            fill(kafka.bootstrap_servers, topic, SMALL, partitions=partitions)
            query.processAllAvailable()
            last = [p for p in query.recentProgress if p["numInputRows"]][-1:]
            small += [p["durationMs"]["triggerExecution"] / 1000 for p in last]
        empty = [seconds(query.processAllAvailable) for _ in range(BATCHES)]
    return {"small": statistics.median(small[2:]), "empty": statistics.median(empty[2:])}


@contextmanager
def running(df: DataFrame) -> Iterator[StreamingQuery]:
    """Run a query that discards what it reads."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = df.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        try:
            yield query
        finally:
            query.stop()


def memory(spark: SparkSession, kafka: LocalKafka) -> dict[str, list[float]]:
    """Measure the resident memory of the Python workers in MiB after each tenth of a long stream: largest and sum."""
    samples: list[tuple[float, float]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            sizes = [_resident(p) for p in psutil.Process().children(recursive=True) if "python" in _name(p)]
            if sizes:
                samples.append((max(sizes), sum(sizes)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with running(Long.read_stream(spark, Cluster(kafka.bootstrap_servers))) as query:
            query.processAllAvailable()
            rows = sum(p["numInputRows"] for p in query.recentProgress)
    finally:
        done.set()
        watcher.join()
    tenths = [samples[int(i * (len(samples) - 1) / 10)] for i in range(11)]
    return {"rows": [rows], "largest": [round(a) for a, _ in tenths], "all": [round(b) for _, b in tenths]}


def _resident(process: psutil.Process) -> float:
    try:
        return process.memory_info().rss / 2**20
    except psutil.NoSuchProcess:
        return 0.0


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def main() -> None:
    """Measure, print and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--records", type=int, default=20_000_000, help="records of the memory measurement; 0 to omit it"
    )
    args = parser.parse_args()
    console = Console()
    figures: dict[str, Any] = {"definitions": definitions()}
    console.print(figures)
    with LocalKafka(topics={"narrow": 4, "broad": 1000, "long": 4}) as kafka, session("bench scale") as spark:
        figures["4 partitions"] = micro_batches(spark, kafka, Narrow, 4)
        figures["1000 partitions"] = micro_batches(spark, kafka, Broad, 1000)
        console.print({k: figures[k] for k in ("4 partitions", "1000 partitions")})
        if args.records:
            fill(kafka.bootstrap_servers, "long", args.records)
            figures["memory"] = memory(spark, kafka)
            console.print(figures["memory"])
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    path = RESULTS / f"scale-{now:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps({"at": now.isoformat(), "machine": facts(), **figures}, indent=1), encoding="utf-8")
    console.print(f"stored in {path.name}")


if __name__ == "__main__":
    main()
