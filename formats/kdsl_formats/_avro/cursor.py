"""Indices in many Avro bodies that move together; column decoders read along them.

A body with an unusual encoding needs the fallback; everything that is read of it afterwards is meaningless, and nothing
is read outside the buffer.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from kdsl_formats._columns.arrays import Bytes, Indices, Integers, Mask, Words
from kdsl_formats._columns.varints import pad_bytes, read_varints, unzigzag


@attrs.frozen(eq=False)
class Bodies:
    """Many bodies in one buffer.

    Attributes:
        data: The buffer, with `PAD` zeros after it.
        words: The eight bytes that begin at each position of the buffer.
        end: The position after the last byte of each body.
        total: The size of the buffer without the zeros.
        fallback: Which bodies need the fallback.
        infinite: How many infinite values in each body became NULL.
    """

    data: Bytes
    words: Words
    end: Integers
    total: int
    fallback: Mask
    infinite: Integers

    @classmethod
    def of(cls, content: Bytes, end: Indices) -> Bodies:
        """Copy bodies to a buffer with padding after it; `end` has the position after each body."""
        data, words = pad_bytes(content)
        total, count = len(content), len(end)
        return cls(data, words, end.astype(np.int64), total, np.zeros(count, bool), np.zeros(count, np.int64))


class Cursor:
    """The current position in each of several bodies.

    Args:
        bodies: The buffer.
        at: The positions; they are changed in place.
        owner: The body of each position; None if each body has one position.
    """

    def __init__(self, bodies: Bodies, at: Integers, owner: Indices | None = None) -> None:
        self.bodies, self.at, self.owner = bodies, at, owner

    def __len__(self) -> int:
        return len(self.at)

    def pick(self, which: Indices) -> Cursor:
        """Return a new cursor at some of the positions, which moves independently."""
        return Cursor(self.bodies, self.at[which], which if self.owner is None else self.owner[which])

    def remaining(self) -> Integers:
        """How many bytes each body has left after its position; negative after its end."""
        end = self.bodies.end
        size: Integers = (end if self.owner is None else end[self.owner]) - self.at
        return size

    def mark_fallback(self, which: Mask) -> None:
        """Mark the bodies of some positions in `Bodies.fallback`: the reference decoder will read them again.

        The cursor keeps these positions, and moves them like the others.
        """
        if which.any():
            self.bodies.fallback[which if self.owner is None else self.owner[which]] = True

    def mark_all_fallback(self) -> None:
        """Mark the bodies of all positions for the fallback."""
        self.bodies.fallback[slice(None) if self.owner is None else self.owner] = True

    def advance(self, size: Any) -> None:
        """Move forward by one size, or one for each position, at most to one byte after the last body."""
        self.at += size
        np.minimum(self.at, self.bodies.total + 1, out=self.at)

    def take_bytes(self) -> Bytes:
        """Return the byte at each position, and move by one byte.

        The ends of bodies are not checked: beyond them it is a byte of another body, or a zero.
        """
        values = self.bodies.data[self.at]
        self.advance(1)
        return values

    def take_words(self, size: int) -> Words:
        """Return the eight bytes at each position as a little-endian number, and move by `size` bytes.

        The ends of bodies are not checked, as in `take_bytes`.
        """
        words = self.bodies.words[self.at]
        self.advance(size)
        return words

    def take_branch_codes(self, count: int) -> Bytes:
        """Return the encoded branch index of a union at each position (twice the index), and move after it.

        Bodies with an index that is not one of `count`, or takes several bytes, are marked for the fallback.
        """
        codes = self.take_bytes()
        wrong = codes >= min(2 * count, 0x80)
        wrong |= (codes & 1).view(bool)
        self.mark_fallback(wrong)
        return codes

    def take_longs(self) -> Integers:
        """Return the 64-bit number at each position, and move after it.

        Bodies with a larger number are marked for the fallback.
        """
        raw, size, wrong = read_varints(self.bodies.data, self.bodies.words, self.at)
        if wrong is not None:
            self.mark_fallback(wrong)
        self.advance(size)
        return unzigzag(raw).view(np.int64)

    def take_ints(self) -> Integers:
        """Return the 32-bit number at each position, as a 64-bit integer, and move after it.

        Bodies with a larger number are marked for the fallback.
        """
        raw, size, _ = read_varints(self.bodies.data, self.bodies.words, self.at)
        if not isinstance(size, int):
            self.mark_fallback((raw > np.uint64(0xFFFFFFFF)) | (size > 5))
        self.advance(size)
        return unzigzag(raw).view(np.int64)

    def take_spans(self, *, size: int | None = None) -> tuple[Integers, Integers]:
        """Return the first byte and the length of length-prefixed values, and move after them.

        With a size, the values have no prefix and that length. A value that does not end inside its body has the length
        0, and the body is marked for the fallback.
        """
        length = self.take_longs() if size is None else np.full(len(self.at), size, dtype=np.int64)
        wrong = (length < 0) | (length > self.remaining())
        if wrong.any():
            self.mark_fallback(wrong)
            length[wrong] = 0
        start = self.at.copy()
        self.advance(length)
        return start, length
