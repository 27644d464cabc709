"""Columns of decimals as big-endian two's complement numbers, which Avro and Java's ``BigInteger`` write.

A 128-bit number consists of two 64-bit halves, a lower and an upper one, as in Arrow's decimals.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kdsl_formats._columns.arrays import Bytes, Indices, Integers, Mask, Words, ranges

LONGEST = 16
"""The maximum size of a number in bytes."""
_LONG = (1 << 63) - 1
_LONG_DIGITS = 18


def read_numbers(words: Words, begin: Indices, length: Indices) -> tuple[Integers, Integers]:
    """The low and high halves of numbers in a buffer; meaningless for numbers of no or more than `LONGEST` bytes.

    Args:
        words: The eight bytes that begin at each position of the buffer; sixteen bytes follow the last number.
        begin: The first byte of each number.
        length: The size of each number in bytes.
    """
    low = _to_signed(words[begin], np.minimum(length, 8))
    high = low >> 63
    long = np.flatnonzero((length > 8) & (length <= LONGEST))
    if long.size:
        more = length[long] - 8
        high[long] = _to_signed(words[begin[long]], more)
        low[long] = words[begin[long] + more].byteswap().view(np.int64)
    return low, high


def _to_signed(words: Words, size: Indices) -> Integers:
    """The signed numbers in the first bytes of words; meaningless for empty numbers."""
    numbers: Integers = words.byteswap().view(np.int64) >> (64 - 8 * np.maximum(size, 1))
    return numbers


def rescale(low: Integers, high: Integers, shift: int, fallback: Mask) -> tuple[Integers, Integers]:
    """Change the number of digits after the decimal point, rounding half away from zero; returns the new halves.

    The halves of numbers in ``fallback`` are meaningless.

    Args:
        low: The lower halves.
        high: The upper halves.
        shift: How many digits to add; negative to remove digits.
        fallback: Updated with the numbers that are too large for this function; all are if `shift` exceeds 18 digits.
    """
    if not shift:
        return low, high
    if abs(shift) > _LONG_DIGITS:
        fallback |= True
        return low, high
    factor = 10 ** abs(shift)
    largest = (_LONG // factor) if shift > 0 else _LONG - factor
    fallback |= (high != low >> 63) | (low > largest) | (low < -largest)
    low = np.where(fallback, 0, low)
    if shift > 0:
        low *= factor
    else:
        low = np.sign(low) * ((np.abs(low) + factor // 2) // factor)
    return low, low >> 63


def exceeds_precision(low: Integers, high: Integers, precision: int, fallback: Mask) -> Mask | None:
    """Which numbers have more digits than a precision; None if there are none.

    Up to 18 digits, numbers beyond 64 bits are marked in ``fallback``, whether the result has them or not.

    For more than 18 digits the result is always None: numbers that may have more are marked in ``fallback``.

    Args:
        low: The lower halves.
        high: The upper halves.
        precision: The maximum number of digits.
        fallback: Updated with the numbers for which the answer is unknown.
    """
    bound = 10**precision
    if bound <= 1 << 63:
        fallback |= high != low >> 63
        exceeds = (low >= bound) | (low <= -bound)
        return exceeds if exceeds.any() else None
    largest = bound >> 64
    fallback |= (high >= largest) | (high < -largest) if largest else high != low >> 63
    return None


def decimal_array(kind: pa.Decimal128Type, low: Integers, high: Integers, valid: pa.Buffer | None) -> pa.Array:
    """An array of decimals from the halves of their numbers, with a validity bitmap (None: all are valid)."""
    halves = np.empty((len(low), 2), dtype=np.int64)
    halves[:, 0], halves[:, 1] = low, high
    return pa.Array.from_buffers(kind, len(low), [valid, pa.py_buffer(halves)])


def number_bytes(values: pa.Decimal128Array) -> tuple[Bytes, Integers]:
    """The shortest bytes of unscaled decimals, concatenated, and the size of each; NULL has no bytes."""
    halves = np.frombuffer(values.buffers()[1], dtype=np.int64).reshape(-1, 2)[values.offset :][: len(values)]
    low, high = halves[:, 0], halves[:, 1]
    size = byte_sizes(low)
    long = np.flatnonzero(high != low >> 63)
    if long.size:
        size[long] = 8 + byte_sizes(high[long])
    if values.null_count:
        size[~np.asarray(values.is_valid())] = 0
    flat = halves.byteswap()[:, ::-1].copy().view(np.uint8).reshape(-1)
    first = LONGEST * np.arange(1, len(values) + 1) - size
    return flat[ranges(first, size)], size


def byte_sizes(numbers: Integers) -> Integers:
    """The number of bytes of each number, including its sign."""
    bits = (numbers ^ (numbers >> 63)).view(np.uint64)
    size = np.ones(len(numbers), dtype=np.int64)
    for more in range(1, 8):
        enough = bits >= np.uint64(1 << (8 * more - 1))
        if not enough.any():
            break
        size += enough
    return size


def write_number(number: int) -> bytes:
    """The shortest bytes of one unscaled decimal."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
