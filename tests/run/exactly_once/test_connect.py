"""Exactly-once from a Spark Connect session, in a process of its own: checkpoints are reached through small jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

ROOT = Path(__file__).parents[3]
SCRIPT = """
import os, sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
from pyspark.sql import SparkSession
from kdsl.cluster import Cluster
from kdsl.plan.model import Transactions
from kdsl.run.read import read_stream
from kdsl.run.write import write_stream
from tests.run.read_plans import read_plan
from tests.run.write_plans import write_plan

servers, source, topic, checkpoint = sys.argv[1:]
builder = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.connect.grpc.binding.address", "127.0.0.1").getOrCreate()
cluster = Cluster(servers)
once = {"delivery": "exactly-once", "transactions": Transactions(topic)}


def run(**more):
    plan = write_plan({"text": "STRING"}, topics=(topic,), value_format="raw", **once, **more)
    rows = read_stream(spark, read_plan(source, max_records=3), cluster)
    query = write_stream(rows, plan, cluster, checkpoint=checkpoint, trigger={"availableNow": True})
    query.awaitTermination()


try:
    run()
except Exception as e:
    print(e)
run(parallelism=1)
for note in ("1", ".1.crc"):
    (Path(checkpoint) / "commits" / note).unlink(missing_ok=True)
run(parallelism=1)
spark.stop()
"""


@pytest.mark.spark
def test_a_stream_of_a_connect_session_is_written_once_by_one_writer(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    pytest.importorskip("grpc_status", reason="pyspark's Connect client is not installed")
    source, topic = kdsl_topic("in"), kdsl_topic("out")
    kdsl_kafka.produce(source, *"abcde")
    path = os.pathsep.join([str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")])
    here = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, kdsl_kafka.bootstrap_servers, source, topic, str(tmp_path / "checkpoint")],
        env={**os.environ, **here},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr[:3000]
    assert "over Spark Connect the plan of the rows cannot be seen; write exactly_once" in done.stdout
    assert Counter(m.value() for m in kdsl_kafka.read(topic)) == dict.fromkeys((b"a", b"b", b"c", b"d", b"e"), 1)
