"""The transport of a table, the capabilities of each transport, and the rules that check them.

docs/transports.md shows the capabilities as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs

from kdsl.client_settings.kerberos import needs_java
from kdsl.declare.connector import Transport
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.declare.metadata import METADATA
from kdsl.errors import Problem
from kdsl.formats import Direction
from kdsl.resolve.delivery import delivery_of
from kdsl.resolve.keys import value_columns
from kdsl.resolve.metadata import metadata_columns
from kdsl.resolve.rule import problem
from kdsl.spark_versions import PYTHON_SOURCES, is_installed


def choose_transport(declared: Transport | None, properties: Mapping[str, str]) -> Transport:
    """The declared transport; without one ``jvm`` if it is needed, else ``librdkafka``.

    It is needed for a login with GSSAPI (Kerberos), and with a PySpark that has no data sources in Python.

    Args:
        declared: The transport that the table declares; None if kdsl chooses.
        properties: All client properties of the table and its cluster.
    """
    return declared or ("jvm" if needs_java(properties) or not is_installed(PYTHON_SOURCES) else "librdkafka")


def transport_of(table: TableDef) -> Transport:
    """The transport of a table: the declared one, or the one that `choose_transport` chooses.

    The table's properties include those of its cluster, if that is known.
    """
    return choose_transport(table.options.transport, table.properties.reveal())


def transport_note(table: TableDef) -> str | None:
    """A sentence for the log if kdsl chose the transport ``jvm``; otherwise None."""
    if table.options.transport is not None or transport_of(table) != "jvm":
        return None
    if not needs_java(table.properties.reveal()):
        return (
            f"{table.name} uses Spark's own Kafka connector ({table.setting('transport', 'jvm')}), because the "
            f"installed PySpark is older than {PYTHON_SOURCES.since} and has no data sources in Python"
        )
    return (
        f"{table.name} logs in with GSSAPI (Kerberos), which confluent-kafka's librdkafka does not "
        f"support, so it uses Spark's own Kafka connector ({table.setting('transport', 'jvm')})"
    )


@attrs.frozen
class CapabilityUse:
    """A declaration of a table that needs a capability.

    Attributes:
        what: The declaration, as the user wrote it.
        without: What to write instead, to keep the transport.
        column: The column that needs it, or None.
        option: The option that needs it, or None.
    """

    what: str
    without: str
    column: ColumnDef | None = None
    option: str | None = None


@attrs.frozen
class Capability:
    """Something that only some transports can do.

    Attributes:
        name: Its name.
        doc: Its meaning, for the reference page.
        transports: The transports that have it.
        why: Why the others do not have it.
        uses: Returns where a table needs it, in a direction.
    """

    name: str
    doc: str
    transports: tuple[Transport, ...]
    why: str
    uses: Callable[[TableDef, Direction], Iterator[CapabilityUse]]


def _find_leader_epoch(table: TableDef, direction: Direction) -> Iterator[CapabilityUse]:
    """Yield each column that a read fills with the metadata 'leader-epoch'."""
    if direction == "read":
        for column in table.columns:
            if column.role == "metadata" and column.shows == "leader-epoch":
                yield CapabilityUse("the metadata 'leader-epoch'", "remove the column", column=column)


def _find_timestamp(table: TableDef, direction: Direction) -> Iterator[CapabilityUse]:
    """Yield each column that writes the timestamp of records."""
    if direction == "write":
        for column in metadata_columns(table, direction):
            if column.shows == "timestamp":
                yield CapabilityUse("writing the metadata 'timestamp'", "declare the column virtual", column=column)


def _find_exactly_once(table: TableDef, direction: Direction) -> Iterator[CapabilityUse]:
    """Yield the exactly-once delivery of a write, if the table declares it."""
    if direction == "write" and delivery_of(table) == "exactly-once":
        shown = table.setting("delivery", "exactly-once")
        yield CapabilityUse(shown, f"write {table.setting('delivery', 'at-least-once')}", option="delivery")


def _find_limit_of_each_partition(table: TableDef, direction: Direction) -> Iterator[CapabilityUse]:
    """Yield a read's limit of records for each partition, if the table declares one."""
    limit = table.options.max_records_per_partition
    if direction == "read" and limit is not None:
        shown = table.setting("max_records_per_partition", limit)
        instead = f"limit all partitions together with {table.option_name('max_records_per_trigger')}"
        yield CapabilityUse(shown, instead, option="max_records_per_partition")


