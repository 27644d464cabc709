"""Computes the changes that rows by key cause: the core of an upsert table, without Spark and Kafka.

The rules are those of Flink's ChangelogNormalize (RULES CL-3, UP-12, UP-13). The first row of a key gives ``+I``; a
further one gives ``-U`` with the previous row, and ``+U``; one that equals the previous row gives nothing. A delete
gives ``-D`` with the previous row, and nothing if there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import ROW_KINDS
from kdsl.run.upsert.keys import mark_last_rows
from kdsl.types.arrays import Integers, Mask, compare_values, number_rows
from kdsl.types.arrow import cast_batch

INSERT, BEFORE, AFTER, DELETE = (ROW_KINDS.index(kind) for kind in ("+I", "-U", "+U", "-D"))
Kinds = np.ndarray[Any, np.dtype[np.int8]]
BATCH_BYTES = 16 << 20
"""The approximate size of a batch of changed rows: the changes of a shard may not fit into one value."""


RecordId = tuple[str, int, int]
"""A record's topic, partition and offset."""


@attrs.frozen(eq=False)
class Unavailable:
    """Values that messages do not contain, so that the previous values of the rows remain valid.

    Attributes:
        columns: By column, which rows' messages do not contain the value; columns without such rows are left out.
        records: The record of each such row, by the index of the row.
    """

    columns: Mapping[str, Mask]
    records: Mapping[int, RecordId]

    def reorder(self, order: Integers) -> Unavailable:
        """Return the same for rows in another order, given as the previous index of each row."""
        new = np.empty_like(order)
        new[order] = np.arange(len(order))
        return Unavailable(
            {name: flags[order] for name, flags in self.columns.items()},
            {int(new[row]): record for row, record in self.records.items()},
        )

    def take(self, which: Integers) -> Unavailable:
        """Return the same for some of the rows, by their indices."""
        records = {new: self.records[old] for new, old in enumerate(which.tolist()) if old in self.records}
        return Unavailable({name: flags[which] for name, flags in self.columns.items()}, records)


class UnavailableError(Exception):
    """Messages do not contain a value, and there is no previous row that has it.

    Attributes:
        column: The first such column.
        record: The record of the first such row.
        more: How many further rows have no value in the column.
        required: Whether the column is NOT NULL.
    """

    def __init__(self, column: str, record: RecordId, more: int, *, required: bool) -> None:
        super().__init__(column, record, more)
        self.column, self.record, self.more, self.required = column, record, more, required


@attrs.frozen(eq=False)
class KeyedRows:
    """Upserts and deletes by key, in the order in which they were read.

    Attributes:
        rows: The rows; of a delete only the key columns matter.
        deletes: Which rows delete their keys.
        times: The timestamp of each row's record, in milliseconds.
        partitions: A number for the partition of each row; the rows of one partition are adjacent, in the order of
            their offsets.
        unavailable: Values that messages do not contain; None if they contain all.
        truncates: Which rows only mark that the table was emptied; None if it was not.
    """

    rows: pa.RecordBatch
    deletes: Mask
    times: Integers
    partitions: Integers
    unavailable: Unavailable | None = None
    truncates: Mask | None = None

    def take(self, which: Integers) -> KeyedRows:
        """Return some of them, by their indices, each at most once."""
        return KeyedRows(
            take_rows(self.rows, which),
            self.deletes[which],
            self.times[which],
            self.partitions[which],
            None if self.unavailable is None else self.unavailable.take(which),
            None if self.truncates is None else self.truncates[which],
        )


@attrs.frozen(eq=False)
class UpsertChanges:
    """The changes that upserts cause.

    Attributes:
        all_rows: The previous rows with the upserts appended, whose unavailable values are filled.
        live: Which of these rows are not deletes.
        changed: Which of these rows cause a change; a previous row causes none.
        kinds: The kind of each changed row, as an index into `kdsl.formats.ROW_KINDS`.
        nulls: How many values became NULL because neither the message nor a previous row has them.
    """

    all_rows: pa.RecordBatch
    live: Mask
    changed: Mask
    kinds: Kinds
    nulls: int
    _indices: Integers

    @property
    def rows(self) -> pa.RecordBatch:
        """The changed rows: for ``-U`` and ``-D`` the previous row."""
        return take_rows(self.all_rows, self._indices)

    def batches(self, max_bytes: int = BATCH_BYTES) -> Iterator[tuple[pa.RecordBatch, Kinds]]:
        """Yield the changed rows with their kinds, in batches of limited size; at least one batch, perhaps empty.

        Args:
            max_bytes: The approximate size of a batch; a batch with one larger row exceeds it.
        """
        ends = np.array([len(self._indices)])
        if 2 * self.all_rows.nbytes > max_bytes:  # each row occurs at most twice
            batch_of = np.cumsum(measure_rows(self.all_rows)[self._indices]) // max_bytes
            ends = np.append(np.flatnonzero(np.diff(batch_of)) + 1, ends)
        start = 0
        for end in ends.tolist():
            yield take_rows(self.all_rows, self._indices[start:end]), self.kinds[start:end]
            start = end


