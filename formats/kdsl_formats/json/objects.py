"""The members that a row wants, found in many objects at once: by repeated shapes first, then by plain splitting."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from kdsl_formats.json.members import members
from kdsl_formats.json.shapes import Shape, fitting, learn
from kdsl_formats.json.source import Mask, Places, Source, Spans, inside
from kdsl_formats.json.validity import are_json

ABSENT = 0
_REMEMBERED = 16  # shapes
_ATTEMPTS = 8  # to learn a new shape, in one batch
_WORTHWHILE = 16  # a new shape must fit one in so many objects, or no more are learned from this batch


@attrs.frozen(eq=False)
class Values:
    """The values of one column, found in the buffer.

    Attributes:
        spans: Where each is, without the quotes of a text; an absent one is an empty stretch.
        what: `ABSENT`, `TEXT` or `BARE` for each.
    """

    spans: Spans
    what: npt.NDArray[np.int8]


@attrs.frozen
class Layout:
    """A shape as a row sees it: the column of each member that is one, and the members that are none."""

    shape: Shape
    columns: dict[int, int]
    others: tuple[int, ...]


class ObjectFinder:
    """Finds the members of a row.

    Args:
        names: The members' names, in the order of the columns.
        all_needed: Whether an object that lacks one of them is in doubt.
        few: Below how many objects it is not worth while to look at them together; they are in doubt.
    """

    def __init__(self, names: Sequence[str], *, all_needed: bool, few: int) -> None:
        self.names = tuple(name.encode() for name in names)
        self.all_needed = all_needed
        self.few = few
        self._layouts: list[Layout] = []

    def find(self, source: Source, objects: Spans) -> tuple[list[Values], Mask]:
        """The values of each column, and which objects are in doubt (their values mean nothing)."""
        search = _Search(source, objects, len(self.names))
        for layout in tuple(self._layouts):
            self._try(layout, search)
        attempts = 0
        while len(search.left) >= self.few and attempts < _ATTEMPTS:
            before = len(search.left)
            sample = int(search.left[attempts * before // _ATTEMPTS])
            learned = self._layout(source.data[objects.start[sample] : objects.end[sample]].tobytes())
            attempts += 1
            if learned is not None and self._try(learned, search) * _WORTHWHILE < before:
                break
        if len(search.left) >= self.few:
            self._split(search)
        doubts = np.zeros(len(objects), dtype=bool)
        doubts[search.left] = True
        return search.columns, doubts

    def _layout(self, message: bytes) -> Layout | None:
        """The shape of one object, unless it is known already or useless."""
        shape = learn(message)
        if shape is None or any(known.shape == shape for known in self._layouts):
            return None
        columns = {i: self.names.index(m.key) for i, m in enumerate(shape.members) if m.key in self.names}
        repeated = len(set(columns.values())) < len(columns)
        if repeated or (self.all_needed and len(columns) < len(self.names)):
            return None
        return Layout(shape, columns, tuple(i for i in range(len(shape.members)) if i not in columns))

    def _try(self, layout: Layout, search: _Search) -> int:
        """Fit a shape to the objects that are left; gives how many have it, and remembers it if any has."""
        same = search.quotes[search.left] == layout.shape.quotes
        if np.count_nonzero(same) < self.few:
            return 0
        some = search.left[same]
        everything = len(some) == len(search.objects)
        objects, first = (
            (search.objects, search.first) if everything else (search.objects.pick(some), search.first[some])
        )
        fits, values = fitting(search.source, objects, first, layout.shape)
        for other in layout.others:
            fits &= are_json(search.source, values[other], layout.shape.members[other].what, fits)
        found = int(np.count_nonzero(fits))
        if found:
            which = some[fits]
            for member, column in layout.columns.items():
                spans = values[member] if found == len(some) else values[member].pick(fits)
                search.put(column, which, spans, layout.shape.members[member].what)
            left = np.ones(len(search.left), dtype=bool)
            left[np.flatnonzero(same)[fits]] = False
            search.left = search.left[left]
            self._layouts = [layout, *(known for known in self._layouts if known is not layout)][:_REMEMBERED]
        return found

    def _split(self, search: _Search) -> None:
        source, left = search.source, search.left
        parts = members(source, search.objects.pick(left))
        assert parts.keys is not None
        sound = parts.sound
        sound[parts.owner[source.escaped(parts.keys)]] = False
        size = parts.keys.end - parts.keys.start
        known = np.zeros(len(size), dtype=bool)
        found = []
        for name in self.names:
            place = np.flatnonzero(size == len(name))
            place = place[source.equal(parts.keys.start[place], name)]
            known[place] = True
            times = np.bincount(parts.owner[place], minlength=len(left))
            sound &= times == 1 if self.all_needed else times <= 1
            found.append(place)
        others = np.flatnonzero(~known)
        for what in np.unique(parts.what[others]):
            some = others[parts.what[others] == what]
            needed = sound[parts.owner[some]]
            sound[parts.owner[some[needed & ~are_json(source, parts.values.pick(some), int(what), needed)]]] = False
        for column, place in enumerate(found):
            search.put(column, left[parts.owner[place]], parts.values.pick(place), parts.what[place])
        search.left = left[~sound]


class _Search:
    """What is found so far in a batch of objects.

    Attributes:
        columns: The values found.
        left: The objects that are not understood yet.
        first: For each object the index of its first quote.
        quotes: How many quotes each object holds.
    """

    def __init__(self, source: Source, objects: Spans, columns: int) -> None:
        self.source = source
        self.objects = objects
        count = len(objects)
        nowhere = Spans(objects.start, objects.start)
        self.columns = [Values(nowhere, np.zeros(count, dtype=np.int8)) for _ in range(columns)]
        self.left: Places = np.arange(count)
        self.first, self.quotes = _quotes(source, objects)

    def put(self, column: int, which: Places, spans: Spans, what: int | npt.NDArray[np.int8]) -> None:
        """Keep the values of some objects."""
        values = self.columns[column]
        if len(which) == len(self.objects):
            self.columns[column] = Values(spans, np.full(len(which), what, dtype=np.int8))
            return
        if values.spans.start is self.objects.start:
            values = Values(Spans(self.objects.start.copy(), self.objects.start.copy()), values.what)
            self.columns[column] = values
        values.spans.start[which] = spans.start
        values.spans.end[which] = spans.end
        values.what[which] = what


def _quotes(source: Source, objects: Spans) -> tuple[Places, Places]:
    """For each object the index of its first quote, and how many it holds."""
    count, total = len(objects), len(source.quotes)
    if count and total and total % count == 0:  # every object may hold as many: look instead of searching
        each = total // count
        first = np.arange(0, total, each)
        last = source.quotes[first + (each - 1)]
        if bool(((source.quotes[first] >= objects.start) & (last < objects.end)).all()):
            return first, np.full(count, each)
    return inside(source.quotes, objects)
