"""Messages with their schema before the payload: most have the same text around the payload, which is checked once.

A frame is the text around the payload, learned from one message. In messages with the same frame, the decoder reads
only the payload, as if it were the message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kdsl_formats._columns.arrays import Mask, content, find_bounds, slices
from kdsl_formats.json.buffer import MessageBuffer, Scratch
from kdsl_formats.json.document import parse
from kdsl_formats.json.members import BARE, TEXT
from kdsl_formats.json.reference_decoder import PAYLOAD
from kdsl_formats.json.shapes import learn_shape, match_shape

_REMEMBERED = 8  # frames
_RARE = 64  # at most one message in 64, plus a minimum, may lack the frame


@attrs.frozen
class Frame:
    """The text around a payload.

    Attributes:
        before: The start of a message, up to the payload.
        after: The end of a message, after the payload.
        beside: The members before the payload that are read, as they are spelled.
    """

    before: bytes
    after: bytes
    beside: Mapping[str, str]

    def matches(self, messages: pa.BinaryArray) -> Mask:
        """Which messages have this frame, with an object inside it."""
        begins_and_ends = pc.and_(
            pc.starts_with(messages, pattern=self.before + b"{"), pc.ends_with(messages, pattern=b"}" + self.after)
        )
        start, end = find_bounds(messages)
        result: Mask = np.asarray(pc.fill_null(begins_and_ends, False)) & (
            end - start > len(self.before) + 1 + len(self.after)
        )
        return result

    def slice_payloads(self, messages: pa.BinaryArray, which: Mask) -> pa.BinaryArray:
        """The payloads of some messages that have this frame; NULL for the others."""
        start, end = find_bounds(messages)
        first, last = np.where(which, start + len(self.before), 0), np.where(which, end - len(self.after), 0)
        return slices(content(messages), first, last, which, pa.binary())


class FrameFinder:
    """Finds the frame of the messages of a batch.

    Args:
        names: The members beside the payload that are read.
        min_batch: At least this many messages may lack the frame.
    """

    def __init__(self, names: Sequence[str], *, min_batch: int) -> None:
        self._names = {name.encode(): name for name in names}
        self._min_batch = min_batch
        self._frames: list[Frame] = []

    def find(self, messages: pa.BinaryArray, present_messages: Mask) -> tuple[Frame, Mask] | None:
        """Find the frame of nearly all present messages; None if there is no such frame, or if the messages are few.

        Return it with a mask of the messages that have it. A frame that is new is remembered for the next batch.
        """
        indexes = np.flatnonzero(present_messages)
        allowed = max(self._min_batch, len(indexes) // _RARE)
        if len(indexes) <= allowed:
            return None
        for frame in self._frames:
            matches = present_messages & frame.matches(messages)
            if len(indexes) - np.count_nonzero(matches) <= allowed:
                return frame, matches
        for sample in {int(indexes[0]), int(indexes[len(indexes) // 2])}:
            learned = self._learn_frame(messages[sample].as_py())
            if learned is None or learned in self._frames:
                continue
            matches = present_messages & learned.matches(messages)
            if len(indexes) - np.count_nonzero(matches) <= allowed:
                self._frames = [learned, *self._frames][:_REMEMBERED]
                return learned, matches
        return None

    def _learn_frame(self, message: bytes) -> Frame | None:
        """The frame of one message; None if its payload is a string or not its last member, or it has no plain shape.

        None also if the message is not JSON, has a key twice, or has a string among the members that are read.
        """
        shape = learn_shape(message)
        if shape is None or shape.members[-1].key != PAYLOAD.encode() or shape.members[-1].form != BARE:
            return None
        if len({member.key for member in shape.members}) < len(shape.members):
            return None
        if any(member.key in self._names and member.form == TEXT for member in shape.members):
            return None
        try:
            orjson.loads(message)
            parse(message)
        except ValueError:
            return None
        buffer = MessageBuffer.of(pa.array([message], pa.binary()), Scratch())
        fits, values, _ = match_shape(buffer, buffer.messages, np.zeros(1, dtype=np.int64), shape)
        if not fits.all():
            return None
        bounds_of_values = [(int(spans.start[0]), int(spans.end[0])) for spans in values]
        beside = {
            self._names[member.key]: message[start:end].decode()
            for member, (start, end) in zip(shape.members, bounds_of_values, strict=True)
            if member.key in self._names
        }
        return Frame(message[: bounds_of_values[-1][0]], message[bounds_of_values[-1][1] :], beside)
