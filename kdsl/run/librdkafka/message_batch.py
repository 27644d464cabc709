"""Messages of librdkafka as Arrow columns, without a Python object for each: their bytes are copied where they are.

A message is a structure in librdkafka's memory, and its key and value are elsewhere in it. All are freed together, with
the batch that one call of the client has filled.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterable, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError

from kdsl.run import ffi as n
from kdsl.run.records.metadata import HEADERS
from kdsl.types.arrays import Indices, Integers

_INLINE = 12  # Arrow's views contain values of up to this many bytes, and only a prefix of longer ones
_WINDOW_BITS = 30  # the offset of a view in its buffer has 31 bits, and values may be farther apart
_NO_TIME = -1
_STRUCT = np.dtype((np.void, n.MESSAGE.itemsize))


@attrs.frozen(eq=False)
class Event:
    """A message that is not a record: an error of a partition, or that the partition has no more records.

    Attributes:
        topic: The topic; None if the error is not about one.
        partition: The partition.
        offset: The offset that the client was to fetch.
        error: The error.
    """

    topic: str | None
    partition: int
    offset: int
    error: KafkaError


class MessageBatch:
    """The messages that one call of a consumer has returned: a context manager that frees them at the end of its body.

    What was built from them stays. They must be freed before the consumer is closed.

    Args:
        addresses: The addresses of the messages; the batch owns them.
    """

    def __init__(self, addresses: Integers) -> None:
        self._addresses = addresses
        try:
            self._fields = _read_structures(addresses)
        except BaseException:
            self.free()
            raise

    def __enter__(self) -> MessageBatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()

    def __del__(self) -> None:
        # A batch may be lost before its body begins, as by an interrupt.
        self.free()

    def __len__(self) -> int:
        return len(self._addresses)

    def free(self) -> None:
        """Free the messages; a second call does nothing."""
        addresses, self._addresses = self._addresses, _NOTHING
        if len(addresses):
            _exhaust(map(n.message_functions().rd_kafka_message_destroy, addresses.tolist()))

    def events(self) -> list[Event]:
        """Return the messages that are not records, in their order."""
        failed = np.flatnonzero(self._fields["err"])
        names, text = _TopicNames(), n.message_functions().rd_kafka_message_errstr
        return [
            Event(
                names[int(self._fields["rkt"][i])],
                int(self._fields["partition"][i]),
                int(self._fields["offset"][i]),
                KafkaError(int(self._fields["err"][i]), text(int(self._addresses[i])).decode(errors="replace")),
            )
            for i in failed.tolist()
        ]

    def records(self) -> Records:
        """Return the messages that are records, in their order."""
        good = self._fields["err"] == 0
        return (
            Records(self, self._addresses, self._fields)
            if good.all()
            else Records(self, self._addresses[good], self._fields[good])
        )


class Records:
    """Some records of a batch, in the order in which they came. Columns can be built until the batch is freed.

    Attributes:
        offsets: Their offsets.
        size: The bytes of their keys and values.
    """

    def __init__(self, batch: MessageBatch, addresses: Integers, fields: Any) -> None:
        self._batch, self._addresses, self._fields = batch, addresses, fields
        self.offsets: Integers = fields["offset"].copy()

    def __len__(self) -> int:
        return len(self._addresses)

    def select(self, rows: Any) -> Records:
        """Return some of the records: those of a slice, or those for which an array of booleans is true."""
        return Records(self._batch, self._addresses[rows], self._fields[rows])

    @cached_property
    def size(self) -> int:
        """The bytes of the keys and values."""
        return int(self._fields["len"].sum() + self._fields["key_len"].sum())

    def partition_runs(self) -> tuple[list[tuple[str, int]], Indices]:
        """Return the topic partition of each run of records that follow one another in it, and the runs' lengths."""
        topics, partitions = self._fields["rkt"], self._fields["partition"]
        changes = (topics[1:] != topics[:-1]) | (partitions[1:] != partitions[:-1])
        starts = np.concatenate([[0], np.flatnonzero(changes) + 1]) if len(self) else np.zeros(0, np.int64)
        self._check()
        names = _TopicNames()
        runs = zip(topics[starts].tolist(), partitions[starts].tolist(), strict=True)
        return [(names[topic] or "", partition) for topic, partition in runs], np.diff(starts, append=len(self))

    def leader_epochs(self, rows: Sequence[int]) -> list[int | None]:
        """Return the leader epochs with which some records were stored, by their index; None for unknown ones."""
        addresses = self._check()[list(rows)].tolist()
        epochs = map(n.message_functions().rd_kafka_message_leader_epoch, addresses)
        return [None if epoch < 0 else epoch for epoch in epochs]

    def last_time(self) -> int | None:
        """Return the timestamp of the last record, in milliseconds since 1970; None if it has none."""
        times, kinds = _read_times(self._check()[-1:])
        return int(times[0]) if kinds[0] else None

    def build(self, name: str) -> pa.Array:
        """Build the column of a field of a raw batch (`kdsl.run.records.metadata.RAW`).

        Args:
            name: ``key``, ``value``, ``timestamp``, ``timestamp_type``, ``leader_epoch`` or ``headers``.
        """
        addresses = self._check()
        match name:
            case "key":
                return build_binary(self._fields["key"].copy(), self._fields["key_len"].copy())
            case "value":
                return build_binary(self._fields["payload"].copy(), self._fields["len"].copy())
            case "timestamp":
                return pa.array(self._times[0])
            case "timestamp_type":  # the protocol's numbers; those of the client are greater by one
                return pa.array((self._times[1] - 1).astype(np.int8))
            case "leader_epoch":
                epoch = n.message_functions().rd_kafka_message_leader_epoch
                epochs = np.fromiter(map(epoch, addresses.tolist()), np.int32, len(addresses))
                return pa.array(epochs, mask=epochs < 0)
            case _:
                assert name == "headers", name
                return _build_headers(addresses)

    @cached_property
    def _times(self) -> tuple[Integers, Any]:
        """The timestamps of the records and their types."""
        return _read_times(self._check())

    def _check(self) -> Integers:
        """Return the addresses of the records; a batch that was freed, though its records are used, is an error."""
        if len(self._addresses) and not len(self._batch):
            raise ValueError("the messages of these records were freed")
        return self._addresses


