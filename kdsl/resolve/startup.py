"""Where a read starts and where it ends, and whether it looks for more (RULES ST-1 to ST-11, BD-1 to BD-6, PR-7)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import attrs

from kdsl.client.connector import connector_settings
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import TableDef
from kdsl.declare.moments import moment_options
from kdsl.durations import duration_text
from kdsl.errors import Problem, fail_on
from kdsl.formats import Direction
from kdsl.options import Spelling
from kdsl.resolve.model import Start, StartMode, Stop, StopMode
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


def default_group(table: TableDef) -> str:
    """The consumer group of a table that declares none (seed 001)."""
    return f"KafkaSource-{table.name}"


def start_of(table: TableDef) -> Start:
    """The start of a table that holds."""
    mode, timestamp, offsets = _read(table, "startup")
    reset = connector_settings(table.properties.revealed()).auto_offset_reset or "none"
    return Start(cast("StartMode", mode), timestamp, offsets, reset)


def launch_start(table: TableDef, value: Any) -> tuple[Start, tuple[Problem, ...]]:
    """The start that is given when a read is launched, with ``start_at=``, and what is odd about it (seed 000).

    Args:
        table: The table, which holds.
        value: A value of the argument ``startup=`` of a table class.

    Raises:
        ResolveError: It is no start, or none of this table.
    """
    what = f"start_at= of {table.name}"
    if table.upserts is not None:
        message = f"start_at= is given, but {table.name} is an upsert table, which is read from the beginning"
        fix = "leave it out, or read the topic with a KafkaTable"
        fail_on([problem(table, "upsert-start", message, fix)], what)
    found = moment_options(value, "startup", "start_at")
    wrong = [found.at(attrs.evolve(table.where, table=table.name))] if isinstance(found, Problem) else []
    fail_on(wrong, what)
    changes: Any = {"startup_timestamp": None, "startup_offsets": None, **cast("dict[str, Any]", found)}
    options: KafkaOptions = attrs.evolve(cast("Any", table.options), **changes)
    launched = attrs.evolve(table, options=options, spelling=Spelling.PYTHON, places={})
    warnings = fail_on(list(_Mode(launched, "startup", "start_at").problems()), what)
    return start_of(launched), warnings


def stop_of(table: TableDef) -> Stop:
    """The end of a table that holds."""
    mode, timestamp, offsets = _read(table, "bounded")
    return Stop(cast("StopMode", mode), timestamp, offsets)


def startup(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """The startup mode has what it needs, and nothing is given that it does not use."""
    if direction == "read":
        yield from _Mode(table, "startup").problems()


def bounded(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """The bounded mode has what it needs, and nothing is given that it does not use."""
    if direction == "read":
        yield from _Mode(table, "bounded").problems()


DISCOVERY = "partition.discovery.interval.ms"


def discovery_of(table: TableDef) -> timedelta | None:
    """How often a stream over a table that holds looks for new partitions; None is never.

    The option comes before the client property, which comes before the option's default. What is bounded is not
    looked through for more.
    """
    given = table.options.discovery
    millis = connector_settings(table.properties.revealed()).discovery_interval_ms
    if millis is not None and not _discovery_given(table):
        given = timedelta(milliseconds=max(0, millis))
    return given if given > timedelta() and stop_of(table).mode == "unbounded" else None


def _discovery_given(table: TableDef) -> bool:
    option = attrs.fields_dict(KafkaOptions)["discovery"]
    return option.metadata["key"] in table.places or table.options.discovery != option.default


def discovery(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """The option and the client property that say how often new partitions are looked for do not disagree."""
    millis = connector_settings(table.properties.revealed()).discovery_interval_ms
    if direction != "read" or millis is None or not _discovery_given(table):
        return
    given = table.options.discovery
    off = given <= timedelta() and millis <= 0
    if not off and given != timedelta(milliseconds=millis):
        name = table.option_name("discovery")
        message = f"{name} is {duration_text(given)}, and the client property {DISCOVERY!r} is {millis}: {name} counts"
        fix = f"remove the client property {DISCOVERY!r}"
        yield problem(table, "discovery", message, fix, option="discovery", severity="warning")


def group(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """A group id that is given is not empty: Kafka takes none."""
    given = table.properties.revealed().get("group.id")
    if direction == "read" and given is not None and not given.strip():
        message = f"the consumer group 'group.id' is {given!r}, which names none"
        fix = f"give it a name, or remove it: the group is {default_group(table)} then"
        yield problem(table, "group-id", message, fix, option="properties.group.id")


def _read(table: TableDef, side: str) -> tuple[str, int | None, tuple[tuple[str, int, int], ...]]:
    options = table.options
    mode = getattr(options, side).removesuffix("-offset")
    pairs = parse_offsets(getattr(options, f"{side}_offsets") or "") if mode == "specific-offsets" else ()
    offsets = tuple((options.topic[0], partition, offset) for partition, offset in pairs)
    return mode, getattr(options, f"{side}_timestamp") if mode == "timestamp" else None, offsets


@attrs.frozen
class _Mode:
    """The options of one side, startup or bounded, which have the same form.

    Attributes:
        table: The table.
        side: The side.
        called: What the argument is called in Python, if not like the side.
    """

    table: TableDef
    side: str
    called: str = ""

    def problems(self) -> Iterator[Problem]:
        """Everything that is wrong or odd with them."""
        millis, offsets = self._given("timestamp"), self._given("offsets")
        if self.mode == "timestamp" and millis is None:
            fix = f"give {self.named} an aware datetime" if self.in_python else f"add {self._name('timestamp')} with "
            fix += "" if self.in_python else "milliseconds since 1970"
            yield self._problem("timestamp", f"{self.named} is 'timestamp', but no time is given", fix)
        if self.mode == "specific-offsets":
            yield from self._specific(offsets)
        for what, given, needs in (("timestamp", millis, "timestamp"), ("offsets", offsets, "specific-offsets")):
            if given is not None and self.mode != needs:
                message = f"{self._name(what)} has no effect, because {self.named} is {self.mode!r}"
                fix = f"set {self.named} to {needs!r}, or remove it"
                yield attrs.evolve(self._problem("unused", message, fix, what), severity="warning")
        shown = self.named if self.in_python else self._name("timestamp")
        if self.mode == "timestamp" and millis is not None and not 0 <= millis < 1 << 63:
            message = f"{shown} is {millis} ms after 1970, which is no time of a Kafka record"
            yield self._problem("timestamp", message, "give a time from 1970 on", "timestamp")
        elif self.mode == "timestamp" and millis is not None and millis < SMALLEST_MILLIS:
            message = f"{shown} is {millis} ms after 1970, which is a time before March 1973"
            fix = "give the time that you mean"
            fix = fix if self.in_python else "give milliseconds since 1970-01-01 UTC, not seconds"
            yield attrs.evolve(self._problem("seconds", message, fix, "timestamp"), severity="warning")

    @property
    def mode(self) -> str:
        """The mode, in small letters."""
        return str(getattr(self.table.options, self.side))

    @property
    def in_python(self) -> bool:
        """Whether one argument stands for all options of the side."""
        return self.table.spelling is Spelling.PYTHON

    @property
    def named(self) -> str:
        """The mode's option as the user wrote it."""
        return self.table.option_name(self.called or self.side) if self.in_python else f"'scan.{self.side}.mode'"

    def _specific(self, offsets: str | None) -> Iterator[Problem]:
        name = self._name("offsets")
        form = f"{self.named}{{0: 42, 1: 300}}" if self.in_python else f"{name} = '{OFFSETS_FORM}'"
        if offsets is None:
            message = f"{self.named} is 'specific-offsets', but no offsets are given"
            yield self._problem("offsets", message, f"write {form}")
        else:
            try:
                parse_offsets(offsets)
            except ValueError as e:
                message = f"{self.named if self.in_python else name} has the value {offsets!r}: {e}"
                yield self._problem("offsets", message, f"write {form}", "offsets")
        if len(self.table.options.topic) != 1:
            message = f"{self.named} 'specific-offsets' gives offsets by partition, which needs a single topic"
            yield self._problem("topics", message, f"name one topic, or choose another {self.side} mode")

    def _given(self, what: str) -> Any:
        return getattr(self.table.options, f"{self.side}_{what}")

    def _name(self, what: str) -> str:
        return self.table.option_name(f"{self.side}_{what}")

    def _problem(self, what: str, message: str, fix: str, option: str = "") -> Problem:
        attribute = f"{self.side}_{option}" if option else self.side
        return problem(self.table, f"{self.side}-{what}", message, fix, option=attribute)
