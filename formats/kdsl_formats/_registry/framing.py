"""Confluent's frame: a zero byte, the schema id in four bytes (big-endian), then the body."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import BadRecord, Decoded
from kdsl.shown_values import show_value
from kdsl_formats._text.looks import JSON_INSTEAD, looks_like_json

Ids = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]

HEADER = 5
NO_ID = -1
_SHIFTS = np.array([24, 16, 8, 0], dtype=np.int64)


def split_frames(messages: pa.BinaryArray) -> tuple[Ids, pa.BinaryArray, tuple[BadRecord, ...]]:
    """Split messages into frames and bodies.

    Args:
        messages: The messages; null is a null message.

    Returns:
        The schema id of each message (`NO_ID` for a null message and for one without a frame), the bodies (null in
        these cases), and the messages without a frame as bad records.
    """
    count = len(messages)
    lengths = np.asarray(pc.fill_null(pc.binary_length(messages), NO_ID))
    framed = lengths >= HEADER
    ids = np.full(count, NO_ID, dtype=np.int64)
    _, buffer, data = messages.buffers()
    if not count or not framed.any():
        offsets = np.zeros(count + 1, dtype=np.int32)
        headers = np.zeros((0, HEADER), dtype=np.uint8)
    else:
        offsets = np.frombuffer(buffer, np.int32)[messages.offset : messages.offset + count + 1]
        starts = offsets[:-1][framed].astype(np.int64)
        headers = np.frombuffer(data, np.uint8)[starts[:, None] + np.arange(HEADER)]
        ids[framed] = (headers[:, 1:].astype(np.int64) << _SHIFTS).sum(axis=1)
    magic = np.zeros(count, dtype=np.int64)
    magic[framed] = headers[:, 0]
    ids[magic != 0] = NO_ID
    wrong = np.flatnonzero((ids == NO_ID) & (lengths >= 0))
    bad = tuple(BadRecord(int(i), _reason(messages[int(i)].as_py(), int(magic[i]))) for i in wrong)
    return ids, _bodies(offsets, data, ids), bad


def _bodies(offsets: npt.NDArray[np.int32], data: pa.Buffer | None, ids: Ids) -> pa.BinaryArray:
    """Copy the bytes after the frames; null for messages without an id. The offsets are those of messages in `data`."""
    count = len(ids)
    cuts = np.repeat(offsets, 2)[: 2 * count + 1]  # two spans per message: its frame and its body
    cuts[1::2] = np.minimum(cuts[1::2] + HEADER, offsets[1:])
    buffers = [None, pa.py_buffer(cuts), data or pa.py_buffer(b"")]
    halves = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    return halves.take(pa.array(np.arange(1, 2 * count, 2), mask=ids == NO_ID))


def _reason(message: bytes, magic: int) -> str:
    """Why a message has no valid frame."""
    length, instead = len(message), JSON_INSTEAD if looks_like_json(message) else ""
    frame = "the frame of a schema registry (a zero byte and a schema id of four bytes)"
    if length < HEADER:
        return f"the message has {length} byte{'' if length == 1 else 's'}, which is less than {frame}{instead}"
    return f"the message begins with the byte {show_value(magic)}, not with {frame}{instead}"


def add_frames(id: int, bodies: pa.BinaryArray) -> pa.BinaryArray:  # noqa: A002  # its name in the registry
    """Add the frame of a schema to bodies; a null body becomes a null message."""
    header = pa.scalar(b"\0" + id.to_bytes(4, "big"), pa.binary())
    return pc.binary_join_element_wise(header, bodies, pa.scalar(b"", pa.binary()))


def group_by_id(ids: Ids) -> Iterator[tuple[int, Indices | None]]:
    """Yield each id with the ascending indices of its messages, None for all messages; `NO_ID` is left out."""
    if len(ids) and (ids == ids[0]).all():
        if ids[0] != NO_ID:
            yield int(ids[0]), None
        return
    for schema_id in np.unique(ids):
        if schema_id != NO_ID:
            yield int(schema_id), np.flatnonzero(ids == schema_id)


def merge_groups(
    parts: Sequence[tuple[Indices | None, Decoded]], bad: Sequence[BadRecord], count: int, kind: pa.DataType
) -> Decoded:
    """Merge the rows of groups of messages in the order of the messages, with bad records and infinite counts.

    Other parts of the results, such as row kinds, are left out, unless a single group has all messages and nothing is
    in `bad`: its result is returned as it is.

    Args:
        parts: For each group, the indices of its messages (None for all), and its result.
        bad: The messages that were in no group and failed.
        count: The number of messages.
        kind: The type of the rows.
    """
    if len(parts) == 1 and parts[0][0] is None and not bad:
        return parts[0][1]
    failed = list(bad)
    rows: list[pa.Array] = []
    owners: list[npt.NDArray[Any]] = []
    for indexes, decoded in parts:
        message_indexes = np.arange(count) if indexes is None else indexes
        failed += [attrs.evolve(record, index=int(message_indexes[record.index])) for record in decoded.bad]
        rows.append(decoded.rows)
        owners.append(message_indexes if decoded.messages is None else message_indexes[np.asarray(decoded.messages)])
    failed.sort(key=lambda record: record.index)
    if not rows:
        return Decoded(pa.array([], kind), pa.array([], pa.int64()), tuple(failed))
    infinite = sum(decoded.infinite for _, decoded in parts)
    owner = np.concatenate(owners)
    whole = pa.concat_arrays(rows)
    if len(rows) > 1:
        order = np.argsort(owner, kind="stable")
        whole, owner = whole.take(pa.array(order)), owner[order]
    return Decoded(whole, pa.array(owner, pa.int64()), tuple(failed), infinite=infinite)


def with_schema_ids(decoded: Decoded, ids: Ids, wanted: Iterable[str]) -> Decoded:
    """Replace the metadata by the schema id of each row's message, under each wanted key; unchanged without keys."""
    keys = tuple(wanted)
    if not keys:
        return decoded
    of = ids if decoded.messages is None else ids[np.asarray(decoded.messages)]
    return attrs.evolve(decoded, metadata={key: pa.array(of.astype(np.int32)) for key in keys})
