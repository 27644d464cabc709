"""``kdsl verify IN OUT``: whether each record of one topic stands once, and in order, in another."""

from __future__ import annotations

from typing import Annotated

import attrs
import typer
from rich.table import Table as Grid

from kdsl.cli import load
from kdsl.cli.clusters import (
    WHERE,
    Bootstrap,
    ClusterFile,
    ClusterName,
    Property,
    RegistryProperty,
    RegistryUrl,
    given_cluster,
)
from kdsl.cli.console import out, print_json, progress
from kdsl.cluster import Cluster
from kdsl.declare.ddl.load import ENDINGS
from kdsl.errors import nearest
from kdsl.inspect.verify import Comparison, Identity, Side, compare
from kdsl.plan.model import ReadPlan
from kdsl.resolve import Topics
from kdsl.types import model as t

_WHOLE: tuple[Identity, ...] = ("record", "key", "value")
_WAYS = "write record, key, value or header:NAME; or columns, with tables as orders.py:Orders for both sides"
_MEANING = {
    "lost": "of IN, not in OUT",
    "duplicated": "in OUT more often than in IN",
    "foreign": "in OUT, not in IN",
    "reordered": "in OUT before one that they follow in IN",
}


def verify(
    source: Annotated[str, typer.Argument(metavar="IN", help="A topic, or a table as orders.py:Orders")],
    target: Annotated[str, typer.Argument(metavar="OUT", help="A topic, or a table as orders.py:Orders")],
    by: Annotated[
        str, typer.Option("--by", help="What identifies a record: record, key, value, header:NAME, or columns a,b")
    ] = "record",
    bootstrap: Bootstrap = None,
    cluster_file: ClusterFile = None,
    cluster_name: ClusterName = None,
    properties: Property = None,
    registry: RegistryUrl = None,
    registry_properties: RegistryProperty = None,
    committed: Annotated[bool, typer.Option(help="Read only what transactions have committed.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare two topics: which records are lost, stand twice, or come in another order.

    Ends with 0 when each record of IN stands once, and in order, in OUT, with 1 otherwise.
    """
    given = given_cluster(bootstrap, cluster_file, cluster_name, properties, registry, registry_properties)
    level = {"isolation.level": "read_committed" if committed else "read_uncommitted"}
    sides = [_side(name, given, level) for name in (source, target)]
    header = by.removeprefix("header:") if by.startswith("header:") else None
    columns = [] if by in _WHOLE or header is not None else [name.strip() for name in by.split(",")]
    if header == "" or "" in columns:
        raise typer.BadParameter(f"{by!r} names nothing; {_WAYS}", param_hint="--by")
    bare = [name for name, side in zip((source, target), sides, strict=True) if not side.plan.columns.fields]
    if bare and columns:
        message = f"{by!r}{nearest(by, _WHOLE)} would be columns, and {bare[0]!r} is a topic, which has none; {_WAYS}"
        raise typer.BadParameter(message, param_hint="--by")
    with progress(f"comparing {source} with {target}"):
        found = compare(*sides, by=columns or next((whole for whole in _WHOLE if whole == by), "record"), header=header)
    if as_json:
        print_json({**attrs.asdict(found), "equal": found.equal})
    else:
        _print(found, source, target)
    raise typer.Exit(0 if found.equal else 1)


def _side(name: str, given: Cluster | None, level: dict[str, str]) -> Side:
    if name.endswith((".py", *load.YAML, *ENDINGS)) or ":" in name:
        table = load.table(name)
        return Side(table.read_plan(cluster=given), table.cluster(given).with_properties(level))
    if given is None:
        raise typer.BadParameter(f"{name!r} is a topic; say where its brokers are: {WHERE}", param_hint="--bootstrap")
    empty = t.Row((), nullable=False)
    return Side(ReadPlan(name, Topics((name,)), empty, empty), given.with_properties(level))


def _print(found: Comparison, source: str, target: str) -> None:
    grid = Grid(title=f"{source}: {found.read:,} records; {target}: {found.written:,}", title_justify="left")
    for name in ("", "records", "meaning", "for example"):
        grid.add_column(name, justify="right" if name == "records" else "left", overflow="fold")
    for kind, meaning in _MEANING.items():
        some = ", ".join(f"{e.topic}[{e.partition}]@{e.offset}" for e in found.examples.get(kind, ()))
        count = getattr(found, kind)
        grid.add_row(kind, f"{count:,}", meaning, some, style="red" if count else "")
    out.print(grid)
    out.print("equal" if found.equal else "different", style="green" if found.equal else "red")