def compute_changes(
    upserts: KeyedRows, keys: Sequence[str], *, allow_nulls: bool = False, net: bool = False
) -> UpsertChanges:
    """Compute the changes that all upserts of a table cause, before which it has no rows.

    If the rows of any key come from several partitions, or one of several partitions was emptied, all rows are ordered
    by time: the order within each partition is kept, and between partitions the earlier timestamp comes first. A value
    that a message does not contain is taken from the previous row. Where the table was emptied, each key is deleted.

    Args:
        upserts: The upserts.
        keys: The columns of the key.
        allow_nulls: Whether a value that neither the message nor a previous row has becomes NULL in a nullable column.
        net: Whether only the last upsert of each key causes a change.
    """
    return apply_upserts(*_order_rows(upserts, keys), allow_nulls=allow_nulls, net=net)


def apply_upserts(
    upserts: KeyedRows,
    rows: pa.RecordBatch,
    ids: Integers,
    order: Integers,
    *,
    allow_nulls: bool = False,
    net: bool = False,
    repeats: bool = False,
    added: Collection[str] = (),
) -> UpsertChanges:
    """Compute the changes that upserts cause in previous rows, in the order in which the upserts are given.

    Args:
        upserts: The upserts, without truncates.
        rows: The previous row of each key that has one, and then the rows of the upserts.
        ids: The number of the key of each of these rows.
        order: The indices of these rows sorted by key; those of a key are ascending.
        allow_nulls: As for `compute_changes`.
        net: Whether only the last upsert of each key is compared with its previous row.
        repeats: Whether a row that equals the previous one is an update, too.
        added: The columns in which NULL in a previous row may say that its value is not known.
    """
    old = rows.num_rows - upserts.rows.num_rows
    live = np.ones(len(ids), dtype=bool)
    live[old:] = ~upserts.deletes
    rows, nulls = _fill_unavailable(rows, upserts, ids, order, live, allow_nulls=allow_nulls, added=added)
    new = np.arange(old, len(ids))
    if net:
        new = new[mark_last_rows(ids)[old:]]
        stored = np.full(int(ids.max(initial=-1)) + 1, -1, dtype=np.int64)
        stored[ids[:old]] = np.arange(old)
        before = np.full(len(ids), -1, dtype=np.int64)
        before[new] = stored[ids[new]]
    else:
        before = _previous_rows(ids, order)
    was = np.zeros(len(ids), dtype=bool)
    was[before >= 0] = live[before[before >= 0]]
    kinds, indices, changed = _emit_changes(rows, live, was, before, new, repeats=repeats)
    return UpsertChanges(rows, live, changed, kinds, nulls, indices)


def take_last_changes(
    upserts: KeyedRows, keys: Sequence[str], *, allow_nulls: bool = False
) -> tuple[pa.RecordBatch, Mask, int]:
    """Return the last row of each key, which of them delete their keys, and `Changes.nulls`.

    Order, arguments and errors are those of `compute_changes`; only the returned rows need their values.
    """
    upserts, rows, ids, order = _order_rows(upserts, keys)
    last = mark_last_rows(ids)
    rows, nulls = _fill_unavailable(rows, upserts, ids, order, ~upserts.deletes, allow_nulls=allow_nulls, needed=last)
    indices = np.flatnonzero(last)
    return take_rows(rows, indices), upserts.deletes[indices], nulls


def _fill_unavailable(
    rows: pa.RecordBatch,
    upserts: KeyedRows,
    ids: Integers,
    order: Integers,
    live: Mask,
    *,
    allow_nulls: bool,
    needed: Mask | None = None,
    added: Collection[str] = (),
) -> tuple[pa.RecordBatch, int]:
    """Fill unavailable values from previous rows; also return how many became NULL. Those of deletes stay as they are.

    Args:
        rows: The state and the upserts together.
        upserts: The upserts.
        ids: The number of each row's key.
        order: The indices of the rows, sorted by key.
        live: Which rows are not deletes.
        allow_nulls: As for `compute_changes`.
        needed: Which rows are used afterwards; the others may lack values. None is all of them.
        added: As for `apply_upserts`.
    """
    unavailable = upserts.unavailable
    if unavailable is None:
        return rows, 0
    old, nulls = rows.num_rows - upserts.rows.num_rows, 0
    for name, flags in unavailable.columns.items():
        lacks = np.zeros(rows.num_rows, dtype=bool)
        lacks[old:] = flags & ~upserts.deletes
        by_key = lacks[order]
        # For each index in the order, the last one before it that has a value or deletes the key.
        last = np.maximum.accumulate(np.where(by_key, -1, np.arange(len(order))))
        source = np.where(last < 0, -1, order[last])
        missing = by_key & ((source < 0) | (ids[source] != ids[order]) | ~live[source])
        if name in added:  # a value for which there is a placeholder is not NULL
            missing |= by_key & (source < old) & rows.column(name).is_null().to_numpy(zero_copy_only=False)[source]
        indices = order[by_key & ~missing]
        lost = np.sort(order[missing if needed is None else missing & needed[order]])
        if len(lost):
            field = rows.schema.field(name)
            if not allow_nulls or not field.nullable:
                record = unavailable.records[int(lost[0]) - old]
                raise UnavailableError(name, record, len(lost) - 1, required=not field.nullable)
            nulls += len(lost)
        index = np.arange(rows.num_rows)
        index[indices] = source[by_key & ~missing]
        i = rows.schema.get_field_index(name)
        rows = rows.set_column(i, rows.schema.field(i), rows.column(i).take(pa.array(index)))
    return rows, nulls


