"""Whole columns of values to texts, as `numbers` and `temporal` write them one by one; NULL stays NULL."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types.texts import numbers, temporal
from kdsl_formats._columns.arrays import Positions, bounds, content, ranges, validity
from kdsl_formats._text.decimals import decimals as any_decimals

_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8)
_YEAR_0, _YEAR_10000 = temporal.days_of(0, 1, 1), temporal.days_of(10_000, 1, 1)
_ZERO, _PAD = 48, 61
_PLAIN_SCALE = 6  # up to this scale Arrow writes all decimals plainly


def booleans(values: pa.BooleanArray) -> pa.StringArray:
    """``true`` and ``false``."""
    return pc.if_else(values, "true", "false")


def integers(values: pa.Array) -> pa.StringArray:
    """Integers of any width."""
    return pc.cast(values, pa.string())


def floats(values: pa.Array) -> pa.StringArray:
    """32-bit and 64-bit floats as Java writes them."""
    texts = pl.Series(values).cast(pl.String).to_arrow().cast(pa.string())
    size = pc.abs(values)
    plain = pc.or_(pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)), pc.equal(size, 0.0))
    others = _where(pc.invert(plain))
    if not others.size:
        return texts
    write = numbers.double_text if pa.types.is_float64(values.type) else numbers.float_text
    tiny = 1e-300 if pa.types.is_float64(values.type) else 1e-37  # below, Java's two digits may be others
    some = size.take(pa.array(others))
    whole = np.asarray(pc.and_(pc.is_finite(some), pc.greater(some, tiny)))
    texts = _replaced(texts, others[~whole], lambda p: _one_by_one(values, p, write))
    return _replaced(texts, others[whole], lambda p: _scientific(texts.take(pa.array(p))))


def decimals(values: pa.Decimal128Array, *, plain: bool) -> pa.StringArray:
    """Decimals as Java's BigDecimal writes them; see `numbers.decimal_text`."""
    scale = values.type.scale
    texts = pc.cast(values, pa.string())
    if scale > _PLAIN_SCALE:  # small numbers have an exponent now
        place = _where(pc.match_substring(texts, "E"))
        texts = _replaced(texts, place, lambda p: any_decimals(values.take(pa.array(p)), plain=True))
    if plain:
        return texts
    if scale > 0:
        texts = pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
    start, end = bounds(texts)
    data = content(texts)
    tens = (end - start > 1) & (data[np.maximum(end - 1, 0)] == _ZERO) if data.size else start > end
    if scale > _PLAIN_SCALE:
        bound, zero = (pa.scalar(Decimal(text)).cast(values.type) for text in ("1e-6", "0"))
        small = _where(pc.and_(pc.less(pc.abs(values), bound), pc.not_equal(values, zero)))
        tens[small] = True
    place = np.flatnonzero(tens & np.asarray(values.is_valid()))
    return _replaced(texts, place, lambda p: any_decimals(values.take(pa.array(p)), plain=False))


def dates(values: pa.Date32Array) -> pa.StringArray:
    """Dates as ``yyyy-MM-dd``."""
    days = values.view(pa.int32())
    return _replaced(
        pc.cast(values, pa.string()),
        _where(pc.or_(pc.less(days, _YEAR_0), pc.greater_equal(days, _YEAR_10000))),
        lambda p: _one_by_one(days, p, temporal.date_text),
    )


def times(values: pa.Time64Array) -> pa.StringArray:
    """Times of day (in nanoseconds) as ``HH:mm:ss`` and the fraction that they have."""
    return pc.ascii_rtrim(pc.ascii_rtrim(pc.cast(values, pa.string()), "0"), ".") if len(values) else _no_texts()


