"""Converts values that are located in the buffer to Arrow columns.

A `ColumnReader` reads the usual spellings of its type, and marks all others for the fallback; the caller reads every
message with such a value with the reference decoder. Without a fallback, both decoders return the same values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl.types.strings.temporal import time_unit
from kdsl_formats._columns.arrays import Indices, Integers, Mask, bitmap, find_repeated_keys
from kdsl_formats._columns.string_spans import StringSpans
from kdsl_formats._connect.wires import Wire, wire_of
from kdsl_formats._text import reading
from kdsl_formats.json.buffer import BRACE, BRACKET, MessageBuffer, Spans
from kdsl_formats.json.members import BARE, TEXT, Parts, find_outline, split_arrays, split_objects
from kdsl_formats.json.objects import FoundMembers, ObjectFinder, ValueSpans
from kdsl_formats.json.reference_decoder import ReadingRules
from kdsl_formats.json.validity import LONGEST_NUMBER, NUMBER, are_numbers

_NULL, _TRUE, _FALSE = (np.uint64(int.from_bytes(word, "little")) for word in (b"null", b"true", b"false"))
_ZERO, _ONE = (np.uint64(byte) for byte in b"01")
_ONE_BYTE, _FOUR_BYTES, _FIVE_BYTES = (np.uint64(2**bits - 1) for bits in (8, 32, 40))
_INTEGER = r"^(0|-?[1-9][0-9]*)$"
_SCALARS = (
    *(t.Boolean, t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double, t.Decimal, t.Date, t.Time),
    *(t.Timestamp, t.TimestampLtz),
)
_TOGETHER = 1 << 14  # values of several columns that are read together

_FRACTION = r"^(-?[0-9]{1,18})\.[0-9]+$"


class ColumnReader:
    """Reads the values of one type; the shapes of the objects among them are remembered for the next read.

    Args:
        kind: The type.
        rules: The options of the format.
        min_batch: See `ObjectFinder`.

    Attributes:
        infinite: For each value of the last read, how many infinite values in it became NULL; None if there were none.
    """

    def __init__(self, kind: t.DataType, rules: ReadingRules, *, min_batch: int) -> None:
        self.kind = kind
        self.rules = rules
        self.type = arrow_type(kind)
        self.wire = wire_of(kind, rules.modes)
        self.infinite: Integers | None = None
        inner = list(t.children(kind))
        if isinstance(kind, t.Multiset):
            inner.append(t.Int())
        self.inner = tuple(ColumnReader(child, rules, min_batch=min_batch) for child in inner)
        if isinstance(kind, t.Row):
            self.finder = ObjectFinder(kind.names, all_needed=rules.fail_on_missing_field, min_batch=min_batch)
        alike: dict[t.DataType | int, list[int]] = {}
        for i, reader in enumerate(self.inner):
            is_scalar = isinstance(reader.kind, _SCALARS) and reader.wire is None
            alike.setdefault(reader.kind if is_scalar else i, []).append(i)
        self._alike = tuple(alike.values())

    def read(self, buffer: MessageBuffer, values: ValueSpans) -> tuple[pa.Array, Mask]:
        """Read the column of values, and mark which of them need the fallback; sets `infinite`.

        Null and absent values are NULL; what the column has for those that need the fallback is meaningless.
        """
        spans, text, bare = values.spans, values.form == TEXT, values.form == BARE
        if bare.any():
            bare &= ~((spans.end - spans.start == 4) & (buffer.words[spans.start] & _FOUR_BYTES == _NULL))
        self.infinite = None
        if self.wire is not None:
            return self._read_wire_values(self.wire, buffer, spans, text, bare)
        match self.kind:
            case t.Boolean():
                return self._read_booleans(buffer, spans, text | bare)
            case t.Char() | t.VarChar():
                return self._read_strings(buffer, spans, text, bare)
            case t.Array():
                column, fallback = self._read_arrays(buffer, spans, bare)
                return column, fallback | text
            case t.Map() | t.Multiset():
                column, fallback = self._read_maps(buffer, spans, bare)
                return column, fallback | text
            case t.Row():
                column, fallback = self.read_rows(buffer, spans, bare, values.first)
                return column, fallback | text
            case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
                return self._read_integers(buffer, spans, text, bare)
            case t.Float() | t.Double() | t.Decimal():
                return self._read_numbers(buffer, spans, text, bare)
        column, fallback = self._read_quoted(StringSpans(buffer.data, spans.start, spans.end, text))
        return column, fallback | bare

    def read_rows(
        self, buffer: MessageBuffer, spans: Spans, present: Mask, first: Indices | None = None
    ) -> tuple[pa.Array, Mask]:
        """Read a struct column of objects, and mark which of them need the fallback; sets `infinite`.

        Objects that are not present, or that `find` leaves to the fallback, are NULL. `first` is that of
        `ObjectFinder.find`.
        """
        indexes = np.flatnonzero(present)
        found_members, columns, wrong = self.read_members(
            buffer, spans.pick(indexes), None if first is None else first[indexes]
        )
        fallback = np.zeros(len(present), dtype=bool)
        fallback[indexes[wrong]] = True
        array = pa.Array.from_buffers(self.type, len(found_members.which), [None], children=columns)
        if self.infinite is not None:
            inside = self.infinite
            self.infinite = np.zeros(len(present), dtype=np.int64)
            self.infinite[indexes] = inside
        if len(found_members.which) == len(present):
            return array, fallback
        index = np.zeros(len(present), dtype=np.int64)
        absent = np.ones(len(present), dtype=bool)
        index[indexes[found_members.which]] = np.arange(len(found_members.which))
        absent[indexes[found_members.which]] = False
        return array.take(pa.array(index, mask=absent)), fallback

    def read_members(
        self, buffer: MessageBuffer, objects: Spans, first: Indices | None = None
    ) -> tuple[FoundMembers, list[pa.Array], Mask]:
        """Read the members of objects; return where they are, their columns, and which objects need the fallback.

        The columns have only the objects in `FoundMembers.which`. Sets `infinite` for all objects.
        """
        found_members = self.finder.find(buffer, objects, first)
        return found_members, *self.read_found(buffer, len(objects), found_members)

    def read_found(self, buffer: MessageBuffer, count: int, found_members: FoundMembers) -> tuple[list[pa.Array], Mask]:
        """Read members of objects as `read_members` does; they are found already, in `count` objects."""
        fallback = np.zeros(count, dtype=bool)
        fallback[found_members.fallback] = True
        columns: list[pa.Array] = [None] * len(self.inner)
        self.infinite = None
        for i, column, inner in self.read_columns(buffer, found_members.columns):
            columns[i] = column
            fallback[found_members.which[inner]] = True
            infinite = self.inner[i].infinite
            if infinite is not None:
                self._count_infinite(count, found_members.which, infinite)
        return columns, fallback

    def read_columns(
        self, buffer: MessageBuffer, columns: Sequence[ValueSpans | None]
    ) -> Iterator[tuple[int, pa.Array, Mask]]:
        """Read the members of rows.

        A column costs about as much as a thousand values, so short columns of one type are read as one. Each member's
        own reader sets its `infinite`.

        Args:
            buffer: The buffer.
            columns: The values of each member, all of one length; None for a member that is not read.

        Yields:
            The index of the member, its column, and which of its values need the fallback; members of one scalar
            type come together.
        """
        for alike in self._alike:
            chosen = [(i, values) for i in alike if (values := columns[i]) is not None]
            rows = len(chosen[0][1].form) if chosen else 0
            some = max(1, _TOGETHER // max(rows, 1))
            for begin in range(0, len(chosen), some):
                together = chosen[begin : begin + some]
                column, fallback = self.inner[alike[0]].read(buffer, _concat([values for _, values in together]))
                if len(together) == 1:
                    yield together[0][0], column, fallback
                    continue
                for place, (i, _) in enumerate(together):
                    yield i, column.slice(place * rows, rows), fallback[place * rows : (place + 1) * rows]

    def _count_infinite(self, count: int, owner: Indices, inside: Integers) -> None:
        """Add to `infinite`, for each of `count` values, the sum of `inside` over the members or elements it owns."""
        counts = np.bincount(owner, inside, count).astype(np.int64)
        self.infinite = counts if self.infinite is None else self.infinite + counts

    def _read_wire_values(
        self, wire: Wire, buffer: MessageBuffer, spans: Spans, text: Mask, bare: Mask
    ) -> tuple[pa.Array, Mask]:
        """Read Debezium's and Kafka Connect's values; return them and which need the fallback, and set `infinite`.

        Values that are neither strings (``text``) nor other present ones (``bare``) are NULL. Infinite ones are NULL,
        too, or need the fallback if the type is not nullable.
        """
        fallback = np.zeros(len(text), dtype=bool)
        infinite = np.zeros(len(text), dtype=bool)
        objects = bare & (buffer.data[spans.start] == BRACE) if bare.any() else bare
        numbers = bare & ~objects
        array: pa.Array | None = None
        for present, read in ((text, wire.read_strings), (objects, wire.read_objects), (numbers, wire.read_numbers)):
            if not present.any():
                continue
            strings = StringSpans(buffer.data, spans.start, spans.end, present)
            column = read(strings)
            fallback |= column.fallback & present
            if present is numbers:
                fallback |= numbers & ~are_numbers(buffer, spans, strings.array)
            if column.infinite is not None:
                infinite |= column.infinite & present
            array = column.values if array is None else pc.if_else(pa.array(present), column.values, array)
        if infinite.any():
            if self.kind.nullable:
                self.infinite = infinite.astype(np.int64)
            else:
                fallback |= infinite
        return pa.nulls(len(text), self.type) if array is None else array, fallback

    def _read_quoted(self, strings: StringSpans) -> tuple[pa.Array, Mask]:
        """Read strings as bytes, dates, times or timestamps; return the column, and which need the fallback.

        The digits of a time beyond the type's precision are cut off.
        """
        match self.kind:
            case t.Binary() | t.VarBinary():
                return reading.latin_bytes(strings.array) if self.rules.as_texts else reading.base64(strings.array)
            case t.Date():
                return reading.dates(strings)
            case t.Time(precision=precision):
                values, fallback = reading.times(strings)
                unit = time_unit(precision)
                return pc.multiply(pc.divide(values.view(pa.int64()), unit), unit).view(self.type), fallback
            case _:
                zoned = isinstance(self.kind, t.TimestampLtz)
                if self.rules.inferred:
                    return reading.moments(strings, zoned=zoned)
                return reading.timestamps(strings, self.rules.standard, zoned=zoned)

    def _read_booleans(self, buffer: MessageBuffer, spans: Spans, present: Mask) -> tuple[pa.Array, Mask]:
        """Read ``true`` and ``false``, with or without quotes, and 0 and 1 if the rules set `as_texts`.

        Return the column, and which values need the fallback: the others that are present.
        """
        size, words = spans.end - spans.start, buffer.words[spans.start]
        true = (size == 4) & (words & _FOUR_BYTES == _TRUE)
        known = present & (true | ((size == 5) & (words & _FIVE_BYTES == _FALSE)))
        if self.rules.as_texts:
            one = (size == 1) & (words & _ONE_BYTE == _ONE)
            known |= present & (one | ((size == 1) & (words & _ONE_BYTE == _ZERO)))
            true |= one
        return pa.array(true, self.type, mask=~known), present & ~known

    def _read_integers(self, buffer: MessageBuffer, spans: Spans, text: Mask, bare: Mask) -> tuple[pa.Array, Mask]:
        """Read integers, with or without quotes; return the column, and which values need the fallback.

        For INT and BIGINT, the fraction of a number without quotes is truncated.
        """
        strings = _slice_strings(buffer, spans, text | bare)
        values, fallback = reading.integers(strings, self.type)
        spelled = ~bare | are_numbers(buffer, spans, strings) if bare.any() else text
        if fallback.any() and isinstance(self.kind, (t.Int, t.BigInt)):  # a number with a fraction, which is truncated
            indexes = np.flatnonzero(fallback & bare)
            truncated, still = reading.integers(
                pc.replace_substring_regex(strings.take(pa.array(indexes)), _FRACTION, r"\1"), self.type
            )
            if not still.all():
                values = pc.replace_with_mask(values, pa.array(fallback & bare), truncated)
                fallback[indexes[~still]] = False
        return values, fallback | (bare & ~spelled)

    def _read_numbers(self, buffer: MessageBuffer, spans: Spans, text: Mask, bare: Mask) -> tuple[pa.Array, Mask]:
        """Read FLOAT, DOUBLE and DECIMAL values, with or without quotes; return them, and which need the fallback.

        With the tree reader, a FLOAT without quotes is rounded from a double, and a FLOAT or DOUBLE of zero without
        quotes needs the fallback.
        """
        located = StringSpans(buffer.data, spans.start, spans.end, text | bare)
        strings = located.array
        if isinstance(self.kind, t.Decimal):
            values, fallback = reading.decimals(located, self.type)
        else:
            values, fallback = reading.floats(strings, self.type)
        if bare.any():
            fallback |= bare & ~are_numbers(buffer, spans, strings)
            if not self.rules.streaming and not isinstance(
                self.kind, t.Decimal
            ):  # converted from a double, without -0.0
                doubles = reading.floats(strings, pa.float64())[0]
                values = pc.if_else(pa.array(bare), pc.cast(doubles, self.type, safe=False), values)
                fallback |= bare & np.asarray(pc.fill_null(pc.equal(doubles, 0.0), False))
        return values, fallback

    def _read_strings(self, buffer: MessageBuffer, spans: Spans, text: Mask, bare: Mask) -> tuple[pa.Array, Mask]:
        """Read strings, and other values by their spelling; return the column, and which values need the fallback.

        These are strings with wrong escapes, and values that may become another string than their spelling.
        """
        strings = _slice_strings(buffer, spans, text | bare)
        fallback = np.zeros(len(text), dtype=bool)
        indexes = np.flatnonzero(text & buffer.find_escaped(spans)) if buffer.backslashes.size else fallback[:0]
        if indexes.size:
            plain, fallback[indexes] = _unescape_strings(strings.take(pa.array(indexes)))
            mask = np.zeros(len(text), dtype=bool)
            mask[indexes] = True
            strings = pc.replace_with_mask(strings, pa.array(mask), plain)
        indexes = np.flatnonzero(bare)
        if indexes.size:
            fallback[indexes] = ~self._are_own_string(buffer, spans.pick(indexes), strings.take(pa.array(indexes)))
        return strings, fallback

    def _are_own_string(self, buffer: MessageBuffer, spans: Spans, strings: pa.StringArray) -> Mask:
        """Which values other than strings and null become a string that equals their spelling.

        These are booleans and integers and, with the streaming reader or for inferred columns, other numbers, and
        objects and arrays as `_is_compact` accepts them.
        """
        size, first = spans.end - spans.start, buffer.data[spans.start]
        words = buffer.words[spans.start]
        good: Mask = ((size == 4) & (words & _FOUR_BYTES == _TRUE)) | ((size == 5) & (words & _FIVE_BYTES == _FALSE))
        if self.rules.streaming or self.rules.inferred:
            good |= (size <= LONGEST_NUMBER) & np.asarray(pc.match_substring_regex(strings, NUMBER))
            indexes = np.flatnonzero((first == BRACE) | (first == BRACKET))
            valid = find_outline(buffer, spans.pick(indexes), b"{[")[0]
            good[indexes] = [
                is_fine and _is_compact(strings[i].as_py()) for i, is_fine in zip(indexes, valid, strict=True)
            ]
        else:  # the tree reader keeps only the spelling of integers
            good |= (size <= LONGEST_NUMBER) & np.asarray(pc.match_substring_regex(strings, _INTEGER))
        return good

    def _read_arrays(self, buffer: MessageBuffer, spans: Spans, present: Mask) -> tuple[pa.Array, Mask]:
        """Read arrays; return the column, and which values need the fallback; add infinite values to `infinite`."""
        parts = split_arrays(buffer, spans.pick(present))
        values, inner = self.inner[0].read(buffer, ValueSpans(parts.values, parts.form))
        return self._build_nested(parts, present, values, inner, self.inner[0])

    def _read_maps(self, buffer: MessageBuffer, spans: Spans, present: Mask) -> tuple[pa.Array, Mask]:
        """Read objects as maps.

        Return the column, and which values need the fallback, such as those with repeated keys. Infinite values are
        added to `infinite`.
        """
        parts = split_objects(buffer, spans.pick(present))
        assert parts.keys is not None
        keys, inner = self.inner[0].read(buffer, ValueSpans(parts.keys, np.full(len(parts.owner), TEXT, dtype=np.int8)))
        values, wrong = self.inner[1].read(buffer, ValueSpans(parts.values, parts.form))
        inner = inner | wrong | find_repeated_keys(parts.owner, keys)
        if isinstance(self.kind, t.Multiset):
            inner |= np.asarray(values.is_null())
        entry = pa.struct([self.type.key_field, self.type.item_field])
        pairs = pa.Array.from_buffers(entry, len(keys), [None], children=[keys, values])
        return self._build_nested(parts, present, pairs, inner, self.inner[1])

    def _build_nested(
        self, parts: Parts, present: Mask, values: pa.Array, inner: Mask, reader: ColumnReader
    ) -> tuple[pa.Array, Mask]:
        """Build a list or map column of parts that a reader read; also returns which values need the fallback.

        Lists that are not present are NULL; those that were not split, or have a part that ``inner`` marks, need the
        fallback. Infinite values inside are added to `infinite`.
        """
        if reader.infinite is not None:
            self._count_infinite(len(present), np.flatnonzero(present)[parts.owner], reader.infinite)
        fallback = np.zeros(len(present), dtype=bool)
        wrong = ~parts.valid
        wrong[parts.owner[inner]] = True
        fallback[present] = wrong
        offsets = np.zeros(len(present) + 1, dtype=np.int32)
        offsets[1:][present] = np.bincount(parts.owner, minlength=len(parts.valid))
        np.cumsum(offsets, out=offsets)
        buffers = [bitmap(present), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(self.type, len(present), buffers, children=[values]), fallback


def _concat(columns: Sequence[ValueSpans]) -> ValueSpans:
    """The values of several columns, one column after the other; `first` is None unless there is only one column."""
    if len(columns) == 1:
        return columns[0]
    start = np.concatenate([values.spans.start for values in columns])
    end = np.concatenate([values.spans.end for values in columns])
    return ValueSpans(Spans(start, end), np.concatenate([values.form for values in columns]))


def _slice_strings(buffer: MessageBuffer, spans: Spans, present: Mask) -> pa.StringArray:
    """The spans as strings, with their escapes as they are written; NULL where not present."""
    return StringSpans(buffer.data, spans.start, spans.end, present).array


def _unescape_strings(strings: pa.StringArray) -> tuple[pa.StringArray, Mask]:
    """Replace the escapes of strings; also returns which strings need the fallback (they are empty then)."""
    spelled = strings.to_pylist()
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
    """Whether orjson spells an object or array in the same way: no blanks, needless escapes or repeated keys.

    False also for escapes by number, for other spellings of numbers (``1e5``), and for what is not JSON.
    """
    try:
        return "\\u" not in text and orjson.dumps(orjson.loads(text)) == text.encode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return False
