"""The client's messages as Arrow arrays, field by field."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from kdsl.run.arrays import Numbers
from kdsl.run.records.metadata import HEADERS

Messages = list["Message[bytes, bytes]"]


def offset_of(message: Message[bytes, bytes]) -> int:
    """The offset of a message."""
    offset = message.offset()
    assert offset is not None
    return offset


def numbers(accessor: Any, messages: Messages) -> Numbers:
    """What a method of the messages gives: whole numbers."""
    return np.fromiter(map(accessor, messages), np.int64, len(messages))


def _values(messages: Messages) -> pa.Array:
    return pa.array(list(map(Message.value, messages)), pa.binary())


def _keys(messages: Messages) -> pa.Array:
    return pa.array(list(map(Message.key, messages)), pa.binary())


def _timestamps(messages: Messages) -> pa.Array:
    return pa.array([millis for _, millis in map(Message.timestamp, messages)], pa.int64())


def _timestamp_types(messages: Messages) -> pa.Array:
    return pa.array([kind - 1 for kind, _ in map(Message.timestamp, messages)], pa.int8())


def _leader_epochs(messages: Messages) -> pa.Array:
    return pa.array(list(map(Message.leader_epoch, messages)), pa.int32())


def _headers(messages: Messages) -> pa.Array:
    lists = [headers or () for headers in map(Message.headers, messages)]
    offsets = np.concatenate([[0], np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)))])
    entries = list(chain.from_iterable(lists))
    names = pa.array([name for name, _ in entries], pa.string())
    values = pa.array([value for _, value in entries], pa.binary())
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs, type=HEADERS)


COLUMNS = {
    "timestamp": _timestamps,
    "timestamp_type": _timestamp_types,
    "leader_epoch": _leader_epochs,
    "headers": _headers,
    "key": _keys,
    "value": _values,
}
"""How a field of a raw batch is made of messages."""
