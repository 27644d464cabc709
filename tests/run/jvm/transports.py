"""What the tests of both transports share: a stream with a checkpoint, run again and again; committed offsets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from kdsl.cluster import Cluster
from kdsl.plan.model import ReadPlan
from kdsl.run.read import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRANSPORTS = ("librdkafka", "jvm")


def sort_strings(df: DataFrame) -> list[Any]:
    """The values of the column ``text``, sorted."""
    return sorted(row["text"] for row in df.collect())


def run(spark: SparkSession, plan: ReadPlan, cluster: Cluster, checkpoint: Path) -> list[Any]:
    """What a stream reads that goes on from a checkpoint, until nothing is left."""
    results: list[Any] = []
    writer = read_stream(spark, plan, cluster).writeStream.foreachBatch(lambda df, _: results.extend(sort_strings(df)))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return sorted(results)


def commit(cluster: Cluster, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets for a group."""
    consumer = Consumer({**cluster.consumer(), "group.id": group})
    try:
        partitions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        consumer.commit(offsets=partitions, asynchronous=False)
    finally:
        consumer.close()
