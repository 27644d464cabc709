"""What watches queries, in a session of Spark Connect; in a process of its own, which nobody stops in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kdsl.cluster import Cluster
from kdsl.run.cluster.brokers import Brokers
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

ROOT = Path(__file__).parents[3]
SCRIPT = """
import json, sys, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
from kdsl.cluster import Cluster
from kdsl.resolve.model import Stop
from kdsl.run.read import read_stream
from tests.run.read_plans import read_plan

servers, topic, checkpoint = sys.argv[1:]
builder = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.connect.grpc.binding.address", "127.0.0.1").getOrCreate()
plan, found = read_plan(topic, group_id=f"group-of-{topic}", stop=Stop("latest"), max_records=1), []
for _ in range(2):
    rows = read_stream(spark, plan, Cluster(servers))
    query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    found.append(query.awaitTermination(60))
print(json.dumps(found))
"""


@pytest.mark.spark
def test_bounded_streams_end_and_groups_are_committed(
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
    assert json.loads(done.stdout.splitlines()[-1]) == [True, True]
    ends = {(topic, partition): at for partition, at in kdsl_kafka.end_offsets(topic).items()}
    assert Brokers(Cluster(kdsl_kafka.bootstrap_servers), "Orders").committed(f"group-of-{topic}", ends) == ends
