"""The bytes of many messages in one buffer, and where their quotes, brackets and commas are.

Positions are places in the buffer. Everything beyond the quotes is found when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl_formats._text.reading import bounds, content, ranges

Places = npt.NDArray[np.integer[Any]]
Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

PAD = 40  # zeros behind the last message, so that a look ahead stays inside the buffer
QUOTE, COMMA, COLON, BACKSLASH = 34, 44, 58, 92
BLANK = np.zeros(256, dtype=bool)
BLANK[[9, 10, 13, 32]] = True


@attrs.frozen(eq=False)
class Spans:
    """Stretches of the buffer, from `start` to before `end`, in ascending order."""

    start: Places
    end: Places

    def __len__(self) -> int:
        return len(self.start)

    def pick(self, which: Places | Mask) -> Spans:
        """Some of the stretches."""
        return Spans(self.start[which], self.end[which])


class Source:
    """Stretches of one buffer that hold messages, and more bytes behind them.

    Args:
        data: A buffer with the messages.
        messages: Where they are in it, one directly behind the other.
    """

    def __init__(self, data: Bytes, messages: Spans) -> None:
        begin, end = (int(messages.start[0]), int(messages.end[-1])) if len(messages) else (0, 0)
        size = end - begin
        self.room: Bytes = np.empty(size + PAD + (size >> 3), dtype=np.uint8)
        self.room[:size] = data[begin:end]
        self.room[size : size + PAD] = 0
        self.data: Bytes = self.room[: size + PAD]
        self.messages = Spans(messages.start - begin, messages.end - begin)
        self.words: npt.NDArray[np.uint64] = np.ndarray((size + PAD - 7,), dtype="<u8", buffer=self.data, strides=(1,))

    @classmethod
    def of(cls, messages: pa.BinaryArray) -> Source:
        """The messages of an array; a null one is empty."""
        return cls(content(messages), Spans(*bounds(messages)))

    def copy(self, spans: Spans) -> Source:
        """Only some stretches of the buffer, as messages."""
        size = spans.end - spans.start
        end = np.cumsum(size)
        return Source(self.data[ranges(spans.start, size)], Spans(end - size, end))

    def with_texts(self, columns: Sequence[pa.StringArray]) -> tuple[Bytes, list[Spans]]:
        """The buffer with the texts of some columns behind the messages, and where they are."""
        found, size = [], len(self.data)
        for column in columns:
            start, end = bounds(column)
            found.append(Spans(start + size, end + size))
            size += len(content(column))
        if size > len(self.room):
            return np.concatenate([self.data, *map(content, columns)]), found
        place = len(self.data)
        for column in columns:
            text = content(column)
            self.room[place : place + len(text)] = text
            place += len(text)
        return self.room[:size], found

    @cached_property
    def backslashes(self) -> Places:
        """Every backslash."""
        found = self.data == BACKSLASH
        return np.flatnonzero(found) if found.any() else np.zeros(0, dtype=np.int64)

    @cached_property
    def quotes(self) -> Places:
        """Every quote that no backslash escapes."""
        found = self.data == QUOTE
        slashes = self.backslashes
        if slashes.size:
            begins = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
            in_run = np.arange(len(slashes)) - np.repeat(begins, np.diff(np.append(begins, len(slashes))))
            found[slashes[in_run % 2 == 0] + 1] = False
        return np.flatnonzero(found)

    @cached_property
    def brackets(self) -> Places:
        """Every bracket and brace, also those inside texts."""
        folded = self.data | 0x20
        return np.flatnonzero((folded == 0x7B) | (folded == 0x7D))

    @cached_property
    def commas(self) -> Places:
        """Every comma, also those inside texts."""
        return np.flatnonzero(self.data == COMMA)

    def escaped(self, spans: Spans) -> Mask:
        """Which stretches hold a backslash."""
        if not self.backslashes.size:
            return np.zeros(len(spans), dtype=bool)
        return np.searchsorted(self.backslashes, spans.start) < np.searchsorted(self.backslashes, spans.end)

    def equal(self, start: Places, text: bytes) -> Mask:
        """Which places, none of them behind the last message, are the beginning of a text."""
        size = len(text)
        if size < 8:
            mask = np.uint64((1 << 8 * size) - 1)
            short: Mask = self.words[start] & mask == np.uint64(int.from_bytes(text, "little"))
            return short
        result: Mask = self.words[start] == np.uint64(int.from_bytes(text[:8], "little"))
        for ahead in (*range(8, size - 8, 8), size - 8):
            if ahead:
                place = start + ahead if ahead <= PAD - 8 else np.minimum(start + ahead, len(self.words) - 1)
                result &= self.words[place] == np.uint64(int.from_bytes(text[ahead : ahead + 8], "little"))
        return result

    def after_blanks(self, place: Places, limit: Places) -> Places:
        """The first place at or behind the given one that holds no blank, at most the limit."""
        blank = BLANK[self.data[place]] & (place < limit)
        while blank.any():
            place = place + blank
            blank = BLANK[self.data[place]] & (place < limit)
        return place

    def before_blanks(self, place: Places, limit: Places) -> Places:
        """The last place at or before the given one that no blank precedes, at least the limit."""
        blank = BLANK[self.data[place - 1]] & (place > limit)
        while blank.any():
            place = place - blank
            blank = BLANK[self.data[place - 1]] & (place > limit)
        return place


def inside(places: Places, spans: Spans) -> tuple[Places, Places]:
    """For each stretch the first of some ascending places in it, by index, and how many there are."""
    first = np.searchsorted(places, spans.start)
    return first, np.searchsorted(places, spans.end) - first
