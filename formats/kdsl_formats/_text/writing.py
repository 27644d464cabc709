"""Converts columns of values to strings, as `numbers` and `temporal` do for single values; NULL stays NULL."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types.strings import numbers, temporal
from kdsl_formats._columns.arrays import Indices, content, find_bounds, ranges, validity
from kdsl_formats._text.decimals import decimals as any_decimals

_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_YEAR_0, _YEAR_10000 = temporal.day_number(0, 1, 1), temporal.day_number(10_000, 1, 1)
_ZERO, _PAD, _COMMA = 48, 61, 44
_PLAIN_SCALE = 6  # up to this scale Arrow writes all decimals without an exponent


def booleans(values: pa.BooleanArray) -> pa.StringArray:
    """Format booleans as ``true`` and ``false``."""
    return pc.if_else(values, "true", "false")


def integers(values: pa.Array) -> pa.StringArray:
    """Format integers of any width."""
    return pc.cast(values, pa.string())


def floats(values: pa.Array) -> pa.StringArray:
    """Format 32-bit and 64-bit floats as Java does."""
    strings = _spell(values)
    size = pc.abs(values)
    plain = pc.or_(pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)), pc.equal(size, 0.0))
    others = _indexes_where(pc.invert(plain))
    if not others.size:
        return strings
    write = numbers.format_double if pa.types.is_float64(values.type) else numbers.format_float
    tiny = 1e-300 if pa.types.is_float64(values.type) else 1e-37  # below this, Java may write other last digits
    some = size.take(pa.array(others))
    whole = np.asarray(pc.and_(pc.is_finite(some), pc.greater(some, tiny)))
    strings = _replace_at(strings, others[~whole], lambda p: _write_one_by_one(values, p, write))
    return _replace_at(strings, others[whole], lambda p: _scientific(strings.take(pa.array(p))))


def decimals(values: pa.Decimal128Array, *, plain: bool) -> pa.StringArray:
    """Format decimals as Java's BigDecimal does; see `numbers.format_decimal`."""
    scale = values.type.scale
    strings = pc.cast(values, pa.string())
    if scale > _PLAIN_SCALE:  # Arrow writes small numbers with an exponent
        indexes = _indexes_where(pc.match_substring(strings, "E"))
        strings = _replace_at(strings, indexes, lambda p: any_decimals(values.take(pa.array(p)), plain=True))
    if plain:
        return strings
    if scale > 0:
        strings = pc.ascii_rtrim(pc.ascii_rtrim(strings, "0"), ".")
    start, end = find_bounds(strings)
    data = content(strings)
    tens = (end - start > 1) & (data[np.maximum(end - 1, 0)] == _ZERO) if data.size else start > end
    if scale > _PLAIN_SCALE:
        bound, zero = (pa.scalar(Decimal(text)).cast(values.type) for text in ("1e-6", "0"))
        small = _indexes_where(pc.and_(pc.less(pc.abs(values), bound), pc.not_equal(values, zero)))
        tens[small] = True
    indexes = np.flatnonzero(tens & np.asarray(values.is_valid()))
    return _replace_at(strings, indexes, lambda p: any_decimals(values.take(pa.array(p)), plain=False))


def dates(values: pa.Date32Array) -> pa.StringArray:
    """Format dates as ``yyyy-MM-dd``; years beyond 9999 get a plus sign, those before 0 a minus sign."""
    days = values.view(pa.int32())
    return _replace_at(
        pc.cast(values, pa.string()),
        _indexes_where(pc.or_(pc.less(days, _YEAR_0), pc.greater_equal(days, _YEAR_10000))),
        lambda p: _write_one_by_one(days, p, temporal.format_date),
    )


def times(values: pa.Time64Array) -> pa.StringArray:
    """Format times of day (in nanoseconds) as ``HH:mm:ss`` with their fraction."""
    return pc.ascii_rtrim(pc.ascii_rtrim(pc.cast(values, pa.string()), "0"), ".") if len(values) else _no_strings()


def timestamps(values: pa.TimestampArray, standard: str) -> pa.StringArray:
    """Format timestamps in microseconds as `temporal.format_timestamp` does; those with a zone end in ``Z``."""
    zoned, micros = values.type.tz is not None, values.view(pa.int64())
    strings = pc.cast(values.view(pa.timestamp("us")), pa.string())
    strings = pc.ascii_rtrim(pc.ascii_rtrim(strings, "0"), ".")
    if standard == "ISO-8601":
        strings = pc.cast(pc.binary_replace_slice(pc.cast(strings, pa.binary()), 10, 11, b"T"), pa.string())
    if zoned:
        strings = pc.binary_join_element_wise(strings, "Z", "")
    day = temporal.MICROS_PER_DAY
    return _replace_at(
        strings,
        _indexes_where(pc.or_(pc.less(micros, _YEAR_0 * day), pc.greater_equal(micros, _YEAR_10000 * day))),
        lambda p: _write_one_by_one(micros, p, lambda v: temporal.format_timestamp(v, standard, zoned=zoned)),
    )


