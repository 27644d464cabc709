"""The Protobuf encoder: rows to messages by whole columns; rows in doubt by the reference encoder.

Each column becomes pieces of the messages, which `pieces` puts together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor

from kdsl.formats import Encoded
from kdsl.types import model as t
from kdsl_formats._columns.arrays import Longs, Mask, Words, bounds
from kdsl_formats._columns.doubts import mended
from kdsl_formats._columns.varints import zigzag
from kdsl_formats.protobuf.elements import blame
from kdsl_formats.protobuf.layout import Layout, Member
from kdsl_formats.protobuf.pieces import Short, Values, joined, regrouped, tag
from kdsl_formats.protobuf.reference_encoder import ReferenceEncoder, WritingRules, is_unsigned
from kdsl_formats.protobuf.wire import FIXED32, FIXED64, LENGTH, VARINT

FEW = 4  # rows, below which looking at them one by one is quicker
_F = FieldDescriptor
_FIXED64 = (_F.TYPE_DOUBLE, _F.TYPE_FIXED64, _F.TYPE_SFIXED64)
_FIXED32 = (_F.TYPE_FLOAT, _F.TYPE_FIXED32, _F.TYPE_SFIXED32)


class ProtobufEncoder:
    """Writes rows of one type as messages.

    Args:
        layout: The message and the row type.
        rules: What the options of the format mean.
        few: How many rows are written one by one, because columns are not worth it.
    """

    def __init__(self, layout: Layout, rules: WritingRules, *, few: int = FEW) -> None:
        self.few = few
        self.reference = ReferenceEncoder(layout, rules)
        self.writer = RowWriter(layout, rules)

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Write rows."""
        doubts = np.full(len(rows), len(rows) <= self.few)
        made = None if doubts.all() else self.writer.messages(rows.flatten(), len(rows), doubts)
        return mended(rows, made, doubts, self.reference.message)


class RowWriter:
    """Writes struct columns as messages."""

    def __init__(self, layout: Layout, rules: WritingRules) -> None:
        self.writers = tuple(MemberWriter(m, rules) for m in layout.members)
        numbers = [m.field.number for m in layout.members]
        self._order = sorted(range(len(numbers)), key=numbers.__getitem__)
        oneofs = [m.oneof for m in layout.members]
        self._later = [
            [j for j in range(i + 1, len(oneofs)) if name is not None and oneofs[j] == name]
            for i, name in enumerate(oneofs)
        ]

    def messages(self, columns: Sequence[pa.Array], count: int, doubts: Mask) -> pa.BinaryArray:
        """The messages of rows.

        Args:
            columns: A column for each member.
            count: How many rows there are.
            doubts: The rows in doubt, to which others are added.
        """
        pieces: list[Short | pa.BinaryArray] = []
        for i in self._order:
            later = [columns[j] for j in self._later[i] if columns[j].null_count < count]
            pieces += self.writers[i].pieces(columns[i], later, doubts)
        return joined(pieces, count)


