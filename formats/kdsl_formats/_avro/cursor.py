"""Places in many Avro bodies at once, which move on together: the ground on which whole columns are read.

A body whose bytes have another shape than the usual one is in doubt; what is read of it from then on means nothing, and
nothing is read outside of the buffer.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from kdsl_formats._columns.arrays import Bytes, Longs, Mask, Positions, Words
from kdsl_formats._columns.varints import padded, read_varints, unzigzag


@attrs.frozen(eq=False)
class Bodies:
    """Many bodies in one buffer.

    Attributes:
        data: The buffer, with `PAD` zeros behind it.
        words: The eight bytes that begin at each place of it.
        end: Where each body ends.
        total: The size of the buffer without the zeros.
        doubts: Which bodies are in doubt.
    """

    data: Bytes
    words: Words
    end: Longs
    total: int
    doubts: Mask

    @classmethod
    def of(cls, content: Bytes, end: Positions) -> Bodies:
        """Bodies in a buffer that has no room behind it."""
        data, words = padded(content)
        total = len(content)
        return cls(data, words, end.astype(np.int64), total, np.zeros(len(end), dtype=bool))


class Cursor:
    """A place in each of some bodies.

    Args:
        bodies: The buffer.
        at: The places; they are moved.
        owner: The body of each place; None when there is one place for each body.
    """

    def __init__(self, bodies: Bodies, at: Longs, owner: Positions | None = None) -> None:
        self.bodies, self.at, self.owner = bodies, at, owner

    def __len__(self) -> int:
        return len(self.at)

    def pick(self, which: Positions) -> Cursor:
        """The places of some of them; they move by themselves."""
        return Cursor(self.bodies, self.at[which], which if self.owner is None else self.owner[which])

    def room(self) -> Longs:
        """How many bytes each body has from its place on; negative behind its end."""
        end = self.bodies.end
        room: Longs = (end if self.owner is None else end[self.owner]) - self.at
        return room

    def doubt(self, which: Mask) -> None:
        """Some bodies are in doubt."""
        if which.any():
            self.bodies.doubts[which if self.owner is None else self.owner[which]] = True

    def doubt_all(self) -> None:
        """All these bodies are in doubt."""
        self.bodies.doubts[slice(None) if self.owner is None else self.owner] = True

    def forward(self, size: Any) -> None:
        """Move on; at most to one byte behind the last body, which says that it is too short."""
        self.at += size
        np.minimum(self.at, self.bodies.total + 1, out=self.at)

    def bytes(self) -> Bytes:
        """The byte at each place; moves by it."""
        found = self.bodies.data[self.at]
        self.forward(1)
        return found

    def words(self, size: int) -> Words:
        """Eight bytes at each place; moves by `size` of them."""
        found = self.bodies.words[self.at]
        self.forward(size)
        return found

    def branch(self, count: int) -> Bytes:
        """The number of a union's type at each place, twice (as its byte is); the count or more is in doubt.

        So is a number of two bytes, which a union of more than 64 types has.
        """
        found = self.bytes()
        wrong = found >= min(2 * count, 0x80)
        wrong |= (found & 1).view(bool)
        self.doubt(wrong)
        return found

    def longs(self) -> Longs:
        """A number at each place."""
        raw, size, wrong = read_varints(self.bodies.data, self.bodies.words, self.at)
        if wrong is not None:
            self.doubt(wrong)
        self.forward(size)
        return unzigzag(raw).view(np.int64)

    def ints(self) -> Longs:
        """A number of 32 bits at each place; what is longer is in doubt."""
        raw, size, _ = read_varints(self.bodies.data, self.bodies.words, self.at)
        if not isinstance(size, int):
            self.doubt((raw > np.uint64(0xFFFFFFFF)) | (size > 5))
        self.forward(size)
        return unzigzag(raw).view(np.int64)

    def spans(self, *, size: int | None = None) -> tuple[Longs, Longs]:
        """Where bytes of a told length begin, and their lengths; with a size they have that one."""
        length = self.longs() if size is None else np.full(len(self.at), size, dtype=np.int64)
        wrong = (length < 0) | (length > self.room())
        if wrong.any():
            self.doubt(wrong)
            length[wrong] = 0
        start = self.at.copy()
        self.forward(length)
        return start, length
