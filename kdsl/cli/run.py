"""``kdsl run``: run a SQL script on Spark."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from kdsl import load
from kdsl.cli.clusters import parse_pairs, with_cluster
from kdsl.cli.console import err, log_lines, out, print_problem, print_status, print_text, progress
from kdsl.cli.grid import Grid
from kdsl.cli.starts import table_starts
from kdsl.cluster import Cluster
from kdsl.errors import ResolveError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kdsl.scripts.script_plan import AnyJob, Job, Listing, ScriptPlan

_MASTER = "SPARK_MASTER"
_WIDEST = 1_000_000


@with_cluster()
def run(
    file: Annotated[Path, typer.Argument(help="A SQL script: CREATE TABLE …; INSERT INTO … SELECT …;")],
    cluster: Cluster | None = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="The checkpoint folder; each INSERT has its own in it.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Process the records that exist now, and exit.")] = False,
    start_at: Annotated[
        list[str] | None,
        typer.Option(
            "--start-at",
            help="Where tables start without a checkpoint, overriding the script: earliest, latest, group-offsets, "
            "a time as 2025-01-31T08:00:00Z, or checkpoint:FOLDER, where the query of that checkpoint has stopped; "
            "for one table TABLE=…. May be repeated.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows of a SELECT as JSON, one per line.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the plans, and run nothing. Only where columns are inferred is the cluster asked for them, and "
            "Spark started to read those stored with a checkpoint.",
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Serve metrics for Prometheus on this port; 0 chooses a free one."),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(help="The address to serve metrics on; the default is reachable only from this machine.")
    ] = "127.0.0.1",
    with_report: Annotated[
        bool, typer.Option("--report", help="Print what each query read and wrote when it ends.")
    ] = False,
    infer_anew: Annotated[
        bool,
        typer.Option(
            "--infer-anew", help="Infer the columns of tables anew, and replace those stored with the checkpoint."
        ),
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("-D", "--set", help="A setting of the script, as execution.runtime-mode=batch.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("-c", "--conf", help="A Spark setting, as spark.driver.memory=4g.")
    ] = None,
) -> None:
    """Run a SQL script: declare its tables, and run its INSERTs until they end or Ctrl-C or SIGTERM stops them.

    Exits with 0 if everything has ended or was stopped, with 1 if the script has errors or a query fails, and with 2 if
    the file cannot be read or an option is wrong.
    """
    script_settings, spark_settings = parse_pairs(settings, "--set"), parse_pairs(conf, "--conf")
    try:
        plan = _plan_script(file, cluster, script_settings, checkpoint, spark_settings, infer_anew=infer_anew)
    except load.TargetError as e:
        raise typer.BadParameter(str(e), param_hint="FILE") from None
    except ResolveError as e:
        for problem in e.problems:
            print_problem(problem)
        raise typer.Exit(1) from None
    starts = table_starts(start_at, [table.topic for table in plan.tables if table.topic is not None])
    for warning in plan.warnings:
        print_problem(warning)
    if dry_run:
        from kdsl.scripts.checkpoint_folders import predict_folders
        from kdsl.scripts.show import show_script

        folders = predict_folders(plan.jobs, checkpoint)
        print_text(show_script(plan, folders))
        return
    if not plan.jobs:
        for one in plan.listings:
            (show_listing_json if as_json else show_listing)(one)
        if not plan.listings:
            out.print("the script declares tables but writes to none", highlight=False)
        return
    from kdsl.scripts.run import RunOptions, run_script

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    options = RunOptions(
        cluster,
        checkpoint,
        once,
        show_json if as_json else show,
        print_status,
        stopping,
        starts=starts,
        on_end=_print_report if with_report else None,
        show_listing=show_listing_json if as_json else show_listing,
    )
    with log_lines(printed=plan.warnings), _serve_metrics(metrics_port, metrics_host):
        with progress("starting Spark"):
            spark = session(file.stem, spark_settings)
        try:
            run_script(plan, spark, options)
        finally:
            spark.stop()


def _plan_script(
    file: Path,
    cluster: Cluster | None,
    settings: dict[str, str],
    checkpoint: str | None,
    spark_settings: dict[str, str],
    *,
    infer_anew: bool,
) -> ScriptPlan:
    """Plan a script; if columns are inferred and a checkpoint may have them, Spark is started, and stays, to read it.

    Other columns are inferred again, for which the cluster is asked.
    """
    from kdsl.catalog.stored import Inference, read_stored
    from kdsl.run.checkpoint.folder import open_folder
    from kdsl.scripts.planner import UNCHECKED, check_script, plan_script

    script = load.script(file)
    alone, problems = check_script(script, cluster, settings, checkpoint=checkpoint)
    location = checkpoint or alone.checkpoint
    stored = {}
    if location is not None and not infer_anew and any(p.code == UNCHECKED for p in problems):
        with progress("starting Spark"):
            spark = session(file.stem, spark_settings)
        stored = read_stored(open_folder(spark, location))
    inference = Inference(stored, location=location or "")
    return plan_script(script, cluster, settings, checkpoint=checkpoint, inference=inference)


@contextmanager
def _serve_metrics(port: int | None, host: str) -> Iterator[None]:
    """Serve the metrics of all queries while the body runs, if a port is given; the address is printed."""
    if port is None:
        yield
        return
    from kdsl.run.metrics.prometheus import serve_metrics

    try:
        server = serve_metrics(port, host)
    except OSError as e:
        raise typer.BadParameter(
            f"cannot listen on {host}:{port}: {e.strerror or e}", param_hint="--metrics-port"
        ) from e
    with server:
        print_status(f"metrics: {server.url}")
        yield


def _print_report(job: AnyJob, query: StreamingQuery) -> None:
    """Print the report of a query on the standard error."""
    from kdsl.cli.report import report
    from kdsl.run.metrics.observer import metrics

    err.print(report(job.name, metrics(query)))


def session(name: str, conf: dict[str, str] | None = None) -> SparkSession:
    """Get the running session, or create one on the master in ``conf`` or ``$SPARK_MASTER``.

    Without a master it runs on this machine and listens on the loopback address only. ``PYSPARK_PYTHON`` and, without
    a master, ``SPARK_LOCAL_IP`` are set if they are not. A running session gets those settings that Spark can change.
    What this process writes to standard error meanwhile is hidden. Spark's errors are raised unchanged.
    """
    from kdsl.run.session import start_session

    defaults = {
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.timeType.enabled": "true",
        "spark.sql.ansi.enabled": "true",  # the default since Spark 4.0; scripts need it
    }
    if _MASTER not in os.environ and "spark.master" not in (conf or {}):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        defaults |= {
            "spark.master": "local[*]",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # Each partition is a task in every batch of a stateful query.
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        }
    elif _MASTER in os.environ:
        defaults["spark.master"] = os.environ[_MASTER]
    return start_session(f"kdsl run {name}", {**defaults, **(conf or {})})


def show_json(df: DataFrame, _: Job) -> None:
    """Collect the rows of a query, and print them as JSON, one per line; ``op`` is the row kind of a changelog."""
    from kdsl.formats import ROW_KIND

    rows = df.withColumnRenamed(ROW_KIND, "op")
    for row in rows.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) AS row").collect():
        sys.stdout.write(f"{row.row}\n")
    sys.stdout.flush()


def show_listing(listing: Listing) -> None:
    """Print what a statement shows as a table."""
    grid = Grid(columns=listing.columns)
    for row in listing.rows:
        grid.add_row(*row)
    console = out if out.is_terminal else Console(width=_WIDEST)
    console.print(grid)


def show_listing_json(listing: Listing) -> None:
    """Print what a statement shows as JSON, one row per line."""
    for row in listing.rows:
        sys.stdout.write(f"{json.dumps(dict(zip(listing.columns, row, strict=True)), ensure_ascii=False)}\n")
    sys.stdout.flush()


def show(df: DataFrame, job: Job) -> None:
    """Collect the rows of a query, and print them as a table with the job's name above it.

    It is as wide as the terminal, or in a pipe as wide as the rows. Nothing is printed for a batch of a stream without
    rows.
    """
    from kdsl.formats import ROW_KIND
    from kdsl.run.dataframes.collect import collect_arrow
    from kdsl.types.arrow_values import python_values

    rows = collect_arrow(df.toDF(*(f"c{i}" for i in range(len(df.columns)))))  # columns may have the same name
    if not rows.num_rows and job.streaming:
        return
    grid = Grid(job.name, ["op" if name == ROW_KIND else name for name in df.columns])
    for row in zip(*map(python_values, rows.columns), strict=True):
        grid.add_row(*row)
    console = out if out.is_terminal else Console(width=_WIDEST)  # print(width=…) never exceeds the console's own
    console.print(grid)
