"""The direction that a table is declared for."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.declare.definition import TableDef
from kdsl.errors import Problem
from kdsl.formats import Direction
from kdsl.resolve.rule import problem


def directions_of(table: TableDef) -> tuple[Direction, ...]:
    """The directions that a table is declared for: both, unless the option ``direction`` names one."""
    match table.options.direction.lower():
        case "read":
            return ("read",)
        case "write":
            return ("write",)
        case _:
            return ("read", "write")


def check_direction(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report a direction that the table is not declared for."""
    (declared, *other) = directions_of(table)
    if not other and declared != direction:
        message = f"{table.setting('direction', declared)} declares the table for one direction: it cannot {direction}"
        fix = f"remove the option, or write {table.setting('direction', 'both')}"
        yield problem(table, "direction", message, fix, option="direction")
