"""Ingestions on Spark, from a real Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kdsl.cluster import Cluster
from kdsl.ingest import Ingestion, KafkaFeed, Memory, Route, Transform
from kdsl.ingest.run.query import start_ingestion
from kdsl.ingest.run.sinks import MemoryWriter
from kdsl.testing import LocalKafka
from kdsl_formats.json import Json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.testing.pytest_plugin import MakeTopic


def run_once(spark: SparkSession, ingestion: Ingestion, writer: MemoryWriter, folder: Path) -> None:
    cluster = ingestion.source.cluster  # type: ignore[attr-defined]
    query = start_ingestion(spark, ingestion.plan(), cluster, writer, str(folder / "checkpoint"), once=True)
    query.awaitTermination()


def test_columns_are_learned_over_two_runs(
    kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kdsl_topic()
    feed = KafkaFeed(Cluster(kdsl_kafka.bootstrap_servers), topic=(topic,), value=Json(), startup="earliest-offset")
    rule = Transform(r"\.*", projection="*, id + 1 AS next", primary_keys=("id",))
    ingestion = Ingestion(feed, Memory(), transform=[rule], route=[Route(r"\.*", "lake.t")])
    writer = MemoryWriter()
    kdsl_kafka.produce(topic, '{"id": 1, "n": "a"}', '{"id": 2, "n": 5}')
    run_once(spark, ingestion, writer, tmp_path)
    kdsl_kafka.produce(topic, '{"id": 2, "more": 2.5}')
    run_once(spark, ingestion, writer, tmp_path)

    assert writer.tables["lake", "t"].rows() == [
        {"id": 1, "n": "a", "next": 2, "more": None}, {"id": 2, "n": None, "next": 3, "more": 2.5},
    ]  # fmt: skip
