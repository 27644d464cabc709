"""The column decoders of Avro bodies: each step of a resolution reads many bodies at once, with numpy.

Bodies that a column decoder cannot read are marked in the cursor, and the reference decoder reads them. For all others
both decoders return the same values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.column_decoder import ColumnDecoder, Slots
from kdsl_formats._avro.connect import Conversion
from kdsl_formats._avro.cursor import Cursor
from kdsl_formats._avro.hash_map import find_repeats
from kdsl_formats._avro.skipping import LocateElements, SkipValue, entry_locator, item_locator, skipper_of
from kdsl_formats._avro.steps import (
    Chosen,
    Converted,
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
from kdsl_formats._avro.value_decoders import Decimals, Numbers, Symbols, Texts
from kdsl_formats._columns.arrays import Indices, Mask

ONE_BYTE = 64  # branches of a union whose index takes one byte; larger unions need the fallback


def column_of(step: Step, kind: t.DataType) -> ColumnDecoder:
    """The column decoder of a step; one that leaves all bodies to the fallback where there is none.

    There is none for steps that always fail, and for arrays and maps whose elements may contain themselves.
    """
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
            return _union_column(branches, kind)
        case Chosen(name=name, inner=inner, column=row):
            inside = next(f.type for f in row.fields if f.name == name)
            return _Member(name, column_of(inner, inside), row)
        case Converted(inner=inner, conversion=conversion):
            return _Converted(column_of(inner, conversion.wire_type), conversion)
        case Null():
            return _Nothing(kind)
        case Items(inner=inner, column=array):
            locate = item_locator(step.wire)
            return _List(step, column_of(inner, array.element), locate) if locate else _Unsupported(kind)
        case Entries(inner=inner, column=entries):
            value = entries.value if isinstance(entries, t.Map) else t.Int(nullable=False)
            locate = entry_locator(step.wire)
            return _Map(step, column_of(inner, value), locate) if locate else _Unsupported(kind)
        case Record():
            return _Record(step)
    return _Unsupported(kind)


def _union_column(branches: Sequence[Step], kind: t.DataType) -> ColumnDecoder:
    """The decoder of a union; null and branches that fail need no decoder of their own.

    It leaves all bodies to the fallback (`unsupported`) if the union has only null, only failing branches, or no null
    and no branch that column decoders can read.
    """
    real = [i for i, branch in enumerate(branches) if not isinstance(branch, Null | Fail)]
    failing = [i for i, branch in enumerate(branches) if isinstance(branch, Fail)]
    nullable = any(isinstance(branch, Null) for branch in branches)
    if not real:
        return (
            _Nullable(_Unsupported(kind), failing, failing, len(branches))
            if failing and nullable
            else _Unsupported(kind)
        )
    parts = [column_of(branches[i], kind) for i in real]
    column: ColumnDecoder
    if len(parts) == 1:
        column = _Nullable(parts[0], real, failing, len(branches))
    else:
        column = _Several(parts, real, failing, len(branches))
    column.unsupported = not nullable and all(part.unsupported for part in parts)
    return column


class _Unsupported(ColumnDecoder):
    """A step that column decoders cannot read, or that fails."""

    unsupported = True

    def __init__(self, kind: t.DataType) -> None:
        self.kind = arrow_type(kind)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Mark the bodies of all positions for the fallback."""
        cursor.mark_all_fallback()

    def build(self, cursor: Cursor) -> pa.Array:
        """Return NULLs."""
        return pa.nulls(self.count, self.kind)


class _Nothing(ColumnDecoder):
    """The type null: no bytes, no values."""

    def __init__(self, kind: t.DataType) -> None:
        self.kind = arrow_type(kind)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read nothing: NULL takes no bytes."""

    def build(self, cursor: Cursor) -> pa.Array:
        """Return a NULL for each element, and set `valid` to all False."""
        self.valid = np.zeros(self.count, dtype=bool)
        return pa.nulls(self.count, self.kind)


class _Wrapping(ColumnDecoder):
    """A decoder that changes the values of another one."""

    def __init__(self, inner: ColumnDecoder) -> None:
        self.inner = inner
        self.unsupported = inner.unsupported

    def start(self, count: int, owner: Indices | None) -> None:
        """Begin a batch, here and in the decoders of the inner columns; for the arguments see `ColumnDecoder.start`."""
        super().start(count, owner)
        self.inner.start(count, owner)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read the values at the cursor, and move it after them; mark unreadable bodies for the fallback."""
        self.inner.scan(cursor, slots)


class _Converted(_Wrapping):
    """Values that Kafka Connect wrote, converted to the column's type."""

    def __init__(self, inner: ColumnDecoder, conversion: Conversion) -> None:
        super().__init__(inner)
        self.conversion = conversion

    def build(self, cursor: Cursor) -> pa.Array:
        """Build the array in the column's type, and set `valid`; bodies with unconvertible values need the fallback.

        Infinite values become NULL and are counted in the cursor's bodies; if the column is not nullable, their bodies
        need the fallback.
        """
        self.inner.valid = self.valid
        read = self.conversion.column(self.inner.build(cursor))
        self.mark_fallback(cursor, read.fallback)
        if read.infinite is not None and not self.conversion.kind.nullable:
            self.mark_fallback(cursor, read.infinite)
        elif read.infinite is not None:
            np.add.at(
                cursor.bodies.infinite, np.arange(self.count) if self.owner is None else self.owner, read.infinite
            )
        self.valid = np.asarray(read.values.is_valid()) if read.values.null_count else None
        return read.values


