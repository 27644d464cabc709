"""Finds the class of a format by its name."""

from __future__ import annotations

from functools import cache
from typing import Final

from kdsl.errors import KdslError, listing, nearest
from kdsl.formats.interface import Format
from kdsl.plugins import PluginError, PluginGroup

FORMATS: Final = PluginGroup("kdsl.formats", "format")


class UnknownFormatError(KdslError):
    """No format has this name, several packages have one, or its package cannot be imported."""


def format_names() -> tuple[str, ...]:
    """The names of kdsl's own and all installed formats, sorted."""
    return tuple(sorted(FORMATS.find_all()))


@cache
def format_class(identifier: str) -> type[Format]:
    """Return the format class of an identifier; it is imported once.

    Raises:
        UnknownFormatError: No format has this identifier, several packages register it, or its package cannot be
            imported or has something else there.
    """
    names = format_names()
    if identifier not in names:
        raise UnknownFormatError(
            f"there is no format {identifier!r}{nearest(identifier, names)}; there are {listing(names)}"
        )
    try:
        kind: type[Format] = FORMATS.load_class(identifier, Format, "kdsl.Format")
    except PluginError as e:
        raise UnknownFormatError(str(e)) from e
    return kind