def _find_alignment(table: TableDef, direction: Direction) -> Iterator[CapabilityUse]:
    """Yield the watermark alignment of a read, if the table declares both of its options."""
    group, drift = table.options.watermark_group, table.options.watermark_drift
    if direction == "read" and group is not None and drift is not None:
        yield CapabilityUse(table.setting("watermark_group", group), "remove it", option="watermark_group")


def _find_state_by_partition(table: TableDef, direction: Direction) -> Iterator[CapabilityUse]:
    """Yield the state of a read that is kept by topic partition, and its time to live, if the table declares them."""
    if direction != "read" or not table.keeps_rows:
        return
    if table.options.changelog_state == "partition":
        instead = f"write {table.setting('changelog_state', 'key')}"
        yield CapabilityUse(table.setting("changelog_state", "partition"), instead, option="changelog_state")
    if table.options.state_ttl is not None:
        yield CapabilityUse(table.option_name("state_ttl"), "remove it", option="state_ttl")


def _find_internal_topics(table: TableDef, direction: Direction) -> Iterator[CapabilityUse]:
    """Yield the setting with which a pattern also reads internal topics, if it is set for a read."""
    settings = table.kdsl_settings
    if direction == "read" and table.options.topic_pattern is not None and not settings.exclude_internal_topics:
        name = "exclude.internal.topics"
        yield CapabilityUse(f"{name!r} = 'false' with a pattern", f"remove {name!r}", option=f"properties.{name}")


def _find_realtime(table: TableDef, _: Direction) -> Iterator[CapabilityUse]:
    """Yield real-time mode, if the table declares it."""
    if table.options.latency == "realtime":
        instead = f"write {table.setting('latency', 'micro-batch')}"
        yield CapabilityUse(table.setting("latency", "realtime"), instead, option="latency")


CAPABILITIES: tuple[Capability, ...] = (
    Capability(
        "leader-epoch",
        "The metadata `leader-epoch`.",
        ("librdkafka",),
        "Spark's source does not provide it",
        _find_leader_epoch,
    ),
    Capability(
        "timestamp",
        "Writing the metadata `timestamp`.",
        ("librdkafka",),
        "Spark's sink silently ignores it",
        _find_timestamp,
    ),
    Capability(
        "exactly-once",
        "`sink.delivery-guarantee` exactly-once.",
        ("librdkafka",),
        "Spark's sink does not support transactions",
        _find_exactly_once,
    ),
    Capability(
        "limit per partition",
        "`scan.max-records-per-partition`.",
        ("librdkafka",),
        "Spark's source limits all partitions together",
        _find_limit_of_each_partition,
    ),
    Capability(
        "alignment",
        "`scan.watermark.alignment.*`: partitions read at the same pace of event time.",
        ("librdkafka",),
        "Spark's source cuts a backlog by offsets",
        _find_alignment,
    ),
    Capability(
        "changelog state",
        "`scan.changelog.state` = partition: the last row of each key by topic partition; and "
        "`scan.changelog.state.ttl`.",
        ("librdkafka",),
        "Spark's source may split a partition among tasks, and does not say when a batch was planned",
        _find_state_by_partition,
    ),
    Capability(
        "internal topics",
        "A topic pattern with `exclude.internal.topics` = false.",
        ("librdkafka",),
        "Spark's source never matches internal topics with a pattern",
        _find_internal_topics,
    ),
    Capability(
        "realtime",
        "`latency` realtime.",
        ("jvm",),
        "a Python data source has no real-time mode",
        _find_realtime,
    ),
)
"""Everything that only one of the transports can do."""


def _describe_transport(table: TableDef) -> str:
    """The transport of a table for messages, with the reason if no declaration decided it but a need of ``jvm``."""
    chosen = transport_of(table)
    if table.options.transport is None and needs_java(table.properties.reveal()):
        return f"the transport {chosen!r}, which a login with GSSAPI (Kerberos) needs"
    if table.options.transport is None and not is_installed(PYTHON_SOURCES):
        return f"the transport {chosen!r}, which PySpark before {PYTHON_SOURCES.since} needs"
    return table.setting("transport", chosen)


