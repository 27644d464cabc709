"""What is staged is sent as it was, whatever the session's settings, Spark's version and the number of writers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from kdsl.cluster import Cluster
from kdsl.plan.model import Transactions
from kdsl.run.dead_letter_counts import check_letters
from kdsl.run.exactly_once import staged
from kdsl.spark_internals.storage import settings_for_files, settings_for_tables
from kdsl.spark_versions import PYTHON_SOURCES, Feature
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.exactly_once.test_stream import ids, plan_for, run
from tests.run.test_write_stream import put
from tests.run.write_plans import write_plan
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.since(PYTHON_SOURCES)


LOSSY = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
}
"""Settings with which Spark would store or read something else: no microseconds, other days before 1582."""


def test_values_stay_where_the_session_would_change_them(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, files = kdsl_topic(), tmp_path / "in"
    files.mkdir()
    put(files, range(1))
    rows = spark.readStream.text(str(files)).selectExpr(
        "timestamp'2025-01-01 00:00:00.123456Z' AS at",
        "timestamp'1582-10-10 12:00:00Z' AS old",
        "date'1582-10-10' AS day",
    )
    plan = write_plan(
        {"at": "TIMESTAMP_LTZ(6)", "old": "TIMESTAMP_LTZ(6)", "day": "DATE"},
        topics=(topic,),
        delivery="exactly-once",
        transactions=Transactions(f"{topic}-tx", staged=True),
        parallelism=1,
    )
    for name, value in LOSSY.items():
        spark.conf.set(name, value)
    try:
        run(rows, plan, Cluster(kdsl_kafka.bootstrap_servers), tmp_path / "checkpoint")
        assert {name: spark.conf.get(name) for name in LOSSY} == LOSSY
    finally:
        for name in LOSSY:
            spark.conf.unset(name)
    settle(kdsl_kafka, topic)
    (message,) = kdsl_kafka.read(topic)
    assert json.loads(message.value() or b"") == {
        "at": "2025-01-01 00:00:00.123456Z",
        "old": "1582-10-10 12:00:00Z",
        "day": "1582-10-10",
    }


@pytest.mark.parametrize("choose", [settings_for_files, settings_for_tables])
def test_only_settings_that_lose_something_are_changed(choose: Callable[[Callable[[str], None]], object]) -> None:
    lossless = {"spark.sql.parquet.outputTimestampType": "INT96", "spark.sql.storeAssignmentPolicy": "STRICT"}
    lossy = {**LOSSY, "spark.sql.storeAssignmentPolicy": "legacy"}

    assert choose(lambda _: None) == choose(lossless.get) == {}  # type: ignore[arg-type]
    changed = choose(lossy.get)  # type: ignore[arg-type]
    assert isinstance(changed, dict)
    assert changed["spark.sql.parquet.outputTimestampType"] == "TIMESTAMP_MICROS"
    assert set(changed) < set(lossy)
    assert choose(changed.get) == {}


@pytest.mark.parametrize("by_id", [True, False])
def test_rows_of_writers_that_the_query_no_longer_has_are_sent(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by_id: bool,
) -> None:
    """The driver dies after a batch of four writers is staged; two go on, as Spark routes rows since 4.1 and before."""
    if not by_id:
        monkeypatch.setattr(staged, "REPARTITION_BY_ID", Feature("the way of later versions", "9.9"))
    topic, files, checkpoint = kdsl_topic(), tmp_path / "in", tmp_path / "checkpoint"
    files.mkdir()
    for start in (0, 100, 200, 300):
        put(files, range(start, start + 100))
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    rows = (
        spark.readStream.option("maxFilesPerTrigger", 4)
        .text(str(files))
        .select(F.col("value").cast("bigint").alias("id"))
    )
    crashes = [1]

    def crash_once(batch: DataFrame) -> None:
        if crashes:
            raise RuntimeError(f"the driver dies {crashes.pop()} time")
        check_letters(batch)

    monkeypatch.setattr(staged, "check_letters", crash_once)
    spark.conf.set("spark.sql.files.openCostInBytes", str(256 << 20))  # a task for each file
    try:
        with pytest.raises(Exception, match="the driver dies 1 time"):
            run(rows, plan_for(topic, staged=True, parallelism=4), cluster, checkpoint)
        run(rows, plan_for(topic, staged=True, parallelism=2), cluster, checkpoint)
    finally:
        spark.conf.unset("spark.sql.files.openCostInBytes")
    assert ids(kdsl_kafka, topic) == Counter(range(400))
