"""Which of many values in the buffer are certainly held by a column type: the fast half of the reference observer.

A value that passes would change nothing in a column of the type, and the decoder reads it. Values that do not pass may
be good as well: the reference looks at them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl_formats._columns.arrays import Indices, Mask, slices
from kdsl_formats._text import reading
from kdsl_formats.json.buffer import MessageBuffer, Spans
from kdsl_formats.json.members import BARE, TEXT
from kdsl_formats.json.objects import ABSENT, ValueSpans
from kdsl_formats.json.validity import are_json, are_numbers

Words = npt.NDArray[np.uint64]

_NULL, _TRUE, _FALSE = (np.uint64(int.from_bytes(word, "little")) for word in (b"null", b"true", b"false"))
_FOUR_BYTES, _FIVE_BYTES = np.uint64(2**32 - 1), np.uint64(2**40 - 1)
_EACH = 0x0101010101010101
_ZEROS, _SIXES, _HIGH, _LOW_BITS, _DOTS = (np.uint64(b * _EACH) for b in (0x30, 0x06, 0xF0, 0x7F, 0x2E))
_FIRST_BYTE, _ZERO_DIGIT = np.uint64(0xFF), np.uint64(0x30)
_SEVEN, _ONE = np.uint64(7), np.uint64(1)
_DOT_TO_ZERO = np.uint64(0x2E ^ 0x30)
_FIRST_BYTES = np.array([(1 << 8 * size) - 1 for size in range(9)], dtype=np.uint64)
_WIDEST = 24  # bytes of a number that are looked at, in words of eight
_LONG_DIGITS = 18  # that any 64-bit number may have
_SURE_DIGITS: dict[type[t.DataType], int] = {t.TinyInt: 2, t.SmallInt: 4, t.Int: 9, t.BigInt: _LONG_DIGITS}
_MONTH_LENGTHS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.uint64)


def are_null(buffer: MessageBuffer, values: ValueSpans) -> Mask:
    """Which values are null or absent."""
    nulls: Mask = values.form != TEXT
    if nulls.any():
        spans = values.spans
        spelled = (spans.end - spans.start == 4) & (buffer.words[spans.start] & _FOUR_BYTES == _NULL)
        nulls &= spelled | (values.form == ABSENT)
    return nulls


def are_held(
    buffer: MessageBuffer, values: ValueSpans, kind: t.DataType, *, coerced: bool = False, flags: bool = False
) -> Mask:
    """Which values a type certainly holds; null and absent ones are among them.

    Args:
        buffer: The buffer.
        values: The values.
        kind: The type.
        coerced: Whether strings are also values of types that JSON has without quotes.
        flags: Whether 0 and 1 are also booleans.
    """
    text, bare = values.form == TEXT, values.form == BARE
    spans = values.spans
    match kind:
        case t.VarChar(length=t.MAX_LENGTH):
            return _are_strings(buffer, values, text, bare)
        case t.Char(length=length) | t.VarChar(length=length):
            short = _are_strings(buffer, values, text, np.zeros(len(text), dtype=bool))
            return (short & (spans.end - spans.start <= length)) | are_null(buffer, values)
        case t.Boolean():
            words = buffer.words[spans.start]
            size = spans.end - spans.start
            held = (size == 4) & ((words & _FOUR_BYTES == _TRUE) | (bare & (words & _FOUR_BYTES == _NULL)))
            held |= (size == 5) & (words & _FIVE_BYTES == _FALSE)
            if flags:
                held |= (size == 1) & ((words & _FIRST_BYTE) - _ZERO_DIGIT <= _ONE)
            result: Mask = (held & (bare | (text & coerced))) | (values.form == ABSENT)
            return result
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            right = bare | text if coerced else bare
            held = _are_plain_numbers(buffer, spans, right, _SURE_DIGITS[type(kind)], fraction=False)
            return _check_rest(buffer, values, held, lambda some: _are_in_range(buffer, some, kind), right)
        case t.Double() | t.Float() if coerced or isinstance(kind, t.Double):
            right = text if isinstance(kind, t.Float) else bare | text if coerced else bare
            held = _are_plain_numbers(buffer, spans, right, _WIDEST, fraction=True)
            return _check_rest(buffer, values, held, lambda some: _are_finite(buffer, some, coerced=coerced), right)
        case t.Decimal(precision=precision, scale=scale):
            right = bare | text if coerced else bare
            none = np.zeros(len(text), dtype=bool)
            return _check_rest(
                buffer, values, none, lambda some: _are_decimals(buffer, some, precision - scale, scale), right
            )
        case t.Date() | t.Time() | t.Timestamp() | t.TimestampLtz():
            held = _are_moments(buffer, spans, text, kind)
            return held if held.all() else held | are_null(buffer, values)
        case t.Binary() | t.VarBinary() if not coerced:
            texts = slices(buffer.data, spans.start, spans.end, text, pa.string())
            decoded: Mask = (text & ~reading.base64(texts)[1]) | are_null(buffer, values)
            return decoded
        case _:
            return are_null(buffer, values)


def _check_rest(
    buffer: MessageBuffer, values: ValueSpans, held: Mask, check: Callable[[Spans], Mask], which: Mask
) -> Mask:
    """Which values are held: those in ``held``, null ones, and the others of ``which`` that pass a slower check."""
    if held.all():
        return held
    held = held | are_null(buffer, values)
    left = np.flatnonzero(which & ~held)
    if left.size:
        held[left] = check(values.spans.pick(left))
    return held


def _are_strings(buffer: MessageBuffer, values: ValueSpans, text: Mask, bare: Mask) -> Mask:
    """Which values a STRING holds: of the selected strings (``text``) and other values (``bare``) those that are JSON.

    Absent values pass, too.
    """
    held = are_json(buffer, values.spans, TEXT, text) & text if buffer.backslashes.size else text
    if not bare.any():
        return np.asarray(held | (values.form == ABSENT))
    return np.asarray(held | (are_json(buffer, values.spans, BARE, bare) & bare) | (values.form == ABSENT))


def _are_plain_numbers(buffer: MessageBuffer, spans: Spans, which: Mask, digits: int, *, fraction: bool) -> Mask:
    """Which values are numbers in JSON's spelling, without an exponent and too short to be out of range.

    Args:
        buffer: The buffer.
        spans: The values.
        which: The values to be checked; others are False.
        digits: The most bytes without the sign, at most `_WIDEST`.
        fraction: Whether a point may be among them; it counts as one of the bytes. Numbers without a point then have at
            most 18 digits.
    """
    start, size = spans.start, spans.end - spans.start
    words = buffer.words[start]
    minus = words & np.uint64(0xFF) == np.uint64(0x2D)
    if minus.any():
        start, size = start + minus, size - minus
        words = buffer.words[start]
    good: Mask = which & (size > 0) & (size <= digits)
    zero = words & np.uint64(0xFF) == np.uint64(0x30)
    if zero.any():
        good &= ~zero | (size == 1)
        if fraction:
            good |= which & zero & (size > 2) & (size <= digits) & (words & np.uint64(0xFF00) == np.uint64(0x2E00))
    if fraction:
        good &= buffer.data[spans.end - 1] != 0x2E
        good &= words & np.uint64(0xFF) != np.uint64(0x2E)
    dots = np.zeros(len(size), dtype=np.uint8)
    longest = int(size[good].max()) if good.any() else 0
    for ahead in range(0, longest, 8):
        if ahead:
            words = buffer.words[np.minimum(start + ahead, len(buffer.words) - 1)]
        used = _FIRST_BYTES[np.clip(size - ahead, 0, 8)]
        words = (words & used) | (_ZEROS & ~used)
        if fraction:
            unlike = words ^ _DOTS
            points = ~(((unlike & _LOW_BITS) + _LOW_BITS) | unlike | _LOW_BITS) >> _SEVEN
            words = words ^ (points * _DOT_TO_ZERO)
            dots += (points != 0).view(np.uint8)
            good &= points & (points - _ONE) == 0
        good &= (words & _HIGH == _ZEROS) & ((words + _SIXES) & _HIGH == _ZEROS)
    return good & ((dots == 1) | ((dots == 0) & (size <= _LONG_DIGITS))) if fraction else good


def _are_in_range(buffer: MessageBuffer, spans: Spans, kind: t.DataType) -> Mask:
    """Which values are integers of a type, in JSON's spelling; may miss some that are longer than 18 digits."""
    texts = slices(buffer.data, spans.start, spans.end, None, pa.string())
    wide, fallback = reading.integers(texts, pa.int64())
    bound = 1 << {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}[type(kind)] - 1
    fits = pc.fill_null(pc.and_(pc.greater_equal(wide, -bound), pc.less_equal(wide, bound - 1)), False)
    result: Mask = ~fallback & np.asarray(fits) & are_numbers(buffer, spans, texts)
    return result


