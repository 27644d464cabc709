"""Many messages into values at once: the messages of which it is sure, as places in their bytes.

A message is sure when it is one line of valid UTF-8 with as many delimiters as the table needs, when each of its quotes
opens or closes a value or is doubled inside one, and when no rule of the dialect looks at more than that. `grammar` is
the judge of all others.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl_formats._columns.arrays import Bytes, Mask, Positions, bounds, content, not_utf8, pieces
from kdsl_formats.csv.grammar import Dialect

_LINE_FEED, _RETURN = 10, 13
_CONTROLS = np.array([*range(1, 9), *range(14, 32)])
_LAST_ASCII = "\x7f"


@attrs.frozen(eq=False)
class Cells:
    """The values of the sure messages.

    Attributes:
        data: The bytes that the places mean.
        index: For each row the index of its message, ascending.
        start: Where each value begins: rows by columns, inside the quotes where there are any.
        end: Where each value ends, likewise.
        doubled: The quote, if it may stand doubled in a value; otherwise empty.
        stand_ins: What stands in the bytes for characters of the dialect that are not ASCII.
    """

    data: Bytes
    index: Positions
    start: Positions
    end: Positions
    doubled: str
    stand_ins: Mapping[str, str]

    def texts(self, column: int) -> pa.StringArray:
        """The values of a column."""
        texts = pieces(self.data, self.start[:, column], self.end[:, column], None, pa.string())
        if self.doubled:
            texts = pc.replace_substring(texts, self.doubled * 2, self.doubled)
        for character, stand_in in self.stand_ins.items():
            texts = pc.replace_substring(texts, stand_in, character)
        return texts


class Splitter:
    """Finds the values of whole arrays of messages, for one dialect and one number of columns."""

    def __init__(self, dialect: Dialect, columns: int) -> None:
        self.dialect, self.columns = dialect, columns
        self.trim, self.comments = dialect.trim, dialect.comments
        given = (dialect.delimiter, dialect.quote, dialect.escape)
        self._wide = tuple(dict.fromkeys(c for c in given if c is not None and c > _LAST_ASCII))

    def _use(self, stand_ins: Mapping[str, str]) -> None:
        """Search for the dialect's characters, or for what stands for them."""
        self.delimiter, self.quote, self.escape = (
            None if c is None else ord(stand_ins.get(c, c))
            for c in (self.dialect.delimiter, self.dialect.quote, self.dialect.escape)
        )

    def _stand_ins(self, messages: pa.BinaryArray) -> Mapping[str, str] | None:
        """For each character that is not ASCII a control character that is in no message; None if there are too few."""
        free = _CONTROLS[np.bincount(content(messages), minlength=256)[_CONTROLS] == 0]
        used = (self.dialect.delimiter, self.dialect.quote, self.dialect.escape)
        left = [c for c in map(chr, free) if c not in used]
        return dict(zip(self._wide, left, strict=False)) if len(left) >= len(self._wide) else None

    def split(self, messages: pa.BinaryArray) -> Cells:
        """The values of the messages that are sure."""
        index = np.flatnonzero(np.asarray(messages.is_valid()))
        stand_ins = self._stand_ins(messages) if self._wide else {}
        if stand_ins is None:
            index, stand_ins = index[:0], {}
        self._use(stand_ins)
        if len(index) < len(messages):
            messages = messages.take(pa.array(index))
        for character, stand_in in stand_ins.items():
            messages = pc.replace_substring(messages, character.encode(), stand_in.encode())
        sure = ~self._doubtful(messages)
        if not sure.all():
            messages, index = messages.filter(pa.array(sure)), index[sure]
        data = content(messages)
        start, end = bounds(messages)
        rows, start, end, doubled = self._values(data, start, end)
        quote = chr(self.quote) if doubled and self.quote is not None else ""
        return Cells(data, index[rows], start, end, quote, stand_ins)

    def _doubtful(self, messages: pa.BinaryArray) -> Mask:
        """Messages that could disturb the search in their neighbours, or that begin like something else."""
        data = content(messages)
        start, end = bounds(messages)
        doubtful: Mask = start == end
        if not data.size:
            return doubtful
        first = data.take(start, mode="clip")
        if self.escape is not None:
            doubtful |= _count(data == self.escape, start, end) > 0
        if self.comments:
            doubtful |= np.isin(first, list(b"# \r\n"))
        if int(data.max()) >= 0x80:
            doubtful |= np.isin(first, [0xEF, 0xFE, 0xFF])  # what a mark of the encoding begins with
            wrong = not_utf8(messages.view(pa.string()))
            if wrong is not None:
                doubtful |= wrong
        if self.trim and self.quote is not None:
            doubtful |= _count(data == self.quote, start, end) > 0
        return doubtful

    def _values(self, data: Bytes, start: Positions, end: Positions) -> tuple[Positions, Positions, Positions, bool]:
        """The rows that are sure, the places of their values, and whether quotes are doubled anywhere."""
        edges = np.append(start, end[-1:])
        end = _without_line_end(data, start, end)
        sure = end > start
        special = data == self.delimiter
        quotes = np.zeros(len(data), dtype=bool) if self.quote is None else data == self.quote
        quoted = bool(quotes.any())
        if quoted:
            special |= quotes
        if bool((data <= _RETURN).any()):
            special |= (data == _LINE_FEED) | (data == _RETURN)
        places: Positions = np.flatnonzero(special)
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

    def _grid(self, sure: Mask, places: Positions, edges: Positions, end: Positions) -> tuple[Positions, Positions]:
        """The sure rows that have the right number of delimiters, and the places of these by row."""
        wanted = self.columns - 1
        if len(places) == wanted * len(end) and sure.all():
            grid = places.reshape(len(end), wanted)
            if not wanted or bool(((grid[:, 0] >= edges[:-1]) & (grid[:, -1] < end)).all()):
                return np.arange(len(end)), grid
        counts = np.diff(np.searchsorted(places, edges))
        sure &= counts == wanted
        return np.flatnonzero(sure), places[np.repeat(sure, counts)].reshape(int(sure.sum()), wanted)

    def _outside(
        self, data: Bytes, places: Positions, edges: Positions, end: Positions
    ) -> tuple[Positions, Positions, bool]:
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


def _without_line_end(data: Bytes, start: Positions, end: Positions) -> Positions:
    """The ends without one line break, of one or two characters, at the end of a message."""
    if not data.size:
        return end
    for character in (_LINE_FEED, _RETURN):
        last = (data.take(end - 1, mode="clip") == character) & (end > start)
        if last.any():
            end = end - last
    return end


def _owner(start: Positions, places: Positions) -> Positions:
    """The message that each place lies in."""
    return np.searchsorted(start, places, side="right") - 1


def _count(found: Mask, start: Positions, end: Positions) -> Positions:
    """How many of the marked bytes each message has."""
    edges = np.append(start, end[-1:])
    return np.diff(np.searchsorted(np.flatnonzero(found), edges))
