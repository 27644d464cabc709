"""What watches queries, in a session of Spark Connect; of a process that nobody stops in order."""

from __future__ import annotations

import json
from pathlib import Path

from kdsl.cluster import Cluster
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.connect import ConnectServer

SCRIPT = """
from kdsl.cluster import Cluster
from kdsl.resolve.model import Stop
from kdsl.run.listeners import commits, watch
from kdsl.run.read import read_stream
from tests.run.read_plans import read_plan

watch.wait_for_commits = lambda: commits.wait_for_commits(120)  # as long as a busy machine may take
servers, topic, checkpoint = sys.argv[1:]
plan, ended = read_plan(topic, group_id=f"group-of-{topic}", stop=Stop("latest"), max_records=1), []
for _ in range(2):
    rows = read_stream(spark, plan, Cluster(servers))
    query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    ended.append(query.awaitTermination(150))
print(json.dumps(ended))
"""


def test_bounded_streams_end_and_groups_are_committed(
    connect: ConnectServer, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = kdsl_topic(partitions=2)
    kdsl_kafka.produce(topic, *"abc")

    printed = connect.run(SCRIPT, kdsl_kafka.bootstrap_servers, topic, str(tmp_path / "checkpoint"), folder=tmp_path)

    assert json.loads(printed.splitlines()[-1]) == [True, True]
    ends = {(topic, partition): at for partition, at in kdsl_kafka.end_offsets(topic).items()}
    assert LibrdkafkaAdmin(Cluster(kdsl_kafka.bootstrap_servers), "Orders").committed(f"group-of-{topic}", ends) == ends
