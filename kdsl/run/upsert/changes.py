"""The changes that rows by key make: the heart of an upsert table, without Spark and without Kafka.

Source of the rules: Flink's ChangelogNormalize (RULES CL-3, UP-12, UP-13). A first row of a key is ``+I``; another one
is ``-U`` with the row before and ``+U``; one that equals the row before is nothing. A delete gives ``-D`` with the row
before, and nothing where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import ROW_KINDS
from kdsl.run.arrays import Flags, Numbers
from kdsl.run.upsert.keys import lasts, numbered

INSERT, BEFORE, AFTER, DELETE = (ROW_KINDS.index(kind) for kind in ("+I", "-U", "+U", "-D"))
Kinds = np.ndarray[Any, np.dtype[np.int8]]
PART_BYTES = 16 << 20
"""About how many bytes of changed rows go on together: a bucket's changes may be more than fits into one value."""


@attrs.frozen(eq=False)
class Upserts:
    """Rows by key in the order in which they came.

    Attributes:
        rows: The rows; of a delete only the key columns count.
        deletes: For each row whether it deletes its key.
        times: For each row the timestamp of its record, in milliseconds.
        parts: For each row a number of the partition that it came from; rows of one partition stand together in the
            order of their offsets.
    """

    rows: pa.RecordBatch
    deletes: Flags
    times: Numbers
    parts: Numbers


@attrs.frozen(eq=False)
class Changes:
    """What upserts change.

    Attributes:
        kinds: For each changed row its kind, as a place in `kdsl.formats.ROW_KINDS`.
        state: The last row of each key that is there now.
    """

    _rows: pa.RecordBatch
    _places: Numbers
    kinds: Kinds
    state: pa.RecordBatch

    @property
    def rows(self) -> pa.RecordBatch:
        """The changed rows: of ``-U`` and ``-D`` the row before."""
        return taken(self._rows, self._places)

    def parts(self, most: int = PART_BYTES) -> Iterator[tuple[pa.RecordBatch, Kinds]]:
        """The changed rows with their kinds, in parts of bounded size, one at least.

        Args:
            most: About how many bytes a part has; one with a row that is larger has more.
        """
        ends = np.array([len(self._places)])
        if 2 * self._rows.nbytes > most:  # each row shows twice at most
            part = np.cumsum(_sizes(self._rows)[self._places]) // most
            ends = np.append(np.flatnonzero(np.diff(part)) + 1, ends)
        start = 0
        for end in ends.tolist():
            yield taken(self._rows, self._places[start:end]), self.kinds[start:end]
            start = end


def changes(state: pa.RecordBatch | None, upserts: Upserts, keys: Sequence[str]) -> Changes:
    """The changes that upserts make.

    A key that came from several partitions has its rows in the order of time there: the order within each partition
    stays, and between partitions the earlier timestamp goes first.

    Args:
        state: The last row of each key, or None where there is none.
        upserts: The rows, with the columns of the state.
        keys: The columns of the key.
    """
    old = 0 if state is None else state.num_rows
    upserts, rows, ids, order = _ordered(state, upserts, keys)
    live = np.ones(len(ids), dtype=bool)
    live[old:] = ~upserts.deletes
    before = _before(ids, order)
    was = np.zeros(len(ids), dtype=bool)
    was[before >= 0] = live[before[before >= 0]]
    kinds, places = _emitted(rows, live, was, before, old)
    return Changes(rows, places, kinds, taken(rows, np.flatnonzero(lasts(ids) & live)))


def last_of_each(upserts: Upserts, keys: Sequence[str]) -> tuple[pa.RecordBatch, Flags]:
    """The last row of each key, and which of them delete their key, in the order in which they came."""
    upserts, rows, ids, _ = _ordered(None, upserts, keys)
    kept = np.flatnonzero(lasts(ids))
    return taken(rows, kept), upserts.deletes[kept]


def _ordered(
    state: pa.RecordBatch | None, upserts: Upserts, keys: Sequence[str]
) -> tuple[Upserts, pa.RecordBatch, Numbers, Numbers]:
    """The upserts in their order, the state and they together, the number of each row's key, and the rows by key."""
    rows = _together(state, upserts.rows)
    ids, many = numbered([rows.column(name) for name in keys])
    order = _by_key(ids, many)
    if _meet(ids, order, upserts.parts, rows.num_rows - upserts.rows.num_rows):
        return _ordered(state, _in_time(upserts), keys)
    return upserts, rows, ids, order


