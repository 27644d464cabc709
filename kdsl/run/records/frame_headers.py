"""The headers that name the schemas of keys and values: read before they are decoded, and added to written records."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import BadRecord, Side
from kdsl.plan.model import Part


def find_last_header(headers: pa.Array, name: str) -> pa.BinaryArray | None:
    """Find the last header with a name in each record, as Java's ``Headers.lastHeader``.

    Args:
        headers: The header lists of a raw batch (`kdsl.run.records.metadata.HEADERS`).
        name: The name.

    Returns:
        Its values; null for a record without it, and for a null value. None if no record has it.
    """
    entries = headers.flatten()
    if not len(entries):
        return None
    hits = np.flatnonzero(pc.fill_null(pc.equal(entries.field("key"), name), False))
    if not len(hits):
        return None
    sizes = pc.fill_null(headers.value_lengths(), 0).to_numpy(zero_copy_only=False)
    last = np.full(len(headers), -1, dtype=np.int64)
    last[np.repeat(np.arange(len(headers)), sizes)[hits]] = hits  # of several, the last one is assigned last
    return entries.field("value").take(pa.array(last, mask=last < 0))


def join_frame_headers(raw: pa.RecordBatch, side: Side, part: Part) -> tuple[pa.Array, tuple[BadRecord, ...]]:
    """Return the keys or values of records as their decoder takes them, joined with the frames in headers.

    Args:
        raw: The records; without the field ``headers`` their messages stay as they are.
        side: Which of them.
        part: The plan of that side.

    Returns:
        The messages; and those whose header cannot be read, which are null.
    """
    messages, name = raw.column(side), part.format.frame_headers.get(side)
    if name is None or "headers" not in raw.schema.names:
        return messages, ()
    frames = find_last_header(raw.column("headers"), name)
    return (messages, ()) if frames is None else part.format.join_frames(side, messages, frames)


@attrs.frozen(eq=False)
class FrameHeader:
    """A header that some of the written records get.

    Attributes:
        name: Its name.
        value: Its value.
        records: Which records get it.
    """

    name: str
    value: bytes
    records: pa.BooleanArray


def add_frame_headers(
    headers: pa.Array, added: Sequence[FrameHeader], replaced: Collection[str], kind: pa.DataType
) -> pa.Array:
    """Add headers to those of records, after their own, and leave out own headers with some names.

    A copied record would otherwise keep the header of its source, which says how that was written.

    Args:
        headers: The headers of each record, a list of structs of key and value; a null list has none.
        added: What is added, in this order.
        replaced: The names of own headers that are left out.
        kind: The type of the result.
    """
    entries = headers.flatten()
    names, values = entries.field(0), entries.field(1)
    keeps = ~np.asarray(pc.fill_null(pc.is_in(names, pa.array(list(replaced), pa.string())), False), dtype=bool)
    if not added and keeps.all():
        return headers
    sizes = pc.fill_null(headers.value_lengths(), 0).to_numpy(zero_copy_only=False)
    record_of = [np.repeat(np.arange(len(headers)), sizes)[keeps]]
    all_names, all_values = [names.filter(pa.array(keeps))], [values.filter(pa.array(keeps))]
    for one in added:
        rows = np.flatnonzero(one.records)
        record_of.append(rows)
        all_names.append(pa.repeat(pa.scalar(one.name, pa.string()), len(rows)))
        all_values.append(pa.repeat(pa.scalar(one.value, pa.binary()), len(rows)))
    owners = np.concatenate(record_of)
    order = pa.array(np.argsort(owners, kind="stable"))
    pairs = pa.StructArray.from_arrays(
        [pa.concat_arrays(all_names).take(order), pa.concat_arrays(all_values).take(order)],
        fields=list(kind.value_type),
    )
    ends = np.cumsum(np.bincount(owners, minlength=len(headers)))
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]).astype(np.int32)), pairs, type=kind)