class MemberWriter:
    """Writes one column as a field."""

    def __init__(self, member: Member, rules: WritingRules) -> None:
        self.member = member
        self.field = member.field
        self._rules = rules
        self.inside = None
        if member.inside is not None and member.form != "json":
            self.inside = RowWriter(member.inside, rules)
        self._first = next(iter(member.names), 0)

    def pieces(self, column: pa.Array, later: Sequence[pa.Array], doubts: Mask) -> list[Short | pa.BinaryArray]:
        """The pieces of the field in each row; columns that come later in the same oneof win."""
        present = _valid(column)
        if self.field.is_required and present is not None:
            doubts |= ~present
        for other in later:
            absent = ~_mask(other)
            present = absent if present is None else present & absent
        if present is not None and not present.any():
            return []
        if self.member.form == "json" or self.field.type == _F.TYPE_GROUP:
            doubts |= True if present is None else present
            return []
        if self.member.shape != "one":
            return self._repeated(column, present, doubts)
        values = self._values(column, doubts, None, present)
        if not self.member.presence:
            zero = _is_default(values)
            if zero is not None:
                present = ~zero if present is None else present & ~zero
        return self._tagged(values, present)

    def _tagged(self, values: Values, present: Mask | None) -> list[Short | pa.BinaryArray]:
        if values.data is None:
            wire = VARINT if values.fixed is None else FIXED64 if values.fixed.shape[1] == 8 else FIXED32
            return [Short(tag(self.field, wire), present, values.numbers, values.fixed)]
        start, end = bounds(values.data)
        lengths = end - start
        data = values.data
        if present is not None:
            data = pc.if_else(pa.array(present), data, pa.scalar(None, data.type))
            lengths = np.where(present, lengths, 0)
        return [Short(tag(self.field, LENGTH), present, lengths.astype(np.uint64)), data]

    def _values(self, array: pa.Array, doubts: Mask, owner: Longs | None, present: Mask | None) -> Values:
        """Values as they are written; what NULL becomes does not matter where nothing is present."""
        kind = self.field.type
        if self.inside is not None:
            wrong = np.zeros(len(array), dtype=bool)
            made = self.inside.messages(_parts(self.member, array), len(array), wrong)
            blame(doubts, owner, wrong if present is None else wrong & present)
            return Values(data=made)
        if kind in (_F.TYPE_STRING, _F.TYPE_BYTES):
            return Values(data=array.cast(pa.binary()))
        numbers, wrong_numbers = self._numbers(array)
        if wrong_numbers is not None:
            blame(doubts, owner, wrong_numbers if present is None else wrong_numbers & present)
        if kind in _FIXED64:
            return Values(fixed=numbers.view(np.uint8).reshape(-1, 8))
        if kind in _FIXED32:
            return Values(fixed=numbers.astype(np.uint32).view(np.uint8).reshape(-1, 4))
        return Values(numbers=numbers)

    def _numbers(self, array: pa.Array) -> tuple[Words, Mask | None]:
        """Numbers as the bits that are written, and which of them are in doubt."""
        member, kind = self.member, self.field.type
        if member.form == "enum":
            return self._enums(array)
        if kind == _F.TYPE_BOOL:
            return np.asarray(pc.fill_null(array, False)).astype(np.uint64), None
        if isinstance(member.kind, t.Decimal):
            return _unsigned(array)
        plain = np.asarray(pc.fill_null(array, 0) if array.null_count else array)
        if kind == _F.TYPE_DOUBLE:
            return np.ascontiguousarray(plain).view(np.uint64), None
        if kind == _F.TYPE_FLOAT:
            return np.ascontiguousarray(plain).view(np.uint32).astype(np.uint64), None
        numbers = plain.astype(np.int64)
        if kind in (_F.TYPE_SINT32, _F.TYPE_SINT64):
            return zigzag(numbers), None
        if is_unsigned(member) and self.field.cpp_type == _F.CPPTYPE_UINT32:
            wrong = None
            if isinstance(member.kind, t.BigInt):
                wrong = (numbers < 0) | (numbers >= 1 << 32)
            return numbers.view(np.uint64) & np.uint64(0xFFFFFFFF), wrong
        return numbers.view(np.uint64), None

    def _enums(self, array: pa.Array) -> tuple[Words, Mask | None]:
        member = self.member
        if member.by_name:
            known = pa.array(list(member.numbers), pa.string())
            place = pc.index_in(array, value_set=known)
            unknown = np.asarray(place.is_null()) if place.null_count else None
            numbers = np.array(list(member.numbers.values()), dtype=np.int64)
            made = numbers[np.asarray(pc.fill_null(place, 0))]
        else:
            made = np.asarray(pc.fill_null(array, self._first)).astype(np.int64)
            unknown = ~np.isin(made, np.array(list(member.names), dtype=np.int64))
        if unknown is None or not unknown.any():
            return made.view(np.uint64), None
        made = np.where(unknown, self._first, made)
        given = unknown & _mask(array)
        return made.view(np.uint64), given if self._rules.unknown_fails and given.any() else None

    def _repeated(self, column: pa.Array, present: Mask | None, doubts: Mask) -> list[Short | pa.BinaryArray]:
        count = len(column)
        flat, sizes = _flat(column)
        if present is not None:  # lost to another of its oneof, or NULL: neither has elements here
            sizes = np.where(present, sizes, 0)
        if not len(flat):
            return []
        owner = np.repeat(np.arange(count), sizes)
        ends = np.cumsum(sizes)
        values = self._elements(flat, doubts, owner)
        if self.field.is_packed:
            data = joined([Short(b"", None, values.numbers, values.fixed)], len(flat))
            return self._tagged(Values(data=regrouped(data, ends)), sizes > 0)
        return [regrouped(joined(self._tagged(values, None), len(flat)), ends)]

    def _elements(self, flat: pa.Array, doubts: Mask, owner: Longs) -> Values:
        """Values of which none is NULL."""
        if self.member.shape == "map":
            assert self.inside is not None
            wrong = np.zeros(len(flat), dtype=bool)
            key, value = self.inside.writers
            made = self.inside.messages([flat.field(0), value.filled(flat.field(1))], len(flat), wrong)
            blame(doubts, owner, wrong)
            if key.member.form == "json" or value.member.form == "json":
                blame(doubts, owner, np.ones(len(flat), dtype=bool))
            return Values(data=made)
        return self._values(self.filled(flat), doubts, owner, None)

    def filled(self, array: pa.Array) -> pa.Array:
        """The values with the default in the place of NULL, as is done inside arrays and maps."""
        if not array.null_count:
            return array
        member = self.member
        if member.form == "message":
            return pa.StructArray.from_arrays(array.flatten(), fields=list(array.type))
        if member.form == "enum":
            first = member.names[self._first] if member.by_name else self._first
            return pc.fill_null(array, pa.scalar(first, array.type))
        match member.kind:
            case t.Char() | t.VarChar():
                default: Any = self._rules.null_text
            case t.Binary() | t.VarBinary():
                default = b""
            case t.Boolean():
                default = False
            case _:
                default = 0
        return array if member.inside is not None else pc.fill_null(array, pa.scalar(default, array.type))


