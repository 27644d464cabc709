"""Runs the plan of a script on Spark: tables and views become temporary views, each INSERT a query."""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TextIO

import attrs

from kdsl.cluster import Cluster
from kdsl.declare.translate.values import spark_name
from kdsl.errors import KdslError
from kdsl.formats import ROW_KIND
from kdsl.plan.model import Watermark
from kdsl.run.frames.changelog_text import changelog_lines
from kdsl.run.frames.watermark import with_watermark
from kdsl.run.session import cores
from kdsl.script.datagen import NUMBER
from kdsl.script.model import Job, ScriptPlan, ScriptTable
from kdsl.script.options import PrintOptions
from kdsl.types.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kdsl.table import OutputMode

_log = logging.getLogger("kdsl.script")
_ZONE = "spark.sql.session.timeZone"


class ScriptError(KdslError):
    """A job of a script failed while it ran."""


@attrs.frozen
class Ways:
    """How a script is run.

    Attributes:
        cluster: Where the topics live; None where tables name their brokers.
        checkpoint: The folder of the progress; it wins over the script's.
        once: Read what there is now, job after job, and end.
        show: Gets the rows of a query by itself.
        tell: Gets what happens, a line each.
        stopping: Set to stop the streams.
    """

    cluster: Cluster | None = None
    checkpoint: str | None = None
    once: bool = False
    show: Callable[[DataFrame, Job], None] | None = None
    tell: Callable[[str], None] = _log.info
    stopping: threading.Event = attrs.field(factory=threading.Event)


def run_script(plan: ScriptPlan, spark: SparkSession, ways: Ways | None = None) -> None:
    """Run a script's jobs in order. Streams go on until they end, or until they are told to stop.

    A batch is waited for, and so is each stream where ``once`` is asked for; other streams run side by side, as those
    of the reference do.

    Args:
        plan: The plan.
        spark: The session, in ANSI mode, which is Spark's default.
        ways: How it is run.

    Raises:
        ScriptError: A job failed. The others are stopped.
        KdslError: A table cannot be read or written, or the session is not in ANSI mode.
    """
    if (spark.conf.get("spark.sql.ansi.enabled") or "true").lower() != "true":
        raise KdslError(
            "scripts need Spark's ANSI mode, in which a number that does not fit is an error and not NULL; set "
            "spark.sql.ansi.enabled to true"
        )
    with tempfile.TemporaryDirectory(prefix="kdsl-script-", ignore_cleanup_errors=True) as folder:
        _Run(plan, spark, ways or Ways(), folder).run()


