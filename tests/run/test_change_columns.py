"""Changelogs with Spark's change columns, from a real Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl import Cluster, Col, DebeziumJson, Json, KafkaTable, PrimaryKey, UpsertTable
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPDATE = '{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"b"},"op":"u"}'


@pytest.mark.reliability
def test_rows_of_one_message_have_its_offset(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(
        topic, Record('{"before":null,"after":{"id":1,"name":"a"},"op":"c"}', timestamp=1000), Record(UPDATE),
        Record('{"before":{"id":1,"name":"b"},"after":null,"op":"d"}'),
    )  # fmt: skip

    class Changes(KafkaTable, topic=topic, value=DebeziumJson(), startup="earliest-offset"):
        id: Col[int]
        name: Col[str | None]

    rows = Changes.read(spark, Cluster(kdsl_kafka.bootstrap_servers), change_columns=True)

    assert rows.columns == ["id", "name", "_change_type", "_commit_version", "_commit_timestamp"]
    assert [tuple(row)[:4] for row in rows.collect()] == [
        (1, "a", "insert", 0),
        (1, "a", "update_preimage", 1),
        (1, "b", "update_postimage", 1),
        (1, "b", "delete", 2),
    ]
    assert rows.selectExpr("unix_millis(min(_commit_timestamp))").collect() == [(1000,)]


@pytest.mark.reliability
def test_upserts_without_state_have_the_offset_of_their_record(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(
        topic, Record('{"id":1,"name":"a"}', '{"id":1}'), Record('{"id":2,"name":"b"}', '{"id":2}'),
        Record(None, '{"id":2}'),
    )  # fmt: skip

    class Users(UpsertTable, topic=topic, key=Json(), value=Json(), changelog="upsert"):
        id: PrimaryKey[int]
        name: Col[str | None]

    rows = Users.read(spark, Cluster(kdsl_kafka.bootstrap_servers), change_columns=True).collect()

    assert sorted(tuple(row)[:4] for row in rows) == [(1, "a", "update_postimage", 0), (2, None, "delete", 2)]


@pytest.mark.reliability
def test_a_stream_has_them_after_a_restart_too(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = kdsl_topic()

    class Users(UpsertTable, topic=topic, key=Json(), value=Json(), changelog="upsert"):
        id: PrimaryKey[int]
        name: Col[str | None]

    seen: list[tuple[object, ...]] = []

    def run(*records: Record) -> list[tuple[object, ...]]:
        kdsl_kafka.produce(topic, *records)
        seen.clear()
        rows = Users.read_stream(spark, Cluster(kdsl_kafka.bootstrap_servers), change_columns=True)
        assert rows.columns == ["id", "name", "_change_type", "_commit_version", "_commit_timestamp"]
        writer = rows.writeStream.foreachBatch(lambda batch, _: seen.extend(tuple(row)[:4] for row in batch.collect()))
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        return sorted(seen)

    assert run(Record('{"id":1,"name":"a"}', '{"id":1}')) == [(1, "a", "update_postimage", 0)]
    changed = run(Record('{"id":1,"name":"b"}', '{"id":1}'), Record('{"id":2}', '{"id":2}'), Record(None, '{"id":2}'))
    assert changed == [(1, "b", "update_postimage", 1), (2, None, "delete", 3)]
