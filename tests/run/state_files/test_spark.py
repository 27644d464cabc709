"""Tasks of Spark find the files of states with the settings of their session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.run.state_files.conftest import ODD, SECRET, Server, s3_settings
from tests.run.state_files.servers import BUCKET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def write_and_read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from kdsl.run.state_files.find import find_files

    for batch in batches:
        place, folder = batch.column(0)[0].as_py().split("|")
        files = find_files("t", place, f"id/{folder}")
        files.write(f"{1:020d}.json", b"{}")
        with files.create(f"{1:020d}-a") as run:
            run.path.write_bytes(b"rows")
        content = [files.place, files.read(f"{1:020d}.json").decode(), bytes(files.open(run.name).read()).decode()]
        yield pa.RecordBatch.from_pydict({"value": content})


def test_a_task_takes_the_settings_of_its_session(
    spark: SparkSession, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.proxy.clear()
    settings = {f"spark.hadoop.{name}": value for name, value in s3_settings(s3.proxy).items()}
    place = f"s3a://{BUCKET}/{ODD}/{tmp_path.name}"
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        df = spark.createDataFrame([(f"{place}|3",)], "value STRING").coalesce(1)
        rows = df.mapInArrow(write_and_read, "value STRING")
        assert [row.value for row in rows.collect()] == [f"{place}/id/3", "{}", "rows"]
        assert s3.proxy.methods() == ["PUT", "PUT", "GET"]
        assert SECRET not in rows._jdf.queryExecution().toString()
    finally:
        for name in settings:
            spark.conf.unset(name)
