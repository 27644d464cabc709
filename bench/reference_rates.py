"""Measures the decoding of the reference engine: a job with a format, less the same job without decoding.

Each format's topic is read twice, with the format and with ``raw``, into the sink ``blackhole``; the difference of the
processor time of the engine's process is the cost of decoding. A first job does not count. Nothing is measured if the
engine is not installed (`bench.reference_engine`). Writing is not measured.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence

from confluent_kafka import Producer

from bench.cases import Case
from bench.reference_engine import ReferenceEngine, missing
from kdsl.testing import LocalKafka

RUNS = 3


def rates(cases: Sequence[Case], messages: int) -> dict[str, float]:
    """Messages per second of processor time, by the name of the case; empty if the engine is not installed.

    Args:
        cases: The cases to measure.
        messages: The number of messages in each topic.
    """
    wanted = [case for case in cases if case.reference is not None]
    if missing() is not None or not wanted:
        return {}
    with LocalKafka(topics=dict.fromkeys((topic(case) for case in wanted), 1)) as kafka:
        for case in wanted:
            _fill(kafka.bootstrap_servers, case, messages)
        with ReferenceEngine(reuse=True) as engine:
            formats = Formats(engine, kafka.bootstrap_servers, messages)
            return {case.name: rate for case in wanted if (rate := formats.rate(case)) is not None}


class Formats:
    """Measures formats of the engine."""

    def __init__(self, engine: ReferenceEngine, bootstrap: str, messages: int) -> None:
        self._engine, self._bootstrap, self._messages = engine, bootstrap, messages
        engine.run("CREATE TABLE bytes_nowhere (v BYTES) WITH ('connector' = 'blackhole')")

    def rate(self, case: Case) -> float | None:
        """Messages that are read per second of processor time.

        None, with a line on standard error, if a job failed or the difference is not larger than the variation of runs.
        """
        table, columns = topic(case), ", ".join(f"`{f.name}` {f.type}" for f in case.row.fields)
        options = {"format": case.format} | dict(case.reference or {})
        try:
            self._engine.run(f"CREATE TABLE {table} ({columns}) WITH ({self._source(topic(case), options)})")
            self._engine.run(
                f"CREATE TABLE {table}_bytes (v BYTES) WITH ({self._source(topic(case), {'format': 'raw'})})"
            )
            self._engine.run(f"CREATE TABLE {table}_nowhere ({columns}) WITH ('connector' = 'blackhole')")
            costs = [
                self._cost(f"INSERT INTO {table}_nowhere SELECT * FROM {table}")
                - self._cost(f"INSERT INTO bytes_nowhere SELECT * FROM {table}_bytes")
                for _ in range(RUNS + 1)
            ][1:]
        except RuntimeError as e:
            reason, _, _ = str(e).partition("\n")
            print(f"{case.name}, reference engine: {reason}", file=sys.stderr)
            return None
        cost, spread = statistics.median(costs), max(costs) - min(costs)
        if cost <= spread:
            reason = f"{cost:.2f} s, which is within the variation of runs ({spread:.2f} s); use more messages"
            print(f"{case.name}, reference engine: {reason}", file=sys.stderr)
            return None
        return self._messages / cost

    def _source(self, topic: str, options: dict[str, str]) -> str:
        source = {
            "connector": "kafka",
            "topic": topic,
            "properties.bootstrap.servers": self._bootstrap,
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "latest-offset",
        }
        return ", ".join(f"'{key}' = '{value}'" for key, value in (source | options).items())

    def _cost(self, statement: str) -> float:
        before = self._engine.cpu()
        self._engine.run(statement)
        return self._engine.cpu() - before


def topic(case: Case) -> str:
    """The name of a case's topic and table."""
    return case.name.replace(", ", "_").replace("-", "_").replace(" ", "_")


def _fill(bootstrap: str, case: Case, count: int) -> None:
    """Fill the topic of a case with its messages, repeatedly."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    messages = case.messages.to_pylist()
    for i in range(count):
        producer.produce(topic(case), messages[i % len(messages)])
        if i % 100_000 == 0:
            producer.flush()
    if producer.flush(120):
        raise RuntimeError(f"{case.name} was not filled")
