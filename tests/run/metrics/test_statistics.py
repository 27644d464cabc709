"""librdkafka's statistics under the names of Java's clients, of a client that has read from the mock cluster."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kdsl.run.metrics.statistics import CONSUMER, PRODUCER, client_metrics
from tests.mock_cluster import MockCluster

EVERY = {"statistics.interval.ms": 5, "log_level": 0}
VALUES = ("abc", "de", "f")


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[MockCluster]:
    mock = MockCluster("orders")
    yield mock
    mock.close()


def test_a_producer(mock_cluster: MockCluster) -> None:
    told: list[str] = []
    producer = Producer({"bootstrap.servers": mock_cluster.servers[0], **EVERY, "stats_cb": told.append})
    for value in VALUES:
        producer.produce("orders", value)
    assert producer.flush(120) == 0
    told.clear()
    while not told:
        producer.poll(0.1)

    found = client_metrics(told[-1])

    assert found.keys() == PRODUCER.keys()
    assert (found["record-send-total"], found["byte-total"], found["record-size-avg"]) == (3, 6, 2)
    assert found["buffer-available-bytes"] == found["buffer-total-bytes"] > 1_000_000
    assert found["request-latency-max"] >= found["request-latency-avg"] >= 0
    assert found["request-size-avg"] == pytest.approx(found["outgoing-byte-total"] / found["request-total"], abs=0.001)
    assert found["connection-creation-total"] >= found["connection-count"] >= 1


def test_a_consumer(mock_cluster: MockCluster) -> None:
    mock_cluster.produce("orders", *VALUES)
    told: list[str] = []
    settings = {"bootstrap.servers": mock_cluster.servers[0], "group.id": "tests", **EVERY, "stats_cb": told.append}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("orders", 0, 0)])
    messages = consumer.consume(3, 120)
    told.clear()
    while not told or not client_metrics(told[-1])["fetch-total"]:
        consumer.poll(0.1)
    consumer.close()

    found = client_metrics(told[-1])

    assert len(messages) == 3
    assert found.keys() == CONSUMER.keys()
    assert found["records-consumed-total"] >= 3
    requests = orjson.loads(told[-1])["brokers"].values()
    assert found["fetch-total"] == sum(broker["req"].get("Fetch", 0) for broker in requests)
    assert found["records-per-request-avg"] == pytest.approx(
        found["records-consumed-total"] / found["fetch-total"], abs=0.001
    )
    assert found["assigned-partitions"] == 1
    assert found["metadata-age"] >= 0
