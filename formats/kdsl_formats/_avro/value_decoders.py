"""The column decoders of Avro values without parts: numbers, strings, bytes, decimals, symbols."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.column_decoder import ColumnDecoder, Slots
from kdsl_formats._avro.cursor import Cursor
from kdsl_formats._avro.steps import UNITS, Scalar
from kdsl_formats._columns.arrays import Integers, Mask, find_invalid_utf8, slices
from kdsl_formats._columns.unscaled import LONGEST, decimal_array, exceeds_precision, read_numbers, rescale


class Numbers(ColumnDecoder):
    """Numbers, booleans, dates, times and timestamps."""

    def __init__(self, step: Scalar) -> None:
        self.step = step
        self.kind = arrow_type(step.column)
        self.dtype = _dtype(self.kind)
        self.values: npt.NDArray[Any] = np.zeros(0)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read the values at the cursor into the slots, and move it; for the fallback see `_read_values`."""
        values = self._read_values(cursor)
        if slots is None:
            self.values = values.astype(self.dtype, copy=False)
        else:
            self.values = np.zeros(self.count, dtype=self.dtype)
            self.values[slots] = values

    def _read_values(self, cursor: Cursor) -> npt.NDArray[Any]:
        """Read a number at each position, in the column's unit, and move the cursor after it.

        Bodies with integers that are too long, or out of the column's range, are marked for the fallback. Whether a
        number ends inside its body is not checked here.
        """
        match self.step.wire:
            case "boolean":
                flags: Mask = cursor.take_bytes() == 1
                return flags
            case "float":
                return cursor.take_words(4).astype(np.uint32).view(np.float32)
            case "double":
                return cursor.take_words(8).view(np.float64)
            case "int":
                return self._convert(cursor, cursor.take_ints())
            case _:
                return self._convert(cursor, cursor.take_longs())

    def _convert(self, cursor: Cursor, values: Integers) -> npt.NDArray[Any]:
        """Convert numbers to the column's unit; bodies with numbers out of range are marked for the fallback."""
        unit = self.step.unit
        match self.step.column:
            case t.TinyInt() | t.SmallInt():
                narrow = values.astype(self.dtype)
                cursor.mark_fallback(narrow != values)
                return narrow
            case t.Time():
                cursor.mark_fallback((values < 0) | (values >= 86_400_000_000_000 // unit))
                return values * unit
            case t.Timestamp() | t.TimestampLtz() if unit == UNITS["millis"]:
                largest = (1 << 63) // 1000 - 1
                cursor.mark_fallback((values > largest) | (values < -largest))
                return values * 1000
            case t.Timestamp() | t.TimestampLtz() if unit == UNITS["nanos"]:
                return values // 1000
            case _:
                return values

    def build(self, cursor: Cursor) -> pa.Array:
        """Build the array of the values that were read, NULL where they are not `valid`."""
        values = np.packbits(self.values, bitorder="little") if self.dtype == np.bool_ else self.values
        return pa.Array.from_buffers(self.kind, self.count, [self.bits(), pa.py_buffer(values)])


class Texts(ColumnDecoder):
    """Strings and bytes: spans of the buffer."""

    def __init__(self, step: Scalar) -> None:
        self.kind = arrow_type(step.column)
        self.size = step.size if step.wire == "fixed" else None
        self.begin = self.length = np.zeros(0, dtype=np.int64)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read the values at the cursor into the slots, and move it; unreadable bodies need the fallback."""
        begin, length = cursor.take_spans(size=self.size)
        if slots is None:
            self.begin, self.length = begin, length
        else:
            self.begin, self.length = (np.zeros(self.count, dtype=np.int64) for _ in range(2))
            self.begin[slots], self.length[slots] = begin, length

    def build(self, cursor: Cursor) -> pa.Array:
        """Build the array of the values that were read; bodies with invalid UTF-8 are marked for the fallback."""
        data = cursor.bodies.data
        array = self._slice_values(data, self.valid)
        wrong = find_invalid_utf8(array) if pa.types.is_string(self.kind) else None
        if wrong is not None:
            self.mark_fallback(cursor, wrong)
            array = self._slice_values(data, ~wrong if self.valid is None else self.valid & ~wrong)
        return array

    def _slice_values(self, data: npt.NDArray[np.uint8], present: Mask | None) -> pa.Array:
        """The spans as an Arrow array; NULL where not present (None: all are)."""
        return slices(data, self.begin, self.begin + self.length, present, self.kind)


class Decimals(ColumnDecoder):
    """Decimals of up to sixteen bytes; longer and empty ones need the fallback.

    If the scale on the wire differs from the column's, decimals of more than eight bytes need the fallback, too.
    """

    def __init__(self, step: Scalar) -> None:
        assert isinstance(step.column, t.Decimal)
        self.kind = arrow_type(step.column)
        self.size = step.size if step.wire == "fixed" else None
        self.precision = step.column.precision
        self.shift = step.column.scale - step.scale
        self.low = self.high = np.zeros(0, dtype=np.int64)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read the values at the cursor into the slots, and move it; unreadable bodies need the fallback.

        So do those with decimals of no bytes or more than `LONGEST`, or that are too large to rescale. Decimals with
        too many digits are NULL (`valid`), or need the fallback if the type has more than 18 digits.
        """
        begin, length = cursor.take_spans(size=self.size)
        wrong = (length < 1) | (length > LONGEST)
        low, high = read_numbers(cursor.bodies.words, begin, length)
        low, high = rescale(low, high, self.shift, wrong)
        lost = exceeds_precision(low, high, self.precision, wrong)
        cursor.mark_fallback(wrong)
        slots = np.arange(self.count) if slots is None else slots
        self.low, self.high = np.zeros(self.count, dtype=np.int64), np.zeros(self.count, dtype=np.int64)
        self.low[slots], self.high[slots] = low, high
        if lost is not None:
            self.valid = np.ones(self.count, dtype=bool)
            self.valid[slots[lost]] = False

    def build(self, cursor: Cursor) -> pa.Array:
        """Build the array of the values that were read, NULL where they are not `valid`."""
        return decimal_array(self.kind, self.low, self.high, self.bits())


class Symbols(ColumnDecoder):
    """The symbols of an enum.

    Args:
        symbols: The string of each symbol; bodies with a symbol that has None need the fallback.
    """

    def __init__(self, symbols: tuple[str | None, ...]) -> None:
        self.symbols = pa.array(symbols, pa.string())
        self.known = np.asarray(self.symbols.is_valid())
        self.indexes = np.zeros(0, dtype=np.int64)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read the values at the cursor into the slots, and move it; unreadable bodies need the fallback."""
        indexes = cursor.take_ints()
        wrong = (indexes < 0) | (indexes >= len(self.known))
        indexes[wrong] = 0
        wrong |= ~self.known[indexes] if len(self.known) else True
        cursor.mark_fallback(wrong)
        if slots is None:
            self.indexes = indexes
        else:
            self.indexes = np.zeros(self.count, dtype=np.int64)
            self.indexes[slots] = indexes

    def build(self, cursor: Cursor) -> pa.Array:
        """Build the array of the values that were read; all are NULL if the enum has no symbols."""
        if not len(self.symbols):
            return pa.nulls(self.count, pa.string())
        return self.symbols.take(pa.array(self.indexes, mask=None if self.valid is None else ~self.valid))


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    """The numpy type for the values of an Arrow type; ValueError for one without a fixed width."""
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_)
    if pa.types.is_floating(kind):
        return np.dtype(f"f{kind.bit_width // 8}")
    return np.dtype(f"i{kind.bit_width // 8}")
