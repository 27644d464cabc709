"""Changes of a table to messages that are the row after the change; the delete of a row is a null message."""

from __future__ import annotations

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Encoded, Encoder


@attrs.frozen
class RowMessages:
    """The rows of one table; `rows` encodes them."""

    rows: Encoder
    deletes_are_null = True

    def encode(self, rows: pa.StructArray, before: pa.Array, after: pa.Array) -> Encoded:
        """Encode changes; bad rows are those of ``rows``."""
        encoded = self.rows.encode(rows)
        return encoded if encoded.bad else Encoded(take_sides(encoded.messages, before, after)[1])


def take_sides(messages: pa.Array, before: pa.Array, after: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the rows before and after each change, by their indices; null where there is none."""
    return messages.take(before), messages.take(after)


def join_strings(*parts: pa.Array | str) -> pa.Array:
    """Concatenate parts; strings are the same in every element. Null in a part is null in the result."""
    operands = [pa.scalar(part.encode(), pa.binary()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*operands, pa.scalar(b"", pa.binary()))
