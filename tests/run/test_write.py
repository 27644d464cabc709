"""Batch writes of DataFrames to a real broker, and encoding without one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, ResolveError, WriteError
from kdsl.run.write import encode, write
from kdsl.testing import LocalKafka, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.write_plans import write_plan

VALUE = {"name": "STRING", "payload": "STRING"}


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def people(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT * FROM VALUES (100L, 'name 1', 'payload 1', TIMESTAMP'2020-03-08 13:12:11.123'),"
        " (101L, 'name 2', NULL, TIMESTAMP'2020-03-09 13:12:11.123') AS t(event_id, name, payload, ts)"
    ).coalesce(1)


def test_key_value_and_metadata_are_written(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    plan = write_plan(
        VALUE,
        key={"event_id": "BIGINT"},
        metadata={"ts": "timestamp", "h": "headers"},
        key_format="csv",
        topics=(topic,),
    )
    df = people(spark).withColumn("h", F.when(F.col("event_id") == 100, F.create_map(F.lit("k1"), F.lit(b"\xc0"))))

    write(df, plan, cluster)

    assert [(m.key(), m.value(), m.timestamp(), m.headers()) for m in kdsl_kafka.read(topic)] == [
        (b"100", b'{"name":"name 1","payload":"payload 1"}', (1, 1583673131123), [("k1", b"\xc0")]),
        (b"101", b'{"name":"name 2","payload":null}', (1, 1583759531123), None),
    ]


def test_tombstones_are_written_through_the_raw_value(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    plan = write_plan(metadata={"k": "__raw_key__", "v": "__raw_value__"}, types={"k": "STRING"}, topics=(topic,))

    write(
        spark.createDataFrame([("a", b"1"), ("a", None), (None, b"")], "k STRING, v BINARY").coalesce(1), plan, cluster
    )

    assert [(m.key(), m.value()) for m in kdsl_kafka.read(topic)] == [(b"a", b"1"), (b"a", None), (None, b"")]


@pytest.mark.parametrize("by", ["list", "pattern"])
def test_rows_go_to_the_topics_that_they_name(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, by: str
) -> None:
    first, second = kdsl_topic("t1"), kdsl_topic("t2")
    topics: dict[str, Any] = {"topics": (first, second)} if by == "list" else {"pattern": r"t\d-.*"}
    plan = write_plan({"user_id": "INT"}, metadata={"topic": "topic"}, **topics)
    df = spark.createDataFrame([(first, 1), (second, 2)], "topic STRING, user_id INT")

    write(df, plan, cluster)

    assert [m.value() for m in kdsl_kafka.read(first)] == [b'{"user_id":1}']
    assert [m.value() for m in kdsl_kafka.read(second)] == [b'{"user_id":2}']


def test_all_partitions_of_a_dataframe_are_written(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic(partitions=3)
    plan = write_plan({"id": "BIGINT"}, topics=(topic,))

    write(spark.range(0, 25_000, 1, 5), plan, cluster)

    assert sorted(json.loads(m.value() or b"")["id"] for m in kdsl_kafka.read(topic)) == list(range(25_000))


def test_an_empty_dataframe_writes_nothing(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()

    write(spark.range(0), write_plan({"id": "BIGINT"}, topics=(topic,)), cluster)

    assert kdsl_kafka.read(topic) == []


def test_the_sessions_settings_are_the_users(spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    before = spark.conf.getAll
    plan = write_plan({"id": "BIGINT NOT NULL"}, topics=(kdsl_topic(),))

    write(spark.range(3), plan, cluster)
    with pytest.raises(WriteError):
        write(spark.sql("SELECT CAST(NULL AS BIGINT) AS id"), plan, cluster)

    assert spark.conf.getAll == before


def test_a_limit_of_batches_that_the_session_sets_is_kept(
    spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    limit = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(limit, "7")
    try:
        write(spark.range(20), write_plan({"id": "BIGINT"}, topics=(kdsl_topic(),)), cluster)
        assert spark.conf.get(limit) == "7"
        assert "spark.sql.execution.arrow.maxBytesPerBatch" not in spark.conf.getAll
    finally:
        spark.conf.unset(limit)


def test_a_null_in_a_column_declared_not_null_fails_the_write(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    plan = write_plan({"id": "INT NOT NULL"}, topics=(topic,))
    df = spark.createDataFrame([(1,), (None,), (3,)], "id INT").coalesce(1)

    with pytest.raises(WriteError) as caught:
        write(df, plan, cluster)

    assert str(caught.value) == (
        f"Orders: cannot write the record at topic {topic}: row 2 of the task: id is NULL, but declared NOT NULL; "
        "give it a value, or declare it nullable"
    )
    assert kdsl_kafka.read(topic) == []


def test_the_exception_of_a_task_is_reported_in_one_sentence(
    spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    plan = write_plan({"v": "STRING"}, value_format="raw", topics=(topic,))

    with pytest.raises(WriteError) as caught:
        write(spark.sql("SELECT repeat('x', 2000000) AS v"), plan, cluster)

    assert str(caught.value) == (
        f"Orders: cannot write the record at topic {topic}: row 1 of the task: its key and value have 2,000,000 bytes, "
        "too large for the producer, which accepts 1,048,576; raise 'max.request.size' (1048576) of the producer and "
        "'max.message.bytes' of the topic"
    )
    assert "PYTHON_EXCEPTION" in str(caught.value.__cause__) or "Traceback" in str(caught.value.__cause__)


@pytest.mark.reliability
def test_a_topic_that_does_not_exist_is_reported_before_anything_runs(
    spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic("orders")
    plan = write_plan({"id": "BIGINT"}, topics=(topic[:-1],))

    with pytest.raises(KdslError, match=f"the cluster has no topic '{topic[:-1]}'.*{topic}"):
        write(spark.range(1), plan, cluster)


def test_brokers_that_cannot_be_reached_are_reported_before_anything_runs(spark: SparkSession) -> None:
    nowhere = Cluster("127.0.0.1:1", properties={"default.api.timeout.ms": "2000"})

    with pytest.raises(KdslError, match=r"no broker of 127\.0\.0\.1:1 answered"):
        write(spark.range(1), write_plan({"id": "BIGINT"}), nowhere)


def test_a_transactional_id_is_refused(spark: SparkSession, cluster: Cluster) -> None:
    own = Cluster(cluster.bootstrap_servers, properties={"transactional.id": "mine"})

    with pytest.raises(ResolveError) as caught:
        write(spark.range(1), write_plan({"id": "BIGINT"}), own)

    assert "'transactional.id' cannot be set" in str(caught.value)


def test_a_stream_is_refused_by_a_batch_write(spark: SparkSession, cluster: Cluster) -> None:
    stream = spark.readStream.format("rate").load().select(F.col("value").alias("id"))

    with pytest.raises(KdslError, match="the DataFrame is a stream, but write takes a batch; use write_stream"):
        write(stream, write_plan({"id": "BIGINT"}), cluster)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    from kdsl.run.librdkafka.datasource import FORMAT, register
    from kdsl.run.librdkafka.options import write_options

    plan = write_plan({"id": "BIGINT"}, topics=(kdsl_topic(),))
    register(spark)

    with pytest.raises(Exception, match="a topic cannot be overwritten: Kafka only appends"):
        spark.range(1).write.format(FORMAT).mode("overwrite").options(**write_options(plan, cluster)).save()


def test_secrets_reach_the_tasks_and_show_nowhere(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A password that is written out, and one that stands in a file."""
    secret = "hunter-2-hunter"
    (tmp_path / "password").write_text(secret, encoding="utf-8")
    with LocalKafka(security="sasl_plain", users={"writer": secret}, topics=["literal", "reference"]) as kafka:
        for topic, value in (("literal", secret), ("reference", f"${{file:{tmp_path / 'password'}}}")):
            plan = write_plan({"id": "BIGINT NOT NULL"}, topics=(topic,))
            cluster = Cluster(
                kafka.bootstrap_servers,
                properties={
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.jaas.config": f'org.x.PlainLoginModule required username="writer" password="{value}";',
                },
            )
            write(spark.range(3), plan, cluster)
            with pytest.raises(WriteError) as caught:
                write(spark.sql("SELECT CAST(NULL AS BIGINT) AS id"), plan, cluster)
            out, err = capfd.readouterr()

            assert len(kafka.read(topic)) == 3
            assert secret not in f"{caught.value!r} {caught.value.__cause__} {cluster} {out} {err}"


