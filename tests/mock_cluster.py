"""librdkafka's own mock of a cluster: brokers that do what real ones do for moments only."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from confluent_kafka import Producer

from kdsl.run import ffi as native

FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 1, 2, 3, 8, 9
"""Kinds of requests, by Kafka's numbers."""


class MockCluster:
    """A mock cluster.

    Args:
        topics: Its topics, of one partition each.
        brokers: How many brokers it has.
    """

    def __init__(self, *topics: str, brokers: int = 1) -> None:
        lib, text = native.library(), ctypes.create_string_buffer(512)
        lib.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
        lib.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        conf = lib.rd_kafka_conf_new()
        assert lib.rd_kafka_conf_set(conf, b"log_level", b"0", text, len(text)) == 0
        self._lib = lib
        self._handle = ctypes.c_void_p(lib.rd_kafka_new(native.PRODUCER, conf, text, len(text)))
        self._mock = ctypes.c_void_p(lib.rd_kafka_mock_cluster_new(self._handle, brokers))
        for topic in topics:
            assert lib.rd_kafka_mock_topic_create(self._mock, topic.encode(), 1, brokers) == 0
        self.servers: Sequence[str] = lib.rd_kafka_mock_cluster_bootstraps(self._mock).decode().split(",")

    def fail(self, topic: str, request: int, code: int, times: int = 1) -> None:
        """Answer the next requests of a kind for a topic with an error."""
        fail = self._lib.rd_kafka_mock_partition_push_request_errors
        arguments = (self._mock, topic.encode(), ctypes.c_int32(0), ctypes.c_int16(request))
        for _ in range(times):
            assert fail(*arguments, ctypes.c_size_t(1), ctypes.c_int(code)) == 0

    def fail_any(self, request: int, code: int) -> None:
        """Answer the next request of a kind with an error."""
        fail = self._lib.rd_kafka_mock_push_request_errors
        fail(self._mock, ctypes.c_int16(request), ctypes.c_size_t(1), ctypes.c_int(code))

    def lead(self, topic: str, broker: int) -> None:
        """Let a broker lead a topic."""
        lead = self._lib.rd_kafka_mock_partition_set_leader
        assert lead(self._mock, topic.encode(), ctypes.c_int32(0), ctypes.c_int32(broker)) == 0

    def delay(self, broker: int, milliseconds: int) -> None:
        """Let a broker take a time for each answer."""
        delay = self._lib.rd_kafka_mock_broker_set_rtt
        assert delay(self._mock, ctypes.c_int32(broker), ctypes.c_int(milliseconds)) == 0

    def produce(self, topic: str, *values: str) -> None:
        """Put records into a topic."""
        producer = Producer({"bootstrap.servers": ",".join(self.servers), "log_level": 0})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(120) == 0

    def close(self) -> None:
        """End it."""
        self._lib.rd_kafka_mock_cluster_destroy(self._mock)
        self._lib.rd_kafka_destroy(self._handle)
