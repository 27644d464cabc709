"""Columns of Avro values without parts: numbers, texts, bytes, decimals, symbols."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.column import Column, Slots
from kdsl_formats._avro.cursor import Cursor
from kdsl_formats._avro.resolution import UNITS, Scalar
from kdsl_formats._columns.arrays import Longs, Mask, not_utf8, pieces

_LONG = (1 << 63) - 1
_LONG_DIGITS = 18


class Numbers(Column):
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


class Texts(Column):
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
        wrong = not_utf8(made) if pa.types.is_string(self.kind) else None
        if wrong is not None:
            self.doubt(cursor, wrong)
            made = self._made(data, ~wrong if self.valid is None else self.valid & ~wrong)
        return made

    def _made(self, data: npt.NDArray[np.uint8], present: Mask | None) -> pa.Array:
        return pieces(data, self.begin, self.begin + self.length, present, self.kind)


class Decimals(Column):
    """Decimals of up to sixteen bytes; longer and empty ones are in doubt.

    So are those of more than eight bytes where the scale on the wire is another one than the column's.
    """

    def __init__(self, step: Scalar) -> None:
        assert isinstance(step.column, t.Decimal)
        self.kind = arrow_type(step.column)
        self.size = step.size if step.wire == "fixed" else None
        self.bound = 10**step.column.precision
        self.shift = step.column.scale - step.scale
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
        if self.shift:
            low, high = self._rescaled(low, high, wrong)
        lost = self._too_large(low, high, wrong)
        cursor.doubt(wrong)
        slots = np.arange(self.count) if slots is None else slots
        self.halves = np.zeros((self.count, 2), dtype=np.int64)
        self.halves[slots, 0], self.halves[slots, 1] = low, high
        if lost is not None:
            self.valid = np.ones(self.count, dtype=bool)
            self.valid[slots[lost]] = False

    def _rescaled(self, low: Longs, high: Longs, wrong: Mask) -> tuple[Longs, Longs]:
        """The numbers with the column's scale, rounded half up."""
        if abs(self.shift) > _LONG_DIGITS:
            wrong |= True
            return low, high
        factor = 10 ** abs(self.shift)
        most = (_LONG // factor) if self.shift > 0 else _LONG - factor
        wrong |= (high != low >> 63) | (low > most) | (low < -most)
        low = np.where(wrong, 0, low)
        if self.shift > 0:
            low *= factor
        else:
            low = np.sign(low) * ((np.abs(low) + factor // 2) // factor)
        return low, low >> 63

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


class Symbols(Column):
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


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    """How numpy holds the values of an Arrow type."""
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_)
    if pa.types.is_floating(kind):
        return np.dtype(f"f{kind.bit_width // 8}")
    return np.dtype(f"i{kind.bit_width // 8}")
