"""The JSON decoder: plain messages by whole columns, the others by the reference decoder."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import BadRecord, Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._text.reading import pieces
from kdsl_formats.json.columns import ColumnReader
from kdsl_formats.json.members import BARE, TEXT
from kdsl_formats.json.objects import Values
from kdsl_formats.json.reference_decoder import ReadingRules, ReferenceDecoder
from kdsl_formats.json.source import Bytes, Mask, Places, Source, Spans

FEW = 48  # messages, below which looking at them one by one is quicker


@attrs.frozen(eq=False)
class _Odd:
    """Messages that were read one by one: their rows as values, the message of each row, and those that failed."""

    rows: list[dict[str, Any]]
    owner: list[int]
    bad: tuple[BadRecord, ...]


class JsonDecoder:
    """Reads messages into rows of one type.

    Args:
        row: The type; its names are those on the wire.
        rules: What the options of the format mean.
        few: Below how many messages of a kind they are read one by one.
    """

    def __init__(self, row: t.Row, rules: ReadingRules, *, few: int = FEW) -> None:
        self.type = arrow_type(row)
        self.few = few
        self.reference = ReferenceDecoder(row, rules)
        self.reader = ColumnReader(row, rules, few=few)

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Read an array of messages; null and empty ones give no row."""
        source = Source(messages)
        spans = source.messages
        held = spans.end > spans.start
        if messages.null_count:
            held &= np.asarray(messages.is_valid())
        if len(messages) >= self.few:
            spans = _trimmed(source, spans)
            plain = held & (spans.end > spans.start) & (source.data[spans.start] == 0x7B)
            plain &= source.data[np.maximum(spans.end - 1, 0)] == 0x7D
            place = np.flatnonzero(plain & _are_utf8(source, spans))
            if len(place) >= self.few:
                return self._together(messages, source, spans, held, place)
        odd = self._one_by_one(messages, np.flatnonzero(held))
        return Decoded(pa.array(odd.rows, self.type), pa.array(odd.owner, pa.int64()), odd.bad)

    def _one_by_one(self, messages: pa.BinaryArray, which: Places) -> _Odd:
        rows: list[dict[str, Any]] = []
        owner: list[int] = []
        bad: list[BadRecord] = []
        for i, message in zip(which.tolist(), messages.take(pa.array(which)).to_pylist(), strict=True):
            try:
                made = self.reference.rows(message)
            except ValueError as e:
                bad.append(BadRecord(i, str(e)))
                continue
            rows += made
            owner += [i] * len(made)
        return _Odd(rows, owner, tuple(bad))

    def _together(self, messages: pa.BinaryArray, source: Source, spans: Spans, held: Mask, place: Places) -> Decoded:
        """Read the messages at some places by columns, and all others that hold something one by one."""
        whole = len(place) == len(messages)
        values, doubts = self.reader.finder.find(source, spans if whole else spans.pick(place))
        columns: list[pa.Array | None] = []
        for found, reader in zip(values, self.reader.inner, strict=True):
            made = None
            if not _is_pure_text(source, found, reader.kind):
                made, inner = reader.read(source, found)
                doubts |= inner
            columns.append(made)
        if whole and not doubts.any():
            made = [c if c is not None else _texts(source.data, v) for v, c in zip(values, columns, strict=True)]
            return Decoded(pa.Array.from_buffers(self.type, len(place), [None], children=made))
        rest = held.copy()
        rest[place[~doubts]] = False
        return self._merged(source, values, columns, place, ~doubts, self._one_by_one(messages, np.flatnonzero(rest)))

    def _merged(
        self,
        source: Source,
        values: list[Values],
        columns: list[pa.Array | None],
        place: Places,
        kept: Mask,
        odd: _Odd,
    ) -> Decoded:
        """The rows read by columns and those read one by one, in the order of their messages."""
        owners = np.concatenate([place[kept], np.array(odd.owner, dtype=np.int64)])
        order = np.argsort(owners, kind="stable") if odd.owner else None
        index = np.concatenate([np.flatnonzero(kept), len(place) + np.arange(len(odd.owner))])
        index = index if order is None else index[order]
        made = []
        for field, found, column in zip(self.type, values, columns, strict=True):
            more = pa.array([row[field.name] for row in odd.rows], field.type)
            if column is None:
                made.append(_more_texts(source.data, found, more, index))
            else:
                made.append((pa.concat_arrays([column, more]) if odd.rows else column).take(pa.array(index)))
        rows = pa.Array.from_buffers(self.type, len(index), [None], children=made)
        return Decoded(rows, pa.array(owners if order is None else owners[order]), odd.bad)


def _is_pure_text(source: Source, values: Values, kind: t.DataType) -> bool:
    """Whether a column's values are their own stretches of the buffer, and so can be taken in any order later."""
    if not isinstance(kind, (t.Char, t.VarChar)) or bool((values.what == BARE).any()):
        return False
    return not source.backslashes.size or not bool(source.escaped(values.spans).any())


def _texts(data: Bytes, values: Values) -> pa.StringArray:
    present = values.what == TEXT
    return pieces(data, values.spans.start, values.spans.end, None if present.all() else present, pa.string())


def _more_texts(data: Bytes, values: Values, more: pa.StringArray, index: Places) -> pa.StringArray:
    """Texts of the buffer, and more of them behind it, in the order of an index over both."""
    extra = index >= len(values.what)
    place = np.where(extra, 0, index)
    present = (values.what[place] == TEXT) & ~extra
    made = pieces(data, values.spans.start[place], values.spans.end[place], present, pa.string())
    return pc.replace_with_mask(made, pa.array(extra), more) if len(more) else made


def _trimmed(source: Source, spans: Spans) -> Spans:
    """The messages without the blanks around them."""
    start, end = spans.start, spans.end
    if (source.data[start] != 0x7B).any():
        start = source.after_blanks(start, end)
    if (source.data[np.maximum(end - 1, 0)] != 0x7D).any():
        end = source.before_blanks(end, start)
    return Spans(start, end)


def _are_utf8(source: Source, spans: Spans) -> Mask:
    good = np.ones(len(spans), dtype=bool)
    if source.data.max() < 0x80:
        return good
    if not _is_utf8(source.data):
        high = np.flatnonzero(source.data >= 0x80)
        some = np.flatnonzero(np.searchsorted(high, spans.start) < np.searchsorted(high, spans.end))
        good[some] = [_is_utf8(source.data[spans.start[i] : spans.end[i]]) for i in some.tolist()]
    return good


def _is_utf8(data: Bytes) -> bool:
    offsets = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
