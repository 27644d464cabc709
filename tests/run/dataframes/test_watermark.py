"""Watermarks on wall-clock times: they go by the clock that the column shows, whatever the session's zone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from kdsl.run.dataframes.watermark import instant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def berlin(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def test_the_hour_that_the_zone_skips_is_an_hour(berlin: SparkSession) -> None:
    """On 2024-03-31 clocks in Berlin went from 02:00 to 03:00."""
    texts = [
        *("1969-12-31 23:59:59.500000", "2024-03-31 01:45:15.250000", "2024-03-31 02:15:00", "2024-03-31 02:45:00"),
        *("2024-03-31 03:15:00", "2024-10-27 02:30:00.000001", "9999-12-31 23:59:59.999999"),
    ]
    values = ", ".join(f"(TIMESTAMP_NTZ'{text}')" for text in texts)
    rows = berlin.sql(f"SELECT unix_micros({instant('ts')}) AS micros FROM VALUES {values} AS t (ts)").collect()

    epoch = datetime(1970, 1, 1)  # wall-clock times
    wanted = [(datetime.fromisoformat(text) - epoch) // timedelta(microseconds=1) for text in texts]
    assert [row.micros for row in rows] == wanted
