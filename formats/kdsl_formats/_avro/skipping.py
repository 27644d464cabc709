"""Skips values in many bodies at once.

This is needed for values that no column reads, and for the elements of arrays and maps, whose positions must be known
before they can be read together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kdsl_formats._avro.cursor import Cursor
from kdsl_formats._avro.model import Type
from kdsl_formats._columns.arrays import Integers, ranges

SkipValue = Callable[[Cursor], None]
"""Moves a cursor after a value."""
LocateElements = Callable[[Cursor], tuple[Integers, Integers]]
"""Moves a cursor after arrays or maps; returns the number of elements of each, and the positions of all elements."""

MIN_ARRAYS, MAX_ROUNDS = 8, 64
"""If fewer arrays than the first number have more items than the second, the fallback is faster."""
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def skipper_of(kind: Type) -> SkipValue | None:
    """The function that skips a value of a type; None if the type may contain itself."""
    return SkipperFactory(whole=True).skipper(kind)


def item_locator(items: Type) -> LocateElements | None:
    """The function that locates the items of arrays; None if they may contain themselves."""
    return SkipperFactory(whole=False).locator(items, keyed=False)


def entry_locator(values: Type) -> LocateElements | None:
    """The function that locates the entries of maps; None if their values may contain themselves."""
    return SkipperFactory(whole=False).locator(values, keyed=True)


def _size_of_type(kind: Type) -> int | None:
    """The size of each value of a type in bytes; None if it varies."""
    return kind.size if kind.kind == "fixed" else _SIZES.get(kind.kind)


def _discard(_value: object) -> None:
    """Ignore a value."""
    return


class SkipperFactory:
    """Builds functions that skip values, one for each type, however often a schema uses it.

    Such a function moves a cursor after the values, and marks bodies that it cannot read for the fallback.

    Args:
        whole: Whether a block of an array or map that begins with its size is skipped as a whole.

    Attributes:
        skippers: The skipping function of each type; None for a type that may contain itself, and while its function is
            being built.
    """

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self.skippers: dict[Type, SkipValue | None] = {}

    def skipper(self, kind: Type) -> SkipValue | None:
        """Return the function that skips a value of a type; None if it may contain itself.

        It is built once for each type, like those of the types inside it, and stored in `skippers`.
        """
        if kind not in self.skippers:
            self.skippers[kind] = None
            self.skippers[kind] = self._build_skipper(kind)
        return self.skippers[kind]

    def _build_skipper(self, kind: Type) -> SkipValue | None:
        """Build the function that skips values of a type; None if the type may contain itself.

        The functions of the types inside it are stored in `skippers`.
        """
        size = _size_of_type(kind)
        if size is not None:
            return lambda cursor: cursor.advance(size)
        match kind.kind:
            case "int" | "enum":
                return lambda cursor: _discard(cursor.take_ints())
            case "long":
                return lambda cursor: _discard(cursor.take_longs())
            case "string" | "bytes":
                return lambda cursor: _discard(cursor.take_spans())
            case "record":
                return self._record_skipper(kind)
            case "union":
                return self._union_skipper(kind)
        walk = self.locator(kind.items, keyed=kind.kind == "map")
        return None if walk is None else lambda cursor: _discard(walk(cursor))

    def _skippers(self, kinds: Sequence[Type]) -> list[SkipValue] | None:
        """The functions that skip values of some types (see `skipper`); None if one of the types may contain itself."""
        skippers = [self.skipper(kind) for kind in kinds]
        steps = [step for step in skippers if step is not None]
        return steps if len(steps) == len(skippers) else None

    def _record_skipper(self, kind: Type) -> SkipValue | None:
        """The function that skips a record by those of its fields (`skipper`); None if one may contain itself."""
        steps = self._skippers([field.type for field in kind.fields])
        if steps is None:
            return None

        def skip(cursor: Cursor) -> None:
            for step in steps:
                step(cursor)

        return skip

    def _union_skipper(self, kind: Type) -> SkipValue | None:
        """The function that skips a union by those of its branches (`skipper`); None if one may contain itself."""
        steps = self._skippers(kind.branches)
        if steps is None:
            return None
        some = [(2 * i, step) for i, step in enumerate(steps) if kind.branches[i].kind != "null"]

        def skip(cursor: Cursor) -> None:
            codes = cursor.take_branch_codes(len(steps))
            for code, step in some:
                which = np.flatnonzero(codes == code)
                if len(which) == len(codes):
                    step(cursor)
                elif which.size:
                    part = cursor.pick(which)
                    step(part)
                    cursor.at[which] = part.at

        return skip

    def locator(self, inner: Type, *, keyed: bool) -> LocateElements | None:
        """The function that locates the elements of arrays, or of maps if `keyed`; None for recursive types.

        It moves a cursor after the arrays, and returns the number of elements of each and the position of each element.
        The function that skips elements comes from `skipper`. Bodies that it cannot read, such as those with several
        blocks, many elements, or elements without bytes, are marked for the fallback.
        """
        step = self.skipper(inner)
        if step is None:
            return None
        size = None if keyed else _size_of_type(inner)

        def locate(cursor: Cursor) -> tuple[Integers, Integers]:
            counts = _read_counts(cursor, whole=self._whole)
            if size is not None:
                if not size:  # elements without bytes: nothing limits their number
                    cursor.mark_fallback(counts > 0)
                    counts[:] = 0
                positions = np.repeat(cursor.at, counts) + size * ranges(np.zeros_like(counts), counts)
                np.minimum(positions, cursor.bodies.total + 1, out=positions)
                cursor.advance(counts * size)
            else:
                positions = _locate_one_by_one(cursor, counts, step, keyed=keyed)
            _skip_end_marker(cursor, counts)
            return counts, positions

        return locate


def _read_counts(cursor: Cursor, *, whole: bool) -> Integers:
    """Read the number of elements in the first block of each array or map, and move the cursor after it.

    An empty one has no other block. With `whole`, a block that begins with its size is skipped and counts as empty.
    Bodies with more elements than remaining bytes, with a skipped block that does not end inside the body, or with
    another block after a skipped one, are marked for the fallback and count as empty.
    """
    counts = cursor.take_longs()
    sized = np.flatnonzero(counts < 0)
    if sized.size:
        part = cursor.pick(sized)
        size = part.take_longs()
        counts[sized] = -counts[sized]
        if whole:
            wrong = (size < 0) | (size > part.remaining())
            part.mark_fallback(wrong)
            part.advance(np.where(wrong, 0, size))
            part.mark_fallback(part.take_bytes() != 0)
            counts[sized] = 0
        cursor.at[sized] = part.at
    wrong = (counts < 0) | (counts > cursor.remaining())
    if wrong.any():
        cursor.mark_fallback(wrong)
        counts[wrong] = 0
    return counts


def _locate_one_by_one(cursor: Cursor, counts: Integers, step: SkipValue, *, keyed: bool) -> Integers:
    """Return the positions of all elements, array by array, and move the cursor after the elements.

    When fewer than `MIN_ARRAYS` arrays are left and one has more than `MAX_ROUNDS` further elements, their bodies are
    marked for the fallback, and the positions that are left are in the padding.
    """
    # Unknown positions are in the padding, which has only zeros.
    positions = np.full(int(counts.sum()), cursor.bodies.total + 1)
    first = np.cumsum(counts) - counts
    active = np.flatnonzero(counts)
    done = 0
    while active.size:
        part = cursor.pick(active)
        if active.size < MIN_ARRAYS and counts[active].max() - done > MAX_ROUNDS:
            part.mark_all_fallback()
            break
        positions[first[active] + done] = part.at
        if keyed:
            part.take_spans()
        step(part)
        cursor.at[active] = part.at
        done += 1
        active = active[counts[active] > done]
    return positions


def _skip_end_marker(cursor: Cursor, counts: Integers) -> None:
    """Move after the empty block that ends arrays with elements.

    Bodies with another block are marked for the fallback.
    """
    some = np.flatnonzero(counts)
    if some.size:
        part = cursor.pick(some)
        part.mark_fallback(part.take_bytes() != 0)
        cursor.at[some] = part.at
