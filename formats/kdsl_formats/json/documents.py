"""Finds messages in the buffer that can be JSON documents: in UTF-8, and without the blanks around them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kdsl_formats._columns.arrays import Bytes, Indices, Mask, find_each_invalid_utf8
from kdsl_formats.json.buffer import BRACE, MessageBuffer, Spans


def trim_documents(buffer: MessageBuffer, present_messages: Mask) -> tuple[Spans, Mask]:
    """All messages without the blanks around them, and a mask of the present ones that are UTF-8 and not blank."""
    spans = _trim(buffer, buffer.messages)
    return spans, present_messages & (spans.end > spans.start) & _are_utf8(buffer, spans)


def find_enclosed(buffer: MessageBuffer, spans: Spans, good: Mask, opening: bytes) -> Indices:
    """The indices of the spans selected by `good` that begin with a bracket and end with the matching one."""
    first, last = buffer.data[spans.start], buffer.data[np.maximum(spans.end - 1, 0)]
    return np.flatnonzero(good & (first == opening[0]) & (last == opening[0] + 2))


def _trim(buffer: MessageBuffer, spans: Spans) -> Spans:
    """Spans without the blanks at their start and end."""
    start, end = spans.start, spans.end
    if (buffer.data[start] != BRACE).any():
        start = buffer.skip_blanks_after(start, end)
    if (buffer.data[np.maximum(end - 1, 0)] != BRACE + 2).any():
        end = buffer.skip_blanks_before(end, start)
    return Spans(start, end)


def _are_utf8(buffer: MessageBuffer, spans: Spans) -> Mask:
    """Which messages are UTF-8. All pass if the buffer as a whole is UTF-8, even if a character spans two messages."""
    if buffer.data.max() < 0x80 or _is_utf8(buffer.data):
        return np.ones(len(spans), dtype=bool)
    return ~find_each_invalid_utf8(buffer.data, spans.start, spans.end)


def _is_utf8(data: Bytes) -> bool:
    """Whether bytes are UTF-8 as a whole."""
    offsets = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