class _Nullable(_Wrapping):
    """A union in which only one type has values; the other types are NULL, or fail.

    Args:
        inner: The decoder of this type.
        numbers: The branch index of this type; only the first is used.
        failing: The branch indices of the types that fail.
        types: The number of types in the union.
    """

    def __init__(self, inner: ColumnDecoder, numbers: Sequence[int], failing: Sequence[int], types: int) -> None:
        super().__init__(inner)
        self.unsupported = False  # the other branches of the union are read here
        self.code, self.types = 2 * numbers[0], types
        self.failing = _branch_codes(failing)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read the values at the cursor, and move it after them; elements of other types are not `valid` in `inner`.

        Bodies of failing types, and unreadable ones, are marked for the fallback.
        """
        codes = cursor.take_branch_codes(self.types)
        has_value = codes == self.code
        if has_value.all():
            self.inner.scan(cursor, slots)
            return
        cursor.mark_fallback(self.failing[codes])
        which = np.flatnonzero(has_value)
        some = cursor.pick(which)
        filled = which if slots is None else slots[which]
        valid = np.zeros(self.count, dtype=bool)
        valid[filled] = True
        self.inner.scan(some, filled)
        cursor.at[which] = some.at
        self.inner.valid = valid if self.inner.valid is None else self.inner.valid & valid

    def build(self, cursor: Cursor) -> pa.Array:
        """Build the array of the values that were read, and set `valid`; the other types of the union are NULL.

        The inner decoder may mark more bodies for the fallback.
        """
        values = self.inner.build(cursor)
        self.valid = self.inner.valid
        return values


class _Several(ColumnDecoder):
    """A union in which several types have values.

    Args:
        parts: The decoder of each of these types.
        numbers: Their branch indices.
        failing: The branch indices of the types that fail.
        types: The number of types in the union.
    """

    def __init__(
        self, parts: Sequence[ColumnDecoder], numbers: Sequence[int], failing: Sequence[int], types: int
    ) -> None:
        self.parts, self.types = parts, types
        self.failing = _branch_codes(failing)
        self.part_of = np.full(256, -1)
        for index, number in enumerate(numbers):
            if number < ONE_BYTE:
                self.part_of[2 * number] = index
        self.chosen: Indices = np.zeros(0, dtype=np.int64)

    def start(self, count: int, owner: Indices | None) -> None:
        """Begin a batch, here and in the decoders of the inner columns; for the arguments see `ColumnDecoder.start`."""
        super().start(count, owner)
        for part in self.parts:
            part.start(count, owner)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read the values at the cursor, and move it after them; store the index of each element's part in `chosen`.

        Bodies of failing types, and unreadable ones, are marked for the fallback.
        """
        codes = cursor.take_branch_codes(self.types)
        cursor.mark_fallback(self.failing[codes])
        part_indexes = self.part_of[codes]
        self.chosen = np.full(self.count, -1)
        self.chosen[slice(None) if slots is None else slots] = part_indexes
        for i, part in enumerate(self.parts):
            which = np.flatnonzero(part_indexes == i)
            some = cursor.pick(which)
            part.scan(some, which if slots is None else slots[which])
            cursor.at[which] = some.at

    def build(self, cursor: Cursor) -> pa.Array:
        """Build the array of the values that were read, each from the decoder of its type, and set `valid`.

        These decoders may mark more bodies for the fallback.
        """
        values = pa.concat_arrays([part.build(cursor) for part in self.parts])
        valid = self.chosen >= 0
        if self.valid is not None:
            valid &= self.valid
        self.valid = valid
        indexes = self.chosen * self.count + np.arange(self.count)
        return values.take(pa.array(indexes, mask=~valid))


def _branch_codes(numbers: Sequence[int]) -> Mask:
    """A mask over all bytes: True for those that encode the indices of some branches of a union.

    Indices that take several bytes are left out.
    """
    mask = np.zeros(256, dtype=bool)
    mask[[2 * n for n in numbers if n < ONE_BYTE]] = True
    return mask


class _Member(_Wrapping):
    """A row that represents a union of the table; one member has the value, the others are NULL."""

    def __init__(self, name: str, inner: ColumnDecoder, row: t.Row) -> None:
        super().__init__(inner)
        self.name, self.kind = name, arrow_type(row)

    def build(self, cursor: Cursor) -> pa.Array:
        """Build the array of rows, in which one member has the value and the others are NULL.

        The decoder of the member may mark more bodies for the fallback.
        """
        values = self.inner.build(cursor)
        children = [values if f.name == self.name else pa.nulls(self.count, f.type) for f in self.kind]
        return pa.Array.from_buffers(self.kind, self.count, [self.bits()], children=children)


