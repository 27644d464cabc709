"""Where a read starts (RULES ST-1 to ST-11; the decisions of the design on timestamps and unlisted partitions)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

from kdsl.client.connector import connector_settings
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem
from kdsl.formats import Direction
from kdsl.options import Spelling
from kdsl.resolve.model import Start, StartMode
from kdsl.resolve.rule import problem

OFFSETS_FORM = "partition:0,offset:42;partition:1,offset:300"
SMALLEST_MILLIS = 10**11
_PAIR = re.compile(r"partition:(\d{1,9}),offset:(\d{1,18})", re.ASCII)


def parse_offsets(text: str) -> tuple[tuple[int, int], ...]:
    """Read ``partition:0,offset:42;partition:1,offset:300``; of a repeated partition the last offset counts.

    Raises:
        ValueError: The text has another form.
    """
    pairs: dict[int, int] = {}
    parts = text.split(";")
    for part in parts[:-1] if len(parts) > 1 and not parts[-1] else parts:
        found = _PAIR.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} is not of the form 'partition:<number>,offset:<number>'")
        pairs[int(found[1])] = int(found[2])
    return tuple(sorted(pairs.items()))


def start_of(table: TableDef) -> Start:
    """The start of a table that holds."""
    options = table.options
    mode = cast("StartMode", options.startup.lower().removesuffix("-offset"))
    offsets = parse_offsets(options.startup_offsets or "") if mode == "specific-offsets" else ()
    reset = connector_settings(table.properties.revealed()).auto_offset_reset or "none"
    return Start(mode, options.startup_timestamp if mode == "timestamp" else None, offsets, reset)


def startup(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """The startup mode has what it needs, and nothing is given that it does not use."""
    if direction != "read":
        return
    options, mode = table.options, str(table.options.startup).lower()
    named = "startup=" if table.spelling is Spelling.PYTHON else "'scan.startup.mode'"
    millis, offsets = (table.option_name(f"startup_{kind}") for kind in ("timestamp", "offsets"))
    in_python = table.spelling is Spelling.PYTHON
    if mode == "timestamp" and options.startup_timestamp is None:
        fix = "give startup= an aware datetime" if in_python else f"add {millis} with milliseconds since 1970"
        yield problem(
            table, "startup-timestamp", f"{named} is 'timestamp', but no time is given", fix, option="startup"
        )
    if mode == "specific-offsets":
        yield from _specific_offsets(table, named, offsets)
    if options.startup_timestamp is not None and mode != "timestamp":
        message = f"{millis} has no effect, because {named} is {mode!r}"
        fix = f"set {named} to 'timestamp', or remove it"
        yield problem(table, "startup-unused", message, fix, option="startup_timestamp", severity="warning")
    if options.startup_offsets is not None and mode != "specific-offsets":
        message = f"{offsets} has no effect, because {named} is {mode!r}"
        fix = f"set {named} to 'specific-offsets', or remove it"
        yield problem(table, "startup-unused", message, fix, option="startup_offsets", severity="warning")
    when = options.startup_timestamp
    if mode == "timestamp" and when is not None and not 0 <= when < 1 << 63:
        message = f"{named if in_python else millis} is {when} ms after 1970, which is no time of a Kafka record"
        yield problem(table, "startup-timestamp", message, "give a time from 1970 on", option="startup_timestamp")
    elif mode == "timestamp" and when is not None and when < SMALLEST_MILLIS:
        message = f"{named if in_python else millis} is {when} ms after 1970, which is a time before March 1973"
        fix = "give the time that you mean" if in_python else "give milliseconds since 1970-01-01 UTC, not seconds"
        yield problem(table, "startup-seconds", message, fix, option="startup_timestamp", severity="warning")


def _specific_offsets(table: TableDef, named: str, offsets: str) -> Iterator[Problem]:
    options = table.options
    in_python = table.spelling is Spelling.PYTHON
    form = "startup={0: 42, 1: 300}" if in_python else f"{offsets} = '{OFFSETS_FORM}'"
    if options.startup_offsets is None:
        message = f"{named} is 'specific-offsets', but no offsets are given"
        yield problem(table, "startup-offsets", message, f"write {form}", option="startup")
    else:
        try:
            parse_offsets(options.startup_offsets)
        except ValueError as e:
            shown = named if in_python else offsets
            message = f"{shown} has the value {options.startup_offsets!r}: {e}"
            yield problem(table, "startup-offsets", message, f"write {form}", option="startup_offsets")
    if len(options.topic) != 1:
        message = f"{named} 'specific-offsets' gives offsets by partition, which needs a single topic"
        yield problem(
            table, "startup-topics", message, "name one topic, or choose another startup mode", option="startup"
        )
