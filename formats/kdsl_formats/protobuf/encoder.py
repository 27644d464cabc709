"""The Protobuf encoder: encodes rows as whole columns; the reference encoder writes rows that need the fallback.

Each column is encoded as pieces of the messages, which `pieces` joins.
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
from kdsl.types.arrow import list_of_entries
from kdsl_formats._columns.arrays import Integers, Mask, Words, find_bounds
from kdsl_formats._columns.fallback import write_fallback_rows
from kdsl_formats._columns.varints import zigzag
from kdsl_formats.protobuf.elements import mark_fallback
from kdsl_formats.protobuf.layout import Layout, Member
from kdsl_formats.protobuf.pieces import FieldData, TagPiece, encode_tag, join_pieces, regroup
from kdsl_formats.protobuf.reference_encoder import ReferenceEncoder, WritingRules, is_unsigned
from kdsl_formats.protobuf.wire import FIXED32, FIXED64, LENGTH, VARINT

MIN_BATCH = 5  # rows: fewer are written faster one by one
_F = FieldDescriptor
_FIXED64 = (_F.TYPE_DOUBLE, _F.TYPE_FIXED64, _F.TYPE_SFIXED64)
_FIXED32 = (_F.TYPE_FLOAT, _F.TYPE_FIXED32, _F.TYPE_SFIXED32)


class ProtobufEncoder:
    """Encodes rows of one type as messages.

    Args:
        layout: The message and the row type.
        rules: The options of the format.
        min_batch: Fewer rows are written one by one, which is faster.
    """

    def __init__(self, layout: Layout, rules: WritingRules, *, min_batch: int = MIN_BATCH) -> None:
        self.min_batch = min_batch
        self.reference = ReferenceEncoder(layout, rules)
        self.writer = RowWriter(layout, rules)

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Encode an array of rows, whatever their kinds, independently of earlier arrays.

        Rows that cannot be written become bad records.
        """
        fallback = np.full(len(rows), len(rows) < self.min_batch)
        messages = None if fallback.all() else self.writer.write_messages(rows.flatten(), len(rows), fallback)
        return write_fallback_rows(rows, messages, fallback, self.reference.write_message)


class RowWriter:
    """Encodes struct columns as messages."""

    def __init__(self, layout: Layout, rules: WritingRules) -> None:
        self.writers = tuple(MemberWriter(m, rules) for m in layout.members)
        numbers = [m.field.number for m in layout.members]
        self._order = sorted(range(len(numbers)), key=numbers.__getitem__)
        oneofs = [m.oneof for m in layout.members]
        self._later = [
            [j for j in range(i + 1, len(oneofs)) if name is not None and oneofs[j] == name]
            for i, name in enumerate(oneofs)
        ]

    def write_messages(self, columns: Sequence[pa.Array], count: int, fallback: Mask) -> pa.BinaryArray:
        """The messages of rows, meaningless for rows that need the fallback.

        Args:
            columns: A column for each member.
            count: The number of rows.
            fallback: The rows that need the fallback; more are added.
        """
        pieces: list[TagPiece | pa.BinaryArray] = []
        for i in self._order:
            later = [columns[j] for j in self._later[i] if columns[j].null_count < count]
            pieces += self.writers[i].write_pieces(columns[i], later, fallback)
        return join_pieces(pieces, count)


