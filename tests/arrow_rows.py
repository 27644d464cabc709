"""Arrow columns in the layout in which Spark hands them over."""

from __future__ import annotations

import pyarrow as pa


def in_spark_layout(array: pa.Array) -> pa.Array:
    """The same values, where all members of a NULL row are NULL, NOT NULL ones too.

    Spark's Arrow writer does so; `pyarrow.array` puts zeros and empty strings there.
    """
    buffers = array.buffers()
    if pa.types.is_struct(array.type):
        members = [in_spark_layout(member) for member in array.flatten()]  # each is NULL where its row is
        return pa.Array.from_buffers(array.type, len(array), buffers[:1], children=members)
    if pa.types.is_list(array.type):
        elements = in_spark_layout(array.values)
        return pa.Array.from_buffers(array.type, len(array), buffers[:2], children=[elements])
    if pa.types.is_map(array.type):
        entry = pa.struct([array.type.key_field, array.type.item_field])
        entries = [in_spark_layout(array.keys), in_spark_layout(array.items)]
        pairs = pa.Array.from_buffers(entry, len(array.keys), [None], children=entries)
        return pa.Array.from_buffers(array.type, len(array), buffers[:2], children=[pairs])
    return array