def _are_finite(buffer: MessageBuffer, spans: Spans, *, coerced: bool) -> Mask:
    """Which values are certainly numbers that a column holds: neither too large nor too near to zero; not zero itself.

    If `coerced`, they are smaller than 1e30, so that a FLOAT holds them; otherwise smaller than 9e18, as a BIGINT is.
    """
    texts = slices(buffer.data, spans.start, spans.end, None, pa.string())
    values, fallback = reading.floats(texts, pa.float64())
    size = np.abs(np.asarray(pc.fill_null(values, 0.0)))
    bound = 1e30 if coerced else 9e18  # floats end at 3e38
    result: Mask = ~fallback & are_numbers(buffer, spans, texts) & (size < bound) & (size > 1e-30)
    return result


def _are_decimals(buffer: MessageBuffer, spans: Spans, whole: int, scale: int) -> Mask:
    """Which values are numbers of at most `whole` digits before and `scale` after the point, without an exponent."""
    texts = slices(buffer.data, spans.start, spans.end, None, pa.string())
    fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
    leading = "0" if whole == 0 else rf"(0|[1-9][0-9]{{0,{whole - 1}}})"
    return np.asarray(pc.match_substring_regex(texts, f"^-?{leading}{fraction}$"))


def _are_moments(buffer: MessageBuffer, spans: Spans, which: Mask, kind: t.DataType) -> Mask:
    """Which of the selected strings are certainly dates, times or timestamps that a type holds.

    Dates are among the timestamps if the type has at least 6 digits of a second.
    """
    start, size = spans.start, spans.end - spans.start
    if isinstance(kind, t.Time):
        good = which & (size >= 8)
        if not good.any():
            return good
        good &= _are_clocks(buffer.words[start])
        return good & _are_fractions(buffer, start + 8, size - 8, kind.precision)
    good = which & (size >= 10)
    if not good.any():
        return good
    first = buffer.words[start]
    rest = buffer.words[np.minimum(start + 8, len(buffer.words) - 1)]
    good &= _are_days(first, rest)
    days = good & (size == 10)
    if isinstance(kind, t.Date):
        return np.asarray(days)
    assert isinstance(kind, (t.Timestamp, t.TimestampLtz))
    good &= size >= 19
    if not good.any():
        return days if kind.precision >= 6 else good
    between = (rest >> np.uint64(16)) & np.uint64(0xFF)
    good &= (between == np.uint64(0x20)) | (between == np.uint64(0x54))
    good &= _are_clocks(buffer.words[np.minimum(start + 11, len(buffer.words) - 1)])
    if isinstance(kind, t.TimestampLtz):
        size = size - (buffer.data[np.maximum(spans.end - 1, 0)] == 0x5A)
    good &= _are_fractions(buffer, start + 19, size - 19, kind.precision)
    return good | days if kind.precision >= 6 else good


