"""The output buffer of Avro bodies, functions that write numbers and bytes to it, and the base of column encoders."""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs
import numpy as np
import pyarrow as pa

from kdsl_formats._columns.arrays import Bytes, Longs, Mask, Positions, Words, words_of
from kdsl_formats._columns.varints import spread_groups, varint_sizes, zigzag

GAP = 8
MAX_WORDWISE = 256  # bytes; longer spans are copied one by one
_HIGH = np.uint64(0x8080808080808080)


@attrs.frozen(eq=False)
class FallbackMask:
    """Marks rows for the fallback: the reference encoder writes them, and what column encoders write is ignored.

    Attributes:
        rows: A mask of all rows.
        owner: The row of each element that is looked at; None when there is one for each row.
    """

    rows: Mask
    owner: Positions | None = None

    def add(self, which: Mask) -> None:
        """Leave the rows of some elements to the fallback."""
        if which.any():
            self.rows[which if self.owner is None else self.owner[which]] = True

    def nulls(self, array: pa.Array) -> None:
        """Leave the rows of NULL elements to the fallback."""
        if array.null_count:
            self.add(np.asarray(array.is_null()))

    def pick(self, which: Positions) -> FallbackMask:
        """The mask for some of the elements."""
        return FallbackMask(self.rows, which if self.owner is None else self.owner[which])


class ColumnEncoder(ABC):
    """Encodes one column of many bodies: `measure` returns the sizes of its elements, `put` writes them."""

    @abstractmethod
    def measure(self, array: pa.Array, fallback: FallbackMask) -> Longs:
        """How many bytes each element takes; marks the rows that column encoders cannot write for the fallback."""

    @abstractmethod
    def put(self, out: OutputBuffer, at: Longs) -> None:
        """Write the elements that were measured last at some positions, and move the positions after them."""


class OutputBuffer:
    """The buffer that bodies are written to.

    Args:
        size: How many bytes it has, with all gaps.
    """

    def __init__(self, size: int) -> None:
        self.data: Bytes = np.empty(size + 2 * GAP, dtype=np.uint8)
        self.words = words_of(self.data)


def zigzag_varints(values: Longs) -> tuple[Words, Longs]:
    """Zig-zag numbers, and how many bytes of variable length each has."""
    raw = zigzag(values)
    return raw, varint_sizes(raw)


def put_varints(out: OutputBuffer, at: Longs, raw: Words, size: Longs) -> None:
    """Write measured numbers at some positions, and move the positions after them."""
    longest = int(size.max()) if len(size) else 1
    if longest == 1:
        out.words[at] = raw
        at += 1
        return
    word = spread_groups(raw)
    word |= _HIGH & ((np.uint64(1) << (np.minimum(size - 1, 7).astype(np.uint64) << np.uint64(3))) - np.uint64(1))
    out.words[at] = word
    if longest > 8:
        which = np.flatnonzero(size > 8)
        out.words[at[which]] |= _HIGH
        rest = raw[which] >> np.uint64(56)
        more = size[which] == 10
        out.words[at[which] + 8] = np.where(
            more, (rest & np.uint64(0x7F)) | np.uint64(0x80) | (rest >> np.uint64(7) << np.uint64(8)), rest
        )
    at += size


def put_spans(out: OutputBuffer, at: Longs, data: Bytes, begin: Longs, size: Longs) -> None:
    """Copy spans of a buffer to some positions, and move the positions after them.

    Args:
        out: Where they are put.
        at: The positions.
        data: A buffer with at least eight bytes after the last span.
        begin: Where each span begins in it.
        size: How many bytes each has.
    """
    words = words_of(data)
    some = np.flatnonzero((size > 0) & (size <= MAX_WORDWISE))
    source, target, remaining = begin[some], at[some], size[some]
    while len(some):
        out.words[target] = words[source]
        more = remaining > 8
        if not more.all():
            source, target, remaining, some = source[more], target[more], remaining[more], some[more]
        source, target, remaining = source + 8, target + 8, remaining - 8
    for i in np.flatnonzero(size > MAX_WORDWISE).tolist():
        out.data[at[i] : at[i] + size[i]] = data[begin[i] : begin[i] + size[i]]
    at += size
