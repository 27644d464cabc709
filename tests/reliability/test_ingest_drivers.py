"""Two drivers run one ingestion: one of them ends, and its error says why; nothing is written twice."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from kdsl.changelog.delta_session import DeltaSession
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.ingest.state import StateFiles
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.changelog.tables import needs_delta
from tests.reliability.harness import HERE, Job, Kill, Life, Point
from tests.reliability.test_ingest import SOME, exactly_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECIDED = Point("kdsl.ingest.run.batch:BatchRunner._refuse_changes", "after")
"""It is decided what the batch does, and nothing is noted."""
ROWS = 100


def run_two_drivers(kafka: RunningKafka, topic: str, folder: Path, sink: dict[str, Any], point: Point) -> Life:
    """Let a driver stand still in the second batch, as if its machine was suspended, and another one do its work.

    Returns:
        How the first driver ended after it went on.
    """
    kafka.produce(topic, *(json.dumps({"id": i, "n": f"x{i}"}) for i in range(ROWS)))
    source = {
        "type": "kafka", "properties.bootstrap.servers": kafka.bootstrap_servers, "topic": topic,
        "value.format": "json", "scan.startup.mode": "earliest-offset", "scan.max-records-per-trigger": str(ROWS // 4),
        "scan.max.pre.fetch.records": "0",
    }  # fmt: skip
    document = json.dumps({"source": source, "sink": sink})
    job = Job(folder / "job", {}, query=document, program=HERE / "jobs" / "ingest.py",
              spark={"spark.databricks.delta.snapshotPartitions": "2"})  # fmt: skip
    first = job.start(Kill(point, committed=1, action="freeze"))
    try:
        driver = psutil.Process(first.process.pid)
        first.wait_for(lambda: driver.status() == psutil.STATUS_STOPPED, "the first driver stands still")
        second = job.run(timeout=600)
        assert second.code == 0, second.log[-4000:]
        os.kill(first.process.pid, signal.SIGCONT)
        return first.wait(timeout=300)
    finally:
        first.kill()


def check_end(life: Life, folder: Path) -> None:
    """The first driver has ended with an error that names the checkpoint and what to do; the history is linear."""
    checkpoint = folder / "job" / "checkpoint"
    assert life.code == 1, life.log[-4000:]
    assert f"another driver runs with the checkpoint {checkpoint}" in life.log.replace("file:", ""), life.log[-4000:]
    assert "run only one, or give each a checkpoint of its own" in life.log
    state = StateFiles(open_local_folder(checkpoint)).load()
    changes = [(change.tag, change.columns) for _, change in state.changes]
    assert len(changes) == len(set(changes)), "a change is in the history twice"
    assert sum(state.records.values()) == ROWS


@pytest.mark.reliability
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("point", [DECIDED, SOME], ids=["before the batch is noted", "before its rows are written"])
def test_a_driver_that_another_one_replaced_ends_and_adds_no_row(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path, point: Point
) -> None:
    """The table has no primary key: rows that were written twice would be there twice."""
    from pyspark.sql import DataFrame

    needs_delta()
    topic = kdsl_topic()
    life = run_two_drivers(kdsl_kafka, topic, tmp_path, {"type": "delta", "path": str(tmp_path / "lake")}, point)

    check_end(life, tmp_path)
    opened = DeltaSession(spark)
    with opened.active():
        table = opened.open(DeltaTarget(str(tmp_path / "lake" / topic), is_path=True, schema_evolution=False))
        rows = [row["id"] for row in DataFrame(table.toDF(), spark).collect()]
    assert sorted(rows) == list(range(ROWS))


@pytest.mark.reliability
@pytest.mark.timeout(1800)
def test_a_driver_that_another_one_replaced_sends_no_message(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = kdsl_topic("in"), kdsl_topic("out")
    life = run_two_drivers(kdsl_kafka, source, tmp_path, exactly_once(kdsl_kafka, target), DECIDED)

    check_end(life, tmp_path)
    messages = [json.loads(record.value() or b"") for record in kdsl_kafka.read(target)]
    assert sorted(message["after"]["id"] for message in messages) == list(range(ROWS))
