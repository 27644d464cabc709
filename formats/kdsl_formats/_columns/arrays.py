"""Arrow arrays of strings and bytes as numpy arrays, and checks of whole columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types.arrays import Bytes as Bytes, Indices as Indices, Integers as Integers, Mask as Mask, Words as Words


def find_bounds(strings: pa.Array) -> tuple[Indices, Indices]:
    """The positions in `content` at which each string begins and ends (excluded). Its offsets have 32 bits."""
    if not len(strings):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    offsets = np.frombuffer(strings.buffers()[1], dtype=np.int32)[strings.offset : strings.offset + len(strings) + 1]
    positions = offsets.astype(np.int64) - int(offsets[0])
    return positions[:-1], positions[1:]


def find_present(messages: pa.BinaryArray) -> Mask:
    """Which messages are neither null nor empty."""
    start, end = find_bounds(messages)
    present: Mask = end > start
    return present & np.asarray(messages.is_valid()) if messages.null_count else present


def content(strings: pa.Array) -> npt.NDArray[np.uint8]:
    """A view of the bytes of all strings, one after the other."""
    data = strings.buffers()[2]
    if data is None or not len(strings):
        return np.zeros(0, dtype=np.uint8)
    offsets = np.frombuffer(strings.buffers()[1], dtype=np.int32)
    return np.frombuffer(data, dtype=np.uint8)[offsets[strings.offset] : offsets[strings.offset + len(strings)]]


def find_places(some: Indices, of: Indices) -> Indices | None:
    """The index in ascending numbers of each of some others; None if any is not among them."""
    places = np.searchsorted(of, some)
    if len(some) and not (len(of) and bool((of[np.minimum(places, len(of) - 1)] == some).all())):
        return None
    return places


def ranges(first: Indices, count: Indices) -> Indices:
    """The numbers of several ranges, one after the other."""
    ends = np.cumsum(count)
    result: Indices = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - count), count)
    return result


def slices(data: Any, start: Indices, end: Indices, present: Mask | None, kind: pa.DataType) -> pa.Array:
    """Copy spans of a buffer to an array; UTF-8 is not checked.

    Args:
        data: Bytes, less than 2 GiB; anything that has the buffer protocol.
        start: The first byte of each span.
        end: The position after the last byte of each span.
        present: Which elements are not NULL; None if all are.
        kind: ``string()`` or ``binary()``.
    """
    count = len(start)
    offsets = np.empty(2 * count + 1, dtype=np.int32)
    offsets[:-1:2] = start
    offsets[1::2] = end
    offsets[-1] = len(data)
    both = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    even = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=None if present is None else ~present)
    return both.take(even)


def validity(strings: pa.Array) -> pa.Buffer | None:
    """The validity bitmap of an array; None if no element is NULL."""
    return bitmap(np.asarray(strings.is_valid())) if strings.null_count else None


def bitmap(valid: Mask) -> pa.Buffer | None:
    """The validity bitmap of a mask; None if all elements are valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def build_array(values: npt.NDArray[Any], kind: pa.DataType, valid: Mask) -> pa.Array:
    """An array from numbers of the width of its type; NULL where they are not valid."""
    return pa.Array.from_buffers(kind, len(values), [bitmap(valid), pa.py_buffer(np.ascontiguousarray(values))])


def put_nulls(array: pa.Array, strings: pa.StringArray) -> pa.StringArray:
    """Set strings to NULL where an array is NULL."""
    return strings if not array.null_count else pc.if_else(array.is_valid(), strings, pa.scalar(None, pa.string()))


def words_of(data: Bytes) -> Words:
    """The eight bytes that begin at each position of a buffer, as numbers; writing to them writes to the buffer."""
    return np.ndarray((max(len(data) - 7, 0),), dtype="<u8", buffer=data, strides=(1,))


def words_at(data: Bytes, position: Indices, count: int) -> list[Words]:
    """The ``count`` words of eight bytes that begin at each position; all are inside the buffer.

    One gather of all words costs as much as that of one.
    """
    size = 8 * count
    blocks = np.ndarray((max(len(data) - size + 1, 0),), dtype=f"V{size}", buffer=data, strides=(1,))
    columns = blocks[position].view("<u8").reshape(-1, count)
    return [columns[:, i] for i in range(count)]


def find_invalid_utf8(strings: pa.StringArray) -> Mask | None:
    """Which strings are not UTF-8; None if all are. NULL counts as UTF-8."""
    data = content(strings)
    if not data.size or data.max() < 0x80:
        return None
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        pass
    else:
        return None
    wrong = find_each_invalid_utf8(data, *find_bounds(strings))
    if strings.null_count:
        wrong &= np.asarray(strings.is_valid())
    return wrong


def find_each_invalid_utf8(data: Bytes, start: Indices, end: Indices) -> Mask:
    """Which spans of a buffer are not UTF-8."""
    high = np.flatnonzero(data >= 0x80)
    wrong = np.zeros(len(start), dtype=bool)
    for i in np.flatnonzero(np.searchsorted(high, start) < np.searchsorted(high, end)).tolist():
        try:
            bytes(data[start[i] : end[i]]).decode()
        except UnicodeDecodeError:
            wrong[i] = True
    return wrong


def find_repeated_keys(owner: Indices, keys: pa.StringArray) -> Mask:
    """Which entries of maps have a key that an earlier entry of the same map has.

    Args:
        owner: The map of each entry.
        keys: The keys, which are not NULL.
    """
    codes = np.asarray(keys.dictionary_encode().indices).astype(np.int64)
    result = np.ones(len(codes), dtype=bool)
    if len(codes):
        result[np.unique(owner * (int(codes.max()) + 1) + codes, return_index=True)[1]] = False
    return result
