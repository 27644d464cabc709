"""``kdsl run --report``: what the queries of a script read and wrote, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdsl.cli.grid import Grid

if TYPE_CHECKING:
    from kdsl.run.metrics.model import QueryMetrics


def report(name: str, query: QueryMetrics) -> Grid:
    """The metrics of a query, one row each, without offsets, unknown metrics, and reasons and operators that count 0.

    Args:
        name: The name of the query.
        query: Its metrics (docs/metrics.md).
    """
    from kdsl.run.metrics.model import list_values

    grid = Grid(f"{name}: metrics", ("table", "metric", "value", "unit"), right=("value",))
    for row in list_values(query):
        grid.add_row(*row)
    return grid
