"""The iteration order of Java's HashMap, in which Flink writes the entries of a map."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl_formats._columns.arrays import content, find_bounds, find_repeated_keys, ranges

_CODE = 2**32 - 1
_LONGEST = 256  # characters: longer keys are hashed one by one
_POWERS = np.array([pow(31, n, 1 << 32) for n in range(_LONGEST)], dtype=np.uint32)


def java_order(keys: list[str]) -> list[int]:
    """The order in which a Java HashMap iterates over distinct keys inserted in this order, as their indices.

    The map has room for all keys from the start, as in Flink; keys of the same bucket stay in the order of insertion.
    """
    count = len(keys)
    room = count + 1 if count <= 2 else math.ceil(count / 0.75)
    size = 1 << (room - 1).bit_length()
    return sorted(range(count), key=lambda i: java_hash(keys[i]) & (size - 1))


def java_hash(key: str) -> int:
    """The hash of a string in Java's HashMap."""
    code_sum = 0
    for code in memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H"):
        code_sum = (31 * code_sum + code) & _CODE
    return code_sum ^ (code_sum >> 16)


def java_orders(
    keys: pa.StringArray, counts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """The iteration order of many maps, as indices in `keys`; and which maps repeat a key (their order is undefined).

    Args:
        keys: The keys of all maps, one map after the other.
        counts: The number of keys of each map.
    """
    maps = np.repeat(np.arange(len(counts)), counts)
    again = find_repeats(keys, counts)
    room = np.where(counts <= 2, counts + 1, np.ceil(counts / 0.75).astype(np.int64))
    size = 1 << np.frexp(room - 1)[1].astype(np.int64)
    buckets = _hash_keys(keys) & (size[maps] - 1)
    return np.lexsort((buckets, maps)), again


def find_repeats(keys: pa.StringArray, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which maps have a repeated key; the arguments are those of `java_orders`."""
    mask = np.zeros(len(counts), dtype=bool)
    if not (counts > 1).any():
        return mask
    maps = np.repeat(np.arange(len(counts)), counts)
    mask[maps[find_repeated_keys(maps, keys)]] = True
    return mask


def _hash_keys(keys: pa.StringArray) -> npt.NDArray[np.int64]:
    """The hashes of many strings in Java's HashMap; see `java_hash`."""
    begin, end = find_bounds(keys)
    length = end - begin
    data = content(keys)
    plain = length <= _LONGEST
    high = np.flatnonzero(data >= 0x80)
    if high.size:
        plain &= np.searchsorted(high, begin) == np.searchsorted(high, end)
    short = np.where(plain, length, 0)
    powers = _POWERS[np.repeat(short, short) - 1 - ranges(np.zeros_like(short), short)]
    terms = data[ranges(begin, short)] * powers
    sums = np.concatenate([np.zeros(1, dtype=np.uint32), np.cumsum(terms, dtype=np.uint32)])
    last = np.cumsum(short)
    hashes: npt.NDArray[np.int64] = (sums[last] - sums[last - short]).astype(np.int64)
    hashes ^= hashes >> 16
    for i in np.flatnonzero(~plain).tolist():
        hashes[i] = java_hash(keys[i].as_py())
    return hashes
