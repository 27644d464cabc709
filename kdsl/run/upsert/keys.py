"""Which rows of a batch have the same key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kdsl.run.arrays import Flags, Numbers


def numbered(keys: Sequence[pa.Array]) -> tuple[Numbers, int]:
    """For each row a number that it shares with the rows of the same key.

    Args:
        keys: The key columns, one array each, of one length.

    Returns:
        The numbers, and one more than the greatest.
    """
    found, many = _numbered(keys[0])
    for array in keys[1:]:
        more, how_many = _numbered(array)
        found, many = _dense(found * how_many + more)
    return found, many


def lasts(ids: Numbers) -> Flags:
    """For each row whether it is the last of its key.

    Args:
        ids: The numbers of the keys (`numbered`).
    """
    last = np.zeros(int(ids.max(initial=-1)) + 1, dtype=np.int64)
    last[ids] = np.arange(len(ids))
    found: Flags = last[ids] == np.arange(len(ids))
    return found


def _numbered(array: pa.Array) -> tuple[Numbers, int]:
    if pa.types.is_nested(array.type):
        import polars as pl

        return _dense(pl.Series(pl.from_arrow(array)).rank("dense").fill_null(0).to_numpy())
    if pa.types.is_floating(array.type):
        values = array.to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        values[np.isnan(values)] = np.nan  # of which there are many
        array = pa.array(values, mask=array.is_null().to_numpy(False))
    encoded = array.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def _dense(numbers: Any) -> tuple[Numbers, int]:
    distinct, found = np.unique(numbers, return_inverse=True)
    return found.astype(np.int64), len(distinct)
