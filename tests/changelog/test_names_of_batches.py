"""The names by which the table of batches knows writers and targets."""

from __future__ import annotations

from hypothesis import given, strategies as st

from kdsl.changelog.connection import _MAX_NAME, _shorten

NAMES = st.text(min_size=1) | st.text(st.sampled_from("xä"), min_size=60, max_size=300)


@given(NAMES, NAMES)
def test_every_name_fits_and_stays_different_from_others(one: str, other: str) -> None:
    assert len(_shorten(one).encode()) <= _MAX_NAME
    assert (_shorten(one) == _shorten(other)) == (one == other)


def test_only_long_names_are_cut() -> None:
    assert _shorten("x" * 128) == "x" * 128
    assert _shorten("x" * 129).startswith("x" * 63 + "#")
