"""What type checkers must refuse of the builders and partitioners."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kdsl import (
    Col,
    FormatSchema,
    Json,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTable,
    KafkaTopicPartition,
    OffsetsInitializer,
    PartitionerInput,
)
from tests.typing.cases.builders_right import words


def by_name(topic: str) -> pa.Array:
    return pa.array([len(topic)])


def two(batch: pa.RecordBatch, value: PartitionerInput) -> pa.RecordBatch:
    return batch.slice(0, len(value))


class Spread(KafkaTable, topic="t", value=Json(), partitioner=by_name):  # type: ignore[arg-type]  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType]
    user: Col[int]


KafkaSource.builder().set_topic("a")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
KafkaSource.builder().set_topics([5])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
KafkaSource.builder().set_partitions({"a": 0})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
KafkaSource.builder().set_starting_offsets("earliest")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
KafkaSource.builder().set_starting_offsets(two)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
KafkaSource.builder().set_value_only_deserializer("StringSerializer")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
KafkaSource.builder().set_value_only_deserializer(Json())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
KafkaSource(topic="a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
KafkaSource("a:1")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
OffsetsInitializer.timestamp("2025-01-01")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
OffsetsInitializer.offsets({0: 5})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
OffsetsInitializer.committed_offsets("first")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
FormatSchema(Json())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
KafkaRecordDeserializationSchema.of(words, "a INT", fields=["vaule"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
KafkaRecordDeserializationSchema.of(two, "a INT")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
KafkaRecordSerializationSchema.builder().set_kafka_key_serializer("StringDeserializer")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
KafkaRecordSerializationSchema.builder().set_partitioner(by_name)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
KafkaRecordSerializationSchema.builder().set_topic_selector(two)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
KafkaTopicPartition("a", "0")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
KafkaSink.builder().set_delivery_guarantee("exactly")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
KafkaSink.builder().set_record_serializer(FormatSchema(Json(), "a INT"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def run(spark: SparkSession, df: DataFrame, source: KafkaSource, sink: KafkaSink) -> None:
    source.topics = ("b",)  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    source.read(spark, columns=["a"])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    sink.write_stream(df)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
