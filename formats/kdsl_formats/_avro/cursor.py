"""Places in many Avro bodies at once, which move on together: the ground on which whole columns are read.

A body whose bytes have another shape than the usual one is in doubt; what is read of it from then on means nothing, and
nothing is read outside of the buffer.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kdsl_formats._text.reading import Mask, Positions

Longs = npt.NDArray[np.int64]
Raw = npt.NDArray[np.uint64]

PAD = 32  # zeros behind the last body: the longest number, twice
_HIGH = np.uint64(0x8080808080808080)
_LOW = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(1)
_PLACES = np.uint64(0x0102030405060708)  # times 256 to the power of k it has k + 1 in its highest byte


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

    data: npt.NDArray[np.uint8]
    words: Raw
    end: Longs
    total: int
    doubts: Mask

    @classmethod
    def of(cls, content: npt.NDArray[np.uint8], end: Positions) -> Bodies:
        """Bodies in a buffer that has no room behind it."""
        total = len(content)
        data = np.zeros(total + PAD, dtype=np.uint8)
        data[:total] = content
        words: Raw = np.ndarray((total + PAD - 7,), dtype="<u8", buffer=data, strides=(1,))
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

    def bytes(self) -> npt.NDArray[np.uint8]:
        """The byte at each place; moves by it."""
        found = self.bodies.data[self.at]
        self.forward(1)
        return found

    def words(self, size: int) -> Raw:
        """Eight bytes at each place; moves by `size` of them."""
        found = self.bodies.words[self.at]
        self.forward(size)
        return found

    def branch(self, count: int) -> npt.NDArray[np.uint8]:
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
        first = self.bodies.data[self.at]
        if not len(first) or first.max() < 0x80:
            self.forward(1)
            return _unfolded(first.astype(np.uint64))
        return _unfolded(self._varints(self.bodies.words[self.at])[0])

    def ints(self) -> Longs:
        """A number of 32 bits at each place; what is longer is in doubt."""
        first = self.bodies.data[self.at]
        if not len(first) or first.max() < 0x80:
            self.forward(1)
            return _unfolded(first.astype(np.uint64))
        raw, size = self._varints(self.bodies.words[self.at])
        self.doubt((raw > np.uint64(0xFFFFFFFF)) | (size > 5))
        return _unfolded(raw)

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

    def _varints(self, words: Raw) -> tuple[Raw, Longs]:
        """The bits of a number at each place, and how many bytes it has; moves behind it."""
        stop = ~words & _HIGH
        last = stop & (~stop + _ONE)  # the highest bit of the number's last byte
        bits = words & (last - _ONE) & _LOW
        bits = (bits & np.uint64(0x007F007F007F007F)) | ((bits & np.uint64(0x7F007F007F007F00)) >> _ONE)
        bits = (bits & np.uint64(0x00003FFF00003FFF)) | ((bits & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
        bits = (bits & np.uint64(0x000000000FFFFFFF)) | ((bits & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))
        size = ((last >> np.uint64(7)) * _PLACES >> np.uint64(56)).view(np.int64)
        if not last.all():
            self._longest(np.flatnonzero(last == 0), bits, size)
        self.forward(size)
        return bits, size

    def _longest(self, which: Positions, bits: Raw, size: Longs) -> None:
        """Put in the ninth and tenth byte of numbers that have them."""
        data, place = self.bodies.data, self.at[which]
        ninth, tenth = data[place + 8].astype(np.uint64), data[place + 9].astype(np.uint64)
        more = ninth >= 0x80
        bits[which] |= ((ninth & np.uint64(0x7F)) << np.uint64(56)) | np.where(
            more, tenth << np.uint64(63), np.uint64(0)
        )
        size[which] = 9 + more
        wrong = np.zeros(len(size), dtype=bool)
        wrong[which[more & (tenth > 1)]] = True
        self.doubt(wrong)


def _unfolded(raw: Raw) -> Longs:
    """The signed numbers of zig-zag ones."""
    return ((raw >> _ONE) ^ (np.uint64(0) - (raw & _ONE))).view(np.int64)
