"""Changes of a table to messages that are the row after the change; the delete of a row is a null message."""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Encoded, Encoder


@attrs.frozen
class ChangeMessages(ABC):
    """The messages of changes of one table; `rows` encodes its rows."""

    rows: Encoder

    def encode(self, rows: pa.StructArray, before: pa.Array, after: pa.Array) -> Encoded:
        """Encode changes; bad rows are those of ``rows``."""
        encoded = self.rows.encode(rows)
        if encoded.bad:
            return encoded
        return Encoded(self.join(encoded.messages.take(before), encoded.messages.take(after)))

    @abstractmethod
    def join(self, old: pa.Array, new: pa.Array) -> pa.Array:
        """Join the encoded rows before and after changes, null where there is none, to messages."""


class RowMessages(ChangeMessages):
    """The rows after changes, and null for deletes."""

    deletes_are_null = True

    def join(self, old: pa.Array, new: pa.Array) -> pa.Array:
        """Return the rows after changes."""
        return new


def join_strings(*parts: pa.Array | str) -> pa.Array:
    """Concatenate parts; strings are the same in every element. Null in a part is null in the result."""
    operands = [pa.scalar(part.encode(), pa.binary()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*operands, pa.scalar(b"", pa.binary()))