def timestamps(values: pa.TimestampArray, standard: str) -> pa.StringArray:
    """Timestamps in microseconds as `temporal.timestamp_text` writes them; those with a zone end in ``Z``."""
    zoned, micros = values.type.tz is not None, values.view(pa.int64())
    texts = pc.cast(values.view(pa.timestamp("us")), pa.string())
    texts = pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
    if standard == "ISO-8601":
        texts = pc.cast(pc.binary_replace_slice(pc.cast(texts, pa.binary()), 10, 11, b"T"), pa.string())
    if zoned:
        texts = pc.binary_join_element_wise(texts, "Z", "")
    day = temporal.MICROS_PER_DAY
    return _replaced(
        texts,
        _where(pc.or_(pc.less(micros, _YEAR_0 * day), pc.greater_equal(micros, _YEAR_10000 * day))),
        lambda p: _one_by_one(micros, p, lambda v: temporal.timestamp_text(v, standard, zoned=zoned)),
    )


def base64(values: pa.BinaryArray) -> pa.StringArray:
    """Bytes in base64, with padding."""
    start, end = bounds(values)
    size = end - start
    groups = (size + 2) // 3
    behind = np.cumsum(groups)
    data = np.zeros(3 * int(behind[-1]) if len(behind) else 0, dtype=np.uint8)
    data[ranges(3 * (behind - groups), size)] = content(values)
    three = data.reshape(-1, 3)
    six = np.empty((len(three), 4), dtype=np.uint8)
    six[:, 0] = three[:, 0] >> 2
    six[:, 1] = (three[:, 0] & 3) << 4 | three[:, 1] >> 4
    six[:, 2] = (three[:, 1] & 15) << 2 | three[:, 2] >> 6
    six[:, 3] = three[:, 2] & 63
    text = _ALPHABET[six.reshape(-1)]
    pads = 3 * groups - size
    text[4 * behind[pads > 0] - 1] = _PAD
    text[4 * behind[pads > 1] - 2] = _PAD
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    offsets[1:] = 4 * behind
    buffers = [validity(values), pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _scientific(texts: pa.StringArray) -> pa.StringArray:
    """Plain and scientific spellings of numbers to Java's scientific one."""
    texts = pc.replace_substring_regex(texts, r"^(-?[0-9])e", r"\1.0e")
    texts = pc.replace_substring_regex(texts, r"e\+?", "E")
    plain = np.flatnonzero(~np.asarray(pc.match_substring(texts, "E")))
    return _replaced(texts, plain, lambda p: _shifted(texts.take(pa.array(p))))


def _shifted(texts: pa.StringArray) -> pa.StringArray:
    """Numbers with a point, without an exponent, to scientific notation."""
    size = pc.ascii_ltrim(texts, "-")
    digits = pc.replace_substring(size, ".", "")
    shown = pc.ascii_ltrim(digits, "0")
    zeros = pc.subtract(pc.binary_length(digits), pc.binary_length(shown))
    exponent = pc.subtract(pc.subtract(pc.find_substring(size, "."), zeros), 1)
    rest = pc.ascii_rtrim(pc.utf8_slice_codeunits(shown, 1), "0")
    rest = pc.if_else(pc.equal(pc.binary_length(rest), 0), "0", rest)
    sign = pc.if_else(pc.starts_with(texts, "-"), "-", "")
    first = pc.utf8_slice_codeunits(shown, 0, 1)
    return pc.binary_join_element_wise(sign, first, ".", rest, "E", pc.cast(exponent, pa.string()), "")


def _one_by_one(values: pa.Array, place: Positions, write: Callable[[Any], str]) -> pa.StringArray:
    return pa.array([None if v is None else write(v) for v in values.take(pa.array(place)).to_pylist()], pa.string())


def _replaced(texts: pa.StringArray, place: Positions, make: Callable[[Positions], pa.StringArray]) -> pa.StringArray:
    """The texts with those at some places made anew."""
    if not place.size:
        return texts
    mask = np.zeros(len(texts), dtype=bool)
    mask[place] = True
    return pc.replace_with_mask(texts, pa.array(mask), make(place))


def _where(condition: pa.BooleanArray) -> Positions:
    return np.flatnonzero(np.asarray(pc.fill_null(condition, False)))


def _no_texts() -> pa.StringArray:
    return pa.array([], pa.string())
