"""Where a read starts and ends, and how often it looks for new partitions (RULES ST-1 to ST-11, BD-1 to BD-6, PR-7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, cast

import attrs

from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import TableDef
from kdsl.declare.start_and_end import OFFSETS_FORM, Checkpoint, offset_pairs, start_or_end_options
from kdsl.durations import duration_text
from kdsl.errors import Problem, fail_on
from kdsl.formats import Direction
from kdsl.options import Spelling
from kdsl.resolve.model import Start, StartMode, Stop, StopMode
from kdsl.resolve.rule import problem

SMALLEST_MILLIS = 10**11


def default_group(table: TableDef) -> str:
    """The consumer group of a table that declares none."""
    return f"KafkaSource-{table.name}"


def commits_offsets(table: TableDef) -> bool:
    """Whether a stream commits its offsets to the table's group, unless the client properties turn commits off.

    It commits to a declared group, as Flink does, and to the default group of a table that starts at the group's
    offsets, because the next run starts there.
    """
    declared = table.kdsl_settings.group_id is not None
    return declared or (table.upserts is None and table.options.startup == "group-offsets")


def start_of(table: TableDef) -> Start:
    """The start of a read of a valid table: the mode with its timestamp or offsets, and the offset reset."""
    mode, timestamp, offsets = _start_or_end(table, "startup")
    reset = table.kdsl_settings.auto_offset_reset or "none"
    return Start(cast("StartMode", mode), timestamp, offsets, reset)


def launch_start(table: TableDef, value: Any) -> tuple[Start, tuple[Problem, ...]]:
    """The start of a single read, from its argument ``start_at=``, and the warnings about it.

    Args:
        table: The table, which must be valid.
        value: A value of the argument ``startup=`` of a table class, or the checkpoint of another query.
    """
    what = f"start_at= of {table.name}"
    if table.upserts is not None:
        message = f"start_at= is set, but {table.name} is an upsert table, which is always read from the beginning"
        fix = "remove it, or read the topic with a KafkaTable"
        fail_on([problem(table, "upsert-start", message, fix)], what)
    if isinstance(value, Checkpoint):
        try:
            rewind = value.rewind_length()
        except (ValueError, TypeError) as e:
            fix = "write how far to go back, as rewind='2 hours'"
            fail_on([problem(table, "startup-checkpoint", f"start_at= is {value!r}: {e}", fix)], what)
            raise
        reset = table.kdsl_settings.auto_offset_reset or "none"
        return Start("specific-offsets", reset=reset, checkpoint=value.location, rewind=rewind), ()
    options_of_start = start_or_end_options(value, "startup", "start_at")
    if isinstance(options_of_start, Problem):
        fail_on([options_of_start.at(attrs.evolve(table.where, table=table.name))], what)
    changes: Any = {"startup_timestamp": None, "startup_offsets": None, **cast("dict[str, Any]", options_of_start)}
    options: KafkaOptions = attrs.evolve(cast("Any", table.options), **changes)
    with_start = attrs.evolve(table, options=options, spelling=Spelling.PYTHON, option_locations={})
    warnings = fail_on(list(_Mode(with_start, "startup", "start_at").problems()), what)
    return start_of(with_start), warnings


def stop_of(table: TableDef) -> Stop:
    """The end of a read of a valid table: the mode with its timestamp or offsets."""
    mode, timestamp, offsets = _start_or_end(table, "bounded")
    return Stop(cast("StopMode", mode), timestamp, offsets)


def check_startup(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a read, options that the startup mode lacks or that are invalid; warn of those without effect.

    Report also specific offsets without a single topic. Warn also of a time before March 1973, and of a partition with
    two different offsets.
    """
    if direction == "read":
        yield from _Mode(table, "startup").problems()


