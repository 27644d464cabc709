"""``kdsl peek``: the newest records of a table, decoded, or of a topic; without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdsl import load
from kdsl.cli.clusters import require_brokers, with_cluster
from kdsl.cli.console import display_bytes, out, print_json, print_status, print_text, progress
from kdsl.cli.grid import Grid
from kdsl.cluster import Cluster
from kdsl.errors import RecordError, decode_text, pluralize

if TYPE_CHECKING:
    from kdsl.diagnostics.peek import LastRows
    from kdsl.plan.model import ReadPlan


@with_cluster()
def peek(
    target: Annotated[
        str,
        typer.Argument(help="A table: orders.py:Orders, package.module:Orders or tables.yaml:orders. Or a topic."),
    ],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many records.")] = 10,
    cluster: Cluster | None = None,
    changelog: Annotated[
        bool, typer.Option("--changelog", help="Print the changes between these records, as +I[...], -U[...], +U[...].")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print the last records of a table, decoded, and those that cannot be read; or of a topic without a table.

    Of a topic, key, value and headers are printed; the formats are recognized as by `kdsl codegen topic`, and messages
    with a schema in the registry are decoded by it.

    Exits with 1 if there is no such table or topic, the table has errors or no cluster, or its records, or some of
    them, cannot be read; and with 2 if a topic is named, but no brokers.
    """
    if not load.names_table(target):
        cluster = require_brokers(cluster, target, f", or name a table, as {target}.py:Orders")
        if changelog:
            raise typer.BadParameter(f"{target!r} is a topic, and only a table has changes", param_hint="--changelog")
        _peek_topic(target, cluster, count, as_json=as_json)
        return
    from kdsl.diagnostics.peek import last_rows

    table = load.table(target)
    plan = table.read_plan(cluster=cluster)
    with progress(f"reading {_last_records(count)} of {plan.topics}"):
        last = last_rows(plan, table.cluster(cluster), count, changes=changelog)
    if as_json:
        _print_json(last)
    elif changelog:
        from kdsl.run.dataframes.changelog_text import changelog_lines

        for line in changelog_lines(last.rows):
            print_text(line)
    else:
        _print_rows(table.name, plan, last)
    if not as_json:
        _print_left_out(last)
    raise typer.Exit(1 if last.errors else 0)


def _print_rows(name: str, plan: ReadPlan, last: LastRows) -> None:
    """Print the rows as a table."""
    from kdsl.types.arrow_values import python_rows

    title = f"{name}: {pluralize(last.rows.num_rows, 'row')} of the last records of {plan.topics}"
    grid = Grid(title, last.rows.column_names)
    for row in python_rows(last.rows):
        grid.add_row(*row.values())
    out.print(grid)


def _print_left_out(last: LastRows) -> None:
    """Print the records that cannot be read as a table, and on the standard error what else was left out."""
    from kdsl.run.records.drops import describe_drops

    if last.errors:
        title = f"{len(last.errors)} of these records cannot be read"
        grid = Grid(title, ("partition", "offset", "why", "message"), right=("partition", "offset"))
        for error in last.errors:
            reason = "; ".join(filter(None, (error.reason, error.fix)))
            data = "" if error.data is None else display_bytes(error.data)
            grid.add_row(error.partition, error.offset, reason, data)
        out.print(grid)
    if left_out := describe_drops(last.dropped):
        print_status(left_out)


def _print_json(last: LastRows) -> None:
    """Print the rows, the records that cannot be read, and how many records and values were left out by reason."""
    from kdsl.types.arrow_values import python_rows

    errors = [_error_document(error) for error in last.errors]
    print_json({"rows": python_rows(last.rows), "errors": errors, "left_out": dict(last.dropped)})


def _error_document(error: RecordError) -> dict[str, Any]:
    """A record that cannot be read, for JSON."""
    names = ("topic", "partition", "offset", "reason", "fix")
    return {**{name: getattr(error, name) for name in names}, "message": decode_text(error.data)}


def _peek_topic(topic: str, cluster: Cluster, count: int, *, as_json: bool) -> None:
    """Print the last records of a topic without a table."""
    from kdsl.codegen.messages import decode_side
    from kdsl.diagnostics.peek import last_raw_records
    from kdsl.run.records.metadata import NO_TIMESTAMP
    from kdsl.types.arrow_values import python_rows
    from kdsl.types.strings.temporal import format_instant

    with progress(f"reading {_last_records(count)} of {topic}"):
        records = last_raw_records(topic, cluster, count)
        sides = {side: decode_side(topic, records, cluster, side) for side in ("key", "value")}
    documents = [
        {
            "partition": record["partition"],
            "offset": record["offset"],
            "timestamp": None if record["timestamp"] == NO_TIMESTAMP else format_instant(record["timestamp"]),
            "key": sides["key"].contents[i],
            "value": sides["value"].contents[i],
            "headers": [[header["key"], decode_text(header["value"])] for header in record["headers"] or ()],
        }
        for i, record in enumerate(python_rows(records))
    ]
    formats = {side: decoded.format for side, decoded in sides.items()}
    if as_json:
        print_json({"topic": topic, "formats": formats, "records": documents})
    else:
        _print_records(topic, formats, documents)
    for side, decoded in sides.items():
        for note in decoded.notes:
            print_status(f"{side}: {note}")


def _print_records(topic: str, formats: Mapping[str, str], documents: Sequence[Mapping[str, Any]]) -> None:
    """Print records as a table, without a column of headers if none has any; or that there are none."""
    if not documents:
        print_text(f"{topic} has no records")
        return
    names = [n for n in ("partition", "offset", "timestamp", "key", "value", "headers")
             if n != "headers" or any(document["headers"] for document in documents)]  # fmt: skip
    labels = [f"{name} ({formats[name]})" if formats.get(name) else name for name in names]
    grid = Grid(f"{topic}: {_last_records(len(documents))}", labels, right=("partition", "offset"))
    for document in documents:
        headers = "\n".join(f"{name} = {'NULL' if value is None else value}" for name, value in document["headers"])
        grid.add_row(*(headers if name == "headers" else _cell(document[name]) for name in names))
    out.print(grid)


def _last_records(count: int) -> str:
    return "the last record" if count == 1 else f"the last {count:,} records"


def _cell(content: Any) -> Any:
    """A value for a cell: rows on lines of their own, long strings shortened."""
    if isinstance(content, list):
        return "\n".join(map(str, content))
    return display_bytes(content.encode()) if isinstance(content, str) else content
