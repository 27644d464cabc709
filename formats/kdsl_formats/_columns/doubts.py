"""What whole columns leave in doubt: read or written one by one by the reference, and put where it belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from kdsl.formats import BadRecord, Decoded, Encoded
from kdsl_formats._columns.arrays import Mask, Positions


@attrs.frozen(eq=False)
class Odd:
    """Messages that were read one by one.

    Attributes:
        rows: Their rows as values, in the order of the messages.
        owner: The message of each row.
        bad: The messages that failed.
    """

    rows: list[Any]
    owner: list[int]
    bad: tuple[BadRecord, ...]

    @classmethod
    def read(cls, messages: pa.BinaryArray, which: Positions, rows_of: Callable[[bytes], Iterable[Any]]) -> Odd:
        """Read some messages, none of which is null; a `ValueError` says why one is bad."""
        rows: list[Any] = []
        owner: list[int] = []
        bad: list[BadRecord] = []
        for i, message in zip(which.tolist(), messages.take(pa.array(which)).to_pylist(), strict=True):
            try:
                made = list(rows_of(message))
            except RecursionError:
                bad.append(BadRecord(i, "the value is nested too deeply"))
            except ValueError as e:
                bad.append(BadRecord(i, str(e)))
            else:
                rows += made
                owner += [i] * len(made)
        return cls(rows, owner, tuple(bad))

    def decoded(self, kind: pa.StructType, count: int) -> Decoded:
        """These rows alone, of as many messages."""
        none = np.zeros(0, dtype=np.int64)
        return merged(pa.array([], kind), none, none, self, count)


class Order:
    """Rows read by columns and those read one by one, in the order of their messages.

    Args:
        owner: The message of each row read by columns, ascending.
        odd: Those read one by one, all of other messages.

    Attributes:
        owner: The message of each row.
    """

    def __init__(self, owner: Positions, odd: Odd) -> None:
        self._behind = np.searchsorted(owner, odd.owner) if odd.rows else None
        self._count = len(odd.rows)
        self.owner = self.values(owner, odd.owner)

    def values(self, values: Positions, added: Iterable[int]) -> Positions:
        """Numbers of the rows read by columns, with those of the others put in."""
        return values if self._behind is None else np.insert(values, self._behind, list(added))

    def index(self, places: Positions, count: int) -> Positions:
        """The places of rows in a column, with those of the others, which stand behind its `count` values, put in."""
        return self.values(places, range(count, count + self._count))


def merged(rows: pa.StructArray, places: Positions, owner: Positions, odd: Odd, count: int) -> Decoded:
    """What was read by columns and what one by one.

    Args:
        rows: The rows read by columns.
        places: Those of them that count.
        owner: The message of each of these, ascending.
        odd: The messages that were read one by one.
        count: How many messages there are.
    """
    order = Order(owner, odd)
    whole = pa.concat_arrays([rows, pa.array(odd.rows, rows.type)]) if odd.rows else rows
    made = taken(whole, order.index(places, len(rows)))
    every = len(order.owner) == count and bool((order.owner == np.arange(count)).all())
    return Decoded(made, None if every else pa.array(order.owner, pa.int64()), odd.bad)


def taken(column: pa.Array, index: Positions) -> pa.Array:
    """The values at some places; the column itself where these are all, in order."""
    if len(index) == len(column) and bool((index == np.arange(len(index))).all()):
        return column
    return column.take(pa.array(index))


def mended(rows: pa.Array, made: pa.BinaryArray | None, doubts: Mask, write: Callable[[Any], bytes]) -> Encoded:
    """Messages, with those of rows in doubt written one by one.

    Args:
        rows: The rows.
        made: The messages that whole columns made; None when all rows are in doubt.
        doubts: Which rows are in doubt.
        write: Writes a row as `plain_values` gives it; a `ValueError` says why it cannot be written.
    """
    if made is not None and not doubts.any():
        return Encoded(made)
    where = np.flatnonzero(doubts)
    written: list[bytes | None] = []
    bad: list[BadRecord] = []
    for i, row in zip(where.tolist(), plain_values(taken(rows, where)), strict=True):
        try:
            written.append(write(row))
        except ValueError as e:
            written.append(None)
            bad.append(BadRecord(i, str(e)))
    found = pa.array(written, pa.binary())
    if made is not None:
        index = np.arange(len(rows))
        index[where] = len(rows) + np.arange(len(where))
        found = pa.concat_arrays([made, found]).take(pa.array(index))
    return Encoded(found, tuple(bad))


def plain_values(array: pa.Array) -> list[Any]:
    """The values of an array; dates, times and timestamps as numbers, maps as pairs."""
    kind = _numeric(array.type)
    found: list[Any] = (array if kind == array.type else array.cast(kind)).to_pylist()
    return found


def _numeric(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_numeric(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numeric(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_numeric(kind.key_type), kind.item_field.with_type(_numeric(kind.item_type)))
    return kind
