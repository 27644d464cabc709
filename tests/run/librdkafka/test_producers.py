"""Kept producers, and brokers that stand still when a topic is looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.run import ffi
from kdsl.run.librdkafka import client_pool, producer_pool
from kdsl.run.librdkafka.consumers import SIZES, borrow_consumer, discard
from kdsl.run.librdkafka.producer import Producer, ProducerError
from kdsl.run.librdkafka.transactions.producer import TransactionalProducer
from kdsl.run.librdkafka.transactions.task import abort_and_close
from tests.mock_cluster import MockCluster

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture(autouse=True)
def _new_producers() -> Iterator[None]:
    """No producer of another test, and none left behind."""
    for producer in producer_pool._pool.take_all():
        producer.close()
    yield
    for producer in producer_pool._pool.take_all():
        producer.close()


def test_a_suspended_broker_does_not_delay_metadata_of_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka asks the same one again, after it has closed the connection too, as long as it is one request."""
    mock = MockCluster(*"abcd", brokers=3)
    producer = Producer({"bootstrap.servers": ",".join(mock.servers), "socket.timeout.ms": "2000"})
    assert producer.look_up("a", 120) == 0

    monkeypatch.setattr("kdsl.run.librdkafka.producer.FIRST_ATTEMPT", 0.5)
    for broker, topic in (1, "b"), (2, "c"), (3, "d"):  # the producer asks one of them
        mock.delay(broker, 600_000)
        assert producer.look_up(topic, 120) == 0
        mock.delay(broker, 0)
    producer.close()
    mock.close()


def test_an_idle_producer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever kind of client is asked for."""
    for purpose in "ab":
        with producer_pool.borrow_producer(NOWHERE, purpose):
            pass
    monkeypatch.setattr(client_pool, "IDLE_SECONDS", 0.0)

    with producer_pool.borrow_producer(NOWHERE, "a"):
        assert producer_pool._pool.take_all() == []
    discard(borrow_consumer(Cluster("127.0.0.1:1"), "test_producers", SIZES[0], {"group.id": "tests"}))
    assert producer_pool._pool.take_all() == []


@pytest.mark.parametrize("name", ["security.protocol", "ssl.key.password.unknown", "client.dns.lookup"])
@pytest.mark.parametrize(
    ("create", "error"),
    [(Producer, ProducerError), (lambda settings: ffi.new_client(ffi.CONSUMER, settings), KdslError)],
)
def test_a_setting_that_librdkafka_refuses_is_named_without_its_value(
    name: str, create: Callable[[dict[str, str]], object], error: type[KdslError]
) -> None:
    """librdkafka's own text quotes the value, which may be a secret."""
    with pytest.raises(error, match=f"librdkafka refuses the setting '{name}' or its value") as raised:
        create({**NOWHERE, name: "HUSH"})

    assert "HUSH" not in str(raised.value)


def test_a_closed_producer_cannot_be_used_and_may_be_closed_again() -> None:
    """A call with its handle would crash the process."""
    producer = TransactionalProducer({**NOWHERE, "transactional.id": "t"})
    producer.close()

    for use in (
        producer.poll, producer.begin, producer.purge_error, lambda: producer.abort(5), lambda: producer.look_up("a", 1)
    ):  # fmt: skip
        with pytest.raises(ProducerError, match=r"rd_kafka_.* cannot be called, because the producer was closed"):
            use()
    abort_and_close(producer)
    producer.close()


def test_a_producer_forgets_what_it_complained_of_in_another_task() -> None:
    with producer_pool.borrow_producer(NOWHERE) as first:
        while not first.last_error:
            first.poll(1000)

    with producer_pool.borrow_producer(NOWHERE) as again:
        assert again is first
        assert again.last_error == ""


def test_a_record_that_would_be_altered_in_two_ways_is_one_failure() -> None:
    """And the first failure is that of the first record, whatever is wrong with it."""
    headers = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
    records = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([None] * 4, pa.binary()),
            "value": pa.array([b"v"] * 4, pa.binary()),
            "timestamp": pa.array([1, 2, 0, 0], pa.int64()),
            "headers": pa.array([[("a", b"")], [("a\0b", b""), ("c\0d", b"")], [("a\0b", b"")], None], headers),
        }
    )
    producer = Producer(NOWHERE)

    producer.send("t", records, np.arange(10, 14))

    assert producer.failed == 3
    assert producer.failure is not None
    assert (producer.failure.row, producer.failure.code) == (11, KafkaError._INVALID_ARG)
    producer.abandon()
