"""Measure whether the memory of an upsert read stays constant, with a million keys in state that each batch changes.

``python -m bench.upsert_memory [--keys N] [--batch N] [--batches N] [--state NAME]``. The first batches contain each
key once; then ``--batches`` (20) of the same size contain random updates, and one delete in ten. After each batch it
prints the resident memory of the Python workers and of the JVM, the live objects on Java's heap after a collection, and
the size of the state: keys, and bytes of their rows. Files that are mapped into memory count as resident. At the end it
prints the growth from the first to the last quarter of the later batches, by the median.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import psutil
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from bench.machine import facts, session
from bench.upsert import PARTITIONS, Users, ours
from kdsl import metrics
from kdsl.testing import LocalKafka

RESULTS = Path(__file__).parent / "results"
TOPIC = Users.definition().options.topic[0]
MEMORY = ("workers", "largest_worker", "jvm", "heap")


@attrs.frozen
class Sample:
    """The figures after a batch; sizes in MiB.

    Attributes:
        batch: The batch's id.
        seconds: How long it took.
        records: The records read so far.
        workers: Resident memory of all Python workers.
        largest_worker: Resident memory of the largest one.
        jvm: Resident memory of the JVM.
        heap: The live objects on Java's heap, after a collection.
        keys: The number of keys in the state.
        state: The bytes of their rows.
    """

    batch: int
    seconds: float
    records: int
    workers: float
    largest_worker: float
    jvm: float
    heap: float
    keys: int | None
    state: float | None


def fill(bootstrap: str, keys: int, updates: int) -> None:
    """Produce each key once, and then updates and deletes of random keys."""
    settings = {"linger.ms": 50, "batch.size": 1_000_000, "queue.buffering.max.messages": 3_000_000}
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", **settings})
    chance = random.Random(7)
    value = b'{"user_id":%d,"name":"customer-%06d","region":"region-%02d","score":%d.5,"visits":%d}'
    for i in range(keys + updates):
        k = i if i < keys else chance.randrange(keys)
        row = None if i >= keys and chance.random() < 0.1 else value % (k, k, i % 50, i % 1000, i)
        while True:
            try:
                producer.produce(TOPIC, row, b'{"user_id":%d}' % k)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError(f"{TOPIC} was not filled")


class Machine:
    """The processes of a session.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._java: Any = spark._jvm.java  # type: ignore[union-attr]  # noqa: SLF001
        self._process = psutil.Process(int(self._java.lang.ProcessHandle.current().pid()))

    def sample(self, query: StreamingQuery, progress: dict[str, Any]) -> Sample:
        """Measure the current figures."""
        self._java.lang.System.gc()
        runtime = self._java.lang.Runtime.getRuntime()
        workers = [size for p in self._process.children(recursive=True) if (size := _resident(p))]
        source = metrics(query).source
        return Sample(
            progress["batchId"],
            progress["durationMs"]["triggerExecution"] / 1000,
            source.num_records_in,
            round(sum(workers)),
            round(max(workers, default=0.0)),
            round(_resident(self._process)),
            round((runtime.totalMemory() - runtime.freeMemory()) / 2**20),
            source.num_keys_in_state,
            None if source.state_bytes is None else round(source.state_bytes / 2**20, 1),
        )


def _resident(process: psutil.Process) -> float:
    try:
        return process.memory_info().rss / 2**20
    except psutil.NoSuchProcess:
        return 0.0


def run(spark: SparkSession, bootstrap: str, batch: int, batches: int, state: str, out: Console) -> list[Sample]:
    """Read the topic to its end, and take a sample after each batch."""
    machine, samples = Machine(spark), list[Sample]()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = ours(spark, bootstrap, TOPIC, batch, state=state).writeStream.format("noop")
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            while not samples or samples[-1].batch < batches - 1:
                last = query.lastProgress
                progress = json.loads(last.json) if last is not None else {}
                if progress.get("numInputRows") and (not samples or progress["batchId"] > samples[-1].batch):
                    samples.append(machine.sample(query, progress))
                    out.print(json.dumps(attrs.asdict(samples[-1])), highlight=False, soft_wrap=True)
                if not query.isActive:
                    raise RuntimeError(str(query.exception()))
                time.sleep(0.1)
        finally:
            query.stop()
    return samples


def growth(samples: list[Sample]) -> dict[str, str]:
    """The median of the first and of the last quarter, for each kind of memory."""
    quarter = max(1, len(samples) // 4)
    medians = {}
    for name in MEMORY:
        first, last = (
            statistics.median(getattr(s, name) for s in some) for some in (samples[:quarter], samples[-quarter:])
        )
        medians[name] = f"{first:,.0f} MiB, then {last:,.0f} MiB ({(last - first) / max(first, 1):+.1%})"
    return medians


def main() -> None:
    """Measure, print and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=200_000, help="the records of a micro-batch")
    parser.add_argument("--batches", type=int, default=20, help="number of batches after each key was read once")
    parser.add_argument("--state", default="key", help="the value of changelog_state")
    args = parser.parse_args()
    out = Console()
    filling = -(-args.keys // args.batch)
    with LocalKafka(topics={TOPIC: PARTITIONS}) as kafka, session("upsert memory") as spark:
        fill(kafka.bootstrap_servers, filling * args.batch, args.batches * args.batch)
        samples = run(spark, kafka.bootstrap_servers, args.batch, filling + args.batches, args.state, out)
    growths = growth([sample for sample in samples if sample.batch >= filling])
    for name, change in growths.items():
        out.print(f"{name}: {change}", highlight=False)
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    path = RESULTS / f"upsert-memory-{now:%Y%m%d-%H%M%S}.json"
    document = {
        "at": now.isoformat(),
        "machine": facts(),
        "growth": growths,
        "samples": [attrs.asdict(s) for s in samples],
    }
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    out.print(f"stored in {path.name}")


if __name__ == "__main__":
    main()
