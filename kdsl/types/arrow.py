"""Column types as Arrow types: exactly those that Spark exchanges for the matching Spark type."""

from __future__ import annotations

import pyarrow as pa

from kdsl.types import model as t

_SIMPLE: dict[type[t.DataType], pa.DataType] = {
    t.Boolean: pa.bool_(),
    t.TinyInt: pa.int8(),
    t.SmallInt: pa.int16(),
    t.Int: pa.int32(),
    t.BigInt: pa.int64(),
    t.Float: pa.float32(),
    t.Double: pa.float64(),
    t.Char: pa.string(),
    t.VarChar: pa.string(),
    t.Binary: pa.binary(),
    t.VarBinary: pa.binary(),
    t.Date: pa.date32(),
    t.Time: pa.time64("ns"),
    t.Timestamp: pa.timestamp("us"),
    t.TimestampLtz: pa.timestamp("us", tz="UTC"),
}


def arrow_type(kind: t.DataType) -> pa.DataType:
    """The Arrow type of a column type.

    Timestamps hold microseconds, Spark's precision; texts and bytes have 32-bit offsets.
    """
    match kind:
        case t.Decimal(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case t.Array(element=element):
            return pa.list_(arrow_field("element", element))
        case t.Map(key=key, value=value):
            return pa.map_(arrow_type(key), arrow_field("value", value))
        case t.Multiset(element=element):
            return pa.map_(arrow_type(element), pa.field("value", pa.int32(), nullable=False))
        case t.Row(fields=fields):
            return pa.struct([arrow_field(f.name, f.type) for f in fields])
        case _:
            return _SIMPLE[type(kind)]


def arrow_field(name: str, kind: t.DataType) -> pa.Field:
    """The Arrow field of a named type, with its nullability."""
    return pa.field(name, arrow_type(kind), nullable=kind.nullable)


def arrow_schema(row: t.Row) -> pa.Schema:
    """The Arrow schema of a row type."""
    return pa.schema([arrow_field(f.name, f.type) for f in row.fields])


def retyped(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array as another type of the same shape: other names of elements, other words on what may be NULL.

    Arrow's own cast refuses a NULL row whose type has members that are declared NOT NULL.

    Args:
        array: The values.
        kind: The type; simple types within it are cast.
    """
    if array.type == kind:
        return array
    if array.offset:
        array = pa.concat_arrays([array, array[:0]])
    buffers = array.buffers()
    if pa.types.is_struct(kind):
        parts = [retyped(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), [buffers[0]], children=parts)
    if pa.types.is_list(kind):
        return pa.Array.from_buffers(kind, len(array), buffers[:2], children=[retyped(array.values, kind.value_type)])
    if pa.types.is_map(kind):
        entry = [kind.key_field, kind.item_field]
        pairs = pa.StructArray.from_arrays(
            [retyped(array.keys, kind.key_type), retyped(array.items, kind.item_type)], fields=entry
        )
        return pa.Array.from_buffers(kind, len(array), buffers[:2], children=[pairs])
    return array.cast(kind)
