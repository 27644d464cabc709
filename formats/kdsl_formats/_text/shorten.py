"""Values in error messages."""

from __future__ import annotations

LONGEST = 60
"""The maximum length of a value in an error message."""


def shorten(text: str) -> str:
    """Cut a string after `LONGEST` characters, and mark a cut by an ellipsis."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
