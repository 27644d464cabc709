"""Passing over values in many bodies at once.

So for values that nobody wants, and for the elements of arrays and maps, whose places must be known before they can be
read together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kdsl_formats._avro.cursor import Cursor
from kdsl_formats._avro.model import Type
from kdsl_formats._columns.arrays import Longs, ranges

Passing = Callable[[Cursor], None]
"""Moves a cursor behind a value."""
Walking = Callable[[Cursor], tuple[Longs, Longs]]
"""Moves a cursor behind arrays or maps; gives the number of elements of each, and the places of all elements."""

FEW, LONG = 8, 64
"""When fewer arrays than the first number go on for longer than the second, the reference reads them sooner."""
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def passing(kind: Type) -> Passing | None:
    """What passes over a value of a type; None where the type may hold itself."""
    return _passing(kind, (), whole=True)


def item_places(items: Type) -> Walking | None:
    """What finds the items of arrays; None where they may hold themselves."""
    return _walking(items, (), keyed=False)


def entry_places(values: Type) -> Walking | None:
    """What finds the entries of maps; None where their values may hold themselves."""
    return _walking(values, (), keyed=True)


def _size(kind: Type) -> int | None:
    """The bytes of each value of a type, where they are always as many."""
    return kind.size if kind.kind == "fixed" else _SIZES.get(kind.kind)


def _passing(kind: Type, around: tuple[Type, ...], *, whole: bool) -> Passing | None:
    """As `passing`.

    Args:
        kind: The type.
        around: The records that it is in.
        whole: Whether a block of an array or map that tells its size is passed over by it.
    """
    size = _size(kind)
    if size is not None:
        return lambda cursor: cursor.forward(size)
    match kind.kind:
        case "int" | "enum":
            return lambda cursor: _done(cursor.ints())
        case "long":
            return lambda cursor: _done(cursor.longs())
        case "string" | "bytes":
            return lambda cursor: _done(cursor.spans())
        case "record":
            return _record(kind, around, whole=whole)
        case "union":
            return _union(kind, around, whole=whole)
    keyed = kind.kind == "map"
    walk = _walking(kind.items, around, keyed=keyed, whole=whole)
    return None if walk is None else lambda cursor: _done(walk(cursor))


def _done(_found: object) -> None:
    return None


def _record(kind: Type, around: tuple[Type, ...], *, whole: bool) -> Passing | None:
    if kind in around:
        return None
    found = [_passing(f.type, (*around, kind), whole=whole) for f in kind.fields]
    steps = [step for step in found if step is not None]
    if len(steps) < len(found):
        return None

    def go(cursor: Cursor) -> None:
        for step in steps:
            step(cursor)

    return go


def _union(kind: Type, around: tuple[Type, ...], *, whole: bool) -> Passing | None:
    found = [_passing(branch, around, whole=whole) for branch in kind.branches]
    steps = [step for step in found if step is not None]
    if len(steps) < len(found):
        return None
    some = [(2 * i, step) for i, step in enumerate(steps) if kind.branches[i].kind != "null"]

    def go(cursor: Cursor) -> None:
        codes = cursor.branch(len(steps))
        for code, step in some:
            which = np.flatnonzero(codes == code)
            if len(which) == len(codes):
                step(cursor)
            elif which.size:
                part = cursor.pick(which)
                step(part)
                cursor.at[which] = part.at

    return go


def _walking(inner: Type, around: tuple[Type, ...], *, keyed: bool, whole: bool = False) -> Walking | None:
    step = _passing(inner, around, whole=whole)
    if step is None:
        return None
    size = None if keyed else _size(inner)

    def go(cursor: Cursor) -> tuple[Longs, Longs]:
        counts = _counts(cursor, whole=whole)
        if size is not None:
            if not size:  # elements of no bytes: nothing bounds their number
                cursor.doubt(counts > 0)
                counts[:] = 0
            places = np.repeat(cursor.at, counts) + size * ranges(np.zeros_like(counts), counts)
            np.minimum(places, cursor.bodies.total + 1, out=places)
            cursor.forward(counts * size)
        else:
            places = _rounds(cursor, counts, step, keyed=keyed)
        _close(cursor, counts)
        return counts, places

    return go


def _counts(cursor: Cursor, *, whole: bool) -> Longs:
    """The number of elements in the first block of each; what is empty has no other block."""
    counts = cursor.longs()
    told = np.flatnonzero(counts < 0)
    if told.size:
        part = cursor.pick(told)
        size = part.longs()
        counts[told] = -counts[told]
        if whole:
            wrong = (size < 0) | (size > part.room())
            part.doubt(wrong)
            part.forward(np.where(wrong, 0, size))
            part.doubt(part.bytes() != 0)
            counts[told] = 0
        cursor.at[told] = part.at
    wrong = (counts < 0) | (counts > cursor.room())
    if wrong.any():
        cursor.doubt(wrong)
        counts[wrong] = 0
    return counts


def _rounds(cursor: Cursor, counts: Longs, step: Passing, *, keyed: bool) -> Longs:
    """The places of all elements, found one after the other in each array."""
    places = np.full(int(counts.sum()), cursor.bodies.total + 1)  # where there are zeros only, until they are known
    first = np.cumsum(counts) - counts
    active = np.flatnonzero(counts)
    done = 0
    while active.size:
        part = cursor.pick(active)
        if active.size < FEW and counts[active].max() - done > LONG:
            part.doubt_all()
            break
        places[first[active] + done] = part.at
        if keyed:
            part.spans()
        step(part)
        cursor.at[active] = part.at
        done += 1
        active = active[counts[active] > done]
    return places


def _close(cursor: Cursor, counts: Longs) -> None:
    """Move behind the empty block that ends arrays which are not empty; another block is in doubt."""
    some = np.flatnonzero(counts)
    if some.size:
        part = cursor.pick(some)
        part.doubt(part.bytes() != 0)
        cursor.at[some] = part.at
