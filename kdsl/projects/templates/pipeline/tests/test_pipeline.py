"""The pipeline on a real Kafka, run by spark-pipelines."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
from kdsl.testing import LocalKafka

PROJECT = Path(__file__).parents[1]


def test_large_rows_are_written(tmp_path: Path) -> None:
    """The Kafka is one of this test: the pipeline names its topics, and nothing else may be in them."""
    text = (PROJECT / "spark-pipeline.yml").read_text(encoding="utf-8")
    storage = f"storage: {(tmp_path / 'storage').as_uri()}"
    (tmp_path / "spark-pipeline.yml").write_text(re.sub("storage: .*", storage, text), encoding="utf-8")
    shutil.copy(PROJECT / "spark.conf", tmp_path)
    shutil.copytree(PROJECT / "transformations", tmp_path / "transformations")

    with LocalKafka(topics={"sample-topic": 2, "sample-topic-large": 2}) as kafka:
        kafka.produce("sample-topic", '{"id": "small", "amount": 99.5}', '{"id": "large", "amount": 100.0}')
        run("dry-run", tmp_path, kafka)
        run("run", tmp_path, kafka)
        kafka.produce("sample-topic", '{"id": "later", "amount": 250.0}')
        run("run", tmp_path, kafka)  # it continues where the first run ended

        written = [json.loads(message.value() or b"") for message in kafka.read("sample-topic-large")]
    assert sorted(row["id"] for row in written) == ["large", "later"]


def run(command: str, folder: Path, kafka: LocalKafka) -> None:
    """Run a command of spark-pipelines to its end."""
    home = Path(pyspark.__file__).parent
    done = subprocess.run(
        [home / "bin" / "spark-pipelines", command],
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "KDSL_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": "--properties-file spark.conf pyspark-shell",
            "SPARK_HOME": str(home),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
