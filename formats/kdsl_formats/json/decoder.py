"""The JSON decoder: plain messages by whole columns, the others by the reference decoder."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._columns.arrays import Bytes, Mask, Positions, pieces
from kdsl_formats._columns.doubts import Odd, Order, taken
from kdsl_formats.json.columns import ColumnReader
from kdsl_formats.json.documents import documents, enclosed
from kdsl_formats.json.members import BARE, TEXT, elements
from kdsl_formats.json.objects import Values
from kdsl_formats.json.reference_decoder import ReadingRules, ReferenceDecoder
from kdsl_formats.json.source import Scratch, Source, Spans

FEW = 48  # messages, below which looking at them one by one is quicker


@attrs.frozen(eq=False)
class _Objects:
    """Objects in the buffer.

    Attributes:
        spans: Where they are, in ascending order.
        owner: The message of each.
        messages: The messages that are understood if all their objects are; the same as `owner` if none is an array.
    """

    spans: Spans
    owner: Positions
    messages: Positions


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
        self._scratch = Scratch()

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Read an array of messages; null and empty ones give no row."""
        source = Source.of(messages, self._scratch)
        held = source.messages.end > source.messages.start
        if messages.null_count:
            held &= np.asarray(messages.is_valid())
        if len(messages) >= self.few:
            objects = self._objects(source, held)
            if len(objects.owner) >= self.few:
                return self._together(messages, source, held, objects)
        return Odd.read(messages, np.flatnonzero(held), self.reference.rows).decoded(self.type, len(messages))

    def _objects(self, source: Source, held: Mask) -> _Objects:
        """The messages that may be objects, and the elements of those that are arrays of objects."""
        spans, good = documents(source, held)
        place = enclosed(source, spans, good, b"{")
        whole = len(place) == len(held)
        found = _Objects(spans if whole else spans.pick(place), place, place)
        listed = enclosed(source, spans, good, b"[")
        if len(listed) < self.few:
            return found
        parts = elements(source, spans.pick(listed))
        fine = parts.sound
        fine[parts.owner[(parts.what == TEXT) | (source.data[parts.values.start] != 0x7B)]] = False
        kept = fine[parts.owner]
        start = np.concatenate([found.spans.start, parts.values.start[kept]])
        end = np.concatenate([found.spans.end, parts.values.end[kept]])
        owner = np.concatenate([place, listed[parts.owner[kept]]])
        order = np.argsort(start)
        return _Objects(Spans(start[order], end[order]), owner[order], np.concatenate([place, listed[fine]]))

    def _together(self, messages: pa.BinaryArray, source: Source, held: Mask, objects: _Objects) -> Decoded:
        """Read objects by columns, and all messages that are in doubt one by one."""
        found = self.reader.finder.find(source, objects.spans)
        owner = objects.owner[found.which]
        rest = held.copy()
        rest[objects.messages] = False
        rest[objects.owner[found.doubts]] = True
        columns: list[pa.Array | None] = []
        for values, reader in zip(found.columns, self.reader.inner, strict=True):
            made = None
            if not _is_pure_text(source, values, reader.kind):
                made, doubts = reader.read(source, values)
                rest[owner[doubts]] = True
            columns.append(made)
        if objects.owner is objects.messages and len(owner) == len(messages) and not rest.any():
            made = [_texts(source.data, v) if c is None else c for v, c in zip(found.columns, columns, strict=True)]
            return Decoded(pa.Array.from_buffers(self.type, len(owner), [None], children=made))
        odd = Odd.read(messages, np.flatnonzero(rest), self.reference.rows)
        return self._merged(source, found.columns, columns, owner, ~rest[owner], odd)

    def _merged(
        self,
        source: Source,
        values: list[Values],
        columns: list[pa.Array | None],
        owner: Positions,
        kept: Mask,
        odd: Odd,
    ) -> Decoded:
        """The rows read by columns and those read one by one, in the order of their messages."""
        places = np.flatnonzero(kept)
        order = Order(owner[places], odd)
        index = order.index(places, len(owner))
        more = [pa.array([row[f.name] for row in odd.rows], f.type) for f in self.type]
        data, spans = source.with_texts([m for m, c in zip(more, columns, strict=True) if c is None])
        made = []
        for found, column, added in zip(values, columns, more, strict=True):
            if column is None:
                what = np.asarray(added.is_valid()).astype(np.int8) * TEXT
                made.append(_texts(data, _joined(found, Values(spans.pop(0), what), index)))
            else:
                made.append(taken(pa.concat_arrays([column, added]) if odd.rows else column, index))
        rows = pa.Array.from_buffers(self.type, len(index), [None], children=made)
        return Decoded(rows, pa.array(order.owner), odd.bad)


def _is_pure_text(source: Source, values: Values, kind: t.DataType) -> bool:
    """Whether a column's values are their own stretches of the buffer, and so can be taken in any order later."""
    if not isinstance(kind, (t.Char, t.VarChar)) or bool((values.what == BARE).any()):
        return False
    return not source.backslashes.size or not bool(source.escaped(values.spans).any())


def _texts(data: Bytes, values: Values) -> pa.StringArray:
    present = values.what == TEXT
    return pieces(data, values.spans.start, values.spans.end, None if present.all() else present, pa.string())


def _joined(values: Values, more: Values, index: Positions) -> Values:
    """Two columns of values, in the order of an index over both."""
    if not len(more.what):
        return Values(values.spans.pick(index), values.what[index])
    start = np.concatenate([values.spans.start, more.spans.start])
    end = np.concatenate([values.spans.end, more.spans.end])
    return Values(Spans(start[index], end[index]), np.concatenate([values.what, more.what])[index])