def base64(values: pa.BinaryArray) -> pa.StringArray:
    """Encode bytes in base64, with padding."""
    start, end = find_bounds(values)
    size = end - start
    groups = (size + 2) // 3
    ends = np.cumsum(groups)
    data = np.zeros(3 * int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    data[ranges(3 * (ends - groups), size)] = content(values)
    three = data.reshape(-1, 3)
    six = np.empty((len(three), 4), dtype=np.uint8)
    six[:, 0] = three[:, 0] >> 2
    six[:, 1] = (three[:, 0] & 3) << 4 | three[:, 1] >> 4
    six[:, 2] = (three[:, 1] & 15) << 2 | three[:, 2] >> 6
    six[:, 3] = three[:, 2] & 63
    text = _ALPHABET[six.reshape(-1)]
    pads = 3 * groups - size
    text[4 * ends[pads > 0] - 1] = _PAD
    text[4 * ends[pads > 1] - 2] = _PAD
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    offsets[1:] = 4 * ends
    buffers = [validity(values), pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def hexadecimal(values: pa.BinaryArray) -> pa.StringArray:
    """Encode bytes in lower-case hexadecimal digits."""
    data = content(values)
    text = np.empty((len(data), 2), dtype=np.uint8)
    text[:, 0], text[:, 1] = _HEX[data >> 4], _HEX[data & 15]
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    offsets[1:] = 2 * find_bounds(values)[1]
    buffers = [validity(values), pa.py_buffer(offsets), pa.py_buffer(text.reshape(-1))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _spell(values: pa.Array) -> pa.StringArray:
    """Format finite floats with as few digits as tell them apart, as orjson writes an array; others are any string."""
    numbers = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
    text = np.frombuffer(orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY), dtype=np.uint8)[1:-1]
    separators = np.flatnonzero(text == _COMMA)
    offsets = np.zeros(len(numbers) + 1, dtype=np.int32)
    offsets[1:-1] = separators - np.arange(len(separators))
    offsets[-1] = len(text) - len(separators)
    data = text[text != _COMMA]
    strings = pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(data))
    return strings if not values.null_count else pc.if_else(values.is_valid(), strings, None)


def _scientific(strings: pa.StringArray) -> pa.StringArray:
    """Convert plain and scientific spellings of numbers to Java's scientific one."""
    strings = pc.replace_substring_regex(strings, r"^(-?[0-9])e", r"\1.0e")
    strings = pc.replace_substring_regex(strings, r"e\+?", "E")
    plain = np.flatnonzero(~np.asarray(pc.match_substring(strings, "E")))
    return _replace_at(strings, plain, lambda p: _add_exponent(strings.take(pa.array(p))))


def _add_exponent(strings: pa.StringArray) -> pa.StringArray:
    """Convert numbers with a point and without an exponent, but not 0, to scientific notation such as ``1.234E2``."""
    size = pc.ascii_ltrim(strings, "-")
    digits = pc.replace_substring(size, ".", "")
    shown = pc.ascii_ltrim(digits, "0")
    zeros = pc.subtract(pc.binary_length(digits), pc.binary_length(shown))
    exponent = pc.subtract(pc.subtract(pc.find_substring(size, "."), zeros), 1)
    rest = pc.ascii_rtrim(pc.utf8_slice_codeunits(shown, 1), "0")
    rest = pc.if_else(pc.equal(pc.binary_length(rest), 0), "0", rest)
    sign = pc.if_else(pc.starts_with(strings, "-"), "-", "")
    first = pc.utf8_slice_codeunits(shown, 0, 1)
    return pc.binary_join_element_wise(sign, first, ".", rest, "E", pc.cast(exponent, pa.string()), "")


def _write_one_by_one(values: pa.Array, indexes: Indices, write: Callable[[Any], str]) -> pa.StringArray:
    """Format the values at some indices one by one."""
    return pa.array([None if v is None else write(v) for v in values.take(pa.array(indexes)).to_pylist()], pa.string())


def _replace_at(strings: pa.StringArray, indexes: Indices, make: Callable[[Indices], pa.StringArray]) -> pa.StringArray:
    """Replace the strings at some indices by those that `make` returns for them; it is not called without indices."""
    if not indexes.size:
        return strings
    mask = np.zeros(len(strings), dtype=bool)
    mask[indexes] = True
    return pc.replace_with_mask(strings, pa.array(mask), make(indexes))


def _indexes_where(condition: pa.BooleanArray) -> Indices:
    """The indices at which a condition is true."""
    return np.flatnonzero(np.asarray(pc.fill_null(condition, False)))


def _no_strings() -> pa.StringArray:
    """An empty array of strings."""
    return pa.array([], pa.string())
