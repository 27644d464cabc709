"""The JSON decoder: plain messages as whole columns, the others with the reference decoder."""

from __future__ import annotations

from collections import Counter

import attrs
import numpy as np
import pyarrow as pa

from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._columns.arrays import Bytes, Indices, Mask, find_present, slices
from kdsl_formats._columns.fallback import FallbackRows, RowOrder, take_rows
from kdsl_formats.json.buffer import BRACE, MessageBuffer, Scratch, Spans
from kdsl_formats.json.columns import ColumnReader
from kdsl_formats.json.documents import find_enclosed, trim_documents
from kdsl_formats.json.flattening import FlatFinder
from kdsl_formats.json.frames import FrameFinder
from kdsl_formats.json.members import BARE, TEXT, split_arrays
from kdsl_formats.json.objects import ObjectFinder, ValueSpans
from kdsl_formats.json.reference_decoder import PAYLOAD, ReadingRules, ReferenceDecoder

MIN_BATCH = 48  # messages: fewer are read faster one by one


@attrs.frozen(eq=False)
class _Objects:
    """Objects in the buffer.

    Attributes:
        spans: The spans of the objects, in ascending order.
        owner: The message of each object.
        messages: The messages that are read by columns if all their objects are; the same as `owner` if none is an
            array.
    """

    spans: Spans
    owner: Indices
    messages: Indices


