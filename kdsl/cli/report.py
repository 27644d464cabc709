"""``kdsl run --report``: what the queries of a script read and wrote, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kdsl.cli.console import Grid

if TYPE_CHECKING:
    from kdsl.run.metrics.model import QueryMetrics, SinkMetrics, SourceMetrics


def report(name: str, query: QueryMetrics) -> Grid:
    """The metrics of a query, one row each, without offsets and unknown metrics.

    Args:
        name: The name of the query.
        query: Its metrics (docs/metrics.md).
    """
    grid = Grid(title=f"{name}: metrics")
    grid.add_column("table")
    grid.add_column("metric")
    grid.add_column("value", justify="right")
    grid.add_column("unit")
    for table, metric, value, unit in _rows([*query.sources, *query.sinks]):
        grid.add_row(table, metric, value, unit)
    return grid


def _rows(tables: Iterable[SourceMetrics | SinkMetrics]) -> Iterator[tuple[str, str, str, str]]:
    """Yield table, name, value and unit of each metric that is known and is a single number, as strings."""
    from kdsl.run.metrics.model import metrics_of

    for table in tables:
        for metric in metrics_of(type(table)):
            value = getattr(table, metric.field)
            if value is not None and not isinstance(value, Mapping):
                yield (
                    table.table,
                    metric.name,
                    f"{value:,.1f}" if isinstance(value, float) else f"{value:,}",
                    metric.unit,
                )
