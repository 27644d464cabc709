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

servers, source, target, checkpoint = sys.argv[1:]
spark.conf.set("spark.sql.shuffle.partitions", "2")


class Users(UpsertTable, topic=source, key=Json(), value=Json()):
    id: PrimaryKey[int]
    name: Col[str]


class Copies(Users, topic=target):
    pass


class ByPartition(Users, topic=source, changelog_state="partition"):
    pass


cluster = Cluster(servers)
rows = [("+I", 1, "a"), ("+I", 2, "b"), ("+U", 1, "c"), ("-D", 2, "b")]
Users.write(spark.createDataFrame(rows, f"{ROW_KIND} string, id bigint, name string").coalesce(1), cluster)
query = Copies.write_stream(
    Users.read_stream(spark, cluster), cluster, checkpoint=checkpoint, trigger={"availableNow": True}
)
assert query.awaitTermination(300)
try:
    ByPartition.read_stream(spark, cluster)
    refused = ""
except KdslError as e:
    refused = str(e)
left = Users.collect(Users.snapshot(spark, cluster))
print(json.dumps({
    "copies": sorted(changelog_lines(Copies.read(spark, cluster).toArrow())),
    "left": [(row.id, row.name) for row in left],
    "by_partition": sorted(changelog_lines(ByPartition.read(spark, cluster).toArrow())),
    "refused": refused,
    "keys": metrics(query).source.num_keys_in_state,
}))
spark.stop()
"""


def test_changelogs_are_read_and_written(
    connect: ConnectServer, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    arguments = (kdsl_kafka.bootstrap_servers, kdsl_topic("in"), kdsl_topic("out"), str(tmp_path / "checkpoint"))

    document = json.loads(connect.run(SCRIPT, *arguments, folder=tmp_path).splitlines()[-1])

    assert document["copies"] == sorted(["+I[1, a]", "-U[1, a]", "+U[1, c]", "+I[2, b]", "-D[2, b]"])
    assert document["by_partition"] == document["copies"]
    assert "changelog_state='partition'" in document["refused"]
    assert "Spark Connect" in document["refused"]
    assert document["left"] == [[1, "c"]]
    assert document["keys"] == 1
