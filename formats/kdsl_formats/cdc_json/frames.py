"""Messages that hold their schema before the change: most begin with the very same text, which is looked at once.

A frame is the text around the payload, learned from one message. Where messages have it, the decoder reads what is
between as if it were the message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kdsl_formats._columns.arrays import Mask, bounds, content, pieces
from kdsl_formats.cdc_json.reference_decoder import PAYLOAD
from kdsl_formats.json.document import parse
from kdsl_formats.json.members import BARE, TEXT
from kdsl_formats.json.shapes import fitting, learn
from kdsl_formats.json.source import Scratch, Source

_REMEMBERED = 8  # frames
_RARE = 64  # messages of which at most one in so many, beside a few, may have no frame


@attrs.frozen
class Frame:
    """The text around a payload.

    Attributes:
        before: What a message begins with, up to the payload.
        behind: What it ends with.
        beside: The members before the payload that are wanted, as they are spelled.
    """

    before: bytes
    behind: bytes
    beside: Mapping[str, str]

    def around(self, messages: pa.BinaryArray) -> Mask:
        """Which messages have this frame around something that is no text."""
        found = pc.and_(
            pc.starts_with(messages, pattern=self.before + b"{"), pc.ends_with(messages, pattern=b"}" + self.behind)
        )
        start, end = bounds(messages)
        result: Mask = np.asarray(pc.fill_null(found, False)) & (end - start > len(self.before) + 1 + len(self.behind))
        return result

    def payloads(self, messages: pa.BinaryArray, which: Mask) -> pa.BinaryArray:
        """The payloads of those messages that have this frame; NULL for the others."""
        start, end = bounds(messages)
        first, last = np.where(which, start + len(self.before), 0), np.where(which, end - len(self.behind), 0)
        return pieces(content(messages), first, last, which, pa.binary())


class FrameFinder:
    """Finds the frame of the messages of a batch.

    Args:
        names: The members beside the payload that are wanted.
        few: How many messages may lack it, at least.
    """

    def __init__(self, names: Sequence[str], *, few: int) -> None:
        self._names = {name.encode(): name for name in names}
        self._few = few
        self._frames: list[Frame] = []

    def find(self, messages: pa.BinaryArray, held: Mask) -> tuple[Frame, Mask] | None:
        """The frame that all but a few of the messages held have, and which do; None where there is no such frame."""
        place = np.flatnonzero(held)
        allowed = max(self._few, len(place) // _RARE)
        if len(place) <= allowed:
            return None
        for frame in self._frames:
            around = held & frame.around(messages)
            if len(place) - np.count_nonzero(around) <= allowed:
                return frame, around
        for sample in {int(place[0]), int(place[len(place) // 2])}:
            learned = self._learn(messages[sample].as_py())
            if learned is None or learned in self._frames:
                continue
            around = held & learned.around(messages)
            if len(place) - np.count_nonzero(around) <= allowed:
                self._frames = [learned, *self._frames][:_REMEMBERED]
                return learned, around
        return None

    def _learn(self, message: bytes) -> Frame | None:
        """The frame of one message whose payload is its last member; None where it may mean anything else."""
        shape = learn(message)
        if shape is None or shape.members[-1].key != PAYLOAD.encode() or shape.members[-1].what != BARE:
            return None
        if len({member.key for member in shape.members}) < len(shape.members):
            return None
        if any(member.key in self._names and member.what == TEXT for member in shape.members):
            return None
        try:
            orjson.loads(message)
            parse(message)
        except ValueError:
            return None
        source = Source.of(pa.array([message], pa.binary()), Scratch())
        fits, values, _ = fitting(source, source.messages, np.zeros(1, dtype=np.int64), shape)
        if not fits.all():
            return None
        places = [(int(spans.start[0]), int(spans.end[0])) for spans in values]
        beside = {
            self._names[member.key]: message[start:end].decode()
            for member, (start, end) in zip(shape.members, places, strict=True)
            if member.key in self._names
        }
        return Frame(message[: places[-1][0]], message[places[-1][1] :], beside)