class MemberWriter:
    """Encodes one column as a field."""

    def __init__(self, member: Member, rules: WritingRules) -> None:
        self.member = member
        self.field = member.field
        self._rules = rules
        self.inside = None
        if member.inside is not None and member.form != "json":
            self.inside = RowWriter(member.inside, rules)
        self._first = next(iter(member.names), 0)

    def write_pieces(
        self, column: pa.Array, later: Sequence[pa.Array], fallback: Mask
    ) -> list[TagPiece | pa.BinaryArray]:
        """The pieces of the field in each row; rows that need the fallback are marked in ``fallback``.

        A row has none where the column is NULL, a later column of its oneof is not, or a default need not be written.
        NULL in a required field needs the fallback, and so do all values that are JSON or groups: they have no pieces.
        """
        present = _valid_mask(column)
        if self.field.is_required and present is not None:
            fallback |= ~present
        for other in later:
            absent = ~_present_mask(other)
            present = absent if present is None else present & absent
        if present is not None and not present.any():
            return []
        if self.member.form == "json" or self.field.type == _F.TYPE_GROUP:
            fallback |= True if present is None else present
            return []
        if self.member.shape != "one":
            return self._write_repeated(column, present, fallback)
        values = self._to_field_data(column, fallback, None, present)
        if not self.member.presence:
            zero = _is_default(values)
            if zero is not None:
                present = ~zero if present is None else present & ~zero
        return self._add_tag(values, present)

    def _add_tag(self, values: FieldData, present: Mask | None) -> list[TagPiece | pa.BinaryArray]:
        """Put the tag of the field (and the length of byte strings) before the values of present rows."""
        if values.data is None:
            wire = VARINT if values.fixed is None else FIXED64 if values.fixed.shape[1] == 8 else FIXED32
            return [TagPiece(encode_tag(self.field, wire), present, values.numbers, values.fixed)]
        start, end = find_bounds(values.data)
        lengths = end - start
        data = values.data
        if present is not None:
            data = pc.if_else(pa.array(present), data, pa.scalar(None, data.type))
            lengths = np.where(present, lengths, 0)
        return [TagPiece(encode_tag(self.field, LENGTH), present, lengths.astype(np.uint64)), data]

    def _to_field_data(
        self, array: pa.Array, fallback: Mask, owner: Integers | None, present: Mask | None
    ) -> FieldData:
        """Convert values to the form in which they are written.

        The caller leaves NULL out: it stays NULL in strings and bytes, otherwise it becomes any value. Values that need
        the fallback mark their rows (``owner``) in ``fallback``, if they are present.
        """
        kind = self.field.type
        if self.inside is not None:
            wrong = np.zeros(len(array), dtype=bool)
            inner_messages = self.inside.write_messages(_message_columns(self.member, array), len(array), wrong)
            mark_fallback(fallback, owner, wrong if present is None else wrong & present)
            return FieldData(data=inner_messages)
        if kind in (_F.TYPE_STRING, _F.TYPE_BYTES):
            return FieldData(data=array.cast(pa.binary()))
        numbers, wrong_numbers = self._to_bits(array)
        if wrong_numbers is not None:
            mark_fallback(fallback, owner, wrong_numbers if present is None else wrong_numbers & present)
        if kind in _FIXED64:
            return FieldData(fixed=numbers.view(np.uint8).reshape(-1, 8))
        if kind in _FIXED32:
            return FieldData(fixed=numbers.astype(np.uint32).view(np.uint8).reshape(-1, 4))
        return FieldData(numbers=numbers)

    def _to_bits(self, array: pa.Array) -> tuple[Words, Mask | None]:
        """Convert numbers to the bits that are written; also returns which need the fallback (None: none of them).

        NULL becomes 0, or the first value of an enum.
        """
        member, kind = self.member, self.field.type
        if member.form == "enum":
            return self._enum_bits(array)
        if kind == _F.TYPE_BOOL:
            return np.asarray(pc.fill_null(array, False)).astype(np.uint64), None
        if isinstance(member.kind, t.Decimal):
            return _to_unsigned(array)
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

    def _enum_bits(self, array: pa.Array) -> tuple[Words, Mask | None]:
        """The numbers of enum values, the first one of the enum for NULL and for unknown values.

        Also return which values need the fallback: unknown ones, if the rules reject them; None if there are none.
        """
        member = self.member
        if member.by_name:
            known = pa.array(list(member.numbers), pa.string())
            index = pc.index_in(array, value_set=known)
            unknown = np.asarray(index.is_null()) if index.null_count else None
            numbers = np.array(list(member.numbers.values()), dtype=np.int64)
            codes = numbers[np.asarray(pc.fill_null(index, 0))]
        else:
            codes = np.asarray(pc.fill_null(array, self._first)).astype(np.int64)
            unknown = ~np.isin(codes, np.array(list(member.names), dtype=np.int64))
        if unknown is None or not unknown.any():
            return codes.view(np.uint64), None
        codes = np.where(unknown, self._first, codes)
        unknown_values = unknown & _present_mask(array)
        return codes.view(np.uint64), unknown_values if self._rules.unknown_fails and unknown_values.any() else None

    def _write_repeated(
        self, column: pa.Array, present: Mask | None, fallback: Mask
    ) -> list[TagPiece | pa.BinaryArray]:
        """The pieces of a repeated field or map; rows without elements have none.

        Rows that need the fallback are marked in ``fallback``.
        """
        count = len(column)
        flat, sizes = _flatten(column)
        if present is not None:  # NULL, or replaced by another member of its oneof: neither has elements
            sizes = np.where(present, sizes, 0)
        if not len(flat):
            return []
        owner = np.repeat(np.arange(count), sizes)
        ends = np.cumsum(sizes)
        values = self._write_elements(flat, fallback, owner)
        if self.field.is_packed:
            data = join_pieces([TagPiece(b"", None, values.numbers, values.fixed)], len(flat))
            return self._add_tag(FieldData(data=regroup(data, ends)), sizes > 0)
        return [regroup(join_pieces(self._add_tag(values, None), len(flat)), ends)]

    def _write_elements(self, flat: pa.Array, fallback: Mask, owner: Integers) -> FieldData:
        """The elements of arrays or entries of maps, with defaults instead of NULL; marks rows for the fallback."""
        if self.member.shape == "map":
            assert self.inside is not None
            wrong = np.zeros(len(flat), dtype=bool)
            key, value = self.inside.writers
            entries = self.inside.write_messages([flat.field(0), value.fill_nulls(flat.field(1))], len(flat), wrong)
            mark_fallback(fallback, owner, wrong)
            if key.member.form == "json" or value.member.form == "json":
                mark_fallback(fallback, owner, np.ones(len(flat), dtype=bool))
            return FieldData(data=entries)
        return self._to_field_data(self.fill_nulls(flat), fallback, owner, None)

    def fill_nulls(self, array: pa.Array) -> pa.Array:
        """Replace NULL by the default, as inside arrays and maps; the same array if it has no NULL.

        A message becomes one without fields, a string the null text of the rules, an enum its first value. Timestamps,
        wrapped values and JSON stay NULL.
        """
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


