"""Numbers of variable length in Avro and Protobuf: seven bits in each byte, the lowest bits first."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kdsl_formats._columns.arrays import Bytes, Integers, Mask, Words, words_of

PAD: Final = 32
"""Zeros after the last byte: twice the longest number, so that reading ahead stays inside the buffer."""

_U = np.uint64
_STOPS = _U(0x8080808080808080)
_SEVENS = _U(0x7F7F7F7F7F7F7F7F)
_ONE, _TWO, _FOUR = (_U(n) for n in (1, 2, 4))
_PAIR_LOW, _PAIR_HIGH = _U(0x007F007F007F007F), _U(0x7F007F007F007F00)
_QUAD_LOW, _QUAD_HIGH = _U(0x00003FFF00003FFF), _U(0x3FFF00003FFF0000)
_OCT_LOW, _OCT_HIGH = _U(0x000000000FFFFFFF), _U(0x0FFFFFFF00000000)


def pad_bytes(content: Bytes) -> tuple[Bytes, Words]:
    """A copy of bytes with `PAD` zeros after them, and the eight bytes that begin at each position, as a number."""
    data = np.empty(len(content) + PAD, dtype=np.uint8)
    data[: len(content)] = content
    data[len(content) :] = 0
    return data, words_of(data)


def read_varints(data: Bytes, words: Words, positions: Integers) -> tuple[Words, Integers | int, Mask | None]:
    """The numbers that begin at some positions of a buffer from `pad_bytes`.

    Returns:
        The numbers; the size of each in bytes (the number 1 if all take one byte); a mask of the numbers that do not
        fit in 64 bits, or None if none has more than eight bytes.
    """
    first = data.take(positions)
    if not len(first) or int(first.max()) < 0x80:
        return first.astype(np.uint64), 1, None
    eight_bytes = words[positions]  # take would copy all words first, because they overlap
    stops = ~eight_bytes & _STOPS
    last = stops & (~stops + _ONE)  # the highest bit of the number's last byte
    size = (np.bitwise_count(last - _ONE).astype(np.int64) + 1) >> 3
    numbers = _join_groups(eight_bytes & (last - _ONE) & _SEVENS)
    if stops.all():
        return numbers, size, None
    return numbers, size, _add_long_numbers(data, positions, np.flatnonzero(stops == 0), numbers, size)


def _join_groups(words: Words) -> Words:
    """Join eight groups of seven bits, one in each byte, to one number."""
    words = (words & _PAIR_LOW) | ((words & _PAIR_HIGH) >> _ONE)
    words = (words & _QUAD_LOW) | ((words & _QUAD_HIGH) >> _TWO)
    return (words & _OCT_LOW) | ((words & _OCT_HIGH) >> _FOUR)


def _add_long_numbers(data: Bytes, positions: Integers, which: Any, numbers: Words, size: Integers) -> Mask:
    """Add the ninth and tenth byte to the numbers and sizes that have them, in place.

    Return which numbers have more, or do not fit in 64 bits.
    """
    ninth, tenth = data[positions[which] + 8], data[positions[which] + 9]
    is_ten = ninth >= 0x80
    numbers[which] |= (ninth & np.uint8(0x7F)).astype(np.uint64) << _U(56)
    numbers[which] |= np.where(is_ten, tenth & np.uint8(1), np.uint8(0)).astype(np.uint64) << _U(63)
    size[which] = 9 + is_ten
    bad = np.zeros(len(positions), dtype=bool)
    bad[which] = is_ten & (tenth > 1)
    return bad


def unzigzag(numbers: Words) -> Words:
    """Decode zig-zag numbers, whose lowest bit is the sign, to two's complement."""
    return (numbers >> _ONE) ^ (~(numbers & _ONE) + _ONE)


def zigzag(numbers: Integers) -> Words:
    """Zig-zag encode signed numbers: the lowest bit is the sign."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def varint_sizes(numbers: Words) -> Integers:
    """The number of bytes of each number as a varint."""
    size = np.ones(len(numbers), dtype=np.int64)
    largest = int(numbers.max()) if len(numbers) else 0
    bits = 7
    while largest >> bits:
        size += numbers >= _U(1 << bits)
        bits += 7
    return size


def spread_groups(numbers: Words) -> Words:
    """Split the lowest 56 bits into groups of seven, each in its own byte."""
    words = (numbers & _OCT_LOW) | ((numbers & _U(0x00FFFFFFF0000000)) << _FOUR)
    words = (words & _QUAD_LOW) | ((words & _U(0x0FFFC0000FFFC000)) << _TWO)
    return (words & _PAIR_LOW) | ((words & _U(0x3F803F803F803F80)) << _ONE)


def write_varints(target: Bytes, positions: Integers, numbers: Words, sizes: Integers) -> None:
    """Write numbers as varints at positions of a buffer, which needs no padding after them."""
    longest = int(sizes.max()) if len(sizes) else 0
    if longest <= 1:
        target[positions] = numbers.astype(np.uint8)
        return
    which: Any = slice(None)
    for i in range(longest):
        if i:
            which = np.flatnonzero(sizes > i)
        part = ((numbers[which] >> _U(7 * i)) & _U(0x7F)).astype(np.uint8)
        part |= (sizes[which] > i + 1).astype(np.uint8) << np.uint8(7)
        target[positions[which] + i] = part
