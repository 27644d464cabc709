"""Which message, key row and value row each row of a table comes from."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.declare.metadata import IN_VALUE
from kdsl.formats import ROW_KINDS, Decoded
from kdsl.plan.model import ReadPlan
from kdsl.types.arrays import Indices, Mask, compare_values

_BEFORE, _AFTER, _GONE = (ROW_KINDS.index(kind) for kind in ("-U", "+U", "-D"))


@attrs.frozen(eq=False)
class Alignment:
    """Which message, key row and value row each output row comes from; None means one for one, in order.

    Attributes:
        messages: The message of each output row.
        keys: The key row of each output row; null if the key gave none.
        values: The value row of each output row; null if the message has no value and deletes its key.
        deletes: Which rows are deletes, whose other columns do not matter; None if there are none, or if rows are not
            read by key.
    """

    messages: Indices | None = None
    keys: pa.Array | None = None
    values: pa.Array | None = None
    deletes: Mask | None = None

    @property
    def with_value(self) -> pa.Array | None:
        """Which rows have a value row; None if all have one."""
        return None if self.values is None or self.values.null_count == 0 else self.values.is_valid()


class Aligner:
    """Puts the rows of decoded keys and values side by side.

    Args:
        plan: What is read.
    """

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._events = plan.upserts is not None and plan.upserts.events
        self._by_key = bool(plan.keyed if plan.upserts is None else plan.upserts.keys)
        self._value_keys = _value_keys(plan)
        self._tombstones = self._events and message_key_has_primary_key(plan)

    def align(self, raw: pa.RecordBatch, key: Decoded | None, value: Decoded | None) -> Alignment:
        """Find the message, the key row and the value row of each row, and the deletes if rows are read by key."""
        messages, value_rows = self._select_value_rows(raw, value)
        aligned = _align(raw.num_rows, key, messages)
        if value_rows is not None:
            aligned = attrs.evolve(aligned, values=take(value_rows, aligned.values))
        return attrs.evolve(aligned, deletes=self._find_deletes(value, aligned)) if self._by_key else aligned

    def _select_value_rows(self, raw: pa.RecordBatch, value: Decoded | None) -> tuple[Indices | None, pa.Array | None]:
        """Return the message and the value row of each row (`_locate_rows`).

        If rows are read by key, messages without a value are deletes (of change data only those with a key that
        contains the primary key), and `_select_changes` leaves out rows of change data. The first result is None for
        one row per message, the second for all value rows.
        """
        if self._plan.upserts is None:
            return _locate_rows(raw.num_rows, value, None, None)
        tombstones = raw.column("value").is_null()
        if not self._events:
            return _locate_rows(raw.num_rows, value, None, tombstones)
        assert value is not None
        deletes = pc.and_(tombstones, raw.column("key").is_valid()) if self._tombstones else None
        return _locate_rows(raw.num_rows, value, _select_changes(value, self._value_keys), deletes)

    def _find_deletes(self, value: Decoded | None, aligned: Alignment) -> Mask | None:
        """Return which rows are deletes, None if there are none: those without a value row.

        In change data that is read by key, also those with the row kind ``-D`` or ``-U``.
        """
        valid = aligned.with_value
        deletes: Mask | None = None if valid is None else ~valid.to_numpy(zero_copy_only=False)
        if not self._plan.keyed or value is None or value.kinds is None:
            return deletes
        kinds = take(value.kinds, aligned.values).fill_null(_GONE).to_numpy(zero_copy_only=False)
        gone: Mask = (kinds == _BEFORE) | (kinds == _GONE)
        return gone if gone.any() else None


def _value_keys(plan: ReadPlan) -> tuple[int, ...]:
    """Return the indices of the primary key's columns among those of the message value; none without upserts."""
    columns = plan.value.columns if plan.value is not None and plan.upserts is not None else ()
    return tuple(i for i, column in enumerate(columns) if plan.upserts and column in plan.upserts.keys)


def message_key_has_primary_key(plan: ReadPlan) -> bool:
    """Return whether message key and Kafka's metadata contain the whole primary key; False without upserts or key."""
    if plan.upserts is None or plan.key is None:
        return False
    metadata = {m.column for m in plan.metadata if not m.key.startswith(IN_VALUE)}
    return all(column in plan.key.columns or column in metadata for column in plan.upserts.keys)


