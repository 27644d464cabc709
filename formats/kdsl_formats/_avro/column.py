"""What all columns of Avro bodies are: begun with a number of elements, read once along a cursor, and then built."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from kdsl_formats._avro.cursor import Cursor
from kdsl_formats._columns.arrays import Mask, Positions, bitmap

Slots = Positions | None
"""For each place of a cursor the element it fills; None: all of them, in their order."""


class Column(ABC):
    """A column being read.

    Attributes:
        hopeless: Whether every body is in doubt.
        valid: Which elements are not NULL; None when all are.
    """

    hopeless = False
    valid: Mask | None = None

    def start(self, count: int, owner: Positions | None) -> None:
        """Make room.

        Args:
            count: How many elements the column has.
            owner: The body of each; None when there is one for each body.
        """
        self.count, self.owner, self.valid = count, owner, None

    @abstractmethod
    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read, once."""

    @abstractmethod
    def build(self, cursor: Cursor) -> pa.Array:
        """What was read; may find more doubts."""

    def bits(self) -> pa.Buffer | None:
        """The validity bitmap."""
        return None if self.valid is None else bitmap(self.valid)

    def doubt(self, cursor: Cursor, which: Mask) -> None:
        """Elements whose bodies are in doubt."""
        if which.any():
            cursor.bodies.doubts[which if self.owner is None else self.owner[which]] = True
