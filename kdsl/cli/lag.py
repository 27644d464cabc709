"""``kdsl lag``: how far a group or a query lags behind its topics, as a live table."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer
from rich.live import Live
from rich.text import Text

from kdsl import load
from kdsl.cli.clusters import WHERE, with_cluster
from kdsl.cli.console import is_notebook, out, print_json, progress
from kdsl.cli.grid import Grid
from kdsl.client_settings.bootstrap import show_servers
from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.resolve.model import Topics
from kdsl.table import Table

if TYPE_CHECKING:
    from kdsl.diagnostics.lag import Lag, LagReader

_TIMEOUT = 5.0
"""How long the brokers may take to answer while the table is live, in seconds, before it shows an error."""


@with_cluster(registry=False)
def lag(
    target: Annotated[
        str | None, typer.Argument(help="The table whose consumer group to show: orders.py:Orders, tables.yaml:orders")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="A consumer group.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="The checkpoint folder of a query; shows its last completed batch.")
    ] = None,
    cluster: Cluster | None = None,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between updates.")] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print once and exit; the default for pipes and notebooks.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and exit.")] = False,
    fail_above: Annotated[
        int | None,
        typer.Option(min=0, help="Print once; exit with 1 if the lag exceeds this number of records, or is unknown."),
    ] = None,
) -> None:
    """Show how far a consumer group or a query lags behind, for each partition.

    Exits with 1 if the table has errors or declares no group to which its streams commit, if the group, the checkpoint
    or a broker cannot be found, or if the lag exceeds --fail-above or is unknown, because the group has committed
    nothing in a partition with records.
    Exits with 2 if both --group and --checkpoint are named, or if neither they nor a table, or no brokers are named.
    """
    from kdsl.diagnostics.lag import LagReader

    if group is not None and checkpoint is not None:
        raise typer.BadParameter("use only one of --group and --checkpoint", param_hint="--checkpoint")
    topics: Topics | None = None
    if target is not None:
        table = load.table(target)
        plan = table.read_plan(cluster=cluster)
        cluster = table.cluster(cluster)
        if checkpoint is None and group is None:
            group = cluster.kdsl_settings.group_id or plan.group_id
            topics = plan.topics
            _check_commits(table, cluster)
    if group is None and checkpoint is None:
        raise typer.BadParameter("name a table, or use --group or --checkpoint", param_hint="TARGET")
    if cluster is None:
        raise typer.BadParameter(
            f"no table is named, so the brokers are unknown: name a table of a cluster, or use {WHERE}",
            param_hint="TARGET",
        )
    live = not (as_json or once or fail_above is not None) and _can_update()
    with LagReader(cluster, _TIMEOUT if live else None) as reader:
        fetch = _make_fetch(reader, group, checkpoint, topics)
        with progress(f"asking {show_servers(cluster.bootstrap_servers)}"):
            report = fetch()
        if live:
            _update_live(fetch, report, every)
    if as_json:
        print_json(_write_document(report))
    elif not live:
        out.print(_grid(report))
    if fail_above is not None and (report.total > fail_above or report.unknown):
        raise typer.Exit(1)


def _check_commits(table: Table, cluster: Cluster) -> None:
    """Check that streams of a table commit their offsets to a group."""
    from kdsl.diagnostics.lag import LagError
    from kdsl.resolve.startup import commits_offsets

    if cluster.kdsl_settings.group_id is None and not commits_offsets(table.definition):
        raise LagError(
            f"{table.name} declares no consumer group, so its streams never commit their offsets to one; name the "
            "checkpoint of a query with --checkpoint FOLDER, or a group with --group, or declare one (group_id= in "
            "Python, properties.group.id in SQL and YAML)"
        )


def _can_update() -> bool:
    """Return whether the output is a terminal that somebody can stop with Ctrl-C; FORCE_COLOR does not make it one."""
    return out.is_terminal and out.file.isatty() and not is_notebook()


def _make_fetch(
    reader: LagReader, group: str | None, checkpoint: str | None, topics: Topics | None
) -> Callable[[], Lag]:
    """Return a function that asks for the lag of a checkpoint or, if it is None, of a group.

    For a group, ``topics`` are included with all their partitions, whether the group has read them or not. The
    function raises the errors of `LagReader.lag_of`, `LagReader.group_positions` and `checkpoint_positions`.
    """
    from kdsl.diagnostics.lag import checkpoint_positions

    def fetch() -> Lag:
        if checkpoint is not None:
            batch, positions = checkpoint_positions(checkpoint)
            return reader.lag_of(f"checkpoint {checkpoint}, batch {batch}", positions)
        assert group is not None
        more = reader.topics_like(topics.names, topics.pattern) if topics is not None else []
        return reader.lag_of(f"group {group}", reader.group_positions(group), more)

    return fetch


def _update_live(fetch: Callable[[], Lag], report: Lag, every: float) -> None:
    """Show the lag and update it until Ctrl-C; a KdslError is shown below the last report until an update succeeds."""
    trouble: tuple[datetime, str] | None = None
    try:
        with Live(_grid(report), console=out, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                try:
                    report, trouble = fetch(), None
                except KdslError as e:
                    trouble = (trouble[0] if trouble else datetime.now().astimezone(), str(e))
                live.update(_grid(report, trouble), refresh=True)
    except KeyboardInterrupt:
        return


def _grid(report: Lag, trouble: tuple[datetime, str] | None = None) -> Grid:
    """The lag as a table; below it since when, and why, it could not be updated."""
    from kdsl.diagnostics.lag import LAG_NUMBERS, format_seconds

    grid = Grid(report.of, show_footer=True)
    if trouble is not None:
        since, reason = trouble
        grid.note = Text(f"not updated since {since:%H:%M:%S}; retrying: {reason}", style="bold red")
    grid.add_column("topic", "total")
    grid.add_column("partition", justify="right")
    totals = {"lag": f"{report.total:,}", "lag in seconds": format_seconds(report.seconds)}
    for name in LAG_NUMBERS:
        grid.add_column(name, totals.get(name, ""), justify="right")
    for one in report.partitions:
        grid.add_row(*one.format_cells(), style="yellow" if one.lag else None)
    return grid


def _write_document(report: Lag) -> dict[str, Any]:
    """Convert a report to a JSON document with the keys ``of``, ``lag``, ``seconds`` and ``partitions``."""
    return {
        "of": report.of,
        "lag": report.total,
        "seconds": report.seconds,
        "partitions": [{**attrs.asdict(one), "expired": one.expired} for one in report.partitions],
    }
