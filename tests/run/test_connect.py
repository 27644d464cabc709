"""Reads in a Spark Connect session, in a process of its own: a process has sessions of one kind only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, sys, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
from kdsl.cluster import Cluster
from kdsl.run.read import decode, read, read_stream
from tests.run.read_plans import read_plan

servers, topic, checkpoint = sys.argv[1:]
builder = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.connect.grpc.binding.address", "127.0.0.1").getOrCreate()
plan, cluster = read_plan(topic, max_records=2), Cluster(servers)
query = (
    read_stream(spark, plan, cluster).writeStream.format("memory").queryName("rows")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination()
try:
    read(spark, read_plan("no-such-topic"), cluster).collect()
except Exception as e:
    error = str(e)
print(json.dumps({
    "batch": sorted(r.text for r in read(spark, plan, cluster).collect()),
    "stream": sorted(r.text for r in spark.table("rows").collect()),
    "batches": len(query.recentProgress),
    "decoded": [r.text for r in decode(spark.createDataFrame([(b"x",)], "value binary"), plan).collect()],
    "error": error,
}))
spark.stop()
"""


@pytest.mark.spark
def test_batch_stream_and_decode_work_in_a_connect_session(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    pytest.importorskip("grpc_status", reason="pyspark's Connect client is not installed")
    topic = kdsl_topic(partitions=2)
    kdsl_kafka.produce(topic, *"abc")
    path = os.pathsep.join([str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")])
    here = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, kdsl_kafka.bootstrap_servers, topic, str(tmp_path / "checkpoint")],
        env={**os.environ, **here},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    error = found.pop("error")
    assert found == {"batch": ["a", "b", "c"], "stream": ["a", "b", "c"], "batches": 2, "decoded": ["x"]}
    assert "Orders: the cluster has no topic 'no-such-topic'" in error