def test_records_are_encoded_without_a_broker(spark: SparkSession) -> None:
    plan = write_plan(
        VALUE, key={"event_id": "BIGINT"}, metadata={"ts": "timestamp", "h": "headers"}, topics=("somewhere",)
    )
    df = people(spark).withColumn("h", F.create_map(F.lit("k1"), F.lit(b"\xc0")))

    records = encode(df, plan)

    assert [f"{f.name} {f.dataType.simpleString()}" for f in records.schema] == [
        "key binary",
        "value binary",
        "topic string",
        "headers array<struct<key:string,value:binary>>",
        "timestamp timestamp",
    ]
    first, _ = records.collect()
    assert (first.key, first.value) == (b'{"event_id":100}', b'{"name":"name 1","payload":"payload 1"}')
    assert (first.topic, first.headers) == ("somewhere", [("k1", b"\xc0")])
    assert first.timestamp.astimezone(UTC) == datetime(2020, 3, 8, 13, 12, 11, 123000, UTC)


def test_encoding_leaves_out_what_the_plan_does_not_write(spark: SparkSession) -> None:
    assert encode(spark.range(1), write_plan({"id": "BIGINT"})).collect() == [(None, b'{"id":0}', "orders")]


def test_archived_records_can_be_stored_in_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "archive")

    encode(spark.range(3), write_plan({"id": "BIGINT"})).write.parquet(folder)

    assert sorted(r.value for r in spark.read.parquet(folder).collect()) == [b'{"id":0}', b'{"id":1}', b'{"id":2}']


