"""The fallback: messages and rows that the reference reads or writes one by one, merged with whole columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from kdsl.formats import BadRecord, Decoded, Encoded
from kdsl.types.arrow import plain_values
from kdsl_formats._columns.arrays import Indices, Mask


@attrs.frozen(eq=False)
class FallbackRows:
    """The rows of messages that were read one by one.

    Attributes:
        rows: The rows as Python values, in the order of the messages.
        owner: The message of each row.
        bad: The messages that failed.
    """

    rows: list[Any]
    owner: list[int]
    bad: tuple[BadRecord, ...]

    @classmethod
    def read(cls, messages: pa.BinaryArray, which: Indices, rows_of: Callable[[bytes], Iterable[Any]]) -> FallbackRows:
        """Read some messages, none of them null, one by one.

        A `ValueError` of `rows_of` makes a message bad, with its text; so does a `RecursionError` (nested too deeply).
        """
        rows: list[Any] = []
        owner: list[int] = []
        bad: list[BadRecord] = []
        for i, message in zip(which.tolist(), messages.take(pa.array(which)).to_pylist(), strict=True):
            try:
                message_rows = list(rows_of(message))
            except RecursionError:
                bad.append(BadRecord(i, "the value is nested too deeply"))
            except ValueError as e:
                bad.append(BadRecord(i, str(e)))
            else:
                rows += message_rows
                owner += [i] * len(message_rows)
        return cls(rows, owner, tuple(bad))

    def to_decoded(self, kind: pa.StructType, count: int) -> Decoded:
        """The result of decoding `count` messages that were all read one by one."""
        none = np.zeros(0, dtype=np.int64)
        return merge_rows(pa.array([], kind), none, none, self, count)


class RowOrder:
    """Merges rows read by columns and rows read one by one, in the order of their messages.

    Args:
        owner: The message of each row read by columns, ascending.
        fallback_rows: The rows read one by one, from other messages.

    Attributes:
        owner: The message of each row of both kinds.
    """

    def __init__(self, owner: Indices, fallback_rows: FallbackRows) -> None:
        self._insert_before = np.searchsorted(owner, fallback_rows.owner) if fallback_rows.rows else None
        self._count = len(fallback_rows.rows)
        self.owner = self.insert(owner, fallback_rows.owner)

    def insert(self, values: Indices, added: Iterable[int]) -> Indices:
        """Insert numbers of the rows read one by one, one for each, among those of the rows read by columns."""
        return values if self._insert_before is None else np.insert(values, self._insert_before, list(added))

    def index(self, positions: Indices, count: int) -> Indices:
        """Return the index of each row in a column whose first `count` values are followed by those read one by one.

        `positions` are the indices of the rows read by columns among the first values.
        """
        return self.insert(positions, range(count, count + self._count))


def merge_rows(
    rows: pa.StructArray, indexes: Indices, owner: Indices, fallback_rows: FallbackRows, count: int
) -> Decoded:
    """Merge rows read by columns with those read one by one, in the order of their messages.

    The result does not name the message of each row if every message gave one row.

    Args:
        rows: The rows read by columns.
        indexes: The indices of the rows that are used.
        owner: The message of each used row, ascending.
        fallback_rows: The messages that were read one by one.
        count: The number of messages.
    """
    order = RowOrder(owner, fallback_rows)
    whole = pa.concat_arrays([rows, pa.array(fallback_rows.rows, rows.type)]) if fallback_rows.rows else rows
    merged = take_rows(whole, order.index(indexes, len(rows)))
    every = len(order.owner) == count and bool((order.owner == np.arange(count)).all())
    return Decoded(merged, None if every else pa.array(order.owner, pa.int64()), fallback_rows.bad)


def take_rows(column: pa.Array, index: Indices) -> pa.Array:
    """The values at some indices; the column itself if these are all its indices, in order."""
    if len(index) == len(column) and bool((index == np.arange(len(index))).all()):
        return column
    return column.take(pa.array(index))


def write_fallback_rows(
    rows: pa.Array, messages: pa.BinaryArray | None, fallback: Mask, write: Callable[[Any], bytes]
) -> Encoded:
    """Write the rows that need the fallback one by one, and merge their messages with the others.

    A row that cannot be written is a null message and a bad record.

    Args:
        rows: The rows.
        messages: The messages written by columns; None if all rows need the fallback.
        fallback: Which rows need the fallback.
        write: Encodes a row, whose values are those of `plain_values`; its `ValueError` is the reason why the row is
            bad.
    """
    if messages is not None and not fallback.any():
        return Encoded(messages)
    where = np.flatnonzero(fallback)
    fallback_messages: list[bytes | None] = []
    bad: list[BadRecord] = []
    for i, row in zip(where.tolist(), plain_values(take_rows(rows, where)), strict=True):
        try:
            fallback_messages.append(write(row))
        except ValueError as e:
            fallback_messages.append(None)
            bad.append(BadRecord(i, str(e)))
    written_array = pa.array(fallback_messages, pa.binary())
    if messages is not None:
        index = np.arange(len(rows))
        index[where] = len(rows) + np.arange(len(where))
        written_array = pa.concat_arrays([messages, written_array]).take(pa.array(index))
    return Encoded(written_array, tuple(bad))
