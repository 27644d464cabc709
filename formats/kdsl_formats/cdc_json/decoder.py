"""The decoder of change data: plain messages as whole columns, the others with the reference decoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Decoded, LocatedMessages
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._columns.arrays import Indices, Mask, find_places, find_present, slices
from kdsl_formats._columns.fallback import FallbackRows, RowOrder, take_rows
from kdsl_formats._debezium import PlaceholderFinder
from kdsl_formats.cdc_json.located_changes import LocatedChanges, LocatedObjects
from kdsl_formats.cdc_json.metadata import MetadataField, metadata_type
from kdsl_formats.cdc_json.reference_decoder import TRUNCATE, ChangeReadingRules, ReferenceChangeDecoder, Row
from kdsl_formats.cdc_json.row_locations import RowLocations, begins_with, locate_rows
from kdsl_formats.json.buffer import BRACE, MessageBuffer, Scratch, Spans
from kdsl_formats.json.columns import ColumnReader
from kdsl_formats.json.decoder import MIN_BATCH
from kdsl_formats.json.document import parse
from kdsl_formats.json.documents import find_enclosed, trim_documents
from kdsl_formats.json.frames import Frame, FrameFinder
from kdsl_formats.json.members import TEXT
from kdsl_formats.json.objects import ObjectFinder, ValueSpans
from kdsl_formats.json.reference_decoder import PAYLOAD, ReadingRules, ReferenceDecoder

_TREE = ReadingRules(streaming=False)


@attrs.frozen(eq=False)
class _Changes:
    """Changes located in the buffer: their messages, their members, and the members beside their payload."""

    owner: Indices
    columns: list[ValueSpans]
    beside: list[ValueSpans]


class ChangeDecoder:
    """Decodes messages to changelog rows; the frames and shapes of messages are remembered for the next batch.

    Args:
        rules: How to read the messages.
        min_batch: Fewer messages of one kind are read one by one.
    """

    def __init__(self, rules: ChangeReadingRules, *, min_batch: int = MIN_BATCH) -> None:
        self.type = arrow_type(rules.row)
        self.rules = rules
        self.min_batch = min_batch
        self.reference = ReferenceChangeDecoder(rules)
        self._scratch = Scratch()
        self._truncates: tuple[int, ...] = ()
        self._image = ColumnReader(rules.row, rules.value_rules, min_batch=min_batch)
        key = rules.key_row
        self._key = None if key is None else ColumnReader(key, rules.value_rules, min_batch=min_batch)
        for reader in (self._image, self._key):
            if reader is not None:
                reader.finder.find_undeclared = True
        fields = {f.name: f.type for f in rules.fields()}
        fields.update((c.member, t.STRING) for c in rules.include if c.member not in fields)
        self._names = tuple(fields)
        self._change = ObjectFinder(self._names, all_needed=False, min_batch=min_batch)
        beside = tuple(f.name for f in rules.fields_beside_payload())
        self._outer = ObjectFinder((PAYLOAD, *beside), all_needed=False, min_batch=min_batch)
        self._frames = FrameFinder(beside, min_batch=min_batch)
        exact = any(isinstance(kind, t.Decimal) for kind in t.walk_types(rules.row))
        self._unavailable = None if rules.placeholder is None else PlaceholderFinder(rules.row, rules.placeholder)
        self._metadata = _MetadataReader(rules, fields, exact=exact, min_batch=min_batch)

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode an array of messages; null and empty ones produce no rows, unreadable ones are bad records.

        If parse errors are ignored, an unreadable message produces the rows before the error instead.

        The result also counts infinite values and undeclared columns, names the messages that empty the table if it
        applies them, and has NULL for placeholders. The counters of this decoder are reset.
        """
        self._truncates = ()
        return self._finish(self._decode(messages))

    def decode_located(self, messages: pa.BinaryArray, located: LocatedMessages, places: Indices) -> Decoded:
        """Decode messages as `decode` does; see `LocatingDecoder`."""
        owner = find_places(located.messages, places)
        if owner is None or not isinstance(located, LocatedChanges) or not located.suits(self.rules, self._names):
            return self.decode(messages)
        locations = located.locate()
        if locations is None:
            return self.decode(messages)
        self._truncates = ()
        changes = _Changes(owner, [located.members[name].pick(located.changes) for name in self._names], [])
        present_messages = find_present(messages)
        return self._finish(
            self._read_changes(messages, located.buffer, present_messages, changes, locations, located=located)
        )

    def _finish(self, decoded: Decoded) -> Decoded:
        """Add the counts of the reference decoder, and replace placeholders; see `decode`."""
        infinite = decoded.infinite + self.reference.infinite.take()
        if infinite:
            decoded = attrs.evolve(decoded, infinite=infinite)
        if self._truncates:
            decoded = attrs.evolve(decoded, truncates=self._truncates)
        if self._unavailable is not None:
            decoded = self._unavailable.replace_placeholders(decoded)
        if self.reference.undeclared:
            undeclared = self.reference.undeclared + Counter(decoded.undeclared)
            self.reference.undeclared.clear()
            decoded = attrs.evolve(decoded, undeclared=undeclared)
        return decoded

    def _decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode by columns, or one by one if few messages allow it.

        The result counts infinite values and undeclared columns only where rows were read by columns; those of the
        reference decoder stay in its own counters. `_truncates` is replaced as in `_read_one_by_one`.
        """
        present_messages = find_present(messages)
        if len(messages) >= self.min_batch:
            framed = self._frames.find(messages, present_messages) if self.rules.payload else None
            frame, good = framed or (None, present_messages)
            strings = messages if frame is None else frame.slice_payloads(messages, good)
            buffer = MessageBuffer.of(strings, self._scratch)
            spans, good = trim_documents(buffer, good)
            message_index = find_enclosed(buffer, spans, good, b"{")
            if len(message_index) >= self.min_batch:
                return self._decode_by_columns(
                    messages, buffer, present_messages, spans.pick(message_index), message_index, frame
                )
        fallback_rows = self._read_one_by_one(messages, present_messages)
        return attrs.evolve(
            FallbackRows([row for _, row, _ in fallback_rows.rows], fallback_rows.owner, fallback_rows.bad).to_decoded(
                self.type, len(messages)
            ),
            kinds=pa.array([kind for kind, _, _ in fallback_rows.rows], pa.int8()),
            metadata=dict(zip(self.rules.metadata, self._fallback_metadata(fallback_rows), strict=True)),
        )

    def _read_one_by_one(self, messages: pa.BinaryArray, which: Mask) -> FallbackRows:
        """Read the selected messages with the reference decoder: each row is a tuple of its kind, values and metadata.

        If the table applies truncates, messages that empty it have no row; their indices replace those in `_truncates`.
        Unreadable messages are bad records. The counts of the reference decoder go on.
        """

        def rows_of(message: bytes) -> list[tuple[int, Row, tuple[Any, ...]]]:
            changes = self.reference.read_changes(message)
            return [(kind, row, changes.metadata) for kind, row in zip(changes.kinds, changes.rows, strict=True)]

        fallback_rows = FallbackRows.read(messages, np.flatnonzero(which), rows_of)
        if not self.rules.apply_truncate:
            return fallback_rows
        owned = list(zip(fallback_rows.rows, fallback_rows.owner, strict=True))
        self._truncates = tuple(owner for (kind, _, _), owner in owned if kind == TRUNCATE)
        remaining = [(row, owner) for row, owner in owned if row[0] != TRUNCATE]
        return FallbackRows([row for row, _ in remaining], [owner for _, owner in remaining], fallback_rows.bad)

    def _fallback_metadata(self, fallback_rows: FallbackRows) -> list[pa.Array]:
        """Return one array for each requested metadata field, with the values of the rows that were read one by one."""
        return [
            pa.array([values[i] for _, _, values in fallback_rows.rows], metadata_type(field))
            for i, field in enumerate(self.rules.metadata_fields)
        ]

    def _find(self, buffer: MessageBuffer, objects: Spans, owner: Indices, frame: Frame | None) -> _Changes:
        """Locate the changes in objects, or in the payloads of these; messages in an unusual form are left out.

        `owner` has the message of each object. With a frame, the objects are payloads already.
        """
        outside: list[ValueSpans] = []
        first = None
        if self.rules.payload and frame is None:
            outer = self._outer.find(buffer, objects)
            payload, *outside = outer.columns
            index = np.flatnonzero(begins_with(buffer, payload, BRACE))
            payload = payload.pick(index)
            objects, first, owner = payload.spans, payload.first, owner[outer.which[index]]
            outside = [values.pick(index) for values in outside]
        changes = self._change.find(buffer, objects, first)
        return _Changes(owner[changes.which], changes.columns, [values.pick(changes.which) for values in outside])

    def _decode_by_columns(
        self,
        messages: pa.BinaryArray,
        buffer: MessageBuffer,
        present_messages: Mask,
        objects: Spans,
        message_index: Indices,
        frame: Frame | None,
    ) -> Decoded:
        """Decode messages: changes by columns, and the messages that need the fallback as in `_read_one_by_one`."""
        changes = self._find(buffer, objects, message_index, frame)
        by_name = dict(zip(self._names, changes.columns, strict=True))
        conditions = [(c, by_name[c.member]) for c in self.rules.include]
        locations = locate_rows(buffer, self.rules, changes.columns, conditions)
        return self._read_changes(messages, buffer, present_messages, changes, locations, frame)

    def _read_changes(
        self,
        messages: pa.BinaryArray,
        buffer: MessageBuffer,
        present_messages: Mask,
        changes: _Changes,
        locations: RowLocations,
        frame: Frame | None = None,
        located: LocatedChanges | None = None,
    ) -> Decoded:
        """Read the rows of changes whose members are known; see `_decode_by_columns`.

        The members of the rows are known, too, if an observer has located them.
        """
        by_name = dict(zip(self._names, changes.columns, strict=True))
        fallback = locations.fallback
        known = None if located is None else located.images
        images = _Images(self._image, buffer, locations.images, locations.first, known)
        whole = np.flatnonzero(locations.index >= 0)
        fallback[locations.owner[whole[images.fallback[locations.index[whole]]]]] = True
        old_values = None
        if len(locations.old_values):
            known = None if located is None else located.old_values
            old_values = _Images(self._key or self._image, buffer, locations.old_values, known=known)
            changed = np.flatnonzero(locations.old_index >= 0)
            fallback[locations.owner[changed[old_values.fallback[locations.old_index[changed]]]]] = True
        metadata_columns, invalid = self._metadata.read(buffer, by_name, changes.beside, frame)
        fallback |= invalid
        remaining = present_messages.copy()
        remaining[changes.owner[~fallback]] = False
        fallback_rows = self._read_one_by_one(messages, remaining)
        return self._merge(
            changes, locations, images, old_values, metadata_columns, ~fallback[locations.owner], fallback_rows
        )

    def _merge(
        self,
        changes: _Changes,
        locations: RowLocations,
        images: _Images,
        old_values: _Images | None,
        metadata_columns: list[pa.Array],
        is_read: Mask,
        fallback_rows: FallbackRows,
    ) -> Decoded:
        """Merge the rows read by columns and the rows read one by one, in the order of their messages.

        Of the located rows only those with `is_read` are used; the others are among the rows read one by one. The
        result counts infinite values and undeclared members of the used rows only.
        """
        rows = np.flatnonzero(is_read)
        order = RowOrder(changes.owner[locations.owner[rows]], fallback_rows)
        row_source: _Rows | _RowsWithOldValues | _RowsWithKeys
        if old_values is None:
            row_source = _Rows(images, locations, rows)
        elif self.rules.key_row is None:
            row_source = _RowsWithOldValues(images, old_values, locations, rows)
        else:
            row_source = _RowsWithKeys(images, old_values, locations, rows, self.rules.key_row)
        columns = []
        for i, field in enumerate(self.type):
            pool, index = row_source.column(i, field.name)
            index = order.index(index, sum(map(len, pool)))
            if fallback_rows.rows:
                pool.append(pa.array([row[field.name] for _, row, _ in fallback_rows.rows], field.type))
            columns.append(take_rows(pa.concat_arrays(pool) if len(pool) > 1 else pool[0], index))
        rows_array = pa.Array.from_buffers(self.type, len(order.owner), [None], children=columns)
        kinds = order.insert(locations.kinds[rows], [kind for kind, _, _ in fallback_rows.rows])
        change = order.index(locations.owner[rows], len(changes.owner))
        metadata = {
            key: take_rows(pa.concat_arrays([column, added]) if fallback_rows.rows else column, change)
            for key, column, added in zip(
                self.rules.metadata, metadata_columns, self._fallback_metadata(fallback_rows), strict=True
            )
        }
        infinite = images.infinite_in(locations.index[rows])
        undeclared = images.count_undeclared(locations.index[rows])
        if old_values is not None:
            undeclared += old_values.count_undeclared(locations.old_index[rows])
        if old_values is not None and self.rules.key_row is not None:
            infinite += old_values.infinite_in(locations.old_index[rows])
            for name in self.rules.row.names:  # a reader of keys looks for no other columns
                undeclared.pop(name, None)
        return Decoded(
            rows_array,
            pa.array(order.owner, pa.int64()),
            fallback_rows.bad,
            pa.array(kinds, pa.int8()),
            metadata,
            infinite=infinite,
            undeclared=undeclared,
        )


class _Images:
    """Objects that were read as rows.

    Attributes:
        columns: The columns of the rows, without objects that need the fallback.
        count: The number of rows in them.
        row_index: The row of each object.
        fallback: Which objects need the fallback; their row index is meaningless.
    """

    def __init__(
        self,
        reader: ColumnReader,
        buffer: MessageBuffer,
        objects: Spans,
        first: Indices | None = None,
        known: LocatedObjects | None = None,
    ) -> None:
        """Read objects, whose members an observer may have located."""
        members = reader.finder.find(buffer, objects, first) if known is None else known.select(reader.finder.names)
        self.columns, self.fallback = reader.read_found(buffer, len(objects), members)
        self.count = len(members.which)
        self.row_index = np.zeros(len(objects), dtype=np.int64)
        self.row_index[members.which] = np.arange(self.count)
        self._infinite = reader.infinite
        self._members = members

    def infinite_in(self, objects: Indices) -> int:
        """How many infinite values in some objects became NULL; negative indices are ignored."""
        return 0 if self._infinite is None else int(self._infinite[objects[objects >= 0]].sum())

    def count_undeclared(self, objects: Indices) -> Counter[str]:
        """How many of some objects have each undeclared member; repeated and negative indices count once, or never."""
        is_used = np.zeros(len(self.row_index), dtype=bool)
        is_used[objects[objects >= 0]] = True
        return self._members.count_undeclared(is_used)

    def has(self, column: int, objects: Indices) -> Mask:
        """Which of some objects, none of them left to the fallback, have a member for a column."""
        present_messages: Mask = self._members.columns[column].form[self.row_index[objects]] != 0
        return present_messages


class _Rows:
    """Rows that consist of one image each."""

    def __init__(self, images: _Images, locations: RowLocations, rows: Indices) -> None:
        self._images, self._index = images, images.row_index[locations.index[rows]]

    def column(self, column: int, name: str) -> tuple[list[pa.Array], Indices]:
        """Arrays of a column's values, and for each row the index of its value in the concatenated arrays."""
        return [self._images.columns[column]], self._index


