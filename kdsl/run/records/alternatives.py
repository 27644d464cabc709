"""Other options of a format that read a batch better than the declared ones: advice in an error about a bad message."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.errors import KdslError
from kdsl.formats import Decoded, Format, Use
from kdsl.types import model as t
from kdsl.types.arrays import Indices, Mask

MAX_BYTES = 1 << 16
"""The largest message, in bytes, and the most bytes of a batch, that other options are tried on: errors are prompt."""
_MAX_MESSAGES = 1000


def find_alternative(declared: Format, row: t.Row, use: Use, messages: pa.BinaryArray, index: int) -> Format | None:
    """Return the first alternative of a format that certainly improves the reading of a batch; None if there is none.

    An alternative reads the bad message to a row in which a column has a value, or as a tombstone. It reads all
    messages that the declared options read, to the same rows, and the values of all messages are plausible
    (`Format.is_plausible`).

    Args:
        declared: The format as declared, with its `Format.alternatives`.
        row: The columns.
        use: What the decoder is for.
        messages: The messages of the batch. If they are many, only the first ones and the bad one are read.
        index: The index of the message that the declared options cannot read.
    """
    if len(messages[index].as_buffer()) > MAX_BYTES:
        return None
    sample, at = _select_sample(messages, index)
    before: Decoded | None = None
    for other in declared.alternatives():
        after = _decode(other, row, use, sample)
        if after is None or any(bad.index == at for bad in after.bad):
            continue
        if not _has_value(after, at) and not (use.side == "value" and sample[at].as_py() == other.tombstone):
            continue
        before = before or _decode(declared, row, use, sample)
        if before is not None and _keeps_rows(before, after, len(sample)) and other.is_plausible(row, sample, after):
            return other
    return None


def replace_tombstones(chosen: Format, values: pa.BinaryArray) -> pa.BinaryArray:
    """Return message values with NULL for each that is the tombstone of a format; the array itself if none is."""
    if chosen.tombstone is None:
        return values
    is_tombstone = pc.equal(values, chosen.tombstone)
    if not pc.any(is_tombstone).as_py():
        return values
    return pc.if_else(is_tombstone, pa.scalar(None, values.type), values)


def _decode(chosen: Format, row: t.Row, use: Use, messages: pa.BinaryArray) -> Decoded | None:
    """Decode messages; None if the format cannot be used."""
    try:
        of_rows = replace_tombstones(chosen, messages) if use.side == "value" else messages
        return chosen.decoder(row, use).decode(of_rows)
    except (KdslError, ValueError):
        return None


def _select_sample(messages: pa.BinaryArray, index: int) -> tuple[pa.BinaryArray, int]:
    """Return the first messages, up to `MAX_BYTES` in all, and the one with an index, and where it is among them."""
    sizes = np.asarray(pc.fill_null(pc.binary_length(messages), 0)).cumsum()
    count = min(_MAX_MESSAGES, int(np.searchsorted(sizes, MAX_BYTES, "right")))
    if index < count:
        return messages.slice(0, count), index
    return pa.concat_arrays([messages.slice(0, count), messages.slice(index, 1)]), count


def _owners(decoded: Decoded) -> Indices:
    """The message of each row."""
    return np.arange(len(decoded.rows)) if decoded.messages is None else np.asarray(decoded.messages).astype(np.int64)


def _has_value(decoded: Decoded, message: int) -> bool:
    """Whether a column has a value in a row of a message."""
    return _holds_value(decoded.rows.take(pa.array(np.flatnonzero(_owners(decoded) == message))))


def _holds_value(array: pa.Array) -> bool:
    """Whether a value of an array, or a part of one, is not null."""
    if pa.types.is_struct(array.type):
        return any(map(_holds_value, array.flatten()))
    if pa.types.is_list(array.type):
        return _holds_value(array.flatten())
    return bool(array.null_count < len(array))


def _keeps_rows(before: Decoded, after: Decoded, count: int) -> bool:
    """Whether what was read is read again, to the same rows, and every message that is bad was bad before."""
    readable: Mask = np.ones(count, dtype=bool)
    readable[[bad.index for bad in before.bad]] = False
    if any(readable[bad.index] for bad in after.bad):
        return False
    same = pa.array(np.flatnonzero(readable[_owners(after)]))
    return before.rows.equals(after.rows.take(same)) and (
        before.kinds is None or after.kinds is None or before.kinds.equals(after.kinds.take(same))
    )
