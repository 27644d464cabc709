"""Tasks that end in the middle of their rows: what they have sent is never taken for the whole."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl.cluster import Cluster
from kdsl.plan.model import Transactions, WritePlan
from kdsl.run.read import read_stream
from kdsl.run.write import write, write_stream
from kdsl.spark_versions import PYTHON_SOURCES, STREAM_WRITER
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.read_plans import read_plan
from tests.run.write_plans import part, write_plan
from tests.transactions import settle

pytestmark = pytest.mark.since(PYTHON_SOURCES)

COUNT = 30_000
"""More rows than Spark keeps back: it sends them to a Python worker in pieces of 64 KiB."""


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def plan_for(topic: str, *, staged: bool = False) -> WritePlan:
    transactions = Transactions(f"{topic}-tx", staged=staged)
    return write_plan({"id": "BIGINT"}, topics=(topic,), delivery="exactly-once", transactions=transactions)


def ids(kafka: RunningKafka, topic: str) -> Counter[int]:
    return Counter(json.loads(m.value() or b"")["id"] for m in kafka.read(topic))


def numbers(spark: SparkSession, cluster: Cluster, topic: str) -> DataFrame:
    """A narrow read, so that a task both reads and writes."""
    return read_stream(spark, read_plan(topic, value=part("json", {"id": "BIGINT"})), cluster)


def failing(rows: DataFrame) -> DataFrame:
    return rows.select(F.when(F.col("id") == COUNT - 1, F.raise_error(F.lit("no"))).otherwise(F.col("id")).alias("id"))


def until_some_are_sent(kafka: RunningKafka, topic: str) -> None:
    until = time.monotonic() + 120
    while not sum(kafka.end_offsets(topic).values()):
        assert time.monotonic() < until, "nothing was sent"
        time.sleep(0.05)


def last_once_some_are_sent(kafka: RunningKafka, topic: str, rows: DataFrame) -> DataFrame:
    """The rows, whose last ones wait until records of earlier ones have come to the topic."""
    servers = kafka.bootstrap_servers

    def last_waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if COUNT - 1 in batch["id"].to_pylist():
                until_some_are_sent(RunningKafka(servers), topic)
            yield batch

    return rows.mapInArrow(last_waits, rows.schema)


def run(rows: DataFrame, plan: WritePlan, cluster: Cluster, checkpoint: Path) -> None:
    query = write_stream(rows, plan, cluster, checkpoint=str(checkpoint), trigger={"availableNow": True})
    assert query.awaitTermination(300)


def test_a_batch_whose_last_row_fails_does_not_count_as_written(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
) -> None:
    """What stands before the row that fails was sent, or on Spark 4.0 staged; the next start writes the batch whole."""
    source, topic = kdsl_topic("in"), kdsl_topic("out")
    kdsl_kafka.produce(source, *(json.dumps({"id": n}) for n in range(COUNT)))

    rows, by_tasks = numbers(spark, cluster, source), STREAM_WRITER.is_in(spark.version)
    if by_tasks:
        rows = last_once_some_are_sent(kdsl_kafka, topic, rows)
    with pytest.raises(Exception, match=r"USER_RAISED_EXCEPTION\] no"):
        run(failing(rows), plan_for(topic), cluster, tmp_path / "cp")
    assert (sum(kdsl_kafka.end_offsets(topic).values()) > 0) is by_tasks, "records are sent by the tasks that read them"
    assert ids(kdsl_kafka, topic) == {}
    run(numbers(spark, cluster, source), plan_for(topic), cluster, tmp_path / "cp")

    settle(kdsl_kafka, topic)
    assert ids(kdsl_kafka, topic) == dict.fromkeys(range(COUNT), 1)


def test_a_record_that_cannot_be_read_does_not_cut_its_batch_short(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
) -> None:
    source, topic = kdsl_topic("in"), kdsl_topic("out")
    kdsl_kafka.produce(source, *(json.dumps({"id": n}) for n in range(COUNT)), "no JSON")

    with pytest.raises(Exception, match=f"topic {source}, partition 0, offset {COUNT}"):
        run(numbers(spark, cluster, source), plan_for(topic), cluster, tmp_path / "cp")
    assert ids(kdsl_kafka, topic) == {}


@pytest.mark.reliability
def test_a_query_stopped_in_a_task_writes_its_whole_batch_later(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
) -> None:
    source, topic = kdsl_topic("in"), kdsl_topic("out")
    kdsl_kafka.produce(source, *(json.dumps({"id": n}) for n in range(COUNT)))

    over = tmp_path / "over"

    def last_waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            until = time.monotonic() + 300
            while COUNT - 1 in batch["id"].to_pylist() and not over.exists() and time.monotonic() < until:
                time.sleep(0.1)
            yield batch

    rows = numbers(spark, cluster, source)
    query = write_stream(
        rows.mapInArrow(last_waits, rows.schema), plan_for(topic), cluster, checkpoint=str(tmp_path / "cp")
    )
    try:
        until_some_are_sent(kdsl_kafka, topic)
        query.stop()
        assert ids(kdsl_kafka, topic) == {}
        run(rows, plan_for(topic), cluster, tmp_path / "cp")
    finally:
        over.touch()

    settle(kdsl_kafka, topic)
    assert ids(kdsl_kafka, topic) == dict.fromkeys(range(COUNT), 1)


def test_a_batch_write_whose_last_row_fails_shows_nothing(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()

    rows = last_once_some_are_sent(kdsl_kafka, topic, spark.range(COUNT, numPartitions=1).toDF("id"))
    with pytest.raises(Exception, match=r"USER_RAISED_EXCEPTION\] no"):
        write(failing(rows), plan_for(topic), cluster)

    assert sum(kdsl_kafka.end_offsets(topic).values()) > 0, "nothing was sent, so that nothing was tried here"
    assert ids(kdsl_kafka, topic) == {}
