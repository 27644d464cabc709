"""Upsert tables: the primary key is the message key, formats only insert, the buffer is on or off.

Source: Flink's UpsertKafkaDynamicTableFactory (RULES UP-1 to UP-9).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from kdsl.declare.definition import TableDef
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


def key_of_upserts(table: TableDef, _: Direction) -> Iterator[Problem]:
    """An upsert table has a primary key, and no other column in its message key (UP-1, UP-7)."""
    if table.upserts is None:
        return
    marked = tuple(c.name for c in table.columns if c.key) if table.key_fields is None else table.key_fields
    if not table.primary_key:
        message = "an upsert table has no primary key, so nothing says which row a record updates or deletes"
        fix = _PRIMARY_KEY[table.spelling]
        yield problem(table, "upsert-key", message, fix, column=next((c for c in table.columns if c.key), None))
    elif marked and set(marked) != set(table.primary_key):
        message = (
            f"the message key is {listing(marked)}, and the primary key is {listing(table.primary_key)}, but in an "
            "upsert table they are one"
        )
        yield problem(table, "upsert-key", message, "leave the mark Key out, and declare PrimaryKey[...] alone")


def value_of_upserts(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Both formats are there, and the value's does not carry changes of its own (UP-2, UP-5; the key's: KEY-12)."""
    if table.upserts is None:
        return
    in_python, yaml = table.spelling is Spelling.PYTHON, table.spelling is Spelling.YAML
    for side, chosen in (("key", table.key_format), ("value", table.value_format)):
        told_elsewhere = table.primary_key if side == "key" else value_columns(table)
        if chosen is None and side not in table.unread and not told_elsewhere:
            name = f"{side}=" if in_python else f"'{side}.format'"
            example = f"{name}Json()" if in_python else f"{name}: json" if yaml else f"{name} = 'json'"
            message = f"there is no format for the message {side} ({name} is missing)"
            yield problem(table, f"{side}-format", message, f"add one, as {example}", option=f"{side}.format")
    chosen = table.value_format
    if chosen is not None and not chosen.insert_only:
        message = (
            f"the value format {chosen.identifier!r} carries changes of its own, but in an upsert table each value is "
            "the row that now holds"
        )
        instead = "a KafkaTable" if in_python else "the connector 'kafka'"
        fix = f"use a format that only inserts, as json or avro; or {instead} for this format"
        yield problem(table, "upsert-format", message, fix, option="value.format")


def buffer(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """The buffer needs both of its options greater than zero, or neither (UP-8, UP-9)."""
    options = table.upserts
    if options is None or direction != "write":
        return
    rows, interval = options.buffer_rows, options.buffer_interval
    if (rows > 0 and interval > timedelta()) or (rows == 0 and interval == timedelta()):
        return
    rows_set, interval_set = table.setting("buffer_rows", rows), table.option_name("buffer_interval")
    message = f"{rows_set} and {interval_set} of {duration_text(interval)} do not make a buffer together"
    fix = "give both greater than zero, or leave both out: nothing is gathered then"
    yield problem(table, "upsert-buffer", message, fix, option="buffer_rows" if rows <= 0 else "buffer_interval")


def event_time(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """A watermark stands on a column that is there before changes are made, which computed ones are not."""
    if table.upserts is None or direction != "read" or table.upserts.changelog != "full":
        return
    computed = {c.name for c in table.columns if c.role == "computed"}
    for declared in table.watermarks:
        if declared.column not in computed:
            continue
        message = (
            "the watermark stands on a computed column, but the changes of an upsert table are made before columns are "
            "computed, and Spark takes no watermark behind them"
        )
        without = table.setting("changelog", "upsert")
        fix = f"put it on a column of the message or its metadata, leave it out, or set {without}, which keeps no rows"
        yield problem(table, "upsert-watermark", message, fix, column=declared.column, where=declared.where)


def realtime(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Real-time mode cannot gather what one key changes."""
    if table.upserts is None or table.options.latency != "realtime":
        return
    what = "keeps the last row of each key" if direction == "read" else "brings the changes of a key together"
    message = f"{table.setting('latency', 'realtime')}, but an upsert table {what}, for which it needs micro-batches"
    yield problem(table, "upsert-realtime", message, "set latency='micro-batch'", option="latency")
