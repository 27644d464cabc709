"""The batches of running ingestions: how long they take, also beside the same merges by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Self

import attrs

from bench.paired import measure
from kdsl.changelog import Batch, Target, delta, jdbc
from kdsl.formats import ROW_KIND
from kdsl.ingest import DeltaTables, Ingestion, JdbcTables, KafkaFeed, Pipeline, Route, Sink, Transform
from kdsl.run.offsets.stored import Offsets
from kdsl.spark_internals.threads import run_in_session
from kdsl.testing import LocalKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.postgres import Postgres

TOUCHED, ROWS, KEYS, CONCURRENCY = 50, 20, 5000, 4


class Batches:
    """The batches of a query that were waited for."""

    def __init__(self) -> None:
        self._last: int | None = None

    def wait(self, query: StreamingQuery, records: int) -> float:
        """Wait until some records are processed, and return how many milliseconds their batches took."""
        total, milliseconds = 0, 0.0
        while total < records:
            assert query.isActive, query.exception()
            progress = query.lastProgress
            if progress is None or not progress.numInputRows or progress.batchId == self._last:
                time.sleep(0.005)
                continue
            assert self._last is None or progress.batchId == self._last + 1
            self._last, total = progress.batchId, total + _count_records(progress)
            milliseconds += progress.durationMs["triggerExecution"]
        return milliseconds


def _count_records(progress: StreamingQueryProgress) -> int:
    """Return how many records a batch has read; Spark counts the packets of records that the tasks divided."""
    start, end = (
        json.loads(text or "null") for text in (progress.sources[0].startOffset, progress.sources[0].endOffset)
    )
    before = {} if start is None else Offsets.from_json(start).positions
    return sum(at - before.get(partition, 0) for partition, at in Offsets.from_json(end).positions.items())


@attrs.frozen
class MergedTables:
    """Where tables are merged.

    Attributes:
        title: The name of the sink.
        sink: The sink of the ingestion.
        route: The sink table of the upstream table ``$1``.
        by_hand: The tables that are merged by hand.
    """

    title: str
    sink: Sink
    route: str
    by_hand: Sequence[Target]

    @classmethod
    def delta(cls, folder: Path) -> Self:
        """Tables of Delta Lake."""
        targets = [delta(folder / "by-hand" / f"t{i}", schema_evolution=False) for i in range(TOUCHED)]
        return cls("Delta", DeltaTables(str(folder / "lake")), "$1", targets)

    @classmethod
    def postgres(cls, server: Postgres) -> Self:
        """Tables of a Postgres server."""
        from tests.postgres import PASSWORD

        columns = "id bigint PRIMARY KEY, x double precision"
        server.execute("; ".join(f"CREATE TABLE by_hand_{i} ({columns})" for i in range(TOUCHED)))
        login = {"user": "kdsl", "password": PASSWORD}
        targets = [jdbc(server.url, f"by_hand_{i}", login) for i in range(TOUCHED)]
        return cls("Postgres", JdbcTables(server.url, username="kdsl", password=PASSWORD), "public.$1", targets)


@attrs.frozen
class Merges:
    """What was measured, in milliseconds.

    Attributes:
        batches: Batches that touch all tables.
        by_hand: The same merges by hand.
        one_table: Batches that touch one table.
        one_wider: The same, and the table gets a new column.
    """

    batches: list[float] = attrs.field(factory=list)
    by_hand: list[float] = attrs.field(factory=list)
    one_table: list[float] = attrs.field(factory=list)
    one_wider: list[float] = attrs.field(factory=list)


class MergeBench:
    """An ingestion into tables of a sink, and the same merges by hand.

    Args:
        spark: The session.
        kafka: The broker.
        feed: The source of one topic, whose messages name their table in the member ``t``.
        tables: The tables.
    """

    def __init__(self, spark: SparkSession, kafka: LocalKafka, feed: KafkaFeed, tables: MergedTables) -> None:
        self._spark, self._kafka, self._feed, self._tables = spark, kafka, feed, tables
        self._random, self._ids, self._columns, self._numbers = Random(7), count(), count(), count()
        self._batches = Batches()

    def measure(self, checkpoint: str, pairs: int) -> Merges:
        """Run both in turn, A B B A …, after one of each that does not count.

        Args:
            checkpoint: A folder for the checkpoint.
            pairs: How often each is measured.
        """
        merges = Merges()
        query = Ingestion(
            self._feed,
            self._tables.sink,
            transform=[Transform(r"\.*", primary_keys=("id",))],
            route=[Route(r"(\.*)", self._tables.route)],
            pipeline=Pipeline(sink_concurrency=CONCURRENCY),
        ).run(self._spark, checkpoint)
        try:
            self._take_turns(pairs, (merges.batches, partial(self._ingest, query, TOUCHED)),
                             (merges.by_hand, self._merge_by_hand))  # fmt: skip
            self._take_turns(pairs, (merges.one_table, partial(self._ingest, query, 1)),
                             (merges.one_wider, partial(self._ingest, query, 1, wider=True)))  # fmt: skip
        finally:
            query.stop()
        return merges

    def _take_turns(self, pairs: int, *sides: tuple[list[float], Callable[[], float]]) -> None:
        """Run both sides in turn, and add their times to the lists."""
        for number in range(pairs + 1):
            for results, work in sides if number % 2 == 0 else sides[::-1]:
                milliseconds = work()
                if number:
                    results.append(milliseconds)

    def _ingest(self, query: StreamingQuery, touched: int, *, wider: bool = False) -> float:
        """Write rows of some tables to the topic, maybe with a new column, and wait for their batches."""
        more = f',"n{next(self._columns)}":1' if wider else ""
        rows = ((table, next(self._ids) % KEYS, self._random.random()) for table in range(touched) for _ in range(ROWS))
        messages = [f'{{"t":"t{table}","id":{id_},"x":{x}{more}}}' for table, id_, x in rows]
        self._kafka.produce(self._feed.topic[0], *messages)
        return self._batches.wait(query, len(messages))

    def _merge_by_hand(self) -> float:
        """Merge as many rows, which are in memory, into each table, with as many tables at the same time."""
        rows = [(next(self._ids) % KEYS, self._random.random(), "+U") for _ in range(ROWS)]
        frame = self._spark.createDataFrame(rows, f"id long, x double, {ROW_KIND} string").persist()
        number = next(self._numbers)

        def merge() -> None:
            with ThreadPoolExecutor(CONCURRENCY) as pool:
                batch = Batch("by hand", number, str(number))
                futures = [
                    pool.submit(run_in_session(self._spark, target.apply), frame, ("id",), batch)
                    for target in self._tables.by_hand
                ]
            for future in futures:
                future.result()

        milliseconds = measure(merge).wall * 1000
        frame.unpersist()
        return milliseconds
