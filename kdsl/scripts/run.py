"""Runs the plan of a script on Spark: tables and views become temporary views, and each INSERT a query."""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO
from zoneinfo import ZoneInfo

import attrs

from kdsl.catalog.stored import store
from kdsl.cluster import Cluster
from kdsl.declare.start_and_end import StartAt
from kdsl.errors import KdslError
from kdsl.formats import ROW_KIND
from kdsl.ingest.run.query import SharedIngestion, explain_end, start_ingestions
from kdsl.plan.model import Watermark
from kdsl.run.checkpoint.folder import open_folder
from kdsl.run.dataframes.changelog_text import changelog_lines
from kdsl.run.dataframes.watermark import delay_of, mark_instants, with_instants, with_watermark
from kdsl.run.listeners.watch import error_of
from kdsl.run.session import available_cores, change_settings, check_spark, get_zone
from kdsl.scripts.checkpoint_folders import group_jobs_by_base, open_folders
from kdsl.scripts.datagen import NUMBER
from kdsl.scripts.options import PrintOptions
from kdsl.scripts.queries.scopes import QueryColumns
from kdsl.scripts.queries.translator import TranslatedQuery as Translated
from kdsl.scripts.script_plan import AnyJob, CopyJob, Job, Listing, ScriptPlan, ScriptTable, View
from kdsl.spark_internals.errors import find_reason
from kdsl.spark_internals.sql_text import parse_column, run_sql
from kdsl.types import model as t
from kdsl.types.spark import spark_type_name
from kdsl.types.sql import quote_name
from kdsl.types.zones import find_offset, region_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kdsl.plan.model import OutputMode

_log = logging.getLogger("kdsl.scripts")
_ZONE = "spark.sql.session.timeZone"


class ScriptError(KdslError):
    """A job of a script failed while it ran."""


@attrs.frozen
class RunOptions:
    """How a script is run.

    Attributes:
        cluster: The Kafka cluster; None if tables name their brokers.
        checkpoint: The folder of the checkpoints; it takes precedence over the script's.
        once: Read the records that exist now, one job after the other, and end.
        show: Called with the rows of a query that no ``INSERT`` takes; by default they are printed.
        report_progress: Called with a line for each job that starts, ends or is stopped.
        stopping: Set to stop the streams.
        starts: The startup positions of tables without a checkpoint, by name; the others start as declared.
        on_end: Called with each stream that has ended or was stopped, while the session still runs.
        show_listing: Called with what ``SHOW`` and ``DESCRIBE`` show; by default it is printed.
    """

    cluster: Cluster | None = None
    checkpoint: str | None = None
    once: bool = False
    show: Callable[[DataFrame, Job], None] | None = None
    report_progress: Callable[[str], None] = _log.info
    stopping: threading.Event = attrs.field(factory=threading.Event)
    starts: Mapping[str, StartAt] = attrs.field(factory=dict, kw_only=True)
    on_end: Callable[[AnyJob, StreamingQuery], None] | None = attrs.field(default=None, kw_only=True)
    show_listing: Callable[[Listing], None] | None = attrs.field(default=None, kw_only=True)


def run_script(plan: ScriptPlan, spark: SparkSession, options: RunOptions | None = None) -> None:
    """Run the jobs of a script, and show its listings, in order. Streams run until they end, or until they are stopped.

    The next job waits for a batch; with ``once`` or ``SET 'table.dml-sync'`` the next statement also waits for streams.
    Otherwise streams run in parallel, as in Flink. The tables and views that a job reads become temporary views of the
    session, and replace others of these names. Without a folder for checkpoints, those of streams are temporary; with
    one, the choice of their folders and what was inferred is stored in it. Before it returns or fails, it stops the
    streams that still run; after ``stopping`` is set, it returns.

    Args:
        plan: The plan.
        spark: The session, in ANSI mode, which is Spark's default.
        options: How it runs.
    """
    check_spark(spark)
    if (spark.conf.get("spark.sql.ansi.enabled") or "true").lower() != "true":
        raise KdslError(
            "scripts need Spark's ANSI mode, in which a number that is out of range is an error and not NULL; set "
            "spark.sql.ansi.enabled to true"
        )
    if options is not None and options.checkpoint and any(job.at_once for job in plan.jobs):
        raise KdslError(
            "the script was planned without a checkpoint, but runs with one, so it is unknown how its checkpoints are "
            "laid out; pass the same checkpoint to plan_script and to RunOptions"
        )
    with tempfile.TemporaryDirectory(prefix="kdsl-script-", ignore_cleanup_errors=True) as folder:
        _ScriptRun(plan, spark, options or RunOptions(), folder).run()


