"""What librdkafka's clients report in their main queue: errors, statistics, lines of the log and deliveries."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kdsl.run import ffi as n


def handle_events(lib: Any, queue: int, handle: Callable[[int], None], milliseconds: int = 0) -> None:
    """Handle all events of a queue; what the function raises is passed on, and the later events stay in the queue.

    Args:
        lib: librdkafka's functions (`kdsl.run.ffi.library`).
        queue: The queue.
        handle: Handles an event, which is freed afterwards.
        milliseconds: How long to wait for the first event.
    """
    while event := lib.rd_kafka_queue_poll(queue, milliseconds):
        try:
            handle(event)
        finally:
            lib.rd_kafka_event_destroy(event)
        milliseconds = 0


def read_error(lib: Any, client: int, event: int) -> tuple[int, str, bool]:
    """Return the code and the text of an event that is an error of the client, and whether it has failed for good.

    For a client that has failed for good, they are those of the cause.
    """
    code: int = lib.rd_kafka_event_error(event)
    if code == n.FATAL:
        return *read_fatal_error(lib, client), True
    return code, lib.rd_kafka_event_error_string(event).decode(errors="replace"), False


def read_fatal_error(lib: Any, client: int) -> tuple[int, str]:
    """Return the code and the text of the error with which a client has failed for good; the code is 0 without one."""
    text = ctypes.create_string_buffer(512)
    return lib.rd_kafka_fatal_error(client, text, len(text)), text.value.decode(errors="replace")


@contextmanager
def topic_metadata(lib: Any, client: int, topic: int, milliseconds: int) -> Iterator[tuple[int, Any]]:
    """Request the metadata of a topic once, and free it after the body.

    Args:
        lib: librdkafka's functions.
        client: The client.
        topic: The client's handle of the topic.
        milliseconds: How long to wait for the answer.

    Yields:
        The code of the request's error, 0 for none, and the topic (`kdsl.run.ffi.MetadataTopic`); None instead of it
        after an error, or if the brokers do not know the topic.
    """
    metadata = ctypes.POINTER(n.Metadata)()
    code: int = lib.rd_kafka_metadata(client, 0, topic, ctypes.byref(metadata), milliseconds)
    if code:
        yield code, None
        return
    try:
        yield 0, metadata.contents.topics[0] if metadata.contents.topic_cnt else None
    finally:
        lib.rd_kafka_metadata_destroy(metadata)
