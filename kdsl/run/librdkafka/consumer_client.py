"""A client of librdkafka that fetches the records of assigned partitions, without an object for each of them.

confluent-kafka's consumer is not used: its callbacks need the state of a call of its own functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any
from weakref import finalize

import attrs
import numpy as np
from confluent_kafka import KafkaError, KafkaException

from kdsl.callbacks import TopicPartition
from kdsl.errors import KafkaReadError
from kdsl.run import ffi as n
from kdsl.run.admin.admin_client import weak_callback
from kdsl.run.librdkafka.client_events import handle_events, read_error, topic_metadata
from kdsl.run.librdkafka.message_batch import MessageBatch


@attrs.frozen
class Answer:
    """What the leader of a partition has answered about an offset.

    Attributes:
        offset: The offset; negative if there is none.
        error: Why there is none; None without an error.
    """

    offset: int
    error: KafkaError | None


class ConsumerClient:
    """A client that fetches partitions at offsets. It belongs to one thread at a time.

    Errors are KafkaExceptions: the client has failed, or nobody has answered. After `close`, each other method is a
    RuntimeError. A client that nothing refers to any more closes by itself.

    Args:
        settings: librdkafka's settings, with a group id; they are not stored.
        on_error: Called with each error of the client or a partition, while events are handled or messages taken.
        on_statistics: Called with the client's statistics, as JSON.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        on_error: Callable[[KafkaError], None],
        on_statistics: Callable[[bytes], None],
    ) -> None:
        self._lib: Any = n.library()
        self._on_error, self._on_statistics = on_error, on_statistics
        # Errors of the client are events, but those of partitions are passed to a function only.
        callback = n.ERROR_CALLBACK(weak_callback(self._handle_error))
        events = n.EVENT_ERROR | n.EVENT_STATS
        handle = n.new_client(n.CONSUMER, settings, events=events, on_error=callback, error=KafkaReadError)
        self._handle: int | None = handle
        self._events: int = self._lib.rd_kafka_queue_get_main(handle)
        self._fetched: int = self._lib.rd_kafka_queue_get_consumer(handle)
        self._addresses = np.empty(0, np.int64)
        self._owned = (self._events, self._fetched), callback
        self._close = finalize(self, _close_abandoned, os.getpid(), handle, *self._owned)
        self._close.atexit = False

    def assign(self, partitions: Iterable[tuple[str, int, int]]) -> None:
        """Fetch some partitions instead of the present ones, each from an offset on.

        Args:
            partitions: Topics, partitions and offsets.
        """
        with self._list(partitions) as wanted:
            self._check(self._lib.rd_kafka_assign(self._get_handle(), wanted))

    def unassign(self) -> None:
        """Stop fetching."""
        self._check(self._lib.rd_kafka_assign(self._get_handle(), None))

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching some partitions, and discard what was fetched of them."""
        with self._list((topic, partition, -1) for topic, partition in partitions) as released:
            error = self._lib.rd_kafka_incremental_unassign(self._get_handle(), released)
        if error:
            code, text = self._lib.rd_kafka_error_code(error), self._lib.rd_kafka_error_string(error)
            self._lib.rd_kafka_error_destroy(error)
            raise KafkaException(KafkaError(code, text.decode(errors="replace")))

    def consume(self, most: int, seconds: float) -> MessageBatch:
        """Handle the client's events, and take the messages that were fetched.

        Args:
            most: How many messages to take at most.
            seconds: How long to wait until all of these are there.
        """
        self.handle_events()
        if len(self._addresses) < most:
            self._addresses = np.empty(most, np.int64)
        count = self._lib.rd_kafka_consume_batch_queue(
            self._fetched, int(seconds * 1000), self._addresses.ctypes.data, most
        )
        if count < 0:
            self._check(self._lib.rd_kafka_last_error())
        return MessageBatch(self._addresses[: max(0, count)].copy())

    def discard_fetched(self) -> None:
        """Handle the client's events, and free the messages that wait to be taken."""
        while True:
            with self.consume(1_000, 0) as messages:
                if not len(messages):
                    return

    def handle_events(self) -> None:
        """Pass the client's errors and statistics on, without waiting for any."""
        self._get_handle()
        handle_events(self._lib, self._events, self._handle_event)

    def _handle_event(self, event: int) -> None:
        """Pass an event of the client on; a KafkaException if it says that the client has failed for good."""
        match self._lib.rd_kafka_event_type(event):
            case n.EVENT_STATS:
                self._on_statistics(self._lib.rd_kafka_event_stats(event))
            case n.EVENT_ERROR:
                code, text, fatal = read_error(self._lib, self._get_handle(), event)
                if fatal:
                    raise KafkaException(KafkaError(code, text, fatal=True))
                self._on_error(KafkaError(code, text))

    def _handle_error(self, _: int, code: int, text: bytes, __: int) -> None:
        """Pass an error of a partition on, which librdkafka reports while messages are taken."""
        self._on_error(KafkaError(code, text.decode(errors="replace")))

    def offsets_for_times(self, partitions: Sequence[tuple[str, int, int]], seconds: float) -> list[Answer]:
        """Ask the leaders of partitions for the first offsets with timestamps from given ones on.

        Args:
            partitions: Topics, partitions and timestamps in milliseconds since 1970.
            seconds: How long to wait for the answers.
        """
        with self._list(partitions) as asked:
            self._check(self._lib.rd_kafka_offsets_for_times(self._get_handle(), asked, int(seconds * 1000)))
            answers = asked.contents.elements[: asked.contents.count]
            return [Answer(int(a.offset), KafkaError(a.err) if a.err else None) for a in answers]

    def partitions_of(self, topic: str, seconds: float) -> set[int]:
        """Ask the brokers which partitions a topic has; none if it does not exist. The client learns their leaders."""
        client = self._get_handle()
        handle = self._lib.rd_kafka_topic_new(client, topic.encode(), None)
        try:
            with topic_metadata(self._lib, client, handle, int(seconds * 1000)) as (code, metadata):
                self._check(code)
                return set() if metadata is None else {p.id for p in metadata.partitions[: metadata.partition_cnt]}
        finally:
            self._lib.rd_kafka_topic_destroy(handle)

    def close(self) -> None:
        """Close the client, and wait for the end of its threads; a second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._close.detach()
            _close(handle, *self._owned)

    def _get_handle(self) -> int:
        """Return the client's handle; a closed client is an error."""
        if self._handle is None:
            raise RuntimeError("the consumer is closed")
        return self._handle

    def _check(self, code: int) -> None:
        """Raise the error of a code that is not 0."""
        if code:
            raise KafkaException(KafkaError(code))

    @contextmanager
    def _list(self, partitions: Iterable[tuple[str, int, int]]) -> Iterator[Any]:
        """Create librdkafka's list of partitions with offsets for the body, and free it afterwards."""
        result = self._lib.rd_kafka_topic_partition_list_new(8)
        try:
            for topic, partition, offset in partitions:
                one = self._lib.rd_kafka_topic_partition_list_add(result, topic.encode(), partition)
                one.contents.offset = offset
            yield result
        finally:
            self._lib.rd_kafka_topic_partition_list_destroy(result)


def _close(handle: int, queues: Iterable[int], _: object) -> None:
    """Free the queues of a client, and close it, which may still call the function for errors, the last argument."""
    lib = n.library()
    for queue in queues:
        lib.rd_kafka_queue_destroy(queue)
    lib.rd_kafka_destroy(handle)


def _close_abandoned(process: int, handle: int, queues: Iterable[int], callback: object) -> None:
    """Close a client that nothing refers to any more, in a thread: the present one may be a thread of the client.

    A process that was forked from that of the client does not have its threads, so closing would never end.
    """
    if process == os.getpid():
        with suppress(RuntimeError):  # the interpreter ends
            Thread(target=_close, args=(handle, queues, callback), name="kdsl abandoned consumer", daemon=True).start()
