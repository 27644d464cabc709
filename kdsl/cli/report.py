"""``kdsl run --report``: what the queries of a script read and wrote, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kdsl.cli.console import Grid

if TYPE_CHECKING:
    from kdsl.run.metrics.model import QueryMetrics, SinkMetrics, SourceMetrics


def report(name: str, query: QueryMetrics) -> Grid:
    """The metrics of a query, one row each, without offsets, unknown metrics, and reasons and operators that count 0.

    Args:
        name: The name of the query.
        query: Its metrics (docs/metrics.md).
    """
    grid = Grid(f"{name}: metrics", ("table", "metric", "value", "unit"), right=("value",))
    for row in _rows(query):
        grid.add_row(*row)
    return grid


def _rows(query: QueryMetrics) -> Iterator[tuple[str, str, str, str]]:
    """Yield table, name, value and unit of each metric that is known, as strings; the table of the query's is empty."""
    from kdsl.run.metrics.model import metrics_of

    snapshots: list[tuple[str, QueryMetrics | SourceMetrics | SinkMetrics]] = [("", query)]
    snapshots += [(source.table, source) for source in query.sources]
    snapshots += [(sink.table, sink) for sink in query.sinks]
    for table, snapshot in snapshots:
        for metric in metrics_of(type(snapshot)):
            value = getattr(snapshot, metric.field)
            if isinstance(value, Mapping):
                # Those of topic partitions are offsets and lags, whose sums are metrics, too.
                counts = value.items() if len(metric.labels) == 1 else ()
                yield from ((table, f"{metric.name} ({key})", f"{n:,}", metric.unit) for key, n in counts if n)
            elif value is not None:
                number = f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
                yield table, metric.name, number, metric.unit
