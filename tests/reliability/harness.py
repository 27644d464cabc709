"""Jobs that are killed: driver programs in processes of their own, and what they leave behind.

```python
job = Job(tmp_path, tables=copy_tables(kafka, source, target))
life = job.run(Kill(points.WRITTEN, committed=2))   # dies when two batches are done and the third is written
assert life.killed
assert job.run().code == 0                          # the same job again, to its end
```

A kill is SIGKILL for the whole tree: the Python driver, the JVM and all Python workers, which are one session.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
import psutil
import yaml

from kdsl.run.offsets.stored import Offsets, Range
from kdsl.testing import RunningKafka

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

When = Literal["before", "after", "between"]
Action = Literal["kill", "kill-worker", "kill-executor", "freeze", "sleep", "fail"]

LOCAL = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.driver.memory": "600m",
    # A job lives for seconds: it is worth no second compiler and no parallel collector.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


@attrs.frozen
class Point:
    """A place in the product where a job can die.

    Attributes:
        function: The function, as ``module:Class.method``.
        when: Before it, after it, or between the things that it yields.
    """

    function: str
    when: When


_FOR_EXECUTORS = ("PYTHONPATH", "KDSL_TEST_KILL")

_SOURCE = "kdsl.run.librdkafka.source:StreamReader"
_SINK = "kdsl.run.librdkafka.sink"

PLANNED = Point(f"{_SOURCE}.latestOffset", "after")
"""The end of the batch is chosen, and nothing is written down: before the offset log."""
LOGGED = Point(f"{_SOURCE}.partitions", "before")
"""The offset log has the batch, and nothing was read: after the offset log."""
READING = Point(f"{_SOURCE}.read", "between")
"""Some rows of the batch are read."""
WRITING = Point(f"{_SINK}:write_rows", "after")
"""One task of the batch has written its rows, others have not."""
WRITTEN = Point(f"{_SINK}:StreamWriter.commit", "before")
"""All rows are in Kafka, and Spark has not noted the batch as done: before the commit log."""
BATCH_WRITTEN = Point(f"{_SINK}:BatchWriter.commit", "before")
"""The same of a batch that goes through ``foreachBatch``: of updates, or staged."""
COMMITTED = Point(f"{_SOURCE}.latestOffset", "before")
"""The batch is noted as done, and the next one is not planned: after the commit log."""


@attrs.frozen
class Kill:
    """A death, which comes once.

    Attributes:
        point: Where.
        committed: How many batches the query must have committed before.
        skip: How often each process passes the point before it counts.
        action: What happens: the whole job is killed, only the Python worker is, or the executor on a cluster; or the
            worker stands still (SIGSTOP), sleeps for some seconds, or raises an error.
        seconds: How long it sleeps.
        checkpoint: The folder, in the job's, of the checkpoint whose batches count.
    """

    point: Point
    committed: int = 0
    skip: int = 0
    action: Action = "kill"
    seconds: float = 0.0
    checkpoint: str = "checkpoint"


@attrs.frozen
class Life:
    """How a run of a job ended.

    Attributes:
        code: The exit code; negative for a signal.
        killed: Whether it died where it was to die.
        log: What it wrote to standard output and error.
        progress: The progress reports of its query, where it ended by itself.
    """

    code: int
    killed: bool
    log: str
    progress: tuple[dict[str, Any], ...] = ()


@attrs.define
class Job:
    """A driver program that is run again and again over the same checkpoint.

    Attributes:
        folder: Where everything of it stands.
        tables: The tables ``source`` and ``target``, as a document.
        sink: Where rows go: the table ``target``, files, or a function for each batch, in the folder ``output``; or
            the table by the data source ``kdsl``, which then also reads.
        trigger: Arguments of Spark's trigger; None goes on until it is stopped.
        spark: Settings of the session, on top of `LOCAL`.
        seconds: How long the function takes for each batch.
        query: A SQL query over the view ``source``, which contains the rows; None leaves the rows unchanged.
        program: The program.
        environment: Variables for it.
    """

    folder: Path
    tables: Mapping[str, Any]
    sink: Literal["table", "files", "function", "data source"] = "table"
    trigger: Mapping[str, Any] | None = attrs.field(factory=lambda: {"availableNow": True})
    spark: Mapping[str, str] = attrs.field(factory=dict)
    seconds: float = 0.0
    query: str | None = None
    program: Path = HERE / "jobs" / "stream.py"
    environment: Mapping[str, str] = attrs.field(factory=dict)
    before: tuple[str, ...] = ()
    _lives: int = attrs.field(default=0, init=False)

    @property
    def checkpoint(self) -> Checkpoint:
        """What Spark has written down of the query."""
        return Checkpoint(self.folder / "checkpoint")

    def topic(self, table: str) -> str:
        """The topic of a table."""
        return str(next(t["options"]["topic"] for t in self.tables["tables"] if t["name"] == table))

    @property
    def output(self) -> Path:
        """The folder of files."""
        return self.folder / "output"

    def run(self, kill: Kill | None = None, *, until: Callable[[], bool] | None = None, timeout: float = 300.0) -> Life:
        """Start it, and wait for its end.

        Args:
            kill: Where it dies by itself.
            until: It is killed from outside as soon as this is true; asked every millisecond.
            timeout: It is killed then, too, and an error is raised.
        """
        running = self.start(kill)
        try:
            return running.wait(until=until, timeout=timeout)
        finally:
            running.kill()

    def start(self, kill: Kill | None = None) -> RunningJob:
        """Start it."""
        self._lives += 1
        self.folder.mkdir(exist_ok=True, parents=True)
        self.output.mkdir(exist_ok=True)
        own = self.folder / f"life-{self._lives}"
        own.mkdir()
        (own / "tables.yaml").write_text(yaml.safe_dump(dict(self.tables)), encoding="utf-8")
        environment = {
            **os.environ,
            **self.environment,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(HERE / "points"), str(ROOT), str(ROOT / "formats")]),
            "PYTHONUNBUFFERED": "1",
        }
        if kill is not None:
            environment["KDSL_TEST_KILL"] = json.dumps(
                {
                    **attrs.asdict(kill.point),
                    **attrs.asdict(kill, filter=lambda attribute, _: attribute.name != "point"),
                    "checkpoint": str(self.folder / kill.checkpoint),
                    "note": str(own / "killed"),
                }
            )
        executors = {f"spark.executorEnv.{name}": environment[name] for name in _FOR_EXECUTORS if name in environment}
        arguments = {
            "tables": str(own / "tables.yaml"),
            "checkpoint": str(self.checkpoint.folder),
            "output": str(self.output),
            "trigger": dict(self.trigger) if self.trigger else None,
            "sink": self.sink,
            "seconds": self.seconds,
            "query": self.query,
            "stop": str(own / "stop"),
            "started": str(own / "started"),
            "progress": str(own / "progress"),
            "spark": {**LOCAL, "spark.local.dir": str(own), **self.spark, **executors},
        }
        (own / "arguments.json").write_text(json.dumps(arguments), encoding="utf-8")
        with (own / "log").open("wb") as log:
            process = subprocess.Popen(
                [*self.before, sys.executable, str(self.program), str(own / "arguments.json")],
                stdin=subprocess.PIPE,  # whose end is the end of the tests, and of the job
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
            )
        return RunningJob(process, own, self.checkpoint)


@attrs.frozen
class RunningJob:
    """A job that runs.

    Attributes:
        process: The driver program.
        folder: What belongs to this run alone.
        checkpoint: What Spark has written down of its query.
    """

    process: subprocess.Popen[bytes]
    folder: Path
    checkpoint: Checkpoint

    @property
    def log(self) -> str:
        """What it has written so far."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    @property
    def started(self) -> bool:
        """Whether its query has started."""
        return (self.folder / "started").exists()

    def processes(self) -> list[psutil.Process]:
        """Everything that belongs to it: the driver, the JVM, the Python workers."""
        results = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    results.append(process)
            except (psutil.Error, ProcessLookupError):
                continue
        return results

    def kill(self) -> None:
        """Kill all of it at once, the driver last, and wait until it is gone."""
        end = time.monotonic() + 120
        while result := self.processes():  # also what one of them had just started
            for process in sorted(result, key=lambda p: p.pid == self.process.pid):
                try:
                    process.send_signal(signal.SIGKILL)
                except psutil.Error:
                    continue
            assert time.monotonic() < end, f"they do not end: {result}"
            time.sleep(0.01)
        self.process.wait(120)
        if self.process.stdin is not None:
            self.process.stdin.close()

    def stop(self) -> None:
        """Ask the query to stop."""
        (self.folder / "stop").touch()

    def wait_for(self, holds: Callable[[], bool], what: str, timeout: float = 300.0) -> None:
        """Wait until something holds; the job must live as long."""
        end = time.monotonic() + timeout
        while not holds():
            assert self.process.poll() is None, f"the job has ended before {what}:\n{self.log[-4000:]}"
            assert time.monotonic() < end, f"{what}: not within {timeout:g} s:\n{self.log[-4000:]}"
            time.sleep(0.05)

    def wait_for_batches(self, last: int, what: str, timeout: float = 300.0) -> None:
        """Wait until a batch is committed; the job must live as long."""
        self.wait_for(lambda: self.checkpoint.committed >= last, what, timeout)

    def wait(self, *, until: Callable[[], bool] | None = None, timeout: float = 300.0) -> Life:
        """Wait for its end; see `Job.run`."""
        end = time.monotonic() + timeout
        outside = False
        while self.process.poll() is None:
            if until is not None and until():
                self.kill()
                outside = True
            elif time.monotonic() > end:
                self.kill()
                raise AssertionError(f"the job did not end within {timeout:g} s:\n{self.log[-8000:]}")
            time.sleep(0.02 if until is None else 0.0005)
        progress = self.folder / "progress"
        reports = progress.read_text(encoding="utf-8").splitlines() if progress.exists() else []
        return Life(
            self.process.returncode,
            outside or (self.folder / "killed").exists(),
            self.log,
            tuple(json.loads(report) for report in reports),
        )


