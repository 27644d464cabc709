"""Whole columns of Avro bodies: each step of a resolution for many bodies at once, with numpy.

A column is started with its number of elements, reads once along a cursor, and is then built. Bodies of which it is in
doubt are marked in the cursor; the reference reads those. What is not in doubt equals the reference's answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.column import Column, Slots
from kdsl_formats._avro.cursor import Cursor
from kdsl_formats._avro.hash_map import repeats
from kdsl_formats._avro.resolution import (
    Chosen,
    Entries,
    Fail,
    Items,
    Null,
    Record,
    Scalar,
    Skip,
    Step,
    Symbol,
    Union,
)
from kdsl_formats._avro.scalars import Decimals, Numbers, Symbols, Texts
from kdsl_formats._avro.skipping import Passing, Walking, entry_places, item_places, passing
from kdsl_formats._columns.arrays import Mask, Positions

ONE_BYTE = 64  # types of a union, whose numbers have one byte; the others are in doubt


def column_of(step: Step, kind: t.DataType) -> Column:
    """The column that a step fills."""
    match step:
        case Scalar(target="string"):
            return Texts(step)
        case Scalar(column=t.Binary() | t.VarBinary()):
            return Texts(step)
        case Scalar(column=t.Decimal()):
            return Decimals(step)
        case Scalar():
            return Numbers(step)
        case Symbol(symbols=symbols):
            return Symbols(symbols)
        case Union(branches=branches):
            return _union(branches, kind)
        case Chosen(name=name, inner=inner, column=row):
            inside = next(f.type for f in row.fields if f.name == name)
            return _Member(name, column_of(inner, inside), row)
        case Null():
            return _Nothing(kind)
        case Items(inner=inner, column=array):
            walk = item_places(step.wire)
            return _List(step, column_of(inner, array.element), walk) if walk else _Doubtful(kind)
        case Entries(inner=inner, column=entries):
            value = entries.value if isinstance(entries, t.Map) else t.Int(nullable=False)
            walk = entry_places(step.wire)
            return _Map(step, column_of(inner, value), walk) if walk else _Doubtful(kind)
        case Record():
            return _Record(step)
    return _Doubtful(kind)


def _union(branches: Sequence[Step], kind: t.DataType) -> Column:
    """The column of a union: null and branches that fail need no column of their own."""
    real = [i for i, branch in enumerate(branches) if not isinstance(branch, Null | Fail)]
    failing = [i for i, branch in enumerate(branches) if isinstance(branch, Fail)]
    nullable = any(isinstance(branch, Null) for branch in branches)
    if not real:
        return _Nullable(_Doubtful(kind), failing, failing, len(branches)) if failing and nullable else _Doubtful(kind)
    parts = [column_of(branches[i], kind) for i in real]
    made: Column
    if len(parts) == 1:
        made = _Nullable(parts[0], real, failing, len(branches))
    else:
        made = _Several(parts, real, failing, len(branches))
    made.hopeless = not nullable and all(part.hopeless for part in parts)
    return made


class _Doubtful(Column):
    """What is not read by columns, and what fails."""

    hopeless = True

    def __init__(self, kind: t.DataType) -> None:
        self.kind = arrow_type(kind)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        cursor.doubt_all()

    def build(self, cursor: Cursor) -> pa.Array:
        return pa.nulls(self.count, self.kind)


class _Nothing(Column):
    """The type null: no bytes, no values."""

    def __init__(self, kind: t.DataType) -> None:
        self.kind = arrow_type(kind)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        pass

    def build(self, cursor: Cursor) -> pa.Array:
        self.valid = np.zeros(self.count, dtype=bool)
        return pa.nulls(self.count, self.kind)


class _Nullable(Column):
    """A union of which one type alone has values; of the others some are NULL, and some fail.

    Args:
        inner: The type's column.
        numbers: The number of the type.
        failing: The numbers of the types that fail.
        types: How many types the union has.
    """

    def __init__(self, inner: Column, numbers: Sequence[int], failing: Sequence[int], types: int) -> None:
        self.inner, self.code, self.types = inner, 2 * numbers[0], types
        self.failing = _codes(failing)

    def start(self, count: int, owner: Positions | None) -> None:
        super().start(count, owner)
        self.inner.start(count, owner)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        codes = cursor.branch(self.types)
        found = codes == self.code
        if found.all():
            self.inner.scan(cursor, slots)
            return
        cursor.doubt(self.failing[codes])
        which = np.flatnonzero(found)
        some = cursor.pick(which)
        places = which if slots is None else slots[which]
        valid = np.zeros(self.count, dtype=bool)
        valid[places] = True
        self.inner.scan(some, places)
        cursor.at[which] = some.at
        self.inner.valid = valid if self.inner.valid is None else self.inner.valid & valid

    def build(self, cursor: Cursor) -> pa.Array:
        made = self.inner.build(cursor)
        self.valid = self.inner.valid
        return made


class _Several(Column):
    """A union of which several types have values.

    Args:
        parts: The column of each of these types.
        numbers: Their numbers.
        failing: The numbers of the types that fail.
        types: How many types the union has.
    """

    def __init__(self, parts: Sequence[Column], numbers: Sequence[int], failing: Sequence[int], types: int) -> None:
        self.parts, self.types = parts, types
        self.failing = _codes(failing)
        self.part_of = np.full(256, -1)
        for place, number in enumerate(numbers):
            if number < ONE_BYTE:
                self.part_of[2 * number] = place
        self.chosen: Positions = np.zeros(0, dtype=np.int64)

    def start(self, count: int, owner: Positions | None) -> None:
        super().start(count, owner)
        for part in self.parts:
            part.start(count, owner)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        codes = cursor.branch(self.types)
        cursor.doubt(self.failing[codes])
        found = self.part_of[codes]
        self.chosen = np.full(self.count, -1)
        self.chosen[slice(None) if slots is None else slots] = found
        for i, part in enumerate(self.parts):
            which = np.flatnonzero(found == i)
            some = cursor.pick(which)
            part.scan(some, which if slots is None else slots[which])
            cursor.at[which] = some.at

    def build(self, cursor: Cursor) -> pa.Array:
        made = pa.concat_arrays([part.build(cursor) for part in self.parts])
        valid = self.chosen >= 0
        if self.valid is not None:
            valid &= self.valid
        self.valid = valid
        places = self.chosen * self.count + np.arange(self.count)
        return made.take(pa.array(places, mask=~valid))


def _codes(numbers: Sequence[int]) -> Mask:
    """Which bytes are the numbers of some types of a union."""
    made = np.zeros(256, dtype=bool)
    made[[2 * n for n in numbers if n < ONE_BYTE]] = True
    return made


class _Member(Column):
    """A row that stands for a union of the table, of which one member has a value."""

    def __init__(self, name: str, inner: Column, row: t.Row) -> None:
        self.name, self.inner, self.kind = name, inner, arrow_type(row)
        self.hopeless = inner.hopeless

    def start(self, count: int, owner: Positions | None) -> None:
        super().start(count, owner)
        self.inner.start(count, owner)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        self.inner.scan(cursor, slots)

    def build(self, cursor: Cursor) -> pa.Array:
        made = self.inner.build(cursor)
        children = [made if f.name == self.name else pa.nulls(self.count, f.type) for f in self.kind]
        return pa.Array.from_buffers(self.kind, self.count, [self.bits()], children=children)


class _Nested(Column):
    """An array or a map: the places of its elements are found first; then they are read like any column."""

    def __init__(self, step: Items | Entries, walk: Walking) -> None:
        self.kind = arrow_type(step.column)
        self.walk = walk
        self.offsets = np.zeros(1, dtype=np.int32)

    def elements(self, cursor: Cursor, slots: Slots) -> Cursor:
        """The places of all elements; moves the cursor behind the value."""
        counts, places = self.walk(cursor)
        self.offsets = np.zeros(self.count + 1, dtype=np.int32)
        if slots is None:
            np.cumsum(counts, out=self.offsets[1:])
        else:
            spread = np.zeros(self.count, dtype=np.int64)
            spread[slots] = counts
            np.cumsum(spread, out=self.offsets[1:])
        owner = np.arange(len(counts)) if cursor.owner is None else cursor.owner
        return Cursor(cursor.bodies, places, np.repeat(owner, counts))

    def buffers(self) -> list[pa.Buffer | None]:
        """The validity bitmap and the offsets."""
        return [self.bits(), pa.py_buffer(self.offsets)]


class _List(_Nested):
    """An array."""

    def __init__(self, step: Items, inner: Column, walk: Walking) -> None:
        super().__init__(step, walk)
        self.inner = inner

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        items = self.elements(cursor, slots)
        self.inner.start(len(items), items.owner)
        self.inner.scan(items, None)

    def build(self, cursor: Cursor) -> pa.Array:
        return pa.Array.from_buffers(self.kind, self.count, self.buffers(), children=[self.inner.build(cursor)])


class _Map(_Nested):
    """A map; one with a key twice is in doubt."""

    def __init__(self, step: Entries, inner: Column, walk: Walking) -> None:
        super().__init__(step, walk)
        self.inner = inner
        self.keys = Texts(Scalar("string", "string", t.VarChar(nullable=False)))

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        entries = self.elements(cursor, slots)
        for column in (self.keys, self.inner):
            column.start(len(entries), entries.owner)
            column.scan(entries, None)

    def build(self, cursor: Cursor) -> pa.Array:
        keys = self.keys.build(cursor)
        if keys.null_count:
            keys = keys.fill_null("")
        self.doubt(cursor, repeats(keys, np.diff(self.offsets)))
        fields = [self.kind.key_field, self.kind.item_field]
        both = pa.StructArray.from_arrays([keys, self.inner.build(cursor)], fields=fields)
        return pa.Array.from_buffers(self.kind, self.count, self.buffers(), children=[both])


class _Record(Column):
    """A record."""

    def __init__(self, step: Record) -> None:
        self.kind = arrow_type(step.column)
        kinds = {f.name: f.type for f in step.column.fields}
        self.names = step.column.names
        self.columns: dict[str, Column] = {}
        self.steps: list[Column | Passing | None] = []
        self.fixed = {name: pa.scalar(v, self.kind.field(name).type) for name, v in step.constants.items()}
        for inner, name in step.steps:
            if name is not None:
                self.columns[name] = column_of(inner, kinds[name])
                self.steps.append(self.columns[name])
                continue
            assert isinstance(inner, Skip)
            passed = passing(inner.type)
            self.steps.append(passed)
            self.hopeless = self.hopeless or passed is None
        self.hopeless = self.hopeless or any(c.hopeless for c in self.columns.values())

    def start(self, count: int, owner: Positions | None) -> None:
        super().start(count, owner)
        for column in self.columns.values():
            column.start(count, owner)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        for step in self.steps:
            if isinstance(step, Column):
                step.scan(cursor, slots)
            elif step is None:
                cursor.doubt_all()
            else:
                step(cursor)

    def build(self, cursor: Cursor) -> pa.Array:
        children = [
            self.columns[name].build(cursor) if name in self.columns else pa.repeat(self.fixed[name], self.count)
            for name in self.names
        ]
        return pa.Array.from_buffers(self.kind, self.count, [self.bits()], children=children)
