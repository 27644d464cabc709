"""``kdsl run --start-at``: where the tables of a script start in this run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import typer

from kdsl.declare.start_and_end import OFFSETS_FORM, Checkpoint, StartAt, offset_pairs
from kdsl.errors import Problem, ResolveError, listing, nearest
from kdsl.resolve.startup import launch_start
from kdsl.table import Table

_HINT = "--start-at"
_MODES: Mapping[str, StartAt] = {
    "group-offsets": "group-offsets",
    "earliest": "earliest",
    "earliest-offset": "earliest",
    "latest": "latest",
    "latest-offset": "latest",
}
_CHECKPOINT = "checkpoint:"
_FIX = "write earliest, latest, group-offsets, a time as 2025-01-31T08:00:00Z, checkpoint:FOLDER, or "
_FIX += f"'{OFFSETS_FORM}'"


def table_starts(values: Sequence[str] | None, tables: Iterable[Table]) -> dict[str, StartAt]:
    """Parse ``--start-at`` into the start of each table.

    ``WHEN`` applies to all tables except upsert tables, which are always read from the beginning; ``TABLE=WHEN``
    applies to one table and takes precedence. Of several for the same tables the last one counts; tables without a
    start are left out.

    Args:
        values: The values of the option.
        tables: The tables of the script that are topics of Kafka.
    """
    by_name = {table.name: table for table in tables}
    shared: dict[str, StartAt] = {}
    single: dict[str, StartAt] = {}
    for text in values or ():
        name, equals, rest = ("", "", text) if text.startswith(_CHECKPOINT) else text.partition("=")
        when = _parse_start(rest if equals else text)
        if not equals:
            shared = {name: when for name, table in by_name.items() if table.definition.upserts is None}
        elif name in by_name:
            single[name] = when
        else:
            known = f"; the script has {listing(by_name)}" if by_name else ""
            message = f"there is no table {name!r} in Kafka{nearest(name, by_name)}{known}"
            raise typer.BadParameter(message, param_hint=_HINT)
    starts: dict[str, StartAt] = {**shared, **single}
    problems: list[Problem] = []
    for name, when in starts.items():
        try:
            launch_start(by_name[name].definition, when)
        except ResolveError as e:
            problems += e.problems
    if problems:
        raise typer.BadParameter("; ".join(f"{p.message}: {p.fix}" for p in problems), param_hint=_HINT)
    return starts


def _parse_start(text: str) -> StartAt:
    """Parse a start: a mode, the checkpoint of another query, offsets by partition, milliseconds, or a time."""
    if text.lower() in _MODES:
        return _MODES[text.lower()]
    if text.startswith(_CHECKPOINT) and text != _CHECKPOINT:
        return Checkpoint(text.removeprefix(_CHECKPOINT))
    if text.startswith("partition:"):
        try:
            return dict(offset_pairs(text))
        except ValueError as e:
            raise typer.BadParameter(f"{e}; {_FIX}", param_hint=_HINT) from None
    if text.isdecimal():
        try:
            return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=int(text))
        except (OverflowError, ValueError):  # int takes 4300 digits
            message = f"the time {text[:30]} is in milliseconds since 1970, and lies after the year 9999"
            raise typer.BadParameter(f"{message}; {_FIX}", param_hint=_HINT) from None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        if not text.strip():
            raise typer.BadParameter(f"the start is empty; {_FIX}", param_hint=_HINT) from None
        raise typer.BadParameter(f"{text!r} is not a start{nearest(text, _MODES)}; {_FIX}", param_hint=_HINT) from None
    if moment.tzinfo is None:
        full = moment.isoformat()
        message = f"the time {text!r} has no time zone; write {full}Z for UTC, or an offset as {full}+01:00"
        raise typer.BadParameter(message, param_hint=_HINT)
    return moment
