"""Resolve: judge a declared table for a direction; a table that holds, or all its problems at once."""

from __future__ import annotations

import attrs

from kdsl.client.connector import connector_settings
from kdsl.cluster import Cluster
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, fail_on
from kdsl.formats import Direction
from kdsl.resolve import (
    changelog,
    columns,
    commits,
    delivery,
    formats,
    header_filter,
    keys,
    metadata,
    properties,
    secret_fields,
    startup,
    time,
    topics,
    transport,
    upserts,
)
from kdsl.resolve.model import (
    HeaderCondition,
    Part,
    ResolvedTable,
    Start,
    StartMode,
    Stop,
    StopMode,
    Topics,
    Transactions,
)
from kdsl.resolve.rule import Rule, problem, value_severity

__all__ = [
    "RULES",
    "HeaderCondition",
    "Part",
    "ResolvedTable",
    "Start",
    "StartMode",
    "Stop",
    "StopMode",
    "Topics",
    "Transactions",
    "problems",
    "resolve",
]

NO_TOPIC = ("connector-later", "connector-script", "sql-not-yet")
"""Problems of declarations that are no table of a topic at all, so that no rule can judge them."""

RULES: tuple[Rule, ...] = (
    columns.some_columns,
    columns.distinct_names,
    columns.precision,
    topics.topic_or_pattern,
    topics.legal_topics,
    topics.sink_topic,
    startup.startup,
    startup.bounded,
    startup.order,
    startup.discovery,
    startup.group,
    commits.offset_commits,
    header_filter.header_filter,
    keys.key_format_and_fields,
    keys.key_fields_exist,
    keys.prefixes,
    keys.insert_only_key,
    keys.unused_key_options,
    formats.value_format,
    formats.format_options,
    formats.literal_secrets,
    columns.primary_key,
    upserts.key_of_upserts,
    upserts.value_of_upserts,
    upserts.buffer,
    upserts.realtime,
    columns.layout,
    changelog.row_kind,
    metadata.metadata_keys,
    metadata.metadata_types,
    metadata.headers_once,
    metadata.raw_key_and_value,
    secret_fields.decrypt_fields,
    properties.client_properties,
    time.watermark,
    upserts.event_time,
    time.alignment,
    delivery.semantic,
    delivery.exactly_once,
    delivery.partitioner,
    transport.capabilities,
    transport.realtime,
)


def problems(table: TableDef, direction: Direction, cluster: Cluster | None = None) -> list[Problem]:
    """Everything that is wrong or odd with a table in a direction, in the order of the rules.

    Args:
        table: The declared table.
        direction: ``"read"`` or ``"write"``.
        cluster: Where the table lives, if that is known: whether there is a schema registry is judged then.
    """
    found = [p.at(attrs.evolve(table.where, table=table.name)) for p in table.problems]
    if any(p.code in NO_TOPIC for p in found):
        return found
    for attribute, told in table.options.complaints(table.option_name):
        severity = value_severity(table.options, attribute, direction)
        found.append(problem(table, told.code, told.message, told.fix, option=attribute, severity=severity))
    judged = attrs.evolve(table, options=table.options.valid())
    for rule in RULES:
        found.extend(rule(judged, direction))
    if cluster is not None:
        found.extend(formats.registry(judged, cluster.registry))
    return list(dict.fromkeys(found))


def resolve(table: TableDef, direction: Direction, cluster: Cluster | None = None) -> ResolvedTable:
    """Judge a table for a direction.

    Args:
        table: The declared table.
        direction: ``"read"`` or ``"write"``; rules that concern only the other one are not asked.
        cluster: Where the table lives, if that is known: whether there is a schema registry is judged then.

    Raises:
        ResolveError: All problems at once, each with its place and what to write instead.
    """
    where = f" ({table.where.file}:{table.where.line})" if table.where.file else ""
    warnings = fail_on(problems(table, direction, cluster), f"{table.name}{where}")
    group = connector_settings(table.properties.revealed()).group_id
    return ResolvedTable(
        table=table,
        direction=direction,
        topics=topics.topics_of(table),
        start=startup.start_of(table),
        stop=startup.stop_of(table),
        headers=header_filter.headers_of(table) if direction == "read" else (),
        delivery=delivery.delivery_of(table),
        transactions=delivery.transactions_of(table),
        group_id=group or startup.default_group(table),
        group_declared=group is not None,
        key=keys.key_part(table),
        value=keys.value_part(table),
        metadata=metadata.metadata_columns(table, direction),
        computed=tuple(c for c in table.columns if c.role == "computed") if direction == "read" else (),
        watermark=table.watermarks[0] if table.watermarks and direction == "read" else None,
        changelog=changelog.changes(table),
        warnings=warnings,
    )
