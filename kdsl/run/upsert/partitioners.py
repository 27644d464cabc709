"""The partitioners of Kafka's clients: the partition that a producer chooses for the bytes of a key.

======================  ==================================================================================
``murmur2``             Java's client, librdkafka's ``murmur2`` and ``murmur2_random``, franz-go, kafka-python
``crc32``               librdkafka's ``consistent`` and ``consistent_random`` (its default)
``fnv1a``               Sarama's default, kafka-go's ``Hash``, librdkafka's ``fnv1a`` and ``fnv1a_random``
``fnv1a-masked``        Sarama's ``NewReferenceHashPartitioner``
``single``              Any client, for a topic with one partition
======================  ==================================================================================

A record without a key goes anywhere. An empty key is a key, except that librdkafka's ``consistent_random`` puts it
anywhere, so that ``crc32`` says nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl.plan.model import KeyPartitioner
from kdsl.types.arrays import Integers

PARTITIONERS: tuple[KeyPartitioner, ...] = get_args(KeyPartitioner)
TITLES: dict[KeyPartitioner, str] = {
    "murmur2": "Java's client (murmur2)",
    "crc32": "librdkafka (CRC-32)",
    "fnv1a": "Sarama (FNV-1a)",
    "fnv1a-masked": "Sarama's reference partitioner (FNV-1a)",
    "single": "any client",
}
"""Whose partitioner it is, for messages."""
NOWHERE = -1
"""The partition of a key for which the partitioner does not determine one."""

Bounds = Sequence[int] | npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint32]

_U32 = np.uint32
_SIGN = _U32(0x7FFFFFFF)
_MURMUR2_SEED, _MURMUR2_MULTIPLIER = _U32(0x9747B28C), _U32(0x5BD1E995)
_TAILS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=_U32)
_FNV_OFFSET, _FNV_PRIME = _U32(0x811C9DC5), _U32(0x01000193)
_CRC_POLYNOMIAL = _U32(0xEDB88320)


def choose_partitions(keys: pa.Array, partitions: int, partitioner: KeyPartitioner = "murmur2") -> Integers:
    """Return the partition that a partitioner chooses for each key; `NOWHERE` if it does not determine one.

    Args:
        keys: The bytes of the keys; null for a record without a key.
        partitions: How many partitions the topic has.
        partitioner: The partitioner; ``single`` determines partition 0 of a topic with one partition, and no other.
    """
    if partitioner == "single":
        result: Integers = np.full(len(keys), 0 if partitions == 1 else NOWHERE, dtype=np.int64)
        return result
    bounds = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1, keys.offset * 4).astype(np.int64)
    data = b"" if keys.buffers()[2] is None else keys.buffers()[2]
    hash_keys, choose = _PARTITIONERS[partitioner]
    result = choose(hash_keys(data, bounds)).astype(np.int64) % partitions
    if keys.null_count:
        result[keys.is_null().to_numpy(zero_copy_only=False)] = NOWHERE
    if partitioner == "crc32":
        result[np.diff(bounds) == 0] = NOWHERE
    return result


def hash_murmur2(data: pa.Buffer | bytes, bounds: Bounds) -> Hashes:
    """Return the murmur2 hash of strings, as ``Utils.murmur2`` of Kafka's clients computes it.

    Args:
        data: The bytes of all strings.
        bounds: Where each begins, and where the last one ends.
    """
    starts, lengths, end = _find_strings(bounds)
    padded = np.zeros(end + 4, dtype=np.uint8)
    padded[:end] = np.frombuffer(data, np.uint8, end)
    words = np.ndarray((end + 1,), "<u4", padded, strides=(1,))  # a word begins at each byte
    hashes = _MURMUR2_SEED ^ lengths.astype(_U32)
    rows = np.arange(len(lengths))
    for at in range(0, int(lengths.max(initial=0)) - 3, 4):
        rows = rows[lengths[rows] >= at + 4]
        word = words[starts[rows] + at] * _MURMUR2_MULTIPLIER
        word = (word ^ (word >> _U32(24))) * _MURMUR2_MULTIPLIER
        hashes[rows] = hashes[rows] * _MURMUR2_MULTIPLIER ^ word
    tail = lengths % 4
    rows = np.flatnonzero(tail)
    last = words[starts[rows] + lengths[rows] - tail[rows]] & _TAILS[tail[rows]]
    hashes[rows] = (hashes[rows] ^ last) * _MURMUR2_MULTIPLIER
    hashes = (hashes ^ (hashes >> _U32(13))) * _MURMUR2_MULTIPLIER
    result: Hashes = hashes ^ (hashes >> _U32(15))
    return result


def hash_crc32(data: pa.Buffer | bytes, bounds: Bounds) -> Hashes:
    """Return the CRC-32 of strings, as ``zlib.crc32`` computes it; arguments of `hash_murmur2`."""

    def add(hashes: Hashes, byte: npt.NDArray[np.uint8]) -> Hashes:
        result: Hashes = _CRC_TABLE[(hashes ^ byte) & _U32(0xFF)] ^ (hashes >> _U32(8))
        return result

    return ~_fold_bytes(data, bounds, _U32(0xFFFFFFFF), add)


def hash_fnv1a(data: pa.Buffer | bytes, bounds: Bounds) -> Hashes:
    """Return the 32-bit FNV-1a hash of strings; arguments of `hash_murmur2`."""

    def add(hashes: Hashes, byte: npt.NDArray[np.uint8]) -> Hashes:
        result: Hashes = (hashes ^ byte) * _FNV_PRIME
        return result

    return _fold_bytes(data, bounds, _FNV_OFFSET, add)


def _fold_bytes(
    data: pa.Buffer | bytes, bounds: Bounds, first: np.uint32, add: Callable[[Hashes, npt.NDArray[np.uint8]], Hashes]
) -> Hashes:
    """Return the hashes of strings that are computed byte by byte: the first bytes of all, then the second ones.

    Args:
        data: The bytes of all strings.
        bounds: Where each begins, and where the last one ends.
        first: The hash of an empty string.
        add: Returns the hashes after one more byte each.
    """
    starts, lengths, end = _find_strings(bounds)
    every = np.frombuffer(data, np.uint8, end)
    rows = np.argsort(-lengths, kind="stable")  # the longest first
    longer = np.searchsorted(-lengths[rows], -np.arange(int(lengths.max(initial=0))), side="left")
    sorted_starts, hashes = starts[rows], np.full(len(lengths), first, dtype=_U32)
    for at, count in enumerate(longer.tolist()):
        hashes[:count] = add(hashes[:count], every[sorted_starts[:count] + at])
    result = np.empty_like(hashes)
    result[rows] = hashes
    return result


def _find_strings(bounds: Bounds) -> tuple[Integers, Integers, int]:
    """Return where strings start, how long they are, and where the last one ends."""
    array = np.asarray(bounds, dtype=np.int64)
    return array[:-1], np.diff(array), int(array[-1])


def _make_crc_table() -> Hashes:
    """Return the CRC of each byte."""
    table = np.arange(256, dtype=_U32)
    for _ in range(8):
        table = np.where(table & _U32(1), _CRC_POLYNOMIAL ^ (table >> _U32(1)), table >> _U32(1))
    return table


def _mask_sign(hashes: Hashes) -> npt.NDArray[np.integer]:
    """Return hashes without their highest bit, which is the sign of Java's integers."""
    return hashes & _SIGN


def _drop_sign(hashes: Hashes) -> npt.NDArray[np.integer]:
    """Return the absolute values of hashes as signed integers.

    Sarama takes the remainder first and then its absolute value, which is the same in Go, where it has the dividend's
    sign.
    """
    return np.abs(hashes.view(np.int32).astype(np.int64))


_CRC_TABLE = _make_crc_table()
_PARTITIONERS: dict[
    str, tuple[Callable[[pa.Buffer | bytes, Bounds], Hashes], Callable[[Hashes], npt.NDArray[np.integer]]]
] = {
    "murmur2": (hash_murmur2, _mask_sign),
    "crc32": (hash_crc32, lambda hashes: hashes),
    "fnv1a": (hash_fnv1a, _drop_sign),
    "fnv1a-masked": (hash_fnv1a, _mask_sign),
}
