"""The values of a field that `walk` found in pieces, one behind the other: repeated ones, and packed numbers."""

from __future__ import annotations

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from kdsl_formats._columns.arrays import Longs, Mask, Words, ranges
from kdsl_formats.protobuf.walk import Found
from kdsl_formats.protobuf.wire import FIXED32, FIXED64, GROUP, LENGTH, VARINT, Source

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


def blame(doubts: Mask, owner: Longs | None, wrong: Mask) -> None:
    """Messages in which something is wrong are in doubt; without owners there is one thing of each."""
    if owner is None:
        doubts |= wrong
    elif wrong.any():
        doubts[owner[wrong]] = True


def joined(found: list[Found]) -> tuple[Longs | None, Longs, Longs, Words | None]:
    """The values of a field that comes once."""
    none = np.zeros(0, dtype=np.int64)
    if not found:
        return None, none, none, None
    if len(found) == 1:
        return found[0].owner, found[0].start, found[0].end, found[0].numbers
    owner = np.concatenate([np.arange(len(f.start)) if f.owner is None else f.owner for f in found])
    start, end = (np.concatenate([getattr(f, name) for f in found]) for name in ("start", "end"))
    numbers = None if found[0].numbers is None else np.concatenate([_numbers(f) for f in found])
    return owner, start, end, numbers


def _numbers(found: Found) -> Words:
    assert found.numbers is not None
    return found.numbers


def elements(
    source: Source, found: list[Found], count: int, wire: int, doubts: Mask
) -> tuple[Longs, Longs, Longs, Words | None]:
    """The values of a repeated field, in the order of the messages and of their values."""
    none = np.zeros(0, dtype=np.int64)
    parts = []
    for one in found:
        owner = np.arange(count) if one.owner is None else one.owner
        if one.packed:
            owner, start, numbers = _unpacked(source, one, owner, wire, doubts)
            parts.append((owner, start, start, numbers))
        else:
            parts.append((owner, one.start, one.end, one.numbers))
    if not parts:
        return none, none, none, None
    owners, starts, ends = (np.concatenate([p[i] for p in parts]) for i in (0, 1, 2))
    numbers = None if wire != VARINT else np.concatenate([p[3] for p in parts if p[3] is not None])
    if len(parts) > 1:
        order = np.argsort(owners, kind="stable")
        owners, starts, ends = owners[order], starts[order], ends[order]
        numbers = None if numbers is None else numbers[order]
    return owners, starts, ends, numbers


def _unpacked(source: Source, found: Found, owner: Longs, wire: int, doubts: Mask) -> tuple[Longs, Longs, Words | None]:
    """The numbers in packed stretches: their messages, where they begin, and what varints say."""
    size = found.end - found.start
    if wire != VARINT:
        width = 8 if wire == FIXED64 else 4
        blame(doubts, owner, size % width != 0)
        counts = size // width
        within = ranges(np.zeros(len(counts), dtype=np.int64), counts)
        return np.repeat(owner, counts), np.repeat(found.start, counts) + within * width, None
    places = ranges(found.start, size).astype(np.int64)
    owners = np.repeat(owner, size)
    stops = source.data.take(places) < 0x80
    last = np.cumsum(size)
    held = size > 0
    cut = np.zeros(len(size), dtype=bool)
    cut[held] = ~stops[last[held] - 1]
    blame(doubts, owner, cut)
    stops[last[held] - 1] = True
    first = np.ones(len(places), dtype=bool)
    first[1:] = stops[:-1]
    numbers, _, bad = source.varints(places[first])
    if bad is not None:
        blame(doubts, owners[first], bad)
    return owners[first], places[first], numbers