class _Run:
    def __init__(self, plan: ScriptPlan, spark: SparkSession, ways: Ways, folder: str) -> None:
        self.plan, self.spark, self.ways, self.folder = plan, spark, ways, folder
        self.running: list[tuple[Job, StreamingQuery]] = []

    def run(self) -> None:
        try:
            for i, job in enumerate(self.plan.jobs):
                if self.ways.stopping.is_set():
                    return
                self.start(job)
                later = self.plan.jobs[i + 1 :]
                if (self.ways.once or job.settings.wait) and not (later and later[0].group == job.group):
                    self.wait()
            self.wait()
        finally:
            self.stop()

    def start(self, job: Job) -> None:
        with self.session(job):
            self.views(job, streaming=job.streaming and not self.at_once(job))
            df = self.rows(job)
            if df.isStreaming:
                query = self.stream(job, df)
                self.running.append((job, query))
                self.ways.tell(f"{job.name}: started")
            else:
                self.batch(job, df)
                self.ways.tell(f"{job.name}: done")

    @contextmanager
    def session(self, job: Job) -> Iterator[None]:
        """The settings of a job, in the session while it starts: a stream goes on with those that it started with."""
        settings = job.settings
        ours: dict[str, str] = {}
        if settings.zone:
            ours[_ZONE] = settings.zone
        if settings.parallelism:
            ours["spark.sql.shuffle.partitions"] = str(settings.parallelism)
        before = {name: self.spark.conf.get(name, None) for name in ours}
        for name, value in ours.items():
            self.spark.conf.set(name, value)
        try:
            self.check_windows(job)
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    self.spark.conf.unset(name)
                else:
                    self.spark.conf.set(name, old)

    def check_windows(self, job: Job) -> None:
        """Windows of instants begin at midnight UTC in Spark, and at midnight of the zone in the reference."""
        zone = self.spark.conf.get(_ZONE) or "UTC"
        zoned = [w for q in job.queries for w in q.windows if w.zoned and w.kind != "SESSION" and w.size > 900_000]
        if zoned and zone not in ("UTC", "Etc/UTC", "GMT", "Z", "+00:00"):
            raise KdslError(
                f"{job.name}: {zoned[0].kind} over a TIMESTAMP_LTZ would begin at midnight UTC, and not in {zone}; "
                "CAST the time to TIMESTAMP(3) in a computed column, or SET 'table.local-time-zone' = 'UTC'"
            )

    # reading

    def at_once(self, job: Job) -> bool:
        """Whether a stream is read as a batch: it ends, and keeps no progress. So its last windows come, too."""
        return job.ends and not (self.ways.checkpoint or job.settings.folder)

    def views(self, job: Job, *, streaming: bool) -> None:
        for name, table in job.tables.items():
            self.read(table, streaming=streaming).createOrReplaceTempView(quoted(name))
        for view in job.views:
            df = self.spark.sql(view.query.text)
            names = [*view.columns.names, *([ROW_KIND] if view.query.changelog else [])]
            df.toDF(*names).createOrReplaceTempView(quoted(view.name))

    def read(self, table: ScriptTable, *, streaming: bool) -> DataFrame:
        if table.topic is not None:
            cluster = self.ways.cluster
            return table.topic.read_stream(self.spark, cluster) if streaming else table.topic.read(self.spark, cluster)
        return self.generate(table, streaming=streaming)

    def generate(self, table: ScriptTable, *, streaming: bool) -> DataFrame:
        """The rows of a datagen table."""
        made = table.generated
        assert made is not None
        tasks = made.parallelism or cores(self.spark)
        if streaming:
            from kdsl.script import counter

            counter.register(self.spark)
            given = {"rows": "" if made.rows is None else str(made.rows), "rate": str(made.per_second)}
            numbers = self.spark.readStream.format(counter.FORMAT).options(**given, tasks=str(tasks)).load()
        else:
            numbers = self.spark.range(0, made.rows or 0, 1, tasks).toDF(NUMBER)
        df = numbers.selectExpr(*made.columns.values())
        for column in table.declared.columns:
            if column.role == "computed" and column.expression is not None:
                text = f"CAST({column.expression.text} AS {spark_name(column.type)}) AS {quoted(column.name)}"
                df = df.selectExpr("*", text)
        for mark in table.declared.watermarks if streaming else ():
            df = with_watermark(df, Watermark(mark.column, mark.delay))
        return df.select(*(quoted(c.name) for c in table.declared.columns))

    def rows(self, job: Job) -> DataFrame:
        """The rows of a job as its sink takes them: columns by position, then by the sink's names."""
        df = self.spark.sql(job.query.text)
        if not job.query.changelog:
            places = [f"c{i}" for i in range(len(df.columns))]
        else:
            places = [*(f"c{i}" for i in range(len(df.columns) - 1)), ROW_KIND]
        df = df.toDF(*places)
        made = [ROW_KIND] if job.query.changelog else []
        for column in job.columns:
            value = "NULL" if column.index is None else f"c{column.index}"
            made.append(f"CAST({column.constant or value} AS {spark_name(column.type)}) AS {quoted(column.name)}")
        return df.selectExpr(*made)

    # writing

    def batch(self, job: Job, df: DataFrame) -> None:
        sink = job.sink
        if sink is None:
            self.shown(df, job)
        elif sink.topic is not None:
            sink.topic.write(df, self.ways.cluster)
        elif sink.connector == "print":
            printed(df, sink)
        else:
            df.write.format("noop").mode("overwrite").save()

    def shown(self, df: DataFrame, job: Job) -> None:
        if self.ways.show is not None:
            self.ways.show(df, job)
        else:
            _write(changelog_lines(df), "", sys.stdout)

    def stream(self, job: Job, df: DataFrame) -> StreamingQuery:
        sink = job.sink
        trigger = self.trigger(job)
        folder = self.progress(job)
        name = f"{job.settings.name}: {job.name}" if job.settings.name else job.name
        if sink is not None and sink.topic is not None:
            mode: OutputMode = "update" if job.aggregates else "append"  # of windows the last result, as in Flink
            return sink.topic.write_stream(
                df, self.ways.cluster, checkpoint=folder, trigger=trigger, name=name, output_mode=mode
            )
        writer = df.writeStream.queryName(name).option("checkpointLocation", folder)
        if trigger:
            writer = writer.trigger(**trigger)
        if sink is not None and sink.connector == "blackhole":
            return writer.format("noop").outputMode("update" if job.aggregates else "append").start()
        write = (lambda rows, _: printed(rows, sink)) if sink is not None else (lambda rows, _: self.shown(rows, job))
        return writer.foreachBatch(write).start()

    def trigger(self, job: Job) -> Mapping[str, Any]:
        datagen = any(table.generated is not None for table in job.tables.values())
        if self.ways.once or (job.ends and datagen):
            return {"availableNow": True}
        interval = job.settings.interval
        if interval is None or interval <= timedelta(0):
            return {}
        return {"processingTime": f"{interval // timedelta(milliseconds=1)} milliseconds"}

    def progress(self, job: Job) -> str:
        base = self.ways.checkpoint or job.settings.folder
        if base is None:
            if not job.ends and not self.ways.once and job.sink is not None and job.sink.topic is not None:
                self.ways.tell(
                    f"{job.name}: its progress is not kept; --checkpoint DIR, or SET 'execution.checkpointing.dir', "
                    "keeps it"
                )
            base = self.folder
        return f"{base.rstrip('/')}/{job.name}"

    # waiting

    def wait(self) -> None:
        """Wait for all streams that run; the first failure ends it."""
        while self.running and not self.ways.stopping.is_set():
            for job, query in list(self.running):
                if query.isActive:
                    continue
                self.running.remove((job, query))
                error = query.exception()
                if error is not None:
                    raise ScriptError(f"{job.name} failed: {_reason(error)}") from error
                self.ways.tell(f"{job.name}: done")
            if self.running:
                self.ways.stopping.wait(0.1)

    def stop(self) -> None:
        """Stop the streams that still run, each after the batch that it is in."""
        for job, query in self.running:
            if query.isActive:
                query.stop()
                self.ways.tell(f"{job.name}: stopped")
        self.running = []


def printed(df: DataFrame, sink: ScriptTable) -> None:
    """Write rows as the connector ``print`` does."""
    options = sink.options.options if sink.options is not None else None
    assert isinstance(options, PrintOptions)
    prefix = f"{options.identifier}> " if options.identifier else ""
    _write(changelog_lines(df), prefix, sys.stderr if options.standard_error else sys.stdout)


def _write(lines: Iterator[str], prefix: str, stream: TextIO) -> None:
    for line in lines:
        stream.write(f"{prefix}{line}\n")
    stream.flush()


def _reason(error: BaseException) -> str:
    """What a streaming query failed with: the last line of Python's traceback in it, or its first line."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("kdsl.") and "Error: " in line]
    return (ours or lines or [type(error).__name__])[0].strip()
