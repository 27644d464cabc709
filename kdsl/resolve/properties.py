"""Client properties: kdsl's own are refused, unknown ones are warned about (RULES PR-1, PR-7)."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.client.java import java_settings
from kdsl.client.translate import consumer_settings, producer_settings
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem
from kdsl.formats import Direction
from kdsl.resolve.rule import problem


def client_properties(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Every property is one that the client of this direction takes, with a value that it takes."""
    given = table.properties.revealed()
    if table.options.transport == "jvm":
        problems = java_settings(given, "consumer" if direction == "read" else "producer").problems
    else:
        problems = (consumer_settings if direction == "read" else producer_settings)(given).problems
    for found in problems:
        key = next((key for key in table.properties if repr(key) in found.message), "")
        yield problem(table, found.code, found.message, found.fix, option=f"properties.{key}", severity=found.severity)
