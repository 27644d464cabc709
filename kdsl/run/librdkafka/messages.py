"""Converts the client's messages to Arrow arrays, field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from kdsl.run.records.metadata import HEADERS
from kdsl.types.arrays import Integers

Messages = list["Message[bytes, bytes]"]
Headers = list[tuple[str, bytes | None]]
RecordId = tuple[str, int, int]
"""A topic, a partition and an offset."""
ReadHeaders = Callable[[Sequence[RecordId]], Sequence[Headers]]
"""Reads the headers of some records."""


def offset_of(message: Message[bytes, bytes]) -> int:
    """Return the offset of a message, which each message of the brokers has."""
    offset = message.offset()
    assert offset is not None
    return offset


def collect_integers(accessor: Any, messages: Messages) -> Integers:
    """Call a method of each message and collect the integers that it returns."""
    return np.fromiter(map(accessor, messages), np.int64, len(messages))


def _values(messages: Messages) -> pa.Array:
    """Build the column of the messages' values; null for a tombstone."""
    return pa.array(list(map(Message.value, messages)), pa.binary())


def _keys(messages: Messages) -> pa.Array:
    """Build the column of the messages' keys; null for a message without a key."""
    return pa.array(list(map(Message.key, messages)), pa.binary())


def _timestamps(messages: Messages) -> pa.Array:
    """Return the timestamps in milliseconds since 1970; -1 for none."""
    return pa.array([millis for _, millis in map(Message.timestamp, messages)], pa.int64())


def _timestamp_types(messages: Messages) -> pa.Array:
    """Return the protocol's numbers of the timestamp types (`RAW`); confluent-kafka's are greater by one."""
    return pa.array([kind - 1 for kind, _ in map(Message.timestamp, messages)], pa.int8())


def _build_leader_epochs(messages: Messages) -> pa.Array:
    """Build the column of the leader epochs with which messages were stored; null where the client does not know it."""
    return pa.array(list(map(Message.leader_epoch, messages)), pa.int32())


def build_headers(messages: Messages, read: ReadHeaders) -> pa.Array:
    """Build the column of the headers of some messages, of the type `HEADERS`; the list of a message may be empty.

    Args:
        messages: The messages.
        read: Reads the headers that confluent-kafka cannot return because a name is not UTF-8; its errors are passed
            on.
    """
    lists: list[Headers | None] = []
    unreadable: list[int] = []
    each: Iterator[Any] = map(Message.headers, messages)
    while len(lists) < len(messages):
        try:
            lists.extend(each)
        except SystemError:  # confluent-kafka raises it for a name that is not UTF-8, and loses the message's headers
            unreadable.append(len(lists))
            lists.append(None)
    if unreadable:
        records = [
            (str(m.topic()), int(m.partition() or 0), offset_of(m)) for m in map(messages.__getitem__, unreadable)
        ]
        for index, one in zip(unreadable, read(records), strict=True):
            lists[index] = one
    if not any(lists):
        no_offsets = pa.array(np.zeros(len(lists) + 1, np.int32))
        return pa.ListArray.from_arrays(no_offsets, pa.nulls(0, HEADERS.value_type), type=HEADERS)
    present = [one or () for one in lists]
    offsets = np.concatenate([[0], np.cumsum(np.fromiter(map(len, present), np.int64, len(present)))])
    entries = list(chain.from_iterable(present))
    names = pa.array([name for name, _ in entries], pa.string())
    values = pa.array([value for _, value in entries], pa.binary())
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs, type=HEADERS)


COLUMNS = {
    "timestamp": _timestamps,
    "timestamp_type": _timestamp_types,
    "leader_epoch": _build_leader_epochs,
    "key": _keys,
    "value": _values,
}
"""The function that builds each field of a raw batch from messages; `build_headers` builds the headers."""
