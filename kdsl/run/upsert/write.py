"""Converts changes to upserts and tombstones, before they are encoded.

Only the row after an update is written. The row before it (``-U``) is left out if its key still exists; if the update
changed the key, the old key has no row any more and gets a tombstone (RULES UP-14, UP-15).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import ROW_KIND, ROW_KINDS
from kdsl.plan.model import UpsertWrite, WritePlan
from kdsl.run.upsert.changes import AFTER, BEFORE, DELETE, INSERT, take_rows
from kdsl.run.upsert.keys import mark_last_rows
from kdsl.types.arrays import Integers, number_rows
from kdsl.types.arrow import cast_array


def convert_to_upserts(batches: Iterable[pa.RecordBatch], plan: WritePlan) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task that are written: upserts (``+I`` or ``+U``) and deletes (``-D``).

    A plan that buffers writes the last change of each key in the buffer, when enough rows are in it, or when a batch
    comes after enough time. Another one writes every change, and leaves out a row before an update (``-U``) whose key
    has a later row in the task; without one, it becomes a delete at the end of the task. Buffered rows are written at
    the end of the task at the latest: no row waits when a micro-batch has ended. Rows with an unknown kind are kept,
    and the rows of a plan without upserts are passed on unchanged.

    Args:
        batches: The plan's columns; without the row kind if the plan is not a changelog and all rows are upserts.
        plan: What is written.
    """
    upserts = plan.upserts
    if upserts is None:
        yield from batches
        return
    buffered: pa.RecordBatch | None = None
    since = time.monotonic()
    for batch in batches:
        if buffered is None and not upserts.rows and not (plan.changelog and _has_updates_before(batch)):
            yield batch
            continue
        rows = batch if buffered is None else pa.concat_batches([buffered, batch])
        if upserts.rows:
            last = _take_last(rows, upserts)
            full = last.num_rows >= upserts.rows or time.monotonic() - since >= upserts.seconds
            if full:
                yield last
                since = time.monotonic()
            buffered = None if full else last
        else:
            ready, unfinished = _split_off_open(rows, upserts)
            buffered = unfinished if unfinished.num_rows else None
            if ready.num_rows:
                yield ready
    if buffered is not None:
        yield _take_last(buffered, upserts)


def _has_updates_before(batch: pa.RecordBatch) -> bool:
    """Return whether a batch has rows before an update (``-U``)."""
    return bool(pc.any(pc.equal(batch.column(ROW_KIND), "-U")).as_py())


def _kind_indices(rows: pa.RecordBatch) -> Integers:
    """Return the row kinds as indices into `ROW_KINDS`: -1 for NULL or an unknown kind; ``+I`` without the column."""
    if ROW_KIND not in rows.schema.names:
        return np.full(rows.num_rows, INSERT, dtype=np.int64)
    indices = pc.index_in(rows.column(ROW_KIND), pa.array(ROW_KINDS))
    filled: Integers = pc.fill_null(indices, -1).to_numpy(zero_copy_only=False)
    return filled.astype(np.int64)


def _key_numbers(rows: pa.RecordBatch, upserts: UpsertWrite) -> Integers:
    """Return a number for each row; rows with the same key have the same number."""
    return number_rows([rows.column(name) for name in upserts.keys])[0]


def _take_last(rows: pa.RecordBatch, upserts: UpsertWrite) -> pa.RecordBatch:
    """Return the last change of each key, as ``+U`` or ``-D``; rows with an unknown kind all stay.

    If there are such rows, the rows keep their kinds: the encoder reports these.
    """
    codes = _kind_indices(rows)
    last = np.flatnonzero(mark_last_rows(_key_numbers(rows, upserts)) | (codes < 0))
    codes = codes[last]
    kinds = np.where((codes == INSERT) | (codes == AFTER), AFTER, DELETE)
    return _with_kinds(take_rows(rows, last), np.where(codes < 0, -1, kinds))


def _split_off_open(rows: pa.RecordBatch, upserts: UpsertWrite) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows that can be written, and rows before an update (``-U``) whose keys have no later row yet.

    Other rows before an update are left out.
    """
    before = _kind_indices(rows) == BEFORE
    unfinished = before & mark_last_rows(_key_numbers(rows, upserts))
    return take_rows(rows, np.flatnonzero(~before)), take_rows(rows, np.flatnonzero(unfinished))


def _with_kinds(rows: pa.RecordBatch, codes: Integers) -> pa.RecordBatch:
    """Return rows with new row kinds (indices into `ROW_KINDS`); unchanged if one is -1, or without such a column."""
    if (codes < 0).any() or ROW_KIND not in rows.schema.names:
        return rows
    index = rows.schema.get_field_index(ROW_KIND)
    field = rows.schema.field(index)
    return rows.set_column(index, field, cast_array(pa.array(ROW_KINDS).take(pa.array(codes)), field.type))
