"""The output buffer of Avro bodies, functions that write numbers and bytes to it, and the base of column encoders."""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs
import numpy as np
import pyarrow as pa

from kdsl_formats._columns.arrays import Bytes, Indices, Integers, Mask, Words, words_of
from kdsl_formats._columns.varints import spread_groups, varint_sizes, zigzag

GAP = 8
MAX_WORDWISE = 256  # bytes; longer spans are copied one by one
_HIGH = np.uint64(0x8080808080808080)


@attrs.frozen(eq=False)
class FallbackMask:
    """Marks rows for the fallback: the reference encoder writes them, and what column encoders write is ignored.

    Attributes:
        rows: A mask of all rows.
        owner: The row of each element; None if each row has one element.
    """

    rows: Mask
    owner: Indices | None = None

    def add(self, which: Mask) -> None:
        """Mark the rows of some elements for the fallback."""
        if which.any():
            self.rows[which if self.owner is None else self.owner[which]] = True

    def nulls(self, array: pa.Array) -> None:
        """Mark the rows of NULL elements for the fallback."""
        if array.null_count:
            self.add(np.asarray(array.is_null()))

    def pick(self, which: Indices) -> FallbackMask:
        """Return a view of the mask for some of the elements; it marks the same rows."""
        return FallbackMask(self.rows, which if self.owner is None else self.owner[which])


class ColumnEncoder(ABC):
    """Encodes one column of many bodies: `measure` returns the sizes of the elements, `put` writes them."""

    @abstractmethod
    def measure(self, array: pa.Array, fallback: FallbackMask) -> Integers:
        """Store the elements, and return the number of bytes of each; rows that need the fallback are marked."""

    @abstractmethod
    def put(self, out: OutputBuffer, at: Integers) -> None:
        """Write the elements of the last `measure` at some positions, and move these after them, in place.

        Up to seven bytes after each element may be overwritten, so what follows an element is written after it.
        What is written for rows that need the fallback has the measured sizes, and is meaningless.
        """


class OutputBuffer:
    """The buffer that bodies are written to.

    Args:
        size: Its size in bytes, including all gaps.
    """

    def __init__(self, size: int) -> None:
        self.data: Bytes = np.empty(size + 2 * GAP, dtype=np.uint8)
        self.words = words_of(self.data)


def zigzag_varints(values: Integers) -> tuple[Words, Integers]:
    """Zig-zag encode numbers; return the results, and the number of bytes of each as a varint."""
    raw = zigzag(values)
    return raw, varint_sizes(raw)


def put_varints(out: OutputBuffer, at: Integers, raw: Words, size: Integers) -> None:
    """Write the results of `zigzag_varints` to the buffer, and move the positions after them, in place.

    Up to seven bytes after each are overwritten.
    """
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


def put_spans(out: OutputBuffer, at: Integers, data: Bytes, begin: Integers, size: Integers) -> None:
    """Copy spans of another buffer to the buffer, and move the positions after them, in place.

    Up to seven bytes after each are overwritten.

    Args:
        out: The buffer to write to.
        at: The positions in it.
        data: The buffer to copy from, with at least eight bytes after the last span.
        begin: The first byte of each span.
        size: The length of each span.
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
