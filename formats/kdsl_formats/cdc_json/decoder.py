"""The decoder of change data: plain messages by whole columns, the others by the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._columns.arrays import Mask, Positions, bounds, pieces
from kdsl_formats._columns.doubts import Odd, Order, taken
from kdsl_formats.cdc_json.frames import Frame, FrameFinder
from kdsl_formats.cdc_json.layouts import Layout, begins, layout
from kdsl_formats.cdc_json.metadata import Piece, piece_type
from kdsl_formats.cdc_json.reference_decoder import PAYLOAD, ChangeReader, Meaning, Row
from kdsl_formats.json.columns import ColumnReader
from kdsl_formats.json.decoder import FEW
from kdsl_formats.json.document import parse
from kdsl_formats.json.documents import documents, enclosed
from kdsl_formats.json.members import TEXT
from kdsl_formats.json.objects import ObjectFinder, Values
from kdsl_formats.json.reference_decoder import ReadingRules, ReferenceDecoder
from kdsl_formats.json.source import Scratch, Source, Spans

_BRACE = 0x7B
_TREE = ReadingRules(streaming=False)


@attrs.frozen(eq=False)
class _Found:
    """Changes found in the buffer: the message of each, its members, and those beside its payload."""

    owner: Positions
    columns: list[Values]
    beside: list[Values]


class ChangeDecoder:
    """Reads messages into changelog rows.

    Args:
        meaning: What is wanted of them.
        few: Below how many messages of a kind they are read one by one.
    """

    def __init__(self, meaning: Meaning, *, few: int = FEW) -> None:
        self.type = arrow_type(meaning.row)
        self.meaning = meaning
        self.few = few
        self.reference = ChangeReader(meaning)
        self._scratch = Scratch()
        self._image = ColumnReader(meaning.row, meaning.rules, few=few)
        fields = {f.name: f.type for f in meaning.fields()}
        fields.update((c.member, t.STRING) for c in meaning.include if c.member not in fields)
        self._names = tuple(fields)
        self._change = ObjectFinder(self._names, all_needed=False, few=few)
        beside = tuple(f.name for f in meaning.beside())
        self._outer = ObjectFinder((PAYLOAD, *beside), all_needed=False, few=few)
        self._frames = FrameFinder(beside, few=few)
        exact = any(isinstance(kind, t.Decimal) for kind in _nested(meaning.row))
        self._metadata = _MetadataReader(meaning, fields, exact=exact, few=few)

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Read an array of messages; null and empty ones give no rows."""
        start, end = bounds(messages)
        held = end > start
        if messages.null_count:
            held &= np.asarray(messages.is_valid())
        if len(messages) >= self.few:
            framed = self._frames.find(messages, held) if self.meaning.payload else None
            frame, good = framed or (None, held)
            texts = messages if frame is None else frame.payloads(messages, good)
            source = Source.of(texts, self._scratch)
            spans, good = documents(source, good)
            place = enclosed(source, spans, good, b"{")
            if len(place) >= self.few:
                return self._together(messages, source, held, spans.pick(place), place, frame)
        odd = self._one_by_one(messages, held)
        return attrs.evolve(
            Odd([row for _, row, _ in odd.rows], odd.owner, odd.bad).decoded(self.type, len(messages)),
            kinds=pa.array([kind for kind, _, _ in odd.rows], pa.int8()),
            metadata=dict(zip(self.meaning.metadata, self._odd_metadata(odd), strict=True)),
        )

    def _one_by_one(self, messages: pa.BinaryArray, which: Mask) -> Odd:
        """The kind, the values and the metadata of each row."""

        def rows_of(message: bytes) -> list[tuple[int, Row, tuple[Any, ...]]]:
            made = self.reference.changes(message)
            return [(kind, row, made.metadata) for kind, row in zip(made.kinds, made.rows, strict=True)]

        return Odd.read(messages, np.flatnonzero(which), rows_of)

    def _odd_metadata(self, odd: Odd) -> list[pa.Array]:
        return [
            pa.array([values[i] for _, _, values in odd.rows], piece_type(piece))
            for i, piece in enumerate(self.meaning.pieces)
        ]

    def _find(self, source: Source, objects: Spans, owner: Positions, frame: Frame | None) -> _Found:
        """The changes among some objects; the messages of the others are left out."""
        outside: list[Values] = []
        first = None
        if self.meaning.payload and frame is None:
            outer = self._outer.find(source, objects)
            payload, *outside = outer.columns
            place = np.flatnonzero(begins(source, payload, _BRACE))
            payload = payload.pick(place)
            objects, first, owner = payload.spans, payload.first, owner[outer.which[place]]
            outside = [values.pick(place) for values in outside]
        found = self._change.find(source, objects, first)
        return _Found(owner[found.which], found.columns, [values.pick(found.which) for values in outside])

    def _together(
        self,
        messages: pa.BinaryArray,
        source: Source,
        held: Mask,
        objects: Spans,
        place: Positions,
        frame: Frame | None,
    ) -> Decoded:
        """Read changes by columns, and all messages that are in doubt one by one.

        Args:
            messages: The messages.
            source: The buffer with them, or with their payloads where these have a frame.
            held: Which messages are not empty.
            objects: Those in the buffer that begin and end like objects.
            place: The message of each.
            frame: What stands around each.
        """
        found = self._find(source, objects, place, frame)
        by_name = dict(zip(self._names, found.columns, strict=True))
        conditions = [(c, by_name[c.member]) for c in self.meaning.include]
        laid = layout(source, self.meaning.dialect, found.columns, conditions)
        doubts = laid.doubts
        images = _Images(self._image, source, laid.images, laid.first)
        doubts[laid.owner[images.doubts[laid.index]]] = True
        olds = None
        if len(laid.olds):
            olds = _Images(self._image, source, laid.olds)
            changed = np.flatnonzero(laid.over >= 0)
            doubts[laid.owner[changed[olds.doubts[laid.over[changed]]]]] = True
        pieces_found, wrong = self._metadata.read(source, by_name, found.beside, frame)
        doubts |= wrong
        rest = held.copy()
        rest[found.owner[~doubts]] = False
        odd = self._one_by_one(messages, rest)
        return self._merged(found, laid, images, olds, pieces_found, ~doubts[laid.owner], odd)

    def _merged(
        self,
        found: _Found,
        laid: Layout,
        images: _Images,
        olds: _Images | None,
        pieces_found: list[pa.Array],
        kept: Mask,
        odd: Odd,
    ) -> Decoded:
        """The rows read by columns and those read one by one, in the order of their messages."""
        rows = np.flatnonzero(kept)
        ordered = Order(found.owner[laid.owner[rows]], odd)
        count = images.count + (olds.count if olds else 0)
        order = ordered.index(images.place[laid.index[rows]], count)
        replaced = None if olds is None else _Replaced(images, olds, laid, rows)
        more = [pa.array([row[f.name] for _, row, _ in odd.rows], f.type) for f in self.type]
        columns = []
        for i, (column, added) in enumerate(zip(images.columns, more, strict=True)):
            pool, index = [column], order
            if olds is not None and replaced is not None:
                pool.append(olds.columns[i])
                index = ordered.index(replaced.index(i), count)
            if odd.rows:
                pool.append(added)
            columns.append(taken(pa.concat_arrays(pool) if len(pool) > 1 else column, index))
        made = pa.Array.from_buffers(self.type, len(order), [None], children=columns)
        kinds = ordered.values(laid.kinds[rows], [kind for kind, _, _ in odd.rows])
        change = ordered.index(laid.owner[rows], len(found.owner))
        metadata = {
            key: taken(pa.concat_arrays([column, added]) if odd.rows else column, change)
            for key, column, added in zip(self.meaning.metadata, pieces_found, self._odd_metadata(odd), strict=True)
        }
        return Decoded(made, pa.array(ordered.owner, pa.int64()), odd.bad, pa.array(kinds, pa.int8()), metadata)