def _order_rows(upserts: KeyedRows, keys: Sequence[str]) -> tuple[KeyedRows, pa.RecordBatch, Integers, Integers]:
    """Bring all upserts of a table into the order in which they apply, with each truncate replaced by deletes.

    The order stays, unless rows of a key come from several partitions: then all rows are sorted by time.

    Returns:
        The ordered upserts; their rows; the number of each row's key; and the indices of the rows sorted by key.
    """
    if upserts.truncates is not None:
        upserts = expand_truncates(None, upserts, upserts.truncates)
    ids, count = number_rows([upserts.rows.column(name) for name in keys])
    order = _sort_by_key(ids, count)
    if keys_span_partitions(ids, order, upserts.partitions):
        return _order_rows(sort_by_time(upserts), keys)
    return upserts, upserts.rows, ids, order


def _append_to_state(state: pa.RecordBatch | None, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the state with the rows appended, cast to its types; the rows themselves if the state is None or empty.

    The rows have the columns of the state, so the cast does not fail.
    """
    if state is None or state.num_rows == 0:
        return rows
    return pa.concat_batches([state, cast_batch(rows, state.schema)])


def _sort_by_key(ids: Integers, count: int) -> Integers:
    """Return the indices of the rows sorted by key, in their order for each key."""
    narrow = np.uint16 if count <= 1 << 16 else np.int64  # numpy sorts 16 bits by counting
    return np.argsort(ids.astype(narrow), kind="stable")


def keys_span_partitions(ids: Integers, order: Integers, partitions: Integers) -> bool:
    """Return whether rows of one key came from several partitions.

    Args:
        ids: The number of each row's key.
        order: The indices of the rows, sorted by key.
        partitions: The partition of each row.
    """
    if len(partitions) == 0 or (partitions == partitions[0]).all():
        return False
    same = ids[order[1:]] == ids[order[:-1]]
    return bool((same & (partitions[order[1:]] != partitions[order[:-1]])).any())


def sort_by_time(upserts: KeyedRows) -> KeyedRows:
    """Sort the rows of all partitions by time, keeping the order of each partition; the result has one partition."""
    reached = np.empty_like(upserts.times)
    for partition in np.unique(upserts.partitions):
        here = upserts.partitions == partition
        reached[here] = np.maximum.accumulate(upserts.times[here])
    order = np.lexsort((upserts.partitions, reached))
    unavailable = upserts.unavailable
    return KeyedRows(
        take_rows(upserts.rows, order),
        upserts.deletes[order],
        upserts.times[order],
        np.zeros_like(upserts.partitions),
        None if unavailable is None else unavailable.reorder(order),
        None if upserts.truncates is None else upserts.truncates[order],
    )


def expand_truncates(state: pa.RecordBatch | None, upserts: KeyedRows, truncates: Mask) -> KeyedRows:
    """Replace each truncate by deletes of the rows before it, those of the state included, since the last truncate.

    Rows of several partitions are sorted by time; the result has one partition.
    """
    if len(upserts.partitions) and not (upserts.partitions == upserts.partitions[0]).all():
        upserts = sort_by_time(upserts)
        assert upserts.truncates is not None
        truncates = upserts.truncates
    old = 0 if state is None else state.num_rows
    rows = _append_to_state(state, upserts.rows)
    index: list[Integers] = []
    from_truncates: list[Mask] = []  # whether a row is a delete that replaces a truncate
    known, start = np.arange(old), 0
    for end in [*np.flatnonzero(truncates).tolist(), len(truncates)]:
        rows_before = old + np.arange(start, end)
        index += [rows_before]
        from_truncates += [np.zeros(len(rows_before), dtype=bool)]
        if end < len(truncates):
            known = np.append(known, rows_before[~upserts.deletes[start:end]])
            index += [known]
            from_truncates += [np.ones(len(known), dtype=bool)]
            known = np.arange(0)
        start = end + 1
    indices, deleting = np.concatenate(index), np.concatenate(from_truncates)
    return KeyedRows(
        take_rows(rows, indices),
        np.append(np.zeros(old, dtype=bool), upserts.deletes)[indices] | deleting,
        np.append(np.zeros(old, dtype=np.int64), upserts.times)[indices],
        np.zeros(len(indices), dtype=np.int64),
        None if upserts.unavailable is None else _move_unavailable(upserts.unavailable, indices, deleting, old),
    )


def _move_unavailable(unavailable: Unavailable, indices: Integers, deleting: Mask, old: int) -> Unavailable:
    """Move unavailable values to the new indices of their rows; the added deletes have none.

    Args:
        unavailable: The unavailable values.
        indices: The previous index of each row, in the state with the upserts appended.
        deleting: Which rows are added deletes.
        old: How many rows the state has.
    """
    new = {int(index) - old: i for i, index in enumerate(indices.tolist()) if not deleting[i]}
    columns = {
        name: np.append(np.zeros(old, dtype=bool), flags)[indices] & ~deleting
        for name, flags in unavailable.columns.items()
    }
    return Unavailable(columns, {new[row]: record for row, record in unavailable.records.items() if row in new})


def _previous_rows(ids: Integers, order: Integers) -> Integers:
    """Return for each row the index of the previous row of its key, or -1; ``order`` has the indices sorted by key."""
    previous = np.full(len(ids), -1, dtype=np.int64)
    same = ids[order[1:]] == ids[order[:-1]]
    previous[order[1:][same]] = order[:-1][same]
    return previous


def _emit_changes(
    rows: pa.RecordBatch, live: Mask, was: Mask, before: Integers, new: Integers, *, repeats: bool
) -> tuple[Kinds, Integers, Mask]:
    """Return the kinds of the changes, the index in ``rows`` of each change's row, and which rows cause a change.

    An update gives two changes, a delete has its previous row, and a row that equals the previous one gives none.

    Args:
        rows: The state with the upserts appended.
        live: Which rows are not deletes.
        was: Which rows have a live previous row.
        before: The index of each row's previous row; -1 if there is none.
        new: The indices of the rows that may cause changes, ascending.
        repeats: Whether a row that equals the previous one is an update, too.
    """
    comes, stood = live[new], was[new]
    updated = comes & stood
    if not repeats:
        both = np.flatnonzero(updated)
        updated[both] = ~_compare_rows(rows, before[new[both]], new[both])
    inserted = comes & ~stood
    deleted = ~comes & stood
    times = inserted.astype(np.int8) + deleted + 2 * updated
    ends = np.cumsum(times)
    count = int(ends[-1]) if len(ends) else 0
    kinds, indices = np.empty(count, dtype=np.int8), np.empty(count, dtype=np.int64)
    for which, kind, back in ((inserted, INSERT, 1), (updated, AFTER, 1), (updated, BEFORE, 2), (deleted, DELETE, 1)):
        at = ends[which] - back
        kinds[at] = kind
        indices[at] = before[new[which]] if kind in (BEFORE, DELETE) else new[which]
    changed = np.zeros(len(live), dtype=bool)
    changed[new[times > 0]] = True
    return kinds, indices, changed


def _compare_rows(rows: pa.RecordBatch, some: Integers, others: Integers) -> Mask:
    """Return for each pair of rows, given by their indices, whether they are equal in all columns.

    NULL equals NULL, and NaN equals NaN (`kdsl.types.arrays.compare_values`).
    """
    equal = np.ones(len(some), dtype=bool)
    left = np.arange(len(some))
    for column in sorted(rows.columns, key=_comparison_cost):  # most rows that differ do so in cheap columns
        if len(left) == 0:
            break
        same = compare_values(column.take(pa.array(some[left])), column.take(pa.array(others[left])))
        equal[left[~same]] = False
        left = left[same]
    return equal


def _comparison_cost(column: pa.Array) -> int:
    """Return a rank of columns by what their comparison costs: numbers, then strings and bytes, then nested types."""
    if pa.types.is_nested(column.type):
        return 2
    return 0 if pa.types.is_primitive(column.type) else 1


def measure_rows(rows: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the approximate size of each row: strings and bytes by their lengths, other columns in equal shares."""
    sizes = np.zeros(rows.num_rows)
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        else:
            sizes += column.nbytes / rows.num_rows
    return sizes


def take_rows(rows: pa.RecordBatch, indices: Integers) -> pa.RecordBatch:
    """Return a copy of some rows of a batch, by their indices."""
    wanted = pa.array(indices)
    return pa.RecordBatch.from_arrays([c.take(wanted) for c in rows.columns], schema=rows.schema)
