"""``kdsl doctor``: why a cluster, or a table on it, does not work; and what will go wrong later."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import attrs
import typer
from rich.text import Text

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
from kdsl.cli.directions import Directions, Way
from kdsl.cluster import Cluster
from kdsl.errors import ResolveError
from kdsl.inspect.doctor import Finding, State, examine
from kdsl.plan.model import ReadPlan, WritePlan

_SIGNS: dict[State, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "error": ("error", "bold red"),
    "skipped": ("skipped", "dim"),
}


def doctor(
    targets: Annotated[
        list[str] | None, typer.Argument(help="Tables to look at: orders.py, package.module or tables.yaml, with :Name")
    ] = None,
    bootstrap: Bootstrap = None,
    cluster_file: ClusterFile = None,
    cluster_name: ClusterName = None,
    properties: Property = None,
    registry: RegistryUrl = None,
    registry_properties: RegistryProperty = None,
    direction: Directions = Way.BOTH,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Look at a cluster from the network up, and at what tables need of it.

    Ends with 0 when nothing is wrong (warnings are allowed), with 1 otherwise.
    """
    directions = direction.directions
    given = given_cluster(bootstrap, cluster_file, cluster_name, properties, registry, registry_properties)
    tables = [table for target in targets or () for table in load.tables(target)]
    clusters: dict[Cluster, list[ReadPlan | WritePlan]] = {}  # two that differ in a password alone are two
    found: list[Finding] = []
    for table in tables:
        cluster = table.cluster(given)
        plans: list[ReadPlan | WritePlan] = []
        for one in directions:
            try:
                plans.append(table.read_plan(cluster=given) if one == "read" else table.write_plan(given))
            except ResolveError as e:
                if len(directions) == 1:
                    raise
                state: State = "skipped" if plans or one == "read" else "error"
                found.append(Finding(f"table {table.name}", state, f"it cannot {one}: {_first(e)}", "see kdsl check"))
        clusters.setdefault(cluster, []).extend(plans)
    if not clusters:
        if given is None:
            raise typer.BadParameter(f"say where the brokers are: a table that does, {WHERE}", param_hint="TARGETS")
        clusters[given] = []
    for finding in found:
        _print(finding, as_json=as_json)
    for cluster, plans in clusters.items():
        with progress(f"looking at {cluster.bootstrap_servers}"):
            for finding in examine(cluster, plans):
                found.append(finding)
                _print(finding, as_json=as_json)
    counts = Counter(f.state for f in found)
    if as_json:
        print_json(
            {"errors": counts["error"], "warnings": counts["warning"], "findings": [attrs.asdict(f) for f in found]}
        )
    else:
        told = [f"{counts[s]} {s}{'' if counts[s] == 1 else 's'}" for s in ("error", "warning") if counts[s]]
        style = "red" if counts["error"] else "yellow" if counts["warning"] else "green"
        out.print(f"{len(found)} checks: {', '.join(told) or 'all is well'}", style=style, highlight=False)
    raise typer.Exit(1 if counts["error"] else 0)


def _first(e: ResolveError) -> str:
    first, *more = e.problems
    return f"{first.message} (and {len(more)} more)" if more else first.message


def _print(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        return
    sign, style = _SIGNS[finding.state]
    line = Text.assemble((f"{sign:<8}", style), (f"{finding.check}: ", "bold"), finding.message)
    out.print(line, highlight=False, soft_wrap=True)
    if finding.fix and finding.state != "ok":
        out.print(Text.assemble("        ", ("fix: ", "green"), finding.fix), highlight=False, soft_wrap=True)
