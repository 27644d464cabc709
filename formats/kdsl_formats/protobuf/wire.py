"""The wire format over whole batches: the kinds of fields, and the bytes of messages in one buffer."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from kdsl_formats._columns.arrays import Bytes, Longs, Mask, Words, bounds, content
from kdsl_formats._columns.varints import padded, read_varints

VARINT, FIXED64, LENGTH, GROUP, FIXED32 = 0, 1, 2, 3, 5


@attrs.frozen(eq=False)
class Source:
    """The bytes of messages in one buffer.

    Attributes:
        data: The bytes, with room behind them.
        words: For each place the eight bytes from there on, as a number.
    """

    data: Bytes
    words: Words

    @classmethod
    def of(cls, messages: pa.BinaryArray) -> tuple[Source, Longs, Longs]:
        """The bytes of an array of messages, and where each begins and ends; a null one has bytes, too, maybe."""
        start, end = bounds(messages)
        return cls(*padded(content(messages))), start.astype(np.int64), end.astype(np.int64)

    def varints(self, places: Longs) -> tuple[Words, Longs | int, Mask | None]:
        """The numbers that begin at some places, as `read_varints` gives them."""
        return read_varints(self.data, self.words, places)
