"""Converts the values of fields, which `walk` located, to Arrow columns.

These readers mark messages with unusual values for the fallback; the reference decoder then reads them.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._columns.arrays import Integers, Mask, Words, bitmap, find_invalid_utf8, find_repeated_keys, slices
from kdsl_formats._columns.varints import unzigzag
from kdsl_formats.protobuf.elements import join_repeated_values, join_single_values, mark_fallback, wire_of
from kdsl_formats.protobuf.layout import Layout, Member
from kdsl_formats.protobuf.reference_decoder import NANOS, UNRECOGNIZED
from kdsl_formats.protobuf.walk import FieldFormat, FieldValues, walk
from kdsl_formats.protobuf.wire import MessageBuffer

_F = FieldDescriptor
_LARGEST_SECONDS = (1 << 63) // 1_000_000 - 1
Numbers = npt.NDArray[Any]


class RowReader:
    """Reads messages into a struct column.

    Args:
        layout: The message and its row.
        defaults: Whether absent values become their defaults, instead of NULL.
        min_batch: See `walk`.
        entry: Whether the message is a map's entry, whose key and value always have defaults.
    """

    def __init__(self, layout: Layout, *, defaults: bool, min_batch: int, entry: bool = False) -> None:
        every = (*layout.members, *layout.hidden)
        oneofs = sorted({m.oneof for m in every if m.oneof is not None})
        self.readers = tuple(MemberReader(m, defaults=defaults, min_batch=min_batch, fill_absent=entry) for m in every)
        self.is_column = len(layout.members)
        self.type = pa.struct([pa.field(m.name, r.type) for m, r in zip(layout.members, self.readers, strict=False)])
        self._min_batch = min_batch
        self._formats = {
            r.field.number: FieldFormat(
                wire_of(r.field),
                r.member.shape != "one",
                -1 if r.member.oneof is None else oneofs.index(r.member.oneof),
            )
            for r in self.readers
        }

    def read(self, buffer: MessageBuffer, start: Integers, end: Integers) -> tuple[list[pa.Array], Mask]:
        """Read messages: the columns of the row, without hidden fields, and which messages need the fallback."""
        values_found, fallback = walk(buffer, start, end, self._formats, min_batch=self._min_batch)
        columns = []
        for i, reader in enumerate(self.readers):
            column = reader.read(
                buffer, values_found.get(reader.field.number, []), len(start), fallback, is_column=i < self.is_column
            )
            if column is not None:
                columns.append(column)
        return columns, fallback

    def read_structs(
        self, buffer: MessageBuffer, start: Integers, end: Integers, fallback: Mask, owner: Integers | None
    ) -> pa.Array:
        """Read messages inside others as structs; in ``fallback``, the owners of those that need it are marked."""
        columns, wrong = self.read(buffer, start, end)
        mark_fallback(fallback, owner, wrong)
        fields = [pa.field(f.name, c.type) for f, c in zip(self.type, columns, strict=True)]
        return pa.Array.from_buffers(pa.struct(fields), len(start), [None], children=columns)


class MemberReader:
    """Reads one field into a column.

    Args:
        member: The field and its column.
        defaults: Whether absent values become their defaults, here and inside.
        min_batch: See `walk`.
        fill_absent: Whether absent values of this field become the default in any case.
    """

    def __init__(self, member: Member, *, defaults: bool, min_batch: int, fill_absent: bool = False) -> None:
        self.member = member
        self.field = member.field
        self.inside = None
        if member.inside is not None and member.form != "json":
            self.inside = RowReader(member.inside, defaults=defaults, min_batch=min_batch, entry=member.shape == "map")
        self.type = _column_type(member)
        self.one = _value_type(member)
        self._defaults = defaults
        self._null = member.presence and not (defaults or fill_absent)
        self._numbers, self._enum_names = _enum_numbers(member)

    def read(
        self, buffer: MessageBuffer, values_found: list[FieldValues], count: int, fallback: Mask, *, is_column: bool
    ) -> pa.Array | None:
        """Read the column; None if the field is not a column, which may still mark messages for the fallback.

        Args:
            buffer: The bytes.
            values_found: Where the values of the field are.
            count: The number of messages.
            fallback: The messages that need the fallback; more are added.
            is_column: Whether the field is a column.
        """
        if self.member.shape != "one":
            return self._read_repeated(buffer, values_found, count, fallback)
        owner, start, end, numbers = join_single_values(values_found)
        if self.field.is_required:
            absent = np.ones(count, dtype=bool)
            absent[slice(None) if owner is None and values_found else owner if owner is not None else start] = False
            fallback |= absent
        if not values_found:
            return self._absent_column(buffer, count, fallback) if is_column else None
        values = self._read_values(buffer, start, end, numbers, fallback, owner)
        if not is_column:
            return None
        return values if owner is None else self._place_values(buffer, values, owner, count, fallback)

    def _absent_column(self, buffer: MessageBuffer, count: int, fallback: Mask) -> pa.Array:
        """The column of a field that no message has: NULL, or the default if the field has no NULL.

        A default that is not readable marks all messages for the fallback.
        """
        if self._null:
            return pa.nulls(count, self.type)
        one = self._default_value(buffer, fallback)
        return one.take(pa.array(np.zeros(count, dtype=np.int32)))

    def _place_values(
        self, buffer: MessageBuffer, values: pa.Array, owner: Integers, count: int, fallback: Mask
    ) -> pa.Array:
        """The values at the indices of their messages; elsewhere NULL, or the default if the field has no NULL.

        A default that is not readable marks all messages for the fallback.
        """
        index = np.zeros(count, dtype=np.int32)
        if self._null:
            absent = np.ones(count, dtype=bool)
            absent[owner] = False
            index[owner] = np.arange(len(owner), dtype=np.int32)
            return values.take(pa.array(index, mask=absent))
        index[owner] = np.arange(1, len(owner) + 1, dtype=np.int32)
        return pa.concat_arrays([self._default_value(buffer, fallback), values]).take(pa.array(index))

    def _default_value(self, buffer: MessageBuffer, fallback: Mask) -> pa.Array:
        """Return the value of an absent field, as an array with one element.

        If it is not readable, all messages are marked for the fallback.
        """
        member, field = self.member, self.field
        if self.inside is not None:
            empty_span = np.zeros(1, dtype=np.int64)
            ignored = np.zeros(1, dtype=bool)
            structs = self.inside.read_structs(buffer, empty_span, empty_span, ignored, None)
            if ignored.any():
                fallback[:] = True
            return self._convert_struct(structs, ignored, None)
        if member.form == "enum":
            number = field.default_value if field.enum_type is not None else next(iter(member.names))
            return pa.array([member.names.get(number) if member.by_name else number], self.type)
        if member.form == "json":
            fallback[:] = True
            return pa.nulls(1, self.type)
        default: Any = Decimal(field.default_value) if isinstance(member.kind, t.Decimal) else field.default_value
        if isinstance(member.kind, (t.Int, t.BigInt)):
            default = _to_signed(default, 32 if isinstance(member.kind, t.Int) else 64)
        return pa.array([default], self.type)

    def _read_values(
        self,
        buffer: MessageBuffer,
        start: Integers,
        end: Integers,
        numbers: Words | None,
        fallback: Mask,
        owner: Integers | None,
    ) -> pa.Array:
        """Read one value for each span; the messages (``owner``) of unusual values are marked for the fallback."""
        member, kind = self.member, self.field.type
        if self.inside is not None:
            return self._convert_struct(self.inside.read_structs(buffer, start, end, fallback, owner), fallback, owner)
        if member.form == "json" or kind == _F.TYPE_GROUP:
            mark_fallback(fallback, owner, np.ones(len(start), dtype=bool))
            return pa.nulls(len(start), self.one)
        if kind in (_F.TYPE_STRING, _F.TYPE_BYTES):
            strings = slices(buffer.data, start, end, None, self.one)
            if kind == _F.TYPE_STRING:
                wrong = find_invalid_utf8(strings)
                if wrong is not None:
                    mark_fallback(fallback, owner, wrong)
                    strings = pc.if_else(pa.array(wrong), pa.scalar("", pa.string()), strings)
            return strings
        if numbers is None:
            numbers = buffer.words[start]
        if member.form == "enum":
            return self._read_enums(numbers, fallback, owner)
        return self._convert_numbers(numbers, start)

    def _convert_numbers(self, numbers: Words, start: Integers) -> pa.Array:
        """Convert raw numbers to an array of the column's type; of fixed-width numbers, the lower bytes are used."""
        kind = self.field.type
        if kind == _F.TYPE_BOOL:
            return pa.array(numbers != 0)
        if kind in (_F.TYPE_SINT32, _F.TYPE_SINT64):
            numbers = unzigzag(numbers & np.uint64(0xFFFFFFFF) if kind == _F.TYPE_SINT32 else numbers)
        if kind == _F.TYPE_DOUBLE:
            return _build_array(numbers.view(np.float64), self.one)
        if kind == _F.TYPE_FLOAT:
            return _build_array(numbers.astype(np.uint32).view(np.float32), self.one)
        match self.member.kind:
            case t.Int():
                return _build_array(numbers.astype(np.uint32).view(np.int32), self.one)
            case t.BigInt() if self.field.cpp_type == _F.CPPTYPE_UINT32:
                return _build_array(numbers.astype(np.uint32).astype(np.int64), self.one)
            case t.BigInt():
                return _build_array(numbers.view(np.int64), self.one)
        wide = np.zeros((len(numbers), 2), dtype=np.uint64)  # an unsigned 128-bit decimal
        wide[:, 0] = numbers
        return pa.Array.from_buffers(self.one, len(numbers), [None, pa.py_buffer(wide)])

    def _read_enums(self, numbers: Words, fallback: Mask, owner: Integers | None) -> pa.Array:
        """Convert enum numbers to names, or keep them if the column has numbers.

        Unknown numbers become `UNRECOGNIZED`; those of a closed enum, or of a column of numbers, need the fallback.
        """
        member = self.member
        values = numbers.astype(np.uint32).view(np.int32)
        index = np.minimum(np.searchsorted(self._numbers, values), len(self._numbers) - 1)
        unknown = self._numbers[index] != values
        if unknown.any():
            if member.closed or not member.by_name:
                mark_fallback(fallback, owner, unknown)
            index = np.where(unknown, len(self._numbers), index)
        if not member.by_name:
            return _build_array(values.astype(np.int64 if isinstance(member.kind, t.BigInt) else np.int32), self.one)
        return self._enum_names.take(pa.array(index))

    def _convert_struct(self, structs: pa.Array, fallback: Mask, owner: Integers | None) -> pa.Array:
        """Convert structs to the column's type; timestamps out of range are marked for the fallback."""
        match self.member.form:
            case "timestamp":
                seconds, nanos = (np.asarray(structs.field(i).fill_null(0)) for i in (0, 1))
                wrong = (nanos < 0) | (nanos >= NANOS) | (np.abs(seconds) > _LARGEST_SECONDS) | (seconds == -(1 << 63))
                if wrong.any():
                    mark_fallback(fallback, owner, wrong)
                    seconds = np.where(wrong, 0, seconds)
                return _build_array(seconds * 1_000_000 + nanos // 1000, self.one)
            case "wrapper":
                return structs.field(0)
            case _:
                return structs

    def _read_repeated(
        self, buffer: MessageBuffer, values_found: list[FieldValues], count: int, fallback: Mask
    ) -> pa.Array:
        """Read the column of a repeated field or map; an empty one is NULL, unless absent values become defaults.

        Messages with unusual values, or with a map that has a key twice, are marked in ``fallback``.
        """
        owner, start, end, numbers = join_repeated_values(buffer, values_found, count, wire_of(self.field), fallback)
        if not len(owner) and not self._defaults:
            return pa.nulls(count, self.type)
        if self.member.shape == "map":
            assert self.inside is not None
            values = self.inside.read_structs(buffer, start, end, fallback, owner)
            mark_fallback(fallback, owner, _find_repeats(owner, values.field(0)))
        else:
            values = self._read_values(buffer, start, end, numbers, fallback, owner)
        sizes = np.bincount(owner, minlength=count)
        offsets = np.zeros(count + 1, dtype=np.int32)
        np.cumsum(sizes, out=offsets[1:])
        valid = None if self._defaults else bitmap(sizes > 0)
        return pa.Array.from_buffers(
            _list_type(self.type, values.type), count, [valid, pa.py_buffer(offsets)], children=[values]
        )


def _column_type(member: Member) -> pa.DataType:
    """The type of a field's column, with nullable parts."""
    kind = _value_type(member)
    if member.shape == "array":
        return pa.list_(pa.field("element", kind))
    if member.shape == "map":
        return pa.map_(kind.field(0).type, kind.field(1).type)
    return kind


def _value_type(member: Member) -> pa.DataType:
    """The type of one value of a field."""
    if member.form == "json":
        return pa.string()
    if member.inside is not None and member.form == "message":
        return pa.struct([pa.field(m.name, _column_type(m)) for m in member.inside.members])
    return arrow_type(member.kind)


def _list_type(kind: pa.DataType, inside: pa.DataType) -> pa.DataType:
    """The type of a list column, or of a map column, whose elements have the type `inside`."""
    if pa.types.is_map(kind):
        return pa.map_(inside.field(0).type, inside.field(1).type)
    return pa.list_(pa.field("element", inside))


def _enum_numbers(member: Member) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """The numbers of an enum, ascending, and their names, followed by the name of unknown numbers."""
    numbers = sorted(member.names)
    return np.array(numbers, dtype=np.int32), pa.array([*(member.names[n] for n in numbers), UNRECOGNIZED], pa.string())


def _build_array(values: Numbers, kind: pa.DataType) -> pa.Array:
    """View numbers as an Arrow array without NULL."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _to_signed(value: int, bits: int) -> int:
    """The signed number with the same bits as an unsigned one."""
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def _find_repeats(owner: Integers, keys: pa.Array) -> Mask:
    """Which entries of maps have a key that is NULL, or that an earlier entry of the same map has."""
    unknown = np.asarray(keys.is_null())
    return unknown | find_repeated_keys(owner, keys.fill_null("") if keys.null_count else keys)
