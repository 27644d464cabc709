"""The members that a row wants, found in many objects at once: by repeated shapes first, then by plain splitting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl_formats._columns.arrays import Mask, Positions, slices
from kdsl_formats.json.buffer import MessageBuffer, Spans
from kdsl_formats.json.members import BARE, TEXT, split_objects
from kdsl_formats.json.shapes import Shape, learn_shape, match_shape
from kdsl_formats.json.validity import are_json

ABSENT = 0
_REMEMBERED = 16  # shapes
_ATTEMPTS = 8  # to learn a new shape, in one batch
_RARE = 64  # where fewer than one object in 64 is left, the reference decoder reads them
_SMALL = 16  # times as many, at most, are copied out of the buffer before they are split
_WORTHWHILE = 16  # a new shape must fit one object in 16, or no more are learned from this batch


@attrs.frozen(eq=False)
class ValueSpans:
    """The values of one column, found in the buffer.

    Attributes:
        spans: Where each is, without the quotes of a string; an absent one is an empty span.
        what: `ABSENT`, `TEXT` or `BARE` for each.
        first: For each that is not a string the index of the first quote after its start; None where that is unknown.
    """

    spans: Spans
    what: npt.NDArray[np.int8]
    first: Positions | None = None

    def pick(self, which: Positions | Mask) -> ValueSpans:
        """Some of the values."""
        return ValueSpans(self.spans.pick(which), self.what[which], None if self.first is None else self.first[which])

    def spread(self, places: Positions, count: int) -> ValueSpans:
        """The values at some places among as many as the count says; absent ones at the others."""
        start, end = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        what = np.zeros(count, dtype=np.int8)
        start[places], end[places], what[places] = self.spans.start, self.spans.end, self.what
        return ValueSpans(Spans(start, end), what)


@attrs.frozen(eq=False)
class FoundMembers:
    """What was found in many objects.

    Attributes:
        which: The objects that are understood, ascending.
        columns: For each column the values in those objects.
        fallback: The objects that are not understood.
    """

    which: Positions
    columns: list[ValueSpans]
    fallback: Positions


@attrs.frozen
class ShapeLayout:
    """A shape as a row sees it: the members that are columns, and the others.

    `inner` finds the shapes of the other members that are objects, to check that they are JSON.
    """

    shape: Shape
    columns: dict[int, int]
    others: tuple[int, ...]
    inner: dict[int, ObjectFinder]


class ObjectFinder:
    """Finds the members of a row.

    Args:
        names: The members' names, in the order of the columns.
        all_needed: Whether an object that lacks one of them needs the fallback.
        min_batch: Fewer objects than this are not searched together; they need the fallback.
        levels: How many levels of objects that no column reads are checked by their shapes.

    Attributes:
        others: Where they are to be counted: how many objects have each member that no column wants. The shapes know
            them, so that it costs nothing; objects that need the fallback are not among them.
    """

    def __init__(self, names: Sequence[str], *, all_needed: bool, min_batch: int, levels: int = 2) -> None:
        self.names = tuple(name.encode() for name in names)
        self.all_needed = all_needed
        self.min_batch = min_batch
        self.levels = levels
        self.others: Counter[bytes] | None = None
        self._layouts: list[ShapeLayout] = []

    def find(self, buffer: MessageBuffer, objects: Spans, first: Positions | None = None) -> FoundMembers:
        """Where each column's value is in each object.

        Args:
            buffer: The buffer.
            objects: The objects, in ascending order.
            first: For each the index of its first quote, where it is known.
        """
        search = _Search(buffer, objects, first)
        if self._find_by_shapes(search):
            self._split_objects(search)
        return search.collect(len(self.names))

    def are_json(self, buffer: MessageBuffer, objects: Spans, first: Positions, needed: Mask) -> Mask:
        """Which values that begin like objects are JSON, by their shapes if these repeat; those not needed count."""
        indexes = np.flatnonzero(needed)
        everything = len(indexes) == len(needed)
        search = _Search(
            buffer, objects if everything else objects.pick(indexes), first if everything else first[indexes]
        )
        if len(indexes) >= self.min_batch:
            self._find_by_shapes(search)
        if not len(search.left):
            return np.ones(len(needed), dtype=bool)
        left = np.zeros(len(needed), dtype=bool)
        left[indexes[search.left]] = True
        return are_json(buffer, objects, BARE, left)

    def _find_by_shapes(self, search: _Search) -> bool:
        """Find objects by shapes; returns whether enough are left that splitting them is worthwhile."""
        buffer, objects = search.buffer, search.objects
        enough = max(self.min_batch, len(objects) // _RARE)
        for layout in tuple(self._layouts):
            self._try_shape(layout, search)
        attempts = 0
        while len(search.left) >= enough and attempts < _ATTEMPTS:
            before = len(search.left)
            sample = int(search.left[attempts * before // _ATTEMPTS])
            learned = self._learn_layout(buffer.data[objects.start[sample] : objects.end[sample]].tobytes())
            attempts += 1
            if learned is not None and self._try_shape(learned, search) * _WORTHWHILE < before:
                break
        return len(search.left) >= enough

    def _learn_layout(self, message: bytes) -> ShapeLayout | None:
        """The shape of one object, unless it is known already or useless."""
        shape = learn_shape(message)
        if shape is None or any(known.shape == shape for known in self._layouts):
            return None
        columns = {i: self.names.index(m.key) for i, m in enumerate(shape.members) if m.key in self.names}
        has_repeats = len(set(columns.values())) < len(columns)
        if has_repeats or (self.all_needed and len(columns) < len(self.names)):
            return None
        others = tuple(i for i in range(len(shape.members)) if i not in columns)
        objects = (
            [i for i in others if shape.members[i].what == BARE and shape.members[i].quotes] if self.levels else []
        )
        inner = {
            i: ObjectFinder((), all_needed=False, min_batch=self.min_batch, levels=self.levels - 1) for i in objects
        }
        return ShapeLayout(shape, columns, others, inner)

    def _try_shape(self, layout: ShapeLayout, search: _Search) -> int:
        """Match a shape with the objects that are left; returns how many have it, and remembers it if any has."""
        same = search.have_quotes(layout.shape.quotes)
        if np.count_nonzero(same) < self.min_batch:
            return 0
        some = search.left[same]
        everything = len(some) == len(search.objects)
        objects, first = (
            (search.objects, search.first) if everything else (search.objects.pick(some), search.first[some])
        )
        fits, values, inner = match_shape(search.buffer, objects, first, layout.shape)
        indexes = np.flatnonzero(same)
        if not fits.all():  # what does not fit has values anywhere, even after the buffer
            values, inner = [v.pick(fits) for v in values], [f[fits] for f in inner]
            indexes, fits = indexes[fits], fits[fits]
        for other in layout.others:
            judge = layout.inner.get(other)
            if judge is not None:
                fits &= judge.are_json(search.buffer, values[other], inner[other], fits)
            else:
                fits &= are_json(search.buffer, values[other], layout.shape.members[other].what, fits)
        match_count = int(np.count_nonzero(fits))
        if match_count:
            columns = [_absent_values(match_count)] * len(self.names)
            for member, column in layout.columns.items():
                known = layout.shape.members[member]
                quotes = inner[member] if known.what == BARE else None
                spans_of_values = ValueSpans(values[member], np.full(len(fits), known.what, dtype=np.int8), quotes)
                columns[column] = spans_of_values if match_count == len(fits) else spans_of_values.pick(fits)
            search.add(indexes[fits], columns)
            if self.others is not None:
                self.others.update({layout.shape.members[other].key: match_count for other in layout.others})
            self._layouts = [layout, *(known for known in self._layouts if known is not layout)][:_REMEMBERED]
        return match_count

    def _split_objects(self, search: _Search) -> None:
        """Split the objects that are left into their members."""
        objects = search.objects.pick(search.left)
        count = len(objects)
        small = count * _RARE < len(search.objects) * _SMALL
        buffer = search.buffer.copy(objects) if small else search.buffer
        parts = split_objects(buffer, buffer.messages if small else objects)
        assert parts.keys is not None
        sound = parts.sound
        sound[parts.owner[buffer.find_escaped(parts.keys)]] = False
        size = parts.keys.end - parts.keys.start
        known = np.zeros(len(size), dtype=bool)
        member_indexes = []
        for name in self.names:
            indexes = np.flatnonzero(size == len(name))
            indexes = indexes[buffer.starts_with(parts.keys.start[indexes], name)]
            known[indexes] = True
            times = np.bincount(parts.owner[indexes], minlength=count)
            sound &= times == 1 if self.all_needed else times <= 1
            member_indexes.append(indexes)
        others = np.flatnonzero(~known)
        for what in (TEXT, BARE):
            some = others[parts.what[others] == what]
            good = are_json(buffer, parts.values.pick(some), what, sound[parts.owner[some]])
            sound[parts.owner[some[~good]]] = False
        if self.others is not None:
            some = others[sound[parts.owner[others]]]
            keys = slices(buffer.data, parts.keys.start[some], parts.keys.end[some], None, pa.binary())
            self.others.update({one["values"].as_py(): one["counts"].as_py() for one in keys.value_counts()})
        shift = objects.start - buffer.messages.start if small else np.zeros(count, dtype=np.int64)
        columns = []
        for indexes in member_indexes:
            owner = parts.owner[indexes]
            values = ValueSpans(Spans(objects.start.copy(), objects.start.copy()), np.zeros(count, dtype=np.int8))
            values.spans.start[owner] = parts.values.start[indexes] + shift[owner]
            values.spans.end[owner] = parts.values.end[indexes] + shift[owner]
            values.what[owner] = parts.what[indexes]
            columns.append(ValueSpans(values.spans.pick(sound), values.what[sound]))
        search.add(np.flatnonzero(sound), columns)


class _Search:
    """What is found so far in a batch of objects.

    Attributes:
        left: The objects that are not understood yet.
        first: For each object the index of its first quote.
    """

    def __init__(self, buffer: MessageBuffer, objects: Spans, first: Positions | None) -> None:
        self.buffer = buffer
        self.objects = objects
        self.left: Positions = np.arange(len(objects))
        self.first = _find_first_quotes(buffer, objects) if first is None else first
        self._groups: list[tuple[Positions, list[ValueSpans]]] = []

    def have_quotes(self, count: int) -> Mask:
        """Which of the objects left hold as many quotes."""
        quotes, first, end = self.buffer.quotes, self.first, self.objects.end
        if len(self.left) < len(first):
            first, end = first[self.left], end[self.left]
        after = first + count
        if not len(quotes) or count < 1:
            return np.zeros(len(first), dtype=bool)
        enough = quotes[np.minimum(after, len(quotes)) - 1] < end
        too_many = (quotes[np.minimum(after, len(quotes) - 1)] < end) & (after < len(quotes))
        mask: Mask = enough & ~too_many & (after <= len(quotes))
        return mask

    def add(self, member_indexes: Positions, columns: list[ValueSpans]) -> None:
        """Keep the values of those objects that are at some positions among those left."""
        self._groups.append((self.left[member_indexes], columns))
        left = np.ones(len(self.left), dtype=bool)
        left[member_indexes] = False
        self.left = self.left[left]

    def collect(self, columns: int) -> FoundMembers:
        """All that was found, in the order of the objects."""
        if len(self._groups) == 1:
            which, values = self._groups[0]
            return FoundMembers(which, values, self.left)
        groups = [(self.left[:0], [_absent_values(0)] * columns), *self._groups]
        which = np.concatenate([w for w, _ in groups])
        order = np.argsort(which)
        joined = []
        for column in range(columns):
            parts = [values[column] for _, values in groups]
            start, end = (np.concatenate([getattr(p.spans, side) for p in parts])[order] for side in ("start", "end"))
            quotes = [p.first for p in parts if p.first is not None]
            first = np.concatenate(quotes)[order] if len(quotes) == len(parts) else None
            joined.append(ValueSpans(Spans(start, end), np.concatenate([p.what for p in parts])[order], first))
        return FoundMembers(which[order], joined, self.left)


def _absent_values(count: int) -> ValueSpans:
    """A column of absent values."""
    nowhere = np.zeros(count, dtype=np.int64)
    return ValueSpans(Spans(nowhere, nowhere), np.zeros(count, dtype=np.int8), nowhere)


def _find_first_quotes(buffer: MessageBuffer, objects: Spans) -> Positions:
    """For each object the index of its first quote, or of the one after it."""
    count, total = len(objects), len(buffer.quotes)
    if count and total and total % count == 0:  # every object may hold as many: look instead of searching
        first = np.arange(0, total, total // count)
        indexes = buffer.quotes[first]
        if bool(((indexes >= objects.start) & (indexes < objects.end)).all()):
            before = buffer.quotes[first[1:] - 1]
            if bool((before < objects.start[1:]).all()):
                return first
    return np.searchsorted(buffer.quotes, objects.start)
