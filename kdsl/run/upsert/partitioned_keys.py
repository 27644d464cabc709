"""Proves that all records of a key are in one partition, where a task then has all that the key's changes depend on.

A key belongs to the partition that Java's client chooses for it: by the murmur2 hash of its bytes, as the table's key
format encodes it. A record elsewhere comes from a producer that chooses partitions or encodes keys in another way, or
the topic had another number of partitions then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl.formats import Use
from kdsl.plan.model import ReadPlan
from kdsl.types.arrays import Mask
from kdsl.types.arrow import arrow_field

_SEED, _MULTIPLIER = 0x9747B28C, 0x5BD1E995
_U32 = np.uint32
_TAILS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=_U32)


class KeyPlacement:
    """Computes where keys belong.

    Args:
        plan: What is read; its message key has the columns of the primary key.
        partitions: How many partitions the topic has.
    """

    def __init__(self, plan: ReadPlan, partitions: int) -> None:
        assert plan.key is not None
        self._columns, self._partitions = plan.key.columns, partitions
        self._fields = [arrow_field(f.name, f.type) for f in plan.key.row.fields]
        self._encoder = plan.key.format.encoder(plan.key.row, Use(side="key", topics=plan.topics.names))

    def belong(self, rows: pa.RecordBatch, partition: int) -> Mask:
        """Return which rows have a key that belongs to a partition; one that cannot be encoded belongs nowhere.

        If the topic has one partition, all rows belong to it, unchecked.
        """
        if self._partitions == 1 or not rows.num_rows:
            return np.ones(rows.num_rows, dtype=bool)
        columns = [rows.column(name) for name in self._columns]
        encoded = self._encoder.encode(pa.StructArray.from_arrays(columns, fields=self._fields), None)
        result: Mask = choose_partitions(encoded.messages, self._partitions) == partition
        result[[bad.index for bad in encoded.bad]] = False
        return result


def choose_partitions(keys: pa.Array, partitions: int) -> npt.NDArray[np.int64]:
    """Return the partition that Java's client chooses for each key, as `hash_murmur2` says; that of nulls is arbitrary.

    Args:
        keys: The bytes of the keys.
        partitions: How many partitions the topic has.
    """
    offsets = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1, keys.offset * 4).astype(np.int64)
    data = b"" if keys.buffers()[2] is None else keys.buffers()[2]
    hashes = hash_murmur2(data, offsets)
    return (hashes & _U32(0x7FFFFFFF)).astype(np.int64) % partitions


def hash_murmur2(data: pa.Buffer | bytes, offsets: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Return the murmur2 hash of strings, as ``Utils.murmur2`` of Kafka's clients computes it.

    Args:
        data: The bytes of all strings.
        offsets: Where each begins, and where the last one ends.
    """
    bounds = np.asarray(offsets, dtype=np.int64)
    starts, lengths = bounds[:-1], np.diff(bounds)
    padded = np.zeros(int(bounds[-1]) + 4, dtype=np.uint8)
    padded[: int(bounds[-1])] = np.frombuffer(data, np.uint8, int(bounds[-1]))
    words = np.ndarray((int(bounds[-1]) + 1,), "<u4", padded, strides=(1,))  # a word begins at each byte
    multiplier = _U32(_MULTIPLIER)
    hashes = _U32(_SEED) ^ lengths.astype(_U32)
    rows = np.arange(len(lengths))
    for at in range(0, int(lengths.max(initial=0)) - 3, 4):
        rows = rows[lengths[rows] >= at + 4]
        word = words[starts[rows] + at] * multiplier
        word = (word ^ (word >> _U32(24))) * multiplier
        hashes[rows] = hashes[rows] * multiplier ^ word
    tail = lengths % 4
    rows = np.flatnonzero(tail)
    last = words[starts[rows] + lengths[rows] - tail[rows]] & _TAILS[tail[rows]]
    hashes[rows] = (hashes[rows] ^ last) * multiplier
    hashes = (hashes ^ (hashes >> _U32(13))) * multiplier
    result: npt.NDArray[np.uint32] = hashes ^ (hashes >> _U32(15))
    return result
