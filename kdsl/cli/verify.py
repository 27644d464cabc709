"""``kdsl verify IN OUT``: whether one topic contains each record of another exactly once and in order."""

from __future__ import annotations

from typing import Annotated

import attrs
import typer

from kdsl import load
from kdsl.cli.clusters import require_brokers, with_cluster
from kdsl.cli.console import out, print_json, progress
from kdsl.cli.grid import Grid
from kdsl.cluster import Cluster
from kdsl.diagnostics.topic_records import plan_raw_read
from kdsl.diagnostics.verify import Comparison, Identity, Side, compare
from kdsl.errors import nearest, pluralize

_WHOLE: tuple[Identity, ...] = ("record", "key", "value")
_FIX = "write record, key, value or header:NAME; or column names, if both sides are tables as orders.py:Orders"
_MEANING = {
    "lost": "in IN, but not in OUT",
    "duplicated": "in OUT more often than in IN",
    "foreign": "in OUT, but not in IN",
    "reordered": "in OUT before a record that they follow in IN",
}


@with_cluster()
def verify(
    source: Annotated[str, typer.Argument(metavar="IN", help="A topic, or a table as orders.py:Orders")],
    target: Annotated[str, typer.Argument(metavar="OUT", help="A topic, or a table as orders.py:Orders")],
    by: Annotated[
        str, typer.Option("--by", help="What identifies a record: record, key, value, header:NAME, or columns a,b")
    ] = "record",
    cluster: Cluster | None = None,
    committed: Annotated[bool, typer.Option(help="Read only committed transactions.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare two topics: which records are lost, duplicated or reordered.

    Exits with 0 if OUT contains each record of IN exactly once and in order, otherwise with 1. Exits with 2 if
    --by contains an empty name, or names columns although a side is a topic and not a table; or if a side is a topic,
    and no brokers are named.
    """
    level = {"isolation.level": "read_committed" if committed else "read_uncommitted"}
    sides = [_side(name, cluster, level) for name in (source, target)]
    header = by.removeprefix("header:") if by.startswith("header:") else None
    columns = [] if by in _WHOLE or header is not None else [name.strip() for name in by.split(",")]
    if header == "" or "" in columns:
        raise typer.BadParameter(f"{by!r} contains an empty name; {_FIX}", param_hint="--by")
    bare = [name for name, side in zip((source, target), sides, strict=True) if not side.plan.columns.fields]
    if bare and columns:
        message = f"{by!r}{nearest(by, _WHOLE)} names columns, but {bare[0]!r} is a topic and has none; {_FIX}"
        raise typer.BadParameter(message, param_hint="--by")
    with progress(f"comparing {source} with {target}"):
        comparison = compare(
            *sides, by=columns or next((whole for whole in _WHOLE if whole == by), "record"), header=header
        )
    if as_json:
        print_json({**attrs.asdict(comparison), "equal": comparison.equal})
    else:
        _print(comparison, source, target)
    raise typer.Exit(0 if comparison.equal else 1)


def _side(name: str, cluster: Cluster | None, level: dict[str, str]) -> Side:
    """Return what is compared for a table of a file, or for a topic of the cluster.

    The client properties ``level`` replace those of its cluster.
    """
    if load.names_table(name):
        table = load.table(name)
        return Side(table.read_plan(cluster=cluster), table.cluster(cluster).with_properties(level))
    return Side(plan_raw_read(name), require_brokers(cluster, name).with_properties(level))


def _print(comparison: Comparison, source: str, target: str) -> None:
    """Print the comparison as a table, and below it whether the topics are equal."""
    title = f"{source}: {pluralize(comparison.read, 'record')}; {target}: {comparison.written:,}"
    grid = Grid(title, ("", "records", "meaning", "for example"), right=("records",))
    for kind, meaning in _MEANING.items():
        some = ", ".join(f"{e.topic}[{e.partition}]@{e.offset}" for e in comparison.examples.get(kind, ()))
        count = getattr(comparison, kind)
        grid.add_row(kind, f"{count:,}", meaning, some, style="red" if count else "")
    out.print(grid)
    out.print("equal" if comparison.equal else "different", style="green" if comparison.equal else "red")
