"""Reads columns of values that Debezium and Kafka Connect wrote; `values` is the reference for single values."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl.types.strings.temporal import NANOS_PER_DAY, time_unit
from kdsl_formats._columns.arrays import (
    Bytes,
    Indices,
    Integers,
    Mask,
    Words,
    content,
    find_bounds,
    slices,
    validity,
    words_of,
)
from kdsl_formats._columns.string_spans import StringSpans
from kdsl_formats._columns.unscaled import LONGEST, decimal_array, exceeds_precision, read_numbers, rescale
from kdsl_formats._connect.values import (
    FIRST_DAY,
    INFINITE_MICROS,
    INFINITE_NUMBERS,
    INFINITE_TIMES,
    LAST_DAY,
    LONG,
    MICROS,
    NANOS,
    infinite_of,
)
from kdsl_formats._text import reading

_SCALES = 8  # different scales in a column: with more, values are read one by one
_PADDING = 24  # bytes after the last string, for reading ahead
_TWELVE, _LOW_TWELVE = np.uint64(0x3F003F003F003F00), np.uint64(0x003F003F003F003F)
_DOZENS, _LOW_DOZENS = np.uint64(0x0FFF00000FFF0000), np.uint64(0x00000FFF00000FFF)
_HALVES, _LOW_HALVES = np.uint64(0x00FFFFFF00000000), np.uint64(0x0000000000FFFFFF)
_TWO, _FOUR, _EIGHT = (np.uint64(n) for n in (2, 4, 8))
_HEX = np.full(256, 255, dtype=np.uint8)
_HEX[list(b"0123456789abcdef")] = np.arange(16)
_HEX[list(b"ABCDEF")] = np.arange(10, 16)
_BEFORE, _BETWEEN = b'{"scale":', b',"value":"'
_LONGEST_SCALE = 4
_BRACE, _QUOTE, _ZERO, _PLUS = b'}"0+'
_INFINITE_STRINGS = (*INFINITE_TIMES, "+294247-01-10T04:00:25.2Z", "-290308-12-21T19:59:27.6Z")


@attrs.frozen(eq=False)
class ReadColumn:
    """A column of values, and which of them need the fallback.

    Attributes:
        values: The values; those that need the fallback are meaningless.
        fallback: A mask of the values that must be read one by one.
        infinite: A mask of the infinite values, which are NULL here. None if there are none.
    """

    values: pa.Array
    fallback: Mask
    infinite: Mask | None = None


def all_fallback(present: Mask, kind: pa.DataType) -> ReadColumn:
    """A column of NULLs, in which the values that are present need the fallback."""
    return ReadColumn(pa.nulls(len(present), kind), present)


def decimals_of_base64(strings: pa.StringArray, kind: t.Decimal) -> ReadColumn:
    """Decimals from the base64 of their unscaled numbers, which have the column's scale.

    Other strings, and numbers with too many digits, need the fallback.
    """
    if not len(strings):
        return ReadColumn(pa.array([], arrow_type(kind)), np.zeros(0, dtype=bool))
    low, high, fallback = _numbers_of_base64(strings)
    return _decimals(kind, low, high, fallback, strings)


def _decimals(kind: t.Decimal, low: Integers, high: Integers, fallback: Mask, of: pa.Array) -> ReadColumn:
    """Decimals from the halves of their numbers; too large ones need the fallback. NULL where `of` is NULL.

    ``fallback`` may be changed in place.
    """
    lost = exceeds_precision(low, high, kind.precision, fallback)
    if lost is not None:
        fallback = fallback | lost
    if of.null_count:
        fallback = fallback & np.asarray(of.is_valid())
    return ReadColumn(decimal_array(arrow_type(kind), low, high, validity(of)), fallback)


def _numbers_of_base64(strings: pa.StringArray) -> tuple[Integers, Integers, Mask]:
    """The low and the high 64 bits of the numbers in base64 strings, and which strings need the fallback.

    An empty array is a ValueError. A number is signed and big-endian, and has up to 16 bytes; longer and
    empty ones need the fallback.
    """
    start, end = find_bounds(strings)
    size = end - start
    longest = int(size.max())
    if not longest or longest > 16:
        return _numbers_of_long_base64(strings)
    data = content(strings)
    six = np.zeros(len(data) + _PADDING, dtype=np.uint8)
    reading.BASE64.take(data, out=six[: len(data)], mode="clip")
    last = data[np.maximum(end - 1, 0)] == 61
    pads = last.astype(np.int64) + (last & (data[np.maximum(end - 2, 0)] == 61))
    pads[size == 0] = 0
    bytes_ = (size >> 2) * 3 - pads
    fallback = ((size & 3) != 0) | (bytes_ < 1)
    if int(np.count_nonzero(six == 255)) != int(pads.sum()):
        index = np.flatnonzero(six == 255)
        owner = np.searchsorted(end, index, side="right")
        fallback[owner[index < end[owner] - pads[owner]]] = True
    words = words_of(six)
    first = _join_letters(words[start])
    bits = 8 * np.maximum(bytes_, 1)
    low = (first << 16) >> np.maximum(64 - bits, 16)  # up to eight letters
    if longest <= 8:
        return low, low >> 63, fallback
    second = _join_letters(words[start + 8])
    first = (first << 16) >> 16
    excess = np.clip(96 - bits, 0, 63)
    whole = (first << 48) | second
    upper = first >> 16
    rest = np.where(excess > 0, upper << (64 - np.maximum(excess, 1)), 0)
    wide = size > 8
    lower = (whole.view(np.uint64) >> excess.view(np.uint64)).view(np.int64) | rest
    low = np.where(wide, lower, low)
    return low, np.where(wide, upper >> excess, low >> 63), fallback


def _join_letters(words: Words) -> Integers:
    """Join the six-bit values of eight base64 letters, the first one in the lowest byte, to a number of 48 bits."""
    numbers = words.byteswap()
    numbers = ((numbers & _TWELVE) >> _TWO) | (numbers & _LOW_TWELVE)
    numbers = ((numbers & _DOZENS) >> _FOUR) | (numbers & _LOW_DOZENS)
    numbers = ((numbers & _HALVES) >> _EIGHT) | (numbers & _LOW_HALVES)
    return numbers.view(np.int64)


def _numbers_of_long_base64(strings: pa.StringArray) -> tuple[Integers, Integers, Mask]:
    """The halves of the numbers in base64 strings of any length, and which strings need the fallback.

    These are the strings that are not base64, and numbers as in `_numbers_of_bytes`.
    """
    decoded, fallback = reading.base64(strings)
    low, high, wrong = _numbers_of_bytes(decoded)
    return low, high, fallback | wrong


def _numbers_of_bytes(binary: pa.BinaryArray) -> tuple[Integers, Integers, Mask]:
    """The halves of big-endian numbers, and which of them need the fallback: those of no bytes or more than 16."""
    start, end = find_bounds(binary)
    data: Bytes = np.append(content(binary), np.zeros(_PADDING, dtype=np.uint8))
    length = end - start
    low, high = read_numbers(words_of(data), start, length)
    return low, high, (length < 1) | (length > LONGEST)


def decimals_of_objects(strings: pa.StringArray, kind: t.Decimal) -> ReadColumn:
    """Decimals from JSON such as ``{"scale":2,"value":"Aeg="}`` (VariableScaleDecimal); others need the fallback."""
    if not len(strings):
        return ReadColumn(pa.array([], arrow_type(kind)), np.zeros(0, dtype=bool))
    start, end = find_bounds(strings)
    data: Bytes = np.append(content(strings), np.zeros(_PADDING + len(_BEFORE) + _LONGEST_SCALE, dtype=np.uint8))
    words = words_of(data)
    plain = _starts_with(words, start, _BEFORE) & (data[end - 1] == _BRACE) & (data[end - 2] == _QUOTE)
    first = start + len(_BEFORE)
    scale_digits = np.zeros(len(strings), dtype=np.int64)
    for digits in range(1, _LONGEST_SCALE + 1):
        scale_digits[(scale_digits == 0) & _starts_with(words, first + digits, _BETWEEN)] = digits
    plain &= (scale_digits > 0) & ((data[first] != _ZERO) | (scale_digits == 1)) & (data[first] != _PLUS)
    value = first + scale_digits + len(_BETWEEN)
    plain &= value <= end - 2
    scales, invalid = reading.integers(slices(data, first, first + scale_digits, plain, pa.string()), pa.int32())
    low, high, wrong = _numbers_of_base64(slices(data, value, np.maximum(end - 2, value), plain, pa.string()))
    return _decimals_of_scales(scales, low, high, ~plain | invalid | wrong, kind, strings)


def _starts_with(words: Words, position: Indices, text: bytes) -> Mask:
    """At which positions a certain string of nine to sixteen bytes begins."""
    head, tail = (np.uint64(int.from_bytes(part, "little")) for part in (text[:8], text[-8:]))
    matches: Mask = (words[position] == head) & (words[position + len(text) - 8] == tail)
    return matches


def decimals_of_pairs(scales: pa.Int32Array, values: pa.BinaryArray, kind: t.Decimal, of: pa.Array) -> ReadColumn:
    """Decimals from their scales and unscaled numbers; unusual and too large ones need the fallback.

    Args:
        scales: The digits of each decimal after its point.
        values: The unscaled numbers, as big-endian bytes.
        kind: The column's type.
        of: The column that they come from.
    """
    low, high, wrong = _numbers_of_bytes(values)
    return _decimals_of_scales(scales, low, high, wrong, kind, of)


def _decimals_of_scales(
    scales: pa.Int32Array, low: Integers, high: Integers, fallback: Mask, kind: t.Decimal, of: pa.Array
) -> ReadColumn:
    """Decimals of several scales, converted to the column's; all need the fallback if the scales are too many.

    Those without a scale, or with too many digits, need it in any case.

    `low` and `high`, the halves of their unscaled numbers, are changed in place; `fallback` is not.
    """
    fallback = fallback | np.asarray(scales.is_null())
    each = np.asarray(scales.fill_null(kind.scale))
    different = np.unique(each)
    if len(different) > _SCALES:
        return all_fallback(np.asarray(of.is_valid()), arrow_type(kind))
    for scale in different.tolist():
        which = np.flatnonzero(each == scale)
        unsure = fallback[which]
        low[which], high[which] = rescale(low[which], high[which], kind.scale - scale, unsure)
        fallback[which] = unsure
    return _decimals(kind, low, high, fallback, of)


def decimals_of_strings(strings: StringSpans, kind: t.Decimal) -> ReadColumn:
    """Decimals from strings of numbers, rounded to the column's scale; infinite ones are NULL.

    Other strings, and numbers with too many digits, need the fallback.
    """
    values, fallback = reading.decimals(strings, arrow_type(kind))
    if values.null_count:
        fallback = fallback | (strings.present & np.asarray(values.is_null()))
    return _without_infinite(strings, ReadColumn(values, fallback), INFINITE_NUMBERS)


def dates_of_numbers(days: pa.Array) -> ReadColumn:
    """Dates from 32-bit or 64-bit numbers of days.

    Those before `FIRST_DAY` are infinite, which is NULL; those after `LAST_DAY` need the fallback.
    """
    numbers = _fill_longs(days)
    infinite = numbers < FIRST_DAY
    fallback = numbers > LAST_DAY
    if not pa.types.is_int32(days.type):
        days = pc.cast(days, pa.int32(), safe=False)
    return _replace_infinite(days.view(pa.date32()), fallback, infinite)


def dates_of_strings(strings: StringSpans) -> ReadColumn:
    """Dates from strings such as ``2017-09-15Z``; other spellings need the fallback."""
    return ReadColumn(*reading.dates(strings, zoned=True))


def times_of_numbers(numbers: pa.Int64Array, unit: int, kind: t.Time) -> ReadColumn:
    """Times of day from numbers, whose unit is given in nanoseconds; digits beyond the type's precision are cut off.

    The end of the day becomes midnight; numbers that are not within a day need the fallback.
    """
    counts = _fill_longs(numbers)
    fallback = (counts < 0) | (counts > NANOS_PER_DAY // unit)
    nanos = np.where(fallback, 0, counts) * unit
    cut = time_unit(kind.precision)
    if cut > unit:
        nanos -= nanos % cut
    if bool((nanos == NANOS_PER_DAY).any()):
        nanos[nanos == NANOS_PER_DAY] = 0
    return ReadColumn(_build_array(nanos, arrow_type(kind), numbers), fallback)


def times_of_strings(strings: StringSpans, kind: t.Time) -> ReadColumn:
    """Times of day from strings such as ``04:05:11.789Z``; digits beyond the type's precision are cut off.

    Other spellings need the fallback.
    """
    values, fallback = reading.times(strings, zoned=True)
    cut = time_unit(kind.precision)
    return ReadColumn(pc.multiply(pc.divide(values.view(pa.int64()), cut), cut).view(arrow_type(kind)), fallback)


def timestamps_of_numbers(numbers: pa.Int64Array, unit: int, kind: t.DataType) -> ReadColumn:
    """Timestamps from numbers, whose unit is given in nanoseconds; infinite ones are NULL.

    Nanoseconds are rounded down to microseconds. Numbers beyond the years that microseconds reach need the fallback.
    """
    counts = _fill_longs(numbers)
    positive, negative = infinite_of(unit)
    infinite = (counts == positive) | (counts == negative)
    fallback = np.zeros(len(counts), dtype=bool)
    micros = counts
    if unit == NANOS:
        micros = counts // MICROS
    elif unit > MICROS:
        factor = unit // MICROS
        fallback = ((counts > LONG // factor) | (counts < -LONG // factor)) & ~infinite
        micros = (
            counts * factor if not (fallback | infinite).any() else np.where(fallback | infinite, 0, counts) * factor
        )
    return _replace_infinite(_build_array(micros, arrow_type(kind), numbers), fallback, infinite)


def timestamps_of_strings(strings: StringSpans, kind: t.DataType) -> ReadColumn:
    """Timestamps from strings such as ``2019-07-09T02:28:57.123456Z``; infinite ones are NULL.

    Other spellings, and times that as microseconds stand for infinity, need the fallback.
    """
    timestamps, fallback = reading.timestamps(strings, "ISO-8601", zoned=True)
    column = _without_infinite(strings, ReadColumn(timestamps.view(arrow_type(kind)), fallback), _INFINITE_STRINGS)
    micros = np.asarray(timestamps.view(pa.int64()).fill_null(0))
    far = (micros == INFINITE_MICROS[0]) | (micros == INFINITE_MICROS[1])
    return attrs.evolve(column, fallback=column.fallback | far) if far.any() else column


def bytes_of_hex(strings: pa.StringArray) -> ReadColumn:
    """Bytes from hexadecimal digits; strings of another form need the fallback."""
    start, end = find_bounds(strings)
    data = content(strings)
    digits = _HEX.take(data)
    fallback = ((end - start) & 1).astype(bool)
    wrong = np.flatnonzero(digits == 255)
    if wrong.size:
        fallback[np.searchsorted(end, wrong, side="right")] = True
    if fallback.any():
        readable = np.asarray(strings.is_valid()) & ~fallback
        return ReadColumn(bytes_of_hex(slices(data, start, end, readable, pa.string())).values, fallback)
    content_bytes = digits[::2] << 4 | digits[1::2]
    offsets = np.append(start, end[-1:]).astype(np.int32) // 2 if len(strings) else np.zeros(1, dtype=np.int32)
    buffers = [validity(strings), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content_bytes)]
    return ReadColumn(pa.Array.from_buffers(pa.binary(), len(strings), buffers), fallback)


def bytes_of_base64(strings: pa.StringArray, *, url_safe: bool) -> ReadColumn:
    """Bytes from base64; strings that are not plainly base64 need the fallback.

    With `url_safe`, the letters ``-`` and ``_`` are accepted, and also those that they stand for, ``+`` and ``/``.
    """
    if url_safe:
        strings = pc.replace_substring(pc.replace_substring(strings, "-", "+"), "_", "/")
    values, fallback = reading.base64(strings)
    return ReadColumn(values, fallback)


def _fill_longs(numbers: pa.Array) -> Integers:
    """Numbers with zeros in place of NULL."""
    return np.asarray(numbers.fill_null(0) if numbers.null_count else numbers).astype(np.int64, copy=False)


def _build_array(values: Integers, kind: pa.DataType, of: pa.Array) -> pa.Array:
    """An array of 64-bit values that is NULL where another array is."""
    return pa.Array.from_buffers(kind, len(values), [validity(of), pa.py_buffer(np.ascontiguousarray(values))])


def _replace_infinite(values: pa.Array, fallback: Mask, infinite: Mask) -> ReadColumn:
    """A column with NULL for infinite values, which are marked if there are any."""
    if not infinite.any():
        return ReadColumn(values, fallback)
    return ReadColumn(pc.if_else(pa.array(infinite), pa.scalar(None, values.type), values), fallback, infinite)


def _without_infinite(strings: StringSpans, read: ReadColumn, known: Sequence[str]) -> ReadColumn:
    """A column in which strings for infinity (``known``) are NULL and marked, instead of needing the fallback.

    Args:
        strings: The strings.
        read: What was read from them, with NULL for those that need the fallback.
        known: The strings for infinity.
    """
    if not read.fallback.any():
        return read
    infinite = np.asarray(pc.is_in(strings.array, pa.array(known, pa.string()))) & read.fallback
    return ReadColumn(read.values, read.fallback & ~infinite, infinite) if infinite.any() else read
