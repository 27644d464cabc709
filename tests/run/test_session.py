"""A Python without kdsl is told about in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from pyspark.sql import SparkSession
from kdsl import Cluster, Col, Json, KafkaTable
from kdsl.errors import KdslError

class T(KafkaTable, topic="t", value=Json()):
    x: Col[int]

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
try:
    T.read(spark, Cluster("127.0.0.1:1"))
except KdslError as e:
    print("told:", e)
"""


@pytest.mark.spark
def test_a_python_of_spark_without_kdsl_is_told_with_the_way_out(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    environment = {**os.environ, "PYSPARK_PYTHON": str(bare / "bin" / "python"), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environment, "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert "told: the Python that Spark runs has no module" in done.stdout, done.stderr[-3000:]
    assert "set PYSPARK_PYTHON to a Python that has it" in done.stdout
