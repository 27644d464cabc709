"""``kdsl lag``: how far a group, a table's group or a query is behind its topics, as a live table."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from kdsl.cli import load
from kdsl.cli.clusters import WHERE, Bootstrap, ClusterFile, ClusterName, Property, given_cluster
from kdsl.cli.console import out, print_json, progress
from kdsl.errors import KdslError
from kdsl.resolve.model import Topics

if TYPE_CHECKING:
    from kdsl.inspect.lag import Lag, LagReader, PartitionLag

_PATIENCE = 5.0
"""How long the brokers may take to answer while the table is live, in seconds; then it says that they do not."""
_NUMBERS = ("current", "LSO", "high watermark", "lag", "lag in seconds")


def lag(
    target: Annotated[
        str | None, typer.Argument(help="A table whose group is meant: orders.py:Orders, tables.yaml:orders")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="A consumer group.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="The checkpoint folder of a query: its last finished batch is meant.")
    ] = None,
    bootstrap: Bootstrap = None,
    cluster_file: ClusterFile = None,
    cluster_name: ClusterName = None,
    properties: Property = None,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds from one look to the next.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once; also where the output is no terminal.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Look once, and print one JSON document.")] = False,
    fail_above: Annotated[
        int | None, typer.Option(min=0, help="Look once; end with 1 where the lag is more records than this.")
    ] = None,
) -> None:
    """Show how far a consumer group or a query is behind, partition by partition.

    Ends with 0, or with 1 where the group, the checkpoint or a broker is not there, or the lag is above --fail-above.
    """
    from kdsl.inspect.lag import LagReader

    if group is not None and checkpoint is not None:
        raise typer.BadParameter("write one of --group and --checkpoint", param_hint="--checkpoint")
    given = given_cluster(bootstrap, cluster_file, cluster_name, properties)
    cluster = given
    topics: Topics | None = None
    if target is not None:
        table = load.table(target)
        plan = table.read_plan(cluster=given)
        cluster = table.cluster(given)
        if checkpoint is None and group is None:
            group = cluster.connector().group_id or plan.group_id
            topics = plan.topics
    if group is None and checkpoint is None:
        raise typer.BadParameter("write a table, --group or --checkpoint", param_hint="TARGET")
    if cluster is None:
        raise typer.BadParameter(f"say where the brokers are: a table that does, {WHERE}", param_hint="--bootstrap")
    live = not (as_json or once or fail_above is not None) and out.is_terminal
    with LagReader(cluster, _PATIENCE if live else None) as reader:
        look = _looking(reader, group, checkpoint, topics)
        with progress(f"asking {cluster.bootstrap_servers}"):
            found = look()
        if live:
            _live(look, found, every)
    if as_json:
        print_json(_document(found))
    elif not live:
        out.print(_grid(found))
    if fail_above is not None and found.total > fail_above:
        raise typer.Exit(1)


def _looking(reader: LagReader, group: str | None, checkpoint: str | None, topics: Topics | None) -> Callable[[], Lag]:
    from kdsl.inspect.lag import checkpoint_positions

    def look() -> Lag:
        if checkpoint is not None:
            batch, positions = checkpoint_positions(checkpoint)
            return reader.lag_of(f"checkpoint {checkpoint}, batch {batch}", positions)
        assert group is not None
        more = reader.topics_like(topics.names, topics.pattern) if topics is not None else []
        return reader.lag_of(f"group {group}", reader.group_positions(group), more)

    return look


def _live(look: Callable[[], Lag], found: Lag, every: float) -> None:
    """Show it again and again, until the user has seen enough. What was seen last stays while brokers do not answer."""
    trouble: tuple[datetime, str] | None = None
    try:
        with Live(_grid(found), console=out, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                try:
                    found, trouble = look(), None
                except KdslError as e:
                    trouble = (trouble[0] if trouble else datetime.now().astimezone(), str(e))
                live.update(_grid(found, trouble), refresh=True)
    except KeyboardInterrupt:
        return


def _grid(found: Lag, trouble: tuple[datetime, str] | None = None) -> Grid:
    """The lag as a table; below it since when, and why, it cannot be had any more."""
    grid = Grid(title=found.of, title_justify="left", show_footer=True, caption_justify="left")
    if trouble is not None:
        since, why = trouble
        grid.caption = Text(f"as it was before {since:%H:%M:%S}; asked again and again: {why}", style="bold red")
    grid.add_column("topic", "total", overflow="fold")
    grid.add_column("partition", justify="right")
    totals = {"lag": f"{found.total:,}", "lag in seconds": _seconds(found.seconds)}
    for name in _NUMBERS:
        grid.add_column(name, totals.get(name, ""), justify="right")
    for one in found.partitions:
        grid.add_row(*_row(one), style="yellow" if one.lag else None)
    return grid


def _row(one: PartitionLag) -> list[str]:
    current = "none" if one.current is None else f"{one.current:,}{' (expired)' if one.expired else ''}"
    lag_text = "" if one.lag is None else f"{one.lag:,}"
    return [
        one.topic, str(one.partition), current, f"{one.stable:,}", f"{one.end:,}", lag_text, _seconds(one.seconds)
    ]  # fmt: skip


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:,.1f}"


def _document(found: Lag) -> dict[str, Any]:
    return {
        "of": found.of,
        "lag": found.total,
        "seconds": found.seconds,
        "partitions": [{**attrs.asdict(one), "expired": one.expired} for one in found.partitions],
    }
