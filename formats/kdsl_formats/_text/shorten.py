"""Values in error messages."""

from __future__ import annotations

LONGEST = 60
"""The characters of a value that error messages show."""


def shorten(text: str) -> str:
    """A string, cut to `LONGEST` characters with an ellipsis after them where it is longer."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
