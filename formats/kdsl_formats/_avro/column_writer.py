"""Whole columns to Avro bodies, with numpy.

A column is measured first: how many bytes each element has. Then all columns of a row are put, from first to last, each
behind the one before it, by words of eight bytes: what a word has too much is overwritten by the next column, or lies
in the gap behind the row. Rows of which a column is in doubt are marked, and written by the reference.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl_formats._avro.hash_map import java_orders
from kdsl_formats._avro.room import GAP, Column, Doubts, Room, copy, put_varints, varints
from kdsl_formats._avro.target import ArrayOf, Choice, MapOf, Nothing, Optional, RecordOf, Target, Value
from kdsl_formats._avro.value_writers import Decimals, Floats, Numbers, Symbols, Texts
from kdsl_formats._columns.arrays import Bytes, Longs, bounds, content, pieces

MOST = 2**31 - 1 - 2 * GAP  # bytes: what the offsets of an array can name
ONE_BYTE = 64  # types of a union, whose numbers have one byte


class TooLargeError(Exception):
    """The bodies are more bytes than one array can hold."""


def body_column(target: Target) -> Column:
    """What writes a column."""
    match target:
        case Optional(inner=Nothing(), null=null):
            return _Nothing(null)
        case Nothing():
            return _Nothing(None)
        case Optional(inner=inner, branch=branch, null=null):
            return _Optional(body_column(inner), branch, null)
        case Choice(members=members, null=null) if len(members) < ONE_BYTE:
            return _Choice([(name, body_column(inner), branch) for name, inner, branch, _ in members], null)
        case RecordOf(fields=fields):
            return _Record([(name, body_column(inner)) for name, inner in fields])
        case ArrayOf(inner=inner):
            return _Array(body_column(inner))
        case MapOf(inner=inner):
            return _Map(body_column(inner))
        case Value():
            return _value(target)
    return _Doubtful()


def _value(target: Value) -> Column:
    if isinstance(target.column, t.Decimal):
        return Decimals(target)
    match target.wire:
        case "enum":
            return Symbols(target.symbols)
        case "string" | "bytes":
            return Texts()
        case "fixed":
            return Texts(target.size)
        case "boolean" | "float" | "double":
            return Floats()
        case _:
            return Numbers(target)


def bodies(column: Column, array: pa.Array, doubts: Doubts) -> pa.BinaryArray:
    """The bodies of an array's elements; those of rows in doubt mean nothing.

    Raises:
        TooLargeError: They are more than one array can hold.
    """
    size = column.measure(array, doubts)
    behind = np.cumsum(size + GAP)
    start = behind - size - GAP
    if len(behind) and behind[-1] > MOST:
        raise TooLargeError
    out = Room(int(behind[-1]) if len(behind) else 0)
    column.put(out, start.copy())
    return pieces(out.data, start, start + size, None, pa.binary())


class _Doubtful(Column):
    """What is not written by columns."""

    def measure(self, array: pa.Array, doubts: Doubts) -> Longs:
        doubts.add(np.ones(len(array), dtype=bool))
        return np.zeros(len(array), dtype=np.int64)

    def put(self, out: Room, at: Longs) -> None:
        pass


class _Nothing(Column):
    """The type null, alone or as the only one of a union, where it has a number."""

    def __init__(self, number: int | None) -> None:
        self.number = number

    def measure(self, array: pa.Array, doubts: Doubts) -> Longs:
        doubts.add(np.asarray(array.is_valid()))
        return np.full(len(array), 0 if self.number is None else 1)

    def put(self, out: Room, at: Longs) -> None:
        if self.number is not None:
            out.data[at] = 2 * self.number
            at += 1


class _Optional(Column):
    """A union of one type and maybe null."""

    def __init__(self, inner: Column, branch: int, null: int | None) -> None:
        self.inner, self.branch, self.null = inner, 2 * branch, null
        self.which: npt.NDArray[np.intp] | None = None

    def measure(self, array: pa.Array, doubts: Doubts) -> Longs:
        if not array.null_count or self.null is None:
            self.which = None
            return self.inner.measure(array, doubts) + 1
        self.which = np.flatnonzero(np.asarray(array.is_valid()))
        size = np.ones(len(array), dtype=np.int64)
        size[self.which] += self.inner.measure(array.take(pa.array(self.which)), doubts.pick(self.which))
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


class _Choice(Column):
    """A union of several types, whose column is a row with a member for each.

    Args:
        members: The name, the column and the number of each type.
        null: The number of null.
    """

    def __init__(self, members: list[tuple[str, Column, int]], null: int | None) -> None:
        self.members, self.null = members, null
        self.chosen: list[npt.NDArray[np.intp]] = []

    def measure(self, array: pa.Array, doubts: Doubts) -> Longs:
        values = [pc.struct_field(array, name) for name, _, _ in self.members]
        given = [np.asarray(value.is_valid()) for value in values]
        count = np.sum(given, axis=0)
        doubts.add(count > 1)
        if self.null is None:
            doubts.add(count == 0)
        size = np.ones(len(array), dtype=np.int64)
        self.chosen = [np.flatnonzero(some & (count == 1)) for some in given]
        for (_, column, _), value, which in zip(self.members, values, self.chosen, strict=True):
            size[which] += column.measure(value.take(pa.array(which)), doubts.pick(which))
        return size

    def put(self, out: Room, at: Longs) -> None:
        out.data[at] = 2 * (self.null or 0)
        for (_, column, branch), which in zip(self.members, self.chosen, strict=True):
            some = at[which]
            out.data[some] = 2 * branch
            some += 1
            column.put(out, some)
            at[which] = some - 1
        at += 1


class _Record(Column):
    """A record."""

    def __init__(self, fields: list[tuple[str, Column]]) -> None:
        self.fields = fields

    def measure(self, array: pa.Array, doubts: Doubts) -> Longs:
        doubts.nulls(array)
        size = np.zeros(len(array), dtype=np.int64)
        for name, column in self.fields:
            size += column.measure(pc.struct_field(array, name), doubts)
        return size

    def put(self, out: Room, at: Longs) -> None:
        for _, column in self.fields:
            column.put(out, at)


class _Array(Column):
    """Arrays: their items are written as bodies, which then are copied as one stretch."""

    def __init__(self, inner: Column) -> None:
        self.inner = inner
        self.data: Bytes = np.zeros(0, dtype=np.uint8)
        self.begin = self.length = self.size = np.zeros(0, dtype=np.int64)
        self.raw = np.zeros(0, dtype=np.uint64)

    def measure(self, array: pa.Array, doubts: Doubts) -> Longs:
        doubts.nulls(array)
        first, last = _offsets(array)
        owner = np.arange(len(array)) if doubts.owner is None else doubts.owner
        elements = self.elements(array, first, last, doubts)
        made = bodies(self.inner, elements, Doubts(doubts.rows, np.repeat(owner, last - first)))
        begin, end = bounds(made)
        ends = np.append(begin, end[-1] if len(end) else 0).astype(np.int64)
        self.begin, counts = ends[first - first[0]] if len(first) else first, last - first
        self.length = (ends[last - first[0]] if len(first) else last) - self.begin
        self.data = np.concatenate([content(made), np.zeros(GAP, dtype=np.uint8)])
        self.raw, self.size = varints(counts)
        return self.size + self.length + (counts > 0)

    def elements(self, array: pa.Array, first: Longs, last: Longs, doubts: Doubts) -> pa.Array:
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
    """Maps, in the order of Java's HashMap; one with a key twice is in doubt."""

    def __init__(self, inner: Column) -> None:
        super().__init__(_Record([("key", Texts()), ("value", inner)]))

    def elements(self, array: pa.Array, first: Longs, last: Longs, doubts: Doubts) -> pa.Array:
        begin, size = (int(first[0]), int(last[-1] - first[0])) if len(first) else (0, 0)
        keys, values = array.keys.slice(begin, size), array.items.slice(begin, size)
        counts = last - first
        if (counts > 1).any():
            order, again = java_orders(keys, counts)
            doubts.add(again)
            keys, values = keys.take(pa.array(order)), values.take(pa.array(order))
        return pa.StructArray.from_arrays([keys, values], ["key", "value"])
