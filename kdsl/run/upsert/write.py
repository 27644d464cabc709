"""Changes to upserts and tombstones, before they are encoded.

Of an update only the row after it is written. A row before (``-U``) is nothing, as long as its key lives on; where the
update gave the row another key, the old key has no row any more, and gets a tombstone (RULES UP-14, UP-15).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import ROW_KIND, ROW_KINDS
from kdsl.plan.model import UpsertWrite, WritePlan
from kdsl.run.arrays import Numbers
from kdsl.run.upsert.changes import AFTER, BEFORE, DELETE, INSERT, taken
from kdsl.run.upsert.keys import lasts, numbered

_KINDS = pa.array(ROW_KINDS)


def upserted(batches: Iterable[pa.RecordBatch], plan: WritePlan) -> Iterator[pa.RecordBatch]:
    """The rows of a task that are written: upserts (``+I`` or ``+U``) and deletes (``-D``).

    Rows of another plan than one of upserts come as they are. What a task gathers is written at its end at the latest:
    when a micro-batch has ended, nothing waits.

    Args:
        batches: The plan's columns; without the row kind where the plan is no changelog, and all rows are upserts.
        plan: What is written.
    """
    upserts = plan.upserts
    if upserts is None:
        yield from batches
        return
    held: pa.RecordBatch | None = None
    since = time.monotonic()
    for batch in batches:
        if held is None and not upserts.rows and not (plan.changelog and _has_befores(batch)):
            yield batch
            continue
        rows = batch if held is None else pa.concat_batches([held, batch])
        if upserts.rows:
            last = _last(rows, upserts)
            full = last.num_rows >= upserts.rows or time.monotonic() - since >= upserts.seconds
            if full:
                yield last
                since = time.monotonic()
            held = None if full else last
        else:
            written, left = _split(rows, upserts)
            held = left if left.num_rows else None
            if written.num_rows:
                yield written
    if held is not None:
        yield _last(held, upserts)


def _has_befores(batch: pa.RecordBatch) -> bool:
    return bool(pc.any(pc.equal(batch.column(ROW_KIND), "-U")).as_py())


def _codes(rows: pa.RecordBatch) -> Numbers:
    """The kinds as places in `ROW_KINDS`; -1 for what is none, which the encoder tells."""
    if ROW_KIND not in rows.schema.names:
        return np.full(rows.num_rows, INSERT, dtype=np.int64)
    found: Numbers = pc.fill_null(pc.index_in(rows.column(ROW_KIND), _KINDS), -1).to_numpy(zero_copy_only=False)
    return found.astype(np.int64)


def _ids(rows: pa.RecordBatch, upserts: UpsertWrite) -> Numbers:
    return numbered([rows.column(name) for name in upserts.keys])[0]


def _last(rows: pa.RecordBatch, upserts: UpsertWrite) -> pa.RecordBatch:
    """The last change of each key, as an upsert or a delete."""
    codes = _codes(rows)
    kept = np.flatnonzero(lasts(_ids(rows, upserts)) | (codes < 0))
    codes = codes[kept]
    ended = np.where((codes == INSERT) | (codes == AFTER), AFTER, DELETE)
    return _with_kinds(taken(rows, kept), np.where(codes < 0, -1, ended))


def _split(rows: pa.RecordBatch, upserts: UpsertWrite) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows that are written, and the rows before an update whose key nothing has followed yet."""
    before = _codes(rows) == BEFORE
    open_ones = before & lasts(_ids(rows, upserts))
    return taken(rows, np.flatnonzero(~before)), taken(rows, np.flatnonzero(open_ones))


def _with_kinds(rows: pa.RecordBatch, codes: Numbers) -> pa.RecordBatch:
    if (codes < 0).any() or ROW_KIND not in rows.schema.names:
        return rows
    at = rows.schema.get_field_index(ROW_KIND)
    return rows.set_column(at, rows.schema.field(at), _KINDS.take(pa.array(codes)).cast(rows.schema.field(at).type))
