"""Positions in many Avro bodies, which move on together; column decoders read along them.

A body whose bytes have another shape than the usual one needs the fallback; what is read of it from then on means
nothing, and nothing is read outside the buffer.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from kdsl_formats._columns.arrays import Bytes, Longs, Mask, Positions, Words
from kdsl_formats._columns.varints import pad_bytes, read_varints, unzigzag


@attrs.frozen(eq=False)
class Bodies:
    """Many bodies in one buffer.

    Attributes:
        data: The buffer, with `PAD` zeros after it.
        words: The eight bytes that begin at each position of it.
        end: Where each body ends.
        total: The size of the buffer without the zeros.
        fallback: Which bodies need the fallback.
        infinite: How many infinite values in each body became NULL.
    """

    data: Bytes
    words: Words
    end: Longs
    total: int
    fallback: Mask
    infinite: Longs

    @classmethod
    def of(cls, content: Bytes, end: Positions) -> Bodies:
        """Bodies in a buffer that has no room after it."""
        data, words = pad_bytes(content)
        total, count = len(content), len(end)
        return cls(data, words, end.astype(np.int64), total, np.zeros(count, bool), np.zeros(count, np.int64))


class Cursor:
    """A position in each of some bodies.

    Args:
        bodies: The buffer.
        at: The positions; they are moved.
        owner: The body of each position; None when there is one position for each body.
    """

    def __init__(self, bodies: Bodies, at: Longs, owner: Positions | None = None) -> None:
        self.bodies, self.at, self.owner = bodies, at, owner

    def __len__(self) -> int:
        return len(self.at)

    def pick(self, which: Positions) -> Cursor:
        """The positions of some of them; they move by themselves."""
        return Cursor(self.bodies, self.at[which], which if self.owner is None else self.owner[which])

    def remaining(self) -> Longs:
        """How many bytes each body has from its position on; negative after its end."""
        end = self.bodies.end
        size: Longs = (end if self.owner is None else end[self.owner]) - self.at
        return size

    def mark_fallback(self, which: Mask) -> None:
        """Leave some bodies to the fallback."""
        if which.any():
            self.bodies.fallback[which if self.owner is None else self.owner[which]] = True

    def mark_all_fallback(self) -> None:
        """Leave all these bodies to the fallback."""
        self.bodies.fallback[slice(None) if self.owner is None else self.owner] = True

    def advance(self, size: Any) -> None:
        """Move on, at most to one byte after the last body, which marks a body that is too short."""
        self.at += size
        np.minimum(self.at, self.bodies.total + 1, out=self.at)

    def take_bytes(self) -> Bytes:
        """The byte at each position; moves by it."""
        values = self.bodies.data[self.at]
        self.advance(1)
        return values

    def take_words(self, size: int) -> Words:
        """Eight bytes at each position; moves by `size` of them."""
        words = self.bodies.words[self.at]
        self.advance(size)
        return words

    def take_branch_codes(self, count: int) -> Bytes:
        """The number of a union's type at each position, twice (as its byte is); the count or more needs the fallback.

        So is a number of two bytes, which a union of more than 64 types has.
        """
        codes = self.take_bytes()
        wrong = codes >= min(2 * count, 0x80)
        wrong |= (codes & 1).view(bool)
        self.mark_fallback(wrong)
        return codes

    def take_longs(self) -> Longs:
        """A number at each position."""
        raw, size, wrong = read_varints(self.bodies.data, self.bodies.words, self.at)
        if wrong is not None:
            self.mark_fallback(wrong)
        self.advance(size)
        return unzigzag(raw).view(np.int64)

    def take_ints(self) -> Longs:
        """A number of 32 bits at each position; what is longer needs the fallback."""
        raw, size, _ = read_varints(self.bodies.data, self.bodies.words, self.at)
        if not isinstance(size, int):
            self.mark_fallback((raw > np.uint64(0xFFFFFFFF)) | (size > 5))
        self.advance(size)
        return unzigzag(raw).view(np.int64)

    def take_spans(self, *, size: int | None = None) -> tuple[Longs, Longs]:
        """Where length-prefixed bytes begin, and their lengths; with a size, bytes of that length without a prefix."""
        length = self.take_longs() if size is None else np.full(len(self.at), size, dtype=np.int64)
        wrong = (length < 0) | (length > self.remaining())
        if wrong.any():
            self.mark_fallback(wrong)
            length[wrong] = 0
        start = self.at.copy()
        self.advance(length)
        return start, length
