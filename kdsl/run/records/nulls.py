"""Finds NULLs where a type forbids them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl.types.arrays import Indices
from kdsl.types.arrow import list_of_entries


def find_null_violations(array: pa.Array, kind: t.DataType, path: str) -> Iterator[tuple[str, Indices]]:
    """Find the NULLs of a column that its type forbids, at any depth; ``path`` is its name.

    Yields:
        Each path that is NULL (``address.street``, ``tags.element``), and the indices of the rows with NULL there,
        ascending. What lies within a NULL that is allowed does not count.
    """
    if not kind.nullable and array.null_count:
        yield path, row_indices(array.is_null())
    if not any(forbids_null(child) for child in t.children(kind)):
        return
    match kind:
        case t.Row(fields=fields):
            valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
            for i, field in enumerate(fields):
                for inner, rows in find_null_violations(array.field(i), field.type, f"{path}.{field.name}"):
                    present = rows if valid is None else rows[valid[rows]]
                    if len(present):
                        yield inner, present
        case t.Array(element=element) | t.Multiset(element=element):
            entries, parents = list_entries(array)
            values = entries.field(0) if isinstance(kind, t.Multiset) else entries
            for inner, rows in find_null_violations(values, element, f"{path}.element"):
                yield inner, np.unique(parents[rows])
        case t.Map(key=key, value=value):
            entries, parents = list_entries(array)
            for i, (name, inner_kind) in enumerate((("key", key), ("value", value))):
                for inner, rows in find_null_violations(entries.field(i), inner_kind, f"{path}.{name}"):
                    yield inner, np.unique(parents[rows])


def forbids_null(kind: t.DataType) -> bool:
    """Return whether NULL is forbidden anywhere in values of a type."""
    return not kind.nullable or any(forbids_null(child) for child in t.children(kind))


def list_entries(array: pa.Array) -> tuple[pa.Array, Indices]:
    """Return all elements of a list or map column (those of a map are structs), and the row index of each.

    Rows with NULL have no elements.
    """
    if pa.types.is_map(array.type):
        array = list_of_entries(array)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return array.flatten(), np.repeat(np.arange(len(array), dtype=np.int64), lengths)


def row_indices(mask: pa.Array) -> Indices:
    """Return the indices of the rows in which a mask is true."""
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))