class _Images:
    """Objects that are read as rows.

    Attributes:
        columns: Their columns, without those in doubt.
        count: How many rows these have.
        place: For each object its row.
        doubts: Which objects are in doubt; their rows mean nothing.
    """

    def __init__(self, reader: ColumnReader, source: Source, objects: Spans, first: Positions | None = None) -> None:
        found, self.columns, self.doubts = reader.members(source, objects, first)
        self.count = len(found.which)
        self.place = np.zeros(len(objects), dtype=np.int64)
        self.place[found.which] = np.arange(self.count)
        self._found = found

    def has(self, column: int, objects: Positions) -> Mask:
        """Which of some objects, none of them in doubt, have a member for a column."""
        held: Mask = self._found.columns[column].what[self.place[objects]] != 0
        return held


class _Replaced:
    """The rows before a change: those after it, with the members of the old ones."""

    def __init__(self, images: _Images, olds: _Images, laid: Layout, rows: Positions) -> None:
        self._olds = olds
        self._index = images.place[laid.index[rows]]
        over = laid.over[rows]
        self._which = np.flatnonzero(over >= 0)
        self._old = over[self._which]
        self._replacing = images.count + olds.place[self._old]

    def index(self, column: int) -> Positions:
        """For each row the place of its value among those of the images and, behind them, of the old ones."""
        index = self._index.copy()
        has = self._olds.has(column, self._old)
        index[self._which[has]] = self._replacing[has]
        return index


