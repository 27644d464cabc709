"""Tables that keep the last row of each key: upsert tables, whose primary key is the message key, and change data.

Source: Flink's UpsertKafkaDynamicTableFactory (RULES UP-1 to UP-9).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from kdsl.declare.definition import TableDef
from kdsl.declare.metadata import IN_VALUE
from kdsl.durations import duration_text
from kdsl.errors import Problem, listing
from kdsl.formats import Direction
from kdsl.options import Spelling
from kdsl.resolve.keys import value_columns
from kdsl.resolve.rule import problem

_PRIMARY_KEY = {
    Spelling.PYTHON: "declare the columns of the key as PrimaryKey[...]",
    Spelling.DDL: "add PRIMARY KEY (...) NOT ENFORCED",
    Spelling.YAML: "add primary_key: [...]",
}


_TRUE: dict[Spelling, object] = {Spelling.PYTHON: True, Spelling.DDL: "true", Spelling.YAML: "true"}


def check_key_of_upserts(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Report an upsert table without a primary key, or with a message key of other columns (UP-1, UP-7)."""
    if table.upserts is None:
        return
    marked = tuple(c.name for c in table.columns if c.key) if table.key_fields is None else table.key_fields
    if not table.primary_key:
        message = "an upsert table has no primary key, so it is unknown which row a record updates or deletes"
        fix = _PRIMARY_KEY[table.spelling]
        yield problem(table, "upsert-key", message, fix, column=next((c for c in table.columns if c.key), None))
    elif marked and set(marked) != set(table.primary_key):
        message = (
            f"the message key is {listing(marked)}, and the primary key is {listing(table.primary_key)}, but in an "
            "upsert table they must be the same"
        )
        yield problem(table, "upsert-key", message, "use only PrimaryKey[...], without Key[...]")


