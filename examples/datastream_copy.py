"""The job of Flink's DataStream pages on Spark: copy the strings of one topic to another, in capitals.

Run it with ``python examples/datastream_copy.py host:port``; it reads ``input-topic`` and writes ``output-topic``.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession, functions as F

from kdsl import (
    DeliveryGuarantee,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    OffsetsInitializer,
    SimpleStringSchema,
)


def source(brokers: str) -> KafkaSource:
    """The strings of ``input-topic`` with the timestamps of their records, up to the current end."""
    strings = KafkaRecordDeserializationSchema.value_only(SimpleStringSchema(), metadata=["timestamp"])
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(brokers)
        .set_topics("input-topic")
        .set_group_id("my-group")
        .set_starting_offsets(OffsetsInitializer.earliest())
        .set_bounded(OffsetsInitializer.latest())
        .set_deserializer(strings)
        .build()
    )


def sink(brokers: str) -> KafkaSink:
    """Writes strings to ``output-topic``, with their first word as key and the timestamps of the input records."""
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(brokers)
        .set_record_serializer(
            KafkaRecordSerializationSchema.builder()
            .set_topic("output-topic")
            .set_key_serialization_schema(SimpleStringSchema())
            .set_value_serialization_schema(SimpleStringSchema())
            .set_header_provider({"copied-by": "kdsl"})
            .set_timestamp("timestamp")
            .build()
        )
        .set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        .build()
    )


def copy(spark: SparkSession, brokers: str, checkpoint: str) -> None:
    """Copy all records in capitals; when called again, copy the records that were added since."""
    strings = source(brokers).read_stream(spark)
    copies = strings.withColumn("key", F.split_part("value", F.lit(" "), F.lit(1))).withColumn(
        "value", F.upper("value")
    )
    query = sink(brokers).write_stream(copies, checkpoint=checkpoint, trigger={"availableNow": True})
    query.awaitTermination()


def main() -> None:
    """Run against the brokers that the command line names."""
    spark = SparkSession.builder.appName("datastream copy").getOrCreate()
    copy(spark, sys.argv[1], "datastream-copy-checkpoint")


if __name__ == "__main__":
    main()
