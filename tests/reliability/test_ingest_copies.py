"""Copies of tables in a script that is killed again and again: every row is in each copy once."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.changelog.delta_session import DeltaSession
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.ingest.state import StateFiles
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.changelog.tables import needs_delta
from tests.reliability.harness import HERE, Checkpoint, Job, Kill
from tests.reliability.test_ingest import ALL, APPENDING, CHANGING, NOTED, SOME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = max(5, int(os.environ.get("KDSL_TEST_KILLS", "20")) // 3)
POINTS = (NOTED, SOME, CHANGING, ALL, APPENDING)
PLACED = "copy-1-placed"
"""The query whose batches count."""
RECORDS = 12
"""How many records a batch of each topic has."""

Row = dict[str, Any]


def batch_of(number: int, rng: random.Random) -> list[Row]:
    """The messages of a topic for one batch; each batch has a new field, and one of its messages a wider number."""
    rows = [{"id": rng.randrange(8), "n": number * RECORDS + i, f"c{number}": i} for i in range(RECORDS)]
    return [*rows[:-1], {**rows[-1], f"c{number}": "text"}]


@pytest.mark.reliability
@pytest.mark.timeout(3600)
def test_copies_that_are_killed_have_every_row_once(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path
) -> None:
    """A set with a copy of a table by its position, one by a key of its own, one that only appends, and a database."""
    from pyspark.sql import DataFrame

    needs_delta()
    first, second, rng = kdsl_topic("first"), kdsl_topic("second"), random.Random(5)
    servers, options = (
        f"'properties.bootstrap.servers' = '{kdsl_kafka.bootstrap_servers}'",
        "'value.fields-prefix' = ''",
    )
    script = f"""
        CREATE CATALOG shop WITH ('type' = 'kafka', 'format' = 'json', {servers}, {options});
        CREATE CATALOG lake WITH ('type' = 'delta', 'path' = '{tmp_path}/lake');
        CREATE TABLE appended (n BIGINT) WITH ('connector' = 'kafka', 'topic' = '{first}', 'format' = 'json', {servers},
          'scan.startup.mode' = 'earliest-offset');
        BEGIN STATEMENT SET;
        CREATE TABLE lake.web.placed AS TABLE shop.kafka.`{first}` ADD COLUMN twice AS n * 2;
        CREATE TABLE lake.web.keyed (PRIMARY KEY (id) NOT ENFORCED) AS TABLE shop.kafka.`{first}`;
        CREATE TABLE lake.web.appended AS TABLE appended;
        CREATE DATABASE lake.everything AS DATABASE shop.kafka INCLUDING TABLE '{first}|{second}';
        END;"""
    job = Job(tmp_path / "job", {}, query=script, program=HERE / "jobs" / "script.py",
              spark={"spark.databricks.delta.snapshotPartitions": "2"})  # fmt: skip
    placed = Checkpoint(job.checkpoint.folder / PLACED)
    sent: dict[str, list[Row]] = {first: [], second: []}
    for number in range(KILLS + 1):
        for topic, rows in sent.items():
            new = batch_of(number, rng)
            rows += new
            kdsl_kafka.produce(topic, *map(json.dumps, new))
        if number < KILLS:
            # The point of the life before may have been met by another query, before this one had planned its batch.
            started = placed.planned > placed.committed
            kill = Kill(POINTS[number % len(POINTS)], placed.committed + 1 + started, checkpoint=f"checkpoint/{PLACED}")
            life = job.run(kill, timeout=900)
            assert life.killed, life.log[-4000:]
    life = job.run(timeout=900)
    assert life.code == 0, life.log[-4000:]

    opened = DeltaSession(spark)

    def read(*names: str) -> list[Row]:
        path = "/".join([str(tmp_path / "lake"), *names])
        with opened.active():
            table = opened.open(DeltaTarget(path, is_path=True, schema_evolution=False))
            return sorted((row.asDict() for row in DataFrame(table.toDF(), spark).collect()), key=lambda row: row["n"])

    columns = ["id", "n", *(f"c{number}" for number in range(KILLS + 1))]

    def select(rows: list[Row]) -> list[list[str | None]]:
        """The columns of messages, as strings; the rows by their number, which is different in each."""
        ordered = sorted(rows, key=lambda row: row["n"])
        return [[None if row.get(name) is None else str(row[name]) for name in columns] for row in ordered]

    last = {row["id"]: row for row in sent[first]}
    assert select(read("web", "placed")) == select(sent[first])
    assert [row["twice"] for row in read("web", "placed")] == [2 * row["n"] for row in sent[first]]
    assert select(read("web", "keyed")) == select(list(last.values()))
    assert [row["n"] for row in read("web", "appended")] == [row["n"] for row in sent[first]]
    for topic, rows in sent.items():
        assert select(read("everything", topic)) == select(rows)
    states = [
        StateFiles(open_local_folder(schemas.parents[1]), path.name if path.is_dir() else "").load()
        for schemas in job.checkpoint.folder.rglob("kdsl/schemas")
        for path in schemas.iterdir()
    ]
    assert len({table for state in states for table in state.sinks}) == 5
    for state in states:
        changes = [(change.tag, change.table, change.columns, change.before) for _, change in state.changes]
        assert len(changes) == len(set(changes)), "a change is in the history twice"
