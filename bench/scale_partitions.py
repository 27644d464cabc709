"""Measure micro-batches over many real partitions: their steps, the driver's planning process, the offset log.

``python -m bench.scale_partitions [--partitions N,N] [--upserts N,N] [--batches N]``. Each number of partitions has a
Kafka of its own with one topic of that many partitions. A query discards what it reads. A small batch has 1,000
records, or one record for each partition if that is more. A check without records is measured as the time until the
query has looked for records once more; the processor time of a waiting query is that of its planning process, in per
cent of a core.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Grid

from bench.machine import facts, fill, session
from bench.scale_simulated import slope
from bench.upsert_few_changes import produce
from kdsl import Cluster, Col, Json, KafkaTable, PrimaryKey, Raw, UpsertTable
from kdsl.errors import KafkaReadError
from kdsl.retry import Deadline, retry
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.testing import LocalKafka

RESULTS = Path(__file__).parent / "results"
SMALL = 1_000
"""The records of a small batch, unless there are more partitions."""
IDLE_SECONDS = 4.0
"""For how long the planning process of a waiting query is measured."""
STEP = 1_000
"""A topic is created with up to this many partitions, and gets more in such steps."""
PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
BROKER = {"log.index.size.max.bytes": "65536"}
"""Properties of the broker: an index is allocated in full when a partition gets its first records, 10 MB by default."""


class Plain(KafkaTable, topic="plain", value=Raw(), startup="earliest"):
    """A topic of records."""

    value: Col[bytes | None]


class ByPartition(UpsertTable, topic="users", key=Json(), value=Json(), changelog_state="partition"):
    """Users by id, whose last rows are found by topic partition."""

    user_id: PrimaryKey[int]
    name: Col[str | None]
    region: Col[str | None]
    score: Col[float | None]
    visits: Col[int | None]


class ByKey(ByPartition, topic="users", changelog_state="key"):
    """The same, whose last rows are found by key, after a shuffle."""


def requests(servers: str, topic: str, partitions: int) -> dict[str, float]:
    """Measure the median milliseconds of the admin client's requests for a topic and the offsets of its partitions."""
    admin = LibrdkafkaAdmin(Cluster(servers), "bench")
    names = [(topic, partition) for partition in range(partitions)]
    return {
        "topic": _milliseconds(lambda: admin.topics([topic])),
        "earliest": _milliseconds(lambda: admin.earliest(names)),
        "latest": _milliseconds(lambda: admin.latest(names, committed=False)),
    }


def _milliseconds(work: Callable[[], object], times: int = 7) -> float:
    """The median milliseconds of a call; the first one, which connects, does not count."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - began))
    return statistics.median(taken[1:])


def micro_batches(
    spark: SparkSession, servers: str, table: type[KafkaTable], add: Callable[[int], None], batches: int
) -> dict[str, float]:
    """Measure small batches of a table and checks without records; times are medians in milliseconds.

    Args:
        spark: The session.
        servers: The brokers.
        table: The table.
        add: Writes the records of the batch with a number.
        batches: How many small batches are measured, after a first one.
    """
    rows = table.read_stream(spark, Cluster(servers))
    with tempfile.TemporaryDirectory(prefix="kdsl-scale-") as checkpoint:
        query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        try:
            steps = []
            for batch in range(batches + 1):
                add(batch)
                query.processAllAvailable()
                steps += [dict(p.durationMs) for p in query.recentProgress if p.numInputRows][-1:]
            empty = _milliseconds(query.processAllAvailable, 11)
            planner = _planning_process()
            used, memory = _processor_seconds(planner), planner.memory_info().rss / 2**20
            time.sleep(IDLE_SECONDS)  # what is measured is a query that waits
            idle = 100 * (_processor_seconds(planner) - used) / IDLE_SECONDS
            return {
                **{name: statistics.median(step.get(name, 0) for step in steps[1:]) for name in steps[-1]},
                "empty": empty,
                "idle, %": idle,
                "planner, MiB": memory,
                "offset log, bytes": _offsets_size(Path(checkpoint)),
            }
        finally:
            query.stop()


def _planning_process() -> psutil.Process:
    """The youngest planning process of this session."""
    candidates = [
        process
        for process in psutil.Process().children(recursive=True)
        if process.status() != psutil.STATUS_ZOMBIE and PLANNER in process.cmdline()
    ]
    return max(candidates, key=lambda process: process.create_time())


def _processor_seconds(process: psutil.Process) -> float:
    """The processor time that a process has used."""
    times = process.cpu_times()
    return times.user + times.system


def _offsets_size(checkpoint: Path) -> int:
    """The bytes of the last entry of a query's offset log."""
    entries = [file for file in (checkpoint / "offsets").iterdir() if file.name.isdigit()]
    return max(entries, key=lambda file: int(file.name)).stat().st_size


