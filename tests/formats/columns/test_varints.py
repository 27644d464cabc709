"""Numbers of variable length in a buffer: what is written reads back, and what is too long is reported."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from kdsl_formats._columns.varints import (
    pad_bytes,
    read_varints,
    spread_groups,
    unzigzag,
    varint_sizes,
    write_varints,
    zigzag,
)

NUMBERS = st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 300), min_size=1, max_size=20)


def plain(number: int) -> bytes:
    """A number as it is written, byte by byte."""
    result = b""
    while number > 0x7F:
        result += bytes([number & 0x7F | 0x80])
        number >>= 7
    return result + bytes([number])


@given(NUMBERS)
@settings(deadline=None)
def test_numbers_are_written_and_read(numbers: list[int]) -> None:
    array = np.array(numbers, dtype=np.uint64)
    sizes = varint_sizes(array)
    ends = np.cumsum(sizes)
    target = np.zeros(int(ends[-1]), dtype=np.uint8)
    write_varints(target, ends - sizes, array, sizes)
    result, size, bad = read_varints(*pad_bytes(target), ends - sizes)

    assert target.tobytes() == b"".join(map(plain, numbers))
    assert result.tolist() == numbers
    assert (np.zeros(len(numbers)) + size).tolist() == sizes.tolist()
    assert bad is None or not bad.any()


@pytest.mark.parametrize("data", [b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x01"])
def test_a_number_of_more_than_64_bits_is_reported(data: bytes) -> None:
    held = np.frombuffer(b"\x05" + data, dtype=np.uint8)
    result, _, bad = read_varints(*pad_bytes(held), np.array([0, 1]))

    assert result[0] == 5
    assert bad is not None
    assert bad.tolist() == [False, True]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
@settings(deadline=None)
def test_signs_go_and_come_back(numbers: list[int]) -> None:
    array = np.array(numbers, dtype=np.int64)

    assert zigzag(array).tolist() == [2 * n if n >= 0 else -2 * n - 1 for n in numbers]
    assert unzigzag(zigzag(array)).view(np.int64).tolist() == numbers


@given(st.integers(0, 2**56 - 1))
@settings(deadline=None)
def test_each_byte_has_seven_bits(number: int) -> None:
    (word,) = spread_groups(np.array([number], dtype=np.uint64)).tolist()

    assert [word >> 8 * i & 0xFF for i in range(8)] == [number >> 7 * i & 0x7F for i in range(8)]
