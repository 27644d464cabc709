"""A number for each key, the same in every process, session and release: state is found again by it.

It must never change. It is no good against attackers, and need not be: it only spreads keys over buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Words = np.ndarray[Any, np.dtype[np.uint64]]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIXER = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_NULL = np.uint64(0x5851F42D4C957F2D)


def buckets_of(keys: Sequence[pa.Array], buckets: int) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """The bucket of each row.

    Args:
        keys: The key columns, one array each, of one length.
        buckets: How many buckets there are, 65536 at most.
    """
    return (hashes(keys) % np.uint64(buckets)).astype(np.uint16)


def hashes(keys: Sequence[pa.Array]) -> Words:
    """A number of each row; equal keys have equal numbers, whatever the layout of their arrays."""
    found = np.zeros(len(keys[0]), dtype=np.uint64)
    for array in keys:
        found = _mixed(found * _MULTIPLIER + _hash(array))
    return found


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> _HALF)) * _MIXER
    words = (words ^ (words >> _HALF)) * _MIXER
    return words ^ (words >> _HALF)


def _hash(array: pa.Array) -> Words:
    found = _hash_values(array)
    return found if array.null_count == 0 else np.where(_valid(array), found, _NULL)


def _hash_values(array: pa.Array) -> Words:
    """Numbers of the values; what stands at null places does not matter."""
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
        return _hash_bytes(array.buffers()[2], offsets[:-1], np.diff(offsets))
    if pa.types.is_boolean(kind):
        return _mixed(array.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64))
    if pa.types.is_struct(kind):
        return hashes(array.flatten()) if kind.num_fields else np.zeros(len(array), dtype=np.uint64)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        # How many elements there are: a poor number, and enough for a key that hardly anybody has.
        lengths = pc.fill_null(pc.list_value_length(array.cast(pa.list_(_elements(kind)))), 0)
        return _mixed(lengths.to_numpy(zero_copy_only=False).astype(np.uint64))
    if pa.types.is_floating(kind):
        values = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        values = np.where(np.isnan(values), np.nan, values)
        return _mixed(values.view(np.uint64))
    width = kind.byte_width
    if width == 16:
        pairs = np.frombuffer(array.buffers()[1], np.uint64, 2 * len(array), array.offset * 16).reshape(-1, 2)
        return _mixed(_mixed(pairs[:, 0]) * _MULTIPLIER + pairs[:, 1])
    if width not in (1, 2, 4, 8):
        offsets = (np.arange(len(array), dtype=np.int64) + array.offset) * width
        return _hash_bytes(array.buffers()[1], offsets, np.full(len(array), width, dtype=np.int64))
    numbers = np.frombuffer(array.buffers()[1], np.dtype(f"i{width}"), len(array), array.offset * width)
    return _mixed(numbers.astype(np.int64).view(np.uint64))


def _elements(kind: pa.DataType) -> pa.DataType:
    return pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type


def _hash_bytes(data: pa.Buffer | None, starts: Any, lengths: Any) -> Words:
    """Numbers of texts, eight bytes of each at a time."""
    found = _mixed(lengths.astype(np.uint64))
    longest = int(lengths.max(initial=0))
    if data is None or longest == 0:
        return found
    padded = np.zeros(data.size + 8, dtype=np.uint8)
    padded[: data.size] = np.frombuffer(data, np.uint8)
    words = np.ndarray((data.size + 1,), "<u8", padded, strides=(1,))  # one begins at each byte
    rows = np.arange(len(lengths))
    for at in range(0, longest, 8):
        if at:
            rows = rows[lengths[rows] > at]
        left = np.minimum(lengths[rows] - at, 8)
        shift = (np.uint64(8) * (np.uint64(8) - left.astype(np.uint64))) % np.uint64(64)
        here = words[np.minimum(starts[rows] + at, data.size)]
        here = np.where(left > 0, (here << shift) >> shift, np.uint64(0))
        found[rows] = _mixed(found[rows] * _MULTIPLIER + here)
    return found


def _valid(array: pa.Array) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False)
