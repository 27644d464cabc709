"""A driver program: one streaming query over declared tables, as a user would write it.

``python stream.py ARGUMENTS.json``; the arguments are `tests.reliability.harness.Job`'s. It ends when the query ends,
or when the file ``stop`` appears; with 1 and the error on standard error where the query failed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kdsl import load_tables


def main(run: Callable[[SparkSession, dict[str, Any]], int]) -> int:
    """Start a session, and run in it what the arguments describe."""
    threading.Thread(target=end_with_the_tests, daemon=True).start()
    arguments: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    session = {"spark.executorEnv.KDSL_TEST_SESSION": str(os.getsid(0))}
    started = SparkSession.builder.config(map={**arguments["spark"], **session}).getOrCreate()
    try:
        return run(started, arguments)
    finally:
        started.stop()


def end_with_the_tests() -> None:
    """Standard input ends when the tests do, however they do."""
    sys.stdin.read()
    from tests.reliability.points.sitecustomize import kill_session

    kill_session(os.getsid(0))


def run(spark: SparkSession, arguments: dict[str, Any]) -> int:
    """Start the query, and wait for its end."""
    query = start(spark, arguments)
    stop = Path(arguments["stop"])
    Path(arguments["started"]).touch()
    try:
        while not query.awaitTermination(1):
            if stop.exists():
                query.stop()
    except StreamingQueryException as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        progress = [p.json for p in query.recentProgress]
        Path(arguments["progress"]).write_text("\n".join(progress), encoding="utf-8")
    return 0


def start(spark: SparkSession, arguments: dict[str, Any]) -> StreamingQuery:
    """The query: from a table into a table, into files, or into a function."""
    if arguments["sink"] == "data source":
        return copy_by_options(spark, arguments)
    tables = {table.name: table for table in load_tables(arguments["tables"])}
    rows = tables["source"].read_stream(spark)
    if arguments["query"]:
        rows.createOrReplaceTempView("source")
        rows = spark.sql(arguments["query"])
    checkpoint, trigger = arguments["checkpoint"], arguments["trigger"]
    if arguments["sink"] == "table":
        return tables["target"].write_stream(rows, checkpoint=checkpoint, trigger=trigger)
    writer = rows.writeStream.option("checkpointLocation", checkpoint)
    writer = writer.trigger(**trigger) if trigger else writer
    if arguments["sink"] == "files":
        return writer.format("json").start(arguments["output"])
    return writer.foreachBatch(note_batches(Path(arguments["output"]), arguments["seconds"])).start()


def copy_by_options(spark: SparkSession, arguments: dict[str, Any]) -> StreamingQuery:
    """The query from a table into a table by ``format("kdsl")``, as one writes it without kdsl's API."""
    file = arguments["tables"]
    rows = spark.readStream.format("kdsl").option("file", f"{file}#source").load()
    writer = rows.writeStream.format("kdsl").option("file", f"{file}#target").trigger(**arguments["trigger"])
    return writer.option("checkpointLocation", arguments["checkpoint"]).start()


def note_batches(folder: Path, seconds: float) -> Any:
    """A function for each batch: writes its rows down, under its id and the run, and then takes its time."""

    def note(batch: DataFrame, batch_id: int) -> None:
        rows = sorted(map(str, batch.toJSON().collect()))
        unfinished = folder / f".{batch_id}-{os.getpid()}"
        unfinished.write_text("\n".join(rows), encoding="utf-8")
        unfinished.rename(folder / f"{batch_id}-{os.getpid()}")
        time.sleep(seconds)

    return note


if __name__ == "__main__":
    sys.exit(main(run))
