"""Reads messages of older versions of a schema, whose fields a table's columns go beyond.

A version may lack fields that a later one has, or have them as narrower numbers. What its messages contain is read, and
then completed: columns without a field are NULL, and numbers are widened.
"""

from __future__ import annotations

import attrs
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats.protobuf.layout import column_types, fits
from kdsl_formats.protobuf.schema import UNSIGNED, is_map


def readable_part(message: Descriptor, row: t.Row, *, may_lack_all: bool = False) -> t.Row:
    """The part of a row type that messages of a version have, with the types that can be read from their fields.

    Nullable columns without a field are left out, also inside of ROWs. Columns that are NOT NULL stay, and so do types
    that do not fit, which `kdsl_formats.protobuf.layout.find_problems` reports.

    Args:
        message: The message of that version.
        row: The row type.
        may_lack_all: Whether the message may have none of the columns. Otherwise all of them stay in this case: it is
            rather another message.
    """
    fields = tuple(
        attrs.evolve(column, type=_readable_type(message.fields_by_name[column.name], column.type))
        if column.name in message.fields_by_name
        else column
        for column in row.fields
        if column.name in message.fields_by_name or not column.type.nullable
    )
    return row if row.fields and not fields and not may_lack_all else attrs.evolve(row, fields=fields)


def _readable_type(field: FieldDescriptor, kind: t.DataType) -> t.DataType:
    """The type that values of a field are read as for a column of a type, which is the column's unless it is wider."""
    inner = field.message_type
    if is_map(field) and isinstance(kind, t.Map) and inner is not None:
        return attrs.evolve(kind, value=_readable_one(inner.fields_by_name["value"], kind.value))
    if field.is_repeated and isinstance(kind, t.Array):
        return attrs.evolve(kind, element=_readable_one(field, kind.element))
    return kind if field.is_repeated else _readable_one(field, kind)


def _readable_one(field: FieldDescriptor, kind: t.DataType) -> t.DataType:
    """The type that one value of a field is read as; see `_readable_type`."""
    if isinstance(kind, t.Row) and field.message_type is not None:
        return readable_part(field.message_type, kind, may_lack_all=True)
    if fits(field, kind):
        return kind
    narrower = [one for one in column_types(field) if _widens(one, kind)]
    return narrower[-1].as_nullable(kind.nullable) if narrower else kind  # the last one of unsigned numbers has no sign


def _widens(narrow: t.DataType, wide: t.DataType) -> bool:
    """Whether every number of a type is one of another type, too."""
    if isinstance(wide, t.Decimal):
        return isinstance(narrow, t.Int | t.BigInt) and wide.scale == 0 and wide.precision >= UNSIGNED.precision
    pair = (type(narrow), type(wide))
    return pair in ((t.Int, t.BigInt), (t.Float, t.Double), (t.Int, t.Double))


def complete_array(array: pa.Array, part: t.DataType, whole: t.DataType) -> pa.Array:
    """Complete values of a readable part (`readable_part`) to values of the whole type."""
    if part == whole:
        return array
    kind = arrow_type(whole)
    if isinstance(part, t.Row) and isinstance(whole, t.Row):
        parts = {field.name: (array.field(i), field.type) for i, field in enumerate(part.fields)}
        children = [
            complete_array(*parts[f.name], f.type) if f.name in parts else pa.nulls(len(array), arrow_type(f.type))
            for f in whole.fields
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if isinstance(part, t.Array) and isinstance(whole, t.Array):
        children = [complete_array(array.values, part.element, whole.element)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, children)
    if isinstance(part, t.Map) and isinstance(whole, t.Map):
        values = complete_array(array.items, part.value, whole.value)
        entries = pa.StructArray.from_arrays([array.keys, values], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, [entries])
    return array.cast(kind)
