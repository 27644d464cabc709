"""Reads in a Spark Connect session."""

from __future__ import annotations

import json
from pathlib import Path

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.connect import ConnectServer

SCRIPT = """
from kdsl.cluster import Cluster
from kdsl.errors import SparkJobError
from kdsl.run.read import decode, read, read_stream
from tests.run.read_plans import read_plan

servers, topic, checkpoint = sys.argv[1:]
plan, cluster = read_plan(topic, max_records=2), Cluster(servers)
query = (
    read_stream(spark, plan, cluster).writeStream.format("memory").queryName("rows")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination()
try:
    read(spark, read_plan("no-such-topic"), cluster).collect()
except SparkJobError as e:
    error, cause = str(e), str(e.__cause__)
print(json.dumps({
    "batch": sorted(r.text for r in read(spark, plan, cluster).collect()),
    "stream": sorted(r.text for r in spark.table("rows").collect()),
    "batches": len(query.recentProgress),
    "decoded": [r.text for r in decode(spark.createDataFrame([(b"x",)], "value binary"), plan).collect()],
    "error": error,
    "cause": cause,
}))
spark.stop()
"""


def test_batch_stream_and_decode_work_in_a_connect_session(
    connect: ConnectServer, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = kdsl_topic(partitions=2)
    kdsl_kafka.produce(topic, *"abc")

    printed = connect.run(SCRIPT, kdsl_kafka.bootstrap_servers, topic, str(tmp_path / "checkpoint"), folder=tmp_path)

    document = json.loads(printed.splitlines()[-1])
    error, cause = document.pop("error"), document.pop("cause")
    assert document == {"batch": ["a", "b", "c"], "stream": ["a", "b", "c"], "batches": 2, "decoded": ["x"]}
    assert error.startswith("Orders: the cluster has no topic 'no-such-topic'")
    assert "Traceback" in cause
    assert "Traceback" not in error
