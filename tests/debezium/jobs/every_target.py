"""A driver program: change data of one table into every kind of target at the same time.

``python every_target.py ARGUMENTS.json``; the arguments are `tests.reliability.harness.Job`'s. Beside its checkpoint
lies ``script.sql``, which declares the table ``things``. Its INSERTs run, and the table goes into a Delta table and
into one of Postgres. With a trigger each query reads what there is and ends, one after the other; without one all run
until the program is killed, or one of them fails.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kdsl import load_sql
from kdsl.changelog import Changelog, Target, delta, jdbc
from kdsl.ddl.script_reader import read_script
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, run_script
from tests.reliability.jobs.stream import end_with_the_tests


def main() -> int:
    """Run the queries that the arguments describe."""
    threading.Thread(target=end_with_the_tests, daemon=True).start()
    arguments: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    session = {"spark.executorEnv.KDSL_TEST_SESSION": str(os.getsid(0))}
    spark = SparkSession.builder.config(map={**arguments["spark"], **session}).getOrCreate()
    try:
        run(spark, Path(arguments["checkpoint"]).parent, arguments["trigger"])
    finally:
        spark.stop()
    return 0


def run(spark: SparkSession, folder: Path, trigger: dict[str, Any] | None) -> None:
    """Start the queries, and wait for their end."""
    text = (folder / "script.sql").read_text(encoding="utf-8")
    things = next(table for table in load_sql(text) if table.name == "things")
    login = {"user": "kdsl", "password": "${env:KDSL_TEST_PASSWORD}"}
    targets: dict[str, Target] = {
        "delta": delta(folder / "things"),
        "jdbc": jdbc(os.environ["KDSL_TEST_URL"], "store.copies", login),
    }
    queries = []
    for name, target in targets.items():
        rows = things.read_stream(spark)
        if name == "delta":  # which has no type for times of the day
            times = [f.name for f in rows.schema.fields if f.dataType.simpleString().startswith("time(")]
            rows = rows.withColumns({time: rows[time].cast("string") for time in times})
        changelog = Changelog(rows, things)
        queries.append(changelog.apply_to(target, checkpoint=str(folder / name), trigger=trigger, name=name))
    stopping = threading.Event()
    if trigger:
        for query in queries:
            query.awaitTermination()
    else:
        threading.Thread(target=stop_when_one_ends, args=(queries, stopping), daemon=True).start()
    checkpoint = str(folder / "script")
    options = RunOptions(checkpoint=checkpoint, once=trigger is not None, stopping=stopping)
    run_script(plan_script(read_script(text), checkpoint=checkpoint), spark, options)
    for query in sorted(queries, key=lambda query: query.isActive):  # the one that has failed first
        query.awaitTermination()


def stop_when_one_ends(queries: Sequence[StreamingQuery], stopping: threading.Event) -> None:
    """Stop the script as soon as one of the queries beside it has ended."""
    while all(query.isActive for query in queries):
        time.sleep(0.2)
    stopping.set()


if __name__ == "__main__":
    sys.exit(main())
