"""What type checkers must say of right lines with the builders and partitioners."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, assert_type

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession, functions as F
from pyspark.sql.streaming.query import StreamingQuery

from kdsl import (
    Cluster,
    Col,
    DeliveryGuarantee,
    FormatSchema,
    Json,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTable,
    KafkaTopicPartition,
    OffsetResetStrategy,
    OffsetsInitializer,
    OffsetsRetriever,
    PartitionerInput,
    SimpleStringSchema,
)
from kdsl.callbacks import TopicPartition
from kdsl.datastream.sink import KafkaSinkBuilder
from kdsl.datastream.source import KafkaSourceBuilder


def last_two(partitions: tuple[TopicPartition, ...], retriever: OffsetsRetriever) -> Mapping[TopicPartition, int]:
    return {partition: end - 2 for partition, end in retriever.end_offsets(partitions).items()}


def by_first(value: PartitionerInput) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.zeros(len(value), dtype=np.int64) % value.partitions


def words(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def topic_of(element: Row) -> str:
    return f"orders-{element.region}"


class Spread(KafkaTable, topic="t", value=Json(), partitioner=by_first, sink_parallelism=4):
    user: Col[int]


class Named(KafkaTable, topic="t", value=Json(), partitioner="package.module:function"):
    user: Col[int]


def source(spark: SparkSession) -> None:
    assert_type(KafkaSource.builder(), KafkaSourceBuilder)
    assert_type(KafkaSource.builder().set_topics("a", "b"), KafkaSourceBuilder)
    assert_type(KafkaSource.builder().set_topics(["a", "b"]), KafkaSourceBuilder)
    built = (
        KafkaSource.builder()
        .set_bootstrap_servers("a:1")
        .set_topic_pattern("a.*")
        .set_partitions({("a", 0), ("b", 5)})
        .set_group_id("g")
        .set_starting_offsets(OffsetsInitializer.committed_offsets(OffsetResetStrategy.EARLIEST))
        .set_starting_offsets(OffsetsInitializer.committed_offsets("latest"))
        .set_starting_offsets(OffsetsInitializer.offsets({("a", 0): 1}, reset="none"))
        .set_starting_offsets(KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST))
        .set_starting_offsets(KafkaOffsetsInitializer.offsets({KafkaTopicPartition("a", 0): 1}))
        .set_partitions({KafkaTopicPartition("a", 0)})
        .set_starting_offsets(last_two)
        .set_bounded(OffsetsInitializer.timestamp(datetime(2025, 1, 1, tzinfo=UTC)))
        .set_unbounded(OffsetsInitializer.latest())
        .set_deserializer(KafkaRecordDeserializationSchema.value_only("IntegerDeserializer", metadata=["offset"]))
        .set_deserializer(KafkaRecordDeserializationSchema.of(words, {"word": str}, fields=["value"]))
        .set_value_only_deserializer(FormatSchema(Json(), "id BIGINT"))
        .set_property("fetch.min.bytes", 5)
        .set_properties({"check.crcs": False})
        .set_client_id_prefix("me")
        .build()
    )
    assert_type(built, KafkaSource)
    assert_type(KafkaSource(cluster=Cluster("a:1"), topics=["a"], deserializer=None), KafkaSource)
    assert_type(built.read(spark), DataFrame)
    assert_type(built.read_stream(spark), DataFrame)
    assert_type(built.explain(), str)


def sink(df: DataFrame) -> None:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic("t")
        .set_topic_selector("region", topics=["a"])
        .set_topic_selector(F.col("region"))
        .set_topic_selector(lambda batch: batch.column("region"))
        .set_topic_selector(lambda element: "orders")
        .set_topic_selector(topic_of)
        .set_key_serialization_schema(SimpleStringSchema())
        .set_kafka_value_serializer("LongSerializer", "n")
        .set_partitioner(by_first)
        .set_partitioner("fixed")
        .set_header_provider({"a": b"b"})
        .set_timestamp("event_time")
        .build()
    )
    assert_type(serializer, KafkaRecordSerializationSchema)
    assert_type(KafkaRecordSerializationSchema.of(words, topic="t"), KafkaRecordSerializationSchema)
    result = (
        KafkaSink.builder()
        .set_bootstrap_servers("a:1")
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_delivery_guarantee("none")
        .set_transactional_id_prefix("p")
        .set_property("linger.ms", 5)
    )
    assert_type(result, KafkaSinkBuilder)
    assert_type(result.build().write_stream(df, checkpoint="c"), StreamingQuery)
    KafkaSink(bootstrap_servers=["a:1"], record_serializer=serializer, parallelism=2).write(df)
