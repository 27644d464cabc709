"""The parts of a plan that determine the records that it writes."""

from __future__ import annotations

from kdsl.plan.model import Part

__all__ = ["record_format"]


def record_format(part: Part) -> tuple[str, dict[str, str]]:
    """The format of a key or a value, and those of its options that determine the content of messages.

    Options of the connection to a registry, and those with their defaults, are left out.
    """
    options = part.format.to_strings()
    return part.format.identifier, {
        key: text for key, text in options.items() if not key.startswith(part.format.connection)
    }
