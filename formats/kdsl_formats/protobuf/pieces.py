"""Joins the pieces of messages to the messages of many rows at once.

Short pieces (tags, lengths, numbers) are written here; long ones (strings, bytes, nested messages) exist already. Arrow
concatenates the pieces of all rows in one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor

from kdsl_formats._columns.arrays import Bytes, Integers, Mask, Words, find_bounds
from kdsl_formats._columns.varints import varint_sizes, write_varints


@attrs.frozen(eq=False)
class FieldData:
    """Values of a field, one for each row, in one of three forms.

    Attributes:
        numbers: The values of varints.
        fixed: The bytes of fixed-width numbers, one line for each row.
        data: Byte strings; NULL for rows without a value.
    """

    numbers: Words | None = None
    fixed: npt.NDArray[np.uint8] | None = None
    data: pa.BinaryArray | None = None


@attrs.frozen(eq=False)
class TagPiece:
    """A tag, and the number after it.

    Attributes:
        tag: The bytes of the tag.
        present: The rows that have it; None for all.
        numbers: The varint after it.
        fixed: The fixed-width number after it.
    """

    tag: bytes
    present: Mask | None
    numbers: Words | None = None
    fixed: npt.NDArray[np.uint8] | None = None


def join_pieces(pieces: Sequence[TagPiece | pa.BinaryArray], count: int) -> pa.BinaryArray:
    """Join the pieces of each row, in order, to one array of messages, less than 2 GiB; NULL pieces have no bytes."""
    whole: list[pa.BinaryArray] = []
    short: list[TagPiece] = []
    for piece in pieces:
        if isinstance(piece, TagPiece):
            short.append(piece)
            continue
        if short:
            whole.append(_write_tags(short, count))
            short = []
        whole.append(piece)
    if short:
        whole.append(_write_tags(short, count))
    if not whole:
        return pa.array([b""] * count, pa.binary())
    if len(whole) == 1 and not whole[0].null_count:
        return whole[0]
    kinds = len(whole)
    index = np.arange(count * kinds, dtype=np.int64).reshape(kinds, count).T.ravel()
    spread = pa.concat_arrays(whole).take(pa.array(index))
    return regroup(spread, np.arange(kinds, (count + 1) * kinds, kinds)[:count])


def regroup(array: pa.BinaryArray, ends: Integers) -> pa.BinaryArray:
    """Join neighbors, without a copy of their bytes: element n has the elements up to the n-th end."""
    _, end = find_bounds(array)
    base = int(np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset])
    offsets = np.zeros(len(ends) + 1, dtype=np.int32)
    closes = np.concatenate([[0], end])
    offsets[1:] = closes[ends] + base
    offsets[0] = base
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), array.buffers()[2]])


def _write_tags(parts: Sequence[TagPiece], count: int) -> pa.BinaryArray:
    """Encode tags, and the numbers after them, as the bytes of each row."""
    sizes = []
    numbers: list[Integers | None] = []
    total = np.zeros(count, dtype=np.int64)
    for part in parts:
        inner = None if part.numbers is None else varint_sizes(part.numbers)
        width = len(part.tag) if part.fixed is None else len(part.tag) + part.fixed.shape[1]
        size: Any = width if inner is None else inner + width
        if part.present is not None:
            size = np.where(part.present, size, 0)
        total += size
        sizes.append(size)
        numbers.append(inner)
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(total, out=offsets[1:])
    target: Bytes = np.empty(int(offsets[-1]), dtype=np.uint8)
    cursor = offsets[:-1].astype(np.int64)
    for part, size, inner in zip(parts, sizes, numbers, strict=True):
        some = part.present is not None and not part.present.all()
        which: Any = np.flatnonzero(part.present) if some and part.present is not None else slice(None)
        positions = cursor[which]
        for i, byte in enumerate(part.tag):
            target[positions + i] = byte
        positions = positions + len(part.tag)
        if part.numbers is not None and inner is not None:
            write_varints(target, positions, part.numbers[which], inner[which])
        if part.fixed is not None:
            for i in range(part.fixed.shape[1]):
                target[positions + i] = part.fixed[which, i]
        cursor += size
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(target)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def encode_tag(field: FieldDescriptor, wire: int) -> bytes:
    """Encode the tag of a field, its number and wire type, as a varint."""
    number = field.number << 3 | wire
    head = b""
    while number > 0x7F:
        head += bytes([number & 0x7F | 0x80])
        number >>= 7
    return head + bytes([number])
