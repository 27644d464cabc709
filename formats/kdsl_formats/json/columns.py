"""Values in the buffer, found but not yet understood, to Arrow columns.

A `ColumnReader` knows the plain spellings of its type and doubts the rest; the caller sends every message with a doubt
to the reference decoder. What is not in doubt is what the reference would say.
"""

from __future__ import annotations

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._columns.arrays import Mask, Positions, bitmap, pieces, repeated
from kdsl_formats._text import reading
from kdsl_formats.json.members import BARE, TEXT, Parts, elements, members, outline
from kdsl_formats.json.objects import Found, ObjectFinder, Values
from kdsl_formats.json.reference_decoder import ReadingRules, time_unit
from kdsl_formats.json.source import Source, Spans
from kdsl_formats.json.validity import LONGEST_NUMBER, NUMBER, are_numbers

_NULL, _TRUE, _FALSE = (np.uint64(int.from_bytes(word, "little")) for word in (b"null", b"true", b"false"))
_FOUR_BYTES, _FIVE_BYTES = np.uint64(2**32 - 1), np.uint64(2**40 - 1)
_INTEGER = r"^(0|-?[1-9][0-9]*)$"
_FRACTION = r"^(-?[0-9]{1,18})\.[0-9]+$"


class ColumnReader:
    """Reads the values of one type.

    Args:
        kind: The type.
        rules: What the options of the format mean.
        few: See `ObjectFinder`.
    """

    def __init__(self, kind: t.DataType, rules: ReadingRules, *, few: int) -> None:
        self.kind = kind
        self.rules = rules
        self.type = arrow_type(kind)
        inner = list(t.children(kind))
        if isinstance(kind, t.Multiset):
            inner.append(t.Int())
        self.inner = tuple(ColumnReader(child, rules, few=few) for child in inner)
        if isinstance(kind, t.Row):
            self.finder = ObjectFinder(kind.names, all_needed=rules.fail_on_missing_field, few=few)

    def read(self, source: Source, values: Values) -> tuple[pa.Array, Mask]:
        """The column, and which of its values are in doubt."""
        spans, text, bare = values.spans, values.what == TEXT, values.what == BARE
        if bare.any():
            bare &= ~((spans.end - spans.start == 4) & (source.words[spans.start] & _FOUR_BYTES == _NULL))
        match self.kind:
            case t.Boolean():
                return self._booleans(source, spans, text | bare)
            case t.Char() | t.VarChar():
                return self._texts(source, spans, text, bare)
            case t.Array():
                made, doubts = self._arrays(source, spans, bare)
                return made, doubts | text
            case t.Map() | t.Multiset():
                made, doubts = self._maps(source, spans, bare)
                return made, doubts | text
            case t.Row():
                made, doubts = self.rows(source, spans, bare, values.first)
                return made, doubts | text
            case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
                return self._integers(source, spans, text, bare)
            case t.Float() | t.Double() | t.Decimal():
                return self._numbers(source, spans, text, bare)
        made, doubts = self._from_text(_cut(source, spans, text))
        return made, doubts | bare

    def rows(
        self, source: Source, spans: Spans, present: Mask, first: Positions | None = None
    ) -> tuple[pa.Array, Mask]:
        """A struct column of objects, and which of them are in doubt; what is not present is NULL."""
        place = np.flatnonzero(present)
        found, columns, wrong = self.members(source, spans.pick(place), None if first is None else first[place])
        doubts = np.zeros(len(present), dtype=bool)
        doubts[place[wrong]] = True
        made = pa.Array.from_buffers(self.type, len(found.which), [None], children=columns)
        if len(found.which) == len(present):
            return made, doubts
        index = np.zeros(len(present), dtype=np.int64)
        absent = np.ones(len(present), dtype=bool)
        index[place[found.which]] = np.arange(len(found.which))
        absent[place[found.which]] = False
        return made.take(pa.array(index, mask=absent)), doubts

    def members(
        self, source: Source, objects: Spans, first: Positions | None = None
    ) -> tuple[Found, list[pa.Array], Mask]:
        """What is found in objects; the column of each member, for those that are understood; which are in doubt."""
        found = self.finder.find(source, objects, first)
        doubts = np.zeros(len(objects), dtype=bool)
        doubts[found.doubts] = True
        columns = []
        for values, reader in zip(found.columns, self.inner, strict=True):
            column, inner = reader.read(source, values)
            columns.append(column)
            doubts[found.which[inner]] = True
        return found, columns, doubts

    def _from_text(self, texts: pa.StringArray) -> tuple[pa.Array, Mask]:
        match self.kind:
            case t.Binary() | t.VarBinary():
                return reading.base64(texts)
            case t.Date():
                return reading.dates(texts)
            case t.Time(precision=precision):
                made, doubts = reading.times(texts)
                unit = time_unit(precision)
                return pc.multiply(pc.divide(made.view(pa.int64()), unit), unit).view(self.type), doubts
            case _:
                return reading.timestamps(texts, self.rules.standard, zoned=isinstance(self.kind, t.TimestampLtz))

    def _booleans(self, source: Source, spans: Spans, present: Mask) -> tuple[pa.Array, Mask]:
        size, words = spans.end - spans.start, source.words[spans.start]
        true = (size == 4) & (words & _FOUR_BYTES == _TRUE)
        known = present & (true | ((size == 5) & (words & _FIVE_BYTES == _FALSE)))
        return pa.array(true, self.type, mask=~known), present & ~known

    def _integers(self, source: Source, spans: Spans, text: Mask, bare: Mask) -> tuple[pa.Array, Mask]:
        texts = _cut(source, spans, text | bare)
        made, doubts = reading.integers(texts, self.type)
        spelled = ~bare | are_numbers(source, spans, texts) if bare.any() else text
        if doubts.any() and isinstance(self.kind, (t.Int, t.BigInt)):  # a number with a fraction, which is cut
            place = np.flatnonzero(doubts & bare)
            again, still = reading.integers(
                pc.replace_substring_regex(texts.take(pa.array(place)), _FRACTION, r"\1"), self.type
            )
            if not still.all():
                made = pc.replace_with_mask(made, pa.array(doubts & bare), again)
                doubts[place[~still]] = False
        return made, doubts | (bare & ~spelled)

    def _numbers(self, source: Source, spans: Spans, text: Mask, bare: Mask) -> tuple[pa.Array, Mask]:
        texts = _cut(source, spans, text | bare)
        if isinstance(self.kind, t.Decimal):
            made, doubts = reading.decimals(texts, self.type)
        else:
            made, doubts = reading.floats(texts, self.type)
        if bare.any():
            doubts |= bare & ~are_numbers(source, spans, texts)
            if not self.rules.streaming and not isinstance(self.kind, t.Decimal):  # by way of a double, without -0.0
                doubles = reading.floats(texts, pa.float64())[0]
                made = pc.if_else(pa.array(bare), pc.cast(doubles, self.type, safe=False), made)
                doubts |= bare & np.asarray(pc.fill_null(pc.equal(doubles, 0.0), False))
        return made, doubts

    def _texts(self, source: Source, spans: Spans, text: Mask, bare: Mask) -> tuple[pa.Array, Mask]:
        made = _cut(source, spans, text | bare)
        doubts = np.zeros(len(text), dtype=bool)
        place = np.flatnonzero(text & source.escaped(spans)) if source.backslashes.size else doubts[:0]
        if place.size:
            plain, doubts[place] = _unescaped(made.take(pa.array(place)))
            mask = np.zeros(len(text), dtype=bool)
            mask[place] = True
            made = pc.replace_with_mask(made, pa.array(mask), plain)
        place = np.flatnonzero(bare)
        if place.size:
            doubts[place] = ~self._are_own_text(source, spans.pick(place), made.take(pa.array(place)))
        return made, doubts

    def _are_own_text(self, source: Source, spans: Spans, texts: pa.StringArray) -> Mask:
        """Which values other than texts and null become the text that they are spelled with."""
        size, first = spans.end - spans.start, source.data[spans.start]
        words = source.words[spans.start]
        good: Mask = ((size == 4) & (words & _FOUR_BYTES == _TRUE)) | ((size == 5) & (words & _FIVE_BYTES == _FALSE))
        if self.rules.streaming:
            good |= (size <= LONGEST_NUMBER) & np.asarray(pc.match_substring_regex(texts, NUMBER))
            place = np.flatnonzero((first == 0x7B) | (first == 0x5B))
            sound = outline(source, spans.pick(place), b"{[")[0]
            good[place] = [is_fine and _is_compact(texts[i].as_py()) for i, is_fine in zip(place, sound, strict=True)]
        else:  # the tree reader spells integers alone as they were
            good |= (size <= LONGEST_NUMBER) & np.asarray(pc.match_substring_regex(texts, _INTEGER))
        return good

    def _arrays(self, source: Source, spans: Spans, present: Mask) -> tuple[pa.Array, Mask]:
        parts = elements(source, spans.pick(present))
        made, inner = self.inner[0].read(source, Values(parts.values, parts.what))
        return self._nested(parts, present, made, inner)

    def _maps(self, source: Source, spans: Spans, present: Mask) -> tuple[pa.Array, Mask]:
        parts = members(source, spans.pick(present))
        assert parts.keys is not None
        keys, inner = self.inner[0].read(source, Values(parts.keys, np.full(len(parts.owner), TEXT, dtype=np.int8)))
        made, wrong = self.inner[1].read(source, Values(parts.values, parts.what))
        inner = inner | wrong | repeated(parts.owner, keys)
        if isinstance(self.kind, t.Multiset):
            inner |= np.asarray(made.is_null())
        entry = pa.struct([self.type.key_field, self.type.item_field])
        pairs = pa.Array.from_buffers(entry, len(keys), [None], children=[keys, made])
        return self._nested(parts, present, pairs, inner)

    def _nested(self, parts: Parts, present: Mask, made: pa.Array, inner: Mask) -> tuple[pa.Array, Mask]:
        """A list or map column of parts; those that are not present are NULL."""
        doubts = np.zeros(len(present), dtype=bool)
        wrong = ~parts.sound
        wrong[parts.owner[inner]] = True
        doubts[present] = wrong
        offsets = np.zeros(len(present) + 1, dtype=np.int32)
        offsets[1:][present] = np.bincount(parts.owner, minlength=len(parts.sound))
        np.cumsum(offsets, out=offsets)
        buffers = [bitmap(present), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(self.type, len(present), buffers, children=[made]), doubts


def _cut(source: Source, spans: Spans, present: Mask) -> pa.StringArray:
    whole = None if present.all() else present
    return pieces(source.data, spans.start, spans.end, whole, pa.string())


def _unescaped(texts: pa.StringArray) -> tuple[pa.StringArray, Mask]:
    """Texts without their escapes, and which are in doubt (they are empty then)."""
    spelled = texts.to_pylist()
    failed = np.zeros(len(spelled), dtype=bool)
    try:
        return pa.array(orjson.loads('["' + '","'.join(spelled) + '"]'), pa.string()), failed
    except orjson.JSONDecodeError:
        plain = []
        for i, text in enumerate(spelled):
            try:
                plain.append(orjson.loads(f'"{text}"'))
            except orjson.JSONDecodeError:
                plain.append("")
                failed[i] = True
        return pa.array(plain, pa.string()), failed


def _is_compact(text: str) -> bool:
    """Whether an object or array is spelled as it is written: without blanks, needless escapes and repeated keys."""
    try:
        return "\\u" not in text and orjson.dumps(orjson.loads(text)) == text.encode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return False
