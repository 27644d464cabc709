"""Reads the headers that confluent-kafka cannot return: those of records with a header name that is not UTF-8.

Kafka's protocol requires UTF-8, but no broker checks it; clients in C, Go and Rust write any bytes. Java's client, and
therefore Spark's connector, replaces invalid bytes with U+FFFD, while ``confluent_kafka.Message.headers()`` fails and
loses the headers. These rare records are therefore read again through librdkafka's own functions.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kdsl.client_settings.to_librdkafka import TOKEN_CALLBACK
from kdsl.errors import KafkaReadError
from kdsl.run import ffi as n
from kdsl.run.librdkafka.messages import Headers, RecordId

_CHUNK = 1_000
_WAIT = 100  # milliseconds


class HeaderReader:
    """Reads the headers of single records with its own client, which lives until `close`.

    Args:
        settings: librdkafka's settings of a consumer; callbacks other than that for tokens are left out.
        servers: The cluster's bootstrap servers, for error messages.
    """

    def __init__(self, settings: Mapping[str, Any], servers: str) -> None:
        self._servers = servers
        plain = {k: value for k, value in settings.items() if isinstance(value, str | int) or k == TOKEN_CALLBACK}
        own = {"enable.partition.eof": "false", "statistics.interval.ms": "0"}
        self._lib = n.library()
        self._handle = n.new_client(n.CONSUMER, {**plain, **own})
        self._messages = (ctypes.POINTER(n.Message) * _CHUNK)()

    def read(self, records: Sequence[RecordId], table: str, seconds: float) -> list[Headers]:
        """Read some records again from the brokers, and return their headers in order.

        Bytes of names that are not UTF-8 become U+FFFD.

        Args:
            records: The records.
            table: The table's name, for error messages.
            seconds: How long to wait in each partition without receiving a message.
        """
        offsets: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in records:
            offsets.setdefault((topic, partition), []).append(offset)
        headers_of: dict[RecordId, Headers] = {}
        for (topic, partition), wanted in offsets.items():
            for offset, headers in self._read_partition(topic, partition, sorted(wanted), seconds).items():
                headers_of[topic, partition, offset] = headers
        missing = next((record for record in records if record not in headers_of), None)
        if missing is not None:
            raise KafkaReadError(
                f"{table}: the record at topic {missing[0]}, partition {missing[1]}, offset {missing[2]} has a header "
                f"whose name is not UTF-8, and it could not be read again from {self._servers} within {seconds:.0f} s; "
                "check that the topic still has the record, and that the brokers answer"
            )
        return [headers_of[record] for record in records]

    def close(self) -> None:
        """Close the client."""
        self._lib.rd_kafka_destroy(self._handle)

    def _read_partition(self, topic: str, partition: int, offsets: Sequence[int], seconds: float) -> dict[int, Headers]:
        """Read the headers of the records at some ascending offsets of a partition, by offset.

        The records between them are read, too, until the last offset is reached, or no message arrives for ``seconds``.
        Records that no longer exist, or have not arrived by then, are left out; no error is raised.
        """
        lib, wanted = self._lib, set(offsets)
        headers_of: dict[int, Headers] = {}
        topic_handle = lib.rd_kafka_topic_new(self._handle, topic.encode(), None)
        try:
            if lib.rd_kafka_consume_start(topic_handle, partition, offsets[0]):
                return headers_of
            try:
                received_at, last = time.monotonic(), -1
                while last < offsets[-1] and time.monotonic() - received_at < seconds:
                    count = lib.rd_kafka_consume_batch(topic_handle, partition, _WAIT, self._messages, _CHUNK)
                    if count > 0:
                        received_at = time.monotonic()
                    for message in self._messages[: max(0, count)]:
                        if not message.contents.err:
                            last = int(message.contents.offset)
                            if last in wanted:
                                headers_of[last] = self._headers(message)
                        lib.rd_kafka_message_destroy(message)
            finally:
                lib.rd_kafka_consume_stop(topic_handle, partition)
        finally:
            lib.rd_kafka_topic_destroy(topic_handle)
        return headers_of

    def _headers(self, message: Any) -> Headers:
        """Copy the headers of a message (a pointer to `kdsl.run.ffi.Message`) in their order; none if it has none.

        Bytes of names that are not UTF-8 become U+FFFD.
        """
        lib = self._lib
        headers: Headers = []
        handle, name = ctypes.c_void_p(), ctypes.c_char_p()
        value, size = ctypes.c_void_p(), ctypes.c_size_t()
        if lib.rd_kafka_message_headers(message, ctypes.byref(handle)):
            return headers
        outputs = (ctypes.byref(name), ctypes.byref(value), ctypes.byref(size))
        while not lib.rd_kafka_header_get_all(handle, len(headers), *outputs):
            data = None if value.value is None else ctypes.string_at(value.value, size.value)
            headers.append(((name.value or b"").decode(errors="replace"), data))
        return headers
