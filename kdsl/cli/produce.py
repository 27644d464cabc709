"""``kdsl produce``: write rows from JSON lines to a table, or lines to a topic, without Spark."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kdsl import load
from kdsl.cli.clusters import require_brokers, with_cluster
from kdsl.cli.console import has_keyboard, print_json, print_status, print_text, progress
from kdsl.cluster import Cluster
from kdsl.errors import KdslError, RecordError, pluralize

if TYPE_CHECKING:
    import pyarrow as pa

    from kdsl.plan.model import WritePlan


@with_cluster()
def produce(
    target: Annotated[
        str, typer.Argument(help="A table: orders.py:Orders, package.module:Orders or tables.yaml:orders. Or a topic.")
    ],
    file: Annotated[
        str, typer.Argument(help="A file of JSON objects, one in each line; - is the standard input.")
    ] = "-",
    cluster: Cluster | None = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", help="Of a topic: what separates the key from the value in a line.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write rows to a table: JSON objects whose members are its columns, as the format json reads them.

    Without a table, each line is the value of a record. All lines are checked before the first one is sent. Records
    are written at least once and in no transaction, also of a table that is written exactly once.

    Exits with 0 if the brokers have acknowledged all records; with 1 if the table has errors or no cluster, a line is
    not a row, or a record cannot be written; and with 2 if the file cannot be read, a topic is named, but no brokers,
    or --key-separator is for a table.
    """
    from kdsl.run.arrow.json_rows import number_lines, read_json_rows
    from kdsl.run.librdkafka.task_writer import write_rows
    from kdsl.run.records.drops import describe_drops

    lines, source = _read_lines(file)
    if load.names_table(target):
        if key_separator is not None:
            raise typer.BadParameter("a table says what the key is", param_hint="--key-separator")
        table = load.table(target)
        plan = table.write_plan(cluster)
        cluster = table.cluster(cluster)
        _check_login(plan, cluster)
        rows = read_json_rows(lines, table.definition, plan, cluster, source)
    else:
        cluster = require_brokers(cluster, target)
        plan, rows = _plan_lines(target, lines, key_separator, source)
        _check_login(plan, cluster)
    with progress(f"writing {pluralize(rows.num_rows, 'record')} to {plan.topics}"):
        try:
            result = write_rows(plan, cluster, [rows] if rows.num_rows else [])
        except RecordError as e:
            if e.row is None:
                raise
            raise KdslError(f"{source}, line {number_lines(lines)[e.row]:,}: {e}") from e
    if as_json:
        print_json({"records": result.records, "bytes": result.bytes, "left_out": dict(result.dropped)})
        return
    print_text(f"{pluralize(result.records, 'record')} written to {plan.topics}")
    if left_out := describe_drops(result.dropped):
        print_status(left_out)


def _check_login(plan: WritePlan, cluster: Cluster) -> None:
    from kdsl.diagnostics.clients import needs_jvm

    if needs_jvm(cluster):
        raise KdslError(
            f"{plan.table}: only Java's client can log in to this cluster, and kdsl produce has none; write with Spark"
        )


def _read_lines(file: str) -> tuple[list[bytes], str]:
    """Return the lines of a file, of the standard input for ``-``, without their ends; and its name for messages."""
    if file == "-":
        if sys.stdin is None or (sys.stdin.isatty() and not has_keyboard()):
            raise typer.BadParameter(
                "there is no standard input to read from; name a file of lines, or write: cat FILE | kdsl produce …",
                param_hint="FILE",
            )
        if sys.stdin.isatty():
            print_status("reading lines from the terminal; Ctrl-D ends them")
        return sys.stdin.buffer.read().splitlines(), "standard input"
    try:
        return Path(file).read_bytes().splitlines(), file
    except OSError as e:
        raise typer.BadParameter(f"{file} cannot be read: {e.strerror}", param_hint="FILE") from e


def _plan_lines(
    topic: str, lines: Sequence[bytes], separator: str | None, source: str
) -> tuple[WritePlan, pa.RecordBatch]:
    """Return the write of lines to a topic, and its rows; blank lines are skipped."""
    import pyarrow as pa

    from kdsl.plan.model import MetadataColumn, WritePlan
    from kdsl.resolve import Topics
    from kdsl.run.arrow.json_rows import fail_at_lines, number_lines
    from kdsl.types import model as t

    numbers = number_lines(lines)
    sign = b"" if separator is None else separator.encode()
    chosen = [lines[number - 1] for number in numbers]
    parts = [line.partition(sign) if sign else (b"", b"", line) for line in chosen]
    reason = f"there is no {separator!r} between key and value"
    missing = (number for number, line in zip(numbers, chosen, strict=True) if sign and sign not in line)
    fail_at_lines(dict.fromkeys(missing, reason), source)
    names = ("key", "value") if sign else ("value",)
    row = t.Row(tuple(t.Field(name, t.BYTES) for name in names), nullable=False)
    metadata = tuple(MetadataColumn(name, f"__raw_{name}__", t.BYTES) for name in names)
    columns = {"key": [key for key, _, _ in parts], "value": [value for _, _, value in parts]}
    rows = pa.RecordBatch.from_arrays([pa.array(columns[name], pa.binary()) for name in names], list(names))
    return WritePlan(topic, Topics((topic,)), row, metadata=metadata), rows
