"""The column encoders of Avro values without parts: numbers, floats, strings, bytes, symbols, decimals."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl_formats._avro.output import (
    GAP,
    ColumnEncoder,
    FallbackMask,
    OutputBuffer,
    put_spans,
    put_varints,
    zigzag_varints,
)
from kdsl_formats._avro.write_steps import Value
from kdsl_formats._columns.arrays import Bytes, Integers, content, find_bounds
from kdsl_formats._columns.unscaled import byte_sizes

_LONG = (1 << 63) - 1
_LONG_DIGITS = 18
_HALF = 8  # bytes


def _view_values(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """View the values of an array of fixed width, without a copy; those of NULL elements are undefined."""
    width = np.dtype(dtype).itemsize
    values: npt.NDArray[Any] = np.frombuffer(
        array.buffers()[1], dtype=dtype, count=len(array), offset=array.offset * width
    )
    return values


class Numbers(ColumnEncoder):
    """Integers, dates, times and timestamps."""

    def __init__(self, step: Value) -> None:
        self.step = step
        self.raw, self.size = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)

    def measure(self, array: pa.Array, fallback: FallbackMask) -> Integers:
        """Store the elements, and return the number of bytes of each.

        Rows with NULL, and those with timestamps out of the range of the schema's unit, are marked for the fallback.
        """
        fallback.nulls(array)
        values = _view_values(array, f"<i{array.type.bit_width // 8}").astype(np.int64)
        match self.step.column:
            case t.Time():
                values = values // self.step.unit
            case t.Timestamp() | t.TimestampLtz() if self.step.unit < 1000:
                factor = 1000 // self.step.unit
                fallback.add((values > _LONG // factor) | (values < -(_LONG // factor)))
                values = values * factor
            case t.Timestamp() | t.TimestampLtz() if self.step.unit > 1000:
                values = values // (self.step.unit // 1000)
        self.raw, self.size = zigzag_varints(values)
        return self.size

    def put(self, out: OutputBuffer, at: Integers) -> None:
        """Write the stored elements, and move the positions after them, in place."""
        put_varints(out, at, self.raw, self.size)


class FixedWidths(ColumnEncoder):
    """Values of one width: BOOLEAN, FLOAT and DOUBLE, as words whose lowest bytes are written."""

    def __init__(self) -> None:
        self.word, self.size = np.zeros(0, dtype=np.uint64), 0

    def measure(self, array: pa.Array, fallback: FallbackMask) -> Integers:
        """Store the elements, and return the number of bytes of each: 1, 4 or 8, also for NULL.

        Rows with NULL are marked for the fallback.
        """
        fallback.nulls(array)
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.uint8())
        self.size = array.type.bit_width // 8
        self.word = _view_values(array, f"<u{self.size}").astype(np.uint64)
        return np.full(len(array), self.size, dtype=np.int64)

    def put(self, out: OutputBuffer, at: Integers) -> None:
        """Write the stored elements, and move the positions after them, in place."""
        out.words[at] = self.word
        at += self.size


class Texts(ColumnEncoder):
    """Strings and bytes.

    Args:
        size: The length of a fixed in bytes; values of another length need the fallback.
    """

    def __init__(self, size: int | None = None) -> None:
        self.fixed = size
        self.data: Bytes = np.zeros(0, dtype=np.uint8)
        self.begin = self.length = self.size = np.zeros(0, dtype=np.int64)
        self.raw = np.zeros(0, dtype=np.uint64)

    def measure(self, array: pa.Array, fallback: FallbackMask) -> Integers:
        """Store the elements, and return the number of bytes of each.

        Rows with NULL, or with another length than a fixed has, are marked for the fallback.
        """
        fallback.nulls(array)
        begin, end = find_bounds(array)
        self.begin, self.length = begin.astype(np.int64), (end - begin).astype(np.int64)
        self.data = np.concatenate([content(array), np.zeros(GAP, dtype=np.uint8)])
        if self.fixed is not None:
            fallback.add(self.length != self.fixed)
            return self.length
        self.raw, self.size = zigzag_varints(self.length)
        return self.size + self.length

    def put(self, out: OutputBuffer, at: Integers) -> None:
        """Write all stored elements, also those that need the fallback, and move the positions after them, in place."""
        if self.fixed is None:
            put_varints(out, at, self.raw, self.size)
        put_spans(out, at, self.data, self.begin, self.length)


class Symbols(ColumnEncoder):
    """The symbols of an enum."""

    def __init__(self, symbols: tuple[str, ...]) -> None:
        self.symbols = pa.array(symbols, pa.string())
        self.raw, self.size = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)

    def measure(self, array: pa.Array, fallback: FallbackMask) -> Integers:
        """Store the indices of the symbols, and return the number of bytes of each.

        Rows with NULL, or with a string that is not a symbol, are marked for the fallback.
        """
        fallback.nulls(array)
        indexes = pc.index_in(array, value_set=self.symbols)
        fallback.nulls(indexes)
        if indexes.null_count:
            indexes = pc.fill_null(indexes, 0)
        self.raw, self.size = zigzag_varints(np.asarray(indexes).astype(np.int64))
        return self.size

    def put(self, out: OutputBuffer, at: Integers) -> None:
        """Write the stored elements, and move the positions after them, in place."""
        put_varints(out, at, self.raw, self.size)


class Decimals(ColumnEncoder):
    """Decimals, big-endian, in as few bytes as possible or in the length of a fixed.

    If the schema's scale differs from the column's, decimals of more than eight bytes need the fallback.
    """

    def __init__(self, step: Value) -> None:
        assert isinstance(step.column, t.Decimal)
        self.shift = step.scale - step.column.scale
        self.fixed = step.size if step.wire == "fixed" else None
        self.low = self.high = self.size = np.zeros(0, dtype=np.int64)

    def measure(self, array: pa.Array, fallback: FallbackMask) -> Integers:
        """Store the elements, and return the number of bytes of each.

        Rows with NULL, those with too many bytes for a fixed, and those of `_rescale` are marked for the fallback.
        """
        fallback.nulls(array)
        halves = np.frombuffer(array.buffers()[1], dtype="<i8", count=2 * len(array), offset=16 * array.offset)
        self.low, self.high = halves[::2], halves[1::2]
        if self.shift:
            self._rescale(fallback)
        self.size = byte_sizes(self.low)
        wide = np.flatnonzero(self.high != self.low >> 63)
        self.size[wide] = _HALF + byte_sizes(self.high[wide])
        if self.fixed is None:
            return self.size + 1
        fallback.add(self.size > self.fixed)
        self.size[:] = min(self.fixed, 2 * _HALF)
        return np.full(len(array), self.fixed)

    def _rescale(self, fallback: FallbackMask) -> None:
        """Convert the stored numbers to the schema's scale.

        Rows whose numbers would lose digits, or have more than eight bytes before or after, need the fallback and are
        marked; so are all numbers but 0 if the scales differ by more than 18.
        """
        factor = 10 ** min(abs(self.shift), _LONG_DIGITS)
        wrong = self.high != self.low >> 63
        if self.shift > 0:
            wrong |= (self.low > _LONG // factor) | (self.low < -(_LONG // factor))
            scaled = self.low * factor
        else:
            scaled, rest = np.divmod(self.low, factor)
            wrong |= rest != 0
        if abs(self.shift) > _LONG_DIGITS:
            wrong |= self.low != 0
        fallback.add(wrong)
        self.low, self.high = scaled, scaled >> 63

    def put(self, out: OutputBuffer, at: Integers) -> None:
        """Write the stored elements, and move the positions after them, in place."""
        if self.fixed is None:
            out.data[at] = 2 * self.size
            at += 1
        elif self.fixed > 2 * _HALF:
            sign = (self.high >> 63).astype(np.uint8)
            for _ in range(self.fixed - 2 * _HALF):
                out.data[at] = sign
                at += 1
        wide = np.flatnonzero(self.size > _HALF)
        narrow = np.minimum(self.size, _HALF)
        low = self.low.view(np.uint64)
        out.words[at] = (low << (64 - 8 * narrow).astype(np.uint64)).byteswap()
        if wide.size:
            more = self.size[wide] - _HALF
            high = np.ascontiguousarray(self.high[wide]).view(np.uint64)
            out.words[at[wide]] = (high << (64 - 8 * more).astype(np.uint64)).byteswap()
            out.words[at[wide] + more] = low[wide].byteswap()
        at += self.size
