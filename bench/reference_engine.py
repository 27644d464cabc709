"""The reference engine's figure for a format: what a job over a bounded topic costs more than one that decodes nothing.

Each format's topic is read twice, with the format and with ``raw``, into the sink ``blackhole``; the difference of the
processor time of the engine's process, per message, is what the decoding costs there. One job runs before, and does not
count. It is measured where PyFlink is there: ``KDSL_FLINK_HOME`` names its virtual environment (this one by default),
``KDSL_FLINK_JARS`` the jars of its Kafka connector and formats, separated by colons. Writing is not measured.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import psutil
from confluent_kafka import Producer

from bench.cases import Case
from kdsl.testing import LocalKafka

RUNS = 3
# Reads statements, one JSON text a line, and answers each line when it is done.
_DRIVER = """
import json, os, sys
from pyflink.table import EnvironmentSettings, TableEnvironment

env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
jars = [f"file://{os.path.abspath(path)}" for path in os.environ.get("KDSL_FLINK_JARS", "").split(":") if path]
if jars:
    env.get_config().set("pipeline.jars", ";".join(jars))
env.get_config().set("parallelism.default", sys.argv[1])
env.get_config().set("pipeline.object-reuse", "true")
print("ready", flush=True)
for line in sys.stdin:
    try:
        env.execute_sql(json.loads(line)).wait()
        print("done", flush=True)
    except Exception as e:
        print("failed " + str(e).splitlines()[0], flush=True)
"""


def python() -> str | None:
    """The Python that has PyFlink; None where there is none."""
    home = os.environ.get("KDSL_FLINK_HOME")
    if home:
        return str(Path(home) / "bin" / "python")
    return sys.executable if importlib.util.find_spec("pyflink") else None


def rates(cases: Sequence[Case], messages: int) -> dict[str, float]:
    """Messages per second of processor time, by the case's name; nothing where the engine is not there.

    Args:
        cases: What is measured.
        messages: How many messages each topic gets.
    """
    interpreter = python()
    wanted = [case for case in cases if case.reference is not None]
    if interpreter is None or not wanted:
        return {}
    with LocalKafka(topics=dict.fromkeys((topic(case) for case in wanted), 1)) as kafka:
        for case in wanted:
            _fill(kafka.bootstrap_servers, case, messages)
        with Engine(interpreter) as engine:
            formats = Formats(engine, kafka.bootstrap_servers, messages)
            return {case.name: rate for case in wanted if (rate := formats.rate(case)) is not None}


class Engine:
    """The engine in a process of its own, which takes statements.

    Args:
        interpreter: The Python that has it (`python`).
        parallelism: How many tasks a job has.
    """

    def __init__(self, interpreter: str, parallelism: int = 1) -> None:
        command = [interpreter, "-c", _DRIVER, str(parallelism)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def do(self, statement: str) -> None:
        """Run a statement to its end.

        Raises:
            RuntimeError: It failed.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        self._answer()

    def cpu(self) -> float:
        """Processor time of the driver and of the JVM below it, in seconds."""
        me = psutil.Process(self._process.pid)
        times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
        return sum(found.user + found.system for found in times)

    def _answer(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(("ready", "done")):
                return
            if line.startswith("failed "):
                raise RuntimeError(line.removeprefix("failed ").strip())
        raise RuntimeError("the engine has ended")


class Formats:
    """Measures formats on it."""

    def __init__(self, engine: Engine, bootstrap: str, messages: int) -> None:
        self._engine, self._bootstrap, self._messages = engine, bootstrap, messages
        engine.do("CREATE TABLE bytes_nowhere (v BYTES) WITH ('connector' = 'blackhole')")

    def rate(self, case: Case) -> float | None:
        """Messages per second of processor time that reading them takes; None where a job failed, which is told."""
        table, columns = topic(case), ", ".join(f"`{f.name}` {f.type}" for f in case.row.fields)
        options = {"format": case.format} | dict(case.reference or {})
        try:
            self._engine.do(f"CREATE TABLE {table} ({columns}) WITH ({self._source(topic(case), options)})")
            self._engine.do(
                f"CREATE TABLE {table}_bytes (v BYTES) WITH ({self._source(topic(case), {'format': 'raw'})})"
            )
            self._engine.do(f"CREATE TABLE {table}_nowhere ({columns}) WITH ('connector' = 'blackhole')")
            runs = [
                (
                    self._cost(f"INSERT INTO {table}_nowhere SELECT * FROM {table}"),
                    self._cost(f"INSERT INTO bytes_nowhere SELECT * FROM {table}_bytes"),
                )
                for _ in range(RUNS + 1)
            ][1:]
        except RuntimeError as e:
            print(f"{case.name}, reference engine: {e}", file=sys.stderr)
            return None
        return self._messages / max(statistics.median(one - bare for one, bare in runs), 1e-9)

    def _source(self, topic: str, options: dict[str, str]) -> str:
        said = {
            "connector": "kafka",
            "topic": topic,
            "properties.bootstrap.servers": self._bootstrap,
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "latest-offset",
        }
        return ", ".join(f"'{key}' = '{value}'" for key, value in (said | options).items())

    def _cost(self, statement: str) -> float:
        before = self._engine.cpu()
        self._engine.do(statement)
        return self._engine.cpu() - before


def topic(case: Case) -> str:
    """The topic and the table of a case."""
    return case.name.replace(", ", "_").replace("-", "_").replace(" ", "_")


def _fill(bootstrap: str, case: Case, count: int) -> None:
    """Fill the topic of a format with its messages, again and again."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    messages = case.messages.to_pylist()
    for i in range(count):
        producer.produce(topic(case), messages[i % len(messages)])
        if i % 100_000 == 0:
            producer.flush()
    if producer.flush(120):
        raise RuntimeError(f"{case.name} was not filled")