class _RowsWithOldValues:
    """Rows before a change: the images after it, with old values for the changed members."""

    def __init__(self, images: _Images, old_values: _Images, locations: RowLocations, rows: Indices) -> None:
        self._images, self._olds = images, old_values
        self._index = images.row_index[locations.index[rows]]
        old_index = locations.old_index[rows]
        self._which = np.flatnonzero(old_index >= 0)
        self._old = old_index[self._which]
        self._replacing = images.count + old_values.row_index[self._old]

    def column(self, column: int, name: str) -> tuple[list[pa.Array], Indices]:
        """Arrays of a column's values in images and old values, and each row's index in both concatenated."""
        index = self._index.copy()
        has = self._olds.has(column, self._old)
        index[self._which[has]] = self._replacing[has]
        return [self._images.columns[column], self._olds.columns[column]], index


class _RowsWithKeys:
    """Rows before a change that have only the key; rows after a change have all columns."""

    def __init__(self, images: _Images, keys: _Images, locations: RowLocations, rows: Indices, key: t.Row) -> None:
        self._images, self._keys, self._names = images, keys, key.names
        index, old_index = locations.index[rows], locations.old_index[rows]
        self._before = old_index >= 0
        self._index = np.full(len(rows), images.count)
        self._index[~self._before] = images.row_index[index[~self._before]]
        self._key_index = self._index.copy()
        self._key_index[self._before] += keys.row_index[old_index[self._before]]

    def column(self, column: int, name: str) -> tuple[list[pa.Array], Indices]:
        """Arrays of a column's values in images and in keys, and the index of each row's value in both concatenated.

        For a column outside the key, the second array is a single NULL, which rows before a change use.
        """
        values = self._images.columns[column]
        if name not in self._names:
            return [values, pa.nulls(1, values.type)], self._index
        return [values, self._keys.columns[self._names.index(name)]], self._key_index


