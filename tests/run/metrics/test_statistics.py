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
    messages: list[str] = []
    producer = Producer({"bootstrap.servers": mock_cluster.servers[0], **EVERY, "stats_cb": messages.append})
    for value in VALUES:
        producer.produce("orders", value)
    assert producer.flush(120) == 0
    messages.clear()
    while not messages:
        producer.poll(0.1)

    result = client_metrics(messages[-1])

    assert result.keys() == PRODUCER.keys()
    assert (result["record-send-total"], result["byte-total"], result["record-size-avg"]) == (3, 6, 2)
    assert result["buffer-available-bytes"] == result["buffer-total-bytes"] > 1_000_000
    assert result["request-latency-max"] >= result["request-latency-avg"] >= 0
    assert result["request-size-avg"] == pytest.approx(
        result["outgoing-byte-total"] / result["request-total"], abs=0.001
    )
    assert result["connection-creation-total"] >= result["connection-count"] >= 1


def test_a_consumer(mock_cluster: MockCluster) -> None:
    mock_cluster.produce("orders", *VALUES)
    sample: list[str] = []
    settings = {"bootstrap.servers": mock_cluster.servers[0], "group.id": "tests", **EVERY, "stats_cb": sample.append}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("orders", 0, 0)])
    messages = consumer.consume(3, 120)
    sample.clear()
    while not sample or not client_metrics(sample[-1])["fetch-total"]:
        consumer.poll(0.1)
    statistics = sample[-1]
    consumer.close()

    result = client_metrics(statistics)

    assert len(messages) == 3
    assert result.keys() == CONSUMER.keys()
    assert result["records-consumed-total"] >= 3
    requests = orjson.loads(statistics)["brokers"].values()
    assert result["fetch-total"] == sum(broker["req"].get("Fetch", 0) for broker in requests)
    assert result["records-per-request-avg"] == pytest.approx(
        result["records-consumed-total"] / result["fetch-total"], abs=0.001
    )
    assert result["assigned-partitions"] == 1
    assert result["metadata-age"] >= 0
