"""Joins the values of a field that `walk` located in parts, including repeated values and packed numbers."""

from __future__ import annotations

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from kdsl_formats._columns.arrays import Integers, Mask, Words, ranges
from kdsl_formats.protobuf.walk import FieldValues
from kdsl_formats.protobuf.wire import FIXED32, FIXED64, GROUP, LENGTH, VARINT, MessageBuffer

_F = FieldDescriptor
_WIRES = {
    **dict.fromkeys((_F.TYPE_DOUBLE, _F.TYPE_FIXED64, _F.TYPE_SFIXED64), FIXED64),
    **dict.fromkeys((_F.TYPE_FLOAT, _F.TYPE_FIXED32, _F.TYPE_SFIXED32), FIXED32),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE), LENGTH),
    _F.TYPE_GROUP: GROUP,
}


def wire_of(field: FieldDescriptor) -> int:
    """The wire type of one value of a field."""
    return _WIRES.get(field.type, VARINT)


def mark_fallback(fallback: Mask, owner: Integers | None, wrong: Mask) -> None:
    """Mark the messages of wrong elements for the fallback; without owners, each message has one element."""
    if owner is None:
        fallback |= wrong
    elif wrong.any():
        fallback[owner[wrong]] = True


def join_single_values(parts: list[FieldValues]) -> tuple[Integers | None, Integers, Integers, Words | None]:
    """Join the parts of a field that occurs once: return the messages of its values, their start, end and numbers.

    The messages are None if each message has one value, the numbers None if they are not varints. Without parts, start
    and end are empty, and both others None.
    """
    none = np.zeros(0, dtype=np.int64)
    if not parts:
        return None, none, none, None
    if len(parts) == 1:
        return parts[0].owner, parts[0].start, parts[0].end, parts[0].numbers
    owner = np.concatenate([np.arange(len(f.start)) if f.owner is None else f.owner for f in parts])
    start, end = (np.concatenate([getattr(f, name) for f in parts]) for name in ("start", "end"))
    numbers = None if parts[0].numbers is None else np.concatenate([_numbers_of(f) for f in parts])
    return owner, start, end, numbers


def _numbers_of(part: FieldValues) -> Words:
    """The numbers of varints, which the part must have."""
    assert part.numbers is not None
    return part.numbers


def join_repeated_values(
    buffer: MessageBuffer, parts_found: list[FieldValues], count: int, wire: int, fallback: Mask
) -> tuple[Integers, Integers, Integers, Words | None]:
    """Join the parts of a repeated field, ordered by message and position; packed numbers are unpacked.

    Return the message, start and end of each value, and the numbers of varints, otherwise None. Messages with invalid
    packed numbers are marked in ``fallback``.
    """
    none = np.zeros(0, dtype=np.int64)
    parts = []
    for part in parts_found:
        owner = np.arange(count) if part.owner is None else part.owner
        if part.packed:
            owner, start, numbers = _unpack(buffer, part, owner, wire, fallback)
            parts.append((owner, start, start, numbers))
        else:
            parts.append((owner, part.start, part.end, part.numbers))
    if not parts:
        return none, none, none, None
    owners, starts, ends = (np.concatenate([p[i] for p in parts]) for i in (0, 1, 2))
    numbers = None if wire != VARINT else np.concatenate([p[3] for p in parts if p[3] is not None])
    if len(parts) > 1:
        order = np.argsort(owners, kind="stable")
        owners, starts, ends = owners[order], starts[order], ends[order]
        numbers = None if numbers is None else numbers[order]
    return owners, starts, ends, numbers


def _unpack(
    buffer: MessageBuffer, packed: FieldValues, owner: Integers, wire: int, fallback: Mask
) -> tuple[Integers, Integers, Words | None]:
    """The numbers in packed spans: their messages, their positions, and the values of varints, otherwise None.

    Messages with incomplete or invalid numbers are marked in ``fallback``.
    """
    size = packed.end - packed.start
    if wire != VARINT:
        width = 8 if wire == FIXED64 else 4
        mark_fallback(fallback, owner, size % width != 0)
        counts = size // width
        within = ranges(np.zeros(len(counts), dtype=np.int64), counts)
        return np.repeat(owner, counts), np.repeat(packed.start, counts) + within * width, None
    positions = ranges(packed.start, size).astype(np.int64)
    owners = np.repeat(owner, size)
    stops = buffer.data.take(positions) < 0x80
    last = np.cumsum(size)
    non_empty = size > 0
    is_cut = np.zeros(len(size), dtype=bool)
    is_cut[non_empty] = ~stops[last[non_empty] - 1]
    mark_fallback(fallback, owner, is_cut)
    stops[last[non_empty] - 1] = True
    first = np.ones(len(positions), dtype=bool)
    first[1:] = stops[:-1]
    numbers, _, bad = buffer.varints(positions[first])
    if bad is not None:
        mark_fallback(fallback, owners[first], bad)
    return owners[first], positions[first], numbers
