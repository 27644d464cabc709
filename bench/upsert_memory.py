"""Does the memory of an upsert read stay flat? A million keys in RocksDB, and batch after batch that changes them.

``python -m bench.upsert_memory [--keys N] [--batch N] [--batches N]``. First each key comes once, in batches of the
same size as later; then come ``--batches`` (20) of random updates and a tenth of deletes. Behind each batch it prints
what is resident of the Python workers and of the JVM, what is alive on Java's heap after a collection, what RocksDB
says that it holds in memory, and the size of the state: keys, and bytes of their rows. At the end stands how much the
median of the last quarter of the steady batches is above that of the first.
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
MEMORY = ("workers", "largest_worker", "jvm", "heap", "rocksdb")


@attrs.frozen
class Sample:
    """How things are behind a batch; sizes in MiB.

    Attributes:
        batch: The batch's id.
        seconds: How long it took.
        records: What was read so far.
        workers: Resident memory of all Python workers.
        largest_worker: That of the largest one.
        jvm: Resident memory of the JVM, RocksDB's included.
        heap: What is alive on Java's heap, after a collection.
        rocksdb: What RocksDB says that it holds in memory.
        keys: How many keys the state has.
        state: The bytes of their rows.
    """

    batch: int
    seconds: float
    records: int
    workers: float
    largest_worker: float
    jvm: float
    heap: float
    rocksdb: float
    keys: int | None
    state: float | None


def fill(bootstrap: str, keys: int, updates: int) -> None:
    """Each key once, and then updates and deletes of random ones."""
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
        """How things are now."""
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
            round(sum(o["memoryUsedBytes"] for o in progress["stateOperators"]) / 2**20, 1),
            source.num_keys_in_state,
            None if source.state_bytes is None else round(source.state_bytes / 2**20, 1),
        )


def _resident(process: psutil.Process) -> float:
    try:
        return process.memory_info().rss / 2**20
    except psutil.NoSuchProcess:
        return 0.0


def run(spark: SparkSession, bootstrap: str, batch: int, batches: int, out: Console) -> list[Sample]:
    """Read all that is there, and look behind each batch."""
    machine, samples = Machine(spark), list[Sample]()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = ours(spark, bootstrap, TOPIC, batch).writeStream.format("noop")
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            while not samples or samples[-1].batch < batches - 1:
                told = query.lastProgress
                progress = json.loads(told.json) if told is not None else {}
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
    """For each kind of memory the median of the first quarter, and of the last."""
    quarter = max(1, len(samples) // 4)
    found = {}
    for name in MEMORY:
        first, last = (
            statistics.median(getattr(s, name) for s in some) for some in (samples[:quarter], samples[-quarter:])
        )
        found[name] = f"{first:,.0f} MiB, then {last:,.0f} MiB ({(last - first) / max(first, 1):+.1%})"
    return found


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=200_000, help="the records of a micro-batch")
    parser.add_argument("--batches", type=int, default=20, help="how many steady batches")
    given = parser.parse_args()
    out = Console()
    filling = -(-given.keys // given.batch)
    with LocalKafka(topics={TOPIC: PARTITIONS}) as kafka, session("upsert memory") as spark:
        fill(kafka.bootstrap_servers, filling * given.batch, given.batches * given.batch)
        samples = run(spark, kafka.bootstrap_servers, given.batch, filling + given.batches, out)
    found = growth([sample for sample in samples if sample.batch >= filling])
    for name, told in found.items():
        out.print(f"{name}: {told}", highlight=False)
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    path = RESULTS / f"upsert-memory-{now:%Y%m%d-%H%M%S}.json"
    kept = {"at": now.isoformat(), "machine": facts(), "growth": found, "samples": [attrs.asdict(s) for s in samples]}
    path.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    out.print(f"kept in {path.name}")


if __name__ == "__main__":
    main()
