"""What the tests of running ingestions share: an ingestion of one topic, and a writer that fails once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.changelog.target import Batch
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.cluster import Cluster
from kdsl.formats import TableId
from kdsl.ingest import Ingestion, KafkaFeed, Sink
from kdsl.ingest.run.sinks import SinkTable, SinkWriter
from kdsl.ingest.state import IngestState, StateFiles
from kdsl.run.checkpoint.folder import open_folder
from kdsl.testing import LocalKafka
from kdsl_formats.json import Json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]


def change(op: str, before: Row | None, after: Row | None, table: str = "orders") -> Row:
    return {"op": op, "before": before, "after": after, "source": {"db": "shop", "table": table}}


class Setup:
    """An ingestion of one topic."""

    def __init__(self, kafka: LocalKafka, topic: str, spark: SparkSession, folder: Path) -> None:
        self.kafka, self.topic, self.spark = kafka, topic, spark
        self.checkpoint, self.lake = str(folder / "checkpoint"), str(folder / "lake")

    def feed(self, **options: Any) -> KafkaFeed:
        defaults: dict[str, Any] = {"value": Json(), "startup": "earliest-offset", "prefetch": 0}
        return KafkaFeed(Cluster(self.kafka.bootstrap_servers), topic=(self.topic,), **(defaults | options))

    def ingestion(self, sink: Sink, feed: KafkaFeed | None = None, **parts: Any) -> Ingestion:
        return Ingestion(feed or self.feed(), sink, **parts)

    def produce(self, *values: str | dict[str, Any]) -> None:
        self.kafka.produce(self.topic, *(v if isinstance(v, str) else json.dumps(v) for v in values))

    def run(self, ingestion: Ingestion, writer: SinkWriter | None = None) -> None:
        """Run up to what there is now."""
        ingestion.run(self.spark, self.checkpoint, once=True, writer=writer).awaitTermination()

    def state(self) -> IngestState:
        return StateFiles(open_folder(self.spark, self.checkpoint)).load()

    def history(self) -> list[str]:
        return [str(attrs.evolve(change, record_id=None)) for _, change in self.state().changes]

    def table(self, *names: str) -> list[dict[str, Any]]:
        """The rows of a Delta table, sorted."""
        from pyspark.sql import DataFrame

        from kdsl.changelog.delta_session import DeltaSession

        opened, target = DeltaSession(self.spark), DeltaTarget("/".join([self.lake, *names]), True, False)
        with opened.active():
            rows = [row.asDict() for row in DataFrame(opened.open(target).toDF(), self.spark).collect()]
        return sorted(rows, key=lambda row: [str(value) for value in row.values()])


class Failing(SinkWriter):
    """A writer whose process is gone at a point of a batch, once."""

    def __init__(self, writer: SinkWriter, batch: int, point: str) -> None:
        self.writer, self.batch, self.point = writer, batch, point

    def read_schema(self, spark: SparkSession, table: TableId, known: Any) -> Any:
        return self.writer.read_schema(spark, table, known)

    def identify(self, spark: SparkSession, tables: Sequence[TableId]) -> dict[TableId, str]:
        return self.writer.identify(spark, tables)

    def refuse(self, spark: SparkSession, changes: Any) -> Any:
        return self.writer.refuse(spark, changes)

    def write(self, tables: Any, batch: Batch) -> None:
        if batch.number != self.batch:
            self.writer.write(tables, batch)
            return
        if self.point == "before the first table":
            raise RuntimeError("gone")
        first: SinkTable = tables[0]
        if self.point == "after the change of a table":
            empty = attrs.evolve(first, build_rows=lambda: first.rows.limit(0), previous=None)
            self.writer.write([empty], Batch("another writer", batch.number, "x/y"))
            raise RuntimeError("gone")
        self.writer.write(tables[:1], batch)
        if self.point == "after the first table":
            raise RuntimeError("gone")
        self.writer.write(tables[1:], batch)
        raise RuntimeError("gone after all tables")
