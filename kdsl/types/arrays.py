"""The types of NumPy arrays, under the same names everywhere, and the comparison of Arrow values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
"""One flag for each element of another array."""
Indices = npt.NDArray[np.integer[Any]]
"""Indices into another array, or byte positions in a buffer."""
Integers = npt.NDArray[np.int64]
"""Signed 64-bit integers."""
Words = npt.NDArray[np.uint64]
"""Unsigned 64-bit integers."""
Bytes = npt.NDArray[np.uint8]
"""Single bytes."""


def compare_values(left: pa.Array, right: pa.Array) -> Mask:
    """Return where two arrays of one length and type are equal: NULL equals NULL.

    NaN equals nothing, except inside rows, lists and maps, where it equals NaN.
    """
    if pa.types.is_nested(left.type):
        import polars as pl

        return pl.Series(pl.from_arrow(left)).eq_missing(pl.Series(pl.from_arrow(right))).to_numpy()
    both_null = pc.and_(left.is_null(), right.is_null())
    equal: Mask = pc.or_(pc.fill_null(pc.equal(left, right), False), both_null).to_numpy(zero_copy_only=False)
    return equal
