"""Changes: the rows of an update belong together, also where only one of them meets a filter. Needs no Spark.

A filter decides on both rows of an update, as in Flink CDC: an update whose row before meets it and whose row after
does not is a delete, and the other way round an insert. What makes inserts of deletes (``SOFT_DELETE``) comes after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import ROW_KINDS
from kdsl.own_columns import KIND, PASSES
from kdsl.types.arrays import Mask

INSERT, BEFORE, AFTER, DELETE = range(len(ROW_KINDS))
Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


@attrs.frozen(eq=False)
class RowChanges:
    """The changes in a batch of rows.

    Attributes:
        before: For each change the index of its row before; -1 for an insert.
        after: For each change the index of its row after; -1 for a delete.
    """

    before: Ints
    after: Ints


def find_changes(kinds: Ints, passes: Mask) -> RowChanges:
    """Combine the rows of updates; an update with only one row that passes becomes an insert or a delete.

    Args:
        kinds: The row kinds, as indices of `ROW_KINDS`. The row before an update is right before the row after it; a
            row of an update alone counts as an insert or a delete.
        passes: Which rows meet the filter; others are left out.
    """
    count = len(kinds)
    index = np.arange(count, dtype=np.int64)
    is_update = np.zeros(count, dtype=bool)
    is_update[1:] = (kinds[1:] == AFTER) & (kinds[:-1] == BEFORE)
    both = is_update.copy()
    both[1:] &= passes[1:] & passes[:-1]
    has_after = passes & ((kinds == INSERT) | (kinds == AFTER))
    belongs_to_next = np.zeros(count, dtype=bool)
    belongs_to_next[:-1] = both[1:]
    is_deleted = passes & ~has_after & ~belongs_to_next
    emitted = has_after | is_deleted
    before = np.where(is_deleted, index, np.where(both, index - 1, -1))
    return RowChanges(before[emitted], np.where(has_after, index, -1)[emitted])


def read_kinds(rows: pa.RecordBatch) -> Ints:
    """The row kinds of rows, as indices of `ROW_KINDS`."""
    kinds: Ints = pc.index_in(rows.column(KIND), pa.array(ROW_KINDS)).to_numpy(zero_copy_only=False)
    return kinds


def read_passes(rows: pa.RecordBatch) -> Mask:
    """Which rows meet the filter (`kdsl.own_columns.PASSES`, where NULL is false); all without that column."""
    passes: Mask = np.ones(rows.num_rows, dtype=bool)
    if PASSES in rows.schema.names:
        passes = pc.fill_null(rows.column(PASSES), False).to_numpy(zero_copy_only=False)
    return passes


class UpdateJoiner:
    """Cuts batches of rows so that the two rows of an update are always in one. Created once for all rows of a task."""

    def __init__(self) -> None:
        self._waiting: pa.RecordBatch | None = None

    def add(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows that waited and new ones; if the last is the one before an update, it waits for the next."""
        if self._waiting is not None:
            rows = pa.concat_batches([self._waiting, rows])
        self._waiting = None
        if rows.num_rows and rows.column(KIND)[-1].as_py() == ROW_KINDS[BEFORE]:
            self._waiting, rows = rows.slice(rows.num_rows - 1), rows.slice(0, rows.num_rows - 1)
        return rows

    def finish(self) -> pa.RecordBatch | None:
        """Return the row that waits, whose update has no row after; None if none does."""
        rows, self._waiting = self._waiting, None
        return rows


def filter_changes(batches: Iterator[pa.RecordBatch], *, soft_delete: bool) -> Iterator[pa.RecordBatch]:
    """Apply a filter to the changes of a task, and yield the rows of those that are left, without `PASSES`.

    Args:
        batches: The rows, with the row kind, `PASSES` and other columns.
        soft_delete: Whether deletes become inserts of the row before.
    """
    joiner = UpdateJoiner()
    for batch in batches:
        yield _filter_rows(joiner.add(batch), soft_delete=soft_delete)
    rest = joiner.finish()
    if rest is not None:
        yield _filter_rows(rest, soft_delete=soft_delete)


def _filter_rows(rows: pa.RecordBatch, *, soft_delete: bool) -> pa.RecordBatch:
    """Apply the filter to rows that contain both rows of each update; see `filter_changes`."""
    changes = find_changes(read_kinds(rows), read_passes(rows))
    has_before, has_after = changes.before >= 0, changes.after >= 0
    deleted = INSERT if soft_delete else DELETE
    places = np.stack([changes.before, changes.after], axis=1)
    kinds = np.stack([np.where(has_after, BEFORE, deleted), np.where(has_before, AFTER, INSERT)], axis=1)
    exists = places >= 0
    result = rows.take(pa.array(places[exists])).drop_columns([PASSES])
    own = pa.array(ROW_KINDS).take(pa.array(kinds[exists]))
    index = result.schema.get_field_index(KIND)
    return result.set_column(index, result.schema.field(index), own.cast(result.schema.field(index).type))