@attrs.frozen
class Checkpoint:
    """What Spark has written down of a query."""

    folder: Path

    @property
    def planned(self) -> int:
        """The id of the last batch in the offset log; -1 if there is none."""
        return _last(self.folder / "offsets")

    @property
    def committed(self) -> int:
        """The id of the last batch in the commit log; -1 if there is none."""
        return _last(self.folder / "commits")

    @property
    def open(self) -> int | None:
        """The id of the batch that is planned and not committed."""
        return self.planned if self.planned > self.committed else None

    def offsets(self, batch: int) -> Offsets:
        """The offsets where a batch ends."""
        lines = (self.folder / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
        return Offsets.from_json(json.loads(lines[2]))

    def ranges(self, batch: int) -> tuple[Range, ...]:
        """What a batch reads."""
        before = self.offsets(batch - 1) if batch else attrs.evolve(self.offsets(0), positions={}, begin={})
        return self.offsets(batch).ranges_from(before)


def _last(folder: Path) -> int:
    try:
        return max((int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()), default=-1)
    except FileNotFoundError:
        return -1


COLUMNS = [
    {"name": "producer", "type": "STRING"},
    {"name": "lane", "type": "INT"},
    {"name": "seq", "type": "BIGINT"},
    {"name": "transaction", "type": "STRING"},
]
_NAME = [{"name": "name", "type": "STRING"}]


def copy_tables(
    kafka: RunningKafka,
    source: str,
    target: str,
    *,
    per_batch: int | None = None,
    reading: Mapping[str, Any] | None = None,
    writing: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Tables ``source`` and ``target`` of marked records (`tests.reliability.oracle.Mark`), keys and values alike.

    Args:
        kafka: Where both are.
        source: The topic that is read, from its earliest records.
        target: The topic that is written.
        per_batch: The most records of a batch.
        reading: More options of the source, under Flink's keys.
        writing: More options of the target.
    """
    common = {
        "connector": "kafka",
        "properties.bootstrap.servers": kafka.bootstrap_servers,
        "key.format": "raw",
        "key.fields": "name",
        "value.format": "json",
        "value.fields-include": "EXCEPT_KEY",
    }
    limit = {"scan.max-records-per-trigger": per_batch} if per_batch else {}
    start = {"scan.startup.mode": "earliest-offset", "scan.topic-partition-discovery.interval": "1 s"}
    return {
        "tables": [
            {
                "name": name,
                "columns": [*_NAME, *COLUMNS],
                "options": {**common, "topic": topic, **options},
            }
            for name, topic, options in (
                ("source", source, {**start, **limit, **(reading or {})}),
                ("target", target, dict(writing or {})),
            )
        ]
    }
