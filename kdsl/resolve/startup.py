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
_PAIR = re.compile(r"partition:(\d+),offset:(\d+)", re.ASCII)
_MOST = {"partition": (1 << 31) - 1, "offset": (1 << 63) - 1}


def parse_offsets(text: str) -> tuple[tuple[int, int], ...]:
    """Read ``partition:0,offset:42;partition:1,offset:300``; of a repeated partition the last offset counts.

    Raises:
        ValueError: The text has another form, or a number is larger than Kafka's.
    """
    return tuple(sorted(dict(_pairs(text)).items()))


def _pairs(text: str) -> list[tuple[int, int]]:
    pairs = []
    parts = text.split(";")
    for part in parts[:-1] if len(parts) > 1 and not parts[-1] else parts:
        found = _PAIR.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} is not of the form 'partition:<number>,offset:<number>'")
        partition, offset = int(found[1]), int(found[2])
        for what, number in (("partition", partition), ("offset", offset)):
            if number > _MOST[what]:
                raise ValueError(f"the {what} {number} is above Kafka's largest, {_MOST[what]}")
        pairs.append((partition, offset))
    return pairs


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


def order(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """A read does not end before it starts. It would be empty, which may be meant where both are worked out."""
    if direction != "read" or table.upserts is not None:
        return
    start, stop = _Mode(table, "startup"), _Mode(table, "bounded")
    pairs: list[tuple[str, str, str]] = []
    if start.mode == stop.mode == "timestamp":
        first, last = table.options.startup_timestamp, table.options.bounded_timestamp
        if first is not None and last is not None and first > last:
            pairs.append(("", str(first), str(last)))
    if start.mode == stop.mode == "specific-offsets":
        try:
            begins, ends = (dict(parse_offsets(mode.given("offsets") or "")) for mode in (start, stop))
        except ValueError:  # told by its own rule
            return
        pairs += [(f" for partition {p}", str(o), str(ends[p])) for p, o in begins.items() if o > ends.get(p, o)]
    for where, first_text, last_text in pairs:
        what = "timestamp" if start.mode == "timestamp" else "offsets"
        message = (
            f"{start.shown(what)} is {first_text}{where}, and {stop.shown(what)} is {last_text}: the read ends before "
            "it starts, and finds nothing"
        )
        attribute = f"startup_{what}"
        fix = "give an end that comes behind the start"
        yield problem(table, "startup-order", message, fix, option=attribute, severity="warning")


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
        millis, offsets = self.given("timestamp"), self.given("offsets")
        if self.mode == "timestamp" and millis is None and not self._wrong("timestamp"):
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
        shown = self.shown("timestamp")
        if self.mode == "timestamp" and millis is not None and not 0 <= millis < 1 << 63:
            message = f"{shown} is {millis} ms after 1970, which is no time of a Kafka record"
            fix = "give a time from 1970 on" if millis < 0 else "give milliseconds since 1970-01-01 UTC"
            yield self._problem("timestamp", message, fix, "timestamp")
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
                yield from self._repeated(_pairs(offsets))
            except ValueError as e:
                message = f"{self.shown('offsets')} has the value {offsets!r}: {e}"
                yield self._problem("offsets", message, f"write {form}", "offsets")
        if len(self.table.options.topic) != 1:
            message = f"{self.named} 'specific-offsets' gives offsets by partition, which needs a single topic"
            yield self._problem("topics", message, f"name one topic, or choose another {self.side} mode")

    def _repeated(self, pairs: list[tuple[int, int]]) -> Iterator[Problem]:
        last: dict[int, int] = {}
        for partition, offset in pairs:
            if last.get(partition, offset) != offset:
                message = (
                    f"{self._name('offsets')} gives partition {partition} the offsets {last[partition]} and {offset}"
                )
                odd = self._problem("repeated", f"{message}: {offset} counts", "remove the other one", "offsets")
                yield attrs.evolve(odd, severity="warning")
            last[partition] = offset

    def given(self, what: str) -> Any:
        """The value of one of the side's other options."""
        return getattr(self.table.options, f"{self.side}_{what}")

    def shown(self, what: str) -> str:
        """What the user gave it with."""
        return self.named if self.in_python else self._name(what)

    def _wrong(self, what: str) -> bool:
        """Whether a value stands there that cannot be read, which has been told."""
        return attrs.fields_dict(KafkaOptions)[f"{self.side}_{what}"].metadata["key"] in self.table.places

    def _name(self, what: str) -> str:
        return self.table.option_name(f"{self.side}_{what}")

    def _problem(self, what: str, message: str, fix: str, option: str = "") -> Problem:
        attribute = f"{self.side}_{option}" if option else self.side
        return problem(self.table, f"{self.side}-{what}", message, fix, option=attribute)
