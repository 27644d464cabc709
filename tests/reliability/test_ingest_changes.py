"""An ingestion of the changes of a Delta table that is killed again and again: each change arrives once, in order."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from kdsl.changelog.delta_session import DeltaSession
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.ingest.state import StateFiles
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.changelog.tables import needs_delta
from tests.reliability.harness import HERE, Job, Kill, Point
from tests.reliability.test_ingest import ALL, NOTED, SOME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = int(os.environ.get("KDSL_TEST_KILLS", "20")) // 2
CHANGING = Point("kdsl.ingest.run.sinks.writer:SinkTable.last_changes", "before")
"""The columns of the Delta table are changed, and its rows are not written."""
SENT = Point("kdsl.ingest.run.sinks.kafka:KafkaWriter.write", "after")
"""All messages are written, and Spark has not committed the batch."""

Row = dict[str, Any]


class Source:
    """A Delta table that changes at random, and what its changes are."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path, self.rng = spark, path, random.Random(3)
        self.columns = ["id", "c0"]
        self.rows: dict[int, Row] = {}
        self.changes: dict[int, list[tuple[Row | None, Row | None]]] = {}
        self.sql("CREATE TABLE {} (id BIGINT, c0 STRING) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")

    def sql(self, statement: str) -> None:
        opened = DeltaSession(self.spark)
        with opened.active():
            opened.sql(statement.format(f"delta.`{self.path}`"))

    def change(self) -> None:
        """Commit some changes, and sometimes a new column."""
        if self.rng.random() < 0.5:
            self.columns.append(f"c{len(self.columns) - 1}")
            self.sql(f"ALTER TABLE {{}} ADD COLUMNS ({self.columns[-1]} STRING)")
        for _ in range(3):
            new = {len(self.changes) + i: self.rng.choice("abc") for i in range(3)}
            column, value = self.rng.choice(self.columns[1:]), self.rng.choice("xyz")
            self.sql(f"INSERT INTO {{}} ({', '.join(['id', column])}) VALUES "
                     + ", ".join(f"({id_}, '{text}')" for id_, text in new.items()))  # fmt: skip
            for id_, text in new.items():
                self.record(id_, {"id": id_, column: text})
            updated = [id_ for id_ in self.rows if self.rng.random() < 0.3]
            column = self.rng.choice(self.columns[1:])
            if updated:
                self.sql(f"UPDATE {{}} SET {column} = '{value}' WHERE id IN ({', '.join(map(str, updated))})")
            for id_ in updated:
                self.record(id_, {**self.rows[id_], column: value})
            deleted = [id_ for id_ in self.rows if self.rng.random() < 0.1]
            if deleted:
                self.sql(f"DELETE FROM {{}} WHERE id IN ({', '.join(map(str, deleted))})")
            for id_ in deleted:
                self.record(id_, None)

    def record(self, id_: int, after: Row | None) -> None:
        before = self.rows.pop(id_, None)
        self.changes.setdefault(id_, []).append((before, after))
        if after is not None:
            self.rows[id_] = after


def without_null(row: Row | None) -> Row | None:
    return None if row is None else {name: value for name, value in row.items() if value is not None}


@pytest.mark.reliability
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["delta", "kafka"])
def test_every_change_arrives_once(
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    spark: SparkSession,
    tmp_path: Path,
    kind: Literal["delta", "kafka"],
) -> None:
    needs_delta()
    topic, source, rng = kdsl_topic(), Source(spark, tmp_path / "orders"), random.Random(4)
    sinks: dict[str, Row] = {
        "delta": {"type": "delta", "path": str(tmp_path / "lake")},
        "kafka": {
            "type": "kafka", "properties.bootstrap.servers": kdsl_kafka.bootstrap_servers, "topic": topic,
            "sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": topic,
        },
    }  # fmt: skip
    read = {"type": "delta", "path": str(source.path), "read.change-feed": "true", "starting-version": "0"}
    rules = [{"source-table": "orders", "primary-keys": "id"}]
    document = json.dumps({"source": read, "transform": rules, "sink": sinks[kind]})
    job = Job(tmp_path / "job", {}, query=document, program=HERE / "jobs" / "ingest.py",
              spark={"spark.databricks.delta.snapshotPartitions": "2"})  # fmt: skip
    points = [NOTED, SOME, *([ALL, CHANGING] if kind == "delta" else [SENT])]
    for batch in range(KILLS):
        source.change()
        life = job.run(Kill(rng.choice(points)), timeout=900)
        assert life.killed, life.log[-4000:]
        if batch % 2:  # otherwise the batch is repeated with the next changes of the table already there
            life = job.run(timeout=900)
            assert life.code == 0, life.log[-4000:]
    life = job.run(timeout=900)
    assert life.code == 0, life.log[-4000:]

    state = StateFiles(open_local_folder(job.checkpoint.folder)).load()
    assert [f.name for f in state.upstream["orders",].schema.columns] == source.columns
    changes = [(change.tag, change.columns) for _, change in state.changes]
    assert len(changes) == len(set(changes)), "a change is in the history twice"
    if kind == "delta":
        from pyspark.sql import DataFrame

        opened = DeltaSession(spark)
        with opened.active():
            table = opened.open(DeltaTarget(str(tmp_path / "lake/orders"), is_path=True, schema_evolution=False))
            rows = [row.asDict() for row in DataFrame(table.toDF(), spark).collect()]
        assert sorted((without_null(row) for row in rows), key=str) == sorted(source.rows.values(), key=str)
        return
    arrived: dict[int, list[tuple[Row | None, Row | None]]] = {}
    for record in kdsl_kafka.read(topic):
        message = json.loads(record.value() or b"")
        pair = without_null(message["before"]), without_null(message["after"])
        arrived.setdefault((pair[0] or pair[1] or {})["id"], []).append(pair)
    assert arrived == source.changes
