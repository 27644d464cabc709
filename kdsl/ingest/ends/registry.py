"""Finds the class of an end by its type: those of kdsl, and those of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Literal

from kdsl.errors import KdslError
from kdsl.ingest.ends.end import End
from kdsl.ingest.ends.kafka import KafkaFeed, KafkaTopics
from kdsl.ingest.ends.plain import Blackhole, Memory, Print
from kdsl.ingest.ends.tables import DeltaChanges, DeltaTables, HologresTables, JdbcSnapshot, JdbcTables, MySqlSnapshot

Kind = Literal["source", "sink"]
GROUP = "kdsl.ingest.ends"
_BUILT_IN: Mapping[Kind, tuple[type[End], ...]] = {
    "source": (KafkaFeed, JdbcSnapshot, MySqlSnapshot, DeltaChanges),
    "sink": (KafkaTopics, DeltaTables, JdbcTables, HologresTables, Print, Blackhole, Memory),
}


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """The entry points of other packages, by their names; cached, not loaded."""
    return {point.name: point for point in entry_points(group=GROUP)}


def end_types(kind: Kind) -> tuple[str, ...]:
    """The types of sources or of sinks, sorted: kdsl's own, and those of other packages."""
    others = (name.partition(".")[2] for name in _entry_points() if name.startswith(f"{kind}."))
    return tuple(sorted({*(end.type for end in _BUILT_IN[kind]), *others}))


@cache
def end_class(kind: Kind, name: str) -> type[End] | None:
    """The class of a type of source or sink: kdsl's own, or that of an entry point; None if there is no such type.

    It is cached.

    Raises:
        KdslError: The entry point cannot be imported, or is not a class of such a source or sink.
    """
    for end in _BUILT_IN[kind]:
        if end.type == name:
            return end
    point = _entry_points().get(f"{kind}.{name}")
    if point is None:
        return None
    try:
        loaded = point.load()
    except (ImportError, AttributeError) as e:
        raise KdslError(f"the {kind} {name!r} ({point.value}) cannot be imported: {e}; install what it needs") from e
    if not (isinstance(loaded, type) and issubclass(loaded, End) and loaded.kind == kind):
        raise KdslError(f"the {kind} {name!r} ({point.value}) is not a subclass of kdsl.ingest.{kind.capitalize()}")
    return loaded
