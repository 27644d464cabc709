"""The bytes of many messages in one buffer, and the positions of their quotes, brackets and commas.

Indices are indices into the buffer. Quotes, brackets and commas are located when they are first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl_formats._columns.arrays import Bytes, Indices, Mask, content, find_bounds, ranges, words_at, words_of

PAD = 40  # zeros after the last message, so that reading ahead stays inside the buffer
QUOTE, COMMA, COLON, BACKSLASH, BRACKET, BRACE = b'",:\\[{'
_BLOCK = 1 << 16  # bytes that are searched together: few enough for the processor's cache
_LARGEST_KEPT = 1 << 26
_MOST_BLANKS = 64
_GATHERED = 4  # words that are read together
BLANK = np.zeros(256, dtype=bool)
BLANK[[9, 10, 13, 32]] = True


@attrs.frozen(eq=False)
class Spans:
    """Spans of the buffer, from `start` to `end` (excluded), in ascending order."""

    start: Indices
    end: Indices

    def __len__(self) -> int:
        return len(self.start)

    def pick(self, which: Indices | Mask) -> Spans:
        """The spans at some indices, or those that a mask selects."""
        return Spans(self.start[which], self.end[which])


class Scratch:
    """Memory that a decoder reuses for each batch, because allocating it costs as much as the work done in it.

    Attributes:
        buffers: How many buffers have used it.
    """

    def __init__(self) -> None:
        self._memory: dict[str, npt.NDArray[Any]] = {}
        self.buffers = 0

    def take(self, name: str, size: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an uninitialized array of at least `size` elements, valid until the same name is taken again.

        `kind` is ignored if an earlier array of that name is large enough.
        """
        memory = self._memory.get(name)
        if memory is None or len(memory) < size:
            memory = self._keep(name, np.empty(size + (size >> 2), dtype=kind))
        return memory

    def grow(self, name: str, memory: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
        """Return a copy of a taken array with at least `size` elements, and the same contents at its start.

        The next `take` of that name returns the copy, unless it is very large.
        """
        more = np.empty(2 * max(size, len(memory)), dtype=memory.dtype)
        more[: len(memory)] = memory
        return self._keep(name, more)

    def _keep(self, name: str, memory: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Forget the array of a name, and store another one for the next batch unless it is very large; returns it."""
        self._memory.pop(name, None)
        if memory.nbytes <= _LARGEST_KEPT:
            self._memory[name] = memory
        return memory


class MessageBuffer:
    """Messages as spans of one buffer, with space for more bytes after them.

    Args:
        data: A buffer with the messages, which are copied.
        messages: The spans of the messages in it, one directly after the other.
        scratch: Provides the memory; positions are valid until the next buffer uses it.
    """

    def __init__(self, data: Bytes, messages: Spans, scratch: Scratch | None = None) -> None:
        """Copy the bytes of the messages into the scratch memory, with zeros behind; positions begin at the first."""
        self._scratch = scratch or Scratch()
        begin, end = (int(messages.start[0]), int(messages.end[-1])) if len(messages) else (0, 0)
        size = end - begin
        self._memory_behind: Bytes = self._scratch.take("bytes", size + PAD + (size >> 4), np.uint8)
        self._memory_behind[:size] = data[begin:end]
        self._memory_behind[size : size + PAD] = 0
        self.data: Bytes = self._memory_behind[: size + PAD]
        self.messages = Spans(messages.start - begin, messages.end - begin)
        self.words = words_of(self.data)
        self._scratch.buffers += 1
        self._number = self._scratch.buffers

    @property
    def is_valid(self) -> bool:
        """Whether no other buffer has used the scratch memory since this one was created."""
        return self._number == self._scratch.buffers

    @classmethod
    def of(cls, messages: pa.BinaryArray, scratch: Scratch) -> MessageBuffer:
        """Copy the messages of an array to a buffer; a null message may still have bytes."""
        return cls(content(messages), Spans(*find_bounds(messages)), scratch)

    def copy(self, spans: Spans) -> MessageBuffer:
        """Copy some spans to a new buffer with memory of its own, as its messages, one directly after the other."""
        size = spans.end - spans.start
        end = np.cumsum(size)
        return MessageBuffer(self.data[ranges(spans.start, size)], Spans(end - size, end))

    def append_strings(self, columns: Sequence[pa.StringArray]) -> tuple[Bytes, list[Spans]]:
        """Copy the strings of some columns behind the messages; if there is no space, copy both to a new array.

        Return the bytes of the messages and the strings, and for each column the spans of its strings in them. The next
        call overwrites the strings.
        """
        text_spans, size = [], len(self.data)
        for column in columns:
            start, end = find_bounds(column)
            text_spans.append(Spans(start + size, end + size))
            size += len(content(column))
        if size > len(self._memory_behind):
            return np.concatenate([self.data, *map(content, columns)]), text_spans
        position = len(self.data)
        for column in columns:
            text = content(column)
            self._memory_behind[position : position + len(text)] = text
            position += len(text)
        return self._memory_behind[:size], text_spans

    @cached_property
    def backslashes(self) -> Indices:
        """The positions of all backslashes."""
        return self._find_all("backslashes", lambda data, _: data == BACKSLASH)

    @cached_property
    def quotes(self) -> Indices:
        """The positions of all quotes that are not escaped by a backslash."""
        slashes = self.backslashes
        if not slashes.size:
            return self._find_all("quotes", lambda data, _: data == QUOTE)
        begins = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
        in_run = np.arange(len(slashes)) - np.repeat(begins, np.diff(np.append(begins, len(slashes))))
        behind = slashes[in_run % 2 == 0] + 1

        def is_unescaped_quote(data: Bytes, begin: int) -> Mask:
            mask: Mask = data == QUOTE
            first, last = np.searchsorted(behind, [begin, begin + len(data)])
            mask[behind[first:last] - begin] = False
            return mask

        return self._find_all("quotes", is_unescaped_quote)

    @cached_property
    def brackets(self) -> Indices:
        """The positions of all brackets and braces, including those inside strings."""

        def is_bracket(data: Bytes, _: int) -> Mask:
            folded = data | 0x20
            mask: Mask = (folded == BRACE) | (folded == BRACE + 2)
            return mask

        return self._find_all("brackets", is_bracket)

    @cached_property
    def commas(self) -> Indices:
        """The positions of all commas, including those inside strings."""
        return self._find_all("commas", lambda data, _: data == COMMA)

    def _find_all(self, name: str, test: Callable[[Bytes, int], Mask]) -> Indices:
        """Find the positions of all bytes that pass a test, valid until the scratch memory of the name is taken again.

        The test gets a block of the buffer and the position of its first byte, and returns a mask of the block.
        """
        memory = self._scratch.take(name, len(self.data) >> 3, np.int64)
        count = 0
        for begin in range(0, len(self.data), _BLOCK):
            indexes = np.flatnonzero(test(self.data[begin : begin + _BLOCK], begin))
            if count + len(indexes) > len(memory):
                memory = self._scratch.grow(name, memory, count + len(indexes))
            np.add(indexes, begin, out=memory[count : count + len(indexes)])
            count += len(indexes)
        return memory[:count]

    def find_escaped(self, spans: Spans) -> Mask:
        """Which spans contain a backslash."""
        if not self.backslashes.size:
            return np.zeros(len(spans), dtype=bool)
        return np.searchsorted(self.backslashes, spans.start) < np.searchsorted(self.backslashes, spans.end)

    def starts_with(self, start: Indices, text: bytes) -> Mask:
        """At which positions, none of them after the last message, the buffer continues with `text`."""
        parts = [text[i : i + 8] for i in range(0, len(text), 8)]
        differences = np.zeros(len(start), dtype=np.uint64)
        for first in range(0, len(parts), _GATHERED):
            ahead, some = 8 * first, parts[first : first + _GATHERED]
            last = len(self.data) - 8 * len(some)
            index = np.minimum(start + ahead, last) if ahead + 8 * len(some) > PAD else start + ahead
            for words, part in zip(words_at(self.data, index, len(some)), some, strict=True):
                difference = words ^ np.uint64(int.from_bytes(part, "little"))
                differences |= difference if len(part) == 8 else difference & np.uint64((1 << 8 * len(part)) - 1)
        result: Mask = differences == 0
        return result

    def skip_blanks_after(self, position: Indices, limit: Indices) -> Indices:
        """The first position from the given one that is not a blank, at most the limit.

        After very many blanks it stops at a blank, which no caller accepts.
        """
        for _ in range(_MOST_BLANKS):
            blank = BLANK[self.data[position]] & (position < limit)
            if not blank.any():
                break
            position = position + blank
        return position

    def skip_blanks_before(self, position: Indices, limit: Indices) -> Indices:
        """The last position up to the given one without a blank before it, at least the limit.

        After very many blanks it stops behind a blank, which no caller accepts.
        """
        for _ in range(_MOST_BLANKS):
            blank = BLANK[self.data[position - 1]] & (position > limit)
            if not blank.any():
                break
            position = position - blank
        return position


def count_inside(positions: Indices, spans: Spans) -> tuple[Indices, Indices]:
    """For each span, the index of the first of some ascending positions inside it, and how many are inside."""
    first = np.searchsorted(positions, spans.start)
    return first, np.searchsorted(positions, spans.end) - first
