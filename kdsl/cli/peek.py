"""``kdsl peek``: the newest records of a topic as the table sees them, without Spark."""

from __future__ import annotations

from typing import Annotated

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
)
from kdsl.cli.console import out, print_json, progress


def peek(
    target: Annotated[str, typer.Argument(help="orders.py:Orders, package.module:Orders or tables.yaml:orders")],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many records.")] = 10,
    bootstrap: Bootstrap = None,
    cluster_file: ClusterFile = None,
    cluster_name: ClusterName = None,
    properties: Property = None,
    registry: RegistryUrl = None,
    registry_properties: RegistryProperty = None,
    changelog: Annotated[
        bool, typer.Option("--changelog", help="Print the changes between these records, as +I[...], -U[...], +U[...].")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print the last records of a table, decoded."""
    from kdsl.inspect.peek import last_changes, last_records

    table = load.table(target)
    given = given_cluster(bootstrap, cluster_file, cluster_name, properties, registry, registry_properties)
    plan, cluster = table.read_plan(cluster=given), table.cluster(given)
    with progress(f"reading the last {count} records of {plan.topics}"):
        found = (last_changes if changelog else last_records)(plan, cluster, count)
    if as_json:
        print_json(found.to_pylist())
        return
    if changelog:
        from kdsl.run.frames.changelog_text import changelog_lines

        for line in changelog_lines(found):
            out.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    grid = Grid(title=f"{table.name}: the last {found.num_rows} records of {plan.topics}", title_justify="left")
    for name in found.column_names:
        grid.add_column(name, overflow="fold")
    for row in found.to_pylist():
        grid.add_row(*("NULL" if value is None else str(value) for value in row.values()))
    out.print(grid)
