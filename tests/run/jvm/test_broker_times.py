"""Topics whose brokers stamp the records (``LogAppendTime``), on both transports: the brokers' times count."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions as F

from kdsl import Col, KafkaTable, Raw, Virtual, metadata, virtual
from kdsl.cluster import Cluster
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.jvm.transports import TRANSPORTS

LONG_AGO = 1_000_000_000_000
EPOCH = datetime.fromtimestamp(0, UTC)
NOW: dict[str, Any] = {"availableNow": True}


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture
def stamped_topic(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> tuple[str, datetime]:
    """A topic of two partitions with two records each, and the time between the first and the second two."""
    topic = kdsl_topic(partitions=2, config={"message.timestamp.type": "LogAppendTime"})
    kdsl_kafka.produce(topic, *(Record(f"old {p}", partition=p, timestamp=LONG_AGO) for p in (0, 1)))
    between = max(message.timestamp()[1] for message in kdsl_kafka.read(topic)) + 1
    until = time.monotonic() + 120
    while time.time() * 1000 < between:  # by the clock of this machine, which is the brokers', too
        assert time.monotonic() < until
        time.sleep(0.005)
    kdsl_kafka.produce(topic, *(Record(f"new {p}", partition=p, timestamp=LONG_AGO) for p in (0, 1)))
    return topic, EPOCH + timedelta(milliseconds=between)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_broker_timestamps_are_read_and_define_start_and_end(
    spark: SparkSession, cluster: Cluster, stamped_topic: tuple[str, datetime], tmp_path: Path, transport: Any
) -> None:
    topic, between = stamped_topic

    class All(KafkaTable, topic=topic, value=Raw(), startup="earliest", transport=transport):
        text: Col[str]
        at: Col[datetime] = metadata("timestamp")
        kind: Virtual[str] = virtual("timestamp-type")

    class Later(All, startup=between):
        pass

    class Earlier(All, bounded=between):
        pass

    def stream_rows(table: type[All]) -> list[str]:
        results: list[str] = []
        rows = table.read_stream(spark, cluster)
        writer = rows.writeStream.foreachBatch(lambda df, _: results.extend(row.text for row in df.collect()))
        writer = writer.option("checkpointLocation", str(tmp_path / table.__name__)).trigger(**NOW)
        assert writer.start().awaitTermination(300)
        return sorted(results)

    rows = All.read(spark, cluster).collect()
    assert {row.kind for row in rows} == {"LogAppendTime"}
    assert all(abs(row.at.replace(tzinfo=UTC) - between).total_seconds() < 600 for row in rows)
    assert sorted(r.text for r in Later.read(spark, cluster).collect()) == ["new 0", "new 1"]
    assert sorted(r.text for r in Earlier.read(spark, cluster).collect()) == ["old 0", "old 1"]
    assert stream_rows(Later) == ["new 0", "new 1"]
    assert stream_rows(Earlier) == ["old 0", "old 1"]


@pytest.mark.parametrize("transport", ["librdkafka", pytest.param("jvm", marks=pytest.mark.reliability)])
def test_a_watermark_follows_the_brokers_times(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    cluster: Cluster,
    stamped_topic: tuple[str, datetime],
    tmp_path: Path,
    transport: Any,
) -> None:
    topic, between = stamped_topic

    class Clicks(KafkaTable, topic=topic, value=Raw(), startup="earliest", transport=transport):
        text: Col[str]
        at: Col[datetime] = metadata("timestamp", watermark="5 seconds")

    rows = Clicks.read_stream(spark, cluster)
    counts = rows.groupBy(F.window("at", "1 hour")).count()
    query = (
        counts.writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(tmp_path / "cp"))
        .trigger(**NOW)
        .start()
    )
    assert query.awaitTermination(300)

    marks = [p["eventTime"]["watermark"] for p in query.recentProgress if p["eventTime"].get("watermark")]
    assert max(datetime.fromisoformat(m) for m in marks) >= between - timedelta(seconds=5)
