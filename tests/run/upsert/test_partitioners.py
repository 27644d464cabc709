"""The partitioners of clients: known values, and the same as one key after the other."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kdsl.plan.model import KeyPartitioner
from kdsl.run.upsert.partitioners import (
    NOWHERE,
    PARTITIONERS,
    TITLES,
    choose_partitions,
    hash_crc32,
    hash_fnv1a,
    hash_murmur2,
)

WORD = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash of one string, as Kafka's documentation of the algorithm has it."""
    hashed = 0x9747B28C ^ len(data)
    for at in range(0, len(data) - len(data) % 4, 4):
        word = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & WORD
        word = (word ^ word >> 24) * 0x5BD1E995 & WORD
        hashed = (hashed * 0x5BD1E995 ^ word) & WORD
    if rest := data[len(data) - len(data) % 4 :]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & WORD
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & WORD
    return hashed ^ hashed >> 15


def fnv1a(data: bytes) -> int:
    """The hash of one string."""
    hashed = 0x811C9DC5
    for byte in data:
        hashed = (hashed ^ byte) * 0x01000193 & WORD
    return hashed


def divide_as_go(hashed: int, partitions: int) -> int:
    """The absolute value of the remainder of a signed integer, which has the sign of that integer in Go."""
    return abs(int(math.fmod(hashed - (1 << 32) if hashed >> 31 else hashed, partitions)))


ONE_BY_ONE: dict[KeyPartitioner, Callable[[bytes, int], int]] = {
    "murmur2": lambda key, n: (murmur2(key) & 0x7FFFFFFF) % n,
    "crc32": lambda key, n: zlib.crc32(key) % n if key else NOWHERE,
    "fnv1a": lambda key, n: divide_as_go(fnv1a(key), n),
    "fnv1a-masked": lambda key, n: (fnv1a(key) & 0x7FFFFFFF) % n,
    "single": lambda _, n: 0 if n == 1 else NOWHERE,
}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafkas_clients(data: str, expected: int) -> None:
    """The values are those of Kafka's UtilsTest.testMurmur2."""
    assert hash_murmur2(data.encode(), [0, len(data)]).view(np.int32).tolist() == [expected]


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968), (b"b", 0xE70C2DE5)]
)
def test_fnv1a_is_that_of_its_authors(data: bytes, expected: int) -> None:
    assert hash_fnv1a(data, [0, len(data)]).tolist() == [expected]


def test_crc32_has_the_check_value_of_its_catalogue() -> None:
    assert hash_crc32(b"123456789", [0, 9]).tolist() == [0xCBF43926]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("kafka", 0xD33C4E1),
        ("giberish123456789", 0x77A58295),
        ("1234", 0x23BDD03),
        ("PreAmbleWillBeRemoved,ThePrePartThatIs", 0x65CBD69C),
        ("", 0x7EE3623B),
    ],
)
def test_the_sign_of_fnv1a_is_dropped_as_librdkafka_and_sarama_do(key: str, expected: int) -> None:
    """The values are those of librdkafka's own test, computed in Go."""
    assert choose_partitions(pa.array([key.encode()]), 2**31 - 1, "fnv1a").tolist() == [expected]


@given(
    keys=st.lists(st.none() | st.binary(max_size=40), max_size=30),
    before=st.integers(0, 3),
    partitions=st.integers(1, 50),
    partitioner=st.sampled_from(PARTITIONERS),
)
def test_keys_of_any_length_are_placed_side_by_side_as_one_by_one(
    keys: list[bytes | None], before: int, partitions: int, partitioner: KeyPartitioner
) -> None:
    array = pa.array([b"before"] * before + keys, pa.binary()).slice(before)

    placed = choose_partitions(array, partitions, partitioner).tolist()

    place = ONE_BY_ONE[partitioner]
    expected = [NOWHERE if key is None and partitioner != "single" else place(key or b"", partitions) for key in keys]
    assert placed == expected


def test_each_partitioner_has_a_title() -> None:
    assert set(TITLES) == set(PARTITIONERS) == set(ONE_BY_ONE)
