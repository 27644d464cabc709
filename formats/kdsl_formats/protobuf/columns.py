"""The values of fields, found by `walk`, as Arrow columns.

What these readers are not sure of is a doubt of its message, which the reference decoder then reads.
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
from kdsl_formats._columns.arrays import Longs, Mask, Words, bitmap, not_utf8, pieces, repeated
from kdsl_formats._columns.varints import unzigzag
from kdsl_formats.protobuf.elements import blame, elements, joined, wire_of
from kdsl_formats.protobuf.layout import Layout, Member
from kdsl_formats.protobuf.reference_decoder import NANOS, UNRECOGNIZED
from kdsl_formats.protobuf.walk import Found, Wanted, walk
from kdsl_formats.protobuf.wire import Source

_F = FieldDescriptor
_LARGEST_SECONDS = (1 << 63) // 1_000_000 - 1
Values = npt.NDArray[Any]


class RowReader:
    """Reads messages into a struct column.

    Args:
        layout: The message and its row.
        defaults: Whether what is absent has its default, instead of NULL.
        few: See `walk`.
        entry: Whether it is a map's entry, whose key and value have their defaults where they are absent.
    """

    def __init__(self, layout: Layout, *, defaults: bool, few: int, entry: bool = False) -> None:
        every = (*layout.members, *layout.hidden)
        oneofs = sorted({m.oneof for m in every if m.oneof is not None})
        self.readers = tuple(MemberReader(m, defaults=defaults, few=few, filled=entry) for m in every)
        self.shown = len(layout.members)
        self.type = pa.struct([pa.field(m.name, r.type) for m, r in zip(layout.members, self.readers, strict=False)])
        self._few = few
        self._wanted = {
            r.field.number: Wanted(
                wire_of(r.field),
                r.member.shape != "one",
                -1 if r.member.oneof is None else oneofs.index(r.member.oneof),
            )
            for r in self.readers
        }

    def read(self, source: Source, start: Longs, end: Longs) -> tuple[list[pa.Array], Mask]:
        """The columns of the row, and which messages are in doubt."""
        found, doubts = walk(source, start, end, self._wanted, few=self._few)
        columns = []
        for i, reader in enumerate(self.readers):
            made = reader.read(source, found.get(reader.field.number, []), len(start), doubts, shown=i < self.shown)
            if made is not None:
                columns.append(made)
        return columns, doubts

    def struct(self, source: Source, start: Longs, end: Longs, doubts: Mask, owner: Longs | None) -> pa.Array:
        """A struct of each message; doubts go to their owners."""
        columns, wrong = self.read(source, start, end)
        blame(doubts, owner, wrong)
        fields = [pa.field(f.name, c.type) for f, c in zip(self.type, columns, strict=True)]
        return pa.Array.from_buffers(pa.struct(fields), len(start), [None], children=columns)


class MemberReader:
    """Reads one field into a column.

    Args:
        member: The field and its column.
        defaults: Whether what is absent has its default, here and inside.
        few: See `walk`.
        filled: Whether what is absent here has its default.
    """

    def __init__(self, member: Member, *, defaults: bool, few: int, filled: bool = False) -> None:
        self.member = member
        self.field = member.field
        self.inside = None
        if member.inside is not None and member.form != "json":
            self.inside = RowReader(member.inside, defaults=defaults, few=few, entry=member.shape == "map")
        self.type = _type(member)
        self.one = _one_type(member)
        self._defaults = defaults
        self._null = member.presence and not (defaults or filled)
        self._numbers, self._places = _enum_numbers(member)

    def read(self, source: Source, found: list[Found], count: int, doubts: Mask, *, shown: bool) -> pa.Array | None:
        """The column; None of a field that is not shown.

        Args:
            source: The bytes.
            found: The values.
            count: How many messages there are.
            doubts: The messages in doubt, to which others are added.
            shown: Whether a column shows the field.
        """
        if self.member.shape != "one":
            return self._repeated(source, found, count, doubts)
        owner, start, end, numbers = joined(found)
        if self.field.is_required:
            absent = np.ones(count, dtype=bool)
            absent[slice(None) if owner is None and found else owner if owner is not None else start] = False
            doubts |= absent
        if not found:
            return self._absent(source, count, doubts) if shown else None
        made = self._values(source, start, end, numbers, doubts, owner)
        if not shown:
            return None
        return made if owner is None else self._placed(source, made, owner, count, doubts)

    def _absent(self, source: Source, count: int, doubts: Mask) -> pa.Array:
        if self._null:
            return pa.nulls(count, self.type)
        one = self._default(source, doubts)
        return one.take(pa.array(np.zeros(count, dtype=np.int32)))

    def _placed(self, source: Source, made: pa.Array, owner: Longs, count: int, doubts: Mask) -> pa.Array:
        """The values, each at its message, and what the others have."""
        index = np.zeros(count, dtype=np.int32)
        if self._null:
            absent = np.ones(count, dtype=bool)
            absent[owner] = False
            index[owner] = np.arange(len(owner), dtype=np.int32)
            return made.take(pa.array(index, mask=absent))
        index[owner] = np.arange(1, len(owner) + 1, dtype=np.int32)
        return pa.concat_arrays([self._default(source, doubts), made]).take(pa.array(index))

    def _default(self, source: Source, doubts: Mask) -> pa.Array:
        """What an absent value is, as a column of one."""
        member, field = self.member, self.field
        if self.inside is not None:
            nowhere = np.zeros(1, dtype=np.int64)
            ignored = np.zeros(1, dtype=bool)
            made = self.inside.struct(source, nowhere, nowhere, ignored, None)
            if ignored.any():
                doubts[:] = True
            return self._finished(made, ignored, None)
        if member.form == "enum":
            number = field.default_value if field.enum_type is not None else next(iter(member.names))
            return pa.array([member.names.get(number) if member.by_name else number], self.type)
        if member.form == "json":
            doubts[:] = True
            return pa.nulls(1, self.type)
        default: Any = Decimal(field.default_value) if isinstance(member.kind, t.Decimal) else field.default_value
        if isinstance(member.kind, (t.Int, t.BigInt)):
            default = _signed(default, 32 if isinstance(member.kind, t.Int) else 64)
        return pa.array([default], self.type)

    def _values(
        self, source: Source, start: Longs, end: Longs, numbers: Words | None, doubts: Mask, owner: Longs | None
    ) -> pa.Array:
        """The values of stretches, one of each."""
        member, kind = self.member, self.field.type
        if self.inside is not None:
            return self._finished(self.inside.struct(source, start, end, doubts, owner), doubts, owner)
        if member.form == "json" or kind == _F.TYPE_GROUP:
            blame(doubts, owner, np.ones(len(start), dtype=bool))
            return pa.nulls(len(start), self.one)
        if kind in (_F.TYPE_STRING, _F.TYPE_BYTES):
            made = pieces(source.data, start, end, None, self.one)
            if kind == _F.TYPE_STRING:
                wrong = not_utf8(made)
                if wrong is not None:
                    blame(doubts, owner, wrong)
                    made = pc.if_else(pa.array(wrong), pa.scalar("", pa.string()), made)
            return made
        if numbers is None:
            numbers = source.words[start]
        if member.form == "enum":
            return self._enums(numbers, doubts, owner)
        return self._numeric(numbers, start)

    def _numeric(self, numbers: Words, start: Longs) -> pa.Array:
        """Numbers of any wire type as the column's type; of fixed ones the lower bytes count."""
        kind = self.field.type
        if kind == _F.TYPE_BOOL:
            return pa.array(numbers != 0)
        if kind in (_F.TYPE_SINT32, _F.TYPE_SINT64):
            numbers = unzigzag(numbers & np.uint64(0xFFFFFFFF) if kind == _F.TYPE_SINT32 else numbers)
        if kind == _F.TYPE_DOUBLE:
            return _array(numbers.view(np.float64), self.one)
        if kind == _F.TYPE_FLOAT:
            return _array(numbers.astype(np.uint32).view(np.float32), self.one)
        match self.member.kind:
            case t.Int():
                return _array(numbers.astype(np.uint32).view(np.int32), self.one)
            case t.BigInt() if self.field.cpp_type == _F.CPPTYPE_UINT32:
                return _array(numbers.astype(np.uint32).astype(np.int64), self.one)
            case t.BigInt():
                return _array(numbers.view(np.int64), self.one)
        wide = np.zeros((len(numbers), 2), dtype=np.uint64)  # a decimal of 128 bits, without a sign
        wide[:, 0] = numbers
        return pa.Array.from_buffers(self.one, len(numbers), [None, pa.py_buffer(wide)])

    def _enums(self, numbers: Words, doubts: Mask, owner: Longs | None) -> pa.Array:
        member = self.member
        values = numbers.astype(np.uint32).view(np.int32)
        place = np.minimum(np.searchsorted(self._numbers, values), len(self._numbers) - 1)
        unknown = self._numbers[place] != values
        if unknown.any():
            if member.closed or not member.by_name:
                blame(doubts, owner, unknown)
            place = np.where(unknown, len(self._numbers), place)
        if not member.by_name:
            return _array(values.astype(np.int64 if isinstance(member.kind, t.BigInt) else np.int32), self.one)
        return self._places.take(pa.array(place))

    def _finished(self, made: pa.Array, doubts: Mask, owner: Longs | None) -> pa.Array:
        """A struct as the column's type has it."""
        match self.member.form:
            case "timestamp":
                seconds, nanos = (np.asarray(made.field(i).fill_null(0)) for i in (0, 1))
                wrong = (nanos < 0) | (nanos >= NANOS) | (np.abs(seconds) > _LARGEST_SECONDS) | (seconds == -(1 << 63))
                if wrong.any():
                    blame(doubts, owner, wrong)
                    seconds = np.where(wrong, 0, seconds)
                return _array(seconds * 1_000_000 + nanos // 1000, self.one)
            case "wrapper":
                return made.field(0)
            case _:
                return made

    def _repeated(self, source: Source, found: list[Found], count: int, doubts: Mask) -> pa.Array:
        owner, start, end, numbers = elements(source, found, count, wire_of(self.field), doubts)
        if not len(owner) and not self._defaults:
            return pa.nulls(count, self.type)
        if self.member.shape == "map":
            assert self.inside is not None
            made = self.inside.struct(source, start, end, doubts, owner)
            blame(doubts, owner, _repeats(owner, made.field(0)))
        else:
            made = self._values(source, start, end, numbers, doubts, owner)
        sizes = np.bincount(owner, minlength=count)
        offsets = np.zeros(count + 1, dtype=np.int32)
        np.cumsum(sizes, out=offsets[1:])
        valid = None if self._defaults else bitmap(sizes > 0)
        return pa.Array.from_buffers(
            _nested(self.type, made.type), count, [valid, pa.py_buffer(offsets)], children=[made]
        )


def _type(member: Member) -> pa.DataType:
    """The type of a field's column, all parts of which may be NULL."""
    kind = _one_type(member)
    if member.shape == "array":
        return pa.list_(pa.field("element", kind))
    if member.shape == "map":
        return pa.map_(kind.field(0).type, kind.field(1).type)
    return kind


def _one_type(member: Member) -> pa.DataType:
    if member.form == "json":
        return pa.string()
    if member.inside is not None and member.form == "message":
        return pa.struct([pa.field(m.name, _type(m)) for m in member.inside.members])
    return arrow_type(member.kind)


def _nested(kind: pa.DataType, inside: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.map_(inside.field(0).type, inside.field(1).type)
    return pa.list_(pa.field("element", inside))


def _enum_numbers(member: Member) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """The numbers of an enum, ascending, and their names, behind which stands that of an unknown number."""
    numbers = sorted(member.names)
    return np.array(numbers, dtype=np.int32), pa.array([*(member.names[n] for n in numbers), UNRECOGNIZED], pa.string())


def _array(values: Values, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def _repeats(owner: Longs, keys: pa.Array) -> Mask:
    """Which entries of maps have a key that an earlier entry of the same map has, and those whose key is unknown."""
    unknown = np.asarray(keys.is_null())
    return unknown | repeated(owner, keys.fill_null("") if keys.null_count else keys)
