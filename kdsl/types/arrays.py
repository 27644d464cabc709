"""The types of NumPy arrays, under the same names everywhere; equal Arrow values, and the bytes of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types.arrow import list_of_entries

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
        numbers, _ = number_values(pa.concat_arrays([left, right]))
        nested: Mask = numbers[: len(left)] == numbers[len(left) :]
        return nested
    equal = pc.fill_null(pc.equal(left, right), False)
    if pa.types.is_floating(left.type):
        equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False))
    same: Mask = pc.or_(equal, pc.and_(left.is_null(), right.is_null())).to_numpy(zero_copy_only=False)
    return same


def number_values(array: pa.Array) -> tuple[Integers, int]:
    """Number equal values equally; also return the greatest number plus one (or more).

    NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0, also inside lists, maps and structs. Maps are equal if their
    entries are in the same order.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        return number_rows([array.is_valid(), *array.flatten()])
    if pa.types.is_map(kind):
        return number_values(list_of_entries(array))
    if pa.types.is_list(kind):
        elements, _ = number_values(array.flatten())
        sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
        ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes * elements.itemsize)])
        strings = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(array), [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(elements))]
        )
        array = strings if array.null_count == 0 else pc.if_else(array.is_valid(), strings, None)
    elif pa.types.is_floating(kind):
        values = array.to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        values[np.isnan(values)] = np.nan  # there are many bit patterns of NaN
        array = pa.array(values, mask=array.is_null().to_numpy(False))
    encoded = array.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def number_rows(columns: Sequence[pa.Array]) -> tuple[Integers, int]:
    """Number rows so that equal ones have the same number, as `number_values`.

    Args:
        columns: The columns, one array each, of one length; at least one.

    Returns:
        The numbers, and the greatest number plus one (or more).
    """
    numbers, count = number_values(columns[0])
    for array in columns[1:]:
        more, more_count = number_values(array)
        distinct, dense = np.unique(numbers * more_count + more, return_inverse=True)
        numbers, count = dense.astype(np.int64), len(distinct)
    return numbers, count


def value_bytes(array: pa.Array) -> int:
    """Return the number of bytes of all values of a string or binary array with 32-bit offsets."""
    if array.null_count == len(array):
        return 0
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return int(offsets[array.offset + len(array)] - offsets[array.offset])
