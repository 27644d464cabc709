"""The warning of an aggregation over change data, when kdsl starts the query."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl import Col, DebeziumJson, Json, KafkaTable, PrimaryKey, UpsertTable
from kdsl.changelog import Changelog, memory
from kdsl.cluster import Cluster
from kdsl.declare.connector import Transport
from kdsl.run.repeated_events import warn_of_repeated_events
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.test_upsert import one_transport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WARNING = "the query aggregates the change data of Users"


def users(spark: SparkSession, cluster: Cluster, name: str = "users", **arguments: Any) -> DataFrame:
    class Users(KafkaTable, topic=name, value=DebeziumJson(), startup="earliest", primary_key=["id"], **arguments):
        id: Col[int]
        region: Col[str | None]

    return Users.read_stream(spark, cluster)


@pytest.mark.parametrize(("duplicate", "warns"), [(False, True), (True, False)])
def test_an_aggregation_of_events_is_warned_of_unless_they_are_compared_with_state(
    duplicate: bool, warns: bool, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="kdsl.read")
    df = users(spark, Cluster("127.0.0.1:1"), cdc_events_duplicate=duplicate)

    warn_of_repeated_events(df.groupBy("region").count().where("count > 1"), "Regions")
    assert (f"Regions: {WARNING}" in caplog.text) is warns
    caplog.clear()
    warn_of_repeated_events(df.select("id", "region"), "Regions")
    assert WARNING not in caplog.text


@one_transport
def test_it_comes_once_when_a_query_is_started(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    transport: Transport,
) -> None:
    caplog.set_level(logging.WARNING, logger="kdsl.read")
    source, sink = kdsl_topic("users"), kdsl_topic("regions")
    kdsl_kafka.produce(source, '{"op": "c", "before": null, "after": {"id": 1, "region": "n"}}')
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    class Regions(UpsertTable, topic=sink, key=Json(), value=Json()):
        region: PrimaryKey[str]
        count: Col[int]

    counts = users(spark, cluster, source, transport=transport).where("region IS NOT NULL").groupBy("region").count()
    applied = Changelog(counts, keys=["region"])
    query = applied.apply_to(memory(), checkpoint=str(tmp_path / "a"), trigger={"availableNow": True})
    assert query.awaitTermination(300)
    assert caplog.text.count(WARNING) == 1
    caplog.clear()
    query = Regions.write_stream(counts, cluster, checkpoint=str(tmp_path / "b"), trigger={"availableNow": True})
    assert query.awaitTermination(300)
    assert caplog.text.count(f"Regions: {WARNING}") == 1
