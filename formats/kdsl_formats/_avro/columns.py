"""Whole columns of Avro bodies: each step of a resolution for many bodies at once, with numpy.

A column is started with its number of elements, reads once along a cursor, and is then built. Bodies of which it is in
doubt are marked in the cursor; the reference reads those. What is not in doubt equals the reference's answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.cursor import Cursor, Longs
from kdsl_formats._avro.resolution import (
    UNITS,
    Entries,
    Items,
    Null,
    Record,
    Scalar,
    Skip,
    Step,
    Symbol,
    Union,
)
from kdsl_formats._avro.skipping import Passing, Walking, entry_places, item_places, passing
from kdsl_formats._text.reading import Mask, Positions, bounds, content, pieces

Slots = Positions | None
"""For each place of a cursor the element it fills; None: all of them, in their order."""


class Column(ABC):
    """A column being read.

    Attributes:
        hopeless: Whether every body is in doubt.
        valid: Which elements are not NULL; None when all are.
    """

    hopeless = False
    valid: Mask | None = None

    def start(self, count: int, owner: Positions | None) -> None:
        """Make room.

        Args:
            count: How many elements the column has.
            owner: The body of each; None when there is one for each body.
        """
        self.count, self.owner, self.valid = count, owner, None

    @abstractmethod
    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read, once."""

    @abstractmethod
    def build(self, cursor: Cursor) -> pa.Array:
        """What was read; may find more doubts."""

    def bits(self) -> pa.Buffer | None:
        """The validity bitmap."""
        if self.valid is None or self.valid.all():
            return None
        return pa.py_buffer(np.packbits(self.valid, bitorder="little"))

    def doubt(self, cursor: Cursor, which: Mask) -> None:
        """Elements whose bodies are in doubt."""
        if which.any():
            cursor.bodies.doubts[which if self.owner is None else self.owner[which]] = True


def column_of(step: Step, kind: t.DataType) -> Column:
    """The column that a step fills."""
    match step:
        case Scalar(target="string"):
            return _Text(step)
        case Scalar(column=t.Binary() | t.VarBinary()):
            return _Text(step)
        case Scalar(column=t.Decimal(scale=scale)) if scale == step.scale:
            return _Decimal(step)
        case Scalar() if not isinstance(step.column, t.Decimal):
            return _Number(step)
        case Symbol(symbols=symbols):
            return _Symbol(symbols)
        case Union(branches=(inner,)):
            return _Nullable(column_of(inner, kind), 0, 1)
        case Union(branches=(Null(), inner)) if not isinstance(inner, Null):
            return _Nullable(column_of(inner, kind), 2, 2)
        case Union(branches=(inner, Null())) if not isinstance(inner, Null):
            return _Nullable(column_of(inner, kind), 0, 2)
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


class _Doubtful(Column):
    """What is not read by columns, and what fails."""

    hopeless = True

    def __init__(self, kind: t.DataType) -> None:
        self.kind = arrow_type(kind)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        cursor.doubt_all()

    def build(self, cursor: Cursor) -> pa.Array:
        return pa.nulls(self.count, self.kind)


class _Nullable(Column):
    """A union of null and one type, or of one type alone.

    Args:
        inner: The type's column.
        code: Twice the number of the type.
        types: How many types the union has.
    """

    def __init__(self, inner: Column, code: int, types: int) -> None:
        self.inner, self.code, self.types = inner, code, types
        self.hopeless = inner.hopeless and types == 1

    def start(self, count: int, owner: Positions | None) -> None:
        super().start(count, owner)
        self.inner.start(count, owner)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        found = cursor.branch(self.types) == self.code
        if found.all():
            self.inner.scan(cursor, slots)
            return
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


