"""The members that a row wants, found in many objects at once: by repeated shapes first, then by plain splitting."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from kdsl_formats._columns.arrays import Mask, Positions
from kdsl_formats.json.members import BARE, TEXT, members
from kdsl_formats.json.shapes import Shape, fitting, learn
from kdsl_formats.json.source import Source, Spans
from kdsl_formats.json.validity import are_json

ABSENT = 0
_REMEMBERED = 16  # shapes
_ATTEMPTS = 8  # to learn a new shape, in one batch
_RARE = 64  # objects of which fewer than one in so many are left go to the reference
_SMALL = 16  # times as many, at most, are copied out of the buffer before they are split
_WORTHWHILE = 16  # a new shape must fit one in so many objects, or no more are learned from this batch


@attrs.frozen(eq=False)
class Values:
    """The values of one column, found in the buffer.

    Attributes:
        spans: Where each is, without the quotes of a text; an absent one is an empty stretch.
        what: `ABSENT`, `TEXT` or `BARE` for each.
        first: For each that is no text the index of the first quote behind its beginning; None where that is not known.
    """

    spans: Spans
    what: npt.NDArray[np.int8]
    first: Positions | None = None

    def pick(self, which: Positions | Mask) -> Values:
        """Some of the values."""
        return Values(self.spans.pick(which), self.what[which], None if self.first is None else self.first[which])


@attrs.frozen(eq=False)
class Found:
    """What was found in many objects.

    Attributes:
        which: The objects that are understood, ascending.
        columns: For each column the values in those objects.
        doubts: The objects that are not understood.
    """

    which: Positions
    columns: list[Values]
    doubts: Positions


@attrs.frozen
class Layout:
    """A shape as a row sees it: the column of each member that is one, and the members that are none.

    `inner` finds the shapes of those of the others that are objects, by which they are judged.
    """

    shape: Shape
    columns: dict[int, int]
    others: tuple[int, ...]
    inner: dict[int, ObjectFinder]


class ObjectFinder:
    """Finds the members of a row.

    Args:
        names: The members' names, in the order of the columns.
        all_needed: Whether an object that lacks one of them is in doubt.
        few: Below how many objects it is not worth while to look at them together; they are in doubt.
        levels: How many levels of objects that no column wants are judged by their shapes.
    """

    def __init__(self, names: Sequence[str], *, all_needed: bool, few: int, levels: int = 2) -> None:
        self.names = tuple(name.encode() for name in names)
        self.all_needed = all_needed
        self.few = few
        self.levels = levels
        self._layouts: list[Layout] = []

    def find(self, source: Source, objects: Spans, first: Positions | None = None) -> Found:
        """Where each column's value is in each object.

        Args:
            source: The buffer.
            objects: The objects, in ascending order.
            first: For each the index of its first quote, where it is known.
        """
        search = _Search(source, objects, first)
        if self._by_shapes(search):
            self._split(search)
        return search.found(len(self.names))

    def are_json(self, source: Source, objects: Spans, first: Positions, needed: Mask) -> Mask:
        """Which values that begin like objects are JSON, by their shapes if these repeat; those not needed count."""
        place = np.flatnonzero(needed)
        everything = len(place) == len(needed)
        search = _Search(source, objects if everything else objects.pick(place), first if everything else first[place])
        if len(place) >= self.few:
            self._by_shapes(search)
        if not len(search.left):
            return np.ones(len(needed), dtype=bool)
        left = np.zeros(len(needed), dtype=bool)
        left[place[search.left]] = True
        return are_json(source, objects, BARE, left)

    def _by_shapes(self, search: _Search) -> bool:
        """Find objects by shapes; gives whether so many are left that it is worth while to split them."""
        source, objects = search.source, search.objects
        enough = max(self.few, len(objects) // _RARE)
        for layout in tuple(self._layouts):
            self._try(layout, search)
        attempts = 0
        while len(search.left) >= enough and attempts < _ATTEMPTS:
            before = len(search.left)
            sample = int(search.left[attempts * before // _ATTEMPTS])
            learned = self._layout(source.data[objects.start[sample] : objects.end[sample]].tobytes())
            attempts += 1
            if learned is not None and self._try(learned, search) * _WORTHWHILE < before:
                break
        return len(search.left) >= enough

    def _layout(self, message: bytes) -> Layout | None:
        """The shape of one object, unless it is known already or useless."""
        shape = learn(message)
        if shape is None or any(known.shape == shape for known in self._layouts):
            return None
        columns = {i: self.names.index(m.key) for i, m in enumerate(shape.members) if m.key in self.names}
        repeated = len(set(columns.values())) < len(columns)
        if repeated or (self.all_needed and len(columns) < len(self.names)):
            return None
        others = tuple(i for i in range(len(shape.members)) if i not in columns)
        objects = (
            [i for i in others if shape.members[i].what == BARE and shape.members[i].quotes] if self.levels else []
        )
        inner = {i: ObjectFinder((), all_needed=False, few=self.few, levels=self.levels - 1) for i in objects}
        return Layout(shape, columns, others, inner)

    def _try(self, layout: Layout, search: _Search) -> int:
        """Fit a shape to the objects that are left; gives how many have it, and remembers it if any has."""
        same = search.hold(layout.shape.quotes)
        if np.count_nonzero(same) < self.few:
            return 0
        some = search.left[same]
        everything = len(some) == len(search.objects)
        objects, first = (
            (search.objects, search.first) if everything else (search.objects.pick(some), search.first[some])
        )
        fits, values, inner = fitting(search.source, objects, first, layout.shape)
        place = np.flatnonzero(same)
        if not fits.all():  # what does not fit has values anywhere, even behind the buffer
            values, inner = [v.pick(fits) for v in values], [f[fits] for f in inner]
            place, fits = place[fits], fits[fits]
        for other in layout.others:
            judge = layout.inner.get(other)
            if judge is not None:
                fits &= judge.are_json(search.source, values[other], inner[other], fits)
            else:
                fits &= are_json(search.source, values[other], layout.shape.members[other].what, fits)
        found = int(np.count_nonzero(fits))
        if found:
            columns = [_absent(found)] * len(self.names)
            for member, column in layout.columns.items():
                known = layout.shape.members[member]
                quotes = inner[member] if known.what == BARE else None
                made = Values(values[member], np.full(len(fits), known.what, dtype=np.int8), quotes)
                columns[column] = made if found == len(fits) else made.pick(fits)
            search.keep(place[fits], columns)
            self._layouts = [layout, *(known for known in self._layouts if known is not layout)][:_REMEMBERED]
        return found

    def _split(self, search: _Search) -> None:
        objects = search.objects.pick(search.left)
        count = len(objects)
        small = count * _RARE < len(search.objects) * _SMALL
        source = search.source.copy(objects) if small else search.source
        parts = members(source, source.messages if small else objects)
        assert parts.keys is not None
        sound = parts.sound
        sound[parts.owner[source.escaped(parts.keys)]] = False
        size = parts.keys.end - parts.keys.start
        known = np.zeros(len(size), dtype=bool)
        places = []
        for name in self.names:
            place = np.flatnonzero(size == len(name))
            place = place[source.equal(parts.keys.start[place], name)]
            known[place] = True
            times = np.bincount(parts.owner[place], minlength=count)
            sound &= times == 1 if self.all_needed else times <= 1
            places.append(place)
        others = np.flatnonzero(~known)
        for what in (TEXT, BARE):
            some = others[parts.what[others] == what]
            good = are_json(source, parts.values.pick(some), what, sound[parts.owner[some]])
            sound[parts.owner[some[~good]]] = False
        shift = objects.start - source.messages.start if small else np.zeros(count, dtype=np.int64)
        columns = []
        for place in places:
            owner = parts.owner[place]
            values = Values(Spans(objects.start.copy(), objects.start.copy()), np.zeros(count, dtype=np.int8))
            values.spans.start[owner] = parts.values.start[place] + shift[owner]
            values.spans.end[owner] = parts.values.end[place] + shift[owner]
            values.what[owner] = parts.what[place]
            columns.append(Values(values.spans.pick(sound), values.what[sound]))
        search.keep(np.flatnonzero(sound), columns)


class _Search:
    """What is found so far in a batch of objects.

    Attributes:
        left: The objects that are not understood yet.
        first: For each object the index of its first quote.
    """

    def __init__(self, source: Source, objects: Spans, first: Positions | None) -> None:
        self.source = source
        self.objects = objects
        self.left: Positions = np.arange(len(objects))
        self.first = _first_quotes(source, objects) if first is None else first
        self._groups: list[tuple[Positions, list[Values]]] = []

    def hold(self, count: int) -> Mask:
        """Which of the objects left hold as many quotes."""
        quotes, first, end = self.source.quotes, self.first, self.objects.end
        if len(self.left) < len(first):
            first, end = first[self.left], end[self.left]
        after = first + count
        if not len(quotes) or count < 1:
            return np.zeros(len(first), dtype=bool)
        enough = quotes[np.minimum(after, len(quotes)) - 1] < end
        too_many = (quotes[np.minimum(after, len(quotes) - 1)] < end) & (after < len(quotes))
        held: Mask = enough & ~too_many & (after <= len(quotes))
        return held

    def keep(self, places: Positions, columns: list[Values]) -> None:
        """Keep the values of those objects that are at some places among those left."""
        self._groups.append((self.left[places], columns))
        left = np.ones(len(self.left), dtype=bool)
        left[places] = False
        self.left = self.left[left]

    def found(self, columns: int) -> Found:
        """All that was found, in the order of the objects."""
        if len(self._groups) == 1:
            which, values = self._groups[0]
            return Found(which, values, self.left)
        groups = [(self.left[:0], [_absent(0)] * columns), *self._groups]
        which = np.concatenate([w for w, _ in groups])
        order = np.argsort(which)
        joined = []
        for column in range(columns):
            parts = [values[column] for _, values in groups]
            start, end = (np.concatenate([getattr(p.spans, side) for p in parts])[order] for side in ("start", "end"))
            quotes = [p.first for p in parts if p.first is not None]
            first = np.concatenate(quotes)[order] if len(quotes) == len(parts) else None
            joined.append(Values(Spans(start, end), np.concatenate([p.what for p in parts])[order], first))
        return Found(which[order], joined, self.left)


def _absent(count: int) -> Values:
    nowhere = np.zeros(count, dtype=np.int64)
    return Values(Spans(nowhere, nowhere), np.zeros(count, dtype=np.int8), nowhere)


def _first_quotes(source: Source, objects: Spans) -> Positions:
    """For each object the index of its first quote, or of the one behind it."""
    count, total = len(objects), len(source.quotes)
    if count and total and total % count == 0:  # every object may hold as many: look instead of searching
        first = np.arange(0, total, total // count)
        place = source.quotes[first]
        if bool(((place >= objects.start) & (place < objects.end)).all()):
            before = source.quotes[first[1:] - 1]
            if bool((before < objects.start[1:]).all()):
                return first
    return np.searchsorted(source.quotes, objects.start)
