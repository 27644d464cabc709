"""The warning of a query that compares or unites wall-clock times with instants."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl import Col, Json, KafkaTable, TimestampNtz
from kdsl.cluster import Cluster
from kdsl.run.mixed_times import warn_of_mixed_times
from kdsl.spark_internals.errors import GatewayError
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Query = Callable[[DataFrame, DataFrame], DataFrame]

COMPARED = "the query compares seen (TIMESTAMP, a wall-clock time) with at (TIMESTAMP_LTZ, an instant);"
UNITED = "the query unites seen (TIMESTAMP, a wall-clock time) with at (TIMESTAMP_LTZ, an instant);"
MIXED: dict[str, tuple[str, Query]] = {
    "a join": (COMPARED, lambda a, b: a.join(b, a.seen == b.at)),
    "a join of an interval": (COMPARED, lambda a, b: a.join(b, "id").where(b.at >= a.seen)),
    "a join by name": (COMPARED.replace("seen", "at"), lambda a, b: a.withColumnRenamed("seen", "at").join(b, ["at"])),
    "a union": (UNITED, lambda a, b: a.union(b)),
    "a union by name": (UNITED.replace("seen", "at"), lambda a, b: b.unionByName(a.withColumnRenamed("seen", "at"))),
    "an intersection": (UNITED, lambda a, b: b.select("at").intersect(a.select("seen"))),
    "a choice": (COMPARED, lambda a, b: a.join(b, "id").selectExpr("coalesce(seen, at)")),
}
CLEAR: dict[str, Query] = {
    "a cast of the wall-clock time": lambda a, b: a.join(b, a.seen.cast("timestamp") == b.at),
    "a cast of the instant": lambda a, b: a.join(b, a.seen == b.at.cast("timestamp_ntz")),
    "a union after a cast": lambda a, b: a.selectExpr("cast(seen AS TIMESTAMP)", "id").union(b),
    "the same kind": lambda a, b: a.join(a.alias("other").withColumnRenamed("seen", "later"), "id").where("seen<later"),
    "times beside each other": lambda a, b: a.join(b, "id").where("seen < timestamp_ntz'2024-01-01' AND at < now()"),
}


@pytest.fixture
def sides(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    rows = spark.range(2)
    return (
        rows.selectExpr("timestamp_ntz'2024-06-01 12:00:00' AS seen", "id"),
        rows.selectExpr("timestamp'2024-06-01 12:00:00' AS at", "id"),
    )


@pytest.mark.parametrize("query", MIXED)
def test_times_of_both_kinds_are_warned_of(
    query: str, sides: tuple[DataFrame, DataFrame], caplog: pytest.LogCaptureFixture
) -> None:
    expected, build = MIXED[query]
    for _ in range(2):  # as a function of foreachBatch does
        warn_of_mixed_times(build(*sides), f"Report of {query}")
    assert [f"Report of {query}: {expected}" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("query", CLEAR)
def test_casts_and_times_of_one_kind_are_not_warned_of(
    query: str, sides: tuple[DataFrame, DataFrame], caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_mixed_times(CLEAR[query](*sides), "Report")
    assert not caplog.records


def test_columns_of_one_table_are_compared_too(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    rows = spark.createDataFrame([(datetime(2024, 6, 1), datetime(2024, 6, 1))], "seen TIMESTAMP_NTZ, at TIMESTAMP")

    warn_of_mixed_times(rows.where("seen < at"), "One table")
    assert [f"One table: {COMPARED}" in record.getMessage() for record in caplog.records] == [True]
    caplog.clear()
    warn_of_mixed_times(rows.select("seen"), "One table")
    assert not caplog.records


def test_a_plan_that_cannot_be_read_fails_no_write(
    sides: tuple[DataFrame, DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise GatewayError("no such method")

    monkeypatch.setattr("kdsl.run.mixed_times.plan_of", fail)
    warn_of_mixed_times(sides[0].union(sides[1]), "Report")


def test_a_stream_into_any_sink_and_a_write_warn_once_and_name_the_tables(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="kdsl.read")
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    class Orders(KafkaTable, topic=kdsl_topic("orders"), value=Json(), startup="earliest"):
        seen: Col[TimestampNtz]

    class Payments(KafkaTable, topic=kdsl_topic("payments"), value=Json(), startup="earliest"):
        at: Col[datetime]

    warning = "compares Orders.seen (TIMESTAMP, a wall-clock time) with Payments.at (TIMESTAMP_LTZ, an instant)"
    orders, payments = Orders.read(spark, cluster), Payments.read(spark, cluster)
    Payments.write(orders.join(payments, orders.seen == payments.at).select("at"), cluster)
    assert caplog.text.count(f"Payments: the query {warning}") == 1
    caplog.clear()

    orders, payments = Orders.read_stream(spark, cluster), Payments.read_stream(spark, cluster)
    writer = orders.join(payments, orders.seen == payments.at).writeStream.format("memory").queryName("mixed")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    assert caplog.text.count(f"mixed: the query {warning}") == 1
