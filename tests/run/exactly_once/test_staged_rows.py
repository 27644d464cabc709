"""What is staged is sent as it was, whatever the session's settings, Spark's version and the number of writers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from kdsl.cluster import Cluster
from kdsl.plan.model import Transactions
from kdsl.run.dead_letters.counts import check_letters
from kdsl.run.exactly_once import staged
from kdsl.spark_versions import Feature
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.exactly_once.test_stream import ids, plan_for, run
from tests.run.test_write_stream import put
from tests.run.write_plans import write_plan
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_microseconds_stay_where_the_session_cuts_them_off(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, files = kdsl_topic(), tmp_path / "in"
    files.mkdir()
    put(files, range(1))
    rows = spark.readStream.text(str(files)).select(F.expr("timestamp'2025-01-01 00:00:00.123456Z'").alias("at"))
    plan = write_plan(
        {"at": "TIMESTAMP_LTZ(6)"},
        topics=(topic,),
        delivery="exactly-once",
        transactions=Transactions(f"{topic}-tx", staged=True),
        parallelism=1,
    )
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS")
    try:
        run(rows, plan, Cluster(kdsl_kafka.bootstrap_servers), tmp_path / "checkpoint")
        assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MILLIS"
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    settle(kdsl_kafka, topic)
    assert [m.value() for m in kdsl_kafka.read(topic)] == [b'{"at":"2025-01-01 00:00:00.123456Z"}']


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
