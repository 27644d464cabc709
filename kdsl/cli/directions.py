"""The option ``--direction`` of commands that check tables."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kdsl.formats import Direction
from kdsl.resolve import directions_of
from kdsl.table import Table


class DirectionChoice(StrEnum):
    """A direction, or both."""

    READ = "read"
    WRITE = "write"
    BOTH = "both"

    def of(self, table: Table, used: tuple[Direction, ...] = ()) -> tuple[Direction, ...]:
        """The directions in which a table is checked.

        Args:
            table: The table. Without a chosen direction it is checked for those that it is declared for.
            used: The directions in which the statements of its file use it, which count instead; empty if none does.
        """
        return (used or directions_of(table.definition)) if self is DirectionChoice.BOTH else self.directions

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The chosen directions."""
        match self:
            case DirectionChoice.READ:
                return ("read",)
            case DirectionChoice.WRITE:
                return ("write",)
            case DirectionChoice.BOTH:
                return ("read", "write")


Directions = Annotated[
    DirectionChoice,
    typer.Option(
        "--direction", help="Check tables for reading or for writing; by default for what they are declared for."
    ),
]
