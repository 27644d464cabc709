"""``kdsl peek``: the newest records of a table's topics, decoded without Spark."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table as Grid

from kdsl import load
from kdsl.cli.clusters import with_cluster
from kdsl.cli.console import out, print_json, progress
from kdsl.cluster import Cluster


@with_cluster()
def peek(
    target: Annotated[str, typer.Argument(help="orders.py:Orders, package.module:Orders or tables.yaml:orders")],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many records.")] = 10,
    cluster: Cluster | None = None,
    changelog: Annotated[
        bool, typer.Option("--changelog", help="Print the changes between these records, as +I[...], -U[...], +U[...].")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print the last records of a table, decoded.

    Exits with 1 if there is no such table, it has errors or no cluster, or its records cannot be read or decoded.
    """
    from kdsl.diagnostics.peek import last_changes, last_records

    table = load.table(target)
    plan = table.read_plan(cluster=cluster)
    with progress(f"reading the last {count} records of {plan.topics}"):
        rows = (last_changes if changelog else last_records)(plan, table.cluster(cluster), count)
    if as_json:
        print_json(rows.to_pylist())
        return
    if changelog:
        from kdsl.run.dataframes.changelog_text import changelog_lines

        for line in changelog_lines(rows):
            out.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    grid = Grid(title=f"{table.name}: the last {rows.num_rows} records of {plan.topics}", title_justify="left")
    for name in rows.column_names:
        grid.add_column(name, overflow="fold")
    for row in rows.to_pylist():
        grid.add_row(*("NULL" if value is None else str(value) for value in row.values()))
    out.print(grid)
