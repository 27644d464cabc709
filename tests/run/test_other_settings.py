"""A session that was started with other settings than kdsl's tests: it reads, writes, upserts, and keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl import Cluster, Col, Json, KafkaTable, PrimaryKey, UpsertTable, sql
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHER = {
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}


@pytest.fixture
def other(spark: SparkSession) -> Iterator[SparkSession]:
    """The session."""
    session = spark.newSession()
    for name, value in OTHER.items():
        session.conf.set(name, value)
    yield session
    spark.createDataFrame([], "a INT")  # which makes the session the active one again


def test_an_exactly_once_stream_and_upserts_with_state(
    other: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    cluster, sink, now = Cluster(kdsl_kafka.bootstrap_servers), kdsl_topic("sink"), {"availableNow": True}

    class Users(UpsertTable, topic=kdsl_topic("users"), key=Json(), value=Json()):
        id: PrimaryKey[int]
        name: Col[str]

    class Kinds(KafkaTable, topic=sink, value="raw", delivery="exactly-once", transactional_id_prefix=sink):
        kind: Col[str]

    Users.write(other.createDataFrame([(1, "a"), (1, "b"), (2, "c")], "id long, name string").coalesce(1), cluster)
    kinds = Users.read_stream(other, cluster).selectExpr("_row_kind AS kind")
    query = Kinds.write_stream(kinds, cluster, checkpoint=str(tmp_path), trigger=now)
    assert query.awaitTermination(300)

    settle(kdsl_kafka, sink)
    written = Counter((record.value() or b"").decode() for record in kdsl_kafka.read(sink))
    assert written == Counter(["+I", "-U", "+U", "+I"])
    assert {name: other.conf.get(name) for name in OTHER} == OTHER


def test_times_are_those_of_its_zone_by_a_table_and_by_the_data_source(
    other: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, Record('{"id":1}', timestamp=int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)))
    ddl = (
        "CREATE TABLE t (id INT, at TIMESTAMP(3) METADATA FROM 'timestamp') WITH ('connector' = 'kafka', "
        f"'topic' = '{topic}', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset')"
    )
    options = {"ddl": ddl, "bootstrap.servers": kdsl_kafka.bootstrap_servers}
    stream = other.readStream.format("kdsl").options(**options).load().selectExpr("CAST(at AS STRING) AS at")
    writer: Any = stream.writeStream.format("memory").queryName("times_of_tokyo").trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(300)

    by_table = sql(ddl).read(other, Cluster(kdsl_kafka.bootstrap_servers))
    by_source = other.read.format("kdsl").options(**options).load()

    for rows in (by_table, by_source, other.table("times_of_tokyo")):
        assert [row[0] for row in rows.selectExpr("CAST(at AS STRING)").collect()] == ["2024-01-01 09:00:00"]
