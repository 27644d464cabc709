"""Whole columns to Avro bodies, with numpy.

A column is measured first: how many bytes each element has. Then all columns of a row are put, from first to last, each
behind the one before it, by words of eight bytes: what a word has too much is overwritten by the next column, or lies
in the gap behind the row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl_formats._avro.hash_map import java_orders
from kdsl_formats._avro.target import ArrayOf, MapOf, Optional, RecordOf, Target, Value
from kdsl_formats._text.reading import bounds, content, pieces

Longs = npt.NDArray[np.int64]
Raw = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

GAP = 8
MOST = 2**31 - 1 - 2 * GAP  # bytes: what the offsets of an array can name
LONG = 256  # bytes; a longer text is copied by itself
_ONE = np.uint64(1)
_HIGH = np.uint64(0x8080808080808080)


class Doubt(Exception):  # noqa: N818 - no error: the other writer knows
    """Something that is not written by columns, or not at all."""


class Column(ABC):
    """A column being written."""

    @abstractmethod
    def measure(self, array: pa.Array) -> Longs:
        """How many bytes each element has.

        Raises:
            Doubt: There is an element that is not written by columns.
        """

    @abstractmethod
    def put(self, out: Room, at: Longs) -> None:
        """Put the elements that were measured last; moves the places behind them."""


class Room:
    """The buffer that bodies are put in.

    Args:
        size: How many bytes it has, with all gaps.
    """

    def __init__(self, size: int) -> None:
        self.data: Bytes = np.empty(size + 2 * GAP, dtype=np.uint8)
        self.words: Raw = np.ndarray((size + GAP,), dtype="<u8", buffer=self.data, strides=(1,))


def body_column(target: Target) -> Column:
    """What writes a column; it raises `Doubt` for what is not written by columns."""
    match target:
        case Optional(inner=inner, branch=branch, null=null) if branch >= 0:
            return _Optional(body_column(inner), branch, null)
        case RecordOf(fields=fields):
            return _Record([(name, body_column(inner)) for name, inner in fields])
        case ArrayOf(inner=inner):
            return _Array(body_column(inner))
        case MapOf(inner=inner):
            return _Map(body_column(inner))
        case Value(wire="enum", symbols=symbols):
            return _Symbol(symbols)
        case Value(wire="string" | "bytes", column=column) if not isinstance(column, t.Decimal):
            return _Text()
        case Value(wire="bytes", column=t.Decimal(scale=scale), scale=wire_scale) if scale == wire_scale:
            return _Decimal()
        case Value(wire="boolean" | "float" | "double"):
            return _Fixed()
        case Value(wire="int" | "long"):
            return _Number(target)
    return _Doubtful()


def bodies(column: Column, array: pa.Array) -> pa.BinaryArray:
    """The bodies of an array's elements.

    Raises:
        Doubt: There is an element that is not written by columns.
    """
    size = column.measure(array)
    behind = np.cumsum(size + GAP)
    start = behind - size - GAP
    if len(behind) and behind[-1] > MOST:
        raise Doubt
    out = Room(int(behind[-1]) if len(behind) else 0)
    column.put(out, start.copy())
    return pieces(out.data, start, start + size, None, pa.binary())


def varints(values: Longs) -> tuple[Raw, Longs]:
    """Zig-zag numbers, and how many bytes of variable length each has."""
    raw = ((values << 1) ^ (values >> 63)).view(np.uint64)
    size = np.ones(len(raw), dtype=np.int64)
    most = int(raw.max()) if len(raw) else 0
    bits = 7
    while most >> bits:
        size += raw >= np.uint64(1 << bits)
        bits += 7
    return raw, size


def put_varints(out: Room, at: Longs, raw: Raw, size: Longs) -> None:
    """Put numbers that were measured; moves the places behind them."""
    most = int(size.max()) if len(size) else 1
    if most == 1:
        out.words[at] = raw
        at += 1
        return
    word = _spread(raw)
    word |= _HIGH & ((_ONE << (np.minimum(size - 1, 7).astype(np.uint64) << np.uint64(3))) - _ONE)
    out.words[at] = word
    if most > 8:
        which = np.flatnonzero(size > 8)
        out.words[at[which]] |= _HIGH
        rest = raw[which] >> np.uint64(56)
        more = size[which] == 10
        out.words[at[which] + 8] = np.where(
            more, (rest & np.uint64(0x7F)) | np.uint64(0x80) | (rest >> np.uint64(7) << np.uint64(8)), rest
        )
    at += size


def _spread(raw: Raw) -> Raw:
    """The lowest 56 bits by groups of seven, each in a byte of its own."""
    word = (raw & np.uint64(0x000000000FFFFFFF)) | ((raw & np.uint64(0x00FFFFFFF0000000)) << np.uint64(4))
    word = (word & np.uint64(0x00003FFF00003FFF)) | ((word & np.uint64(0x0FFFC0000FFFC000)) << np.uint64(2))
    return (word & np.uint64(0x007F007F007F007F)) | ((word & np.uint64(0x3F803F803F803F80)) << _ONE)


def copy(out: Room, at: Longs, data: Bytes, begin: Longs, size: Longs) -> None:
    """Put stretches of a buffer; moves the places behind them.

    Args:
        out: Where they are put.
        at: The places.
        data: A buffer with at least eight bytes behind the last stretch.
        begin: Where each stretch begins in it.
        size: How many bytes each has.
    """
    words: Raw = np.ndarray((max(len(data) - 7, 0),), dtype="<u8", buffer=data, strides=(1,))
    some = np.flatnonzero((size > 0) & (size <= LONG))
    source, place, left = begin[some], at[some], size[some]
    while len(some):
        out.words[place] = words[source]
        more = left > 8
        if not more.all():
            source, place, left, some = source[more], place[more], left[more], some[more]
        source, place, left = source + 8, place + 8, left - 8
    for i in np.flatnonzero(size > LONG).tolist():
        out.data[at[i] : at[i] + size[i]] = data[begin[i] : begin[i] + size[i]]
    at += size


def _whole(array: pa.Array) -> None:
    """Refuse NULL.

    Raises:
        Doubt: There is one.
    """
    if array.null_count:
        raise Doubt


def _numpy(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The values of an array of fixed width without NULL."""
    width = np.dtype(dtype).itemsize
    found: npt.NDArray[Any] = np.frombuffer(
        array.buffers()[1], dtype=dtype, count=len(array), offset=array.offset * width
    )
    return found