class _Number(Column):
    """Numbers, booleans, dates, times and timestamps."""

    def __init__(self, step: Scalar) -> None:
        self.step = step
        self.kind = arrow_type(step.column)
        self.dtype = _dtype(self.kind)
        self.values: npt.NDArray[Any] = np.zeros(0)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        found = self._found(cursor)
        if slots is None:
            self.values = found.astype(self.dtype, copy=False)
        else:
            self.values = np.zeros(self.count, dtype=self.dtype)
            self.values[slots] = found

    def _found(self, cursor: Cursor) -> npt.NDArray[Any]:
        match self.step.wire:
            case "boolean":
                flags: Mask = cursor.bytes() == 1
                return flags
            case "float":
                return cursor.words(4).astype(np.uint32).view(np.float32)
            case "double":
                return cursor.words(8).view(np.float64)
            case "int":
                return self._fitting(cursor, cursor.ints())
            case _:
                return self._fitting(cursor, cursor.longs())

    def _fitting(self, cursor: Cursor, found: Longs) -> npt.NDArray[Any]:
        unit = self.step.unit
        match self.step.column:
            case t.TinyInt() | t.SmallInt():
                narrow = found.astype(self.dtype)
                cursor.doubt(narrow != found)
                return narrow
            case t.Time():
                cursor.doubt((found < 0) | (found >= 86_400_000_000_000 // unit))
                return found * unit
            case t.Timestamp() | t.TimestampLtz() if unit == UNITS["millis"]:
                most = (1 << 63) // 1000 - 1
                cursor.doubt((found > most) | (found < -most))
                return found * 1000
            case t.Timestamp() | t.TimestampLtz() if unit == UNITS["nanos"]:
                return found // 1000
            case _:
                return found

    def build(self, cursor: Cursor) -> pa.Array:
        values = np.packbits(self.values, bitorder="little") if self.dtype == np.bool_ else self.values
        return pa.Array.from_buffers(self.kind, self.count, [self.bits(), pa.py_buffer(values)])


class _Text(Column):
    """Texts and bytes: stretches of the buffer."""

    def __init__(self, step: Scalar) -> None:
        self.kind = arrow_type(step.column)
        self.size = step.size if step.wire == "fixed" else None
        self.begin = self.length = np.zeros(0, dtype=np.int64)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        begin, length = cursor.spans(size=self.size)
        if slots is None:
            self.begin, self.length = begin, length
        else:
            self.begin, self.length = (np.zeros(self.count, dtype=np.int64) for _ in range(2))
            self.begin[slots], self.length[slots] = begin, length

    def build(self, cursor: Cursor) -> pa.Array:
        data = cursor.bodies.data
        made = self._made(data, self.valid)
        if pa.types.is_string(self.kind) and not _is_utf8(made):
            wrong = self._not_utf8(made)
            self.doubt(cursor, wrong)
            made = self._made(data, ~wrong if self.valid is None else self.valid & ~wrong)
        return made

    def _made(self, data: npt.NDArray[np.uint8], present: Mask | None) -> pa.Array:
        return pieces(data, self.begin, self.begin + self.length, present, self.kind)

    def _not_utf8(self, made: pa.Array) -> Mask:
        start, end = bounds(made)
        data = content(made)
        high = np.flatnonzero(data >= 0x80)
        some = np.flatnonzero(np.searchsorted(high, start) < np.searchsorted(high, end))
        wrong = np.zeros(self.count, dtype=bool)
        for i in some.tolist():
            try:
                bytes(data[start[i] : end[i]]).decode()
            except UnicodeDecodeError:
                wrong[i] = True
        return wrong


class _Decimal(Column):
    """Decimals of up to sixteen bytes; longer and empty ones are in doubt."""

    def __init__(self, step: Scalar) -> None:
        assert isinstance(step.column, t.Decimal)
        self.kind = arrow_type(step.column)
        self.size = step.size if step.wire == "fixed" else None
        self.bound = 10**step.column.precision
        self.halves = np.zeros((0, 2), dtype=np.int64)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        begin, length = cursor.spans(size=self.size)
        wrong = (length < 1) | (length > 16)
        words = cursor.bodies.words
        low = _signed(words[begin], np.minimum(length, 8))
        high = low >> 63
        long = np.flatnonzero((length > 8) & ~wrong)
        if long.size:
            more = length[long] - 8
            high[long] = _signed(words[begin[long]], more)
            low[long] = words[begin[long] + more].byteswap().view(np.int64)
        lost = self._too_large(low, high, wrong)
        cursor.doubt(wrong)
        slots = np.arange(self.count) if slots is None else slots
        self.halves = np.zeros((self.count, 2), dtype=np.int64)
        self.halves[slots, 0], self.halves[slots, 1] = low, high
        if lost is not None:
            self.valid = np.ones(self.count, dtype=bool)
            self.valid[slots[lost]] = False

    def _too_large(self, low: Longs, high: Longs, wrong: Mask) -> Mask | None:
        """Which numbers have too many digits; where that is hard to say they are in doubt."""
        if self.bound <= 1 << 63:
            wrong |= high != low >> 63
            lost = (low >= self.bound) | (low <= -self.bound)
            return lost if lost.any() else None
        most = self.bound >> 64
        wrong |= (high >= most) | (high < -most) if most else high != low >> 63
        return None

    def build(self, cursor: Cursor) -> pa.Array:
        return pa.Array.from_buffers(self.kind, self.count, [self.bits(), pa.py_buffer(self.halves)])


def _signed(words: npt.NDArray[np.uint64], size: Longs) -> Longs:
    """The signed numbers that the first bytes of words are, the highest byte first; of no bytes it is nothing."""
    made: Longs = words.byteswap().view(np.int64) >> (64 - 8 * np.maximum(size, 1))
    return made


class _Symbol(Column):
    """The symbols of an enum."""

    def __init__(self, symbols: tuple[str | None, ...]) -> None:
        self.symbols = pa.array(symbols, pa.string())
        self.known = np.asarray(self.symbols.is_valid())
        self.places = np.zeros(0, dtype=np.int64)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        found = cursor.ints()
        wrong = (found < 0) | (found >= len(self.known))
        found[wrong] = 0
        wrong |= ~self.known[found] if len(self.known) else True
        cursor.doubt(wrong)
        if slots is None:
            self.places = found
        else:
            self.places = np.zeros(self.count, dtype=np.int64)
            self.places[slots] = found

    def build(self, cursor: Cursor) -> pa.Array:
        if not len(self.symbols):
            return pa.nulls(self.count, pa.string())
        return self.symbols.take(pa.array(self.places, mask=None if self.valid is None else ~self.valid))


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
        self.keys = _Text(Scalar("string", "string", t.VarChar(nullable=False)))

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        entries = self.elements(cursor, slots)
        for column in (self.keys, self.inner):
            column.start(len(entries), entries.owner)
            column.scan(entries, None)

    def build(self, cursor: Cursor) -> pa.Array:
        keys = self.keys.build(cursor)
        if keys.null_count:
            keys = keys.fill_null("")
        self._doubt_repeats(cursor, keys)
        fields = [self.kind.key_field, self.kind.item_field]
        both = pa.StructArray.from_arrays([keys, self.inner.build(cursor)], fields=fields)
        return pa.Array.from_buffers(self.kind, self.count, self.buffers(), children=[both])

    def _doubt_repeats(self, cursor: Cursor, keys: pa.Array) -> None:
        size = np.diff(self.offsets)
        if not (size > 1).any():
            return
        found = keys.dictionary_encode()
        names = np.asarray(found.indices).astype(np.int64)
        maps = np.repeat(np.arange(self.count), size)
        order = np.lexsort((names, maps))
        again = (np.diff(names[order]) == 0) & (np.diff(maps[order]) == 0)
        which = np.zeros(self.count, dtype=bool)
        which[maps[order][1:][again]] = True
        self.doubt(cursor, which)


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


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    """How numpy holds the values of an Arrow type."""
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_)
    if pa.types.is_floating(kind):
        return np.dtype(f"f{kind.bit_width // 8}")
    return np.dtype(f"i{kind.bit_width // 8}")


def _is_utf8(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
