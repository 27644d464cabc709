"""Streams that carry the names of their tables: tables join and leave a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl import Cluster, load_sql
from kdsl.table import Table
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}


@pytest.fixture
def evolving(spark: SparkSession) -> SparkSession:
    """A session that names sources."""
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    return session


def tables(topic: MakeTopic, kafka: RunningKafka, *names: str) -> dict[str, Table]:
    """Tables with one row each: their name."""
    topics = {name: topic(name) for name in names}
    for name, of in topics.items():
        kafka.produce(of, name)
    return {
        name: load_sql(
            f"CREATE TABLE `{name}` (text STRING) WITH ('connector' = 'kafka', 'topic' = '{of}', 'format' = 'raw', "
            "'scan.startup.mode' = 'earliest-offset')"
        )[0]
        for name, of in topics.items()
    }


def copy(spark: SparkSession, kafka: RunningKafka, sources: Sequence[Table], folder: Path) -> list[str]:
    """Copy what is new in some tables to files, as one query with one checkpoint; return all rows so far."""
    cluster = Cluster(kafka.bootstrap_servers)
    streams = (source.read_stream(spark, cluster) for source in sources)
    rows = reduce(lambda one, other: one.union(other), streams)
    writer = rows.writeStream.format("json").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "rows")).awaitTermination()
    return sorted(row.text for row in spark.read.schema("text string").json(str(folder / "rows")).collect())


@pytest.mark.reliability
def test_a_table_joins_and_leaves_a_checkpoint(
    evolving: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    of = tables(kdsl_topic, kdsl_kafka, "first", "second", "shop.third")
    topic = of["second"].definition.options.topic[0]

    assert copy(evolving, kdsl_kafka, [of["first"], of["second"]], tmp_path) == ["first", "second"]

    kdsl_kafka.produce(topic, "again")
    joined = copy(evolving, kdsl_kafka, [of["shop.third"], of["second"]], tmp_path)

    assert joined == ["again", "first", "second", "shop.third"]


@pytest.mark.reliability
def test_a_query_that_reads_a_table_twice_names_one(
    evolving: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    table = tables(kdsl_topic, kdsl_kafka, "twice")["twice"]
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    rows = table.read_stream(evolving, cluster).union(table.read_stream(evolving, cluster, name="other"))
    writer = rows.writeStream.format("json").option("checkpointLocation", str(tmp_path / "checkpoint"))

    writer.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination()

    assert evolving.read.json(str(tmp_path / "rows")).count() == 2
