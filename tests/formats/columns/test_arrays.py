"""Arrow arrays as numpy sees them: invalid UTF-8, and repeated keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings, strategies as st

from kdsl_formats._columns.arrays import content, find_bounds, find_invalid_utf8, find_repeated_keys, slices


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.lists(st.none() | st.binary(max_size=6) | st.text(max_size=4).map(str.encode), min_size=2, max_size=9))
@settings(deadline=None)
def test_strings_that_are_not_utf8_are_found(texts: list[bytes | None]) -> None:
    array = pa.array(texts, pa.binary()).view(pa.string())[1:]
    wrong = find_invalid_utf8(array)
    result = [False] * len(array) if wrong is None else wrong.tolist()

    assert result == [text is not None and not is_utf8(text) for text in texts[1:]]


def test_two_strings_may_be_utf8_only_together() -> None:
    array = pa.array([b"a\xc3", b"\xa9", None, b"b"], pa.binary()).view(pa.string())
    wrong = find_invalid_utf8(array)

    assert wrong is not None
    assert wrong.tolist() == [True, True, False, False]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"))))
@settings(deadline=None)
def test_entries_with_repeated_keys_are_found(entries: list[tuple[int, str]]) -> None:
    owner = np.array([o for o, _ in entries], dtype=np.int64)
    result = find_repeated_keys(owner, pa.array([key for _, key in entries], pa.string()))

    assert result.tolist() == [entry in entries[:i] for i, entry in enumerate(entries)]


@given(st.lists(st.none() | st.text(max_size=5), max_size=6), st.integers(0, 2))
@settings(deadline=None)
def test_an_array_is_rebuilt_from_its_pieces(texts: list[str | None], offset: int) -> None:
    array = pa.array(texts, pa.string())[offset:]
    present = np.asarray(array.is_valid())

    assert slices(content(array), *find_bounds(array), present, pa.string()).equals(array)