def _together(state: pa.RecordBatch | None, rows: pa.RecordBatch) -> pa.RecordBatch:
    if state is None or state.num_rows == 0:
        return rows
    return pa.concat_batches([state, rows.cast(state.schema) if rows.schema != state.schema else rows])


def _by_key(ids: Numbers, many: int) -> Numbers:
    """The rows of each key together, in their order."""
    narrow = np.uint16 if many <= 1 << 16 else np.int64  # numpy sorts 16 bits by counting
    return np.argsort(ids.astype(narrow), kind="stable")


def _meet(ids: Numbers, order: Numbers, parts: Numbers, old: int) -> bool:
    """Whether rows of one key came from several partitions."""
    if len(parts) == 0 or (parts == parts[0]).all():
        return False
    new = order[order >= old]
    same = ids[new[1:]] == ids[new[:-1]]
    return bool((same & (parts[new[1:] - old] != parts[new[:-1] - old])).any())


def _in_time(upserts: Upserts) -> Upserts:
    """The rows of all partitions in one order: that of each partition, and between them by time."""
    reached = np.empty_like(upserts.times)
    for part in np.unique(upserts.parts):
        here = upserts.parts == part
        reached[here] = np.maximum.accumulate(upserts.times[here])
    order = np.lexsort((upserts.parts, reached))
    return Upserts(
        taken(upserts.rows, order), upserts.deletes[order], upserts.times[order], np.zeros_like(upserts.parts)
    )


def _before(ids: Numbers, order: Numbers) -> Numbers:
    """For each row the one of its key before it, or -1."""
    found = np.full(len(ids), -1, dtype=np.int64)
    same = ids[order[1:]] == ids[order[:-1]]
    found[order[1:][same]] = order[:-1][same]
    return found


def _emitted(rows: pa.RecordBatch, live: Flags, was: Flags, before: Numbers, old: int) -> tuple[Kinds, Numbers]:
    """The kinds of the changes, and for each the row that it shows."""
    new = np.arange(old, len(live))
    comes, stood = live[new], was[new]
    updates = new[comes & stood]
    repeats = np.zeros(len(new), dtype=bool)
    repeats[updates - old] = _equal(rows, before[updates], updates)
    updated = comes & stood & ~repeats
    inserted = comes & ~stood
    deleted = ~comes & stood
    times = inserted.astype(np.int8) + deleted + 2 * updated
    ends = np.cumsum(times)
    many = int(ends[-1]) if len(ends) else 0
    kinds, places = np.empty(many, dtype=np.int8), np.empty(many, dtype=np.int64)
    for which, kind, back in ((inserted, INSERT, 1), (updated, AFTER, 1), (updated, BEFORE, 2), (deleted, DELETE, 1)):
        at = ends[which] - back
        kinds[at] = kind
        places[at] = before[new[which]] if kind in (BEFORE, DELETE) else new[which]
    return kinds, places


def _equal(rows: pa.RecordBatch, some: Numbers, others: Numbers) -> Flags:
    """For each pair of rows whether they are equal in all columns; NaN equals nothing."""
    found = np.ones(len(some), dtype=bool)
    left = np.arange(len(some))
    for column in rows.columns:
        if len(left) == 0:
            break
        same = _equal_values(column.take(pa.array(some[left])), column.take(pa.array(others[left])))
        found[left[~same]] = False
        left = left[same]
    return found


def _equal_values(a: pa.Array, b: pa.Array) -> Flags:
    if pa.types.is_nested(a.type):
        import polars as pl

        return pl.Series(pl.from_arrow(a)).eq_missing(pl.Series(pl.from_arrow(b))).to_numpy()
    both = pc.and_(a.is_null(), b.is_null())
    found: Flags = pc.or_(pc.fill_null(pc.equal(a, b), False), both).to_numpy(zero_copy_only=False)
    return found


def _sizes(rows: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.float64]]:
    """About how many bytes each row has: of texts and bytes their own, of other columns an even share."""
    found = np.zeros(rows.num_rows)
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            found += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        else:
            found += column.nbytes / rows.num_rows
    return found


def taken(rows: pa.RecordBatch, places: Numbers) -> pa.RecordBatch:
    """Some rows of a batch."""
    wanted = pa.array(places)
    return pa.RecordBatch.from_arrays([c.take(wanted) for c in rows.columns], schema=rows.schema)
