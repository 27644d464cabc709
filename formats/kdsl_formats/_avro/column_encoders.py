"""Encodes whole columns as Avro bodies, with numpy.

Each column is measured first: how many bytes each element takes. Then all columns of a row are written in order, as
words of eight bytes: the next column overwrites the excess bytes of a word, or they fall into the gap after the row.
Rows in which a column needs the fallback are marked, and the reference encoder writes them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl_formats._avro.hash_map import java_orders
from kdsl_formats._avro.output import (
    GAP,
    ColumnEncoder,
    FallbackMask,
    OutputBuffer,
    put_spans,
    put_varints,
    zigzag_varints,
)
from kdsl_formats._avro.value_encoders import Decimals, FixedWidths, Numbers, Symbols, Texts
from kdsl_formats._avro.write_steps import ArrayOf, Choice, MapOf, Nothing, Optional, RecordOf, Value, WriteStep
from kdsl_formats._columns.arrays import Bytes, Integers, content, find_bounds, slices

MAX_BYTES = 2**31 - 1 - 2 * GAP  # bytes: the limit of an array's 32-bit offsets
ONE_BYTE = 64  # branches of a union whose index takes one byte


class TooLargeError(Exception):
    """The bodies are larger than one array can be."""


def column_encoder(step: WriteStep) -> ColumnEncoder:
    """The encoder of a column; all rows need the fallback in a union of `ONE_BYTE` types or more, besides null."""
    match step:
        case Optional(inner=Nothing(), null=null):
            return _Nothing(null)
        case Nothing():
            return _Nothing(None)
        case Optional(inner=inner, branch=branch, null=null):
            return _Optional(column_encoder(inner), branch, null)
        case Choice(members=members, null=null) if len(members) < ONE_BYTE:
            return _Choice([(name, column_encoder(inner), branch) for name, inner, branch, _ in members], null)
        case RecordOf(fields=fields):
            return _Record([(name, column_encoder(inner)) for name, inner in fields])
        case ArrayOf(inner=inner):
            return _Array(column_encoder(inner))
        case MapOf(inner=inner):
            return _Map(column_encoder(inner))
        case Value():
            return _value_encoder(step)
    return _Unsupported()


def _value_encoder(step: Value) -> ColumnEncoder:
    """The encoder of values without parts."""
    if isinstance(step.column, t.Decimal):
        return Decimals(step)
    match step.wire:
        case "enum":
            return Symbols(step.symbols)
        case "string" | "bytes":
            return Texts()
        case "fixed":
            return Texts(step.size)
        case "boolean" | "float" | "double":
            return FixedWidths()
        case _:
            return Numbers(step)


def encode_bodies(column: ColumnEncoder, array: pa.Array, fallback: FallbackMask) -> pa.BinaryArray:
    """The bodies of an array's elements; rows that need the fallback are marked, and their bodies are meaningless.

    The column stores the elements.
    """
    size = column.measure(array, fallback)
    ends = np.cumsum(size + GAP)
    start = ends - size - GAP
    if len(ends) and ends[-1] > MAX_BYTES:
        raise TooLargeError
    out = OutputBuffer(int(ends[-1]) if len(ends) else 0)
    column.put(out, start.copy())
    return slices(out.data, start, start + size, None, pa.binary())


class _Unsupported(ColumnEncoder):
    """A column that needs the fallback for every row."""

    def measure(self, array: pa.Array, fallback: FallbackMask) -> Integers:
        """Mark the rows of all elements for the fallback, also of NULLs, and return the size 0 for each."""
        fallback.add(np.ones(len(array), dtype=bool))
        return np.zeros(len(array), dtype=np.int64)

    def put(self, out: OutputBuffer, at: Integers) -> None:
        """Write nothing."""


class _Nothing(ColumnEncoder):
    """The type null, alone or as the only branch of a union; in a union it is written as its index."""

    def __init__(self, number: int | None) -> None:
        self.number = number

    def measure(self, array: pa.Array, fallback: FallbackMask) -> Integers:
        """Return the bytes of each element: 1 in a union, otherwise 0; rows with values are marked for the fallback."""
        fallback.add(np.asarray(array.is_valid()))
        return np.full(len(array), 0 if self.number is None else 1)

    def put(self, out: OutputBuffer, at: Integers) -> None:
        """In a union write the branch of NULL, and move the positions after it, in place; otherwise do nothing."""
        if self.number is not None:
            out.data[at] = 2 * self.number
            at += 1


class _Optional(ColumnEncoder):
    """A union of one type, with or without null."""

    def __init__(self, inner: ColumnEncoder, branch: int, null: int | None) -> None:
        self.inner, self.branch, self.null = inner, 2 * branch, null
        self.which: npt.NDArray[np.intp] | None = None

    def measure(self, array: pa.Array, fallback: FallbackMask) -> Integers:
        """Store the elements, and return the number of bytes of each; rows that need the fallback are marked."""
        if not array.null_count or self.null is None:
            self.which = None
            return self.inner.measure(array, fallback) + 1
        self.which = np.flatnonzero(np.asarray(array.is_valid()))
        size = np.ones(len(array), dtype=np.int64)
        size[self.which] += self.inner.measure(array.take(pa.array(self.which)), fallback.pick(self.which))
        return size

    def put(self, out: OutputBuffer, at: Integers) -> None:
        """Write the stored elements, and move the positions after them, in place."""
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


class _Choice(ColumnEncoder):
    """A union of several types, whose column is a row with a member for each.

    Args:
        members: The name, the encoder and the branch index of each type.
        null: The branch index of null.
    """

    def __init__(self, members: list[tuple[str, ColumnEncoder, int]], null: int | None) -> None:
        self.members, self.null = members, null
        self.chosen: list[npt.NDArray[np.intp]] = []

    def measure(self, array: pa.Array, fallback: FallbackMask) -> Integers:
        """Store the elements, and return the number of bytes of each; rows that need the fallback are marked.

        These are rows with several members, rows without a member if the union has no null, and those of the members.
        """
        values = [pc.struct_field(array, name) for name, _, _ in self.members]
        present = [np.asarray(value.is_valid()) for value in values]
        count = np.sum(present, axis=0)
        fallback.add(count > 1)
        if self.null is None:
            fallback.add(count == 0)
        size = np.ones(len(array), dtype=np.int64)
        self.chosen = [np.flatnonzero(some & (count == 1)) for some in present]
        for (_, column, _), value, which in zip(self.members, values, self.chosen, strict=True):
            size[which] += column.measure(value.take(pa.array(which)), fallback.pick(which))
        return size

    def put(self, out: OutputBuffer, at: Integers) -> None:
        """Write the stored elements, and move the positions after them, in place."""
        out.data[at] = 2 * (self.null or 0)
        for (_, column, branch), which in zip(self.members, self.chosen, strict=True):
            some = at[which]
            out.data[some] = 2 * branch
            some += 1
            column.put(out, some)
            at[which] = some - 1
        at += 1


class _Record(ColumnEncoder):
    """A record."""

    def __init__(self, fields: list[tuple[str, ColumnEncoder]]) -> None:
        self.fields = fields

    def measure(self, array: pa.Array, fallback: FallbackMask) -> Integers:
        """Store the elements, and return the number of bytes of each; rows that need the fallback are marked."""
        fallback.nulls(array)
        size = np.zeros(len(array), dtype=np.int64)
        for name, column in self.fields:
            size += column.measure(pc.struct_field(array, name), fallback)
        return size

    def put(self, out: OutputBuffer, at: Integers) -> None:
        """Write the stored elements, and move the positions after them, in place."""
        for _, column in self.fields:
            column.put(out, at)


class _Array(ColumnEncoder):
    """Arrays: the items of an array are written as bodies first, and then copied as one span."""

    def __init__(self, inner: ColumnEncoder) -> None:
        self.inner = inner
        self.data: Bytes = np.zeros(0, dtype=np.uint8)
        self.begin = self.length = self.size = np.zeros(0, dtype=np.int64)
        self.raw = np.zeros(0, dtype=np.uint64)

    def measure(self, array: pa.Array, fallback: FallbackMask) -> Integers:
        """Store the elements, and return the number of bytes of each; rows that need the fallback are marked."""
        fallback.nulls(array)
        first, last = _offsets(array)
        owner = np.arange(len(array)) if fallback.owner is None else fallback.owner
        take_elements = self.take_elements(array, first, last, fallback)
        items = encode_bodies(self.inner, take_elements, FallbackMask(fallback.rows, np.repeat(owner, last - first)))
        begin, end = find_bounds(items)
        ends = np.append(begin, end[-1] if len(end) else 0).astype(np.int64)
        self.begin, counts = ends[first - first[0]] if len(first) else first, last - first
        self.length = (ends[last - first[0]] if len(first) else last) - self.begin
        self.data = np.concatenate([content(items), np.zeros(GAP, dtype=np.uint8)])
        self.raw, self.size = zigzag_varints(counts)
        return self.size + self.length + (counts > 0)

    def take_elements(self, array: pa.Array, first: Integers, last: Integers, fallback: FallbackMask) -> pa.Array:
        """Return the elements of all arrays as one array; `fallback` is unchanged here, but `_Map` marks rows in it.

        `first` and `last` are the results of `_offsets`.
        """
        values = array.values
        return values.slice(int(first[0]), int(last[-1] - first[0])) if len(first) else values.slice(0, 0)

    def put(self, out: OutputBuffer, at: Integers) -> None:
        """Write the stored elements, and move the positions after them, in place."""
        empty = self.raw == 0
        put_varints(out, at, self.raw, self.size)
        put_spans(out, at, self.data, self.begin, self.length)
        out.data[at] = 0
        at += ~empty


def _offsets(array: pa.Array) -> tuple[Integers, Integers]:
    """The first and last (excluded) index of the elements of each array or map."""
    offsets = np.frombuffer(array.buffers()[1], dtype="<i4", count=len(array) + 1, offset=4 * array.offset).astype(
        np.int64
    )
    return offsets[:-1], offsets[1:]


class _Map(_Array):
    """Maps, in the order of Java's HashMap; a map with a repeated key needs the fallback."""

    def __init__(self, inner: ColumnEncoder) -> None:
        super().__init__(_Record([("key", Texts()), ("value", inner)]))

    def take_elements(self, array: pa.Array, first: Integers, last: Integers, fallback: FallbackMask) -> pa.Array:
        """Return the entries of the maps in Java's order; rows with repeated keys are marked for the fallback."""
        begin, size = (int(first[0]), int(last[-1] - first[0])) if len(first) else (0, 0)
        keys, values = array.keys.slice(begin, size), array.items.slice(begin, size)
        counts = last - first
        if (counts > 1).any():
            order, again = java_orders(keys, counts)
            fallback.add(again)
            keys, values = keys.take(pa.array(order)), values.take(pa.array(order))
        return pa.StructArray.from_arrays([keys, values], ["key", "value"])
