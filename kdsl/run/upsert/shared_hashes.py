"""Keys whose hashes are equal, which is rare but possible: all but one of them are found by other hashes instead.

A state finds keys by hashes of 64 bits (`kdsl.run.upsert.keys.hash_keys`). The first key with a hash is found by it. A
further one gets a *substitute*, which is stored with the key itself, and by which the state finds the key from then on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kdsl.own_columns import STATE_HASH
from kdsl.run.upsert.keys import hash_keys, mix_words
from kdsl.types.arrays import Indices, Mask, Words, compare_values, number_rows
from kdsl.types.arrow import cast_batch

_STEP = np.uint64(0x9E3779B97F4A7C15)


class SharedHashes:
    """The keys of a state that are found by substitutes.

    Args:
        schema: The schema of the rows.
        keys: The columns of the key.
        stored: The keys and, as the last column, their substitutes; None if there are none.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], stored: pa.RecordBatch | None = None) -> None:
        self.keys, self._schema = tuple(keys), schema
        self._fields = [schema.field(name) for name in keys]
        self._stored = stored
        self._hashes = np.zeros(0, dtype=np.uint64)
        self._substitutes = np.zeros(0, dtype=np.uint64)
        if stored is not None:
            self._hashes = hash_keys(stored.columns[:-1])
            self._substitutes = stored.column(stored.num_columns - 1).to_numpy()

    @classmethod
    def from_bytes(cls, schema: pa.Schema, keys: Sequence[str], content: bytes) -> SharedHashes:
        """Read what `to_bytes` wrote."""
        return cls(schema, keys, pa.ipc.open_stream(content).read_next_batch() if content else None)

    def to_bytes(self) -> bytes:
        """Write the keys and their substitutes as an Arrow stream; nothing if there are none."""
        if self._stored is None:
            return b""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._stored.schema) as out:
            out.write_batch(self._stored)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    def hash(self, columns: Sequence[pa.Array]) -> Words:
        """Return the hash by which the state finds each key: its own, or its substitute."""
        hashes = hash_keys(columns)
        if self._stored is None:
            return hashes
        for row in np.flatnonzero(np.isin(hashes, self._hashes)).tolist():
            same = np.flatnonzero(self._hashes == hashes[row])
            for column, stored in zip(columns, self._stored.columns[:-1], strict=True):
                repeated = column.slice(row, 1).take(pa.array(np.zeros(len(same), dtype=np.int64)))
                same = same[compare_values(repeated, stored.take(pa.array(same)))]
                if not len(same):
                    break
            if len(same):
                hashes[row] = self._substitutes[same[-1]]  # the last one that the key was given
        return hashes

    def with_substitutes(self, columns: Sequence[pa.Array], rows: Indices) -> SharedHashes:
        """Return the same with new substitutes for further keys.

        Args:
            columns: The columns of keys.
            rows: Which of these keys get one; a key may occur several times.
        """
        chosen = [column.take(pa.array(rows)) for column in columns]
        _, first = np.unique(number_rows(chosen)[0], return_index=True)
        chosen = [column.take(pa.array(np.sort(first))) for column in chosen]
        taken = {*self._hashes.tolist(), *self._substitutes.tolist()}
        substitutes = []
        for word in hash_keys(chosen).tolist():
            taken.add(word)
            while word in taken:
                word = mix_words(np.array([word], np.uint64) + _STEP).tolist()[0]
            taken.add(word)
            substitutes.append(word)
        schema = pa.schema([*self._fields, pa.field(STATE_HASH, pa.uint64(), False)])
        added = pa.RecordBatch.from_arrays([*chosen, pa.array(substitutes, pa.uint64())], schema=schema)
        stored = added if self._stored is None else pa.concat_batches([cast_batch(self._stored, schema), added])
        return SharedHashes(self._schema, self.keys, stored)


def compare_keys(left: Sequence[pa.Array], left_rows: Indices, right: Sequence[pa.Array], right_rows: Indices) -> Mask:
    """Return for each pair of rows, given by their indices, whether their keys are equal."""
    equal = np.ones(len(left_rows), dtype=bool)
    for some, others in zip(left, right, strict=True):
        equal &= compare_values(some.take(pa.array(left_rows)), others.take(pa.array(right_rows)))
    return equal
