"""The wire format of whole batches: wire types, and the bytes of messages in one buffer."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from kdsl_formats._columns.arrays import Bytes, Integers, Mask, Words, content, find_bounds
from kdsl_formats._columns.varints import pad_bytes, read_varints

VARINT, FIXED64, LENGTH, GROUP, FIXED32 = 0, 1, 2, 3, 5


@attrs.frozen(eq=False)
class MessageBuffer:
    """The bytes of messages in one buffer.

    Attributes:
        data: The bytes, with padding after them.
        words: The eight bytes that begin at each position, as a number.
    """

    data: Bytes
    words: Words

    @classmethod
    def of(cls, messages: pa.BinaryArray) -> tuple[MessageBuffer, Integers, Integers]:
        """Copy an array of messages to a buffer, and return it with the start and end of each message in it.

        Positions count from the start of the buffer, for a sliced array too. A null message may still have bytes.
        """
        start, end = find_bounds(messages)
        return cls(*pad_bytes(content(messages))), start.astype(np.int64), end.astype(np.int64)

    def varints(self, positions: Integers) -> tuple[Words, Integers | int, Mask | None]:
        """The varints at some positions, their sizes in bytes, and which are too long; forms as in `read_varints`."""
        return read_varints(self.data, self.words, positions)
