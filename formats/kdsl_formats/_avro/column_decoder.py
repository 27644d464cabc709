"""The base class of column decoders of Avro bodies."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from kdsl_formats._avro.cursor import Cursor
from kdsl_formats._columns.arrays import Indices, Mask, bitmap

Slots = Indices | None
"""For each position of a cursor, the index of the element that it fills; None if it fills all of them in order."""


class ColumnDecoder(ABC):
    """Decodes one column of many bodies: `start` sets the number of elements, `scan` reads them, `build` returns them.

    Attributes:
        unsupported: Whether column decoders cannot read the type, so that every body needs the fallback.
        valid: Which elements are not NULL; None when all are.
    """

    unsupported = False
    valid: Mask | None = None

    def start(self, count: int, owner: Indices | None) -> None:
        """Begin a batch: store the arguments, and forget `valid`.

        Args:
            count: The number of elements in the column.
            owner: The body of each element; None if each body has one element.
        """
        self.count, self.owner, self.valid = count, owner, None

    @abstractmethod
    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read the elements at a cursor, store them in this decoder, and move the cursor after them.

        It is called once in each batch. Bodies that cannot be read are marked for the fallback.

        Args:
            cursor: Where the elements begin; changed.
            slots: Which elements of the column they are; None if they are all of them, in order.
        """

    @abstractmethod
    def build(self, cursor: Cursor) -> pa.Array:
        """Return the elements as an Arrow array; may mark more bodies for the fallback."""

    def bits(self) -> pa.Buffer | None:
        """The validity bitmap of `valid`; None if no element is NULL."""
        return None if self.valid is None else bitmap(self.valid)

    def mark_fallback(self, cursor: Cursor, which: Mask) -> None:
        """Mark the bodies of some elements in `Bodies.fallback`: the reference decoder will read them again."""
        if which.any():
            cursor.bodies.fallback[which if self.owner is None else self.owner[which]] = True