class _TopicNames(dict[int, "str | None"]):
    """The names of topics by librdkafka's handle; 0 stands for none."""

    def __missing__(self, handle: int) -> str | None:
        """Ask for the name of a handle, which a message holds meanwhile."""
        self[handle] = n.library().rd_kafka_topic_name(handle).decode() if handle else None
        return self[handle]


class _Memory:
    """A part of the process's memory as NumPy sees it: elements at each ``stride`` bytes, which may overlap."""

    def __init__(self, address: int, count: int, kind: str, stride: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": (count,),
            "typestr": kind,
            "strides": (stride,),
        }


def _read_structures(addresses: Integers) -> Any:
    """Copy the structures of messages, at least 8 bytes aligned, into an array of the type `kdsl.run.ffi.MESSAGE`."""
    if not len(addresses):
        return np.empty(0, n.MESSAGE)
    base = int(addresses.min())
    count = (int(addresses.max()) - base) // 8 + 1
    structures = np.asarray(_Memory(base, count, _STRUCT.str, 8))
    return structures[(addresses - base) >> 3].view(n.MESSAGE)


def _read_times(addresses: Integers) -> tuple[Integers, Any]:
    """Read the timestamps of messages in milliseconds since 1970, -1 for none, and their types as the client's numbers.

    The types are 0 (there is none), 1 (set by the producer) and 2 (set by the broker).
    """
    kinds = np.zeros(len(addresses), np.int32)
    start = kinds.ctypes.data
    read = n.message_functions().rd_kafka_message_timestamp
    each = map(read, addresses.tolist(), range(start, start + kinds.nbytes, kinds.itemsize))
    return np.fromiter(each, np.int64, len(addresses)), kinds


def build_binary(addresses: Integers, sizes: Integers) -> pa.Array:
    """Copy values from the process's memory into a binary array. Nothing outside of the values is read.

    Args:
        addresses: The addresses of the values; 0 is a null.
        sizes: Their numbers of bytes; those of nulls are 0.
    """
    count = len(addresses)
    valid = addresses != 0
    if not valid.any():
        return pa.nulls(count, pa.binary())
    has_nulls = not valid.all()
    views = np.zeros((count, 4), np.int32)
    views[:, 0] = sizes
    long = sizes > _INLINE
    buffers: list[pa.Buffer] = []
    if long.all():
        buffers = _put_references(views[:, 1:], addresses, sizes)
    else:
        if long.any():
            references = np.empty((np.count_nonzero(long), 3), np.int32)
            buffers = _put_references(references, addresses[long], sizes[long])
            views[long, 1:] = references
        short = np.flatnonzero(~long & (sizes > 0))
        if len(short):
            views[short, 1:] = _copy_short(addresses[short], sizes[short])
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little")) if has_nulls else None
    array = pa.Array.from_buffers(pa.binary_view(), count, [bitmap, pa.py_buffer(views), *buffers])
    return array.cast(pa.binary())


