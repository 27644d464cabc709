"""Confluent's frames: what names the schema of a message, before its body or in a header of its record.

A frame is a zero byte and the schema id in four bytes (big-endian), or the byte 1 and the schema's GUID in 16 bytes. In
a header it has the same bytes, so that header and body together are a message with a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.errors import pluralize
from kdsl.formats import BadRecord, Decoded
from kdsl.registry.model import SchemaId
from kdsl.shown_values import show_value
from kdsl_formats._text.looks import JSON_INSTEAD, looks_like_json

Ids = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]

ID_FRAME = 5
GUID_FRAME = 17
NO_ID = -1
_FIRST_GUID = 1 << 32  # ids have 32 bits; greater numbers are indices into the GUIDs of a batch
_BY_ID, _BY_GUID, _GLUE = 0, 1, 3
_GLUE_COMPRESSIONS, _GLUE_FRAME = (0, 5), 18
_SHIFTS = np.array([24, 16, 8, 0], dtype=np.int64)


@attrs.frozen(eq=False)
class Frames:
    """What the frames of messages say.

    Attributes:
        ids: The schema id of each message; `NO_ID` for a null message and for one without a frame. If a GUID names the
            schema, its index in ``guids`` plus 2^32.
        guids: The GUIDs in the frames, without repeats.
        bodies: The bytes after the frames; null for messages without an id.
        bad: The messages without a frame, apart from null messages.
    """

    ids: Ids
    guids: tuple[UUID, ...]
    bodies: pa.BinaryArray
    bad: tuple[BadRecord, ...]

    def groups(self) -> Iterator[tuple[SchemaId, Indices | None]]:
        """Yield what names each schema with the ascending indices of its messages, None for all messages."""
        ids = self.ids
        if len(ids) and (ids == ids[0]).all():
            if ids[0] != NO_ID:
                yield self._schema_id(int(ids[0])), None
            return
        for number in np.unique(ids):
            if number != NO_ID:
                yield self._schema_id(int(number)), np.flatnonzero(ids == number)

    def _schema_id(self, number: int) -> SchemaId:
        """What a number in `ids` stands for."""
        return number if number < _FIRST_GUID else self.guids[number - _FIRST_GUID]

    def add_schema_ids(self, decoded: Decoded, wanted: Iterable[str], find_id: Callable[[UUID], int | None]) -> Decoded:
        """Replace the metadata by the schema id of each row's message, under each wanted key; unchanged without keys.

        Args:
            decoded: The rows of the messages.
            wanted: The keys.
            find_id: Returns the id of the schema with a GUID, None if it is not known; called only if there are keys.
        """
        keys = tuple(wanted)
        if not keys:
            return decoded
        ids = self.ids if decoded.messages is None else self.ids[np.asarray(decoded.messages)]
        unknown = np.zeros(len(ids), dtype=bool)
        if self.guids:
            numbers = [find_id(guid) for guid in self.guids]
            by_guid = ids >= _FIRST_GUID
            of_guid = np.array([NO_ID if number is None else number for number in numbers])[ids[by_guid] - _FIRST_GUID]
            ids = ids.copy()
            ids[by_guid], unknown[by_guid] = of_guid, of_guid == NO_ID
        numbers_of_rows = pa.array(ids.astype(np.int32), mask=unknown)
        return attrs.evolve(decoded, metadata=dict.fromkeys(keys, numbers_of_rows))


def split_frames(messages: pa.BinaryArray) -> Frames:
    """Split messages, among them null messages, into frames and bodies."""
    count = len(messages)
    lengths = np.asarray(pc.fill_null(pc.binary_length(messages), NO_ID))
    framed = lengths >= ID_FRAME
    ids = np.full(count, NO_ID, dtype=np.int64)
    sizes = np.full(count, ID_FRAME, dtype=np.int32)
    guids: tuple[UUID, ...] = ()
    _, buffer, data = messages.buffers()
    if not count or not framed.any():
        offsets = np.zeros(count + 1, dtype=np.int32)
        heads = np.zeros((0, ID_FRAME), dtype=np.uint8)
    else:
        offsets = np.frombuffer(buffer, np.int32)[messages.offset : messages.offset + count + 1]
        starts = offsets[:-1][framed].astype(np.int64)
        heads = np.frombuffer(data, np.uint8)[starts[:, None] + np.arange(ID_FRAME)]
        ids[framed] = (heads[:, 1:].astype(np.int64) << _SHIFTS).sum(axis=1)
    magic = np.zeros(count, dtype=np.int64)
    magic[framed] = heads[:, 0]
    ids[magic != _BY_ID] = NO_ID
    if magic.any():
        with_guid = np.flatnonzero((magic == _BY_GUID) & (lengths >= GUID_FRAME))
        guids, ids[with_guid] = _read_guids(np.frombuffer(data, np.uint8), offsets[:-1][with_guid].astype(np.int64) + 1)
        sizes[with_guid] = GUID_FRAME
    wrong = np.flatnonzero((ids == NO_ID) & (lengths >= 0))
    bad = tuple(BadRecord(int(i), _explain_frame(messages[int(i)].as_py())) for i in wrong)
    return Frames(ids, guids, _bodies(offsets, data, ids, sizes), bad)


def _read_guids(data: npt.NDArray[np.uint8], starts: Ids) -> tuple[tuple[UUID, ...], Ids]:
    """The GUIDs at some positions in bytes, without repeats, and the number of each position's GUID in `Frames.ids`."""
    each = data[starts[:, None] + np.arange(16)]
    distinct, index = np.unique(each, axis=0, return_inverse=True)
    return tuple(UUID(bytes=one.tobytes()) for one in distinct), index.reshape(-1).astype(np.int64) + _FIRST_GUID


