"""Splits many plain messages into values at once; values are positions in the messages' bytes.

A message is plain if it is one line of valid UTF-8 with as many delimiters as the table needs, and each of its quotes
opens or closes a value or is doubled inside one, and no rule of the dialect depends on anything else. `grammar` splits
all other messages.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl_formats._columns.arrays import Bytes, Indices, Mask, content, find_bounds, find_invalid_utf8, slices
from kdsl_formats.csv.grammar import Dialect

_LINE_FEED, _RETURN = 10, 13
_CONTROLS = np.array([*range(1, 9), *range(14, 32)])
_LAST_ASCII = "\x7f"


@attrs.frozen(eq=False)
class Cells:
    """The values of the plain messages.

    Attributes:
        data: The bytes that the positions refer to.
        index: The index of the message of each row, ascending.
        start: The position of the first byte of each value, as rows by columns; inside the quotes of a quoted value.
        end: The position after the last byte of each value, likewise.
        doubled_quote: The quote, if values may contain it doubled; otherwise empty.
        stand_ins: The ASCII characters that replace the other characters of the dialect.
    """

    data: Bytes
    index: Indices
    start: Indices
    end: Indices
    doubled_quote: str
    stand_ins: Mapping[str, str]

    def strings(self, column: int) -> pa.StringArray:
        """Copy the values of a column, without NULL; doubled quotes become single, and stand-ins their characters."""
        strings = slices(self.data, self.start[:, column], self.end[:, column], None, pa.string())
        if self.doubled_quote:
            strings = pc.replace_substring(strings, self.doubled_quote * 2, self.doubled_quote)
        for character, stand_in in self.stand_ins.items():
            strings = pc.replace_substring(strings, stand_in, character)
        return strings


class Splitter:
    """Locates the values of whole arrays of messages, for one dialect and one number of columns."""

    def __init__(self, dialect: Dialect, columns: int) -> None:
        self.dialect, self.columns = dialect, columns
        self.trim, self.comments = dialect.trim, dialect.comments
        characters = (dialect.delimiter, dialect.quote, dialect.escape)
        self._wide = tuple(dict.fromkeys(c for c in characters if c is not None and c > _LAST_ASCII))

    def _use_characters(self, stand_ins: Mapping[str, str]) -> None:
        """Set the characters to search for: the dialect's, or their stand-ins."""
        self.delimiter, self.quote, self.escape = (
            None if c is None else ord(stand_ins.get(c, c))
            for c in (self.dialect.delimiter, self.dialect.quote, self.dialect.escape)
        )

    def _choose_stand_ins(self, messages: pa.BinaryArray) -> Mapping[str, str] | None:
        """Choose control characters that no message has for the dialect's characters beyond ASCII; None if too few."""
        free = _CONTROLS[np.bincount(content(messages), minlength=256)[_CONTROLS] == 0]
        used = (self.dialect.delimiter, self.dialect.quote, self.dialect.escape)
        left = [c for c in map(chr, free) if c not in used]
        return dict(zip(self._wide, left, strict=False)) if len(left) >= len(self._wide) else None

    def split_messages(self, messages: pa.BinaryArray) -> Cells:
        """Locate the values of the plain messages (see the module), which may have quotes; all others are left out.

        The characters to search for are chosen for these messages, and stored in the splitter.
        """
        index = np.flatnonzero(np.asarray(messages.is_valid()))
        stand_ins = self._choose_stand_ins(messages) if self._wide else {}
        if stand_ins is None:
            index, stand_ins = index[:0], {}
        self._use_characters(stand_ins)
        if len(index) < len(messages):
            messages = messages.take(pa.array(index))
        for character, stand_in in stand_ins.items():
            messages = pc.replace_substring(messages, character.encode(), stand_in.encode())
        plain = ~self._find_irregular(messages)
        if not plain.all():
            messages, index = messages.filter(pa.array(plain)), index[plain]
        data = content(messages)
        start, end = find_bounds(messages)
        rows, start, end, doubled_quote = self._locate_values(data, start, end)
        quote = chr(self.quote) if doubled_quote and self.quote is not None else ""
        return Cells(data, index[rows], start, end, quote, stand_ins)

    def _find_irregular(self, messages: pa.BinaryArray) -> Mask:
        """Which messages the splitter must not search: they could disturb their neighbours, or begin without a row.

        They are empty or not UTF-8, contain the escape character or, if blanks are dropped, a quote, or begin with what
        may be a byte order mark or, if comments are skipped, with a comment or blank.
        """
        data = content(messages)
        start, end = find_bounds(messages)
        fallback: Mask = start == end
        if not data.size:
            return fallback
        first = data.take(start, mode="clip")
        if self.escape is not None:
            fallback |= _count_in(data == self.escape, start, end) > 0
        if self.comments:
            fallback |= np.isin(first, list(b"# \r\n"))
        if int(data.max()) >= 0x80:
            fallback |= np.isin(first, [0xEF, 0xFE, 0xFF])  # the first bytes of byte order marks
            wrong = find_invalid_utf8(messages.view(pa.string()))
            if wrong is not None:
                fallback |= wrong
        if self.trim and self.quote is not None:
            fallback |= _count_in(data == self.quote, start, end) > 0
        return fallback

    def _locate_values(self, data: Bytes, start: Indices, end: Indices) -> tuple[Indices, Indices, Indices, bool]:
        """The plain rows, the start and end of each of their values without quotes, and whether quotes are doubled."""
        edges = np.append(start, end[-1:])
        end = _without_line_end(data, start, end)
        plain = end > start
        special = data == self.delimiter
        quotes = np.zeros(len(data), dtype=bool) if self.quote is None else data == self.quote
        quoted = bool(quotes.any())
        if quoted:
            special |= quotes
        if bool((data <= _RETURN).any()):
            special |= (data == _LINE_FEED) | (data == _RETURN)
        positions: Indices = np.flatnonzero(special)
        doubled = False
        if quoted:
            positions, wrong, doubled = self._outside_quotes(data, positions, edges, end)
            plain[_message_of(start, wrong)] = False
        bytes_there = data[positions]
        breaks = bytes_there != self.delimiter
        if breaks.any():
            breaks_at = positions[breaks]
            owner = _message_of(start, breaks_at)
            plain[owner[breaks_at < end[owner]]] = False
            positions = positions[~breaks]
        rows, positions = self._select_rows(plain, positions, edges, end)
        starts = np.empty((len(rows), self.columns), dtype=np.int64)
        ends = np.empty_like(starts)
        starts[:, 0], starts[:, 1:] = start[rows], positions + 1
        ends[:, -1], ends[:, :-1] = end[rows], positions
        if quoted:
            opened = (data.take(starts, mode="clip") == self.quote) & (ends > starts)
            starts += opened
            ends -= opened
        return rows, starts, ends, doubled

    def _select_rows(self, plain: Mask, positions: Indices, edges: Indices, end: Indices) -> tuple[Indices, Indices]:
        """The plain rows with the right number of delimiters, and these by row; other rows are cleared in ``plain``."""
        wanted = self.columns - 1
        if len(positions) == wanted * len(end) and plain.all():
            grid = positions.reshape(len(end), wanted)
            if not wanted or bool(((grid[:, 0] >= edges[:-1]) & (grid[:, -1] < end)).all()):
                return np.arange(len(end)), grid
        counts = np.diff(np.searchsorted(positions, edges))
        plain &= counts == wanted
        return np.flatnonzero(plain), positions[np.repeat(plain, counts)].reshape(int(plain.sum()), wanted)

    def _outside_quotes(
        self, data: Bytes, positions: Indices, edges: Indices, end: Indices
    ) -> tuple[Indices, Indices, bool]:
        """The positions of special characters outside quotes, of wrong quotes, and whether any quotes are doubled.

        A quote is wrong if it neither opens nor closes a value and is not doubled; a message whose last quote is never
        closed has its last special position among them.
        """
        is_quote = data[positions] == self.quote
        rank = np.zeros(len(positions) + 1, dtype=np.int64)
        np.cumsum(is_quote, out=rank[1:])
        bounds_ = np.searchsorted(positions, edges)
        before, after = rank[bounds_[:-1]], rank[bounds_[1:]]
        unclosed = (after - before) & 1 == 1
        inside = rank[1:] & 1
        if unclosed.any():
            inside ^= np.repeat(before & 1, np.diff(bounds_))
        begins, stops = np.zeros(len(data) + 2, dtype=bool), np.zeros(len(data) + 2, dtype=bool)
        begins[edges[:-1]] = True
        stops[end] = True
        opening, closing = positions[is_quote & (inside == 1)], positions[is_quote & (inside == 0)]
        previous, following = data.take(opening - 1, mode="clip"), data.take(closing + 1, mode="clip")
        opens = begins[opening] | (previous == self.delimiter) | (previous == self.quote)
        ends = stops[closing + 1]
        pairs = (following == self.quote) & ~ends
        closes = ends | pairs | (following == self.delimiter)
        wrong = np.concatenate((opening[~opens], closing[~closes], positions[bounds_[1:][unclosed] - 1]))
        return positions[~is_quote & (inside == 0)], wrong, bool(pairs.any())


def _without_line_end(data: Bytes, start: Indices, end: Indices) -> Indices:
    """The ends of the messages without one line break (one or two characters)."""
    if not data.size:
        return end
    for character in (_LINE_FEED, _RETURN):
        last = (data.take(end - 1, mode="clip") == character) & (end > start)
        if last.any():
            end = end - last
    return end


def _message_of(start: Indices, positions: Indices) -> Indices:
    """The message that contains each position."""
    return np.searchsorted(start, positions, side="right") - 1


def _count_in(marked: Mask, start: Indices, end: Indices) -> Indices:
    """The number of marked bytes in each message."""
    edges = np.append(start, end[-1:])
    return np.diff(np.searchsorted(np.flatnonzero(marked), edges))
