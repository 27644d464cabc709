"""Where a read starts and ends: in Python a mode, an aware time, or the offset of each partition.

One value in Python sets up to three options of the connector: in class statements, and when a read is started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, get_args

import attrs

from kdsl.durations import parse_duration
from kdsl.errors import Problem, listing, nearest

Startup: TypeAlias = (
    Literal["group-offsets", "earliest", "latest", "earliest-offset", "latest-offset"] | datetime | Mapping[int, int]
)
"""Where a read starts: a mode, an aware time, or the offset of each partition."""
Bounded: TypeAlias = Literal["unbounded", "group-offsets", "latest", "latest-offset"] | datetime | Mapping[int, int]
"""Where a read ends by itself: a mode, an aware time, or for each partition the first offset that is not read."""


@attrs.frozen
class Checkpoint:
    """Where the query of another checkpoint has stopped: a start for the query that takes its place.

    ```python
    old = kdsl.Checkpoint("s3a://bucket/enriched-1", rewind="2 hours")
    orders = Orders.read_stream(spark, cluster, start_at=old)
    ```

    Each partition starts at the offset after the last batch that the other query has completed, and partitions that it
    did not know start at their first record. The state of the other query stays with it.

    Attributes:
        location: The folder of the other query's checkpoint.
        rewind: How far before the watermark of the other query, by the timestamps of records, the read starts instead,
            to fill a new state; `Table.unread_by` then tells what the other query has not read. None: not at all.
    """

    location: str
    rewind: timedelta | str | None = attrs.field(default=None, kw_only=True)

    def rewind_length(self) -> timedelta | None:
        """Return `rewind` as a length of time.

        Raises:
            ValueError: It is not a duration such as '2 hours', or is negative.
        """
        length = parse_duration(self.rewind) if isinstance(self.rewind, str) else self.rewind
        if length is not None and length < timedelta():
            raise ValueError(f"rewind={self.rewind!r} is negative")
        return length


StartAt: TypeAlias = Startup | Checkpoint
"""Where a single read starts: as `Startup`, or where the query of another checkpoint has stopped."""

Side = Literal["startup", "bounded"]

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MODES: Mapping[Side, tuple[str, ...]] = {
    "startup": get_args(get_args(Startup)[0]),
    "bounded": get_args(get_args(Bounded)[0]),
}
_MODE_NAMES = {"earliest": "earliest-offset", "latest": "latest-offset"}
_VALUES_OF_MODES = {"timestamp": "time itself", "specific-offsets": "offsets themselves"}
OFFSETS_FORM = "partition:0,offset:42;partition:1,offset:300"
"""An example of how DDL and YAML spell the offset of each partition."""
_OFFSET = re.compile(r"partition:(\d+),offset:(\d+)", re.ASCII)
_LARGEST = {"partition": (1 << 31) - 1, "offset": (1 << 63) - 1}


def start_or_end_options(value: Any, side: Side, name: str = "") -> dict[str, Any] | Problem:
    """Return the options, by attribute of the connector's options, that a start or an end in Python sets, or a problem.

    Modes are accepted in any letter case; a time is rounded down to milliseconds. The problem has no location.

    Args:
        value: The value of the argument.
        side: Whether it is a start or an end.
        name: The name of the argument; by default that of the side.
    """
    name, modes = name or side, _MODES[side]
    fix = f"write one of {listing(modes)}, an aware datetime, or offsets as {{0: 42, 1: 300}}"
    match value:
        case str() if value.lower() in modes:
            return {side: _MODE_NAMES.get(value.lower(), value.lower())}
        case str() if value.lower() in _VALUES_OF_MODES:
            message = f"{name}= is {value!r}, but in Python it takes the {_VALUES_OF_MODES[value.lower()]}"
            return Problem("argument-value", message, fix)
        case str():
            return Problem("argument-value", f"{name}= is {value!r}{nearest(value, modes)}", fix)
        case datetime() if value.tzinfo is None:
            message = f"{name}= is the time {value.isoformat(sep=' ')}, which does not have a time zone"
            return Problem("argument-value", message, "add a time zone, as in datetime(2025, 1, 1, tzinfo=UTC)")
        case datetime():
            millis = (value - _EPOCH) // timedelta(milliseconds=1)
            return {side: "timestamp", f"{side}_timestamp": millis}
        case Mapping():
            if not value or not all(_is_number(p) and _is_number(o) for p, o in value.items()):
                message = f"{name}= is {value!r}, but partitions and offsets are integers from 0"
                return Problem("argument-value", message, f"write {name}={{0: 42, 1: 300}}")
            return {side: "specific-offsets", f"{side}_offsets": dict(value)}
        case _:
            verb = "start" if side == "startup" else "end"
            return Problem("argument-value", f"{name}= is {value!r}, where a read cannot {verb}", fix)


def _is_number(value: Any) -> bool:
    """Whether a value is an integer from 0, and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def offset_pairs(offsets: Mapping[int, int] | str) -> Iterator[tuple[int, int]]:
    """Yield the partitions and offsets of a mapping, or of a string such as `OFFSETS_FORM`.

    Args:
        offsets: The mapping, or the string of DDL or YAML.

    Raises:
        ValueError: The string has another form; or, in a mapping too, a partition is above 2³¹-1 or an offset above
            2⁶³-1.
    """
    pairs = offsets.items() if isinstance(offsets, Mapping) else _parse_pairs(offsets)
    for partition, offset in pairs:
        for what, number in (("partition", partition), ("offset", offset)):
            if number > _LARGEST[what]:
                raise ValueError(f"the {what} {number} is above Kafka's largest, {_LARGEST[what]}")
        yield partition, offset


def _parse_pairs(text: str) -> Iterator[tuple[int, int]]:
    """Parse the partitions and offsets of ``partition:0,offset:42;partition:1,offset:300``; it may end with a ``;``."""
    parts = text.split(";")
    for part in parts[:-1] if len(parts) > 1 and not parts[-1] else parts:
        match = _OFFSET.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not of the form 'partition:<number>,offset:<number>'")
        yield int(match[1]), int(match[2])


def parse_offsets(text: str) -> Mapping[int, int] | str:
    """Parse the offsets in a string of DDL or YAML.

    A string with a mistake, or with two offsets for one partition, is returned unchanged: the resolver reports it if a
    read uses it.

    Args:
        text: The string, such as `OFFSETS_FORM`.
    """
    try:
        pairs = list(offset_pairs(text))
    except ValueError:
        return text
    offsets = dict(pairs)
    return offsets if all(offsets[partition] == offset for partition, offset in pairs) else text


def format_offsets(offsets: Mapping[int, int] | str) -> str:
    """Format offsets as ``partition:0,offset:42;partition:1,offset:300``; a string is returned unchanged."""
    if isinstance(offsets, str):
        return offsets
    return ";".join(f"partition:{partition},offset:{offset}" for partition, offset in offsets.items())