class _Doubtful(Column):
    """What is not written by columns."""

    def measure(self, array: pa.Array) -> Longs:
        if len(array):
            raise Doubt
        return np.zeros(0, dtype=np.int64)

    def put(self, out: Room, at: Longs) -> None:
        pass


class _Optional(Column):
    """A union of one type and maybe null."""

    def __init__(self, inner: Column, branch: int, null: int | None) -> None:
        self.inner, self.branch, self.null = inner, 2 * branch, null
        self.which: npt.NDArray[np.intp] | None = None

    def measure(self, array: pa.Array) -> Longs:
        if not array.null_count:
            self.which = None
            return self.inner.measure(array) + 1
        if self.null is None:
            raise Doubt
        self.which = np.flatnonzero(np.asarray(array.is_valid()))
        size = np.ones(len(array), dtype=np.int64)
        size[self.which] += self.inner.measure(array.take(pa.array(self.which)))
        return size

    def put(self, out: Room, at: Longs) -> None:
        if self.which is None:
            out.data[at] = self.branch
            at += 1
            self.inner.put(out, at)
            return
        assert self.null is not None
        out.data[at] = 2 * self.null
        some = at[self.which]
        out.data[some] = self.branch
        some += 1
        at += 1
        self.inner.put(out, some)
        at[self.which] = some


class _Record(Column):
    """A record."""

    def __init__(self, fields: list[tuple[str, Column]]) -> None:
        self.fields = fields

    def measure(self, array: pa.Array) -> Longs:
        _whole(array)
        size = np.zeros(len(array), dtype=np.int64)
        for name, column in self.fields:
            size += column.measure(pc.struct_field(array, name))
        return size

    def put(self, out: Room, at: Longs) -> None:
        for _, column in self.fields:
            column.put(out, at)


class _Number(Column):
    """Integers, dates, times and timestamps."""

    def __init__(self, target: Value) -> None:
        self.target = target
        self.raw, self.size = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)

    def measure(self, array: pa.Array) -> Longs:
        _whole(array)
        values = _numpy(array, f"<i{array.type.bit_width // 8}").astype(np.int64)
        match self.target.column:
            case t.Time():
                values = values // self.target.unit
            case t.Timestamp() | t.TimestampLtz() if self.target.unit < 1000:
                raise Doubt
            case t.Timestamp() | t.TimestampLtz() if self.target.unit > 1000:
                values = values // (self.target.unit // 1000)
        self.raw, self.size = varints(values)
        return self.size

    def put(self, out: Room, at: Longs) -> None:
        put_varints(out, at, self.raw, self.size)


class _Fixed(Column):
    """Booleans and floats."""

    def __init__(self) -> None:
        self.word, self.size = np.zeros(0, dtype=np.uint64), 0

    def measure(self, array: pa.Array) -> Longs:
        _whole(array)
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.uint8())
        self.size = array.type.bit_width // 8
        self.word = _numpy(array, f"<u{self.size}").astype(np.uint64)
        return np.full(len(array), self.size, dtype=np.int64)

    def put(self, out: Room, at: Longs) -> None:
        out.words[at] = self.word
        at += self.size


class _Text(Column):
    """Texts and bytes."""

    def __init__(self) -> None:
        self.data: Bytes = np.zeros(0, dtype=np.uint8)
        self.begin = self.length = self.size = np.zeros(0, dtype=np.int64)
        self.raw = np.zeros(0, dtype=np.uint64)

    def measure(self, array: pa.Array) -> Longs:
        _whole(array)
        begin, end = bounds(array)
        self.begin, self.length = begin.astype(np.int64), (end - begin).astype(np.int64)
        self.data = np.concatenate([content(array), np.zeros(GAP, dtype=np.uint8)])
        self.raw, self.size = varints(self.length)
        return self.size + self.length

    def put(self, out: Room, at: Longs) -> None:
        put_varints(out, at, self.raw, self.size)
        copy(out, at, self.data, self.begin, self.length)