_DAY_DIGITS, _DAY_MARKS = np.uint64(0x00FFFF00FFFFFFFF), np.uint64(0x2D00002D00000000)
_CLOCK_DIGITS, _CLOCK_MARKS = np.uint64(0xFFFF00FFFF00FFFF), np.uint64(0x00003A00003A0000)


def _digit_mask(words: Words, digits: np.uint64) -> Mask:
    """Which words have ASCII digits in all bytes that the mask ``digits`` selects."""
    picked = (words & digits) | (_ZEROS & ~digits)
    good: Mask = (picked & _HIGH == _ZEROS) & ((picked + _SIXES) & _HIGH == _ZEROS)
    return good


def _two_digits(words: Words, at: int) -> Words:
    """The number of two digits from a byte on."""
    tens, units = (words >> np.uint64(8 * at)) & np.uint64(0xF), (words >> np.uint64(8 * at + 8)) & np.uint64(0xF)
    return tens * np.uint64(10) + units


def _are_days(first: Words, rest: Words) -> Mask:
    """Which words are dates of the calendar from year 1 on: ``yyyy-MM-`` and ``dd``."""
    good = _digit_mask(first, _DAY_DIGITS) & (first & ~_DAY_DIGITS == _DAY_MARKS)
    good &= _digit_mask(rest, np.uint64(0xFFFF))
    month, day = _two_digits(first, 5), _two_digits(rest, 0)
    good &= (month - _ONE <= np.uint64(11)) & (day >= _ONE)
    good &= first & np.uint64(0xFFFFFFFF) != np.uint64(0x30303030)
    late = np.flatnonzero(good & (day > np.uint64(28)))
    if late.size:
        some = first[late]
        year = _two_digits(some, 0) * np.uint64(100) + _two_digits(some, 2)
        leap = (year % np.uint64(4) == 0) & ((year % np.uint64(100) != 0) | (year % np.uint64(400) == 0))
        months = month[late]
        good[late] = day[late] <= _MONTH_LENGTHS[months] + (leap & (months == np.uint64(2)))
    return np.asarray(good)


def _are_clocks(words: Words) -> Mask:
    """Which words are times of a day: ``HH:mm:ss``."""
    good = _digit_mask(words, _CLOCK_DIGITS) & (words & ~_CLOCK_DIGITS == _CLOCK_MARKS)
    good &= _two_digits(words, 0) <= np.uint64(23)
    result: Mask = good & (_two_digits(words, 3) <= np.uint64(59)) & (_two_digits(words, 6) <= np.uint64(59))
    return result


def _are_fractions(buffer: MessageBuffer, start: Indices, size: Indices, precision: int) -> Mask:
    """Which strings are empty, or a point and the digits of a second that a precision holds.

    These are up to six from precision 6 on, up to three from precision 3 on, and none below.
    """
    good: Mask = size == 0
    if precision < 3 or good.all():
        return good
    words = buffer.words[np.minimum(start, len(buffer.words) - 1)]
    used = _FIRST_BYTES[np.clip(size, 1, 8)] ^ np.uint64(0xFF)
    digits = (words & used) | (_ZEROS & ~used)
    pointed = (words & np.uint64(0xFF) == np.uint64(0x2E)) & (size >= 2) & (size <= (7 if precision >= 6 else 4))
    result: Mask = good | (pointed & (digits & _HIGH == _ZEROS) & ((digits + _SIXES) & _HIGH == _ZEROS))
    return result
