"""Reads numbers, dates and timestamps whose digits are at fixed positions, eight digits at a time.

The bytes of a string are read as words of eight, little-endian, so that the first character is in the lowest byte. An
exclusive or with the expected characters ('0' for a digit) leaves the digits as numbers and everything else as zero:
whatever is not of the form leaves a larger byte. A word of digits becomes a number in three multiplications
(https://kholdstare.github.io/technical/2020/05/26/faster-integer-parsing.html).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kdsl_formats._columns.arrays import Integers, Mask, Words
from kdsl_formats._columns.string_spans import StringSpans

_U = np.uint64
_HIGH_BITS = _U(0x8080808080808080)
_PAIRS, _FOURS = _U(0x00FF00FF00FF00FF), _U(0x0000FFFF0000FFFF)
_PAIR, _EIGHT = _U(0xFF), _U(0xFFFFFFFF)
_TEN, _HUNDRED, _TEN_THOUSAND = _U(10), _U(100), _U(10_000)
_BYTE, _TWO_BYTES, _FOUR_BYTES = _U(8), _U(16), _U(32)
_LONGEST_NUMBER = 16  # characters
MICROS_PER_DAY = 86_400_000_000
_DATE_LENGTH = 10
_MINUS = 45
_YEARS, _MONTHS = 10_000, 16  # a row of sixteen months for each year, so that an index is two shifts


@attrs.frozen(eq=False)
class _Form:
    """The characters that a word must have: '0' stands for a digit, a NUL byte for nothing; the others are literal.

    Attributes:
        literal: The characters, with '0' for digits.
        margin: What is added to each byte so that only a wrong one reaches 128.
        used: A mask of the bytes that are characters.
    """

    literal: Any
    margin: Any
    used: Any

    def digits(self, words: Words, wrong: Words) -> Words:
        """The values of the digits of each word in their bytes; other bytes are 0.

        Bytes that are not of the form set a high bit in ``wrong``.
        """
        values: Words = (words ^ self.literal) & self.used
        wrong |= values | (values + self.margin)
        return values


def _form(*characters: bytes) -> _Form:
    """A form of one word, or an array of forms, of up to eight characters each."""
    padded = [text.ljust(8, b"\0") for text in characters]

    def words(values: list[list[int]]) -> Any:
        numbers = [int.from_bytes(bytes(value), "little") for value in values]
        return _U(numbers[0]) if len(numbers) == 1 else np.array(numbers, dtype=np.uint64)

    return _Form(
        words([list(text) for text in padded]),
        words([[0x80 - 10 if char == 48 else 0x7F for char in text] for text in padded]),
        words([[0xFF if char else 0 for char in text] for text in padded]),
    )


_NUMBER = _form(b"00000000")
_POINTS = {scale: _form(b"0" * (7 - scale) + b"." + b"0" * scale) for scale in range(1, 8)}
_ALL_BITS = (1 << 64) - 1
_LOWER, _UPPER = (  # masks of the last of sixteen characters, by their number
    np.array([~0 << 8 * min(max(word - n, 0), 8) & _ALL_BITS for n in range(17)], dtype=np.uint64) for word in (8, 16)
)


def decimals(strings: StringSpans, scale: int) -> tuple[Integers, Mask]:
    """Read decimals with exactly ``scale`` digits after their point; also returns which of the strings are so.

    They have up to sixteen characters after a minus sign. A scale of 0 means integers, without a point; with a scale
    above 7 none are read. Strings that end in the first sixteen bytes of the data may be left out.

    Returns:
        The unscaled numbers, and a mask. Numbers that the mask leaves out are meaningless.
    """
    if scale and scale not in _POINTS:
        return np.zeros(len(strings), dtype=np.int64), np.zeros(len(strings), dtype=bool)
    values, plain = _read_unsigned(strings, scale)
    others = np.flatnonzero(strings.present & ~plain)
    negative = others[strings.data[strings.start[others]] == _MINUS]
    if negative.size:
        signed = strings.pick(negative)
        numbers, plain[negative] = _read_unsigned(attrs.evolve(signed, start=signed.start + 1), scale)
        values[negative] = -numbers
    return values, plain


def _read_unsigned(strings: StringSpans, scale: int) -> tuple[Integers, Mask]:
    """Read decimals without a sign, as `decimals` does; also return which of the strings were read."""
    length = strings.end - strings.start
    plain = strings.present & (length >= (scale + 2 if scale else 1)) & (length <= _LONGEST_NUMBER)
    plain &= strings.end >= _LONGEST_NUMBER
    size = np.clip(length, 0, _LONGEST_NUMBER)
    upper, lower = strings.words_at(np.maximum(strings.end - _LONGEST_NUMBER, 0), 2)
    wrong = np.zeros(len(strings), dtype=np.uint64)
    form = _POINTS[scale] if scale else _NUMBER
    digits = attrs.evolve(form, used=_LOWER[size]).digits(lower, wrong)
    if scale:  # closes the gap of the point
        behind = _U(~0 << 8 * (8 - scale) & _ALL_BITS)
        digits = (digits & behind) | ((digits & ~behind) << _BYTE)
    numbers = _parse(digits)
    if len(length) and int(length.max()) > 8:
        more = _parse(attrs.evolve(_NUMBER, used=_UPPER[size]).digits(upper, wrong))
        numbers += more * _U(10 ** (7 if scale else 8))
    return numbers.view(np.int64), plain & ((wrong & _HIGH_BITS) == 0)


def _parse(digits: Words) -> Words:
    """The number of the eight digits of each word; the first one, in the lowest byte, is the most significant."""
    pairs = (digits * _TEN + (digits >> _BYTE)) & _PAIRS
    fours = (pairs * _HUNDRED + (pairs >> _TWO_BYTES)) & _FOURS
    return (fours * _TEN_THOUSAND + (fours >> _FOUR_BYTES)) & _EIGHT


_YEAR_MONTH, _DAY_HOUR_MINUTE = _form(b"0000-00-"), {sep: _form(b"00" + sep + b"00:00") for sep in (b" ", b"T")}
_DAY = {False: _form(b"00"), True: _form(b"00Z")}
_CLOCK = _form(b"00:00:00")
_FRACTIONS = (b"", *(b"." + b"0" * digits for digits in range(1, 10)))


def dates(strings: StringSpans, *, zoned: bool) -> tuple[Integers, Mask]:
    """Read dates ``yyyy-MM-dd``, followed by ``Z`` if ``zoned``; also returns which of the strings are so.

    Returns:
        The days since 1970-01-01, and a mask of the dates that exist. Days that the mask leaves out are meaningless.
    """
    plain = strings.present & (strings.end - strings.start == _DATE_LENGTH + zoned)
    first, second = strings.words_at(strings.start, 2)
    wrong = np.zeros(len(strings), dtype=np.uint64)
    day = _pairs(_DAY[zoned].digits(second, wrong)) & _PAIR
    days, valid = _days(_pairs(_YEAR_MONTH.digits(_shorten(first), wrong)), day)
    return days, plain & valid & ((wrong & _HIGH_BITS) == 0)


def times(strings: StringSpans, *, zoned: bool) -> tuple[Integers, Mask]:
    """Read ``HH:mm:ss`` with up to nine digits of a fraction and ``Z`` if ``zoned``; also returns which are so.

    Returns:
        The nanoseconds since midnight, and a mask. Numbers that the mask leaves out are meaningless.
    """
    plain, (second_form, third_form) = _forms_of_lengths(strings, _FRACTIONS, zoned=zoned, before=8)
    first, second, third = strings.words_at(strings.start, 3)
    wrong = np.zeros(len(strings), dtype=np.uint64)
    clock = _pairs(_CLOCK.digits(first, wrong))
    hour, minute, seconds = clock & _PAIR, (clock >> _U(24)) & _PAIR, (clock >> _U(48)) & _PAIR
    nanos = _parse(second_form.digits(second, wrong)) * _HUNDRED
    nanos += _pairs(third_form.digits(third, wrong)) & _PAIR
    plain &= (hour < 24) & (minute < 60) & (seconds < 60) & ((wrong & _HIGH_BITS) == 0)
    nanos += ((hour * _U(60) + minute) * _U(60) + seconds) * _U(1_000_000_000)
    return nanos.view(np.int64), plain


def timestamps(strings: StringSpans, separator: bytes, *, zoned: bool, seconds: bool) -> tuple[Integers, Mask]:
    """Read ``yyyy-MM-dd HH:mm:ss`` with up to nine digits of a fraction; also returns which of the strings are so.

    Digits beyond microseconds are cut off.

    Args:
        strings: The strings.
        separator: The character between date and time, a blank or ``T``.
        zoned: Whether each ends with ``Z``.
        seconds: Whether they must have seconds.

    Returns:
        The microseconds since 1970-01-01, and a mask. Numbers that the mask leaves out are meaningless.
    """
    ends = tuple(b":00" + fraction for fraction in _FRACTIONS) + (() if seconds else (b"",))
    plain, (third_form, fourth_form) = _forms_of_lengths(strings, ends, zoned=zoned, before=16)
    first, second, third, fourth = strings.words_at(strings.start, 4)
    wrong = np.zeros(len(strings), dtype=np.uint64)
    clock = _pairs(_DAY_HOUR_MINUTE[separator].digits(second, wrong))
    days, valid = _days(_pairs(_YEAR_MONTH.digits(_shorten(first), wrong)), clock & _PAIR)
    hour, minute = (clock >> _U(24)) & _PAIR, (clock >> _U(48)) & _PAIR
    fraction = _pairs(third_form.digits(third, wrong))
    second_of_minute = (fraction >> _BYTE) & _PAIR
    micros = ((fraction >> _U(32)) & _PAIR) * _HUNDRED + ((fraction >> _U(48)) & _PAIR)
    micros = micros * _HUNDRED + (_pairs(fourth_form.digits(fourth, wrong)) & _PAIR)
    micros += ((hour * _U(60) + minute) * _U(60) + second_of_minute) * _U(1_000_000)
    valid &= (hour < 24) & (minute < 60) & (second_of_minute < 60) & ((wrong & _HIGH_BITS) == 0)
    return days * MICROS_PER_DAY + micros.view(np.int64), plain & valid


def _pairs(digits: Words) -> Words:
    """In each byte, the number of the digit in it and the next one."""
    return digits * _TEN + (digits >> _BYTE)


def _shorten(words: Words) -> Words:
    """The first word if all are the same, as in a batch of one month; otherwise all words.

    NumPy broadcasts one word as it does many, and computes with it once.
    """
    return words[:1] if len(words) and bool((words == words[0]).all()) else words


def _days(year_month: Words, day: Words) -> tuple[Integers, Mask]:
    """The days since 1970-01-01, and which dates exist, in the years 1 to 9999.

    Args:
        year_month: `_pairs` of ``yyyy-MM-``, one for each day or one for all.
        day: The days of the month.
    """
    first_days, lengths = _calendar()
    month = (year_month >> _U(40)) & _PAIR
    year = (year_month & _PAIR) * _HUNDRED + ((year_month >> _TWO_BYTES) & _PAIR)
    index = np.minimum(year * _U(_MONTHS) + np.minimum(month, _U(_MONTHS - 1)), _U(len(lengths) - 1)).view(np.int64)
    number = day.view(np.int64)
    valid: Mask = (number >= 1) & (number <= lengths[index])
    return first_days[index] + number - 1, valid


@cache
def _calendar() -> tuple[Integers, npt.NDArray[np.int8]]:
    """The first day of each month, and how many days it has (0: it does not exist), at 16 * year + month."""
    firsts = np.arange("0001-01", "10001-01", dtype="datetime64[M]").astype("datetime64[D]").astype(np.int64)
    first_days = np.zeros((_YEARS, _MONTHS), dtype=np.int64)
    lengths = np.zeros((_YEARS, _MONTHS), dtype=np.int8)
    months = firsts[: 12 * (_YEARS - 1)].reshape(-1, 12)
    first_days[1:, 1:13] = months
    lengths[1:, 1:13] = np.diff(firsts)[: 12 * (_YEARS - 1)].reshape(-1, 12)
    return first_days.reshape(-1), lengths.reshape(-1)


def _forms_of_lengths(
    strings: StringSpans, ends: tuple[bytes, ...], *, zoned: bool, before: int
) -> tuple[Mask, tuple[_Form, _Form]]:
    """Which strings have a first part and the length of one of some ends, and the forms of the two words of that end.

    Args:
        strings: The strings.
        ends: What may follow the first part of a string, each of another length.
        zoned: Whether ``Z`` follows it.
        before: The characters of the first part.
    """
    known, forms = _end_forms(ends, zoned)
    length = strings.end - strings.start - before
    index: Any = np.clip(length, 0, len(known) - 1)
    plain = strings.present & (length >= 0) & known[index]
    if len(index) and bool((index == index[0]).all()):
        index = index[0]
    first, second = (_Form(form.literal[index], form.margin[index], form.used[index]) for form in forms)
    return plain, (first, second)


@cache
def _end_forms(ends: tuple[bytes, ...], zoned: bool) -> tuple[Mask, tuple[_Form, _Form]]:
    """Which lengths the ends have, and the forms of their two words by length; the last length is too long."""
    by_length = {len(end) + zoned: end + b"Z" * zoned for end in ends}
    strings = [by_length.get(length, b"") for length in range(max(by_length) + 2)]
    known = np.array([length in by_length for length in range(len(strings))])
    return known, (_form(*(text[:8] for text in strings)), _form(*(text[8:] for text in strings)))