def _put_references(words: Any, addresses: Integers, sizes: Integers) -> list[pa.Buffer]:
    """Write the prefix, the buffer and the offset of long values into arrays of three words; return the buffers.

    A buffer ends with the last of the values that begin in it.
    """
    base = int(addresses.min())
    relative = addresses - base
    prefixes = np.asarray(_Memory(base, int(relative.max()) + 1, "<i4", 1))
    words[:, 0] = prefixes[relative]
    windows = relative >> _WINDOW_BITS
    words[:, 2] = relative & ((1 << _WINDOW_BITS) - 1)
    last = int(windows.max())
    if last == 0:
        words[:, 1] = 0
        return [pa.foreign_buffer(base, int((relative + sizes).max()))]
    used, words[:, 1] = np.unique(windows, return_inverse=True)
    ends = np.zeros(len(used), np.int64)
    np.maximum.at(ends, words[:, 1], relative + sizes)
    starts = used << _WINDOW_BITS
    return [
        pa.foreign_buffer(base + start, end - start) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def _copy_short(addresses: Integers, sizes: Integers) -> Any:
    """Copy values of 1 to 12 bytes into arrays of three words, whose other bytes are zero."""
    copies = np.zeros((len(addresses), _INLINE), np.uint8)
    base = int(addresses.min())
    relative = addresses - base
    data = np.asarray(_Memory(base, int((relative + sizes).max()), "|u1", 1))
    shortest = int(sizes.min())
    for i in range(int(sizes.max())):
        if i < shortest:
            copies[:, i] = data[relative + i]
        else:
            rows = np.flatnonzero(sizes > i)
            copies[rows, i] = data[relative[rows] + i]
    return copies.view(np.int32)


def _build_headers(addresses: Integers) -> pa.Array:
    """Build the column of the headers of messages, of the type `HEADERS`; a message without headers has an empty list.

    Bytes of names that are not UTF-8 become U+FFFD, as in Java's client: Kafka's protocol requires UTF-8, but no broker
    checks it, and clients in C, Go and Rust write any bytes.
    """
    functions = n.message_functions()
    handles = np.zeros(len(addresses), np.int64)  # stays 0 for a message without headers
    _exhaust(map(functions.rd_kafka_message_headers, addresses.tolist(), _places(handles)))
    counts = np.zeros(len(addresses), np.int64)
    present = np.flatnonzero(handles)
    counts[present] = np.fromiter(map(functions.rd_kafka_header_cnt, handles[present].tolist()), np.int64, len(present))
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    if not total:
        return pa.ListArray.from_arrays(offsets, pa.nulls(0, HEADERS.value_type), type=HEADERS)
    indices = np.arange(total) - np.repeat(ends - counts, counts)
    names, values, sizes = np.zeros((3, total), np.int64)
    of_each = np.repeat(handles, counts).tolist(), indices.tolist(), _places(names), _places(values), _places(sizes)
    _exhaust(map(functions.rd_kafka_header_get_all, *of_each))
    pairs = [_build_names(names), build_binary(values, sizes)]
    entries = pa.StructArray.from_arrays(pairs, fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(offsets, entries, type=HEADERS)


def _build_names(addresses: Integers) -> pa.Array:
    """Copy strings that end with a NUL from the process's memory; bytes that are not UTF-8 become U+FFFD."""
    pointers: Any = ctypes.c_char_p * len(addresses)
    names: list[bytes] = pointers.from_buffer(addresses)[:]
    try:
        return pa.array(names, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names], pa.string())


def _places(array: Integers) -> range:
    """Return the addresses of the elements of an array, which a function may write to as long as the array lives."""
    start = array.ctypes.data
    return range(start, start + array.nbytes, array.itemsize)


def _exhaust(results: Iterable[object]) -> None:
    """Make all calls of an iterator, and ignore the results."""
    deque(results, maxlen=0)


_NOTHING: Integers = np.empty(0, np.int64)

__all__ = ["Event", "MessageBatch", "Records", "build_binary"]
