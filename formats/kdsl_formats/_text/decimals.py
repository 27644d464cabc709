"""Whole columns of decimals to texts, by kernels alone; NULL stays NULL."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PLAIN_SCALE = 6  # up to this scale Arrow writes all decimals plainly


def decimals(values: pa.Array, *, plain: bool) -> pa.StringArray:
    """Decimals as `numbers.decimal_text` writes them one by one.

    Args:
        values: A decimal128 array.
        plain: Whether to write all digits of the scale.
    """
    scale = values.type.scale
    texts = pc.cast(values, pa.string()) if scale <= _PLAIN_SCALE else _with_point(_unscaled(values), scale)
    if plain:
        return texts
    shortened = pc.ascii_rtrim(pc.ascii_rtrim(texts, characters="0"), characters=".") if scale else texts
    digits = pc.ascii_ltrim(_unscaled(values), characters="-")
    bare = pc.ascii_rtrim(digits, characters="0")
    count = pc.cast(pc.binary_length(digits), pa.int64())
    cut = pc.subtract(count, pc.cast(pc.binary_length(bare), pa.int64()))
    adjusted = pc.subtract(count, scale + 1)
    scientific = pc.or_(pc.greater(cut, scale), pc.less(adjusted, -6))
    zero = pc.equal(digits, "0")
    shortened = pc.if_else(zero, "0", shortened)
    place = np.flatnonzero(np.asarray(pc.and_not(scientific, zero).fill_null(False)))
    if not len(place):
        return shortened
    some = pa.array(place)
    bare, adjusted = bare.take(some), adjusted.take(some)
    first, rest = pc.utf8_slice_codeunits(bare, 0, 1), pc.utf8_slice_codeunits(bare, 1)
    mantissa = pc.if_else(pc.equal(rest, ""), first, pc.binary_join_element_wise(first, rest, "."))
    sign = pc.if_else(pc.starts_with(texts.take(some), "-"), "-", "")
    mark = pc.if_else(pc.less(adjusted, 0), "E", "E+")
    made = pc.binary_join_element_wise(sign, mantissa, mark, pc.cast(adjusted, pa.string()), "")
    mask = np.zeros(len(texts), dtype=bool)
    mask[place] = True
    return pc.replace_with_mask(shortened, pa.array(mask), made)


def _unscaled(values: pa.Array) -> pa.StringArray:
    """The digits of decimals without the point, with their sign."""
    whole = pa.Array.from_buffers(
        pa.decimal128(values.type.precision, 0), len(values), values.buffers(), offset=values.offset
    )
    return pc.cast(whole, pa.string())


def _with_point(texts: pa.StringArray, scale: int) -> pa.StringArray:
    sign = pc.if_else(pc.starts_with(texts, "-"), "-", "")
    digits = pc.utf8_lpad(pc.ascii_ltrim(texts, characters="-"), scale + 1, "0")
    whole, part = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(sign, whole, ".", part, "")
