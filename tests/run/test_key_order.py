"""Rows that are read from one partition and written with a message key: the changes of a key stay in their order."""

from __future__ import annotations

import json
import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from confluent_kafka import Producer

from kdsl import Cluster, Col, KafkaTable, Key
from kdsl.spark_versions import PYTHON_SOURCES
from kdsl.testing import RunningKafka
from kdsl_formats.json import Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

needs_transactions = pytest.mark.since(PYTHON_SOURCES)
RECORDS, KEYS = 120_000, 40
"""Six times as many records as the smallest piece of a partition that a task reads."""


class Orders:
    """A topic with one large partition of changes, and tables that are written from it."""

    def __init__(self, kafka: RunningKafka) -> None:
        self.kafka, self.cluster = kafka, Cluster(kafka.bootstrap_servers)
        self.topic = kafka.create_topic(f"key-order-{uuid.uuid4().hex[:8]}")
        self._targets: dict[type[KafkaTable], str] = {}
        fill(kafka, self.topic)

    def source(self, **options: Any) -> type[KafkaTable]:
        class Source(KafkaTable, topic=self.topic, value=Json(), startup="earliest-offset", **options):
            id: Col[int]
            n: Col[int]

        return Source

    def target(self, **options: Any) -> type[KafkaTable]:
        topic = self.kafka.create_topic(f"{self.topic}-{uuid.uuid4().hex[:8]}", 2)

        class Target(KafkaTable, topic=topic, key=Json(), value=Json(), **options):
            id: Key[int]
            n: Col[int]

        self._targets[Target] = topic
        return Target

    def check(self, target: type[KafkaTable]) -> None:
        """Check that a topic has all rows, and those of each key in their order."""
        last: dict[int, int] = {}
        late = count = 0
        topic = self._targets[target]
        for message in self.kafka.read(topic):
            row = json.loads(message.value() or b"")
            late += row["n"] < last.get(row["id"], -1)
            last[row["id"]] = row["n"]
            count += 1
        assert (count, late) == (RECORDS, 0)
        assert sorted(last.values()) == list(range(RECORDS - KEYS, RECORDS))
        self.kafka.delete_topic(topic)


def fill(kafka: RunningKafka, topic: str) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "queue.buffering.max.messages": RECORDS, "linger.ms": 20}
    producer = Producer(settings)
    for i in range(RECORDS):
        producer.produce(topic, b'{"id": %d, "n": %d}' % (i % KEYS, i), partition=0)
    producer.flush()


@pytest.fixture(scope="module")
def orders(kdsl_kafka: RunningKafka) -> Orders:
    return Orders(kdsl_kafka)


class Batch(Protocol):
    """Reads a batch in one of several ways."""

    def __call__(self, rows: DataFrame) -> DataFrame: ...


def compute_before(rows: DataFrame) -> DataFrame:
    assert rows.count() == RECORDS
    return rows


def persist(rows: DataFrame) -> DataFrame:
    rows = rows.persist()
    assert rows.count() == RECORDS
    return rows


def add_nothing(rows: DataFrame) -> DataFrame:
    return rows.where("id >= 0").unionByName(rows.where("id < 0"))


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (compute_before, {}),
        pytest.param(persist, {"sink_parallelism": 1}, marks=pytest.mark.reliability),
        pytest.param(add_nothing, {"sink_parallelism": 3}, marks=pytest.mark.reliability),
        pytest.param(
            persist, {"delivery": "exactly-once", "transactional_id_prefix": "key-order"}, marks=needs_transactions
        ),
    ],
)
def test_a_batch(spark: SparkSession, orders: Orders, change: Batch, options: dict[str, Any]) -> None:
    rows = change(orders.source().read(spark, orders.cluster))
    target = orders.target(**options)
    target.write(rows, orders.cluster)
    orders.check(target)
    rows.unpersist()


@pytest.mark.reliability
def test_a_batch_on_the_other_transport(spark: SparkSession, orders: Orders) -> None:
    source = orders.source(transport="jvm", scan_parallelism=4)
    target = orders.target(transport="jvm")
    target.write(source.read(spark, orders.cluster), orders.cluster)
    orders.check(target)


@pytest.mark.parametrize(
    ("reads", "writes"),
    [
        ({}, {}),
        pytest.param({}, {"sink_parallelism": 3}, marks=pytest.mark.reliability),
        pytest.param(
            {}, {"delivery": "exactly-once", "transactional_id_prefix": "key-order-tasks"}, marks=needs_transactions
        ),
        pytest.param(
            {},
            {"delivery": "exactly-once", "transactional_id_prefix": "key-order-staged", "exactly_once": "staged"},
            marks=[needs_transactions, pytest.mark.reliability],
        ),
        pytest.param({"transport": "jvm", "scan_parallelism": 4}, {"transport": "jvm"}, marks=pytest.mark.reliability),
    ],
)
def test_a_stream(
    spark: SparkSession, orders: Orders, tmp_path: Path, reads: dict[str, Any], writes: dict[str, Any]
) -> None:
    rows = orders.source(**reads).read_stream(spark, orders.cluster).where("id >= 0")
    target = orders.target(**writes)
    checkpoint = str(tmp_path / "checkpoint")
    target.write_stream(rows, orders.cluster, checkpoint=checkpoint, trigger={"availableNow": True}).awaitTermination()
    orders.check(target)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.reliability),
        pytest.param(
            {"delivery": "exactly-once", "transactional_id_prefix": "key-order-each"}, marks=needs_transactions
        ),
    ],
)
def test_the_batches_of_a_stream(spark: SparkSession, orders: Orders, tmp_path: Path, options: dict[str, Any]) -> None:
    target = orders.target(**options)
    write_id = "one" if options else None

    def write(batch: DataFrame, number: int) -> None:
        target.write(batch.where("id >= 0"), orders.cluster, write_id=write_id)

    stream = orders.source().read_stream(spark, orders.cluster).writeStream.foreachBatch(write)
    checkpoint = str(tmp_path / "checkpoint")
    stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    orders.check(target)


def test_a_shuffle_in_a_stream_is_a_warning(
    spark: SparkSession, orders: Orders, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = orders.source().read_stream(spark, orders.cluster).where("n < 10").repartition(2)
    target = orders.target()
    with caplog.at_level(logging.WARNING, "kdsl"):
        query = target.write_stream(
            rows, orders.cluster, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True}
        )
        query.awaitTermination()
    assert "after which the changes of a key are in no order; remove it" in caplog.text
