"""SQL files of a pipeline on a real Kafka: they read datasets by name, and topics by the data source ``kdsl``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.pipelines.project import ROOT, Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFINITIONS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from kdsl import Cluster, Col, KafkaTable, pipelines as kp


class Strings(KafkaTable, topic={topic!r}, value="raw", startup="earliest"):
    text: Col[str]


kp.view(Strings, Cluster.from_env(), name="strings")


@dp.table
def by_options():
    return SparkSession.active().readStream.format("kdsl").options(**{options!r}).load()
"""
CREATE = """
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]")
for line in open("spark.conf"):
    builder = builder.config(*line.strip().split(maxsplit=1))
builder.getOrCreate().sql(sys.argv[1])
"""


@pytest.mark.reliability
@pytest.mark.timeout(3600)
def test_they_read_datasets_and_topics(
    tmp_path: Path, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    topic, folder = kdsl_topic("in", partitions=2), tmp_path / "project"
    kdsl_kafka.produce(topic, *"abc")
    options = {
        "ddl": "CREATE TABLE t (text STRING) WITH ('connector' = 'kafka', 'format' = 'raw')",
        "bootstrap.servers": kdsl_kafka.bootstrap_servers,
        "topic": topic,
        "scan.startup.mode": "earliest-offset",
    }
    in_sql = ", ".join(f"'{name}' = \"{value}\"" for name, value in options.items())
    project = Project.write(folder, kdsl_kafka, DEFINITIONS.format(topic=topic, options=options))
    settings = {"spark.sql.catalogImplementation": "hive", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    project.configure(settings)
    (folder / "transformations" / "copies.sql").write_text(
        f"""CREATE STREAMING TABLE of_view AS SELECT text FROM STREAM strings;
        CREATE STREAMING TABLE of_dataset AS SELECT text FROM STREAM by_options;
        CREATE STREAMING TABLE of_topic AS SELECT text FROM STREAM shop_strings WITH ({in_sql});""",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "formats")])}
    created = [sys.executable, "-c", CREATE, f"CREATE TABLE shop_strings USING kdsl OPTIONS ({in_sql})"]
    subprocess.run(created, cwd=folder, env=environment, check=True, capture_output=True)

    for new, expected in (("", "abc"), ("de", "abcde")):
        kdsl_kafka.produce(topic, *new)
        assert project.run("run") == 0, project.log()

        for name in ("of_view", "of_dataset", "of_topic"):
            rows = spark.read.parquet(str(folder / "warehouse" / name)).collect()
            assert sorted(row.text for row in rows) == list(expected), name
