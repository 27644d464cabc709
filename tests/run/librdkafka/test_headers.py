"""Header names that are not UTF-8, which clients of other languages write and Kafka keeps."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from kdsl.cluster import Cluster
from kdsl.run import ffi as native
from kdsl.run.librdkafka.consumers import SIZES, PooledConsumer, borrow_consumer, discard
from kdsl.run.offsets.stored import Range
from tests.mock_cluster import MockCluster
from tests.run.read_plans import fetch_raw

TOPIC = "orders"


@pytest.fixture
def mock_cluster() -> Iterator[MockCluster]:
    mock = MockCluster(TOPIC)
    yield mock
    mock.close()


@pytest.fixture
def consumer(mock_cluster: MockCluster) -> Iterator[PooledConsumer]:
    result = borrow_consumer(Cluster(mock_cluster.servers[0]), "test_headers", SIZES[0], {"group.id": "tests"})
    yield result
    discard(result)


def produce(servers: str, *records: list[tuple[bytes, bytes | None]]) -> None:
    """Write records with these headers as a C program does: confluent-kafka takes names as text only."""
    lib = native.library()
    handle = native.new_client(native.PRODUCER, {"bootstrap.servers": servers})
    topic = lib.rd_kafka_topic_new(handle, TOPIC.encode(), None)
    for headers in records:
        items = np.zeros(2 + len(headers), dtype=native.ITEM)
        items["kind"] = [native.ITEM_TOPIC, native.ITEM_FLAGS, *[native.ITEM_HEADER] * len(headers)]
        items["first"][:2] = topic, native.COPY
        texts = [(ctypes.c_char_p(name), ctypes.c_char_p(value)) for name, value in headers]
        for item, (name, value), (_, plain) in zip(items[2:], texts, headers, strict=True):
            item["first"] = ctypes.cast(name, ctypes.c_void_p).value
            item["second"] = ctypes.cast(value, ctypes.c_void_p).value or 0
            item["third"] = len(plain or b"")
        assert not lib.rd_kafka_produceva(handle, items.ctypes.data, len(items))
    assert lib.rd_kafka_flush(handle, 60_000) == 0
    lib.rd_kafka_topic_destroy(topic)
    lib.rd_kafka_destroy(handle)


def test_invalid_utf_8_is_replaced_and_everything_else_is_unchanged(
    mock_cluster: MockCluster, consumer: PooledConsumer
) -> None:
    produce(
        mock_cluster.servers[0],
        [("é".encode(), b"1")],
        [(b"ok", b"2"), (b"\xff\xfe bad", b"\xff"), (b"null", None)],
        [],
        [(b"caf\xe9", b"")],
        [(b"ok", b"3")],
    )

    headers = fetch_raw(consumer, {"headers"}, [Range(TOPIC, 0, 0, 5)])["headers"].to_pylist()

    assert [[(one["key"], one["value"]) for one in of] for of in headers] == [
        [("é", b"1")],
        [("ok", b"2"), ("\ufffd\ufffd bad", b"\xff"), ("null", None)],
        [],
        [("caf\ufffd", b"")],
        [("ok", b"3")],
    ]
