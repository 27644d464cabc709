"""The committed offsets of consumer groups with their metadata, through librdkafka's C functions.

``AdminClient.list_consumer_group_offsets`` does the same, but crashes the process when the coordinator has just moved:
librdkafka 2.16 then looks for the group of its handle, and only a consumer's handle has one.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref

from confluent_kafka import KafkaError

from kdsl.cluster import Cluster
from kdsl.run import ffi as n

COORDINATOR_TIMEOUT = 3600.0
"""How many seconds librdkafka may wait for the answer of a group's coordinator, its longest timeout.

It ends the process if such a request has timed out when the coordinator becomes reachable
(https://github.com/confluentinc/librdkafka/issues/4605). So whoever does not want to wait any longer drops the client.
"""
_MIN_CLIENT_AGE = 1.0
"""How old a client must be, in seconds, to be replaced when it asks a broker that is not the coordinator any more."""

CommittedOffset = tuple[tuple[str, int], int, str]
"""A topic partition, the offset that the group has committed for it, and the metadata stored with that."""


def asks_former_coordinator(code: int, created: float) -> bool:
    """Whether a client must be replaced, because it keeps asking a broker that is no longer the group's coordinator.

    It need not be in its first second.

    Args:
        code: The error that it got, a code of `confluent_kafka.KafkaError`.
        created: When the client was created, by `time.monotonic`.
    """
    return code == KafkaError.NOT_COORDINATOR and time.monotonic() - created > _MIN_CLIENT_AGE


class _Handle:
    """A consumer of librdkafka, which is destroyed when nothing refers to it."""

    def __init__(self, lib: ctypes.CDLL, pointer: int) -> None:
        self.pointer = pointer
        self.created = time.monotonic()
        weakref.finalize(self, lib.rd_kafka_destroy, pointer).atexit = False


class GroupOffsets:
    """Reads the committed offsets of groups. It may be shared between threads."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._handle: _Handle | None = None
        self._lib = n.library()
        self._lock = threading.Lock()

    def read(self, group: str, timeout: float, *, stable: bool) -> tuple[int, list[CommittedOffset]]:
        """Read all offsets of a group, with a client that is created at the first use.

        After an error of a former coordinator, or without an answer, the next request creates another client.

        Args:
            group: The group.
            timeout: For how many seconds.
            stable: Whether an offset within an open transaction is an error; otherwise the previous one is returned.

        Returns:
            A code of `confluent_kafka.KafkaError`, also for a timeout, or 0 for success; and the offsets, none after an
            error. Partitions without an offset are left out.
        """
        with self._lock:
            handle = self._handle = self._handle or self._create_handle(group)
        code, offsets = self._request(handle.pointer, group, timeout, stable=stable)
        if code == n.TIMED_OUT or asks_former_coordinator(code, handle.created):
            with self._lock:
                if self._handle is handle:
                    self._handle = None
        return code, offsets

    def _request(self, handle: int, group: str, timeout: float, *, stable: bool) -> tuple[int, list[CommittedOffset]]:
        """Request the group's offsets with a handle; the error code is that of a timeout if no answer comes."""
        lib = self._lib
        options, queue = lib.rd_kafka_AdminOptions_new(handle, n.LIST_GROUP_OFFSETS), lib.rd_kafka_queue_new(handle)
        request = ctypes.c_void_p(lib.rd_kafka_ListConsumerGroupOffsets_new(group.encode(), None))
        try:
            lib.rd_kafka_AdminOptions_set_request_timeout(options, int(COORDINATOR_TIMEOUT * 1000), None, 0)
            lib.rd_kafka_AdminOptions_set_require_stable_offsets(options, int(stable))
            lib.rd_kafka_ListConsumerGroupOffsets(handle, ctypes.byref(request), 1, options, queue)
            event = lib.rd_kafka_queue_poll(queue, int(timeout * 1000) + 1000)
            if not event:
                return n.TIMED_OUT, []
            try:
                return self._parse(event)
            finally:
                lib.rd_kafka_event_destroy(event)
        finally:
            lib.rd_kafka_ListConsumerGroupOffsets_destroy(request)
            lib.rd_kafka_AdminOptions_destroy(options)
            lib.rd_kafka_queue_destroy(queue)

    def _parse(self, event: int) -> tuple[int, list[CommittedOffset]]:
        """Return the error code of the request, the group or a partition, and the offsets; the event is not freed."""
        lib, count = self._lib, ctypes.c_size_t()
        code = lib.rd_kafka_event_error(event)
        if code:
            return code, []
        result = lib.rd_kafka_event_ListConsumerGroupOffsets_result(event)
        groups = lib.rd_kafka_ListConsumerGroupOffsets_result_groups(result, ctypes.byref(count))
        error = lib.rd_kafka_group_result_error(groups[0])
        if error:
            return int(lib.rd_kafka_error_code(error)), []
        partitions = lib.rd_kafka_group_result_partitions(groups[0])
        if not partitions:
            return int(KafkaError.NO_ERROR), []
        offsets: list[CommittedOffset] = []
        for i in range(partitions.contents.count):
            one = partitions.contents.elements[i]
            if one.err:
                return int(one.err), []
            if one.offset >= 0:
                # Other tools may have committed under the same group, and metadata may be any bytes.
                metadata = ctypes.string_at(one.metadata, one.metadata_size).decode(errors="replace")
                offsets.append(((one.topic.decode(), int(one.partition)), int(one.offset), metadata))
        return int(KafkaError.NO_ERROR), offsets

    def _create_handle(self, group: str) -> _Handle:
        """Create a client for requests about a group; it is closed when nothing refers to the result any more."""
        handle = n.new_client(n.CONSUMER, self._cluster.consumer({"group.id": group, "log_level": 0}))
        return _Handle(self._lib, handle)
