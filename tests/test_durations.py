"""Durations read as Flink reads them, and read back equal."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from kdsl.durations import duration_text, parse_duration


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("5 min", timedelta(minutes=5)),
        ("5m", timedelta(minutes=5)),
        ("10000", timedelta(seconds=10)),
        ("0", timedelta()),
        (" 3 Days ", timedelta(days=3)),
        ("250 ms", timedelta(milliseconds=250)),
        ("PT5M", timedelta(minutes=5)),
        ("PT0.5S", timedelta(milliseconds=500)),
        ("P1DT2H", timedelta(days=1, hours=2)),
        ("-1", timedelta(milliseconds=-1)),
        ("-1 ms", timedelta(milliseconds=-1)),
        ("PT-1S", timedelta(seconds=-1)),
        ("-PT1S", timedelta(seconds=-1)),
    ],
)
def test_what_is_a_duration(text: str, length: timedelta) -> None:
    assert parse_duration(text) == length


@pytest.mark.parametrize(
    "text", ["", "-", "--1", "abc", "5 secnds", "P", "PT", "1.5 s", "9999999999999999 d", "P9999999999D"]
)
def test_what_it_does_not(text: str) -> None:
    with pytest.raises(ValueError, match=r"unit of time|not a duration|too long"):
        parse_duration(text)


@given(st.timedeltas(min_value=timedelta(days=-10_000), max_value=timedelta(days=10_000)))
def test_they_read_back_equal(length: timedelta) -> None:
    assert parse_duration(duration_text(length)) == length
