"""Many messages into values at once: the messages of which it is sure, as places in their bytes.

A message is sure when it is one line of valid UTF-8 with as many delimiters as the table needs, when each of its quotes
opens or closes a value or is doubled inside one, and when no rule of the dialect looks at more than that. `grammar` is
the judge of all others.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl_formats._text.reading import bounds, content
from kdsl_formats.csv.grammar import Dialect

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]
_LINE_FEED, _RETURN = 10, 13


@attrs.frozen(eq=False)
class Cells:
    """The values of the sure messages.

    Attributes:
        data: The bytes that the places mean.
        index: For each row the index of its message, ascending.
        start: Where each value begins: rows by columns, inside the quotes where there are any.
        end: Where each value ends, likewise.
        doubled: Whether a value may hold doubled quotes.
    """

    data: Bytes
    index: Places
    start: Places
    end: Places
    doubled: bool


class Splitter:
    """Finds the values of whole arrays of messages, for one dialect and one number of columns.

    Works for ASCII delimiters and quotes only; for others no message is sure.
    """

    def __init__(self, dialect: Dialect, columns: int) -> None:
        self.columns = columns
        self.able = all(c is None or c <= "\x7f" for c in (dialect.delimiter, dialect.quote, dialect.escape))
        self.delimiter = ord(dialect.delimiter)
        self.quote = None if dialect.quote is None else ord(dialect.quote)
        self.escape = None if dialect.escape is None else ord(dialect.escape)
        self.trim = dialect.trim
        self.comments = dialect.comments

    def split(self, messages: pa.BinaryArray) -> Cells:
        """The values of the messages that are sure."""
        index = np.flatnonzero(np.asarray(messages.is_valid()))
        if not self.able:
            index = index[:0]
        if len(index) < len(messages):
            messages = messages.take(pa.array(index))
        sure = ~self._doubtful(messages)
        if not sure.all():
            messages, index = messages.filter(pa.array(sure)), index[sure]
        data = content(messages)
        start, end = bounds(messages)
        rows, start, end, doubled = self._values(data, start, end)
        return Cells(data, index[rows], start, end, doubled)

    def _doubtful(self, messages: pa.BinaryArray) -> Mask:
        """Messages that could disturb the search in their neighbours, or that begin like something else."""
        data = content(messages)
        start, end = bounds(messages)
        doubtful: Mask = start == end
        if not data.size:
            return doubtful
        first = np.append(data, np.zeros(1, np.uint8))[start]
        if int(data.min()) == 0:
            doubtful |= _count(data == 0, start, end) > 0
        if self.escape is not None:
            doubtful |= _count(data == self.escape, start, end) > 0
        if self.comments:
            doubtful |= np.isin(first, list(b"# \r\n"))
        if int(data.max()) >= 0x80:
            doubtful |= np.isin(first, [0xEF, 0xFE, 0xFF])  # what a mark of the encoding begins with
            doubtful |= _not_utf8(messages)
        if self.trim and self.quote is not None:
            doubtful |= _count(data == self.quote, start, end) > 0
        return doubtful

    def _values(self, data: Bytes, start: Places, end: Places) -> tuple[Places, Places, Places, bool]:
        """The rows that are sure, the places of their values, and whether quotes are doubled anywhere."""
        edges = np.append(start, end[-1:])
        end = _without_line_end(data, start, end)
        sure = end > start
        special = data == self.delimiter
        quoted = self.quote is not None and bool((quotes := data == self.quote).any())
        if quoted:
            special |= quotes
        if bool((data <= _RETURN).any()):
            special |= (data == _LINE_FEED) | (data == _RETURN)
        places = np.flatnonzero(special)
        doubled = False
        if quoted:
            places, wrong, doubled = self._outside(data, places, edges, end)
            sure[_owner(start, wrong)] = False
        found = data[places]
        breaks = found != self.delimiter
        if breaks.any():
            odd = places[breaks]
            owner = _owner(start, odd)
            sure[owner[odd < end[owner]]] = False
            places = places[~breaks]
        rows, places = self._grid(sure, places, edges, end)
        starts = np.empty((len(rows), self.columns), dtype=np.int64)
        ends = np.empty_like(starts)
        starts[:, 0], starts[:, 1:] = start[rows], places + 1
        ends[:, -1], ends[:, :-1] = end[rows], places
        if quoted:
            opened = (data.take(starts, mode="clip") == self.quote) & (ends > starts)
            starts += opened
            ends -= opened
        return rows, starts, ends, doubled

    def _grid(self, sure: Mask, places: Places, edges: Places, end: Places) -> tuple[Places, Places]:
        """The sure rows that have the right number of delimiters, and the places of these by row."""
        wanted = self.columns - 1
        if len(places) == wanted * len(end) and sure.all():
            grid = places.reshape(len(end), wanted)
            if not wanted or bool(((grid[:, 0] >= edges[:-1]) & (grid[:, -1] < end)).all()):
                return np.arange(len(end)), grid
        counts = np.diff(np.searchsorted(places, edges))
        sure &= counts == wanted
        return np.flatnonzero(sure), places[np.repeat(sure, counts)].reshape(int(sure.sum()), wanted)

    def _outside(self, data: Bytes, places: Places, edges: Places, end: Places) -> tuple[Places, Places, bool]:
        """The places that are no quotes and stand outside of quotes.

        Also the places of quotes that neither open nor close a value and are not doubled (for a message whose last
        quote is never closed: its last special place), and whether any quotes are doubled.
        """
        is_quote = data[places] == self.quote
        rank = np.zeros(len(places) + 1, dtype=np.int64)
        np.cumsum(is_quote, out=rank[1:])
        bounds_ = np.searchsorted(places, edges)
        before, after = rank[bounds_[:-1]], rank[bounds_[1:]]
        unclosed = (after - before) & 1 == 1
        inside = rank[1:] & 1
        if unclosed.any():
            inside ^= np.repeat(before & 1, np.diff(bounds_))
        begins, stops = np.zeros(len(data) + 2, dtype=bool), np.zeros(len(data) + 2, dtype=bool)
        begins[edges[:-1]] = True
        stops[end] = True
        opening, closing = places[is_quote & (inside == 1)], places[is_quote & (inside == 0)]
        previous, following = data.take(opening - 1, mode="clip"), data.take(closing + 1, mode="clip")
        opens = begins[opening] | (previous == self.delimiter) | (previous == self.quote)
        ends = stops[closing + 1]
        pairs = (following == self.quote) & ~ends
        closes = ends | pairs | (following == self.delimiter)
        wrong = np.concatenate((opening[~opens], closing[~closes], places[bounds_[1:][unclosed] - 1]))
        return places[~is_quote & (inside == 0)], wrong, bool(pairs.any())


def _without_line_end(data: Bytes, start: Places, end: Places) -> Places:
    """The ends without one line break, of one or two characters, at the end of a message."""
    if not data.size:
        return end
    for character in (_LINE_FEED, _RETURN):
        last = (data.take(end - 1, mode="clip") == character) & (end > start)
        if last.any():
            end = end - last
    return end


def _owner(start: Places, places: Places) -> Places:
    """The message that each place lies in."""
    return np.searchsorted(start, places, side="right") - 1


def _count(found: Mask, start: Places, end: Places) -> Places:
    """How many of the marked bytes each message has."""
    edges = np.append(start, end[-1:])
    return np.diff(np.searchsorted(np.flatnonzero(found), edges))


def _not_utf8(messages: Any) -> Mask:
    """The messages that are no valid UTF-8."""
    try:
        messages.cast(pa.string())
    except pa.ArrowInvalid:
        if len(messages) == 1:
            return np.ones(1, dtype=bool)
        half = len(messages) // 2
        return np.concatenate((_not_utf8(messages[:half]), _not_utf8(messages[half:])))
    return np.zeros(len(messages), dtype=bool)
