"""Locates the members of rows in many objects at once: by repeated shapes first, then by splitting the objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl_formats._columns.arrays import Indices, Mask, slices
from kdsl_formats.json.buffer import MessageBuffer, Spans
from kdsl_formats.json.members import BARE, TEXT, split_objects
from kdsl_formats.json.shapes import Shape, learn_shape, match_shape
from kdsl_formats.json.validity import are_json

ABSENT = 0
_REMEMBERED = 16  # shapes
_ATTEMPTS = 8  # new shapes per batch
_RARE = 64  # if fewer than one object in 64 is left, the reference decoder reads the rest
_SMALL = 16  # times as many, at most, are copied from the buffer before splitting
FEW = 32  # columns: each is searched for by itself; more are found together
_DENSE = 64  # cells for each member: a table of the objects and keys of members with more is not filled
_WORTHWHILE = 16  # a new shape must fit one object in 16, or no more are learned from this batch


@attrs.frozen(eq=False)
class ValueSpans:
    """The values of one column, located in the buffer.

    Attributes:
        spans: The span of each value, without the quotes of a string; empty for an absent value.
        form: `ABSENT`, `TEXT` or `BARE` for each value.
        first: For each value that is not a string, the index of the first quote after its start; None if that is
            unknown.
    """

    spans: Spans
    form: npt.NDArray[np.int8]
    first: Indices | None = None

    def pick(self, which: Indices | Mask) -> ValueSpans:
        """The values at some indices, or those that a mask selects."""
        return ValueSpans(self.spans.pick(which), self.form[which], None if self.first is None else self.first[which])

    def spread(self, indexes: Indices, count: int) -> ValueSpans:
        """A column of the given length with the values at the given indices, and absent values elsewhere.

        Its `first` is None.
        """
        start, end = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        form = np.zeros(count, dtype=np.int8)
        start[indexes], end[indexes], form[indexes] = self.spans.start, self.spans.end, self.form
        return ValueSpans(Spans(start, end), form)


@attrs.frozen(eq=False)
class UndeclaredMembers:
    """Members of some objects that are not columns.

    Attributes:
        keys: Their distinct keys.
        objects: The object of each member, ascending; or just the objects, if `codes` is None.
        codes: For each member, the index of its key in `keys`; None if each object has every key.
    """

    keys: list[bytes]
    objects: Indices
    codes: Indices | None = None

    def count_objects(self, is_used: Mask | None) -> Iterator[tuple[bytes, int]]:
        """Yield each key and how many of the used objects have it; a key that an object repeats counts once.

        Keys that no used object has are left out. `is_used` says which of all objects of the search are used; None if
        all are.
        """
        used = None if is_used is None else is_used[self.objects]
        if self.codes is None:
            count = len(self.objects) if used is None else int(np.count_nonzero(used))
            yield from ((key, count) for key in self.keys if count)
            return
        objects, codes = (self.objects, self.codes) if used is None else (self.objects[used], self.codes[used])
        if not len(objects):
            return
        objects = objects - objects[0]
        rows, columns = int(objects[-1]) + 1, len(self.keys)
        if rows * columns <= _DENSE * len(objects):
            table = np.zeros((rows, columns), dtype=bool)
            table[objects, codes] = True
            counts = np.count_nonzero(table, axis=0)
        else:
            counts = np.bincount(np.unique(objects * columns + codes) % columns, minlength=columns)
        yield from ((key, count) for key, count in zip(self.keys, counts.tolist(), strict=True) if count)


@attrs.frozen(eq=False)
class FoundMembers:
    """The members that were located in many objects.

    Attributes:
        which: The objects that were read, ascending.
        columns: For each column, its values in these objects.
        fallback: The objects that need the fallback.
        undeclared: The members that are not columns, of objects that were read; empty if they are not looked for.
    """

    which: Indices
    columns: list[ValueSpans]
    fallback: Indices
    undeclared: tuple[UndeclaredMembers, ...] = ()

    def count_undeclared(self, is_used: Mask | None = None) -> Counter[str]:
        """Count the objects that have each undeclared member.

        Args:
            is_used: Which of the objects of the search are counted; None for all that were read.
        """
        counts: Counter[str] = Counter()
        for members in self.undeclared:
            for key, count in members.count_objects(is_used):
                counts[key.decode()] += count
        return counts


@attrs.frozen
class ShapeLayout:
    """A shape with the members that are columns of a row, and the undeclared ones.

    `inner` checks by their shapes that undeclared members that are objects are JSON.
    """

    shape: Shape
    columns: dict[int, int]
    undeclared: tuple[int, ...]
    inner: dict[int, ObjectFinder]


class ObjectFinder:
    """Locates the members of a row.

    Args:
        names: The names of the members, in the order of the columns.
        all_needed: Whether an object without one of the members needs the fallback.
        min_batch: If there are fewer objects, all of them need the fallback.
        levels: How many levels of undeclared objects are checked by their shapes.

    Attributes:
        find_undeclared: Whether to find undeclared members, too (`FoundMembers.undeclared`). They follow from the
            shapes, so they cost nothing.
    """

    def __init__(self, names: Sequence[str], *, all_needed: bool, min_batch: int, levels: int = 2) -> None:
        self.names = tuple(name.encode() for name in names)
        self._columns = {name: i for i, name in enumerate(self.names)}
        self.all_needed = all_needed
        self.min_batch = min_batch
        self.levels = levels
        self.find_undeclared = False
        self._layouts: list[ShapeLayout] = []

    def find(self, buffer: MessageBuffer, objects: Spans, first: Indices | None = None) -> FoundMembers:
        """Locate each column's value in each object.

        Objects need the fallback if few have their shape, they are not plain JSON, or they have a column twice or lack
        a needed one. Shapes of objects are remembered for the next batch.

        Args:
            buffer: The buffer.
            objects: The objects, in ascending order.
            first: The index of the first quote of each object; None if that is unknown.
        """
        search = _Search(buffer, objects, first)
        if self._find_by_shapes(search):
            self._split_objects(search)
        return search.collect(len(self.names))

    def are_json(self, buffer: MessageBuffer, objects: Spans, first: Indices, needed: Mask) -> Mask:
        """Which values that begin like objects are JSON, by their shapes if possible; unneeded values count as JSON.

        Shapes are remembered as in `find`. Values that are JSON but unusual may not pass; see `validity.are_json`.
        """
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
        """Add objects of known and newly learned shapes to the search; returns whether to split those that are left.

        That is if they are at least `min_batch`, and not rare among all. Learned shapes that match are remembered.
        """
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
        """Learn the shape of one object, without remembering it.

        None if it is known, unusual (see `learn_shape`), has a column twice, or lacks one although all are needed.
        """
        shape = learn_shape(message)
        if shape is None or any(known.shape == shape for known in self._layouts):
            return None
        columns = {i: self._columns[m.key] for i, m in enumerate(shape.members) if m.key in self._columns}
        has_repeats = len(set(columns.values())) < len(columns)
        if has_repeats or (self.all_needed and len(columns) < len(self.names)):
            return None
        undeclared = tuple(i for i in range(len(shape.members)) if i not in columns)
        objects = (
            [i for i in undeclared if shape.members[i].form == BARE and shape.members[i].quotes] if self.levels else []
        )
        inner = {
            i: ObjectFinder((), all_needed=False, min_batch=self.min_batch, levels=self.levels - 1) for i in objects
        }
        return ShapeLayout(shape, columns, undeclared, inner)

    def _try_shape(self, layout: ShapeLayout, search: _Search) -> int:
        """Add the objects that match a shape to the search, and remember it if any does; returns how many match.

        The undeclared members of a matching object must be JSON; they are added if `find_undeclared` is set. Fewer than
        `min_batch` objects with as many quotes as the shape are not compared with it: 0 is returned.
        """
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
        if not fits.all():  # objects that do not match have meaningless positions, even after the buffer
            values, inner = [v.pick(fits) for v in values], [f[fits] for f in inner]
            indexes, fits = indexes[fits], fits[fits]
        for other in layout.undeclared:
            judge = layout.inner.get(other)
            if judge is not None:
                fits &= judge.are_json(search.buffer, values[other], inner[other], fits)
            else:
                fits &= are_json(search.buffer, values[other], layout.shape.members[other].form, fits)
        match_count = int(np.count_nonzero(fits))
        if match_count:
            columns = [absent_values(match_count)] * len(self.names)
            for member, column in layout.columns.items():
                known = layout.shape.members[member]
                quotes = inner[member] if known.form == BARE else None
                spans_of_values = ValueSpans(values[member], np.full(len(fits), known.form, dtype=np.int8), quotes)
                columns[column] = spans_of_values if match_count == len(fits) else spans_of_values.pick(fits)
            if self.find_undeclared and layout.undeclared:
                keys = list(dict.fromkeys(layout.shape.members[other].key for other in layout.undeclared))
                search.undeclared.append(UndeclaredMembers(keys, search.left[indexes[fits]]))
            search.add(indexes[fits], columns)
            self._layouts = [layout, *(known for known in self._layouts if known is not layout)][:_REMEMBERED]
        return match_count

    def _split_objects(self, search: _Search) -> None:
        """Split the remaining objects into their members, and add those that are plain JSON to the search.

        Objects with escapes in their keys, with a column twice, or without one that is needed are left. The undeclared
        members of the added objects are added, too, if `find_undeclared` is set.
        """
        objects = search.objects.pick(search.left)
        count = len(objects)
        small = count * _RARE < len(search.objects) * _SMALL
        buffer = search.buffer.copy(objects) if small else search.buffer
        parts = split_objects(buffer, buffer.messages if small else objects)
        assert parts.keys is not None
        valid = parts.valid
        valid[parts.owner[buffer.find_escaped(parts.keys)]] = False
        known = np.zeros(len(parts.owner), dtype=bool)
        member_indexes = self._group_by_column(buffer, parts.keys, valid[parts.owner])
        for indexes in member_indexes:
            known[indexes] = True
            times = np.bincount(parts.owner[indexes], minlength=count)
            valid &= times == 1 if self.all_needed else times <= 1
        undeclared = np.flatnonzero(~known)
        for form in (TEXT, BARE):
            some = undeclared[parts.form[undeclared] == form]
            good = are_json(buffer, parts.values.pick(some), form, valid[parts.owner[some]])
            valid[parts.owner[some[~good]]] = False
        if self.find_undeclared:
            some = undeclared[valid[parts.owner[undeclared]]]
            keys = slices(buffer.data, parts.keys.start[some], parts.keys.end[some], None, pa.binary())
            coded = keys.dictionary_encode()
            search.undeclared.append(
                UndeclaredMembers(
                    coded.dictionary.to_pylist(), search.left[parts.owner[some]], np.asarray(coded.indices)
                )
            )
        shift = objects.start - buffer.messages.start if small else np.zeros(count, dtype=np.int64)
        columns = []
        for indexes in member_indexes:
            owner = parts.owner[indexes]
            values = ValueSpans(Spans(objects.start.copy(), objects.start.copy()), np.zeros(count, dtype=np.int8))
            values.spans.start[owner] = parts.values.start[indexes] + shift[owner]
            values.spans.end[owner] = parts.values.end[indexes] + shift[owner]
            values.form[owner] = parts.form[indexes]
            columns.append(ValueSpans(values.spans.pick(valid), values.form[valid]))
        search.add(np.flatnonzero(valid), columns)

    def _group_by_column(self, buffer: MessageBuffer, keys: Spans, needed: Mask) -> list[Indices]:
        """For each column the members with its name, ascending; members that are not needed may be left out."""
        size = keys.end - keys.start
        if len(self.names) <= FEW:
            same_size = (np.flatnonzero(size == len(name)) for name in self.names)
            return [
                indexes[buffer.starts_with(keys.start[indexes], name)]
                for name, indexes in zip(self.names, same_size, strict=True)
            ]
        some = np.flatnonzero(needed & (size >= 0) & (size <= max(map(len, self.names))))
        coded = slices(buffer.data, keys.start[some], keys.end[some], None, pa.binary()).dictionary_encode()
        columns = np.array([self._columns.get(key, -1) for key in coded.dictionary.to_pylist()], dtype=np.int64)
        column = columns[np.asarray(coded.indices)]
        order = np.argsort(column, kind="stable")
        ends = np.searchsorted(column[order], np.arange(-1, len(self.names)), side="right")
        return [*np.split(some[order], ends)[1:-1]]


class _Search:
    """The results so far of a search in a batch of objects.

    Attributes:
        left: The indices of the objects that are not located yet.
        first: The index of the first quote of each object.
        undeclared: Members of the located objects that are not columns.
    """

    def __init__(self, buffer: MessageBuffer, objects: Spans, first: Indices | None) -> None:
        self.buffer = buffer
        self.objects = objects
        self.left: Indices = np.arange(len(objects))
        self.first = _find_first_quotes(buffer, objects) if first is None else first
        self.undeclared: list[UndeclaredMembers] = []
        self._groups: list[tuple[Indices, list[ValueSpans]]] = []

    def have_quotes(self, count: int) -> Mask:
        """Which of the remaining objects contain this number of quotes; none for 0."""
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

    def add(self, member_indexes: Indices, columns: list[ValueSpans]) -> None:
        """Store values of some remaining objects, given by their indices in `left`, and remove these from `left`."""
        self._groups.append((self.left[member_indexes], columns))
        left = np.ones(len(self.left), dtype=bool)
        left[member_indexes] = False
        self.left = self.left[left]

    def collect(self, columns: int) -> FoundMembers:
        """All results, in the order of the objects, for a number of columns; what is left needs the fallback."""
        if len(self._groups) == 1:
            which, values = self._groups[0]
            return FoundMembers(which, values, self.left, tuple(self.undeclared))
        groups = [(self.left[:0], [absent_values(0)] * columns), *self._groups]
        which = np.concatenate([w for w, _ in groups])
        order = np.argsort(which)
        joined = []
        for column in range(columns):
            parts = [values[column] for _, values in groups]
            start, end = (np.concatenate([getattr(p.spans, side) for p in parts])[order] for side in ("start", "end"))
            quotes = [p.first for p in parts if p.first is not None]
            first = np.concatenate(quotes)[order] if len(quotes) == len(parts) else None
            joined.append(ValueSpans(Spans(start, end), np.concatenate([p.form for p in parts])[order], first))
        return FoundMembers(which[order], joined, self.left, tuple(self.undeclared))


def absent_values(count: int) -> ValueSpans:
    """A column of absent values."""
    nowhere = np.zeros(count, dtype=np.int64)
    return ValueSpans(Spans(nowhere, nowhere), np.zeros(count, dtype=np.int8), nowhere)


def _find_first_quotes(buffer: MessageBuffer, objects: Spans) -> Indices:
    """For each object, the index of its first quote, or of the first one after it."""
    count, total = len(objects), len(buffer.quotes)
    if count and total and total % count == 0:  # all objects may have the same number: check that instead of searching
        first = np.arange(0, total, total // count)
        indexes = buffer.quotes[first]
        if bool(((indexes >= objects.start) & (indexes < objects.end)).all()):
            before = buffer.quotes[first[1:] - 1]
            if bool((before < objects.start[1:]).all()):
                return first
    return np.searchsorted(buffer.quotes, objects.start)