class _MetadataReader:
    """Reads the metadata fields of many changes."""

    def __init__(
        self, rules: ChangeReadingRules, fields: Mapping[str, t.DataType], *, exact: bool, min_batch: int
    ) -> None:
        """Create the readers of the members that the requested fields need; `exact` keeps all digits of numbers."""
        self._fields = rules.metadata_fields
        self._payload = rules.payload
        self._beside = [f.name for f in rules.fields_beside_payload()]
        self._texts = ReferenceDecoder(t.row(text=t.STRING, **({"exact": t.Decimal(1)} if exact else {})), _TREE)
        self._readers = {
            p.member: ColumnReader(fields[p.member], _TREE, min_batch=min_batch)
            for p in self._fields
            if not p.beside_payload
        }
        within: dict[str, None] = {p.within: None for p in self._fields if p.within is not None}
        self._within = list(within)
        self._source = (
            ColumnReader(t.row(**dict.fromkeys(within, t.STRING)), _TREE, min_batch=min_batch) if within else None
        )

    def read(
        self, buffer: MessageBuffer, members: Mapping[str, ValueSpans], beside: list[ValueSpans], frame: Frame | None
    ) -> tuple[list[pa.Array], Mask]:
        """Read the requested metadata fields: a column for each, and a mask of the changes that need the fallback.

        `members` are those of the changes by name; `beside` those beside the payload, which a frame replaces.
        """
        count = len(next(iter(members.values())).form)
        fallback = np.zeros(count, dtype=bool)
        member_arrays: dict[str, pa.Array] = {}
        parts: dict[str, pa.Array] = {}
        for field in self._fields:
            if field.beside_payload:
                continue
            if field.within is None and field.member not in member_arrays:
                member_arrays[field.member], wrong = self._readers[field.member].read(buffer, members[field.member])
                fallback |= wrong
            elif field.within is not None and not parts and self._source is not None:
                object_array, wrong = self._source.read(buffer, members[field.member])
                fallback |= wrong
                parts = dict(zip(self._within, object_array.flatten(), strict=True))
        columns = []
        for field in self._fields:
            if field.beside_payload and frame is not None:
                column, wrong = self._read_from_frame(field, frame, count)
            elif field.beside_payload:
                column, wrong = self._read_beside_payload(buffer, field, beside, count)
            else:
                column, wrong = field.column(
                    parts[field.within] if field.within is not None else member_arrays[field.member]
                )
            columns.append(column)
            fallback |= wrong
        return columns, fallback

    def _read_from_frame(self, field: MetadataField, frame: Frame, count: int) -> tuple[pa.Array, Mask]:
        """Repeat the frame's string of a field, or NULL; if it is not valid JSON, all changes need the fallback."""
        spelled = frame.beside.get(field.member)
        text, unreadable = (None, False) if spelled is None else self._as_string(spelled)
        array = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, dtype=np.int32)), pa.array([text], pa.string()))
        return array.dictionary_decode(), np.full(count, unreadable)

    def _read_beside_payload(
        self, buffer: MessageBuffer, field: MetadataField, beside: list[ValueSpans], count: int
    ) -> tuple[pa.Array, Mask]:
        """Read a field beside the payload as strings; JSON strings and invalid values need the fallback.

        All values are NULL if messages contain no schema. Each distinct value is converted once.
        """
        if not self._payload:
            return pa.nulls(count, metadata_type(field)), np.zeros(count, dtype=bool)
        values = beside[self._beside.index(field.member)]
        present = (values.form != 0) & (values.form != TEXT)
        strings = slices(buffer.data, values.spans.start, values.spans.end, present, pa.string())
        coded = strings.dictionary_encode()
        converted = [self._as_string(text) for text in coded.dictionary.to_pylist()]
        unreadable = np.array([reason for _, reason in converted], dtype=bool)
        fallback = values.form == TEXT
        if unreadable.any():
            fallback |= np.asarray(pc.fill_null(pa.array(unreadable).take(coded.indices), False))
        return pa.array([text for text, _ in converted], pa.string()).take(coded.indices), fallback

    def _as_string(self, spelled: str) -> tuple[str | None, bool]:
        """Convert JSON that is not a string to a string, null to None; return None and True if it is not valid."""
        try:
            orjson.loads(spelled)
            text: str | None = self._texts.read_object({"text": parse(spelled.encode())})["text"]
        except ValueError:
            return None, True
        return text, False