def check_value_of_upserts(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Report an upsert table without a key or value format, and a value format that carries changes (UP-2, UP-5).

    Other rules report a format that is missing for existing columns, and a key format that carries changes (KEY-12).
    """
    if table.upserts is None:
        return
    in_python, yaml = table.spelling is Spelling.PYTHON, table.spelling is Spelling.YAML
    for side, chosen in (("key", table.key_format), ("value", table.value_format)):
        reported_elsewhere = table.primary_key if side == "key" else value_columns(table)
        if chosen is None and side not in table.unread and not reported_elsewhere:
            name = f"{side}=" if in_python else f"'{side}.format'"
            example = f"{name}Json()" if in_python else f"{name}: json" if yaml else f"{name} = 'json'"
            message = f"there is no format for the message {side} ({name} is missing)"
            yield problem(table, f"{side}-format", message, f"add one, such as {example}", option=f"{side}.format")
    chosen = table.value_format
    if chosen is not None and not chosen.insert_only:
        message = (
            f"the value format {chosen.identifier!r} carries changes of its own, but in an upsert table each value is "
            "the current row"
        )
        instead = "a KafkaTable" if in_python else "the connector 'kafka'"
        fix = f"use a format that only inserts rows, such as json or avro; or {instead} for this format"
        yield problem(table, "upsert-format", message, fix, option="value.format")


def check_buffer(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a write, options of the buffer that are neither both greater than zero nor both zero (UP-8, UP-9)."""
    options = table.upserts
    if options is None or direction != "write":
        return
    rows, interval = options.buffer_rows, options.buffer_interval
    if (rows > 0 and interval > timedelta()) or (rows == 0 and interval == timedelta()):
        return
    rows_set, interval_set = table.setting("buffer_rows", rows), table.option_name("buffer_interval")
    message = f"{rows_set} and {interval_set} of {duration_text(interval)} must both be set or both be zero"
    fix = "set both to more than zero, or remove both to turn the buffer off"
    yield problem(table, "upsert-buffer", message, fix, option="buffer_rows" if rows <= 0 else "buffer_interval")


def check_normalization(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a read, normalization that cannot work, and its options in tables without it (CL-3).

    It needs change data, a primary key that identifies rows of the source, and for ``truncate = 'apply'`` a single
    topic and all rows in state. Upsert tables, and a value format that could not be read, are not checked.
    """
    if table.upserts is not None or direction != "read" or "value" in table.unread:
        return
    options, chosen = table.options, table.value_format
    declared = table.setting("cdc_events_duplicate", _TRUE[table.spelling])
    if not options.cdc_events_duplicate:
        for attribute in ("changelog", "changelog_state", "state_ttl", "state_location"):
            if (value := getattr(options, attribute)) != getattr(type(options)(), attribute):
                message = f"{table.setting(attribute, value)}, but the table does not keep rows by key"
                fix = f"remove it; or set {declared} for change data, or declare an upsert table"
                yield problem(table, "changelog-option", message, fix, option=attribute)
        return
    if chosen is None or chosen.insert_only:
        what = (
            "there is no value format"
            if chosen is None
            else f"the value format {chosen.identifier!r} only inserts rows"
        )
        message = f"{declared} keeps the last row of each key of change data, but {what}"
        fix = "remove it, or use a format that carries changes, such as debezium-json; "
        fix += "declare a topic with the current row of each key as an upsert table"
        yield problem(table, "cdc-duplicate-format", message, fix, option="cdc_events_duplicate")
    if not table.primary_key:
        message = f"{declared} keeps the last row of each key, but the table declares no primary key"
        fix = _PRIMARY_KEY[table.spelling]
        if table.spelling is Spelling.PYTHON:
            fix = "name its columns with primary_key=[...]; where the message key has them, too, "
            fix += "declare them as PrimaryKey[...]"
        yield problem(table, "cdc-duplicate-key", message, fix, option="cdc_events_duplicate")
    if chosen is not None and chosen.on_truncate == "apply":
        option, key = "value.format", chosen.deciding_option("on_truncate")[1]
        skip = f"{key} = 'skip', with which the rows of a truncated table stay"
        if options.changelog == "upsert":
            without = table.setting("changelog", "upsert")
            message = f"{key} = 'apply' deletes all rows, but with {without} the table keeps no rows"
            fix = f"set {table.setting('changelog', 'full')}, or {skip}"
            yield problem(table, "cdc-duplicate-truncate", message, fix, option=option)
        if options.topic_pattern is not None or len(set(options.topic)) > 1:
            message = (
                f"{key} = 'apply' deletes all rows, but with several topics it is unknown which rows came "
                "from the truncated table"
            )
            fix = f"declare a table for each topic, or set {skip}"
            yield problem(table, "cdc-duplicate-truncate", message, fix, option=option)
    by_name = {c.name: c for c in table.columns}
    for column in (by_name[name] for name in table.primary_key if name in by_name):
        if column.role == "metadata" and column.shows != "topic" and not column.shows.startswith(IN_VALUE):
            message = f"the primary key has the record's {column.shows}, which does not identify a row of the source"
            fix = "name the columns of the database's primary key"
            yield problem(table, "cdc-duplicate-key", message, fix, column=column)


def check_state_by_partition(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a read, the changelog state ``partition`` where it cannot be proven that a key has one partition.

    The message key must consist of the primary key, in a format that encodes it alone, and there must be one topic. A
    key format that could not be read is not checked.
    """
    options = table.options
    declared = table.keeps_rows and options.changelog_state == "partition"
    if direction != "read" or not declared or "key" in table.unread:
        return
    shown = table.setting("changelog_state", "partition")
    by_key = f"or write {table.setting('changelog_state', 'key')}"
    if options.topic_pattern is not None or len(set(options.topic)) > 1:
        message = f"{shown} keeps the rows of a key with its partition, but a key may be in several topics"
        yield problem(
            table, "changelog-state", message, f"declare a table for each topic, {by_key}", option="changelog_state"
        )
    if set(table.message_key) != set(table.primary_key):
        key = listing(table.message_key) if table.message_key else "not declared"
        message = (
            f"{shown} keeps the rows of a key with the partition that its message key determines, but the message key "
            f"is {key}, and the primary key {listing(table.primary_key)}"
        )
        fix = f"declare the key's format and its columns as the messages have them (PrimaryKey[...]), {by_key}"
        yield problem(table, "changelog-state", message, fix, option="changelog_state")


def check_realtime(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report real-time mode in an upsert table, and in a read of change data that keeps the last row of each key."""
    if table.options.latency != "realtime" or not (table.upserts or (table.normalized and direction == "read")):
        return
    what = "keeps the last row of each key" if direction == "read" else "combines the changes of a key"
    kind = "an upsert table" if table.upserts else "the table"
    message = f"{table.setting('latency', 'realtime')}, but {kind} {what}, which requires micro-batches"
    yield problem(table, "upsert-realtime", message, f"set {table.setting('latency', 'micro-batch')}", option="latency")