class _ScriptRun:
    def __init__(self, plan: ScriptPlan, spark: SparkSession, options: RunOptions, folder: str) -> None:
        self.plan, self.spark, self.options, self.folder = plan, spark, options, folder
        self.running: list[tuple[AnyJob, StreamingQuery]] = []
        self.folders: dict[str, str] = {}

    def run(self) -> None:
        """Start all jobs and show all listings in order, and wait for the streams; those still running are stopped.

        What was inferred, and the choice of checkpoint folders, is stored first. With ``once`` or ``table.dml-sync``,
        the streams of a statement are waited for before the next one starts. After ``stopping`` is set, no job starts.
        """
        self.store_inferred()
        try:
            self.assign_checkpoints()
            for i, job in enumerate(self.plan.jobs):
                if self.options.stopping.is_set():
                    return
                self.show_listings(i)
                self.start_job(job)
                later = self.plan.jobs[i + 1 :]
                if (self.options.once or job.settings.wait) and not (later and later[0].group == job.group):
                    self.wait_for_streams()
            self.show_listings(len(self.plan.jobs))
            self.wait_for_streams()
        finally:
            self.stop_streams()

    def store_inferred(self) -> None:
        """Store what was inferred, if anything, in each checkpoint folder that streams use."""
        locations = {self.options.checkpoint or job.settings.folder for job in self.plan.jobs if job.streaming}
        for location in locations if self.plan.inferred else ():
            if location is not None:
                store(open_folder(self.spark, location), self.plan.inferred)

    def show_listings(self, after: int) -> None:
        """Show the listings whose place is after a number of jobs."""
        for one in self.plan.listings_after(after):
            show_listing(one, self.options)

    def start_job(self, job: AnyJob) -> None:
        """Create the views of a job, and start its stream, or write its batch to the end; report either.

        A stream is added to ``running``. After copies that end at what there is, wait for all streams.
        """
        if isinstance(job, CopyJob):
            self.running.append((job, self.start_copies(job)))
            self.options.report_progress(f"{job.name}: started")
            if job.ends:
                self.wait_for_streams()
            return
        with self.apply_settings(job):
            self.create_views(job, streaming=job.streaming)
            df = self.make_job_rows(job)
            if df.isStreaming:
                query = self.start_stream(job, df)
                self.running.append((job, query))
                self.options.report_progress(f"{job.name}: started")
            else:
                self.write_batch(job, df)
                self.options.report_progress(f"{job.name}: done")

    def start_copies(self, job: CopyJob) -> StreamingQuery:
        """Start the query of copies, with the checkpoint folder and the report of `checkpoint_folder`.

        Its effects are those of `start_ingestions`.
        """
        starts: list[StartAt | None] = [self.options.starts.get(copy.source) for copy in job.copies]
        if any(start != starts[0] for start in starts):
            raise KdslError(f"{job.name}: its tables are read together, and --start-at names only some of them")
        name = f"{job.settings.name}: {job.name}" if job.settings.name else job.name
        parts = []
        for copy in job.copies:
            pipeline = attrs.evolve(copy.ingestion.pipeline, name=name)  # type: ignore[misc]
            ingestion = attrs.evolve(copy.ingestion, pipeline=pipeline)
            own_name = copy.name if len(job.copies) > 1 else ""
            parts.append(SharedIngestion(ingestion, own_name, copy.new_table, copy.new_database))
        return start_ingestions(
            self.spark, parts, self.checkpoint_folder(job), once=self.options.once, start_at=starts[0]
        )

    @contextmanager
    def apply_settings(self, job: Job) -> Iterator[None]:
        """Apply the settings of a job to the session while the job starts, and restore them; a stream keeps its own."""
        settings = job.settings
        ours: dict[str, str] = {}
        if settings.zone:
            ours[_ZONE] = settings.zone
        if settings.parallelism:
            ours["spark.sql.shuffle.partitions"] = str(settings.parallelism)
        with change_settings(self.spark, {}, ours, purpose="a SET statement of the script"):
            self.check_windows(job)
            yield

    def check_windows(self, job: Job) -> None:
        """Check that windows of instants begin in Spark, which counts from midnight UTC, where they begin in Flink."""
        zone = get_zone(self.spark)
        zoned = [w for query in job.queries for w in query.windows if w.zoned and w.kind != "SESSION"]
        offsets = _zone_offsets(zone) if zoned else None
        moved = [w for w in zoned if offsets is None or any(offset % w.step for offset in offsets)]
        if moved:
            raise KdslError(
                f"{job.name}: {moved[0].kind} over a TIMESTAMP_LTZ would begin at midnight in UTC and not in {zone}; "
                "CAST the time to TIMESTAMP(3) in a computed column, or SET 'table.local-time-zone' = 'UTC'"
            )

    def assign_checkpoints(self) -> None:
        """Choose the checkpoint folders of the jobs that run as streams, and store them (`open_folders`).

        They are added to ``folders``. Jobs without a folder for checkpoints get none here.
        """
        for base, jobs in group_jobs_by_base(self.plan.jobs, self.options.checkpoint).items():
            self.folders |= open_folders(self.spark, base, jobs)

    # reading

    def create_views(self, job: Job, *, streaming: bool) -> None:
        """Create or replace Spark's temporary views of the tables and views that a job reads.

        Views of instants that these views need (`create_instant_views`) are created, too.
        """
        for name, table in job.tables.items():
            checkpoint = self.folders.get(job.name)
            df = self.read_table(table, streaming=streaming, checkpoint=checkpoint)
            df.createOrReplaceTempView(quote_name(name))
        for view in job.views:
            self.create_instant_views(view.query)
            df = run_sql(self.spark, view.query.text)
            names = [*view.columns.names, *([ROW_KIND] if view.query.changelog else [])]
            df = df.toDF(*names)
            if delays := self.find_missing_marks(view):
                df = mark_instants(df, delays)
            df.createOrReplaceTempView(quote_name(view.name))

    def find_missing_marks(self, view: View) -> dict[str, int]:
        """Return the watermark delay of each event-time column of a view that lacks Spark's watermark metadata.

        Delays are in milliseconds.
        """
        columns = view.query.columns
        unmarked = columns.unmarked if isinstance(columns, QueryColumns) else {}
        tables = {i: self.spark.table(quote_name(instants.source)) for i, instants in unmarked.items()}
        return {view.columns.names[i]: delay_of(tables[i], instants.column) for i, instants in unmarked.items()}

    def create_instant_views(self, query: Translated) -> None:
        """Create or replace the temporary views that a query reads instead of tables and views, which exist in Spark.

        Each has one column more: the instant of its wall-clock event time, with the watermark.
        """
        for view in query.instants:
            df = with_instants(self.spark.table(quote_name(view.source)), view.column)
            df.createOrReplaceTempView(quote_name(view.view))

    def read_table(self, table: ScriptTable, *, streaming: bool, checkpoint: str | None = None) -> DataFrame:
        """Read a topic, from the position in ``options.starts`` if it has one, or else as by `generate_rows`."""
        if table.topic is not None:
            cluster, start_at = self.options.cluster, self.options.starts.get(table.name)
            if not streaming:
                return table.topic.read(self.spark, cluster, start_at=start_at)
            return table.topic.read_stream(self.spark, cluster, start_at=start_at, checkpoint=checkpoint)
        return self.generate_rows(table, streaming=streaming)

    def generate_rows(self, table: ScriptTable, *, streaming: bool) -> DataFrame:
        """Create a DataFrame of a datagen table's rows, with its computed columns and, in a stream, watermarks.

        For a stream, the source `counter_source` is registered with the session. In a batch, a table without end has no
        rows.
        """
        rows = table.generated
        assert rows is not None
        tasks = rows.parallelism or available_cores(self.spark)
        if streaming:
            from kdsl.scripts import counter_source

            counter_source.register(self.spark)
            options = {"rows": "" if rows.rows is None else str(rows.rows), "rate": str(rows.per_second)}
            numbers = self.spark.readStream.format(counter_source.FORMAT).options(**options, tasks=str(tasks)).load()
        else:
            numbers = self.spark.range(0, rows.rows or 0, 1, tasks).toDF(NUMBER)
        df = numbers.select(*map(parse_column, rows.columns.values()))
        columns = table.declared.columns
        for column in columns:
            if column.role == "computed" and column.expression is not None:
                value = parse_column(f"CAST({column.expression.text} AS {spark_type_name(column.type)})")
                df = df.select("*", value.alias(column.name))
        for mark in table.declared.watermarks if streaming else ():
            wall_clock = isinstance(next(c.type for c in columns if c.name == mark.column), t.Timestamp)
            df = with_watermark(
                df, Watermark(mark.column, mark.delay), [c.name for c in columns], wall_clock=wall_clock
            )
        return df.select(*(quote_name(c.name) for c in columns))

    def make_job_rows(self, job: Job) -> DataFrame:
        """Create the rows of a job, whose views exist, with the columns of its sink, matched by position and cast.

        Those of a changelog begin with the column of the row kind. Spark's views of instants that the query needs are
        created, too.
        """
        from pyspark.sql import functions as F

        self.create_instant_views(job.query)
        df = run_sql(self.spark, job.query.text)
        if not job.query.changelog:
            names = [f"c{i}" for i in range(len(df.columns))]
        else:
            names = [*(f"c{i}" for i in range(len(df.columns) - 1)), ROW_KIND]
        df = df.toDF(*names)
        columns = [F.col(ROW_KIND)] if job.query.changelog else []
        for column in job.columns:
            value = "NULL" if column.index is None else f"c{column.index}"
            text = f"CAST({column.constant or value} AS {spark_type_name(column.type)})"
            columns.append(parse_column(text).alias(column.name))
        return df.select(*columns)

    # writing

    def write_batch(self, job: Job, df: DataFrame) -> None:
        """Write the rows of a batch to its sink, or show them without one; a blackhole computes and discards them."""
        sink = job.sink
        if sink is None:
            self.show_rows(df, job)
        elif sink.topic is not None:
            sink.topic.write(df, self.options.cluster)
        elif sink.connector == "print":
            print_rows(df, sink)
        else:
            df.write.format("noop").mode("overwrite").save()

    def show_rows(self, df: DataFrame, job: Job) -> None:
        """Call ``options.show`` with the rows of a query; if it is None, collect and print them to standard output."""
        if self.options.show is not None:
            self.options.show(df, job)
        else:
            _write_lines(changelog_lines(df), "", sys.stdout)

    def start_stream(self, job: Job, df: DataFrame) -> StreamingQuery:
        """Start the stream of a job with its checkpoint and trigger, and return Spark's query.

        It is reported if its progress is not stored (`checkpoint_folder`).
        """
        sink = job.sink
        trigger = self.choose_trigger(job)
        folder = self.checkpoint_folder(job)
        name = f"{job.settings.name}: {job.name}" if job.settings.name else job.name
        if sink is not None and sink.topic is not None:
            mode: OutputMode = "update" if job.aggregates else "append"  # of windows the last result, as in Flink
            return sink.topic.write_stream(
                df, self.options.cluster, checkpoint=folder, trigger=trigger, name=name, output_mode=mode
            )
        writer = df.writeStream.queryName(name).option("checkpointLocation", folder)
        if trigger:
            writer = writer.trigger(**trigger)
        if sink is not None and sink.connector == "blackhole":
            return writer.format("noop").outputMode("update" if job.aggregates else "append").start()
        write = (
            (lambda rows, _: print_rows(rows, sink))
            if sink is not None
            else (lambda rows, _: self.show_rows(rows, job))
        )
        return writer.foreachBatch(write).start()

    def choose_trigger(self, job: Job) -> Mapping[str, Any]:
        """Return the arguments of Spark's ``trigger()``; empty for its default.

        ``availableNow`` for ``once``, and if all tables of the job end and one is of ``datagen``; otherwise the
        interval of ``SET``, if it is above zero.
        """
        datagen = any(table.generated is not None for table in job.tables.values())
        if self.options.once or (job.ends and datagen):
            return {"availableNow": True}
        interval = job.settings.interval
        if interval is None or interval <= timedelta(0):
            return {}
        return {"processingTime": f"{interval // timedelta(milliseconds=1)} milliseconds"}

    def checkpoint_folder(self, job: AnyJob) -> str:
        """Return the folder of a job's checkpoint: the chosen one, or a temporary one.

        It is reported if the progress of an endless write to a topic is not stored.
        """
        if job.name in self.folders:
            return self.folders[job.name]
        if not job.ends and not self.options.once and job.writes_topic:
            self.options.report_progress(
                f"{job.name}: its progress is not stored; use --checkpoint DIR, or SET "
                "'execution.checkpointing.dir', to store it"
            )
        return f"{self.folder}/{job.name}"

    # waiting

    def wait_for_streams(self) -> None:
        """Wait until all running streams end, or until ``stopping`` is set.

        Each that ends is removed from ``running`` and passed to ``options.on_end``, whose errors are raised; one that
        succeeded is reported.
        """
        while self.running and not self.options.stopping.is_set():
            for job, query in list(self.running):
                if query.isActive:
                    continue
                self.running.remove((job, query))
                self.report_end(job, query)
                error = error_of(self.spark, query)
                if error is not None:
                    reason = find_reason(error)
                    if isinstance(job, CopyJob):
                        reason = explain_end(self.spark, query, self.checkpoint_folder(job)) or reason
                    raise ScriptError(f"{job.name} failed: {reason}") from error
                self.options.report_progress(f"{job.name}: done")
            if self.running:
                self.options.stopping.wait(0.1)

    def stop_streams(self) -> None:
        """Stop and report the streams that still run, call ``options.on_end`` for all in ``running``, and empty it.

        A batch that is being written is cancelled.
        """
        with ExitStack() as stack:  # calls all of them, even if one fails
            for job, query in reversed(self.running):
                stack.callback(self._stop_stream, job, query)
            self.running = []

    def _stop_stream(self, job: AnyJob, query: StreamingQuery) -> None:
        """Stop a stream if it runs, and report its end."""
        if query.isActive:
            query.stop()
            self.options.report_progress(f"{job.name}: stopped")
        self.report_end(job, query)

    def report_end(self, job: AnyJob, query: StreamingQuery) -> None:
        """Call ``options.on_end`` with an ended stream, if it is set."""
        if self.options.on_end is not None:
            self.options.on_end(job, query)


