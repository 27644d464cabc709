"""``kdsl run``: a script of SQL on Spark."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as Grid

from kdsl.cli import load
from kdsl.cli.clusters import (
    Bootstrap,
    ClusterFile,
    ClusterName,
    Property,
    RegistryProperty,
    RegistryUrl,
    given_cluster,
    pairs,
)
from kdsl.cli.console import err, out, print_problem, progress
from kdsl.errors import ResolveError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kdsl.script.model import Job

_MASTER = "SPARK_MASTER"


def run(
    file: Annotated[Path, typer.Argument(help="A script of SQL: CREATE TABLE …; INSERT INTO … SELECT …;")],
    bootstrap: Bootstrap = None,
    cluster_file: ClusterFile = None,
    cluster_name: ClusterName = None,
    properties: Property = None,
    registry: RegistryUrl = None,
    registry_properties: RegistryProperty = None,
    checkpoint: Annotated[str | None, typer.Option(help="The folder of the progress; each INSERT has its own.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what there is now, write it, and end.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plans; start neither Spark nor Kafka.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("-D", "--set", help="A setting, as execution.runtime-mode=batch.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("-c", "--conf", help="A setting of Spark, as spark.driver.memory=4g.")
    ] = None,
) -> None:
    """Run a script of SQL: its tables are declared, its INSERTs run until they end or Ctrl-C stops them.

    Ends with 0 when all is done or was stopped, with 1 when the script is wrong or a query fails.
    """
    from kdsl.script.plan import plan_script

    given = given_cluster(bootstrap, cluster_file, cluster_name, properties, registry, registry_properties)
    first, sparks = pairs(settings, "--set"), pairs(conf, "--conf")
    try:
        plan = plan_script(load.script(file), given, first)
    except load.TargetError as e:
        raise typer.BadParameter(str(e), param_hint="FILE") from None
    except ResolveError as e:
        for problem in e.problems:
            print_problem(problem)
        raise typer.Exit(1) from None
    for warning in plan.warnings:
        print_problem(warning)
    if dry_run:
        from kdsl.script.show import show_script

        out.print(show_script(plan), markup=False, highlight=False, soft_wrap=True)
        return
    if not plan.jobs:
        out.print("the script declares tables, and writes to none", highlight=False)
        return
    from kdsl.script.run import Ways, run_script

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with progress("starting Spark"):
        spark = session(file.stem, sparks)
    try:
        ways = Ways(given, checkpoint, once, show, lambda line: err.print(line, highlight=False), stopping)
        run_script(plan, spark, ways)
    finally:
        spark.stop()


def session(name: str, conf: dict[str, str] | None = None) -> SparkSession:
    """The session that a script runs in: one that is there, or one on this machine that listens on loopback only."""
    from pyspark.sql import SparkSession

    from kdsl.demo import quiet

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    defaults: dict[str, Any] = {
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.timeType.enabled": "true",
    }
    builder = SparkSession.builder.appName(f"kdsl run {name}")
    if _MASTER not in os.environ and "spark.master" not in (conf or {}):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        defaults |= {
            "spark.master": "local[*]",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # Each is a task in every batch of a stateful query.
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        }
    elif _MASTER in os.environ:
        defaults["spark.master"] = os.environ[_MASTER]
    for key, value in {**defaults, **(conf or {})}.items():
        builder = builder.config(key, value)
    with quiet():
        return builder.getOrCreate()


def show(df: DataFrame, job: Job) -> None:
    """Show the rows of a query as a table."""
    from kdsl.formats import ROW_KIND

    rows = df.collect()
    if not rows and job.streaming:
        return
    grid = Grid(title=job.name, title_justify="left")
    names = ["op" if name == ROW_KIND else name for name in df.columns]
    for name in names:
        grid.add_column(name, overflow="fold")
    for row in rows:
        grid.add_row(*("NULL" if value is None else str(value) for value in row))
    out.print(grid)
