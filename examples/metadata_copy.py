"""Copy a topic with all metadata of each record: metadata columns are read, physical columns are written.

The source is CSV with a control character between the values, so that a whole message is one column; the sink is JSON.
Run it with ``python examples/metadata_copy.py host:port``.
"""

from __future__ import annotations

import sys
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from kdsl import Cluster, Col, Csv, Headers, Int32, Json, KafkaTable, TimestampNtz, Virtual, col, metadata, virtual


class KafkaSource(
    KafkaTable,
    topic="SourceKafkaTopic",
    value=Csv(field_delimiter="\u0001", quote_character="'"),
    group_id="GroupId",
    startup="earliest",
):
    """Messages as strings, with their metadata."""

    topic: Virtual[str] = virtual("topic")
    partition: Virtual[int] = virtual("partition")
    headers: Virtual[Headers] = virtual("headers")
    leader_epoch: Virtual[int | None] = virtual("leader-epoch", name="leader-epoch")
    offset: Virtual[int] = virtual("offset")
    timestamp_type: Virtual[str] = virtual("timestamp-type", name="timestamp-type")
    event_time: Col[datetime] = metadata("timestamp", type="TIMESTAMP(3)")
    message: Col[str]


class KafkaSink(KafkaTable, topic="SinkKafkaTopic", value=Json(), startup="earliest"):
    """The same values as physical columns of a JSON message."""

    topic: Col[str]
    partition: Col[Int32]
    headers: Col[Headers]
    leader_epoch: Col[Int32 | None] = col(name="leader-epoch")
    offset: Col[int]
    timestamp_type: Col[str] = col(name="timestampType")
    event_time: Col[TimestampNtz]
    message: Col[str]


def copy(spark: SparkSession, cluster: Cluster) -> DataFrame:
    """Copy all current records; returns the rows of the sink's topic."""
    source = KafkaSource.read(spark, cluster)
    KafkaSink.write(source.withColumnRenamed(KafkaSource.timestamp_type, KafkaSink.timestamp_type), cluster)
    return KafkaSink.read(spark, cluster)


def main() -> None:
    """Run against the brokers that the command line names."""
    spark = SparkSession.builder.appName("metadata copy").getOrCreate()
    copy(spark, Cluster(sys.argv[1])).show(truncate=False)


if __name__ == "__main__":
    main()
