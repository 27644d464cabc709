"""Commits of a read's offsets to its consumer group (RULES ST-8)."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.declare.definition import TableDef
from kdsl.errors import Problem
from kdsl.formats import Direction
from kdsl.resolve.rule import problem

_SWITCHES = ("enable.auto.commit", "commit.offsets.on.checkpoint")


def offset_commits(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Who asks for commits says of which group; without being asked they are just off where there is none."""
    given = table.properties.revealed()
    if direction != "read" or given.get("group.id", "").strip():
        return
    for switch in _SWITCHES:
        if given.get(switch, "").strip().lower() == "true":
            message = f"{switch!r} is true, but no group id is declared whose offsets could be committed"
            fix = f"add 'properties.group.id' (group_id= in Python), or remove {switch!r}"
            yield problem(table, "commit-without-group", message, fix, option=f"properties.{switch}")
