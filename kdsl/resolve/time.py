"""Event time: at most one watermark, on a timestamp column that exists, with a valid delay."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from kdsl.declare.definition import TableDef
from kdsl.durations import duration_text, parse_duration
from kdsl.errors import Problem, listing, nearest
from kdsl.formats import Direction
from kdsl.resolve.rule import problem
from kdsl.types import model as t


def check_watermark(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a read, a second watermark, one on a wrong or missing column, and an invalid delay."""
    if direction != "read":
        return
    for declared in table.watermarks[1:]:
        names = listing(w.column for w in table.watermarks)
        message = f"a table has one watermark, but {names} each declare one"
        yield problem(
            table, "watermark-twice", message, "keep one of them", column=declared.column, where=declared.where
        )
    by_name = {c.name: c for c in table.columns}
    for declared in table.watermarks:
        column = by_name.get(declared.column)
        if column is None:
            hint = nearest(declared.column, by_name)
            message = f"the watermark is declared on {declared.column!r}, which is not a column{hint}"
            fix = f"name one of {listing(by_name)}"
            yield problem(table, "watermark-column", message, fix, where=declared.where)
        elif column.type_known and not isinstance(column.type, t.Timestamp | t.TimestampLtz):
            message = f"a watermark needs a TIMESTAMP or TIMESTAMP_LTZ column, but this is {column.type.spelling}"
            yield problem(table, "watermark-type", message, "declare it on a column with such a type", column=column)
        delay: object = declared.delay  # a class statement may hold anything
        try:
            complaint = "it is not a string"
            if isinstance(delay, str):
                complaint = "it is negative" if parse_duration(delay) < timedelta() else ""
        except ValueError as e:
            complaint = str(e)
        if complaint:
            message = f"the watermark's delay {declared.delay!r} is invalid: {complaint}"
            fix = "write how late a row may be, such as '5 seconds'"
            yield problem(table, "watermark-delay", message, fix, column=declared.column, where=declared.where)


def check_alignment(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report one alignment option without the other; warn, for a read, of both without a watermark (RULES section 1).

    Also warn, for a read, of a drift that is wider than the watermark's delay.
    """
    options = table.options
    values = {"watermark_group": options.watermark_group, "watermark_drift": options.watermark_drift}
    named = {name: table.option_name(name) for name in values}
    missing = [name for name, value in values.items() if value is None]
    if len(missing) == 1:
        (present,) = values.keys() - missing
        message = f"{named[present]} has no effect without {named[missing[0]]}"
        yield problem(table, "alignment-half", message, f"add {named[missing[0]]}, or remove it", option=present)
    elif direction == "write":
        return
    elif not missing and not table.watermarks:
        message = f"{named['watermark_group']} aligns partitions by the watermark, but the table declares none"
        fix = "declare a watermark, or remove the option"
        yield problem(table, "alignment", message, fix, option="watermark_group", severity="warning")
    elif not missing and options.watermark_drift is not None:
        yield from _check_drift(table, options.watermark_drift)


def check_max_ahead(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Warn, for a read, of a limit for the times that advance the watermark, if the table declares no watermark."""
    if direction == "read" and table.options.watermark_max_ahead is not None and not table.watermarks:
        name = table.option_name("watermark_max_ahead")
        message = f"{name} limits the times that advance the watermark, but the table declares none"
        fix = "declare a watermark, or remove the option"
        yield problem(table, "watermark-ahead", message, fix, option="watermark_max_ahead", severity="warning")


def _check_drift(table: TableDef, drift: timedelta) -> Iterator[Problem]:
    """Warn, for a table with a watermark, if partitions may be further apart than rows may be late."""
    delay: object = table.watermarks[0].delay
    try:
        late = parse_duration(delay) if isinstance(delay, str) else None
    except ValueError:  # another rule reports it
        return
    if late is not None and timedelta() <= late < drift:
        name = table.option_name("watermark_drift")
        message = (
            f"{name} lets a partition be ahead by {duration_text(drift)}, but rows may be late by "
            f"{duration_text(late)} only: rows of a slower partition may be dropped during a backlog"
        )
        fix = f"make the watermark's delay as long, or remove {name}"
        yield problem(table, "alignment", message, fix, option="watermark_drift", severity="warning")
