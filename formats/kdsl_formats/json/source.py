"""The bytes of many messages in one buffer, and where their quotes, brackets and commas are.

Positions are places in the buffer. Everything beyond the quotes is found when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl_formats._columns.arrays import Bytes, Mask, Positions, bounds, content, ranges, words_of

PAD = 40  # zeros behind the last message, so that a look ahead stays inside the buffer
QUOTE, COMMA, COLON, BACKSLASH = 34, 44, 58, 92
_BLOCK = 1 << 16  # bytes that are looked at together: small enough to stay in the processor's cache
_LARGEST_KEPT = 1 << 26
_MOST_BLANKS = 64
BLANK = np.zeros(256, dtype=bool)
BLANK[[9, 10, 13, 32]] = True


@attrs.frozen(eq=False)
class Spans:
    """Stretches of the buffer, from `start` to before `end`, in ascending order."""

    start: Positions
    end: Positions

    def __len__(self) -> int:
        return len(self.start)

    def pick(self, which: Positions | Mask) -> Spans:
        """Some of the stretches."""
        return Spans(self.start[which], self.end[which])


class Scratch:
    """Memory that a decoder uses again for each batch: to get it anew costs as much as the work that is done in it."""

    def __init__(self) -> None:
        self._kept: dict[str, npt.NDArray[Any]] = {}

    def take(self, name: str, size: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array of at least a size, with anything in it; it holds until one of that name is taken again."""
        kept = self._kept.get(name)
        if kept is None or len(kept) < size:
            kept = self._keep(name, np.empty(size + (size >> 2), dtype=kind))
        return kept

    def grown(self, name: str, kept: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
        """A taken array with more room behind what it holds."""
        more = np.empty(2 * max(size, len(kept)), dtype=kept.dtype)
        more[: len(kept)] = kept
        return self._keep(name, more)

    def _keep(self, name: str, made: npt.NDArray[Any]) -> npt.NDArray[Any]:
        self._kept.pop(name, None)
        if made.nbytes <= _LARGEST_KEPT:
            self._kept[name] = made
        return made


class Source:
    """Stretches of one buffer that hold messages, and room for more bytes behind them.

    Args:
        data: A buffer with the messages.
        messages: Where they are in it, one directly behind the other.
        scratch: Where the memory comes from; what is found is good until the next source uses it.
    """

    def __init__(self, data: Bytes, messages: Spans, scratch: Scratch | None = None) -> None:
        self._scratch = scratch or Scratch()
        begin, end = (int(messages.start[0]), int(messages.end[-1])) if len(messages) else (0, 0)
        size = end - begin
        self._room: Bytes = self._scratch.take("bytes", size + PAD + (size >> 4), np.uint8)
        self._room[:size] = data[begin:end]
        self._room[size : size + PAD] = 0
        self.data: Bytes = self._room[: size + PAD]
        self.messages = Spans(messages.start - begin, messages.end - begin)
        self.words = words_of(self.data)

    @classmethod
    def of(cls, messages: pa.BinaryArray, scratch: Scratch) -> Source:
        """The messages of an array; a null one has bytes, too, maybe."""
        return cls(content(messages), Spans(*bounds(messages)), scratch)

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
        if size > len(self._room):
            return np.concatenate([self.data, *map(content, columns)]), found
        place = len(self.data)
        for column in columns:
            text = content(column)
            self._room[place : place + len(text)] = text
            place += len(text)
        return self._room[:size], found

    @cached_property
    def backslashes(self) -> Positions:
        """Every backslash."""
        return self._places("backslashes", lambda data, _: data == BACKSLASH)

    @cached_property
    def quotes(self) -> Positions:
        """Every quote that no backslash escapes."""
        slashes = self.backslashes
        if not slashes.size:
            return self._places("quotes", lambda data, _: data == QUOTE)
        begins = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
        in_run = np.arange(len(slashes)) - np.repeat(begins, np.diff(np.append(begins, len(slashes))))
        behind = slashes[in_run % 2 == 0] + 1

        def unescaped(data: Bytes, begin: int) -> Mask:
            found: Mask = data == QUOTE
            first, last = np.searchsorted(behind, [begin, begin + len(data)])
            found[behind[first:last] - begin] = False
            return found

        return self._places("quotes", unescaped)

    @cached_property
    def brackets(self) -> Positions:
        """Every bracket and brace, also those inside texts."""

        def any_bracket(data: Bytes, _: int) -> Mask:
            folded = data | 0x20
            found: Mask = (folded == 0x7B) | (folded == 0x7D)
            return found

        return self._places("brackets", any_bracket)

    @cached_property
    def commas(self) -> Positions:
        """Every comma, also those inside texts."""
        return self._places("commas", lambda data, _: data == COMMA)

    def _places(self, name: str, test: Callable[[Bytes, int], Mask]) -> Positions:
        """The places of bytes that a test finds, block by block."""
        kept = self._scratch.take(name, len(self.data) >> 3, np.int64)
        count = 0
        for begin in range(0, len(self.data), _BLOCK):
            found = np.flatnonzero(test(self.data[begin : begin + _BLOCK], begin))
            if count + len(found) > len(kept):
                kept = self._scratch.grown(name, kept, count + len(found))
            np.add(found, begin, out=kept[count : count + len(found)])
            count += len(found)
        return kept[:count]

    def escaped(self, spans: Spans) -> Mask:
        """Which stretches hold a backslash."""
        if not self.backslashes.size:
            return np.zeros(len(spans), dtype=bool)
        return np.searchsorted(self.backslashes, spans.start) < np.searchsorted(self.backslashes, spans.end)

    def equal(self, start: Positions, text: bytes) -> Mask:
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

    def after_blanks(self, place: Positions, limit: Positions) -> Positions:
        """The first place at or behind the given one that holds no blank, at most the limit.

        After very many blanks it gives up, at a blank, where nothing is found that could be right.
        """
        for _ in range(_MOST_BLANKS):
            blank = BLANK[self.data[place]] & (place < limit)
            if not blank.any():
                break
            place = place + blank
        return place

    def before_blanks(self, place: Positions, limit: Positions) -> Positions:
        """The last place at or before the given one that no blank precedes, at least the limit; gives up likewise."""
        for _ in range(_MOST_BLANKS):
            blank = BLANK[self.data[place - 1]] & (place > limit)
            if not blank.any():
                break
            place = place - blank
        return place


def inside(places: Positions, spans: Spans) -> tuple[Positions, Positions]:
    """For each stretch the first of some ascending places in it, by index, and how many there are."""
    first = np.searchsorted(places, spans.start)
    return first, np.searchsorted(places, spans.end) - first
