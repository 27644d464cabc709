"""The offsets of consumer groups, with the texts beside them, through librdkafka's own functions.

``AdminClient.list_consumer_group_offsets`` does the same, and brings the process down where the coordinator has just
moved: librdkafka 2.16 then looks for the group that its handle belongs to, and only a consumer's handle has one.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref

from confluent_kafka import KafkaError

from kdsl.cluster import Cluster
from kdsl.run.cluster import native as n
from kdsl.run.cluster.errors import KafkaReadError

_CLIENT_AGE = 1.0
"""How old a client must be, in seconds, to be made anew when a broker is the coordinator of a group no more."""

Found = tuple[tuple[str, int], int, str]
"""A partition, the offset that the group has committed for it, and the text beside that."""


def asks_former_coordinator(code: int, made: float) -> bool:
    """Whether a client must be made anew: it asks the coordinator that it has found once for as long as that one is up.

    Args:
        code: What it was answered, a number of `confluent_kafka.KafkaError`.
        made: When it was made, by `time.monotonic`.
    """
    return code == KafkaError.NOT_COORDINATOR and time.monotonic() - made > _CLIENT_AGE


class _Handle:
    """A consumer of librdkafka, destroyed when nobody uses it any more."""

    def __init__(self, lib: ctypes.CDLL, pointer: int) -> None:
        self.pointer = pointer
        self.made = time.monotonic()
        weakref.finalize(self, lib.rd_kafka_destroy, pointer).atexit = False


class GroupOffsets:
    """Reads the offsets of groups. May be shared between threads.

    Args:
        cluster: Where the groups are.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._handle: _Handle | None = None
        self._lib = n.library()
        self._lock = threading.Lock()

    def read(self, group: str, seconds: float, *, stable: bool) -> tuple[int, list[tuple[int, str]]]:
        """All offsets of a group.

        Args:
            group: The group.
            seconds: How long at most.
            stable: An offset within an open transaction is an error; else the one before is given.

        Returns:
            A number of `confluent_kafka.KafkaError`, 0 for success; and each offset with its text.
        """
        code, found = self._asked(group, seconds, stable=stable)
        return code, [(offset, text) for _, offset, text in found]

    def positions(self, group: str, seconds: float) -> tuple[int, dict[tuple[str, int], int]]:
        """All offsets of a group by topic and partition, open transactions left out; else as `read`."""
        code, found = self._asked(group, seconds, stable=False)
        return code, {place: offset for place, offset, _ in found}

    def _asked(self, group: str, seconds: float, *, stable: bool) -> tuple[int, list[Found]]:
        with self._lock:
            kept = self._handle = self._handle or self._made(group)
        code, found = self._asked_of(kept.pointer, group, seconds, stable=stable)
        if asks_former_coordinator(code, kept.made):
            with self._lock:
                if self._handle is kept:
                    self._handle = None
        return code, found

    def _asked_of(self, handle: int, group: str, seconds: float, *, stable: bool) -> tuple[int, list[Found]]:
        lib = self._lib
        options, queue = lib.rd_kafka_AdminOptions_new(handle, n.LIST_GROUP_OFFSETS), lib.rd_kafka_queue_new(handle)
        asked = ctypes.c_void_p(lib.rd_kafka_ListConsumerGroupOffsets_new(group.encode(), None))
        milliseconds = int(seconds * 1000)
        try:
            lib.rd_kafka_AdminOptions_set_request_timeout(options, milliseconds, None, 0)
            lib.rd_kafka_AdminOptions_set_require_stable_offsets(options, int(stable))
            lib.rd_kafka_ListConsumerGroupOffsets(handle, ctypes.byref(asked), 1, options, queue)
            event = lib.rd_kafka_queue_poll(queue, milliseconds + 1000)
            if not event:
                return n.TIMED_OUT, []
            try:
                return self._taken(event)
            finally:
                lib.rd_kafka_event_destroy(event)
        finally:
            lib.rd_kafka_ListConsumerGroupOffsets_destroy(asked)
            lib.rd_kafka_AdminOptions_destroy(options)
            lib.rd_kafka_queue_destroy(queue)

    def _taken(self, event: int) -> tuple[int, list[Found]]:
        lib, count = self._lib, ctypes.c_size_t()
        code = lib.rd_kafka_event_error(event)
        if code:
            return code, []
        result = lib.rd_kafka_event_ListConsumerGroupOffsets_result(event)
        groups = lib.rd_kafka_ListConsumerGroupOffsets_result_groups(result, ctypes.byref(count))
        error = lib.rd_kafka_group_result_error(groups[0])
        if error:
            return int(lib.rd_kafka_error_code(error)), []
        places = lib.rd_kafka_group_result_partitions(groups[0])
        if not places:
            return int(KafkaError.NO_ERROR), []
        found: list[Found] = []
        for i in range(places.contents.count):
            place = places.contents.elements[i]
            if place.err:
                return int(place.err), []
            if place.offset >= 0:
                text = ctypes.string_at(place.metadata, place.metadata_size).decode()
                found.append(((place.topic.decode(), int(place.partition)), int(place.offset), text))
        return int(KafkaError.NO_ERROR), found

    def _made(self, group: str) -> _Handle:
        lib, text = self._lib, ctypes.create_string_buffer(512)
        conf = lib.rd_kafka_conf_new()
        for key, value in self._cluster.consumer({"group.id": group, "log_level": 0}).items():
            if lib.rd_kafka_conf_set(conf, key.encode(), str(value).encode(), text, len(text)):
                lib.rd_kafka_conf_destroy(conf)
                raise KafkaReadError(f"librdkafka refuses the setting {key!r}: {text.value.decode(errors='replace')}")
        handle: int | None = lib.rd_kafka_new(n.CONSUMER, conf, text, len(text))
        if handle is None:
            lib.rd_kafka_conf_destroy(conf)
            raise KafkaReadError(f"librdkafka cannot make a consumer: {text.value.decode(errors='replace')}")
        return _Handle(lib, handle)
