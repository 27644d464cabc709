"""What copies read: the source of a table or of a catalog's topics, and why some tables cannot be copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kdsl.catalog.options import REGISTRY_FORMATS
from kdsl.cluster import Cluster
from kdsl.ddl.statements import Name, Option
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.errors import Problem, Where, listing
from kdsl.formats import TableId
from kdsl.ingest import KafkaFeed, Transform
from kdsl.ingest.ids import format_id
from kdsl.ingest.initial_schemas import write_initial_table
from kdsl.resolve.keys import except_key
from kdsl.scripts.catalogs import ScriptCatalog
from kdsl.types import model as t
from kdsl.types.sql import quote_name

ALL_TABLES = r"\.*.\.*.\.*"
_POSITION = ("partition", "offset", "timestamp")
_PRIMARY_KEY = ("partition", "offset")
_OF_READS = {
    "bounded": "remove it: with --once, or in the runtime mode batch, a copy ends with the records of its start",
    "scan_not_null_enforcer": "remove it",
    "cdc_events_duplicate": "remove it: a copy keeps the last row of each key",
    "changelog": "remove it",
    "latency": "remove it",
}
"""Options of tables that a copy does not have, and what to do instead."""
_OF_FEED = (
    *("startup", "startup_timestamp", "startup_offsets", "header_filter", "check_group", "discovery"),
    *("max_records_per_trigger", "max_records_per_partition", "transport", "inference", "prefetch"),
    *("ignore_errors", "max_errors"),
)
"""The options of a source of ingestions that a table, or a hint of a copy, may set."""
HINTS: Mapping[str, str] = {a.metadata["key"]: a.name for a in KafkaFeed.declarations() if a.name in _OF_FEED}
_OF_TABLES = {a.name for a in KafkaOptions.declarations()}
KEYS_OF_TABLES = {a.metadata["key"] for a in KafkaOptions.declarations()}
ONLY_HINTS = frozenset(key for key, name in HINTS.items() if name not in _OF_TABLES)
"""Options that only the hint of a copy may set, and no table."""


def check_copied_table(definition: TableDef, where: Where) -> Iterator[Problem]:
    """Yield why a table cannot be copied.

    Args:
        definition: The table.
        where: The location of its name in the statement.
    """
    instead = "write INSERT INTO … SELECT into a table of 'kafka' with the format json, and copy that one"
    if definition.upserts is not None:
        message = f"{definition.name} is an upsert table, and a copy cannot delete the rows of its tombstones"
        fix = "declare it with the connector 'kafka' (in a catalog set "
        fix += "'infer-schema.compacted-topic-as-upsert-table' = 'false'), with which deleted rows stay in the copy"
        yield Problem("copy-source", message, fix, where)
    chosen = definition.value_format
    if chosen is not None and "value" not in chosen.ingests:
        message = f"{definition.name} has the format {chosen.identifier!r}, and copies are made of "
        yield Problem("copy-source", f"{message}{listing(KafkaFeed.formats['value'])}", instead, where)
    key = definition.key_format
    if key is not None and except_key(definition) and not (key.holds_one_value or "key" in key.ingests):
        message = f"the message keys of {definition.name} have the format {key.identifier!r}, and those of tables "
        yield Problem("copy-source", f"{message}that are copied have json or raw", instead, where)
    options = definition.options.valid()
    defaults = type(options)()
    for name, fix in _OF_READS.items():
        if getattr(options, name) != getattr(defaults, name) and definition.upserts is None:
            key_name = attrs.fields_dict(type(options))[name].metadata["key"]
            location = definition.option_locations.get(key_name, where)
            yield Problem("copy-option", f"{key_name!r} has no effect in a copy", fix, location)
    if definition.rules:
        message = f"{definition.name} has row rules, which a copy does not apply"
        yield Problem("copy-option", message, instead, where)


def check_copied_catalog(catalog: ScriptCatalog, name: Name) -> Iterator[Problem]:
    """Yield the problem of a catalog whose tables have a format that cannot be copied.

    Args:
        catalog: The catalog.
        name: The table or database in the statement.
    """
    chosen = catalog.options.valid().format
    if chosen in REGISTRY_FORMATS:
        message = f"the catalog {name.parts[0]!r} has the format {chosen!r}, and copies are made of "
        message += listing(KafkaFeed.formats["value"])
        fix = "write INSERT INTO … SELECT for each table into one of 'kafka' with the format json, and copy that one"
        yield Problem("copy-source", message, fix, name.where)


def apply_hints(feed: KafkaFeed, hints: Sequence[Option]) -> tuple[KafkaFeed, list[Problem]]:
    """Apply the options of a hint to a source.

    Args:
        feed: The source.
        hints: The options.

    Returns:
        The source, where an option with a wrong value has its default; and the problems of the options, also of those
        that a source of ingestions does not have.
    """
    problems = []
    for hint in (hint for hint in hints if hint.key not in HINTS):
        message = f"the copy of a table has no option {hint.key!r}"
        problems.append(Problem("option-unknown", message, f"use one of {listing(sorted(HINTS))}", hint.where))
    texts = {hint.key: hint.value for hint in hints if hint.key in HINTS}
    if not texts:
        return feed, problems
    read = KafkaFeed.from_strings(texts, cluster=feed.cluster)
    for problem in read.problems(lambda _name, key: repr(key)):
        where = next((h.where for h in hints if HINTS.get(h.key) == problem.option), hints[0].where)
        problems.append(problem.at(where))
    valid = read.valid()
    changed = {HINTS[key]: getattr(valid, HINTS[key]) for key in texts}
    return attrs.evolve(feed, **changed), problems  # type: ignore[misc]


def make_table_feed(definition: TableDef, cluster: Cluster, name: TableId, *, inferred: bool) -> KafkaFeed:
    """The source of a declared table, which has a value format; its declared columns are the initial schema.

    With a dead-letter topic it ignores as many errors as that takes.

    Args:
        definition: The table.
        cluster: Its cluster.
        name: The id of the copy.
        inferred: Whether the copy gets columns that are not declared.
    """
    options = definition.options.valid()
    chosen = definition.value_format
    assert chosen is not None
    columns, key = _columns_of_feed(definition)
    first = [c for c in columns if c.role == "physical"]
    declared = bool(first) or any(c.role != "physical" for c in columns)
    own: dict[str, Any] = {a.name: getattr(options, a.name) for a in KafkaFeed.declarations()
                           if a.name in _OF_FEED and hasattr(options, a.name)}  # fmt: skip
    if not inferred:
        own["inference"] = "static"
    if first:
        own["prefetch"] = 0
    if options.dead_letter_topic is not None:
        own |= {"ignore_errors": True, "max_errors": options.dead_letter_max_count}
    return KafkaFeed(
        cluster,
        name=definition.name,
        topic=options.topic,
        topic_pattern=options.topic_pattern,
        value=chosen,
        key=definition.key_format if key else None,
        key_prefix=options.key_prefix if key else "",
        value_prefix=options.value_prefix,
        table=format_id(name),
        initial_schemas=write_initial_table(name, columns, key) if declared else None,
        **own,
    )


def make_catalog_feed(catalog: ScriptCatalog, table: str, **topics: Any) -> KafkaFeed:
    """The source of topics as the tables of a catalog, whose columns are inferred as messages come.

    Args:
        catalog: The catalog, whose cluster is known.
        table: The option ``table`` of the source.
        **topics: ``topic`` or ``topic_pattern``.
    """
    options = catalog.options.valid()
    assert catalog.cluster is not None
    return KafkaFeed(
        catalog.cluster,
        name=catalog.statement.name.last,
        key=options.format_of_records("json"),
        value=options.format_of_records(),
        key_prefix=options.key_prefix,
        value_prefix=options.value_prefix,
        metadata=_POSITION,
        startup=options.startup,
        table=table,
        **topics,
    )


def make_catalog_transform(catalog: ScriptCatalog) -> Transform:
    """The columns of the tables of a catalog, after their position; partition and offset are the primary key.

    Tables of change data have the primary key of their messages.
    """
    position = ", ".join(map(quote_name, _POSITION))
    changes = not catalog.options.format_of_records().insert_only
    return Transform(ALL_TABLES, projection=f"{position}, *", primary_keys=() if changes else _PRIMARY_KEY)


def find_primary_key(definition: TableDef) -> tuple[str, ...]:
    """The primary key of a copy: that of the table; empty for change data whose key has only metadata columns."""
    metadata = {c.name for c in definition.columns if c.role == "metadata"}
    changes = definition.value_format is not None and not definition.value_format.insert_only
    return () if changes and set(definition.primary_key) <= metadata else definition.primary_key


def _columns_of_feed(definition: TableDef) -> tuple[tuple[ColumnDef, ...], tuple[str, ...]]:
    """The columns of a table with which its copy begins, and the names of those in the message key.

    The bytes of keys are metadata. The inferred columns of change data are left out: its messages say the primary key,
    as long as their table is not known.
    """
    chosen = definition.value_format
    keys = definition.message_key if except_key(definition) else ()
    in_bytes = keys if definition.key_format is not None and definition.key_format.holds_one_value else ()
    left_out = set(definition.inferred.columns) if definition.inferred and chosen and not chosen.insert_only else set()
    columns = tuple(
        attrs.evolve(c, role="metadata", metadata_key="__raw_key__", type=t.BYTES, virtual=True)
        if c.name in in_bytes
        else c
        for c in definition.columns
        if c.name not in left_out
    )
    return columns, tuple(name for name in keys if name not in in_bytes and name not in left_out)
