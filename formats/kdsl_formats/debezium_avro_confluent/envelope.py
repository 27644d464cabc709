"""Debezium's envelope: a row before and after a change, and which change it was, to rows of a changelog and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import ROW_KINDS, BadRecord, Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_field

_INSERT, _BEFORE, _AFTER, _DELETE = range(len(ROW_KINDS))
_OPERATIONS = ("c", "r", "u", "d")
_UPDATE_OP, _DELETE_OP = 2, 3
_KIND = np.array([_INSERT, _INSERT, _AFTER, _DELETE], dtype=np.int8)  # of each operation's (last) row
_NAMES = {_UPDATE_OP: "an update ('u')", _DELETE_OP: "a delete ('d')"}


def envelope(row: t.Row) -> t.Row:
    """The type of the envelope around rows of a type."""
    image = row.as_nullable()
    return t.Row((t.Field("before", image), t.Field("after", image), t.Field("op", t.STRING)), nullable=False)


def opened(found: Decoded) -> Decoded:
    """The rows of envelopes: one of each, two of an update."""
    before, after, operations = (found.rows.field(i) for i in range(3))
    codes = np.asarray(pc.fill_null(pc.index_in(operations, pa.array(_OPERATIONS)), -1))
    has = {"before": np.asarray(before.is_valid()), "after": np.asarray(after.is_valid())}
    update, delete = codes == _UPDATE_OP, codes == _DELETE_OP
    wrong = (codes < 0) | ((update | delete) & ~has["before"]) | (~delete & ~has["after"])
    of = np.arange(len(codes)) if found.messages is None else np.asarray(found.messages)
    bad = tuple(
        BadRecord(int(of[i]), _reason(int(codes[i]), operations[int(i)].as_py(), bool(has["before"][i])))
        for i in np.flatnonzero(wrong)
    )
    counts = np.where(wrong, 0, 1 + update)
    places = np.repeat(np.arange(len(codes)), counts)
    ends = np.cumsum(counts)
    last = np.zeros(len(places), dtype=bool)
    last[ends[~wrong] - 1] = True
    kinds = np.where(last, _KIND[codes[places]], np.int8(_BEFORE)).astype(np.int8)
    images = (kinds == _BEFORE) | (kinds == _DELETE)
    rows = pa.concat_arrays([before, after]).take(pa.array(np.where(images, places, places + len(codes))))
    failed = tuple(sorted((*found.bad, *bad), key=lambda one: one.index))
    return Decoded(_whole(rows), pa.array(of[places], pa.int64()), failed, pa.array(kinds))


def _whole(rows: pa.StructArray) -> pa.StructArray:
    """Rows none of which is null, without a validity that would say so."""
    fields = [rows.type.field(i) for i in range(rows.type.num_fields)]
    return pa.StructArray.from_arrays([rows.field(i) for i in range(len(fields))], fields=fields)


def _reason(code: int, operation: str | None, has_before: bool) -> str:
    if code < 0:
        told = "has no 'op'" if operation is None else f"has the 'op' {operation!r}"
        return f"the envelope {told}, which is none of c (create), r (read), u (update) and d (delete)"
    if code in _NAMES and not has_before:
        return (
            f"'before' is null in {_NAMES[code]}; where Debezium reads PostgreSQL, set the REPLICA IDENTITY of its "
            "table to FULL"
        )
    return f"'after' is null in an envelope with the 'op' {operation!r}"


def closed(row: t.Row, rows: pa.StructArray, kinds: pa.Array | None) -> pa.StructArray:
    """The envelopes of rows, one of each: a row that is new as a create, one that is gone as a delete.

    An update is two messages, the row before it as a delete and the row after it as a create, as in the reference.
    """
    places: npt.NDArray[Any] = np.zeros(len(rows), np.int8) if kinds is None else np.asarray(kinds)
    gone = (places == _BEFORE) | (places == _DELETE)
    fields = [arrow_field(f.name, f.type) for f in envelope(row).fields]
    children = [rows.field(i) for i in range(rows.type.num_fields)]
    operations = pa.array(["c", "d"]).take(pa.array(gone.astype(np.int8)))
    images = [
        pa.StructArray.from_arrays(
            children, fields=[fields[0].type.field(i) for i in range(len(children))], mask=pa.array(mask)
        )
        for mask in (~gone, gone)
    ]
    return pa.StructArray.from_arrays([*images, operations], fields=fields)