def _bodies(
    offsets: npt.NDArray[np.int32], data: pa.Buffer | None, ids: Ids, sizes: npt.NDArray[np.int32]
) -> pa.BinaryArray:
    """Copy the bytes after the frames; null for messages without an id."""
    count = len(ids)
    cuts = np.repeat(offsets, 2)[: 2 * count + 1]  # two spans per message: its frame and its body
    cuts[1::2] = np.minimum(cuts[1::2] + sizes, offsets[1:])
    buffers = [None, pa.py_buffer(cuts), data or pa.py_buffer(b"")]
    halves = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    return halves.take(pa.array(np.arange(1, 2 * count, 2), mask=ids == NO_ID))


def _explain_frame(message: bytes) -> str:
    """Why a message has no valid frame."""
    length, instead = len(message), JSON_INSTEAD if looks_like_json(message) else ""
    frame = "the frame of a schema registry (a zero byte and a schema id of four bytes)"
    size = pluralize(length, "byte")
    if length < ID_FRAME:
        return f"the message has {size}, which is less than {frame}{instead}"
    if message[0] == _BY_GUID:
        return (
            f"the message begins with the byte 1, but its {size} are less than the frame of a schema registry with "
            "a GUID (the byte 1 and 16 bytes)"
        )
    reason = f"the message begins with the byte {show_value(message[0])}, not with {frame}{instead}"
    if message[0] == _GLUE and message[1] in _GLUE_COMPRESSIONS and length >= _GLUE_FRAME:
        version = show_value(UUID(bytes=message[2:18]))
        return (
            f"{reason}; it looks like a message of AWS Glue Schema Registry (the byte 3, the compression "
            f"{message[1]}, and the schema version {version}), which kdsl does not read: write it with a serializer "
            "for Confluent's API, or read the topic as 'raw'"
        )
    return reason


def describe_schema(schema_id: SchemaId) -> str:
    """A schema as a part of a message: ``the schema of the id 7``."""
    return f"the schema of the {'GUID' if isinstance(schema_id, UUID) else 'id'} {schema_id}"


def frame_of(schema_id: SchemaId) -> bytes:
    """The frame that names a schema."""
    if isinstance(schema_id, UUID):
        return bytes([_BY_GUID]) + schema_id.bytes
    return bytes([_BY_ID]) + schema_id.to_bytes(4, "big")


def read_frame(frame: bytes) -> bytes:
    """The frame at the beginning of a header's value; Confluent's readers ignore what follows it."""
    size = {_BY_ID: ID_FRAME, _BY_GUID: GUID_FRAME}.get(frame[0] if frame else -1, 0)
    if not size or len(frame) < size:
        raise ValueError(
            f"its {len(frame)} bytes are neither a zero byte and a schema id of four bytes, nor the byte 1 and a GUID "
            "of 16 bytes"
        )
    return frame[:size]


def join_frames(
    bodies: pa.BinaryArray, frames: pa.BinaryArray, read: Callable[[bytes], bytes], header: str
) -> tuple[pa.BinaryArray, tuple[BadRecord, ...]]:
    """Put the frames from headers before the bodies of messages.

    Args:
        bodies: The messages; null is a null message, which stays null.
        frames: The value of each record's header; null leaves the message as it is.
        read: Returns the frame in a header's value; ValueError if there is none.
        header: The name of the header, for errors.

    Returns:
        The messages, null for a bad one; and those that are bad because of their header.
    """
    codes = frames.dictionary_encode()
    values: list[bytes | None] = []
    reasons: dict[int, str] = {}
    for number, value in enumerate(codes.dictionary.to_pylist()):  # one for each schema
        try:
            values.append(read(value))
        except ValueError as e:
            values.append(None)
            reasons[number] = f"the header {header!r} does not name a schema: {e}"
    with_header = frames.is_valid()
    prefixes = pa.array(values, pa.binary()).take(codes.indices)
    joined = pc.binary_join_element_wise(prefixes, bodies, pa.scalar(b"", pa.binary()))
    messages = pc.if_else(with_header, joined, bodies)
    if not reasons:
        return messages, ()
    numbers = codes.indices.to_pylist()
    wrong = np.flatnonzero(
        pc.and_(pc.is_in(codes.indices, pa.array(list(reasons), codes.indices.type)), bodies.is_valid())
    )
    return messages, tuple(BadRecord(int(i), reasons[numbers[int(i)]]) for i in wrong)


def add_frames(frame: bytes, bodies: pa.BinaryArray) -> pa.BinaryArray:
    """Put a frame before bodies; a null body becomes a null message."""
    return pc.binary_join_element_wise(pa.scalar(frame, pa.binary()), bodies, pa.scalar(b"", pa.binary()))
