"""Tables of Delta Lake and of a real Postgres: those of ingestions, and targets of changelogs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kdsl
from kdsl import Cluster, Json
from kdsl.changelog import delta, jdbc
from kdsl.ingest import DeltaTables, Ingestion, JdbcTables, KafkaFeed, KafkaTopics, Pipeline, Route
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.deployment.setup import list_values, only
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "CREATE TABLE orders (id BIGINT, note STRING, {more}PRIMARY KEY (id) NOT ENFORCED)"


def feed(kafka: RunningKafka, topic: str, more: str = "") -> KafkaFeed:
    ddl = DDL.format(more=more).replace("orders", f"`{topic}`")
    return KafkaFeed(
        Cluster(kafka.bootstrap_servers), topic=(topic,), value=Json(), initial_schemas=ddl, startup="earliest-offset"
    )


def test_the_delta_tables_of_an_ingestion(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic, lake = kdsl_topic(), DeltaTables(str(tmp_path / "lake"))
    ingestion = Ingestion(feed(kdsl_kafka, topic), lake)
    wider = Ingestion(feed(kdsl_kafka, topic, "phone BIGINT, "), lake)
    path = str(tmp_path / "lake" / topic)

    created = only(kdsl.diff(ingestion, spark=spark))
    applied = kdsl.apply(ingestion, spark=spark)

    assert (created.mark, created.kind, created.name, created.place) == ("+", "table", topic, f"delta {path}")
    assert created.declared == "id BIGINT NOT NULL, note STRING"
    assert applied.done == (created,)
    assert not kdsl.diff(ingestion, spark=spark)
    added = only(kdsl.diff(wider, spark=spark))
    assert (added.mark, added.what, added.declared) == ("+", "column phone", "BIGINT")
    assert kdsl.apply(wider, spark=spark).done == (added,)
    assert not kdsl.diff(wider, spark=spark)
    assert not kdsl.diff(ingestion, spark=spark)  # a column that is only live stays


def test_the_postgres_tables_of_an_ingestion(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, spark: SparkSession, postgres: Postgres
) -> None:
    topic = kdsl_topic("t")
    sink = JdbcTables(postgres.url, username="kdsl", password=PASSWORD)
    ingestion = Ingestion(feed(kdsl_kafka, topic, "amount BIGINT, "), sink)
    target = jdbc(postgres.url, f'"{topic}"', {"user": "kdsl", "password": PASSWORD})

    assert [d.mark for d in kdsl.apply(ingestion, spark=spark).done] == ["+"]
    assert not kdsl.diff(ingestion, spark=spark)
    target.call(spark, lambda connection: connection.run(f'ALTER TABLE "{topic}" ALTER COLUMN amount TYPE integer'))

    narrow = only(kdsl.diff(ingestion, spark=spark))
    applied = kdsl.apply(ingestion, spark=spark)

    assert (narrow.mark, narrow.what, narrow.values) == ("~", "column amount", "INT → BIGINT")
    assert applied.done == (narrow,)
    assert not kdsl.diff(ingestion, spark=spark)
    target.call(
        spark, lambda connection: connection.run(f'ALTER TABLE "{topic}" ALTER COLUMN amount TYPE numeric(10,2)')
    )
    fractions = Ingestion(feed(kdsl_kafka, topic, "amount DOUBLE, "), sink)
    narrow = only(kdsl.diff(fractions, spark=spark))
    assert (narrow.mark, narrow.what, narrow.values) == ("!", "column amount", "DECIMAL(10, 2) → DOUBLE")
    assert "keeps this type" in narrow.consequence
    assert kdsl.apply(fractions, spark=spark).done == ()
    target.call(spark, lambda connection: connection.run(f'ALTER TABLE "{topic}" ALTER COLUMN amount TYPE bigint'))
    target.call(spark, lambda connection: connection.run(f'ALTER TABLE "{topic}" DROP CONSTRAINT "{topic}_pkey"'))
    keyless = only(kdsl.diff(ingestion, spark=spark))
    assert (keyless.mark, keyless.what) == ("!", "")
    assert "its primary key is ()" in keyless.consequence
    assert PASSWORD not in f"{keyless!r} {applied!r} {kdsl.diff(ingestion, spark=spark)}"


def test_a_database_that_does_not_answer_is_one_line(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, spark: SparkSession
) -> None:
    sink = JdbcTables("jdbc:postgresql://127.0.0.1:1/shop", username="etl", password="geheim-0815")

    difference = only(kdsl.diff(Ingestion(feed(kdsl_kafka, kdsl_topic()), sink), spark=spark))

    assert (difference.mark, difference.kind) == ("?", "table")
    assert "geheim-0815" not in repr(difference)


def test_a_sink_that_keeps_its_columns_leaves_new_ones_out(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic, lake = kdsl_topic(), DeltaTables(str(tmp_path / "lake"))
    kdsl.apply(Ingestion(feed(kdsl_kafka, topic), lake), spark=spark)
    wider = Ingestion(feed(kdsl_kafka, topic, "phone BIGINT, "), lake, pipeline=Pipeline(schema_change="IGNORE"))

    difference = only(kdsl.diff(wider, spark=spark))

    assert (difference.mark, difference.what, difference.declared) == ("!", "column phone", "BIGINT")
    assert kdsl.apply(wider, spark=spark).done == ()


def test_what_an_ingestion_has_learned_is_compared_and_a_table_that_is_gone_is_not_created(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, spark: SparkSession, tmp_path: Path
) -> None:
    import shutil

    topic, lake = kdsl_topic(), DeltaTables(str(tmp_path / "lake"))
    source = KafkaFeed(Cluster(kdsl_kafka.bootstrap_servers), topic=(topic,), value=Json(), startup="earliest-offset")
    checkpoint = str(tmp_path / "checkpoint")
    ingestion = Ingestion(source, lake, pipeline=Pipeline(name="lake", checkpoint=checkpoint))
    assert not kdsl.diff(ingestion, spark=spark)  # no table is known
    kdsl_kafka.produce(topic, '{"id": 1, "note": "a"}')
    ingestion.run(spark, once=True).awaitTermination()

    assert not kdsl.diff(ingestion, spark=spark)
    rerouted = Ingestion(source, lake, route=[Route(topic, "other")], pipeline=ingestion.pipeline)
    checkpoint_line, other = kdsl.diff(rerouted, spark=spark).differences
    assert (other.mark, other.kind, other.name) == ("+", "table", "other")
    assert (checkpoint_line.mark, checkpoint_line.kind, checkpoint_line.name) == ("!", "checkpoint", checkpoint)
    assert (checkpoint_line.live or "").endswith("written with another route")
    assert f"no table would go into {topic}" in checkpoint_line.consequence
    shutil.rmtree(tmp_path / "lake" / topic)
    gone = only(kdsl.diff(ingestion, spark=spark))

    assert (gone.mark, gone.kind) == ("!", "table")
    assert "the sink table is gone" in gone.consequence
    assert kdsl.apply(ingestion, spark=spark).done == ()


def test_topics_of_an_ingestions_sink_source_and_dead_letters(kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka) -> None:
    topic = kdsl_topic()
    sink = KafkaTopics(
        Cluster(kdsl_kafka.bootstrap_servers), mapping=f"{topic}:{topic}-out", partition_strategy="hash-by-key",
        topic_partitions=3,
    )  # fmt: skip
    source = feed(kdsl_kafka, topic)
    pipeline = Pipeline(collector="kafka", collector_topic=f"{topic}.dead")
    ingestion = Ingestion(source, sink, pipeline=pipeline)

    diff = kdsl.diff(ingestion)
    kdsl.apply(ingestion)

    assert sorted((d.mark, d.name) for d in diff.differences) == [("+", f"{topic}-out"), ("+", f"{topic}.dead")]
    assert not kdsl.diff(ingestion)
    assert len(kdsl_kafka.end_offsets(f"{topic}-out")) == 3
    for name in (f"{topic}-out", f"{topic}.dead"):
        kdsl_kafka.delete_topic(name)


def test_the_targets_of_a_changelog(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, spark: SparkSession, tmp_path: Path, postgres: Postgres
) -> None:
    topic, cluster = kdsl_topic("u", config={"cleanup.policy": "compact"}), Cluster(kdsl_kafka.bootstrap_servers)
    users = kdsl.sql(
        "CREATE TABLE Users (id BIGINT, age INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH "
        f"('connector' = 'upsert-kafka', 'topic' = '{topic}', 'key.format' = 'json', 'value.format' = 'json')"
    )
    login = {"user": "kdsl", "password": PASSWORD}
    for target in (delta(tmp_path / "users"), jdbc(postgres.url, f'"{topic}"', login)):
        targets = {"Users": target}

        created = only(kdsl.diff(users, cluster, targets=targets, spark=spark))
        kdsl.apply(users, cluster, targets=targets, spark=spark)

        assert (created.mark, created.kind) == ("+", "table")
        assert not kdsl.diff(users, cluster, targets=targets, spark=spark)
    database = jdbc(postgres.url, f'"{topic}"', login)
    database.call(spark, lambda connection: connection.run(f'ALTER TABLE "{topic}" DROP COLUMN name'))
    database.call(spark, lambda connection: connection.run(f'ALTER TABLE "{topic}" ALTER COLUMN age TYPE smallint'))
    changed = kdsl.diff(users, cluster, targets={"Users": database}, spark=spark)
    assert list_values(changed) == [("~", "column age", "SMALLINT", "INT"), ("+", "column name", None, "STRING")]
    kdsl.apply(users, cluster, targets={"Users": database}, spark=spark)
    assert not kdsl.diff(users, cluster, targets={"Users": database}, spark=spark)
    with pytest.raises(ValueError, match="'User' is not declared"):
        kdsl.diff(users, cluster, targets={"User": database}, spark=spark)
