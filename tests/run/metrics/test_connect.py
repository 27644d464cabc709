"""The metrics of queries in a Spark Connect session are those of a classic one, whoever asks first."""

from __future__ import annotations

import json
from pathlib import Path

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.connect import ConnectServer

SCRIPT = """
import time
from kdsl.cluster import Cluster
from kdsl.plan.model import RowRule
from kdsl.run.metrics.observer import all_metrics, metrics
from kdsl.run.read import read_stream
from kdsl.run.write import write_stream
from tests.run.read_plans import read_plan
from tests.run.write_plans import write_plan

servers, source, target, checkpoint = sys.argv[1:]
cluster = Cluster(servers)
to = write_plan({"text": "STRING"}, topics=(target,), value_format="raw")
rule = RowRule("at-most-2", "CHAR_LENGTH(text) <= 2", "warn", ("text",))
rows = read_stream(spark, read_plan(source, max_records=3, rules=(rule,)), cluster)
query = write_stream(rows, to, cluster, checkpoint=checkpoint, trigger={"availableNow": True}, name="copy")
while query.isActive:
    metrics(query)  # asks for reports that the listener has not brought yet
    time.sleep(0.05)
query.awaitTermination()


def sample():
    snapshot = metrics(query)
    read, written = snapshot.source, snapshot.sink
    offsets = [[*partition, offset] for partition, offset in read.current_offsets.items()]
    return [read.num_records_in, read.num_bytes_in, read.pending_records, offsets, written.num_records_out]


until = time.monotonic() + 120
while sample()[0] < 5 and time.monotonic() < until:
    time.sleep(0.1)
snapshot = metrics(query)
bytes_out = snapshot.sink.num_bytes_out
violations = dict(snapshot.source.num_rule_violations)
print(json.dumps({"first": sample(), "again": sample(), "bytes_out": bytes_out, "name": snapshot.name,
    "batch": snapshot.batch, "violations": violations}))
spark.stop()
"""


def test_counters_offsets_and_lag_are_those_of_the_topics(
    connect: ConnectServer, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = kdsl_topic("in"), kdsl_topic("out")
    kdsl_kafka.produce(source, "a", "bb", "ccc", "dddd", "eeeee")
    arguments = (kdsl_kafka.bootstrap_servers, source, target, str(tmp_path / "checkpoint"))

    document = json.loads(connect.run(SCRIPT, *arguments, folder=tmp_path).splitlines()[-1])

    assert document["first"] == document["again"] == [5, 15, 0, [[source, 0, 5]], 5]
    assert document["bytes_out"] == 15  # the server's commits run on this machine
    assert (document["name"], document["batch"]) == ("copy", 1)
    assert document["violations"] == {"at-most-2": 3}
