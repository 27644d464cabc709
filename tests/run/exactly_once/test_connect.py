"""Exactly-once from a Spark Connect session: checkpoints are reached through small jobs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.connect import ConnectServer
from tests.transactions import settle

SCRIPT = """
from pathlib import Path
from kdsl.cluster import Cluster
from kdsl.plan.model import Transactions
from kdsl.run.read import read_stream
from kdsl.run.write import write_stream
from tests.run.read_plans import read_plan
from tests.run.write_plans import write_plan

servers, source, topic, checkpoint = sys.argv[1:]
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


@pytest.mark.reliability
def test_a_stream_of_a_connect_session_is_written_once_by_one_writer(
    connect: ConnectServer, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    source, topic = kdsl_topic("in"), kdsl_topic("out")
    kdsl_kafka.produce(source, *"abcde")

    printed = connect.run(
        SCRIPT, kdsl_kafka.bootstrap_servers, source, topic, str(tmp_path / "checkpoint"), folder=tmp_path
    )

    assert "over Spark Connect the plan of the rows cannot be seen; write exactly_once" in printed
    settle(kdsl_kafka, topic)
    assert Counter(m.value() for m in kdsl_kafka.read(topic)) == dict.fromkeys((b"a", b"b", b"c", b"d", b"e"), 1)
