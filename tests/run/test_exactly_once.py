"""Exactly-once on a real broker: batches and streams, restarts, other writers, what is refused."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl.cluster import Cluster
from kdsl.declare.connector import Delivery
from kdsl.errors import KdslError, ResolveError
from kdsl.plan.model import Transactions, WritePlan
from kdsl.run.checkpoint import CheckpointError
from kdsl.run.librdkafka.transactions.token import ExactlyOnceError
from kdsl.run.read import read_stream
from kdsl.run.write import write, write_stream
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.read_plans import read_plan
from tests.run.test_write_stream import put, stream
from tests.run.write_plans import part, write_plan

NOW = {"availableNow": True}


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def plan_for(topic: str, prefix: str = "", *, staged: bool = False, **rest: Any) -> WritePlan:
    """A table of one number that is written exactly once."""
    exactly: Delivery = "exactly-once"
    transactions = Transactions(prefix or f"{topic}-tx", staged=staged)
    return write_plan({"id": "BIGINT"}, topics=(topic,), delivery=exactly, transactions=transactions, **rest)


def ids(kafka: RunningKafka, topic: str, *, committed: bool = True) -> Counter[int]:
    return Counter(json.loads(m.value() or b"")["id"] for m in kafka.read(topic, committed=committed))


def forget(checkpoint: Path, batch: int) -> None:
    """As after a crash between Kafka's commit and Spark's note of it."""
    for note in [checkpoint / "commits" / str(batch), checkpoint / "commits" / f".{batch}.crc"]:
        note.unlink(missing_ok=True)


def last(checkpoint: Path) -> int:
    return max(int(p.name) for p in (checkpoint / "commits").iterdir() if p.name.isdigit())


def run(df: DataFrame, plan: WritePlan, cluster: Cluster, checkpoint: Path, **rest: Any) -> None:
    write_stream(df, plan, cluster, checkpoint=str(checkpoint), trigger=NOW, **rest).awaitTermination(120)


class TestBatch:
    def test_a_batch_is_committed_at_its_end(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        """The reference's scenarios A4 and F3."""
        topic = kdsl_topic(partitions=3)

        write(spark.range(1000, numPartitions=5), plan_for(topic), cluster)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(1000), 1)

    def test_a_batch_that_fails_shows_nothing_of_the_part_that_failed(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        rows = spark.range(100, numPartitions=4).select(F.expr("if(id = 99, raise_error('no'), id)").alias("id"))

        with pytest.raises(Exception, match="no"):
            write(rows, plan_for(topic, parallelism=1), cluster)

        assert ids(kdsl_kafka, topic) == {}
        kdsl_kafka.produce(topic, '{"id": 1}')
        assert kdsl_kafka.end_offsets(topic, committed=True) == kdsl_kafka.end_offsets(topic)

    def test_batches_follow_one_another_under_a_prefix(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()

        write(spark.range(10), plan_for(topic), cluster)
        write(spark.range(10), plan_for(topic), cluster)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(10), 2)

    def test_a_write_with_an_id_is_done_once(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()

        for write_id in ("monday", "monday", "tuesday"):
            write(spark.range(10, numPartitions=3), plan_for(topic), cluster, write_id=write_id)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(10), 2)


class TestStream:
    def test_a_stream_is_written_batch_by_batch(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        """The reference's scenario F2, over a table of kdsl: no shuffle."""
        source, topic = kdsl_topic("in", partitions=3), kdsl_topic("out", partitions=2)
        checkpoint = tmp_path / "cp"
        for start in (0, 3000):
            kdsl_kafka.produce(source, *(json.dumps({"id": n}) for n in range(start, start + 3000)))
            rows = read_stream(spark, read_plan(source, value=part("json", {"id": "BIGINT"})), cluster)
            run(rows, plan_for(topic), cluster, checkpoint)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(6000), 1)
        assert json.loads((checkpoint / "kdsl" / "write.json").read_text())["spread"]["by"] == "tasks"

    def test_a_batch_that_was_committed_is_not_written_again(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        files: Path,
        tmp_path: Path,
    ) -> None:
        topic = kdsl_topic()
        checkpoint = tmp_path / "cp"
        for start in (0, 10):
            put(files, range(start, start + 10))
        run(stream(spark, files), plan_for(topic), cluster, checkpoint)
        forget(checkpoint, 1)

        put(files, range(20, 30))
        run(stream(spark, files), plan_for(topic), cluster, checkpoint)

        assert ids(kdsl_kafka, topic) == dict.fromkeys(range(30), 1)
