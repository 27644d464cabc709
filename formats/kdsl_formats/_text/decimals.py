"""Columns of decimals to strings, with Arrow's kernels only; NULL stays NULL."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PLAIN_SCALE = 6  # up to this scale Arrow writes all decimals without an exponent


def decimals(values: pa.Array, *, plain: bool) -> pa.StringArray:
    """Format decimals as `numbers.format_decimal` does.

    Args:
        values: A decimal128 array.
        plain: Whether to write all digits of the scale; otherwise without trailing zeros, and very large and small
            numbers with an exponent.
    """
    scale = values.type.scale
    strings = pc.cast(values, pa.string()) if scale <= _PLAIN_SCALE else _with_point(_to_digits(values), scale)
    if plain:
        return strings
    shortened = pc.ascii_rtrim(pc.ascii_rtrim(strings, characters="0"), characters=".") if scale else strings
    digits = pc.ascii_ltrim(_to_digits(values), characters="-")
    bare = pc.ascii_rtrim(digits, characters="0")
    count = pc.cast(pc.binary_length(digits), pa.int64())
    cut = pc.subtract(count, pc.cast(pc.binary_length(bare), pa.int64()))
    adjusted = pc.subtract(count, scale + 1)
    scientific = pc.or_(pc.greater(cut, scale), pc.less(adjusted, -6))
    zero = pc.equal(digits, "0")
    shortened = pc.if_else(zero, "0", shortened)
    indexes = np.flatnonzero(np.asarray(pc.and_not(scientific, zero).fill_null(False)))
    if not len(indexes):
        return shortened
    selected = pa.array(indexes)
    bare, adjusted = bare.take(selected), adjusted.take(selected)
    first, rest = pc.utf8_slice_codeunits(bare, 0, 1), pc.utf8_slice_codeunits(bare, 1)
    mantissa = pc.if_else(pc.equal(rest, ""), first, pc.binary_join_element_wise(first, rest, "."))
    sign = pc.if_else(pc.starts_with(strings.take(selected), "-"), "-", "")
    mark = pc.if_else(pc.less(adjusted, 0), "E", "E+")
    scientific_strings = pc.binary_join_element_wise(sign, mantissa, mark, pc.cast(adjusted, pa.string()), "")
    mask = np.zeros(len(strings), dtype=bool)
    mask[indexes] = True
    return pc.replace_with_mask(shortened, pa.array(mask), scientific_strings)


def _to_digits(values: pa.Array) -> pa.StringArray:
    """The unscaled numbers of decimals, such as ``-5`` for -0.05; NULL stays NULL."""
    whole = pa.Array.from_buffers(
        pa.decimal128(values.type.precision, 0), len(values), values.buffers(), offset=values.offset
    )
    return pc.cast(whole, pa.string())


def _with_point(strings: pa.StringArray, scale: int) -> pa.StringArray:
    """Insert a decimal point before the last `scale` digits of strings, and missing zeros; the scale is not 0."""
    sign = pc.if_else(pc.starts_with(strings, "-"), "-", "")
    digits = pc.utf8_lpad(pc.ascii_ltrim(strings, characters="-"), scale + 1, "0")
    whole, part = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(sign, whole, ".", part, "")
