"""Rows that a function of ``foreachBatch`` appends to a Delta table: each batch once, with new columns, at any path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from kdsl.changelog import Batch, delta
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.spark_internals.session import jvm_of


class Job:
    """A stream of the files of a folder, whose rows are appended to a table."""

    def __init__(self, spark: SparkSession, folder: Path, target: DeltaTarget) -> None:
        self.spark, self.folder, self.target = spark, folder, target

    def add(self, query: str) -> None:
        self.spark.sql(query).coalesce(1).write.mode("append").parquet(str(self.folder / "in"))

    def run(self, checkpoint: str = "checkpoint") -> None:
        def append(rows: DataFrame, number: int) -> None:
            self.target.append(rows, Batch("job", number))

        reader = self.spark.readStream.schema("id INT, note STRING")
        rows = reader.option("maxFilesPerTrigger", 1).parquet(str(self.folder / "in"))
        writer = rows.writeStream.foreachBatch(append).option("checkpointLocation", str(self.folder / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    here = str(jvm_of(spark).java.lang.System.getProperty("user.dir"))
    job = Job(spark, tmp_path, delta(os.path.relpath(tmp_path / "table", here)))
    job.add("SELECT 1 AS id, 'a' AS note")
    job.run()
    return job


def read(job: Job) -> list[int]:
    from kdsl.changelog.delta_session import DeltaSession

    with DeltaSession(job.spark).active() as session:
        return sorted(row.id for row in DataFrame(session.open(job.target).toDF(), session.python()).collect())


def test_a_batch_that_is_repeated_after_a_failure_is_appended_once_to_a_relative_path(job: Job) -> None:
    (job.folder / "checkpoint" / "commits" / "0").unlink()
    (job.folder / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    job.add("SELECT 2 AS id, 'b' AS note")

    job.run()

    assert read(job) == [1, 2]


@pytest.mark.reliability
def test_a_batch_of_another_query_is_refused_by_its_content(job: Job) -> None:
    with pytest.raises(StreamingQueryException, match="this is another batch with the number 0"):
        job.run("other-checkpoint")

    assert read(job) == [1]


def test_columns_are_added_at_a_relative_path(job: Job) -> None:
    rows = job.spark.sql("SELECT 2 AS id, TIMESTAMP_NTZ '2026-01-01 00:00:00' AS at")

    job.target.append(rows, Batch("other", 0))

    assert [column.name for column in job.target.read_columns(job.spark) or ()] == ["id", "note", "at"]
