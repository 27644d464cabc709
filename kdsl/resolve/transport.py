"""What each transport can do: one table, and the rules that refuse what the chosen one cannot (design 4).

docs/transports.md has the same table for people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from kdsl.client.connector import connector_settings
from kdsl.declare.connector import Transport
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.declare.metadata import METADATA
from kdsl.errors import Problem, listing
from kdsl.formats import Direction, Format
from kdsl.resolve.delivery import delivery_of
from kdsl.resolve.keys import key_columns, value_columns
from kdsl.resolve.metadata import metadata_columns
from kdsl.resolve.rule import problem
from kdsl.types import model as t


@attrs.frozen
class Use:
    """A capability as a table uses it.

    Attributes:
        what: What was declared, as the user wrote it.
        without: What to write instead, beside choosing the other transport.
        column: The column that it stands at, or None.
        option: The option that it stands at, or None.
    """

    what: str
    without: str
    column: ColumnDef | None = None
    option: str | None = None


@attrs.frozen
class Capability:
    """Something that not every transport can do.

    Attributes:
        name: Its name.
        doc: What it is, for the reference page.
        transports: Those that can.
        why: Why the others cannot.
        uses: Where a table uses it, in a direction.
    """

    name: str
    doc: str
    transports: tuple[Transport, ...]
    why: str
    uses: Callable[[TableDef, Direction], Iterator[Use]]


def _leader_epoch(table: TableDef, direction: Direction) -> Iterator[Use]:
    if direction == "read":
        for column in table.columns:
            if column.role == "metadata" and column.shows == "leader-epoch":
                yield Use("the metadata 'leader-epoch'", "remove the column", column=column)


def _timestamp(table: TableDef, direction: Direction) -> Iterator[Use]:
    if direction == "write":
        for column in metadata_columns(table, direction):
            if column.shows == "timestamp":
                yield Use("writing the metadata 'timestamp'", "declare the column virtual", column=column)


def _exactly_once(table: TableDef, direction: Direction) -> Iterator[Use]:
    if direction == "write" and delivery_of(table) == "exactly-once":
        shown = table.setting("delivery", "exactly-once")
        yield Use(shown, f"write {table.setting('delivery', 'at-least-once')}", option="delivery")


def _each_partition(table: TableDef, direction: Direction) -> Iterator[Use]:
    limit = table.options.max_records_per_partition
    if direction == "read" and limit is not None:
        shown = table.setting("max_records_per_partition", limit)
        instead = f"limit all partitions together with {table.option_name('max_records_per_trigger')}"
        yield Use(shown, instead, option="max_records_per_partition")


def _alignment(table: TableDef, direction: Direction) -> Iterator[Use]:
    group, drift = table.options.watermark_group, table.options.watermark_drift
    if direction == "read" and group is not None and drift is not None:
        yield Use(table.setting("watermark_group", group), "remove it", option="watermark_group")


def _internal(table: TableDef, direction: Direction) -> Iterator[Use]:
    settings = connector_settings(table.properties.revealed())
    if direction == "read" and table.options.topic_pattern is not None and not settings.exclude_internal_topics:
        name = "exclude.internal.topics"
        yield Use(f"{name!r} = 'false' with a pattern", f"remove {name!r}", option=f"properties.{name}")


def _realtime(table: TableDef, _: Direction) -> Iterator[Use]:
    if table.options.latency == "realtime":
        instead = f"write {table.setting('latency', 'micro-batch')}"
        yield Use(table.setting("latency", "realtime"), instead, option="latency")


CAPABILITIES: tuple[Capability, ...] = (
    Capability(
        "leader-epoch",
        "The metadata `leader-epoch`.",
        ("librdkafka",),
        "Spark's source does not tell it",
        _leader_epoch,
    ),
    Capability(
        "timestamp",
        "Writing the metadata `timestamp`.",
        ("librdkafka",),
        "Spark's sink leaves it out without a word",
        _timestamp,
    ),
    Capability(
        "exactly-once",
        "`sink.delivery-guarantee` exactly-once.",
        ("librdkafka",),
        "Spark's sink knows no transactions",
        _exactly_once,
    ),
    Capability(
        "limit per partition",
        "`scan.max-records-per-partition`.",
        ("librdkafka",),
        "Spark's source limits all partitions together",
        _each_partition,
    ),
    Capability(
        "alignment",
        "`scan.watermark.alignment.*`: partitions read side by side in event time.",
        ("librdkafka",),
        "Spark's source cuts a backlog by offsets",
        _alignment,
    ),
    Capability(
        "internal topics",
        "A topic pattern with `exclude.internal.topics` = false.",
        ("librdkafka",),
        "Spark's source never takes internal topics by a pattern",
        _internal,
    ),
    Capability(
        "realtime",
        "`latency` realtime.",
        ("jvm",),
        "a Python data source has no real-time mode",
        _realtime,
    ),
)
"""Everything that one transport has and the other lacks."""


def capabilities(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """A table asks its transport for nothing that it cannot do; the other one is named."""
    chosen = table.options.transport
    for capability in CAPABILITIES:
        if chosen in capability.transports:
            continue
        able = table.setting("transport", capability.transports[0])
        for use in capability.uses(table, direction):
            yield problem(
                table,
                "transport",
                f"{use.what} does not go with {table.setting('transport', chosen)}: {capability.why}",
                f"write {able}, or {use.without}",
                column=use.column,
                option=use.option,
            )


_BYTES = (t.Binary, t.VarBinary)
_TEXTS = (t.Char, t.VarChar)


def realtime(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """A table in real-time mode has only what Spark's own expressions do exactly as the formats do."""
    options = table.options
    if options.latency != "realtime" or options.transport != "jvm":
        return
    shown = table.setting("latency", "realtime")
    micro = f"write {table.setting('latency', 'micro-batch')}"
    by_name = {c.name: c for c in table.physical}
    sides = (
        ("key", table.key_format, [by_name[n] for n in key_columns(table) if n in by_name]),
        ("value", table.value_format, value_columns(table)),
    )
    for name, chosen, columns in sides:
        if chosen is not None and columns and (reason := _not_exact(chosen, [c.type for c in columns])):
            message = f"{shown} runs no Python, and {reason}, which Spark's own expressions do not do alike"
            fix = f"{micro}, or take the {name} as STRING or BYTES with the format 'raw' and work it out with SQL"
            yield problem(table, "realtime-format", message, fix, option=f"{name}.format")
    for column in metadata_columns(table, direction):
        known = METADATA.get(column.shows)
        if known is not None and known.type.as_nullable() != column.type.as_nullable():
            message = (
                f"{shown} shows metadata in its own type, {known.type.spelling}, and this column is "
                f"{column.type.spelling}"
            )
            fix = f"declare it as {known.type.spelling}, and cast it in the query"
            yield problem(table, "realtime-metadata", message, fix, column=column)
    no_effect = {"max_records_per_trigger": "its batches end by time"} if direction == "read" else {}
    no_effect |= {"scan_parallelism" if direction == "read" else "sink_parallelism": "a task stays with its partition"}
    for name, reason in no_effect.items():
        if (value := getattr(options, name)) is not None:
            message = f"{table.setting(name, value)} does not go with {shown}: {reason}"
            yield problem(table, "realtime-option", message, f"remove it, or {micro}", option=name)
    if direction == "write" and options.partitioner != "default":
        message = f"{table.setting('partitioner', options.partitioner)} does not go with {shown}: it runs in Python"
        yield problem(table, "realtime-option", message, f"remove it, or {micro}", option="partitioner")


def _not_exact(chosen: Format, kinds: Sequence[t.DataType]) -> str:
    """What keeps Spark's own expressions from standing for a format; empty where they can."""
    if chosen.identifier != "raw":
        return f"the format {chosen.identifier!r} is made of it"
    if not all(isinstance(kind, (*_BYTES, *_TEXTS)) for kind in kinds):
        return f"the format 'raw' of {listing(kind.spelling for kind in kinds)} is made of it"
    given = chosen.to_strings()
    if "line-delimiter" in given:
        return "the option 'line-delimiter' is made of it"
    named = given.get("charset", "UTF-8")
    if not all(isinstance(kind, _BYTES) for kind in kinds) and named.upper().replace("_", "-") not in ("UTF-8", "UTF8"):
        return f"the charset {named!r} is made of it"
    return ""