class _Repeated(ColumnDecoder):
    """An array or a map: the positions of its elements are located first; then they are read like any column."""

    def __init__(self, step: Items | Entries, locate: LocateElements) -> None:
        self.kind = arrow_type(step.column)
        self.locate = locate
        self.offsets = np.zeros(1, dtype=np.int32)

    def locate_elements(self, cursor: Cursor, slots: Slots) -> Cursor:
        """Store the offsets of all elements, move the cursor after the values, and return a cursor of the elements.

        Bodies whose elements cannot be located are marked for the fallback.
        """
        counts, positions = self.locate(cursor)
        self.offsets = np.zeros(self.count + 1, dtype=np.int32)
        if slots is None:
            np.cumsum(counts, out=self.offsets[1:])
        else:
            spread = np.zeros(self.count, dtype=np.int64)
            spread[slots] = counts
            np.cumsum(spread, out=self.offsets[1:])
        owner = np.arange(len(counts)) if cursor.owner is None else cursor.owner
        return Cursor(cursor.bodies, positions, np.repeat(owner, counts))

    def buffers(self) -> list[pa.Buffer | None]:
        """The validity bitmap (None if no element is NULL) and the offsets of the array."""
        return [self.bits(), pa.py_buffer(self.offsets)]


class _List(_Repeated):
    """An array."""

    def __init__(self, step: Items, inner: ColumnDecoder, locate: LocateElements) -> None:
        super().__init__(step, locate)
        self.inner = inner

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read the values at the cursor, and move it after them; mark unreadable bodies for the fallback."""
        items = self.locate_elements(cursor, slots)
        self.inner.start(len(items), items.owner)
        self.inner.scan(items, None)

    def build(self, cursor: Cursor) -> pa.Array:
        """Build the array of the values that were read; their decoder may mark more bodies for the fallback."""
        return pa.Array.from_buffers(self.kind, self.count, self.buffers(), children=[self.inner.build(cursor)])


class _Map(_Repeated):
    """A map; a map with a repeated key needs the fallback."""

    def __init__(self, step: Entries, inner: ColumnDecoder, locate: LocateElements) -> None:
        super().__init__(step, locate)
        self.inner = inner
        self.keys = Texts(Scalar("string", "string", t.VarChar(nullable=False)))

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read the values at the cursor, and move it after them; mark unreadable bodies for the fallback."""
        entries = self.locate_elements(cursor, slots)
        for column in (self.keys, self.inner):
            column.start(len(entries), entries.owner)
            column.scan(entries, None)

    def build(self, cursor: Cursor) -> pa.Array:
        """Build the array of the maps, with the entries in the order of the body.

        Bodies with a repeated key are marked for the fallback.
        """
        keys = self.keys.build(cursor)
        if keys.null_count:
            keys = keys.fill_null("")
        self.mark_fallback(cursor, find_repeats(keys, np.diff(self.offsets)))
        fields = [self.kind.key_field, self.kind.item_field]
        both = pa.StructArray.from_arrays([keys, self.inner.build(cursor)], fields=fields)
        return pa.Array.from_buffers(self.kind, self.count, self.buffers(), children=[both])


class _Record(ColumnDecoder):
    """A record."""

    def __init__(self, step: Record) -> None:
        """Create the decoders of the columns; `unsupported` is set if one is, or if a field cannot be skipped."""
        self.kind = arrow_type(step.column)
        kinds = {f.name: f.type for f in step.column.fields}
        self.names = step.column.names
        self.columns: dict[str, ColumnDecoder] = {}
        self.steps: list[ColumnDecoder | SkipValue | None] = []
        self.fixed = {name: pa.scalar(v, self.kind.field(name).type) for name, v in step.constants.items()}
        for inner, name in step.steps:
            if name is not None:
                self.columns[name] = column_of(inner, kinds[name])
                self.steps.append(self.columns[name])
                continue
            assert isinstance(inner, Skip)
            skip = skipper_of(inner.type)
            self.steps.append(skip)
            self.unsupported = self.unsupported or skip is None
        self.unsupported = self.unsupported or any(c.unsupported for c in self.columns.values())

    def start(self, count: int, owner: Indices | None) -> None:
        """Begin a batch, here and in the decoders of the inner columns; for the arguments see `ColumnDecoder.start`."""
        super().start(count, owner)
        for column in self.columns.values():
            column.start(count, owner)

    def scan(self, cursor: Cursor, slots: Slots) -> None:
        """Read the columns at the cursor, skip the other fields, and move the cursor after the records.

        Bodies that cannot be read or skipped here are marked for the fallback.
        """
        for step in self.steps:
            if isinstance(step, ColumnDecoder):
                step.scan(cursor, slots)
            elif step is None:
                cursor.mark_all_fallback()
            else:
                step(cursor)

    def build(self, cursor: Cursor) -> pa.Array:
        """Build the array of the records that were read, with the constants of the columns that have one.

        The decoders of the columns may mark more bodies for the fallback.
        """
        children = [
            self.columns[name].build(cursor) if name in self.columns else pa.repeat(self.fixed[name], self.count)
            for name in self.names
        ]
        return pa.Array.from_buffers(self.kind, self.count, [self.bits()], children=children)
