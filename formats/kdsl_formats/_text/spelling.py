"""Whole columns of values to texts, in the spelling of `numbers` and `temporal`; NULL stays NULL.

Each function equals the judge's answer for every value; the few values that Arrow spells otherwise and that no kernel
mends (years outside of 0000 to 9999, the smallest floats) are asked of the judge one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl_formats._text import numbers, temporal
from kdsl_formats._text.reading import Mask, Positions

_FIRST_DAY, _LAST_DAY = temporal.days_of(0, 1, 1), temporal.days_of(9999, 12, 31)
_SECOND = 1_000_000
_SMALLEST = {pa.float64(): 1e-300, pa.float32(): 1e-37}  # below them the shortest digits are few and far between
_PARTS = r"^-?(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]+))?(?:e(?P<exponent>[-+]?[0-9]+))?$"
_PLAIN_SCALE = 6  # up to this scale Arrow writes all decimals plainly


def spelled(values: pa.Array, kind: t.DataType, *, plain_decimals: bool, standard: str = "SQL") -> pa.StringArray:
    """The texts of a column of a simple type.

    Args:
        values: The column, of the type's Arrow type.
        kind: Its type; not a nested one.
        plain_decimals: As in `numbers.decimal_text`.
        standard: As in `temporal.timestamp_text`.
    """
    match kind:
        case t.Char() | t.VarChar():
            return values
        case t.Float():
            return floats(values, numbers.float_text)
        case t.Double():
            return floats(values, numbers.double_text)
        case t.Decimal():
            return decimals(values, plain=plain_decimals)
        case t.Binary() | t.VarBinary():
            return base64(values)
        case t.Date():
            return dates(values)
        case t.Time():
            return times(values)
        case t.Timestamp() | t.TimestampLtz():
            return timestamps(values, standard, zoned=isinstance(kind, t.TimestampLtz))
        case _:
            return pc.cast(values, pa.string())


def floats(values: pa.Array, judge: Callable[[float], str]) -> pa.StringArray:
    """Floats as Java writes them."""
    texts = pc.cast(values, pa.string())
    size = pc.abs(values)
    plain = pc.or_(pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)), pc.equal(size, 0))
    whole = pc.and_(plain, pc.invert(pc.match_substring(texts, ".")))
    if whole.true_count:
        texts = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    other = np.flatnonzero(~np.asarray(plain.fill_null(True)))
    if not len(other):
        return texts
    odd = values.take(pa.array(other))
    usual = np.asarray(pc.and_(pc.is_finite(odd), pc.greater_equal(pc.abs(odd), _SMALLEST[values.type])))
    texts = _replaced(texts, other[usual], _scientific(odd.filter(pa.array(usual))))
    strange = [judge(value) for value in odd.filter(pa.array(~usual)).to_pylist()]
    return _replaced(texts, other[~usual], pa.array(strange, pa.string()))


def _scientific(values: pa.Array) -> pa.StringArray:
    """Floats of any size but zero as ``d.ddE±x``."""
    parts = pc.extract_regex(pc.cast(values, pa.string()), _PARTS)
    whole, part = parts.field("whole"), parts.field("part")
    digits = pc.ascii_ltrim(pc.binary_join_element_wise(whole, part, ""), characters="0")
    leading = pc.subtract(pc.binary_length(part), pc.binary_length(pc.ascii_ltrim(part, characters="0")))
    by_place = pc.if_else(
        pc.equal(whole, "0"), pc.subtract(-1, leading), pc.subtract(pc.cast(pc.binary_length(whole), pa.int32()), 1)
    )
    given = parts.field("exponent")
    given = pc.if_else(pc.equal(given, ""), pa.scalar(None, pa.string()), pc.ascii_ltrim(given, characters="+"))
    exponent = pc.cast(pc.coalesce(pc.cast(given, pa.int32()), pc.cast(by_place, pa.int32())), pa.string())
    rest = pc.ascii_rtrim(pc.utf8_slice_codeunits(digits, 1), characters="0")
    rest = pc.if_else(pc.equal(rest, ""), "0", rest)
    sign = pc.if_else(pc.less(values, 0), "-", "")
    first = pc.utf8_slice_codeunits(digits, 0, 1)
    mantissa = pc.binary_join_element_wise(first, rest, ".")
    return pc.binary_join_element_wise(sign, mantissa, "E", exponent, "")


def decimals(values: pa.Array, *, plain: bool) -> pa.StringArray:
    """Decimals with all digits of their scale, or shortened as Java's BigDecimal is without its trailing zeros."""
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
    return _replaced(shortened, place, made)


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


def dates(values: pa.Array) -> pa.StringArray:
    """Dates as ``yyyy-MM-dd``."""
    days = np.asarray(values.view(pa.int32()).fill_null(0))
    usual = (days >= _FIRST_DAY) & (days <= _LAST_DAY)
    texts = pc.cast(values if usual.all() else _only(values, usual), pa.string())
    strange = [temporal.date_text(int(day)) for day in days[~usual]]
    return _replaced(texts, np.flatnonzero(~usual), pa.array(strange, pa.string()))


def times(values: pa.Array) -> pa.StringArray:
    """Times as ``HH:mm:ss`` and the fraction that they have."""
    return _short_fraction(pc.cast(values, pa.string()))


def timestamps(values: pa.Array, standard: str, *, zoned: bool) -> pa.StringArray:
    """Timestamps in the form that `temporal.parse_timestamp` reads."""
    micros = np.asarray(values.view(pa.int64()).fill_null(0))
    days = micros // temporal.MICROS_PER_DAY
    usual = (days >= _FIRST_DAY) & (days <= _LAST_DAY)
    naive = values.view(pa.timestamp("us"))
    naive = naive if usual.all() else _only(naive, usual)
    if not (micros % _SECOND).any():
        texts = pc.cast(pc.cast(naive, pa.timestamp("s")), pa.string())
    else:
        texts = _short_fraction(pc.cast(naive, pa.string()))
    if standard == "ISO-8601":
        texts = pc.replace_substring(texts, " ", "T")
    if zoned:
        texts = pc.binary_join_element_wise(texts, "Z", "")
    strange = [temporal.timestamp_text(int(value), standard, zoned=zoned) for value in micros[~usual]]
    return _replaced(texts, np.flatnonzero(~usual), pa.array(strange, pa.string()))


def base64(values: pa.Array) -> pa.StringArray:
    """Bytes in base64 with padding."""
    encoded: Any = pl.from_arrow(values)
    return encoded.bin.encode("base64").to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())


def _short_fraction(texts: pa.StringArray) -> pa.StringArray:
    return pc.ascii_rtrim(pc.ascii_rtrim(texts, characters="0"), characters=".")


def _only(values: pa.Array, kept: Mask) -> pa.Array:
    return pc.if_else(pa.array(kept), values, pa.scalar(None, values.type))


def _replaced(texts: pa.StringArray, places: Positions, made: pa.StringArray) -> pa.StringArray:
    """The texts with other ones at some places."""
    if not len(places):
        return texts
    mask = np.zeros(len(texts), dtype=bool)
    mask[places] = True
    return pc.replace_with_mask(texts, pa.array(mask), made)