def _parts(member: Member, array: pa.Array) -> list[pa.Array]:
    """The columns of the messages that a column's values are."""
    match member.form:
        case "timestamp":
            micros = (
                array.view(pa.int64()) if not array.offset else pa.concat_arrays([array, array[:0]]).view(pa.int64())
            )
            plain = np.asarray(pc.fill_null(micros, 0))
            seconds, rest = np.floor_divide(plain, 1_000_000), np.mod(plain, 1_000_000)
            absent = None if not array.null_count else ~_mask(array)
            return [
                pa.array(seconds, pa.int64(), mask=absent),
                pa.array((rest * 1000).astype(np.int32), pa.int32(), mask=absent),
            ]
        case "wrapper":
            return [array]
        case _:
            made: list[pa.Array] = array.flatten()
            return made


def _is_default(values: Values) -> Mask | None:
    """Which values a field without presence leaves out."""
    if values.data is not None:
        start, end = bounds(values.data)
        zero: Any = start == end
    elif values.fixed is not None:
        zero = ~values.fixed.any(axis=1)
    else:
        zero = values.numbers == 0
    return zero if zero.any() else None


def _unsigned(array: pa.Array) -> tuple[Words, Mask]:
    """Decimals without a fraction as unsigned numbers."""
    wide = np.frombuffer(array.buffers()[1], dtype=np.uint64).reshape(-1, 2)[array.offset : array.offset + len(array)]
    valid = _mask(array)
    return np.where(valid, wide[:, 0], np.uint64(0)), (wide[:, 1] != 0) & valid


def _flat(column: pa.Array) -> tuple[pa.Array, Longs]:
    """The elements of a list or map column (a map's are structs), and how many each row has."""
    if pa.types.is_map(column.type):
        entry = pa.struct([pa.field("key", column.type.key_type), pa.field("value", column.type.item_type)])
        column = column.cast(pa.list_(entry))
    sizes = np.asarray(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)
    return column.flatten(), sizes


def _valid(array: pa.Array) -> Mask | None:
    return np.asarray(array.is_valid()) if array.null_count else None


def _mask(array: pa.Array) -> Mask:
    return np.asarray(array.is_valid())