def show_listing(listing: Listing, options: RunOptions) -> None:
    """Call ``options.show_listing`` with a listing, or print it to the standard output if that is None."""
    if options.show_listing is not None:
        options.show_listing(listing)
    else:
        _write_lines(listing.lines(), "", sys.stdout)


def print_rows(df: DataFrame, sink: ScriptTable) -> None:
    """Collect rows and print them as the connector ``print`` does: to the stream, with the prefix, of its options."""
    options = sink.options.options if sink.options is not None else None
    assert isinstance(options, PrintOptions)
    prefix = f"{options.identifier}> " if options.identifier else ""
    _write_lines(changelog_lines(df), prefix, sys.stderr if options.standard_error else sys.stdout)


def _write_lines(lines: Iterator[str], prefix: str, stream: TextIO) -> None:
    """Write lines with a prefix to a stream, and flush it."""
    for line in lines:
        stream.write(f"{prefix}{line}\n")
    stream.flush()


def _zone_offsets(zone: str) -> set[int] | None:
    """Return the offsets from UTC, in milliseconds, that a zone has from 1970 to 2037; None for an unknown zone."""
    fixed = find_offset(zone)
    if fixed is not None:
        return {round(fixed.total_seconds() * 1000)}
    try:
        region = ZoneInfo(region_name(zone))
    except (KeyError, ValueError, OSError):
        return None
    months = (datetime(1970 + i // 12, 1 + i % 12, 1, tzinfo=UTC) for i in range(68 * 12))
    return {round((month.astimezone(region).utcoffset() or timedelta()).total_seconds() * 1000) for month in months}
