"""``kdsl doctor``: why a cluster or a table does not work, and what will go wrong later."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import attrs
import typer
from rich.text import Text

from kdsl import load
from kdsl.cli.clusters import WHERE, with_cluster
from kdsl.cli.console import out, print_json, progress
from kdsl.cli.directions import DirectionChoice, Directions
from kdsl.client_settings.bootstrap import show_servers
from kdsl.cluster import Cluster
from kdsl.diagnostics.doctor import Finding, State, examine
from kdsl.errors import ResolveError, pluralize
from kdsl.plan.model import ReadPlan, WritePlan

_LABELS: dict[State, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "error": ("error", "bold red"),
    "skipped": ("skipped", "dim"),
}


@with_cluster()
def doctor(
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Tables to check: orders.py, package.module or tables.yaml, optionally with :Name"),
    ] = None,
    cluster: Cluster | None = None,
    direction: Directions = DirectionChoice.BOTH,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check a cluster, from the network to the topics, and what tables need of it.

    Exits with 0 if there are no errors (warnings are allowed), otherwise with 1, and with 2 if no cluster is known. A
    table that cannot be read is an error that ends the command with --direction read, and likewise for write.
    """
    tables = [table for target in targets or () for table in load.tables(target)]
    clusters: dict[Cluster, list[ReadPlan | WritePlan]] = {}  # clusters that differ only in a password are different
    findings: list[Finding] = []
    for table in tables:
        table_cluster = table.cluster(cluster)
        plans: list[ReadPlan | WritePlan] = []
        directions = direction.of(table)
        for one in directions:
            try:
                plans.append(table.read_plan(cluster=cluster) if one == "read" else table.write_plan(cluster))
            except ResolveError as e:
                if direction is not DirectionChoice.BOTH:
                    raise
                state: State = "skipped" if plans or one == "read" else "error"
                findings.append(
                    Finding(f"table {table.name}", state, f"it cannot {one}: {_first(e)}", "see kdsl check")
                )
        clusters.setdefault(table_cluster, []).extend(plans)
    if not clusters:
        if cluster is None:
            raise typer.BadParameter(f"name a table with a cluster, or use {WHERE}", param_hint="TARGETS")
        clusters[cluster] = []
    for finding in findings:
        _print(finding, as_json=as_json)
    for examined, plans in clusters.items():
        with progress(f"checking {show_servers(examined.bootstrap_servers)}"):
            for finding in examine(examined, plans):
                findings.append(finding)
                _print(finding, as_json=as_json)
    counts = Counter(f.state for f in findings)
    if as_json:
        print_json(
            {"errors": counts["error"], "warnings": counts["warning"], "findings": [attrs.asdict(f) for f in findings]}
        )
    else:
        results = [pluralize(counts[s], s) for s in ("error", "warning") if counts[s]]
        results += [f"{counts['skipped']} skipped"] if counts["skipped"] else []
        style = "red" if counts["error"] else "yellow" if results else "green"
        out.print(
            f"{pluralize(len(findings), 'check')}: {', '.join(results) or 'no problems'}", style=style, highlight=False
        )
    raise typer.Exit(1 if counts["error"] else 0)


def _first(e: ResolveError) -> str:
    """Return the message of the first problem, and how many more there are."""
    first, *more = e.problems
    return f"{first.message} (and {len(more)} more)" if more else first.message


def _print(finding: Finding, *, as_json: bool) -> None:
    """Print a finding, and its fix unless the state is ok; nothing with ``as_json``, which prints all at the end."""
    if as_json:
        return
    label, style = _LABELS[finding.state]
    line = Text.assemble((f"{label:<8}", style), (f"{finding.check}: ", "bold"), finding.message)
    out.print(line, highlight=False, soft_wrap=True)
    if finding.fix and finding.state != "ok":
        out.print(Text.assemble("        ", ("fix: ", "green"), finding.fix), highlight=False, soft_wrap=True)
