"""Looks up keys in the files of a state, which have the hashes of the keys."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from kdsl.errors import CheckpointError
from kdsl.own_columns import STATE_DELETED, STATE_TIME
from kdsl.run.state_files.files import StateFiles
from kdsl.run.upsert.keyed_state import OWN_NAMES, Document, Run, map_run, version_of
from kdsl.run.upsert.shared_hashes import SharedHashes, compare_keys
from kdsl.types.arrow import cast_array
from kdsl.types.arrow_values import python_rows


@attrs.frozen
class FoundRow:
    """What a state has of a key.

    Attributes:
        row: The last row of the key, by column; the one that it had before, if it was deleted.
        deleted: Whether the key was deleted.
        written: When the row was written, in milliseconds since 1970; None if rows do not expire, so it is not stored.
        version: The version whose batch wrote the file that has the row, or merged files to it.
        file: The name of that file.
    """

    row: Mapping[str, Any]
    deleted: bool
    written: int | None
    version: int
    file: str


def read_schema(files: StateFiles, document: Document) -> pa.Schema | None:
    """Return the columns of the rows of a version, those of its newest file; None if it has no rows.

    Args:
        files: The files of the state.
        document: The version.
    """
    if not document.runs:
        return None
    schema = map_run(files, document.runs[-1]).batches[0].schema
    return pa.schema([field for field in schema if field.name not in OWN_NAMES])


def make_key_arrays(schema: pa.Schema, columns: Sequence[str], key: Mapping[str, Any]) -> list[pa.Array]:
    """Return the values of a key as arrays of one row.

    Args:
        schema: The columns of the rows.
        columns: The columns of the key, in order.
        key: Their values: as JSON has them, with binary ones in Base64, or as strings.
    """
    return [_make_array(schema.field(name), key[name]) for name in columns]


def _make_array(field: pa.Field, value: Any) -> pa.Array:
    """Return a value as an array; a string is read as the type of the column."""
    kind = field.type
    try:
        if value is None:
            return pa.nulls(1, kind)
        if pa.types.is_binary(kind):
            return pa.array([base64.b64decode(value, validate=True)], kind)
        if pa.types.is_nested(kind):
            return pa.array([json.loads(value) if isinstance(value, str) else value], kind)
        if pa.types.is_string(kind):
            return pa.array([value if isinstance(value, str) else json.dumps(value)], kind)
        return pa.array([value if isinstance(value, str) else json.dumps(value)]).cast(kind)
    except (ValueError, TypeError, pa.ArrowException) as e:
        raise CheckpointError(f"the key column {field.name!r} is {kind}, and {value!r} is none: {e}") from None


def find_row(files: StateFiles, document: Document, columns: Sequence[str], key: Sequence[pa.Array]) -> FoundRow | None:
    """Find what a version has of a key; None if it has nothing.

    Args:
        files: The files of the state.
        document: The version.
        columns: The columns of the key.
        key: Their values.
    """
    fields = [pa.field(name, array.type) for name, array in zip(columns, key, strict=True)]
    hashes = SharedHashes.from_bytes(pa.schema(fields), columns, document.shared).hash(key)
    for stored in reversed(document.runs):
        run: Run = map_run(files, stored)
        for _, batch, at in run.find(hashes):
            if not len(at):
                continue
            row = batch.slice(int(at[0]), 1)
            same = [cast_array(row.column(name), field.type) for name, field in zip(columns, fields, strict=True)]
            if not compare_keys(key, np.arange(1), same, np.arange(1))[0]:
                continue
            values = python_rows(row.select([name for name in row.schema.names if name not in OWN_NAMES]))[0]
            written = row.column(STATE_TIME)[0].as_py() or None
            deleted = row.column(STATE_DELETED)[0].as_py()
            return FoundRow(values, deleted, written, version_of(stored.name) or 0, stored.name)
    return None