def _message_columns(member: Member, array: pa.Array) -> list[pa.Array]:
    """The columns of a column's messages: seconds and nanoseconds of timestamps, wrapped values, or a ROW's fields."""
    match member.form:
        case "timestamp":
            micros = (
                array.view(pa.int64()) if not array.offset else pa.concat_arrays([array, array[:0]]).view(pa.int64())
            )
            plain = np.asarray(pc.fill_null(micros, 0))
            seconds, rest = np.floor_divide(plain, 1_000_000), np.mod(plain, 1_000_000)
            absent = None if not array.null_count else ~_present_mask(array)
            return [
                pa.array(seconds, pa.int64(), mask=absent),
                pa.array((rest * 1000).astype(np.int32), pa.int32(), mask=absent),
            ]
        case "wrapper":
            return [array]
        case _:
            columns: list[pa.Array] = array.flatten()
            return columns


def _is_default(values: FieldData) -> Mask | None:
    """Which values are the default, and omitted by a field without presence; None if there are none."""
    if values.data is not None:
        start, end = find_bounds(values.data)
        zero: Any = start == end
    elif values.fixed is not None:
        zero = ~values.fixed.any(axis=1)
    else:
        zero = values.numbers == 0
    return zero if zero.any() else None


def _to_unsigned(array: pa.Array) -> tuple[Words, Mask]:
    """Convert decimals without a fraction to 64-bit numbers, and return which do not fit; NULL becomes 0."""
    wide = np.frombuffer(array.buffers()[1], dtype=np.uint64).reshape(-1, 2)[array.offset : array.offset + len(array)]
    valid = _present_mask(array)
    return np.where(valid, wide[:, 0], np.uint64(0)), (wide[:, 1] != 0) & valid


def _flatten(column: pa.Array) -> tuple[pa.Array, Integers]:
    """The elements of a list or map column (structs for a map), and the number of elements of each row."""
    if pa.types.is_map(column.type):
        column = list_of_entries(column)
    sizes = np.asarray(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)
    return column.flatten(), sizes


def _valid_mask(array: pa.Array) -> Mask | None:
    """Which elements are not NULL; None if all are."""
    return np.asarray(array.is_valid()) if array.null_count else None


def _present_mask(array: pa.Array) -> Mask:
    """Which elements are not NULL."""
    return np.asarray(array.is_valid())