class _Symbol(Column):
    """The symbols of an enum."""

    def __init__(self, symbols: tuple[str, ...]) -> None:
        self.symbols = pa.array(symbols, pa.string())
        self.raw, self.size = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)

    def measure(self, array: pa.Array) -> Longs:
        _whole(array)
        places = pc.index_in(array, value_set=self.symbols)
        _whole(places)
        self.raw, self.size = varints(np.asarray(places).astype(np.int64))
        return self.size

    def put(self, out: Room, at: Longs) -> None:
        put_varints(out, at, self.raw, self.size)


class _Decimal(Column):
    """Decimals: as few bytes as hold the number, the highest first."""

    def __init__(self) -> None:
        self.low = self.high = self.size = np.zeros(0, dtype=np.int64)

    def measure(self, array: pa.Array) -> Longs:
        _whole(array)
        halves = np.frombuffer(array.buffers()[1], dtype="<i8", count=2 * len(array), offset=16 * array.offset)
        self.low, self.high = halves[::2], halves[1::2]
        self.size = _signed_size(self.low)
        wide = np.flatnonzero(self.high != self.low >> 63)
        self.size[wide] = 8 + _signed_size(self.high[wide])
        return self.size + 1

    def put(self, out: Room, at: Longs) -> None:
        out.data[at] = 2 * self.size
        at += 1
        wide = np.flatnonzero(self.size > 8)
        narrow = np.minimum(self.size, 8)
        low = self.low.view(np.uint64)
        out.words[at] = (low << (64 - 8 * narrow).astype(np.uint64)).byteswap()
        if wide.size:
            more = self.size[wide] - 8
            high = np.ascontiguousarray(self.high[wide]).view(np.uint64)
            out.words[at[wide]] = (high << (64 - 8 * more).astype(np.uint64)).byteswap()
            out.words[at[wide] + more] = low[wide].byteswap()
        at += self.size


def _signed_size(values: Longs) -> Longs:
    """How many bytes hold each number and its sign."""
    found = values ^ (values >> 63)
    size = np.ones(len(found), dtype=np.int64)
    most = int(found.max()) if len(found) else 0
    bits = 7
    while most >> bits:
        size += found >= 1 << bits
        bits += 8
    return size


class _Array(Column):
    """Arrays: their items are written as bodies, which then are copied as one stretch."""

    def __init__(self, inner: Column) -> None:
        self.inner = inner
        self.data: Bytes = np.zeros(0, dtype=np.uint8)
        self.begin = self.length = self.size = np.zeros(0, dtype=np.int64)
        self.raw = np.zeros(0, dtype=np.uint64)

    def measure(self, array: pa.Array) -> Longs:
        _whole(array)
        first, last = _offsets(array)
        made = bodies(self.inner, self.elements(array, first, last))
        begin, end = bounds(made)
        ends = np.append(begin, end[-1] if len(end) else 0).astype(np.int64)
        self.begin, counts = ends[first - first[0]] if len(first) else first, last - first
        self.length = (ends[last - first[0]] if len(first) else last) - self.begin
        self.data = np.concatenate([content(made), np.zeros(GAP, dtype=np.uint8)])
        self.raw, self.size = varints(counts)
        return self.size + self.length + (counts > 0)

    def elements(self, array: pa.Array, first: Longs, last: Longs) -> pa.Array:
        """The elements of all arrays, one behind the other."""
        values = array.values
        return values.slice(int(first[0]), int(last[-1] - first[0])) if len(first) else values.slice(0, 0)

    def put(self, out: Room, at: Longs) -> None:
        empty = self.raw == 0
        put_varints(out, at, self.raw, self.size)
        copy(out, at, self.data, self.begin, self.length)
        out.data[at] = 0
        at += ~empty


def _offsets(array: pa.Array) -> tuple[Longs, Longs]:
    """Where the elements of each array or map begin and end among those of all."""
    found = np.frombuffer(array.buffers()[1], dtype="<i4", count=len(array) + 1, offset=4 * array.offset).astype(
        np.int64
    )
    return found[:-1], found[1:]


class _Map(_Array):
    """Maps, in the order of Java's HashMap."""

    def __init__(self, inner: Column) -> None:
        super().__init__(_Record([("key", _Text()), ("value", inner)]))

    def elements(self, array: pa.Array, first: Longs, last: Longs) -> pa.Array:
        begin, size = (int(first[0]), int(last[-1] - first[0])) if len(first) else (0, 0)
        keys, values = array.keys.slice(begin, size), array.items.slice(begin, size)
        counts = last - first
        if (counts > 1).any():
            order = java_orders(keys, counts)
            if order is None:
                raise Doubt
            keys, values = keys.take(pa.array(order)), values.take(pa.array(order))
        return pa.StructArray.from_arrays([keys, values], ["key", "value"])