def _raise_partitions(servers: str, topic: str, partitions: int) -> None:
    """Raise the number of partitions of a topic in steps, and wait each time until all leaders answer."""
    admin = LibrdkafkaAdmin(Cluster(servers), "bench")
    for count in range(2 * STEP, partitions + STEP, STEP):
        admin.raise_partitions(topic, min(count, partitions))
        names = [(topic, partition) for partition in range(min(count, partitions))]
        retry(lambda _, asked=names: _answers(admin, asked), bool, Deadline(300))  # type: ignore[misc]


def _answers(admin: LibrdkafkaAdmin, partitions: list[tuple[str, int]]) -> bool:
    """Ask the leaders of some partitions for offsets, and return whether all of them answer."""
    try:
        admin.latest(partitions, committed=False)
    except KafkaReadError:
        return False
    return True


def measure(spark: SparkSession, partitions: int, batches: int, *, upserts: bool) -> dict[str, dict[str, float]]:
    """Measure the requests and all tables with one number of partitions."""
    count = max(SMALL, partitions)
    topics = ["plain", "users"] if upserts else ["plain"]
    with LocalKafka(topics=dict.fromkeys(topics, min(STEP, partitions)), properties=BROKER, heap=1024) as kafka:
        servers = kafka.bootstrap_servers
        for topic in topics:
            _raise_partitions(servers, topic, partitions)
        fill(servers, "plain", count, partitions=partitions)
        result = {"requests": requests(servers, "plain", partitions)}
        result["plain"] = micro_batches(
            spark, servers, Plain, lambda _: fill(servers, "plain", count, partitions=partitions), batches
        )
        chance = random.Random(7)
        for name, table in (("by partition", ByPartition), ("by key", ByKey)) if upserts else ():
            result[name] = micro_batches(
                spark,
                servers,
                table,
                lambda batch: produce(servers, "users", chance.sample(range(100 * count), count), batch),
                batches,
            )
    return result


def main() -> None:
    """Measure, print the figures with their slopes, and store them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", default="100,1000,4000")
    parser.add_argument("--upserts", default="100,1000", help="of these, those with which upsert tables are measured")
    parser.add_argument("--batches", type=int, default=8)
    args = parser.parse_args()
    counts, of_upserts = (list(map(int, filter(None, names.split(",")))) for names in (args.partitions, args.upserts))
    out = Console(width=140)
    figures: dict[int, Any] = {}
    with session("scale of partitions") as spark:
        for count in counts:
            figures[count] = measure(spark, count, args.batches, upserts=count in of_upserts)
            out.print(count, figures[count], highlight=False)
    grid = Grid("of", "figure", *(f"{count:,}" for count in counts), "per 1,000")
    for of in ("requests", "plain", "by partition", "by key"):
        for name in next((one[of] for one in figures.values() if of in one), {}):
            points = [(count, one[of].get(name, 0)) for count, one in figures.items() if of in one]
            values = dict(points)
            cells = (f"{values[count]:,.1f}" if count in values else "" for count in counts)
            grid.add_row(of, name, *cells, f"{1000 * slope(points):,.1f}")
    out.print(grid)
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    path = RESULTS / f"scale-partitions-{now:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps({"at": now.isoformat(), "machine": facts(), "figures": figures}, indent=1))
    out.print(f"stored in {path.name}")


if __name__ == "__main__":
    main()
