"""Column types as Arrow types: exactly those that Spark exchanges for the matching Spark type."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kdsl.errors import listing
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

    Timestamps hold microseconds, Spark's precision; strings and bytes have 32-bit offsets; lengths are dropped.
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


def cast_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast an array to another type, inside of rows, lists and maps too; buffers are shared where values do not change.

    Use it wherever a column may be nested. Arrow's own ``cast`` refuses a NULL row whose type has NOT NULL members
    ("nulls in input cannot be viewed as non-nullable"), even if source and target types are equal, and Spark hands over
    such rows. It also sets all members of a row to NULL when their names differ from those of the target type.

    Members of rows are matched by name; a nullable member that the array does not have is NULL. NOT NULL is not checked
    (`kdsl.run.records.nulls.find_null_violations` does that).

    Args:
        array: The values.
        kind: The type to cast to. Lists may come from any kind of list; and from maps, where each entry becomes a row
            of two members, the key and the value, whatever these are called.

    Raises:
        pa.ArrowInvalid: A value does not fit the type.
        pa.ArrowTypeError: The types have different shapes, or rows have different members.
        pa.ArrowNotImplementedError: Arrow has no cast between two simple types.
    """
    if array.type == kind:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if not pa.types.is_nested(array.type) and not pa.types.is_nested(kind):
        return array.cast(kind)
    if pa.types.is_dictionary(array.type):
        return cast_array(array.dictionary_decode(), kind)
    if array.offset:
        array = pa.concat_arrays([array, array[:0]])
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], children=_cast_members(array, kind))
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        entry = pa.struct([kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], children=[_cast_entries(array, entry)])
    if pa.types.is_list(kind) and pa.types.is_map(array.type):
        entry = kind.value_type
        if not pa.types.is_struct(entry) or entry.num_fields != 2:
            raise pa.ArrowTypeError(f"{array.type} cannot be cast to {kind}: its entries are rows of a key and a value")
        elements = _cast_entries(array, entry)
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], children=[elements])
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        elements = cast_array(array.values, kind.value_type)
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], children=[elements])
    if pa.types.is_list(kind) and _is_other_list(array.type):
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths.cast(pa.int64()))])
        valid = array.is_valid().buffers()[1] if array.null_count else None
        elements = cast_array(pc.list_flatten(array), kind.value_type)
        return pa.Array.from_buffers(kind, len(array), [valid, ends.cast(pa.int32()).buffers()[1]], children=[elements])
    raise pa.ArrowTypeError(f"{array.type} cannot be cast to {kind}")


def _cast_members(rows: pa.StructArray, kind: pa.StructType) -> list[pa.Array]:
    """Cast the members of rows to those of another row type, found by name, in its order.

    A nullable member that the rows lack is NULL; no member of the rows is dropped.
    """
    names, wanted = [f.name for f in rows.type], [f.name for f in kind]
    if names == wanted:
        return [cast_array(rows.field(i), f.type) for i, f in enumerate(kind)]
    extra = [name for name in names if name not in wanted]
    missing = [f.name for f in kind if f.name not in names and not f.nullable]
    if extra or missing:
        problems = [f"it has {listing(extra)}, which {kind} does not have"] if extra else []
        problems += [f"it lacks {listing(missing)}, declared NOT NULL"] if missing else []
        raise pa.ArrowTypeError(f"{rows.type} cannot be cast to {kind}: {', and '.join(problems)}")
    return [cast_array(rows.field(f.name), f.type) if f.name in names else pa.nulls(len(rows), f.type) for f in kind]


def _cast_entries(array: pa.MapArray, kind: pa.StructType) -> pa.StructArray:
    """Cast all entries of maps to a row type of two members, whatever they are called; raise as `cast_array` does."""
    parts = [cast_array(array.keys, kind.field(0).type), cast_array(array.items, kind.field(1).type)]
    return pa.Array.from_buffers(kind, len(array.keys), [None], children=parts)


def _is_other_list(kind: pa.DataType) -> bool:
    """Whether a type is a large, fixed-size or view list."""
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_large_list,
            pa.types.is_fixed_size_list,
            pa.types.is_list_view,
            pa.types.is_large_list_view,
        )
    )


def list_of_entries(array: pa.MapArray) -> pa.ListArray:
    """Convert maps to lists of their entries, which are rows of ``key`` and ``value``."""
    entry = pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])
    return cast_array(array, pa.list_(entry))


def cast_batch(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast the columns of a batch, found by name, to those of a schema; drop other columns.

    Raises:
        pa.ArrowException: A column cannot be cast (see `cast_array`).
        KeyError: The batch lacks a column.
    """
    if rows.schema.equals(schema):
        return rows
    return pa.RecordBatch.from_arrays([cast_array(rows.column(f.name), f.type) for f in schema], schema=schema)


def plain_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python objects; dates, times and timestamps as numbers, maps as lists of pairs.

    The numbers are Arrow's own, so Python's limits on dates and times do not apply.
    """
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in plain_values(chunk)]
    kind = array.type
    if pa.types.is_date32(kind):
        return list(array.view(pa.int32()).to_pylist())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return list(array.view(pa.int64()).to_pylist())
    values: list[Any]
    if pa.types.is_struct(kind):
        names = [f.name for f in kind]
        columns = [plain_values(column) for column in array.flatten()]
        values = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] or [{} for _ in array]
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        offsets = array.offsets.to_pylist()
        parts = (array.keys, array.items) if pa.types.is_map(kind) else (array.values,)
        lists = [plain_values(part.slice(offsets[0], offsets[-1] - offsets[0])) for part in parts]
        elements = list(zip(*lists, strict=True)) if pa.types.is_map(kind) else lists[0]
        values = [elements[start - offsets[0] : end - offsets[0]] for start, end in pairwise(offsets)]
    else:
        return list(array.to_pylist())
    if not array.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]