class _MetadataReader:
    """Reads the pieces of metadata of many changes."""

    def __init__(self, meaning: Meaning, fields: Mapping[str, t.DataType], *, exact: bool, few: int) -> None:
        self._pieces = meaning.pieces
        self._payload = meaning.payload
        self._beside = [f.name for f in meaning.beside()]
        self._texts = ReferenceDecoder(t.row(text=t.STRING, **({"exact": t.Decimal(1)} if exact else {})), _TREE)
        self._readers = {p.member: ColumnReader(fields[p.member], _TREE, few=few) for p in self._pieces if not p.beside}
        within: dict[str, None] = {p.of: None for p in self._pieces if p.of is not None}
        self._within = list(within)
        self._source = ColumnReader(t.row(**dict.fromkeys(within, t.STRING)), _TREE, few=few) if within else None

    def read(
        self, source: Source, found: Mapping[str, Values], beside: list[Values], frame: Frame | None
    ) -> tuple[list[pa.Array], Mask]:
        """The columns of the pieces, and which changes are in doubt."""
        count = len(next(iter(found.values())).what)
        doubts = np.zeros(count, dtype=bool)
        held: dict[str, pa.Array] = {}
        parts: dict[str, pa.Array] = {}
        for piece in self._pieces:
            if piece.beside:
                continue
            if piece.of is None and piece.member not in held:
                held[piece.member], wrong = self._readers[piece.member].read(source, found[piece.member])
                doubts |= wrong
            elif piece.of is not None and not parts and self._source is not None:
                made, wrong = self._source.read(source, found[piece.member])
                doubts |= wrong
                parts = dict(zip(self._within, made.flatten(), strict=True))
        columns = []
        for piece in self._pieces:
            if piece.beside and frame is not None:
                column, wrong = self._framing(piece, frame, count)
            elif piece.beside:
                column, wrong = self._outside(source, piece, beside, count)
            else:
                column, wrong = piece.column(parts[piece.of] if piece.of is not None else held[piece.member])
            columns.append(column)
            doubts |= wrong
        return columns, doubts

    def _framing(self, piece: Piece, frame: Frame, count: int) -> tuple[pa.Array, Mask]:
        """The same text for all."""
        spelled = frame.beside.get(piece.member)
        text, lost = (None, False) if spelled is None else self._text(spelled)
        made = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, dtype=np.int32)), pa.array([text], pa.string()))
        return made.dictionary_decode(), np.full(count, lost)

    def _outside(self, source: Source, piece: Piece, beside: list[Values], count: int) -> tuple[pa.Array, Mask]:
        """A text beside the payload; there are few different ones, and each is looked at once."""
        if not self._payload:
            return pa.nulls(count, piece_type(piece)), np.zeros(count, dtype=bool)
        values = beside[self._beside.index(piece.member)]
        present = (values.what != 0) & (values.what != TEXT)
        texts = pieces(source.data, values.spans.start, values.spans.end, present, pa.string())
        coded = texts.dictionary_encode()
        made = [self._text(text) for text in coded.dictionary.to_pylist()]
        lost = np.array([reason for _, reason in made], dtype=bool)
        doubts = values.what == TEXT
        if lost.any():
            doubts |= np.asarray(pc.fill_null(pa.array(lost).take(coded.indices), False))
        return pa.array([text for text, _ in made], pa.string()).take(coded.indices), doubts

    def _text(self, spelled: str) -> tuple[str | None, bool]:
        """A value other than a text as a text, and whether it is in doubt."""
        try:
            orjson.loads(spelled)
            text: str | None = self._texts.record({"text": parse(spelled.encode())})["text"]
        except ValueError:
            return None, True
        return text, False


def _nested(kind: t.DataType) -> list[t.DataType]:
    return [kind, *(inner for child in t.children(kind) for inner in _nested(child))]
