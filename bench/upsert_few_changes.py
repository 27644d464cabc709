"""Measure micro-batches with few changes over a large state: how long they take, and how many bytes they write.

``python -m bench.upsert_few_changes [--keys N] [--changes N] [--batches N] [--states NAMES] [--s3]``. A topic gets each
of 10,000,000 keys once, and a query reads them in batches of 1,000,000. Then it reads 20 batches of 1,000 changes each,
which are written one after the other. The bytes are those of the files that a batch adds to the checkpoint, or, with
``--s3``, to the states on an S3 server of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pyarrow.fs as pafs
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from rich.console import Console

from bench.machine import facts, session
from bench.upsert import PARTITIONS, ROW, ours
from kdsl.testing import LocalKafka
from tests.run.state_files.servers import BUCKET, run_s3

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


@contextmanager
def s3_states(spark: SparkSession) -> Iterator[tuple[str, Callable[[], dict[str, int]]]]:
    """Run an S3 server for the states of a session; yield their place, and what returns the size of each object."""
    with tempfile.TemporaryDirectory() as logs, run_s3(Path(logs)) as address:
        access, secret = "bench", "bench"
        settings = {"endpoint": f"http://{address}", "access.key": access, "secret.key": secret}
        for name, value in {**settings, "path.style.access": "true"}.items():
            spark.conf.set(f"spark.hadoop.fs.s3a.{name}", value)
        store = pafs.S3FileSystem(endpoint_override=address, scheme="http", access_key=access, secret_key=secret)

        def object_sizes() -> dict[str, int]:
            infos = store.get_file_info(pafs.FileSelector(BUCKET, recursive=True))
            return {info.path: info.size for info in infos if info.type == pafs.FileType.File}

        yield f"s3a://{BUCKET}/states", object_sizes


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--changes", type=int, default=1_000, help="the changes of a batch")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--states", default="partition,key", help="values of changelog_state")
    parser.add_argument("--s3", action="store_true", help="keep the states on an S3 server")
    args = parser.parse_args()
    out, topic = Console(), "users"
    out.print(json.dumps(facts(), default=str), highlight=False, soft_wrap=True)
    with ExitStack() as stack:
        kafka = stack.enter_context(LocalKafka(topics={topic: PARTITIONS}))
        spark = stack.enter_context(session("few changes"))
        place, object_sizes = stack.enter_context(s3_states(spark)) if args.s3 else (None, None)
        servers, chance = kafka.bootstrap_servers, random.Random(7)
        produce(servers, topic, range(args.keys), 0)
        for state in args.states.split(","):
            with tempfile.TemporaryDirectory() as checkpoint:
                list_sizes = object_sizes or partial(sizes, Path(checkpoint))
                writer = ours(spark, servers, topic, BUILD, state=state, place=place).writeStream.format("noop")
                query = writer.option("checkpointLocation", checkpoint).start()
                query.processAllAvailable()
                seconds, written = [], []
                build = sum(p.durationMs["triggerExecution"] for p in query.recentProgress) / 1000
                held = sum(list_sizes().values())
                for batch in range(args.batches):
                    before = list_sizes()
                    produce(servers, topic, chance.sample(range(args.keys), args.changes), batch + 1)
                    query.processAllAvailable()
                    last = [p for p in query.recentProgress if p.numInputRows][-1]
                    seconds.append(last.durationMs["triggerExecution"] / 1000)
                    written.append(sum(n for path, n in list_sizes().items() if path not in before) / 2**20)
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
