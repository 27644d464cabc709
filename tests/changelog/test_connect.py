"""Changelogs in a Spark Connect session: batches go into memory, and what needs a JVM is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

from tests.connect import ConnectServer

SCRIPT = """
from kdsl.changelog import Changelog, ChangelogError, delta, jdbc, memory

rows = [("+I", 1, "a"), ("+I", 2, "b"), ("-D", 1, "a"), ("+U", 2, "c")]
batch = Changelog(spark.createDataFrame(rows, "_row_kind string, id bigint, name string").coalesce(1), keys=["id"])
stream = Changelog(spark.readStream.format("rate").load(), keys=["value"])
target = memory()
batch.apply_to(target)
errors = []
for changelog, to, more in (
    (batch, delta("/t"), {}), (batch, jdbc("jdbc:derby:memory:d", "t"), {}), (stream, memory(), {"checkpoint": "/c"}),
):
    try:
        changelog.apply_to(to, **more)
    except ChangelogError as e:
        errors.append(str(e))
print(json.dumps({"rows": target.rows(), "errors": errors}))
spark.stop()
"""


def test_batches_go_into_memory_and_the_rest_is_refused(connect: ConnectServer, tmp_path: Path) -> None:
    document = json.loads(connect.run(SCRIPT, folder=tmp_path).splitlines()[-1])

    assert document["rows"] == [{"id": 2, "name": "c"}]
    on_delta, on_jdbc, in_memory = document["errors"]
    assert "delta('/t'): kdsl calls Delta through the session's JVM" in on_delta
    assert "jdbc('jdbc:derby', 't'): the transaction of a batch runs through the JDBC driver" in on_jdbc
    assert "processes the batches of a stream in a process of its server" in in_memory
