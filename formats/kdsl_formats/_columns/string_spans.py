"""Strings as spans of a buffer, for readers that need no Arrow array of them."""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np
import pyarrow as pa

from kdsl_formats._columns.arrays import Bytes, Indices, Mask, Words, content, find_bounds, slices, words_at

PAD = 32
"""The bytes that may be read after the start of a string, and before its end."""


@attrs.frozen(eq=False, slots=False)
class StringSpans:
    """Strings in a buffer.

    Attributes:
        data: The buffer. `PAD` bytes or more follow the start of each string.
        start: The first byte of each string.
        end: The position after the last byte of each string.
        present: Which strings are not NULL.
    """

    data: Bytes
    start: Indices
    end: Indices
    present: Mask

    @classmethod
    def of(cls, strings: pa.StringArray) -> StringSpans:
        """Copy the strings of an array to a buffer with `PAD` bytes before and after them."""
        text, (start, end) = content(strings), find_bounds(strings)
        data = np.zeros(len(text) + 2 * PAD, dtype=np.uint8)
        data[PAD : PAD + len(text)] = text
        return cls(data, start + PAD, end + PAD, np.asarray(strings.is_valid()))

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def array(self) -> pa.StringArray:
        """The strings as an array."""
        return slices(self.data, self.start, self.end, None if self.present.all() else self.present, pa.string())

    def pick(self, which: Indices | Mask) -> StringSpans:
        """The strings at some indices, or those that a mask selects."""
        return StringSpans(self.data, self.start[which], self.end[which], self.present[which])

    def words_at(self, position: Indices, count: int) -> list[Words]:
        """Return the ``count`` words of eight bytes at each position; they may reach the end of the buffer."""
        return words_at(self.data, position, count)
