"""The option by which a command is told for which direction tables are meant."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kdsl.formats import Direction


class Way(StrEnum):
    """A direction, or both."""

    READ = "read"
    WRITE = "write"
    BOTH = "both"

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions that are meant."""
        match self:
            case Way.READ:
                return ("read",)
            case Way.WRITE:
                return ("write",)
            case Way.BOTH:
                return ("read", "write")


Directions = Annotated[Way, typer.Option("--direction", help="What tables are judged for.")]
