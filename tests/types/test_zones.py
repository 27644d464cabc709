"""Time zones by Spark's names: what they mean is what the session's own Spark says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kdsl.run.records.metadata import convert_metadata
from kdsl.types import model as t
from kdsl.types.zones import find_offset, is_zone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONES = [
    "UTC", "Z", "GMT", "UT", "GMT+2", "GMT-2", "UTC+02:00", "UT+03", "+2", "-2", "+02", "+02:00", "+0230", "+2:30",
    "+02:3", "+18:00", "-18:00", "GMT+02:30:15", "+023015", "PST", "EST", "CST", "IST", "MST", "Etc/GMT+2", "GMT0",
    "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu",
]  # fmt: skip
INSTANTS = [datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), datetime(2024, 7, 1, tzinfo=UTC)]


def test_spark_reads_the_same_wall_clock_times(spark: SparkSession) -> None:
    instants = pa.array(INSTANTS, pa.timestamp("us", tz="UTC"))
    seconds = ", ".join(f"({i}, timestamp_micros({one.timestamp() * 1e6:.0f}))" for i, one in enumerate(INSTANTS))
    for zone in ZONES:
        rows = spark.sql(
            f"SELECT date_format(from_utc_timestamp(at, '{zone}'), 'yyyy-MM-dd HH:mm:ss.SSS') AS text, "
            f"date_format(at, 'yyyy-MM-dd HH:mm:ss.SSS') AS utc FROM VALUES {seconds} AS t(i, at) ORDER BY i"
        ).collect()
        shift = [datetime.fromisoformat(row.text) - datetime.fromisoformat(row.utc) for row in rows]
        own = convert_metadata(instants, t.TimestampLtz(6), t.Timestamp(6), zone).to_pylist()
        assert [a - b.replace(tzinfo=None) for a, b in zip(own, INSTANTS, strict=True)] == shift, zone


@pytest.mark.parametrize("zone", ZONES)
def test_a_zone_of_spark_is_known(zone: str) -> None:
    assert is_zone(zone)


@pytest.mark.parametrize(
    "zone", ["", "Mars/Base", "+19", "+18:00:01", "02:00", "UTC+", "GMT+1:2:3", "../etc/passwd", "+٢"]
)
def test_others_are_not(zone: str) -> None:
    assert not is_zone(zone)


def test_offsets_have_a_sign() -> None:
    assert find_offset("GMT-3:30") == -timedelta(hours=3, minutes=30)
    assert find_offset("Europe/Berlin") is None
