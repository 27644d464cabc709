"""Deaths in the driver's own process: a function of the product raises an error at a random time, once."""

from __future__ import annotations

import importlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.reliability.harness import Point

MESSAGE = "the test lets it fail here"
POINTS = (
    Point("kdsl.ingest.state:StateFiles.write", "before"),
    Point("kdsl.ingest.state:StateFiles.write", "after"),
    Point("kdsl.ingest.run.sinks.writer:SinkTable.last_changes", "before"),
    Point("kdsl.ingest.run.sinks.writer:SinkTable.inserts", "before"),
    Point("kdsl.ingest.run.sinks.writer:TableWriter.write", "after"),
    Point("kdsl.changelog.to_delta:DeltaTarget.apply", "after"),
    Point("kdsl.changelog.to_delta:DeltaTarget.append", "after"),
    Point("kdsl.changelog.to_delta:DeltaTarget.create", "after"),
    Point("kdsl.changelog.to_jdbc:JdbcTarget.apply", "after"),
    Point("kdsl.changelog.to_memory:MemoryTable.apply", "after"),
    Point("kdsl.ingest.run.sinks.kafka:KafkaWriter.write", "before"),
    Point("kdsl.ingest.run.sinks.kafka:KafkaWriter.write", "after"),
)


class Killed(Exception):
    """The test ended the run."""


@contextmanager
def kill_at(point: Point, skip: int) -> Iterator[None]:
    """Let a function raise an error, before or after what it does, when it has been called some times.

    Args:
        point: The function.
        skip: How many calls pass before.
    """
    module, _, path = point.function.partition(":")
    owner: Any = importlib.import_module(module)
    *owners, name = path.split(".")
    for part in owners:
        owner = getattr(owner, part)
    function = vars(owner)[name]
    remaining, lock = [skip], threading.Lock()

    def fire() -> None:
        with lock:
            remaining[0] -= 1
            if remaining[0] == -1:
                raise Killed(f"{MESSAGE}: {point}")

    def call(*arguments: Any, **options: Any) -> Any:
        if point.when == "before":
            fire()
        result = function(*arguments, **options)
        if point.when == "after":
            fire()
        return result

    setattr(owner, name, call)
    try:
        yield
    finally:
        setattr(owner, name, function)


@contextmanager
def kill_somewhere(rng: random.Random, tables: int) -> Iterator[Point]:
    """Choose where the run ends; it may be a place that it does not come to."""
    point = rng.choice(POINTS)
    with kill_at(point, rng.choice((0, 0, 1, rng.randrange(tables + 1)))):
        yield point
