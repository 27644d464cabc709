"""Finds the class of a source or sink by its type."""

from __future__ import annotations

from typing import Literal

from kdsl.ingest.ends.end import End, Sink, Source
from kdsl.plugins import PluginGroup

Kind = Literal["source", "sink"]
_GROUPS = {"source": PluginGroup("kdsl.sources", "source"), "sink": PluginGroup("kdsl.sinks", "sink")}


def end_types(kind: Kind) -> tuple[str, ...]:
    """The types of sources or of sinks, sorted."""
    return tuple(sorted(_GROUPS[kind].find_all()))


def end_class(kind: Kind, name: str) -> type[End] | None:
    """The class of a type of source or sink; None if there is no such type.

    Raises:
        PluginError: It cannot be imported, several packages register it, or it is another object.
    """
    if name not in _GROUPS[kind].find_all():
        return None
    parent = Source if kind == "source" else Sink
    loaded: type[End] = _GROUPS[kind].load_class(name, parent, f"kdsl.ingest.{parent.__name__}")
    return loaded
