"""Where a read starts and ends as Python says it: a mode, an aware time, or the offset of each partition.

One value stands for three options. It is read here for class statements, and for what is said when a read is launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, get_args

from kdsl.errors import Problem, listing, nearest

Startup: TypeAlias = (
    Literal["group-offsets", "earliest", "latest", "earliest-offset", "latest-offset"] | datetime | Mapping[int, int]
)
"""Where a read starts: a mode, an aware time, or the offset of each partition."""
Bounded: TypeAlias = Literal["unbounded", "group-offsets", "latest", "latest-offset"] | datetime | Mapping[int, int]
"""Where a read ends by itself: a mode, an aware time, or the offset of each partition that is not read any more."""

Side = Literal["startup", "bounded"]

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MODES: Mapping[Side, tuple[str, ...]] = {
    "startup": get_args(get_args(Startup)[0]),
    "bounded": get_args(get_args(Bounded)[0]),
}
_LONG = {"earliest": "earliest-offset", "latest": "latest-offset"}
_IN_VALUES = {"timestamp": "time itself", "specific-offsets": "offsets themselves"}
_WHAT: Mapping[Side, str] = {"startup": "start at", "bounded": "end at"}


def moment_options(value: Any, side: Side, name: str = "") -> dict[str, Any] | Problem:
    """The options of the connector that a start or an end stands for; or what is wrong with it.

    Args:
        value: What was given.
        side: Which of the two it is.
        name: What the argument is called where it was given; by default as the side.
    """
    name, modes = name or side, _MODES[side]
    fix = f"write one of {listing(modes)}, an aware datetime, or offsets as {{0: 42, 1: 300}}"
    match value:
        case str() if value.lower() in modes:
            return {side: _LONG.get(value.lower(), value.lower())}
        case str() if value.lower() in _IN_VALUES:
            message = f"{name}= is {value!r}, and in Python it takes the {_IN_VALUES[value.lower()]}"
            return Problem("argument-value", message, fix)
        case str():
            return Problem("argument-value", f"{name}= is {value!r}{nearest(value, modes)}", fix)
        case datetime() if value.tzinfo is None:
            message = f"{name}= is the time {value.isoformat(sep=' ')}, which has no time zone, so it is no instant"
            return Problem("argument-value", message, "write it with one, as datetime(2025, 1, 1, tzinfo=UTC)")
        case datetime():
            millis = (value - _EPOCH) // timedelta(milliseconds=1)
            return {side: "timestamp", f"{side}_timestamp": millis}
        case Mapping():
            if not value or not all(_is_count(p) and _is_count(o) for p, o in value.items()):
                message = f"{name}= is {value!r}, but partitions and offsets are whole numbers from 0 on"
                return Problem("argument-value", message, f"write {name}={{0: 42, 1: 300}}")
            pairs = ";".join(f"partition:{p},offset:{o}" for p, o in value.items())
            return {side: "specific-offsets", f"{side}_offsets": pairs}
        case _:
            return Problem("argument-value", f"{name}= is {value!r}, which is no place to {_WHAT[side]}", fix)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