def check_stop_options(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a read, options that the bounded mode lacks or that are invalid; warn as `startup` does."""
    if direction == "read":
        yield from _Mode(table, "bounded").problems()


def check_order(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Warn, for a read, if it ends before it starts, by timestamps or by offsets of a partition.

    Upsert tables, and pairs of different modes, are not checked.
    """
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
            begins, ends = (dict(offset_pairs(mode.value("offsets") or "")) for mode in (start, stop))
        except ValueError:  # another rule reports it
            return
        pairs += [(f" for partition {p}", str(o), str(ends[p])) for p, o in begins.items() if o > ends.get(p, o)]
    for where, first_text, last_text in pairs:
        what = "timestamp" if start.mode == "timestamp" else "offsets"
        message = (
            f"{start.spelling(what)} is {first_text}{where}, and {stop.spelling(what)} is {last_text}: the read ends "
            "before it starts, and returns nothing"
        )
        attribute = f"startup_{what}"
        fix = "choose an end after the start"
        yield problem(table, "startup-order", message, fix, option=attribute, severity="warning")


DISCOVERY = "partition.discovery.interval.ms"


def discovery_of(table: TableDef) -> timedelta | None:
    """How often a stream looks for new partitions; None is never.

    An option that is set overrides the client property, which overrides the option's default. An interval of zero or
    less means never, and a bounded read never looks.
    """
    interval = table.options.discovery
    millis = table.kdsl_settings.discovery_interval_ms
    if millis is not None and not _is_discovery_set(table):
        interval = timedelta(milliseconds=max(0, millis))
    return interval if interval > timedelta() and stop_of(table).mode == "unbounded" else None


def _is_discovery_set(table: TableDef) -> bool:
    """Return whether the table declares how often topics are looked up."""
    option = attrs.fields_dict(KafkaOptions)["discovery"]
    return option.metadata["key"] in table.option_locations or table.options.discovery != option.default


def check_discovery(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Warn, for a read, if an option and a client property of partition discovery contradict each other."""
    millis = table.kdsl_settings.discovery_interval_ms
    if direction != "read" or millis is None or not _is_discovery_set(table):
        return
    interval = table.options.discovery
    off = interval <= timedelta() and millis <= 0
    if not off and interval != timedelta(milliseconds=millis):
        name = table.option_name("discovery")
        message = (
            f"{name} is {duration_text(interval)}, but the client property {DISCOVERY!r} is {millis}; {name} is used"
        )
        fix = f"remove the client property {DISCOVERY!r}"
        yield problem(table, "discovery", message, fix, option="discovery", severity="warning")


def check_group(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a read, an empty or blank group id, which Kafka would reject."""
    group_id = table.properties.reveal().get("group.id")
    if direction == "read" and group_id is not None and not group_id.strip():
        message = f"the consumer group 'group.id' is {group_id!r}, which is not a name"
        fix = f"name the group, or remove it to use the group {default_group(table)}"
        yield problem(table, "group-id", message, fix, option="properties.group.id")


def _start_or_end(table: TableDef, side: str) -> tuple[str, int | None, tuple[tuple[str, int, int], ...]]:
    """Return the mode (``earliest``), timestamp and sorted offsets of the ``side`` of a valid table.

    Without their modes the timestamp is None, and the offsets are empty.
    """
    options = table.options
    mode = getattr(options, side).removesuffix("-offset")
    pairs = dict(offset_pairs(getattr(options, f"{side}_offsets") or "")) if mode == "specific-offsets" else {}
    offsets = tuple((options.topic[0], partition, offset) for partition, offset in sorted(pairs.items()))
    return mode, getattr(options, f"{side}_timestamp") if mode == "timestamp" else None, offsets


@attrs.frozen
class _Mode:
    """The options of a start or of an end, which have the same form.

    Attributes:
        table: The table.
        side: The side.
        argument: The name of the argument in Python, if it is not that of the side.
    """

    table: TableDef
    side: str
    argument: str = ""

    def problems(self) -> Iterator[Problem]:
        """Report, for the mode of the start or of the end, an option that it lacks or that is invalid.

        Report also specific offsets without a single topic. Warn of an option without effect, of a time before March
        1973, and of a partition with two different offsets.
        """
        millis, offsets = self.value("timestamp"), self.value("offsets")
        if self.mode == "timestamp" and millis is None and not self._is_unreadable("timestamp"):
            fix = f"set {self.named} to an aware datetime" if self.in_python else f"add {self._name('timestamp')} with "
            fix += "" if self.in_python else "milliseconds since 1970"
            yield self._create_side_problem("timestamp", f"{self.named} is 'timestamp', but no time is set", fix)
        if self.mode == "specific-offsets":
            yield from self._check_specific_offsets(offsets)
        for what, value, needs in (("timestamp", millis, "timestamp"), ("offsets", offsets, "specific-offsets")):
            if value is not None and self.mode != needs:
                message = f"{self._name(what)} has no effect, because {self.named} is {self.mode!r}"
                fix = f"set {self.named} to {needs!r}, or remove it"
                yield attrs.evolve(self._create_side_problem("unused", message, fix, what), severity="warning")
        option = self.spelling("timestamp")
        if self.mode == "timestamp" and millis is not None and not 0 <= millis < 1 << 63:
            message = f"{option} is {millis} ms after 1970, which is not a valid timestamp of a Kafka record"
            fix = "set a time after 1970" if millis < 0 else "write milliseconds since 1970-01-01 UTC"
            yield self._create_side_problem("timestamp", message, fix, "timestamp")
        elif self.mode == "timestamp" and millis is not None and millis < SMALLEST_MILLIS:
            message = f"{option} is {millis} ms after 1970, which is before March 1973"
            fix = "check the time"
            fix = fix if self.in_python else "write milliseconds since 1970-01-01 UTC, not seconds"
            yield attrs.evolve(self._create_side_problem("seconds", message, fix, "timestamp"), severity="warning")

    @property
    def mode(self) -> str:
        """The mode, in lower case."""
        return str(getattr(self.table.options, self.side))

    @property
    def in_python(self) -> bool:
        """Whether one argument sets all options of the side."""
        return self.table.spelling is Spelling.PYTHON

    @property
    def named(self) -> str:
        """The mode's option as the user wrote it."""
        return self.table.option_name(self.argument or self.side) if self.in_python else f"'scan.{self.side}.mode'"

    def _check_specific_offsets(self, offsets: Mapping[int, int] | str | None) -> Iterator[Problem]:
        """Report specific offsets that are missing, cannot be read, or are not for one topic; warn of repetitions."""
        name = self._name("offsets")
        form = f"{self.named}{{0: 42, 1: 300}}" if self.in_python else f"{name} = '{OFFSETS_FORM}'"
        if offsets is None:
            message = f"{self.named} is 'specific-offsets', but no offsets are set"
            yield self._create_side_problem("offsets", message, f"write {form}")
        else:
            try:
                yield from self._warn_of_repetition(list(offset_pairs(offsets)))
            except ValueError as e:
                message = f"{self.spelling('offsets')} has the value {offsets!r}: {e}"
                yield self._create_side_problem("offsets", message, f"write {form}", "offsets")
        if len(self.table.options.topic) != 1:
            message = f"{self.named} 'specific-offsets' sets offsets by partition, which requires a single topic"
            yield self._create_side_problem("topics", message, f"name one topic, or choose another {self.side} mode")

    def _warn_of_repetition(self, pairs: Iterable[tuple[int, int]]) -> Iterator[Problem]:
        """Warn of a partition with two different offsets; the last one is used."""
        last: dict[int, int] = {}
        for partition, offset in pairs:
            if last.get(partition, offset) != offset:
                message = (
                    f"{self._name('offsets')} sets the offsets {last[partition]} and {offset} for partition {partition}"
                )
                warning = self._create_side_problem(
                    "repeated", f"{message}; {offset} is used", "remove the other one", "offsets"
                )
                yield attrs.evolve(warning, severity="warning")
            last[partition] = offset

    def value(self, what: str) -> Any:
        """The value of another option of the side: ``timestamp`` or ``offsets``."""
        return getattr(self.table.options, f"{self.side}_{what}")

    def spelling(self, what: str) -> str:
        """The name under which the user sets another option of the side: ``timestamp`` or ``offsets``."""
        return self.named if self.in_python else self._name(what)

    def _is_unreadable(self, what: str) -> bool:
        """Whether an option without a value is set in the declaration: it cannot be read, which is another problem."""
        return attrs.fields_dict(KafkaOptions)[f"{self.side}_{what}"].metadata["key"] in self.table.option_locations

    def _name(self, what: str) -> str:
        """Return an option of the start or the end as the table spells it."""
        return self.table.option_name(f"{self.side}_{what}")

    def _create_side_problem(self, what: str, message: str, fix: str, option: str = "") -> Problem:
        """Create a problem of the side with the code ``<side>-<what>``, at one of its options, by default the mode."""
        attribute = f"{self.side}_{option}" if option else self.side
        return problem(self.table, f"{self.side}-{what}", message, fix, option=attribute)
