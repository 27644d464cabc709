"""The buffer that Avro bodies are put in, what puts numbers and bytes there, and which rows are in doubt."""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs
import numpy as np
import pyarrow as pa

from kdsl_formats._columns.arrays import Bytes, Longs, Mask, Positions, Words, words_of
from kdsl_formats._columns.varints import spread, varint_sizes, zigzag

GAP = 8
LONG = 256  # bytes; a longer text is copied by itself
_HIGH = np.uint64(0x8080808080808080)


@attrs.frozen(eq=False)
class Doubts:
    """Which rows are in doubt; the reference writes those, and what is put for them means nothing.

    Attributes:
        rows: A mask of all rows.
        owner: The row of each element that is looked at; None when there is one for each row.
    """

    rows: Mask
    owner: Positions | None = None

    def add(self, which: Mask) -> None:
        """The rows of some elements are in doubt."""
        if which.any():
            self.rows[which if self.owner is None else self.owner[which]] = True

    def nulls(self, array: pa.Array) -> None:
        """The rows of elements that are NULL are in doubt."""
        if array.null_count:
            self.add(np.asarray(array.is_null()))

    def pick(self, which: Positions) -> Doubts:
        """The doubts of some of the elements."""
        return Doubts(self.rows, which if self.owner is None else self.owner[which])


class Column(ABC):
    """A column being written."""

    @abstractmethod
    def measure(self, array: pa.Array, doubts: Doubts) -> Longs:
        """How many bytes each element has; finds what is not written by columns."""

    @abstractmethod
    def put(self, out: Room, at: Longs) -> None:
        """Put the elements that were measured last; moves the places behind them."""


class Room:
    """The buffer that bodies are put in.

    Args:
        size: How many bytes it has, with all gaps.
    """

    def __init__(self, size: int) -> None:
        self.data: Bytes = np.empty(size + 2 * GAP, dtype=np.uint8)
        self.words = words_of(self.data)


def varints(values: Longs) -> tuple[Words, Longs]:
    """Zig-zag numbers, and how many bytes of variable length each has."""
    raw = zigzag(values)
    return raw, varint_sizes(raw)


def put_varints(out: Room, at: Longs, raw: Words, size: Longs) -> None:
    """Put numbers that were measured; moves the places behind them."""
    most = int(size.max()) if len(size) else 1
    if most == 1:
        out.words[at] = raw
        at += 1
        return
    word = spread(raw)
    word |= _HIGH & ((np.uint64(1) << (np.minimum(size - 1, 7).astype(np.uint64) << np.uint64(3))) - np.uint64(1))
    out.words[at] = word
    if most > 8:
        which = np.flatnonzero(size > 8)
        out.words[at[which]] |= _HIGH
        rest = raw[which] >> np.uint64(56)
        more = size[which] == 10
        out.words[at[which] + 8] = np.where(
            more, (rest & np.uint64(0x7F)) | np.uint64(0x80) | (rest >> np.uint64(7) << np.uint64(8)), rest
        )
    at += size


def copy(out: Room, at: Longs, data: Bytes, begin: Longs, size: Longs) -> None:
    """Put stretches of a buffer; moves the places behind them.

    Args:
        out: Where they are put.
        at: The places.
        data: A buffer with at least eight bytes behind the last stretch.
        begin: Where each stretch begins in it.
        size: How many bytes each has.
    """
    words = words_of(data)
    some = np.flatnonzero((size > 0) & (size <= LONG))
    source, place, left = begin[some], at[some], size[some]
    while len(some):
        out.words[place] = words[source]
        more = left > 8
        if not more.all():
            source, place, left, some = source[more], place[more], left[more], some[more]
        source, place, left = source + 8, place + 8, left - 8
    for i in np.flatnonzero(size > LONG).tolist():
        out.data[at[i] : at[i] + size[i]] = data[begin[i] : begin[i] + size[i]]
    at += size
