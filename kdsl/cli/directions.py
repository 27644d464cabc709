"""The option ``--direction`` of commands that check tables."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kdsl.formats import Direction


class DirectionChoice(StrEnum):
    """A direction, or both."""

    READ = "read"
    WRITE = "write"
    BOTH = "both"

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


Directions = Annotated[DirectionChoice, typer.Option("--direction", help="Check tables for reading, writing or both.")]
