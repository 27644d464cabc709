"""The transport in a Spark Connect session, whose server fetches the jars; in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

ROOT = Path(__file__).parents[3]
SCRIPT = """
import json, sys, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
from kdsl.cluster import Cluster
from kdsl.run.read import read, read_stream
from kdsl.run.write import write
from tests.run.read_plans import read_plan
from tests.run.write_plans import write_plan

servers, topic, target = sys.argv[1:]
builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.connect.grpc.binding.address", "127.0.0.1").getOrCreate()
cluster, plan = Cluster(servers), read_plan(topic, transport="jvm")
to = write_plan({"text": "STRING"}, value_format="raw", topics=(target,), transport="jvm")
batch = sorted(r.text for r in read(spark, plan, cluster).collect())
write(read(spark, plan, cluster), to, cluster)
try:
    read_stream(spark, plan, cluster)
except Exception as e:
    refused = str(e)
print(json.dumps({"batch": batch, "refused": refused, "regex": spark.conf.get("spark.sql.redaction.options.regex")}))
spark.stop()
"""


@pytest.mark.spark
def test_batches_work_in_a_connect_session_and_streams_need_the_servers_own_jars(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    pytest.importorskip("grpc_status", reason="pyspark's Connect client is not installed")
    topic, target = kdsl_topic("from"), kdsl_topic("to")
    kdsl_kafka.produce(topic, *"ab")
    path = os.pathsep.join([str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")])
    here = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, kdsl_kafka.bootstrap_servers, topic, target],
        env={**os.environ, **here},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["batch"] == ["a", "b"]
    assert "jaas" in found["regex"]
    assert sorted(bytes(m.value() or b"") for m in kdsl_kafka.read(target)) == [b"a", b"b"]
    assert "start the server with org.apache.spark:spark-sql-kafka-0-10_2.13:" in found["refused"]
