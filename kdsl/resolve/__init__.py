"""Resolve: check a declared table for a direction, and return the resolved table or raise all problems at once."""

from __future__ import annotations

import attrs

from kdsl.cluster import Cluster
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, fail_on
from kdsl.formats import Direction
from kdsl.resolve import (
    client,
    columns,
    dead_letters,
    delivery,
    formats,
    header_filter,
    keys,
    metadata,
    row_rules,
    startup,
    time,
    topics,
    transport,
    upserts,
)
from kdsl.resolve.direction import check_direction, directions_of
from kdsl.resolve.model import (
    DeadLetterTopic,
    HeaderCondition,
    Part,
    ResolvedTable,
    RowRule,
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
    "DeadLetterTopic",
    "HeaderCondition",
    "Part",
    "ResolvedTable",
    "RowRule",
    "Start",
    "StartMode",
    "Stop",
    "StopMode",
    "Topics",
    "Transactions",
    "directions_of",
    "problems",
    "resolve",
]

NO_TOPIC = ("connector-later", "connector-unknown", "connector-script", "sql-not-yet")
"""Problems of declarations whose tables are not topics, so no rule can check them."""

RULES: tuple[Rule, ...] = (
    check_direction,
    columns.check_has_columns,
    columns.check_distinct_names,
    columns.check_precision,
    topics.check_topic_or_pattern,
    topics.check_topic_names,
    topics.check_sink_topic,
    topics.check_topic_settings,
    startup.check_startup,
    startup.check_stop_options,
    startup.check_order,
    startup.check_discovery,
    startup.check_group,
    client.check_offset_commits,
    header_filter.check_header_filter,
    keys.check_key_format_and_fields,
    keys.check_key_fields_exist,
    keys.check_prefixes,
    keys.check_insert_only_key,
    keys.check_key_options_without_key,
    formats.check_value_format,
    formats.check_format_options,
    formats.check_literal_secrets,
    columns.check_primary_key,
    upserts.check_key_of_upserts,
    upserts.check_value_of_upserts,
    upserts.check_buffer,
    upserts.check_normalization,
    upserts.check_state_by_partition,
    upserts.check_realtime,
    columns.check_layout,
    columns.check_names_of_kdsl,
    metadata.check_metadata_keys,
    metadata.check_metadata_types,
    metadata.check_headers_once,
    metadata.check_raw_key_and_value,
    row_rules.check_row_rules,
    dead_letters.check_dead_letters,
    client.check_added_options,
    client.check_client_properties,
    time.check_watermark,
    time.check_alignment,
    time.check_max_ahead,
    delivery.check_semantic,
    delivery.check_exactly_once,
    delivery.check_acknowledgements,
    delivery.check_partitioner,
    transport.check_capabilities,
    transport.check_realtime,
    transport.check_client_metrics,
)


def problems(table: TableDef, direction: Direction, cluster: Cluster | None = None) -> list[Problem]:
    """All errors and warnings of a table in a direction, each once.

    Those of the declaration come first, then wrong values of the connector's options, then those of the rules in their
    order, which see the default in place of a wrong value. If the declaration could not be read completely, or is of a
    connector without topics, only its own problems are returned.

    Args:
        table: The declared table.
        direction: ``"read"`` or ``"write"``.
        cluster: The cluster of the topics, if it is known; then the rules of the schema registry apply, too.
    """
    every = [p.at(attrs.evolve(table.where, table=table.name)) for p in table.problems]
    if any(p.code in NO_TOPIC for p in every) or not table.complete:
        return list(dict.fromkeys(every))
    for wrong in table.options.problems(table.option_name):
        severity = value_severity(table.options, wrong.option, direction)
        every.append(problem(table, wrong.code, wrong.message, wrong.fix, option=wrong.option, severity=severity))
    checkable = attrs.evolve(table, options=table.options.valid())
    for rule in RULES:
        every.extend(rule(checkable, direction))
    if cluster is not None:
        every.extend(formats.check_registry(checkable, cluster.registry))
    return list(dict.fromkeys(every))


def resolve(table: TableDef, direction: Direction, cluster: Cluster | None = None) -> ResolvedTable:
    """Check a table for a direction, and return what its declaration means there, with the warnings about it.

    Defaults are filled in. For ``"write"`` there are no header filter, computed columns and watermark.

    Args:
        table: The declared table.
        direction: ``"read"`` or ``"write"``; rules of the other direction do not apply.
        cluster: The cluster of the topics, if it is known; then the rules of the schema registry apply, too.
    """
    where = f" ({table.where.file}:{table.where.line})" if table.where.file else ""
    warnings = fail_on(problems(table, direction, cluster), f"{table.name}{where}")
    group = table.kdsl_settings.group_id
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
        commits=startup.commits_offsets(table),
        key=keys.key_part(table),
        value=keys.value_part(table),
        metadata=metadata.metadata_columns(table, direction),
        computed=tuple(c for c in table.columns if c.role == "computed") if direction == "read" else (),
        watermark=table.watermarks[0] if table.watermarks and direction == "read" else None,
        changelog=table.is_changelog,
        rules=row_rules.rules_of(table, direction),
        dead_letters=dead_letters.dead_letters_of(table, direction),
        warnings=warnings,
    )
