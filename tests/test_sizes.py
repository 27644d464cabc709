"""Modules stay small enough to be read as a whole."""

from __future__ import annotations

from tests.source_trees import modules, read

MAX_LINES = 600


def test_no_module_has_too_many_lines() -> None:
    """A longer one has more than one subject: split it by subject, and name each part by what it does."""
    counts = {name: len(read(path).splitlines()) for name, path in modules().items()}

    assert {name: count for name, count in counts.items() if count > MAX_LINES} == {}
