"""Dates and times in a real Postgres, which Java's classes between Spark and its driver would change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.changelog import Changelog, jdbc
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WALL_CLOCKS = {
    "2024-03-31 02:30:00": "2024-03-31 02:30:00",  # clocks are put forward from 2:00 to 3:00
    "1582-10-10 01:02:03.000004": "1582-10-10 01:02:03.000004",  # not in the calendar that Java uses before 1582
    "1500-02-28 12:00:00": "1500-02-28 12:00:00",
    "0001-01-01 00:00:00": "0001-01-01 00:00:00",
    "9999-12-31 23:59:59.999999": "9999-12-31 23:59:59.999999",
    "+12000-01-01 00:00:00": "12000-01-01 00:00:00",
    "0000-02-29 00:00:00": "0001-02-29 00:00:00 BC",
    "-0044-03-15 12:00:00": "0045-03-15 12:00:00 BC",
}
"""Timestamps as Spark writes them, and as Postgres does."""


@pytest.fixture(params=["UTC", "Europe/Berlin"])
def java_zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Sets the time zone of the JVM, which the driver of a database uses."""
    classic: Any = spark
    zones = classic._jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone(request.param))
    yield
    zones.setDefault(before)


@pytest.mark.postgres
@pytest.mark.usefixtures("java_zone")
def test_dates_and_times_are_those_of_the_changelog(spark: SparkSession, postgres: Postgres) -> None:
    postgres.execute(
        """
        DROP TABLE IF EXISTS moments;
        CREATE TABLE moments (
            wall timestamp PRIMARY KEY, instant timestamptz, day date, walls timestamp[], instants timestamptz[],
            days date[]
        );
        """
    )
    login = {"user": "kdsl", "password": PASSWORD}
    rows = ", ".join(f"(timestamp_ntz'{m}', timestamp'{m} UTC', date'{m.split()[0]}')" for m in WALL_CLOCKS)
    once = spark.sql(
        "SELECT *, array(wall, NULL) AS walls, array(instant) AS instants, array(day) AS days "
        f"FROM VALUES {rows} AS t(wall, instant, day)"
    )
    removed = spark.sql("SELECT timestamp_ntz'2024-03-31 02:30:00' AS wall, '-D' AS _row_kind")

    Changelog(once, keys=["wall"]).apply_to(jdbc(postgres.url, "moments", login))

    expected = {m: [m, f"{m}+00".replace(" BC+00", "+00 BC")] for m in WALL_CLOCKS.values()}
    shown = postgres.execute(
        "SET TIME ZONE 'UTC'; SELECT wall, instant, day, walls[1], instants[1], days[1] FROM moments"
    )
    results = {line.split("\t")[0]: line.split("\t") for line in shown.splitlines() if "\t" in line}
    assert results.keys() == expected.keys()
    for moment, (wall, instant) in expected.items():
        day = wall.split()[0] + " BC" * wall.endswith(" BC")
        assert results[moment] == [wall, instant, day] * 2
    Changelog(removed, keys=["wall"]).apply_to(jdbc(postgres.url, "moments", login))
    assert postgres.execute("SELECT count(*) FROM moments").strip() == str(len(WALL_CLOCKS) - 1)


@pytest.mark.postgres
def test_an_instant_in_a_column_without_time_zone_is_the_clock_of_the_session(
    spark: SparkSession, postgres: Postgres
) -> None:
    postgres.execute("DROP TABLE IF EXISTS clocks; CREATE TABLE clocks (id int PRIMARY KEY, wall timestamp)")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        instants = spark.sql("SELECT 1 AS id, timestamp'2024-01-01 00:00:00 UTC' AS wall")
        Changelog(instants, keys=["id"]).apply_to(jdbc(postgres.url, "clocks", {"user": "kdsl", "password": PASSWORD}))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert postgres.execute("SELECT wall FROM clocks").strip() == "2024-01-01 05:30:00"
