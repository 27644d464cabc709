"""Messages in the buffer that may be JSON documents: without the blanks around them, and in UTF-8."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kdsl_formats._columns.arrays import Bytes, Mask, Positions, each_not_utf8
from kdsl_formats.json.source import Source, Spans


def documents(source: Source, held: Mask) -> tuple[Spans, Mask]:
    """All messages without the blanks around them, and which of those held are UTF-8 and not empty."""
    spans = _trimmed(source, source.messages)
    return spans, held & (spans.end > spans.start) & _are_utf8(source, spans)


def enclosed(source: Source, spans: Spans, good: Mask, opening: bytes) -> Positions:
    """Which of some good stretches begin with a bracket and end with the one that closes it."""
    first, last = source.data[spans.start], source.data[np.maximum(spans.end - 1, 0)]
    return np.flatnonzero(good & (first == opening[0]) & (last == opening[0] + 2))


def _trimmed(source: Source, spans: Spans) -> Spans:
    start, end = spans.start, spans.end
    if (source.data[start] != 0x7B).any():
        start = source.after_blanks(start, end)
    if (source.data[np.maximum(end - 1, 0)] != 0x7D).any():
        end = source.before_blanks(end, start)
    return Spans(start, end)


def _are_utf8(source: Source, spans: Spans) -> Mask:
    if source.data.max() < 0x80 or _is_utf8(source.data):
        return np.ones(len(spans), dtype=bool)
    return ~each_not_utf8(source.data, spans.start, spans.end)


def _is_utf8(data: Bytes) -> bool:
    offsets = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
