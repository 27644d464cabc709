"""Keys as numbers: a hash that is the same everywhere, the order by it, and the last row of each key in a batch.

The hash must never change, because state is found again by it in every process, session and release. It does not resist
attackers and need not: keys with one hash are distinguished (`kdsl.run.upsert.shared_hashes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types.arrays import Integers, Mask, Words
from kdsl.types.arrow import list_of_entries

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIXER = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_NULL = np.uint64(0x5851F42D4C957F2D)


def assign_shards(keys: Sequence[pa.Array], shards: int) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """Return the shard of each row.

    Args:
        keys: The key columns, one array each, of one length.
        shards: The number of shards, at most 65536, which is not checked.
    """
    return (hash_keys(keys) % np.uint64(shards)).astype(np.uint16)


def assign_parts(keys: Sequence[pa.Array], parts: int) -> Words:
    """Return the part of each row, where the rows of a shard are divided by their keys to be compared one by one.

    Args:
        keys: The key columns, one array each, of one length.
        parts: The number of parts.
    """
    return (hash_keys(keys) >> _HALF) % np.uint64(parts)  # the other bits decide the shard


def hash_keys(keys: Sequence[pa.Array]) -> Words:
    """Return a hash of each row; equal keys have equal hashes, whatever the layout of their arrays."""
    result = np.zeros(len(keys[0]), dtype=np.uint64)
    for array in keys:
        result = mix_words(result * _MULTIPLIER + _hash_column(array))
    return result


def mix_words(words: Words) -> Words:
    """Return a hash of each word."""
    words = (words ^ (words >> _HALF)) * _MIXER
    words = (words ^ (words >> _HALF)) * _MIXER
    return words ^ (words >> _HALF)


def _hash_column(array: pa.Array) -> Words:
    """Return the hash of each value; all nulls have the same one."""
    values = _hash_values(array)
    return values if array.null_count == 0 else np.where(_valid(array), values, _NULL)


def _hash_values(array: pa.Array) -> Words:
    """Return the hashes of the values; those of nulls are arbitrary."""
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
        return _hash_bytes(array.buffers()[2], offsets[:-1], np.diff(offsets))
    if pa.types.is_boolean(kind):
        return mix_words(array.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64))
    if pa.types.is_struct(kind):
        return hash_keys(array.flatten()) if kind.num_fields else np.zeros(len(array), dtype=np.uint64)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _hash_lists(list_of_entries(array) if pa.types.is_map(kind) else array)
    if pa.types.is_floating(kind):
        values = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        values = np.where(np.isnan(values), np.nan, values)
        return mix_words(values.view(np.uint64))
    width = kind.byte_width
    if width == 16:
        pairs = np.frombuffer(array.buffers()[1], np.uint64, 2 * len(array), array.offset * 16).reshape(-1, 2)
        return mix_words(mix_words(pairs[:, 0]) * _MULTIPLIER + pairs[:, 1])
    if width not in (1, 2, 4, 8):
        offsets = (np.arange(len(array), dtype=np.int64) + array.offset) * width
        return _hash_bytes(array.buffers()[1], offsets, np.full(len(array), width, dtype=np.int64))
    numbers = np.frombuffer(array.buffers()[1], np.dtype(f"i{width}"), len(array), array.offset * width)
    return mix_words(numbers.astype(np.int64).view(np.uint64))


def _hash_lists(lists: pa.ListArray) -> Words:
    """Return the hashes of lists, by their elements and the places of these; those of nulls are arbitrary."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths)
    places = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    words = mix_words(_hash_column(lists.flatten()) + places.astype(np.uint64) * _MULTIPLIER)
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(words)])  # modulo 2**64, and so are differences
    return mix_words(mix_words(lengths.astype(np.uint64)) + (sums[ends] - sums[ends - lengths]))


def _hash_bytes(data: pa.Buffer | None, starts: Any, lengths: Any) -> Words:
    """Return the hashes of the strings that begin at ``starts`` in ``data``, reading eight bytes of each at a time."""
    result = mix_words(lengths.astype(np.uint64))
    longest = int(lengths.max(initial=0))
    if data is None or longest == 0:
        return result
    padded = np.zeros(data.size + 8, dtype=np.uint8)
    padded[: data.size] = np.frombuffer(data, np.uint8)
    words = np.ndarray((data.size + 1,), "<u8", padded, strides=(1,))  # a word begins at each byte
    rows = np.arange(len(lengths))
    for at in range(0, longest, 8):
        if at:
            rows = rows[lengths[rows] > at]
        left = np.minimum(lengths[rows] - at, 8)
        shift = (np.uint64(8) * (np.uint64(8) - left.astype(np.uint64))) % np.uint64(64)
        here = words[np.minimum(starts[rows] + at, data.size)]
        here = np.where(left > 0, (here << shift) >> shift, np.uint64(0))
        result[rows] = mix_words(result[rows] * _MULTIPLIER + here)
    return result


def _valid(array: pa.Array) -> Any:
    """Return which values of an array are not null."""
    return array.is_valid().to_numpy(zero_copy_only=False)


def sort_hashes(hashes: Words) -> Integers:
    """Return the indices that sort hashes, and keep the order of equal ones.

    Their first bits and their indices are sorted as single numbers, which is several times as fast as a stable sort.
    """
    bits = np.uint64(max(1, len(hashes) - 1).bit_length())
    indices = np.arange(len(hashes), dtype=np.uint64)
    order: Integers = (np.sort((hashes >> bits << bits) | indices) & ((np.uint64(1) << bits) - np.uint64(1))).view(
        np.int64
    )
    ordered = hashes[order]
    if (ordered[1:] < ordered[:-1]).any():  # different hashes with the same first bits
        return np.argsort(hashes, kind="stable")
    return order


def mark_last_rows(ids: Integers) -> Mask:
    """Return which rows are the last ones of their keys, whose numbers are given (`kdsl.types.arrays.number_rows`)."""
    last = np.zeros(int(ids.max(initial=-1)) + 1, dtype=np.int64)
    last[ids] = np.arange(len(ids))
    is_last: Mask = last[ids] == np.arange(len(ids))
    return is_last
