"""The transport in a Spark Connect session, whose server fetches the jars."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kdsl.run.java_clients.options import HIDDEN_NAMES
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.connect import ConnectServer

SCRIPT = """
from kdsl.cluster import Cluster
from kdsl.run.java_clients.options import hide_secrets
from kdsl.run.read import read, read_stream
from kdsl.run.write import write
from tests.run.read_plans import read_plan
from tests.run.write_plans import write_plan

servers, topic, target = sys.argv[1:]
cluster, plan = Cluster(servers), read_plan(topic, transport="jvm")
to = write_plan({"text": "STRING"}, value_format="raw", topics=(target,), transport="jvm")
batch = sorted(r.text for r in read(spark, plan, cluster).collect())
write(read(spark, plan, cluster), to, cluster)
try:
    read_stream(spark, plan, cluster)
except Exception as e:
    refused = str(e)
results = {"batch": batch, "refused": refused, "regex": spark.conf.get("spark.sql.redaction.options.regex")}
spark.conf.set("spark.sql.redaction.options.regex", "(?i)user|my-password")
hide_secrets(spark, [])
print(json.dumps({**results, "with_own": spark.conf.get("spark.sql.redaction.options.regex")}))
spark.stop()
"""


def test_batches_work_in_a_connect_session_and_streams_need_the_servers_own_jars(
    connect: ConnectServer, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, target = kdsl_topic("from"), kdsl_topic("to")
    kdsl_kafka.produce(topic, *"ab")

    printed = connect.run(SCRIPT, kdsl_kafka.bootstrap_servers, topic, target, folder=tmp_path)

    document = json.loads(printed.splitlines()[-1])
    assert document["batch"] == ["a", "b"]
    assert HIDDEN_NAMES in document["regex"]
    assert HIDDEN_NAMES in document["with_own"]
    assert re.search(
        document["with_own"], "the.user"
    )  # what was hidden stays hidden, whether the session tells it or not
    assert sorted(bytes(m.value() or b"") for m in kdsl_kafka.read(target)) == [b"a", b"b"]
    assert "start the server with org.apache.spark:spark-sql-kafka-0-10_2.13:" in document["refused"]
