"""Converts Debezium's envelopes (a row before and after a change, and the operation) to changelog rows and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import ROW_KINDS, STATE_HAS_ROWS, BadRecord, Decoded
from kdsl.shown_values import quote_value
from kdsl.types import model as t
from kdsl.types.arrow import arrow_field, arrow_type
from kdsl_formats._columns.arrays import Indices, Mask
from kdsl_formats._debezium.events import (
    CREATE,
    DELETE,
    MESSAGE,
    READ,
    TRUNCATE,
    UPDATE,
    deletes_need_row,
    truncate_reason,
)

_INSERT, _BEFORE, _AFTER, _DELETE = range(len(ROW_KINDS))
_OPERATIONS = (CREATE, READ, UPDATE, DELETE)
SKIPPED: tuple[str, ...] = (MESSAGE,)
"""The operations whose messages have no row."""
_UPDATE_CODE, _DELETE_CODE = 2, 3  # indices into `_OPERATIONS`
_KINDS = np.array([_INSERT, _INSERT, _AFTER, _DELETE], dtype=np.int8)  # of each operation's (last) row
_NAMES = {_UPDATE_CODE: "an update ('u')", _DELETE_CODE: "a delete ('d')"}


def envelope(row: t.Row, before: t.Row | None = None) -> t.Row:
    """The type of the envelope around rows of a type: ``before``, ``after`` and ``op``.

    Args:
        row: The type of the rows.
        before: The columns that are read of the before-image; None for all.
    """
    images = (t.Field("before", (before or row).as_nullable()), t.Field("after", row.as_nullable()))
    return t.Row((*images, t.Field("op", t.STRING)), nullable=False)


def extract_rows(
    decoded: Decoded,
    row: t.Row,
    skipped: Sequence[str] = SKIPPED,
    keyed: Sequence[str] = (),
    *,
    truncates: bool = False,
) -> Decoded:
    """Extract the rows of envelopes, with their kinds: one of each, or two of an update with a before-image.

    Envelopes with an unknown operation, or without an image that it needs, become bad records.

    Args:
        decoded: The envelopes.
        row: The type of the rows.
        skipped: The operations whose messages produce no row.
        keyed: The primary key of a table that keeps the last row of each key. Then an update may lack the before-image,
            and so may a delete if the message value does not contain the key.
        truncates: Whether to report the messages that empty the table; `skipped` must contain their operation then.
    """
    before, after, operations = (decoded.rows.field(i) for i in range(3))
    codes = np.asarray(pc.fill_null(pc.index_in(operations, pa.array(_OPERATIONS)), -1))
    has = {"before": np.asarray(before.is_valid()), "after": np.asarray(after.is_valid())}
    update, delete = codes == _UPDATE_CODE, codes == _DELETE_CODE
    skipped_rows = np.asarray(pc.fill_null(pc.is_in(operations, value_set=pa.array(skipped, pa.string())), False))
    needs_before = (update & (not keyed)) | (delete & deletes_need_row(row, keyed))
    invalid = ~skipped_rows & ((codes < 0) | (needs_before & ~has["before"]) | (~delete & ~has["after"]))
    message_indexes = np.arange(len(codes)) if decoded.messages is None else np.asarray(decoded.messages)
    bad = tuple(
        BadRecord(
            int(message_indexes[i]),
            _reason(int(codes[i]), operations[int(i)].as_py(), bool(has["before"][i]), bool(keyed)),
        )
        for i in np.flatnonzero(invalid)
    )
    counts = np.where(invalid | skipped_rows, 0, 1 + (update & has["before"]))
    envelope_indexes = np.repeat(np.arange(len(codes)), counts)
    ends = np.cumsum(counts)
    last = np.zeros(len(envelope_indexes), dtype=bool)
    last[ends[counts > 0] - 1] = True
    kinds = np.where(last, _KINDS[codes[envelope_indexes]], np.int8(_BEFORE)).astype(np.int8)
    is_before = (kinds == _BEFORE) | (kinds == _DELETE)
    rows = _select_images(before, after, arrow_type(row), is_before, envelope_indexes)
    failed = tuple(sorted((*decoded.bad, *bad), key=lambda record: record.index))
    emptied = np.flatnonzero(pc.fill_null(pc.equal(operations, TRUNCATE), False)) if truncates else ()
    return attrs.evolve(
        decoded,
        rows=rows,
        messages=pa.array(message_indexes[envelope_indexes], pa.int64()),
        bad=failed,
        kinds=pa.array(kinds),
        truncates=tuple(int(message_indexes[i]) for i in emptied),
    )


def _select_images(
    before: pa.StructArray, after: pa.StructArray, kind: pa.StructType, is_before: Mask, envelope_indexes: Indices
) -> pa.StructArray:
    """Select the before-image or the after-image of envelopes.

    Args:
        before: The before-images; columns that they lack are NULL.
        after: The after-images.
        kind: The type of the rows.
        is_before: Which rows are before-images.
        envelope_indexes: The index of the envelope of each row.
    """
    if before.type.equals(after.type):
        rows = pa.concat_arrays([before, after]).take(
            pa.array(np.where(is_before, envelope_indexes, envelope_indexes + len(after)))
        )
        columns = [rows.field(i) for i in range(kind.num_fields)]
    else:
        columns = []
        for i, field in enumerate(kind):
            column_index = before.type.get_field_index(field.name)
            values = [pa.nulls(1, field.type) if column_index < 0 else before.field(column_index), after.field(i)]
            index = np.where(is_before, envelope_indexes if column_index >= 0 else 0, envelope_indexes + len(values[0]))
            columns.append(pa.concat_arrays(values).take(pa.array(index)))
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _reason(code: int, operation: str | None, has_before: bool, keyed: bool) -> str:
    """Why an envelope with this operation (`code` is its index in `_OPERATIONS`, or -1) is bad, in words."""
    if operation == TRUNCATE:
        return truncate_reason("debezium-avro-confluent")
    if code < 0:
        actual = "has no 'op'" if operation is None else f"has the 'op' {quote_value(operation)}"
        return f"the envelope {actual}; expected c (create), r (read), u (update) or d (delete)"
    if code in _NAMES and not has_before:
        identity = "DEFAULT or FULL" if keyed else "FULL"
        state = STATE_HAS_ROWS if code == _UPDATE_CODE and not keyed else ""
        return (
            f"'before' is null in {_NAMES[code]}; where Debezium reads PostgreSQL, set the REPLICA IDENTITY of its "
            f"table to {identity}{state}"
        )
    return f"'after' is null in an envelope with the 'op' {operation!r}"


def wrap_in_envelopes(row: t.Row, rows: pa.StructArray, kinds: pa.Array | None) -> pa.StructArray:
    """Wrap rows in envelopes: an inserted row as a create, a deleted row as a delete.

    An update becomes two messages, a delete of the before-image and a create of the after-image, as in Flink. Without
    kinds, all rows are inserted.
    """
    codes: npt.NDArray[Any] = np.zeros(len(rows), np.int8) if kinds is None else np.asarray(kinds)
    gone = (codes == _BEFORE) | (codes == _DELETE)
    fields = [arrow_field(f.name, f.type) for f in envelope(row).fields]
    children = [rows.field(i) for i in range(rows.type.num_fields)]
    operations = pa.array([CREATE, DELETE]).take(pa.array(gone.astype(np.int8)))
    images = [
        pa.StructArray.from_arrays(
            children, fields=[fields[0].type.field(i) for i in range(len(children))], mask=pa.array(mask)
        )
        for mask in (~gone, gone)
    ]
    return pa.StructArray.from_arrays([*images, operations], fields=fields)
