"""Dates, times and timestamps as java.time's formatters read and write them; the expected answers are theirs."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Self

import pytest
from hypothesis import given, strategies as st

from kdsl.types.strings import temporal

SECOND = 1_000_000


@given(st.dates())
def test_days_are_counted_as_everywhere(day: date) -> None:
    days = (day - date(1970, 1, 1)) // timedelta(days=1)
    assert (temporal.day_number(day.year, day.month, day.day), temporal.calendar_date(days)) == (
        days,
        (day.year, day.month, day.day),
    )


@given(st.integers(-170_999_002, 169_560_311))
def test_every_day_is_read_back(days: int) -> None:
    year = temporal.calendar_date(days)[0]
    if abs(year) <= 999_999_999:
        assert temporal.parse_date(temporal.format_date(days)) == days


@pytest.mark.parametrize(
    ("text", "days"),
    [("0000-01-01", -719528), ("-0001-01-01", -719893), ("+10000-01-01", 2932897), ("+02020-01-01", 18262)],
)
def test_years_of_any_size_are_read(text: str, days: int) -> None:
    assert temporal.parse_date(text) == days


@pytest.mark.parametrize(
    "text",
    [
        "2020-02-30",
        "2021-02-29",
        "2020-1-2",
        "+2020-01-01",
        "10000-01-01",
        "-0000-01-01",
        " 2020-01-01",
        "2020-13-01",
        "",
    ],
)
def test_other_strings_are_not_dates(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|no such|no year"):
        temporal.parse_date(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("24:00:00", 0), ("24:00:00.000", 0), ("12:00:00.", 43200), ("12:00:00.5", 43200.5)]
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert temporal.parse_time(text) == seconds * 10**9


@pytest.mark.parametrize(
    "text", ["12:00", "23:59:60", "24:00:01", "25:00:00", "1:00:00", "12:00:00Z", "12:00:00.1234567891", "12:00:00,5"]
)
def test_other_strings_are_not_times(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|no such"):
        temporal.parse_time(text)


@pytest.mark.parametrize(
    ("text", "standard", "zoned", "shown"),
    [
        ("2021-02-31 00:00:00", "SQL", False, "2021-02-28 00:00:00"),
        ("1900-02-29 00:00:00", "SQL", False, "1900-02-28 00:00:00"),
        ("2020-12-31 24:00:00.0", "SQL", False, "2021-01-01 00:00:00"),
        ("2021-02-29T00:00Z", "ISO-8601", True, "2021-02-28T00:00:00Z"),
        ("2020-12-31T24:00:00Z", "ISO-8601", True, "2021-01-01T00:00:00Z"),
        ("2021-01-01T00:00:00+02:00", "ISO-8601", True, "2020-12-31T22:00:00Z"),
        ("2020-12-31T18:30:00.5-05:30", "ISO-8601", True, "2021-01-01T00:00:00.5Z"),
        ("2020-12-31t00:00:00.", "ISO-8601", False, "2020-12-31T00:00:00"),
        ("2020-01-01 00:00:00.123456789Z", "SQL", True, "2020-01-01 00:00:00.123456Z"),
        ("-0044-03-15 12:00:00.10", "SQL", False, "-0044-03-15 12:00:00.1"),
        ("+12345-01-01 00:00:00", "SQL", False, "+12345-01-01 00:00:00"),
    ],
)
def test_timestamps_are_read_and_written(text: str, standard: str, zoned: bool, shown: str) -> None:
    micros = temporal.parse_timestamp(text, standard, zoned=zoned)
    assert temporal.format_timestamp(micros, standard, zoned=zoned) == shown


@pytest.mark.parametrize(
    ("text", "standard", "zoned"),
    [
        ("2021-02-29T00:00:00", "ISO-8601", False),
        ("2020-12-31T24:00:00", "ISO-8601", False),
        ("2020-01-01 00:00:00", "ISO-8601", False),
        ("2020-12-31t00:00:00Z", "ISO-8601", True),
        ("2020-12-31T00:00:00z", "ISO-8601", True),
        ("2020-12-31T00:00:00+00", "ISO-8601", True),
        ("2020-12-31T00:00:00+19:00", "ISO-8601", True),
        ("2020-12-31T00:00:00+00:00", "ISO-8601", False),
        ("2020-12-31 00:00:00+00:00", "SQL", True),
        ("2020-01-01 00:00", "SQL", False),
        ("2020-01-01T00:00:00", "SQL", False),
        ("2020-01-01 00:00:00Z", "SQL", False),
        ("2020-01-01 00:00:00", "SQL", True),
        ("2021-02-32 00:00:00", "SQL", False),
        ("2020-12-31 24:00:00.1", "SQL", False),
        ("+999999999-12-31 23:59:59", "SQL", False),
    ],
)
def test_other_strings_are_not_timestamps(text: str, standard: str, zoned: bool) -> None:
    with pytest.raises(ValueError, match=r"expected|no such|beyond"):
        temporal.parse_timestamp(text, standard, zoned=zoned)


def test_midnight_at_the_end_of_a_day_does_not_depend_on_python(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(datetime):  # Python 3.14 reads 24:00:00 as the next midnight
        @classmethod
        def fromisoformat(cls, text: str) -> Self:
            ends = text[11:] == "24:00:00"
            return super().fromisoformat(f"{text[:10]}T00:00:00" if ends else text) + timedelta(days=ends)

    monkeypatch.setattr(temporal, "datetime", Later)

    assert temporal.parse_timestamp("1970-01-01T00:00:01", "ISO-8601", zoned=False) == 10**6
    assert temporal.parse_timestamp("1970-01-01 24:00:00", "SQL", zoned=False) == temporal.MICROS_PER_DAY
    with pytest.raises(ValueError, match="no such time"):
        temporal.parse_timestamp("1970-01-01T24:00:00", "ISO-8601", zoned=False)


@pytest.mark.parametrize(("nanos", "text"), [(0, "00:00:00"), (3661 * 10**9, "01:01:01"), (120 * 10**6, "00:00:00.12")])
def test_times_are_written_without_trailing_zeros(nanos: int, text: str) -> None:
    assert temporal.format_time(nanos) == text
