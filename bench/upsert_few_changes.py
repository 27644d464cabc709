"""Measure micro-batches with few changes over a large state: how long they take, and how many bytes they write.

``python -m bench.upsert_few_changes [--keys N] [--changes N] [--batches N] [--states NAMES]``. A topic gets each of
10,000,000 keys once, and a query reads them in batches of 1,000,000. Then it reads 20 batches of 1,000 changes each,
which are written one after the other. The bytes are those of the files that a batch adds to the checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from rich.console import Console

from bench.machine import facts, session
from bench.upsert import PARTITIONS, ROCKSDB, ROW, ours
from kdsl.testing import LocalKafka

BUILD = 1_000_000
"""The records of a batch while the state is built."""


def produce(bootstrap: str, topic: str, keys: range | list[int], visits: int) -> None:
    """Produce one upsert of each key."""
    settings = {"linger.ms": 50, "batch.size": 1_000_000, "queue.buffering.max.messages": 3_000_000}
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", **settings})
    for k in keys:
        while True:
            try:
                producer.produce(topic, ROW % (k, k, k % 50, k % 1000, visits), b'{"user_id":%d}' % k)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError(f"{topic} was not filled")


def sizes(folder: Path) -> dict[str, int]:
    """The size of each file of a folder, by path."""
    result = {}
    for path, _, names in os.walk(folder):
        for name in names:
            if not name.endswith(".crc"):
                file = Path(path, name)
                result[str(file)] = file.stat().st_size
    return result


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--changes", type=int, default=1_000, help="the changes of a batch")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--states", default="partition", help="values of changelog_state")
    args = parser.parse_args()
    out, topic = Console(), "users"
    out.print(json.dumps(facts(), default=str), highlight=False, soft_wrap=True)
    with LocalKafka(topics={topic: PARTITIONS}) as kafka, session("few changes") as spark:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        servers, chance = kafka.bootstrap_servers, random.Random(7)
        produce(servers, topic, range(args.keys), 0)
        for state in args.states.split(","):
            with tempfile.TemporaryDirectory() as checkpoint:
                writer = ours(spark, servers, topic, BUILD, state=state).writeStream.format("noop")
                query = writer.option("checkpointLocation", checkpoint).start()
                query.processAllAvailable()
                seconds, written = [], []
                build = sum(p.durationMs["triggerExecution"] for p in query.recentProgress) / 1000
                held = sum(sizes(Path(checkpoint)).values())
                for batch in range(args.batches):
                    before = sizes(Path(checkpoint))
                    produce(servers, topic, chance.sample(range(args.keys), args.changes), batch + 1)
                    query.processAllAvailable()
                    last = [p for p in query.recentProgress if p.numInputRows][-1]
                    seconds.append(last.durationMs["triggerExecution"] / 1000)
                    written.append(sum(n for path, n in sizes(Path(checkpoint)).items() if path not in before) / 2**20)
                query.stop()
            out.print(
                f"{args.keys:,} keys, {state}: built in {build:.0f} s, {held / 2**20:,.0f} MiB; a batch of "
                f"{args.changes:,} changes takes {statistics.median(seconds):.2f} s ({min(seconds):.2f} to "
                f"{max(seconds):.2f}) and writes {statistics.mean(written):.1f} MiB ({min(written):.1f} to "
                f"{max(written):.1f})",
                highlight=False,
                soft_wrap=True,
            )


if __name__ == "__main__":
    main()