def _other_ways(table: TableDef, capability: Capability) -> str:
    """Write how a table can use a capability that its transport does not have, as an imperative."""
    if needs_java(table.properties.reveal()):
        return "log in without Kerberos"
    if "jvm" not in capability.transports and not is_installed(PYTHON_SOURCES):
        return f"use Spark {PYTHON_SOURCES.since} or newer"
    return f"write {table.setting('transport', capability.transports[0])}"


def check_capabilities(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report each feature that the table uses and its transport does not have; the fix names the one that has it.

    With Kerberos the fix is to do without it or to use another login, and a check of the consumer group is reported,
    too. With a PySpark that has only one transport, the fix is to do without it or to use a newer one.
    """
    chosen, kerberos = transport_of(table), needs_java(table.properties.reveal())
    shown = _describe_transport(table)
    if kerberos and direction == "read" and table.options.check_group:
        message = (
            f"{table.setting('check_group', 'true')} does not work with a login with GSSAPI (Kerberos): the group is "
            "reserved by a client of librdkafka, which cannot log in"
        )
        yield problem(table, "transport", message, "remove it, or log in without Kerberos", option="check_group")
    for capability in CAPABILITIES:
        if chosen in capability.transports:
            continue
        other = _other_ways(table, capability)
        for use in capability.uses(table, direction):
            yield problem(
                table,
                "transport",
                f"{use.what} does not work with {shown}: {capability.why}",
                f"{use.without}, or {other}" if kerberos else f"{other}, or {use.without}",
                column=use.column,
                option=use.option,
            )


_METRICS: dict[Direction, str] = {"read": "register.consumer.metrics", "write": "register.producer.metrics"}


def check_client_metrics(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Warn, with the transport ``jvm``, of the direction's ``register.….metrics``, which Spark does not show."""
    name, properties = _METRICS[direction], table.properties.reveal()
    if transport_of(table) == "jvm" and name in properties:
        message = f"the client property {name!r} has no effect with {_describe_transport(table)}"
        why = "Spark's clients show their metrics only through JMX on each executor"
        fix = "remove it"
        if not needs_java(properties) and is_installed(PYTHON_SOURCES):
            fix += f", or write {table.setting('transport', 'librdkafka')}"
        where = f"properties.{name}"
        yield problem(table, "client-metrics", f"{message}: {why}", fix, option=where, severity="warning")


def check_realtime(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report what real-time mode does not support, and what Spark's own expressions do not handle exactly.

    Nothing is reported for the transport ``librdkafka``, which `capabilities` refuses.
    """
    options = table.options
    if options.latency != "realtime" or transport_of(table) != "jvm":
        return
    shown = table.setting("latency", "realtime")
    micro = f"write {table.setting('latency', 'micro-batch')}"
    by_name = {c.name: c for c in table.physical}
    sides = (
        ("key", table.key_format, [by_name[n] for n in table.message_key if n in by_name]),
        ("value", table.value_format, value_columns(table)),
    )
    for name, chosen, columns in sides:
        if chosen is not None and columns and (reason := chosen.explain_python([c.type for c in columns])):
            message = (
                f"{shown} runs no Python, but {reason} needs it, because Spark's own expressions compute other results"
            )
            fix = f"{micro}, or take the {name} as STRING or BYTES with the format 'raw' and compute the rest in SQL"
            yield problem(table, "realtime-format", message, fix, option=f"{name}.format")
    for column in metadata_columns(table, direction):
        known = METADATA.get(column.shows)
        if known is not None and known.type.as_nullable() != column.type.as_nullable():
            message = (
                f"{shown} keeps metadata in its own type, {known.type.spelling}, but this column is "
                f"{column.type.spelling}"
            )
            fix = f"declare it as {known.type.spelling}, and cast it in the query"
            yield problem(table, "realtime-metadata", message, fix, column=column)
    no_effect = {"max_records_per_trigger": "its batches end after a time"} if direction == "read" else {}
    no_effect |= {"scan_parallelism" if direction == "read" else "sink_parallelism": "a task stays with its partition"}
    for name, reason in no_effect.items():
        if (value := getattr(options, name)) is not None:
            message = f"{table.setting(name, value)} does not work with {shown}: {reason}"
            yield problem(table, "realtime-option", message, f"remove it, or {micro}", option=name)
    if direction == "write" and options.partitioner != "default":
        message = f"{table.setting('partitioner', options.partitioner)} does not work with {shown}: it runs in Python"
        yield problem(table, "realtime-option", message, f"remove it, or {micro}", option="partitioner")
