"""Queries over topics, for the tests of what watches them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.listeners.commits import wait_for_commits
from kdsl.run.listeners.events import Observer, Progress, Query, ReadProgress
from kdsl.run.read import read_stream
from tests.run.read_plans import read_plan


@attrs.define
class Seen(Observer):
    """An observer that stores its events."""

    events: list[tuple[str, Any]] = attrs.field(factory=list)

    def on_start(self, query: Query) -> None:
        self.events.append(("started", query))

    def on_progress(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        self.events.append(("progressed", (progress, reads)))

    def on_idle(self, query: Query) -> None:
        self.events.append(("idle", query))

    def on_end(self, query: Query) -> None:
        self.events.append(("ended", query))

    def of(self, query: StreamingQuery, what: str) -> list[Any]:
        """What came of a kind for a run of a query."""

        def about(value: Any) -> bool:
            one = value[0].query if isinstance(value, tuple) else value
            return bool(one.run_id == str(query.runId))

        return [value for kind, value in list(self.events) if kind == what and about(value)]


def eventually(seconds: float = 120.0) -> Iterator[None]:
    """Attempts, until the caller leaves the loop; fails when they have taken too long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
        time.sleep(0.1)
    raise AssertionError(f"it did not come in {seconds:g} s")


def until(holds: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until something holds."""
    for _ in eventually(seconds):
        if holds():
            return


class Streams:
    """Streams over a topic, in a group, with one checkpoint."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, folder: Path) -> None:
        self.spark, self.servers, self.topic, self.group = spark, servers, topic, f"group-of-{topic}"
        self.checkpoint = str(folder / "checkpoint")
        self.brokers = LibrdkafkaAdmin(Cluster(servers), "Orders")

    def read(self, *, properties: dict[str, Any] | None = None, **plan: Any) -> DataFrame:
        """The rows of the topic."""
        settings = {"group_id": self.group, **plan}
        return read_stream(self.spark, read_plan(self.topic, **settings), Cluster(self.servers, properties=properties))

    def writer(self, df: DataFrame, sink: Callable[[DataFrame, int], None] | None = None) -> DataStreamWriter:
        """A query over some rows, which go nowhere, or to a function."""
        writer = df.writeStream.option("checkpointLocation", self.checkpoint)
        return writer.format("noop") if sink is None else writer.foreachBatch(sink)

    def start(self, **read: Any) -> StreamingQuery:
        """A query that goes on."""
        return self.writer(self.read(**read)).start()

    def run(self, **read: Any) -> StreamingQuery:
        """A query that reads what is there, and ends."""
        query = self.writer(self.read(**read)).trigger(availableNow=True).start()
        query.awaitTermination()
        self.settle()
        return query

    def settle(self) -> None:
        """Wait until all events have arrived, and what follows from them was done."""
        context: Any = self.spark.sparkContext
        context._jsc.sc().listenerBus().waitUntilEmpty(120_000)
        assert wait_for_commits(120)

    def committed(self) -> dict[TopicPartition, int]:
        """The offsets of the group."""
        return self.brokers.committed(self.group, [(self.topic, 0), (self.topic, 1)])