class JsonDecoder:
    """Decodes messages to rows of one type; the frames and shapes of messages are remembered for the next batch.

    Args:
        row: The type, with names on the wire.
        rules: The options of the format.
        min_batch: Fewer messages are read one by one.
        count_undeclared: Whether to count the members of rows that the table does not declare.
    """

    def __init__(
        self, row: t.Row, rules: ReadingRules, *, min_batch: int = MIN_BATCH, count_undeclared: bool = False
    ) -> None:
        self.type = arrow_type(row)
        self.min_batch = min_batch
        self.reference = ReferenceDecoder(row, rules)
        self.reader = ColumnReader(row, rules, min_batch=min_batch)
        self._scratch = Scratch()
        self._payload = rules.payload
        self._together = rules.flat is None or not rules.fail_on_missing_field
        flat = rules.flat
        self._finder = self.reader.finder if flat is None else FlatFinder(row.names, flat, min_batch=min_batch)
        self._frames = FrameFinder((), min_batch=min_batch)
        self._outer = ObjectFinder((PAYLOAD,), all_needed=False, min_batch=min_batch)
        if count_undeclared:
            self.reference.undeclared, self._finder.find_undeclared = Counter(), True

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode an array of messages; null and empty messages produce no row.

        Messages that cannot be read are bad records, or produce no row if parse errors are ignored. Values that became
        NULL because they are infinite are counted in the result, and undeclared members if the decoder counts them.
        """
        decoded = self._decode(messages)
        if self.reference.undeclared:
            undeclared = self.reference.undeclared + Counter(decoded.undeclared)
            self.reference.undeclared.clear()
            decoded = attrs.evolve(decoded, undeclared=undeclared)
        return decoded

    def _decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode messages by columns; the undeclared members that the reference decoder counts are not in the result.

        The infinite values that it counts are, and its counter of them is reset. It reads messages that need the
        fallback, and all if there are few objects, or if absent members are errors and members are flattened.
        """
        present_messages = find_present(messages)
        if len(messages) >= self.min_batch and self._together:
            buffer, objects = self._find(messages, present_messages)
            if len(objects.owner) >= self.min_batch:
                decoded = self._decode_by_columns(messages, buffer, present_messages, objects)
                infinite = decoded.infinite + self.reference.infinite.take()
                return attrs.evolve(decoded, infinite=infinite) if infinite else decoded
        fallback_rows = FallbackRows.read(messages, np.flatnonzero(present_messages), self.reference.read_rows)
        return attrs.evolve(fallback_rows.to_decoded(self.type, len(messages)), infinite=self.reference.infinite.take())

    def _find(self, messages: pa.BinaryArray, present_messages: Mask) -> tuple[MessageBuffer, _Objects]:
        """Copy the messages, or the payloads of those with the same frame, to a buffer of the scratch memory.

        Return it, and the objects in it that can be rows. The frame and the shapes of the messages are remembered.
        """
        framed = self._frames.find(messages, present_messages) if self._payload else None
        if framed is not None:
            frame, present_messages = framed
            messages = frame.slice_payloads(messages, present_messages)
        buffer = MessageBuffer.of(messages, self._scratch)
        if not self._payload:
            return buffer, self._find_objects(buffer, present_messages)
        spans, good = trim_documents(buffer, present_messages)
        indexes = find_enclosed(buffer, spans, good, b"{")
        objects = _Objects(spans.pick(indexes), indexes, indexes)
        if framed is not None:
            return buffer, objects
        outer = self._outer.find(buffer, objects.spans)
        payload = outer.columns[0]
        inner = np.flatnonzero((payload.form == BARE) & (buffer.data[payload.spans.start] == BRACE))
        owner = indexes[outer.which[inner]]
        return buffer, _Objects(payload.spans.pick(inner), owner, owner)

    def _find_objects(self, buffer: MessageBuffer, present_messages: Mask) -> _Objects:
        """The messages that can be objects, and the elements of those that are arrays of objects.

        Arrays are left out if there are fewer than `min_batch`, and those with other elements always.
        """
        spans, good = trim_documents(buffer, present_messages)
        indexes = find_enclosed(buffer, spans, good, b"{")
        whole = len(indexes) == len(present_messages)
        whole_objects = _Objects(spans if whole else spans.pick(indexes), indexes, indexes)
        arrays = find_enclosed(buffer, spans, good, b"[")
        if len(arrays) < self.min_batch:
            return whole_objects
        parts = split_arrays(buffer, spans.pick(arrays))
        valid = parts.valid
        valid[parts.owner[(parts.form == TEXT) | (buffer.data[parts.values.start] != BRACE)]] = False
        is_sound = valid[parts.owner]
        start = np.concatenate([whole_objects.spans.start, parts.values.start[is_sound]])
        end = np.concatenate([whole_objects.spans.end, parts.values.end[is_sound]])
        owner = np.concatenate([indexes, arrays[parts.owner[is_sound]]])
        order = np.argsort(start)
        return _Objects(Spans(start[order], end[order]), owner[order], np.concatenate([indexes, arrays[valid]]))

    def _decode_by_columns(
        self, messages: pa.BinaryArray, buffer: MessageBuffer, present_messages: Mask, objects: _Objects
    ) -> Decoded:
        """Read objects by columns, and the messages that need the fallback or are not among the objects one by one.

        Of the latter, the reference decoder counts infinite values and undeclared members, and the result does not.
        """
        members = self._finder.find(buffer, objects.spans)
        owner = objects.owner[members.which]
        remaining = present_messages.copy()
        remaining[objects.messages] = False
        remaining[objects.owner[members.fallback]] = True
        columns: list[pa.Array | None] = [None] * len(members.columns)
        needed = [
            None if _are_plain_strings(buffer, values, reader.kind) else values
            for values, reader in zip(members.columns, self.reader.inner, strict=True)
        ]
        for i, array, fallback in self.reader.read_columns(buffer, needed):
            columns[i] = array
            remaining[owner[fallback]] = True
        if objects.owner is objects.messages and len(owner) == len(messages) and not remaining.any():
            array = [
                _slice_strings(buffer.data, v) if c is None else c
                for v, c in zip(members.columns, columns, strict=True)
            ]
            return Decoded(
                pa.Array.from_buffers(self.type, len(owner), [None], children=array),
                infinite=self._count_infinite(remaining),
                undeclared=members.count_undeclared(),
            )
        fallback_rows = FallbackRows.read(messages, np.flatnonzero(remaining), self.reference.read_rows)
        is_read = ~remaining[owner]
        return attrs.evolve(
            self._merge(buffer, members.columns, columns, owner, is_read, fallback_rows),
            infinite=self._count_infinite(~is_read),
            undeclared=members.count_undeclared(~remaining[objects.owner]),
        )

    def _count_infinite(self, left_out: Mask) -> int:
        """The number of infinite values that became NULL in the rows of the last read, except in those left out."""
        counts = [reader.infinite for reader in self.reader.inner if reader.infinite is not None]
        return sum(int(count[~left_out].sum()) for count in counts)

    def _merge(
        self,
        buffer: MessageBuffer,
        values: list[ValueSpans],
        columns: list[pa.Array | None],
        owner: Indices,
        is_read: Mask,
        fallback_rows: FallbackRows,
    ) -> Decoded:
        """Merge the rows read by columns and the rows read one by one, in the order of their messages."""
        indexes = np.flatnonzero(is_read)
        order = RowOrder(owner[indexes], fallback_rows)
        index = order.index(indexes, len(owner))
        fallback_columns = [pa.array([row[f.name] for row in fallback_rows.rows], f.type) for f in self.type]
        data, spans = buffer.append_strings([m for m, c in zip(fallback_columns, columns, strict=True) if c is None])
        columns_merged = []
        for spans_of_column, column, added in zip(values, columns, fallback_columns, strict=True):
            if column is None:
                form = np.asarray(added.is_valid()).astype(np.int8) * TEXT
                columns_merged.append(
                    _slice_strings(data, _select_spans(spans_of_column, ValueSpans(spans.pop(0), form), index))
                )
            else:
                columns_merged.append(
                    take_rows(pa.concat_arrays([column, added]) if fallback_rows.rows else column, index)
                )
        rows = pa.Array.from_buffers(self.type, len(index), [None], children=columns_merged)
        return Decoded(rows, pa.array(order.owner), fallback_rows.bad)


def _are_plain_strings(buffer: MessageBuffer, values: ValueSpans, kind: t.DataType) -> bool:
    """Whether a column has the type of strings, and its values are absent or strings without escapes."""
    if not isinstance(kind, (t.Char, t.VarChar)) or bool((values.form == BARE).any()):
        return False
    return not buffer.backslashes.size or not bool(buffer.find_escaped(values.spans).any())


def _slice_strings(data: Bytes, values: ValueSpans) -> pa.StringArray:
    """The spans of strings, which are UTF-8, as an Arrow array; values that are not `TEXT` are NULL."""
    present = values.form == TEXT
    return slices(data, values.spans.start, values.spans.end, None if present.all() else present, pa.string())


def _select_spans(values: ValueSpans, more: ValueSpans, index: Indices) -> ValueSpans:
    """Select values of two concatenated columns by index."""
    if not len(more.form):
        return ValueSpans(values.spans.pick(index), values.form[index])
    start = np.concatenate([values.spans.start, more.spans.start])
    end = np.concatenate([values.spans.end, more.spans.end])
    return ValueSpans(Spans(start[index], end[index]), np.concatenate([values.form, more.form])[index])
