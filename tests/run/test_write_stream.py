"""Streams written to a real broker: restarts, batches that are cut off, foreachBatch."""

from __future__ import annotations

import json
import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.plan.model import OutputMode, WritePlan
from kdsl.run.write import write, write_stream
from kdsl.testing import LocalKafka, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.outages import wait_for_connection
from tests.run.listeners.queries import until
from tests.run.write_plans import write_plan

NOW = {"availableNow": True}


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def put(folder: Path, numbers: range) -> None:
    """A file of rows for the stream to find."""
    hidden = folder / f".{numbers.start}"
    hidden.write_text("".join(f"{n}\n" for n in numbers), encoding="utf-8")
    hidden.rename(folder / f"{numbers.start}.txt")


def stream(spark: SparkSession, folder: Path, per_batch: int = 1) -> DataFrame:
    text = spark.readStream.option("maxFilesPerTrigger", per_batch).text(str(folder))
    return text.select(F.col("value").cast("bigint").alias("id"))


def plan_for(topic: str) -> WritePlan:
    return write_plan({"id": "BIGINT"}, topics=(topic,))


def ids(kafka: RunningKafka, topic: str) -> Counter[int]:
    return Counter(json.loads(m.value() or b"")["id"] for m in kafka.read(topic))


def test_a_stream_is_written_batch_by_batch(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, files: Path, tmp_path: Path
) -> None:
    topic = kdsl_topic(partitions=2)
    for start in (0, 10, 20):
        put(files, range(start, start + 10))

    query = write_stream(
        stream(spark, files), plan_for(topic), cluster, checkpoint=str(tmp_path / "cp"), trigger=NOW, name="orders-out"
    )
    query.awaitTermination(120)

    assert query.name == "orders-out"
    assert [p.batchId for p in query.recentProgress if p.numInputRows] == [0, 1, 2]
    assert ids(kdsl_kafka, topic) == dict.fromkeys(range(30), 1)


def test_a_restart_continues_after_what_was_written(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, files: Path, tmp_path: Path
) -> None:
    topic = kdsl_topic()
    for start in (0, 10):
        put(files, range(start, start + 10))
        query = write_stream(
            stream(spark, files), plan_for(topic), cluster, checkpoint=str(tmp_path / "cp"), trigger=NOW
        )
        query.awaitTermination(120)

    assert ids(kdsl_kafka, topic) == dict.fromkeys(range(20), 1)


