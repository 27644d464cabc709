"""Taking over the work of another program from the offsets that its group has committed (docs/upgrading.md)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition as Position

from kdsl import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    SimpleStringSchema,
)
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.listeners.queries import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def commit(kafka: RunningKafka, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets as a Flink job does with each checkpoint: the next record of each partition."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    positions = [Position(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def committed(kafka: RunningKafka, group: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    offsets = consumer.committed([Position(topic, partition) for partition in range(2)], timeout=30)
    consumer.close()
    return {position.partition: position.offset for position in offsets}


def test_a_query_continues_where_the_group_of_the_previous_job_ended(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """Nothing is lost and nothing comes twice, neither at the change nor at the restarts after it."""
    taken, copy, group = kdsl_topic(partitions=2), kdsl_topic(), kdsl_topic()
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(kdsl_kafka.bootstrap_servers)
        .set_topics(taken)
        .set_group_id(group)
        .set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    serializer = KafkaRecordSerializationSchema.builder().set_topic(copy)
    serializer.set_value_serialization_schema(SimpleStringSchema())
    sink = KafkaSink(bootstrap_servers=kdsl_kafka.bootstrap_servers, record_serializer=serializer.build())

    def produce(first: int, end: int) -> None:
        kdsl_kafka.produce(taken, *(Record(f"{p}-{i}", partition=p) for p in range(2) for i in range(first, end)))

    def copy_rows() -> Counter[str]:
        rows = source.read_stream(spark)
        query = sink.write_stream(rows, checkpoint=f"{tmp_path}/c", trigger={"availableNow": True})
        assert query.awaitTermination(300)
        return Counter((m.value() or b"").decode() for m in kdsl_kafka.read(copy))

    produce(0, 10)
    commit(kdsl_kafka, group, taken, {0: 4, 1: 10})  # the last checkpoint of the job before, which then stopped
    produce(10, 15)

    after = Counter([*(f"0-{i}" for i in range(4, 15)), *(f"1-{i}" for i in range(10, 15))])
    assert copy_rows() == after
    # Commits follow a batch by a moment; with them the job before could go on in turn.
    until(lambda: committed(kdsl_kafka, group, taken) == {0: 15, 1: 15})

    produce(15, 18)
    commit(kdsl_kafka, group, taken, {0: 0, 1: 0})  # once there is a checkpoint, the group has no say
    after.update(f"{p}-{i}" for p in range(2) for i in range(15, 18))
    assert copy_rows() == after
    until(lambda: committed(kdsl_kafka, group, taken) == {0: 18, 1: 18})
    assert copy_rows() == after