def test_columns_of_every_type_reach_the_encoder(spark: SparkSession) -> None:
    columns = {
        "a": ("BOOLEAN", "true", True),
        "b": ("TINYINT", "CAST(-1 AS TINYINT)", -1),
        "c": ("SMALLINT", "CAST(300 AS SMALLINT)", 300),
        "d": ("FLOAT", "CAST(0.5 AS FLOAT)", 0.5),
        "e": ("DECIMAL(20, 3)", "CAST(1.5 AS DECIMAL(20, 3))", 1.5),
        "f": ("BYTES", "X'0001'", "AAE="),
        "g": ("CHAR(3)", "'abc'", "abc"),
        "h": ("DATE", "DATE'2024-02-29'", "2024-02-29"),
        "i": ("TIME(3)", "TIME'12:30:15.25'", "12:30:15.25"),
        "j": ("TIMESTAMP(3)", "TIMESTAMP_NTZ'2024-02-29 12:30:15.25'", "2024-02-29 12:30:15.25"),
        "k": ("TIMESTAMP_LTZ(3)", "TIMESTAMP'2024-02-29 12:30:15.25'", "2024-02-29 12:30:15.25Z"),
        "l": ("ARRAY<ARRAY<INT>>", "array(array(1, NULL), NULL)", [[1, None], None]),
        "m": ("MAP<STRING, ROW<x INT NOT NULL>>", "map('k', named_struct('x', 1))", {"k": {"x": 1}}),
        "n": ("MULTISET<STRING>", "map('k', 2)", {"k": 2}),
        "o": (
            "ROW<x ARRAY<STRING>, y MAP<STRING, BIGINT>>",
            "named_struct('x', array('s'), 'y', map('k', 1L))",
            {"x": ["s"], "y": {"k": 1}},
        ),
    }
    plan = write_plan({name: kind for name, (kind, _, _) in columns.items()})
    df = spark.sql("SELECT " + ", ".join(f"{sql} AS {name}" for name, (_, sql, _) in columns.items()))

    (record,) = encode(df, plan).collect()

    assert json.loads(record.value) == {name: expected for name, (_, _, expected) in columns.items()}
