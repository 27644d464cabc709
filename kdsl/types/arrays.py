"""The types of NumPy arrays, under the same names everywhere, the comparison of Arrow values, and their bytes."""

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
    """Return where two arrays of one length and type are equal.

    NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0, also inside lists and structs.
    """
    if pa.types.is_nested(left.type):
        import polars as pl

        return pl.Series(pl.from_arrow(left)).eq_missing(pl.Series(pl.from_arrow(right))).to_numpy()
    equal = pc.fill_null(pc.equal(left, right), False)
    if pa.types.is_floating(left.type):
        equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False))
    same: Mask = pc.or_(equal, pc.and_(left.is_null(), right.is_null())).to_numpy(zero_copy_only=False)
    return same


def value_bytes(array: pa.Array) -> int:
    """Return the number of bytes of all values of a string or binary array with 32-bit offsets."""
    if array.null_count == len(array):
        return 0
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return int(offsets[array.offset + len(array)] - offsets[array.offset])