def test_a_restart_without_the_plan_of_the_query_is_a_warning(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, files: Path, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    topic, checkpoint = kdsl_topic(), tmp_path / "cp"
    for start in (0, 10):
        put(files, range(start, start + 10))
        with caplog.at_level(logging.WARNING, "kdsl"):
            query = write_stream(
                stream(spark, files), plan_for(topic), cluster, checkpoint=str(checkpoint), trigger=NOW
            )
        assert ("kdsl/write.json, which says what the query wrote before" in caplog.text) == bool(start)
        query.awaitTermination(120)
        (checkpoint / "kdsl" / "write.json").unlink()

    assert ids(kdsl_kafka, topic) == dict.fromkeys(range(20), 1)


def test_a_batch_that_was_cut_off_is_written_again(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, files: Path, tmp_path: Path
) -> None:
    """As after a crash between Kafka's acknowledgement and Spark's note of it: nothing lost, that batch twice."""
    topic = kdsl_topic()
    checkpoint = tmp_path / "cp"
    for start in (0, 10):
        put(files, range(start, start + 10))
    write_stream(
        stream(spark, files), plan_for(topic), cluster, checkpoint=str(checkpoint), trigger=NOW
    ).awaitTermination(120)
    for note in [checkpoint / "commits" / "1", checkpoint / "commits" / ".1.crc"]:
        note.unlink(missing_ok=True)

    put(files, range(20, 30))
    write_stream(
        stream(spark, files), plan_for(topic), cluster, checkpoint=str(checkpoint), trigger=NOW
    ).awaitTermination(120)

    result = ids(kdsl_kafka, topic)
    assert set(result) == set(range(30))
    assert {n for n, count in result.items() if count == 2} in (set(range(10)), set(range(10, 20)))


def test_a_row_that_cannot_be_written_stops_the_query_until_it_is_mended(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, files: Path, tmp_path: Path
) -> None:
    topic = kdsl_topic()
    plan = write_plan({"id": "BIGINT NOT NULL"}, topics=(topic,))
    put(files, range(5))
    put(files, range(7, 9))

    query = write_stream(
        stream(spark, files).withColumn("id", F.expr("nullif(id, 7)")),
        plan,
        cluster,
        checkpoint=str(tmp_path / "cp"),
        trigger=NOW,
    )
    with pytest.raises(Exception, match="row 1 of the task: id is NULL, but declared NOT NULL"):
        query.awaitTermination(120)

    again = write_stream(
        stream(spark, files).where("id <> 7"), plan, cluster, checkpoint=str(tmp_path / "cp"), trigger=NOW
    )
    again.awaitTermination(120)
    assert set(ids(kdsl_kafka, topic)) == {0, 1, 2, 3, 4, 8}


def test_foreach_batch_may_write(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, files: Path, tmp_path: Path
) -> None:
    even, odd = kdsl_topic("even"), kdsl_topic("odd")
    put(files, range(10))

    def both(batch: DataFrame, _: int) -> None:
        write(batch.where("id % 2 = 0"), plan_for(even), cluster)
        write(batch.where("id % 2 = 1"), plan_for(odd), cluster)

    query = (
        stream(spark, files)
        .writeStream.foreachBatch(both)
        .option("checkpointLocation", str(tmp_path / "cp"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)

    assert ids(kdsl_kafka, even) == dict.fromkeys(range(0, 10, 2), 1)
    assert ids(kdsl_kafka, odd) == dict.fromkeys(range(1, 10, 2), 1)


@pytest.mark.reliability
def test_a_stream_outlives_a_broker_that_is_killed(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    with LocalKafka(topics={"orders": 2}) as kafka:
        for start in range(0, 4000, 1000):
            put(files, range(start, start + 1000))
        patient = {"delivery.timeout.ms": "300000", "max.block.ms": "300000"}
        cluster = Cluster(kafka.bootstrap_servers, properties=patient)
        query = write_stream(stream(spark, files), plan_for("orders"), cluster, checkpoint=str(tmp_path / "cp"))
        until(lambda: sum(kafka.end_offsets("orders").values()) >= 4000)
        kafka.kill()
        for start in range(4000, 8000, 1000):
            put(files, range(start, start + 1000))
        wait_for_connection(kafka.bootstrap_servers)
        kafka.start_broker()
        query.processAllAvailable()
        query.stop()

        assert set(ids(kafka, "orders")) == set(range(8000))


@pytest.mark.parametrize(
    ("mode", "reason"), [("update", "emits a row again whenever it changes"), ("complete", "replaces the whole result")]
)
def test_other_output_modes_are_refused_with_the_reason(
    spark: SparkSession, cluster: Cluster, files: Path, tmp_path: Path, mode: OutputMode, reason: str
) -> None:
    with pytest.raises(KdslError, match=f"the output mode '{mode}' {reason}.*use 'append'"):
        write_stream(
            stream(spark, files), plan_for("orders"), cluster, checkpoint=str(tmp_path / "cp"), output_mode=mode
        )


def test_a_thread_without_a_session_of_its_own_may_write(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, files: Path, tmp_path: Path
) -> None:
    """Spark looks for the data source in the session of the thread."""
    topic = kdsl_topic()
    put(files, range(3))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write, spark.range(3), plan_for(topic), cluster).result()
        query = pool.submit(
            write_stream,
            stream(spark, files),
            plan_for(topic),
            cluster,
            checkpoint=str(tmp_path / "cp"),
            trigger={"availableNow": True},
        ).result()
        query.awaitTermination(120)

    assert sorted(json.loads(m.value() or b"")["id"] for m in kdsl_kafka.read(topic)) == [0, 0, 1, 1, 2, 2]


def test_the_trigger_of_real_time_mode_is_refused_without_it(
    spark: SparkSession, cluster: Cluster, files: Path, tmp_path: Path
) -> None:
    with pytest.raises(KdslError, match="realTime and latency='micro-batch' contradict each other"):
        write_stream(
            stream(spark, files),
            plan_for("orders"),
            cluster,
            checkpoint=str(tmp_path / "cp"),
            trigger={"realTime": "5 seconds"},
        )


def test_a_batch_is_refused_by_a_stream_write(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(KdslError, match="the DataFrame is not a stream, but write_stream takes one; use write"):
        write_stream(spark.range(1), plan_for("orders"), cluster, checkpoint=str(tmp_path / "cp"))


def test_a_topic_that_does_not_exist_is_reported_before_the_query_starts(
    spark: SparkSession, cluster: Cluster, files: Path, tmp_path: Path
) -> None:
    with pytest.raises(KdslError, match="the cluster has no topic 'no-such-topic'"):
        write_stream(stream(spark, files), plan_for("no-such-topic"), cluster, checkpoint=str(tmp_path / "cp"))

    assert not (tmp_path / "cp").exists()
