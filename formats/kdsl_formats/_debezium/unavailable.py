"""Finds Debezium's placeholders for values that Postgres did not send, because a change did not touch them.

Postgres stores large values out of line (TOAST), and sends an unchanged one only if the REPLICA IDENTITY of the table
is FULL. The placeholder that Debezium writes instead depends on the column's type; the forms are those of its
``UnchangedToastedPlaceholder``, and of the messages in ``tests/formats/debezium``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl_formats._columns.arrays import Mask, content

_STRINGS = (t.Char, t.VarChar)
_BYTES = (t.Binary, t.VarBinary)
_NUMBERS = (t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double, t.Decimal)


class PlaceholderFinder:
    """Finds placeholders among decoded values.

    Args:
        row: The type of the rows.
        placeholder: The value of the connector's option ``unavailable.value.placeholder``.
    """

    def __init__(self, row: t.Row, placeholder: str) -> None:
        plain = placeholder.encode()
        self._strings = [placeholder, json.dumps({placeholder: placeholder}, ensure_ascii=False, separators=(",", ":"))]
        self._strings.append(base64.b64encode(plain).decode())
        self._bytes = [plain]
        self._elements = [placeholder, _uuid_of_name(plain)]
        self._codes = np.frombuffer(plain, dtype=np.int8).astype(np.float64)
        self._columns = [(i, f.name, f.type) for i, f in enumerate(row.fields) if _may_hold(f.type)]

    def may_hold(self, messages: pa.BinaryArray) -> bool:
        """Whether messages in JSON may have a placeholder, in any form; a search that costs much less than reading."""
        forms = [self._strings[0], self._strings[2], self._elements[1], ",".join(map(str, self._codes.astype(int)))]
        text = content(messages).tobytes()
        return any(form.encode() in text for form in forms)

    def replace_placeholders(self, decoded: Decoded) -> Decoded:
        """Return the rows with NULL for placeholders, marked in `Decoded.unavailable`; the argument if it has none.

        Values inside a ROW are not searched.
        """
        masks: dict[str, pa.Array] = {}
        columns: list[pa.Array] | None = None
        for index, name, kind in self._columns:
            column = decoded.rows.field(index)
            mask = self._find_placeholders(column, kind)
            if mask is None or not mask.any():
                continue
            masks[name] = pa.array(mask)
            columns = columns or [decoded.rows.field(i) for i in range(decoded.rows.type.num_fields)]
            columns[index] = column.take(pa.array(np.arange(len(column)), mask=mask))
        if columns is None:
            return decoded
        rows = pa.Array.from_buffers(decoded.rows.type, len(decoded.rows), [None], children=columns)
        return attrs.evolve(decoded, rows=rows, unavailable=masks)

    def _find_placeholders(self, column: pa.Array, kind: t.DataType) -> Mask | None:
        """Which values are placeholders; may be None if there are none."""
        if len(column) == 0:
            return None
        match kind:
            case t.Char() | t.VarChar():
                return _find_among(column, self._strings)
            case t.Binary() | t.VarBinary():
                return _find_among(column, self._bytes)
            case t.Map():
                return self._find_single(column, column.keys, self._elements)
            case t.Array(element=t.Char() | t.VarChar()):
                return self._find_single(column, column.values, self._elements)
            case t.Array(element=t.Binary() | t.VarBinary()):
                return self._find_single(column, column.values, self._bytes)
            case _:
                return self._find_spelled_out(column)

    def _find_single(self, column: pa.Array, values: pa.Array, wanted: Sequence[Any]) -> Mask | None:
        """Which lists (or maps) have one element (or key), which is a placeholder; may be None if there are none."""
        start, size = _extents(column)
        index = np.flatnonzero(size == 1)
        if not index.size:
            return None
        matches = _find_among(values.take(pa.array(start[index])), wanted)
        if matches is None:
            return None
        mask = np.zeros(len(column), dtype=bool)
        mask[index] = matches
        return mask

    def _find_spelled_out(self, column: pa.Array) -> Mask | None:
        """Which lists of numbers are the bytes of the placeholder; None if none has their length."""
        start, size = _extents(column)
        index = np.flatnonzero(size == len(self._codes))
        if not index.size:
            return None
        positions = start[index][:, None] + np.arange(len(self._codes))
        numbers = pc.cast(column.values.take(pa.array(positions.ravel())), pa.float64(), safe=False)
        matches = pc.fill_null(numbers, np.nan).to_numpy(zero_copy_only=False).reshape(positions.shape) == self._codes
        mask = np.zeros(len(column), dtype=bool)
        mask[index] = matches.all(axis=1)
        return mask


def _may_hold(kind: t.DataType) -> bool:
    """Whether a type is of strings or bytes, an ARRAY of strings, bytes or numbers, or a MAP whose keys are strings."""
    match kind:
        case t.Array(element=element):
            return isinstance(element, (*_STRINGS, *_BYTES, *_NUMBERS))
        case t.Map(key=key):
            return isinstance(key, _STRINGS)
        case _:
            return isinstance(kind, (*_STRINGS, *_BYTES))


def _find_among(values: pa.Array, wanted: Sequence[Any]) -> Mask | None:
    """Which values are among some wanted ones (NULL is not); None if no value has the length of one."""
    sizes = np.diff(np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + len(values) + 1])
    lengths = {len(text.encode() if isinstance(text, str) else text) for text in wanted}
    index = np.flatnonzero(np.logical_or.reduce([sizes == length for length in lengths]))
    if not index.size:
        return None
    mask = np.zeros(len(values), dtype=bool)
    mask[index] = pc.is_in(values.take(pa.array(index)), value_set=pa.array(wanted, values.type))
    return mask


def _extents(column: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]:
    """The index of the first element of each list, and its number of elements; 0 for NULL."""
    offsets = np.asarray(column.offsets).astype(np.int64)
    size = np.diff(offsets)
    if column.null_count:
        size = np.where(np.asarray(column.is_valid()), size, 0)
    return offsets[:-1], size


def _uuid_of_name(name: bytes) -> str:
    """Java's ``UUID.nameUUIDFromBytes``: a UUID of version 3 without a namespace."""
    return str(uuid.UUID(bytes=hashlib.md5(name, usedforsecurity=False).digest(), version=3))
