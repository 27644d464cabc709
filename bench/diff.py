"""How long `kdsl diff` takes for a hundred topics: paired with the bare requests of the admin client.

``python -m bench.diff [--topics N] [--rounds N]`` prints the median seconds of `kdsl.diff`, of the command as a process
of its own, and of a client that only describes the topics and their configs. The goal is 3 s for the command.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from rich.console import Console

import kdsl
from bench.machine import facts
from kdsl import Cluster
from kdsl.testing import LocalKafka, LocalRegistry

GOAL = 3.0
PARTITIONS = 3
TABLE = """CREATE TABLE T{i} (id BIGINT NOT NULL, note STRING) WITH ('connector' = 'kafka', 'topic' = 'topic-{i}',
 'value.format' = '{format}', 'topic.partitions' = '{partitions}', 'topic.config.retention.ms' = '3600000',
 'properties.group.id' = 'bench');
"""


def cpu_seconds() -> float:
    """The CPU seconds of this process and of processes that it has ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(action: Callable[[], object], rounds: int) -> str:
    """The median seconds of an action, and its median CPU seconds, which say more on a machine that others use."""
    seconds, cpu = [], []
    for _ in range(rounds):
        start, cpu_start = time.perf_counter(), cpu_seconds()
        action()
        seconds.append(time.perf_counter() - start)
        cpu.append(cpu_seconds() - cpu_start)
    return f"{median(seconds):6.2f} s, {median(cpu):5.2f} s of CPU"


def main() -> None:
    """Create the topics, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    console = Console(width=110)
    names = [f"topic-{i}" for i in range(args.topics)]
    with LocalKafka() as kafka, LocalRegistry() as registry, tempfile.TemporaryDirectory() as folder:
        for name in names:
            kafka.create_topic(name, PARTITIONS, config={"retention.ms": "3600000"})
        cluster = Cluster(kafka.bootstrap_servers, registry=registry.url)

        def describe() -> None:
            client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
            for topic in client.describe_topics(TopicCollection(names)).values():
                topic.result()
            for config in client.describe_configs([ConfigResource(ResourceType.TOPIC, n) for n in names]).values():
                config.result()

        console.print(facts())
        console.print(f"bare requests             {measure(describe, args.rounds)}")
        for kind in ("json", "avro-confluent"):
            script = Path(folder) / f"{kind}.sql"
            text = (TABLE.format(i=i, format=kind, partitions=PARTITIONS) for i in range(args.topics))
            script.write_text("".join(text), encoding="utf-8")
            tables = kdsl.load_sql(script)
            kdsl.apply(tables, cluster)
            if kdsl.diff(tables, cluster):
                raise SystemExit("there are differences")
            command = [sys.executable, "-m", "kdsl", "diff", str(script), "--exit-code"]
            command += ["--bootstrap", kafka.bootstrap_servers, "--registry", registry.url]

            def run(command: list[str] = command) -> None:
                subprocess.run(command, check=True, capture_output=True)

            def compare(tables: list[kdsl.Table] = tables) -> None:
                kdsl.diff(tables, cluster)

            console.print(f"kdsl.diff, {kind:<14} {measure(compare, args.rounds)}")
            console.print(f"kdsl diff, {kind:<14} {measure(run, args.rounds)}  (goal {GOAL:g} s)")


if __name__ == "__main__":
    main()