def _select_changes(value: Decoded, keys: tuple[int, ...]) -> Indices | None:
    """Return the indices of the value rows without ``-U`` of updates that do not change the key; None means all rows.

    Without ``keys`` (the indices of the key's columns) the message has the key, and each ``-U`` is left out.
    """
    if value.kinds is None:
        return None
    kinds = value.kinds.to_numpy(zero_copy_only=False)
    before = np.flatnonzero(kinds == _BEFORE)
    if not len(before):
        return None
    selected = np.ones(len(kinds), dtype=bool)
    if not keys:  # the message key is the key of both rows
        selected[before] = False
        return np.flatnonzero(selected)
    after = np.minimum(before + 1, len(kinds) - 1)
    same = kinds[after] == _AFTER
    for i in keys:
        column = value.rows.field(i)
        same &= compare_values(column.take(pa.array(before)), column.take(pa.array(after)))
    selected[before[same]] = False
    return None if selected.all() else np.flatnonzero(selected)


def _locate_rows(
    count: int, value: Decoded | None, wanted: Indices | None, deletes: pa.Array | None
) -> tuple[Indices | None, pa.Array | None]:
    """Find the message and the value row that each output row comes from, in the order of the messages.

    Args:
        count: How many messages there are.
        value: The decoded message values.
        wanted: The selected value rows, ascending; None means all.
        deletes: Which messages have no value and delete their key; each gets one row, and no value rows. None for none.

    Returns:
        The message of each row, and its value row, which is null for a delete. Instead of the first, None means one
        row per message; instead of the second, all value rows, each in order.
    """
    messages = None if value is None or value.messages is None else value.messages.to_numpy().astype(np.int64)
    if wanted is not None:
        messages = wanted if messages is None else messages[wanted]
    if deletes is None or deletes.true_count == 0:
        return messages, None if wanted is None else pa.array(wanted)
    deleted = deletes.to_numpy(zero_copy_only=False)
    message_of = np.arange(count) if messages is None else messages
    upserts = np.flatnonzero(~deleted[message_of])
    without = np.flatnonzero(deleted)
    both = np.concatenate([message_of[upserts], without])
    order = np.argsort(both, kind="stable")
    value_rows = upserts if wanted is None else wanted[upserts]
    rows = np.concatenate([value_rows, np.zeros(len(without), dtype=np.int64)])[order]
    return both[order], pa.array(rows, mask=order >= len(upserts))


def _align(count: int, key: Decoded | None, messages: Indices | None) -> Alignment:
    """Find the key row of each row, and repeat the rows whose message has several; ``values`` are then their indices.

    ``messages`` are those of the rows before; None means one row for each of ``count`` messages.
    """
    if key is None or key.messages is None:
        keys = None if key is None or messages is None else pa.array(messages)
        return Alignment(messages, keys, None)
    # A message has one key row, none, or (rarely) several: then each value row is combined with each of them (KEY-14).
    key_messages = key.messages.to_numpy().astype(np.int64)
    per_message = np.bincount(key_messages, minlength=count)
    value_messages, messages = messages, np.arange(count) if messages is None else messages
    if len(key_messages) == 0 or per_message.max() <= 1:
        row_of = np.full(count, -1, dtype=np.int64)
        row_of[key_messages] = np.arange(len(key_messages))
        rows = row_of[messages]
        return Alignment(value_messages, pa.array(rows, mask=rows < 0), None)
    times = np.maximum(per_message[messages], 1)
    first = np.cumsum(per_message) - per_message
    repeated = np.repeat(messages, times)
    within = np.arange(len(repeated)) - np.repeat(np.cumsum(times) - times, times)
    rows = first[repeated] + within
    value_rows = pa.array(np.repeat(np.arange(len(messages)), times))
    return Alignment(repeated, pa.array(rows, mask=per_message[repeated] == 0), value_rows)


def take(array: pa.Array, rows: Indices | pa.Array | None) -> pa.Array:
    """Return the elements with the indices ``rows``, as a copy; None returns the array itself."""
    return array if rows is None else array.take(pa.array(rows) if isinstance(rows, np.ndarray) else rows)


def count_distinct(messages: Indices | None, count: int) -> int:
    """Return how many messages have rows; ``messages`` is ascending, None means all ``count`` of them."""
    if messages is None or len(messages) == 0:
        return count if messages is None else 0
    return 1 + int(np.count_nonzero(np.diff(messages)))
