"""Upsert tables in a Spark Connect session: a changelog read as a stream, written, and read back."""

from __future__ import annotations

import json
from pathlib import Path

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.connect import ConnectServer

SCRIPT = """
from kdsl import Cluster, Col, Json, PrimaryKey, UpsertTable, metrics
from kdsl.errors import KdslError
from kdsl.formats import ROW_KIND
from kdsl.run.dataframes.changelog_text import changelog_lines

servers, source, target, checkpoint, states = sys.argv[1:]
spark.conf.set("spark.sql.shuffle.partitions", "2")


class Users(UpsertTable, topic=source, key=Json(), value=Json(), state_location=states):
    id: PrimaryKey[int]
    name: Col[str]


class Copies(Users, topic=target):
    pass


class ByKey(Users, topic=source, changelog_state="key"):
    pass


class ByPartition(Users, topic=source, changelog_state="partition"):
    pass


class Beside(UpsertTable, topic=source, key=Json(), value=Json()):
    id: PrimaryKey[int]


cluster = Cluster(servers)
rows = [("+I", 1, "a"), ("+I", 2, "b"), ("+U", 1, "c"), ("-D", 2, "b")]
Users.write(spark.createDataFrame(rows, f"{ROW_KIND} string, id bigint, name string").coalesce(1), cluster)
query = Copies.write_stream(
    Users.read_stream(spark, cluster), cluster, checkpoint=checkpoint, trigger={"availableNow": True}
)
assert query.awaitTermination(300)
by_key = ByKey.read_stream(spark, cluster).writeStream.format("memory").queryName("by_key")
by_key = by_key.option("checkpointLocation", checkpoint + "-by-key").trigger(availableNow=True).start()
assert by_key.awaitTermination(300)
try:
    Beside.read_stream(spark, cluster)
    refused = ""
except KdslError as e:
    refused = str(e)
left = Users.collect(Users.snapshot(spark, cluster))
print(json.dumps({
    "copies": sorted(changelog_lines(Copies.read(spark, cluster).toArrow())),
    "left": [(row.id, row.name) for row in left],
    "by_partition": sorted(changelog_lines(ByPartition.read(spark, cluster).toArrow())),
    "by_key": sorted(changelog_lines(spark.table("by_key").toArrow())),
    "refused": refused,
    "keys": metrics(query).source.num_keys_in_state,
    "shards": [getattr(metrics(by_key).source, name) for name in ("num_keys_in_state", "state_bytes", "state_routing")],
}))
spark.stop()
"""


def test_changelogs_are_read_and_written(
    connect: ConnectServer, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    (tmp_path / "states").mkdir()
    folders = (str(tmp_path / name) for name in ("checkpoint", "states"))
    arguments = (kdsl_kafka.bootstrap_servers, kdsl_topic("in"), kdsl_topic("out"), *folders)

    document = json.loads(connect.run(SCRIPT, *arguments, folder=tmp_path).splitlines()[-1])

    assert document["copies"] == sorted(["+I[1, a]", "-U[1, a]", "+U[1, c]", "+I[2, b]", "-D[2, b]"])
    assert document["by_partition"] == document["by_key"] == document["copies"]
    assert "state_location=" in document["refused"]
    assert "Spark Connect" in document["refused"]
    assert document["left"] == [[1, "c"]]
    assert document["keys"] == 1
    keys, size, routing = document["shards"]
    assert (keys, routing) == (1, {"by key": 1})
    assert size > 0
