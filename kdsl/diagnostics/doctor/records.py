"""Checks what the last records of a topic show, and what its settings do not say."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import needs_jvm
from kdsl.diagnostics.doctor.findings import Finding, ok, warning
from kdsl.diagnostics.peek import last_raw_records
from kdsl.errors import KdslError, pluralize
from kdsl.formats import SCHEMA_HEADERS, Side
from kdsl.plan.model import Part, ReadPlan
from kdsl.run.records.frame_headers import find_last_header
from kdsl_formats.json.connect import describe_replaced_nulls
from kdsl_formats.suggest import find_replaced_nulls

_SAMPLE = 50
"""How many records are read."""


def check_records(plan: ReadPlan, topic: str, cluster: Cluster) -> Iterator[Finding]:
    """Check the last records of a topic: schemas that headers name, and NULLs that may arrive as defaults.

    Nothing is checked if only Java's client can log in. That nothing could be read is ignored here, as other checks
    report it.

    Args:
        plan: The read.
        topic: The topic.
        cluster: The cluster of the table.
    """
    if needs_jvm(cluster):
        return
    try:
        records = last_raw_records(topic, cluster, _SAMPLE)
    except KdslError:
        return
    sides: tuple[tuple[Side, Part | None], ...] = (("key", plan.key), ("value", plan.value))
    for side, part in sides:
        if part is not None:
            yield from check_frame_headers(plan.table, topic, side, part, records)
    if plan.value is not None:
        yield from check_inline_defaults(topic, plan.value, records)


def check_frame_headers(table: str, topic: str, side: Side, part: Part, records: pa.RecordBatch) -> Iterator[Finding]:
    """Report that headers of records name the schemas of keys or values, and warn if the format does not use these.

    Args:
        table: The table.
        topic: The topic.
        side: Whose schemas.
        part: The plan of that side.
        records: Raw records of the topic, with headers.
    """
    header = SCHEMA_HEADERS[side]
    frames = find_last_header(records.column("headers"), header)
    count = 0 if frames is None else len(frames) - frames.null_count
    if not count:
        return
    check = f"{side} schemas of {topic}"
    last = pluralize(len(records), "record")
    message = f"the header {header!r} of {count} of the last {last} names the schema of the {side}"
    chosen = part.format
    if side in chosen.frame_headers:
        yield ok(check, f"{message}, which {table} reads")
    elif (other := chosen.registered_format) is not None:
        fix = f"declare the format {other} and the registry; kdsl codegen topic {topic} --registry … does"
        yield warning(check, f"{message} in a registry, and {table} reads all with one schema", fix)
    else:
        yield ok(check, f"{message}; the format {chosen.identifier!r} of {table} does not need it")


def check_inline_defaults(topic: str, part: Part, records: pa.RecordBatch) -> Iterator[Finding]:
    """Warn of nullable columns with a default in the schemas inside messages, if no message has a NULL in them.

    Args:
        topic: The topic.
        part: The plan of the values.
        records: Raw records of the topic.
    """
    messages = [message for message in records.column("value").to_pylist() if message is not None]
    replaced = find_replaced_nulls(part.format, messages)
    nullable = {field.name for field in part.row.fields if field.type.nullable}
    defaults = {name: default for name, default in replaced.items() if name in nullable}
    if defaults:
        message, _, fix = describe_replaced_nulls(defaults, registered=False).partition("; ")
        yield warning(f"values of {topic}", message, fix)
