"""Locates the fields of many messages: parses all messages at once, one field number at a time.

Writers put fields in the order of their numbers, so most messages are at the lowest tag; the others wait for theirs. A
message with an unusual encoding (a repeated single field, a group, a wrong wire type, a truncated end) needs the
fallback.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np

from kdsl_formats._columns.arrays import Integers, Mask, Words
from kdsl_formats.protobuf.wire import FIXED32, FIXED64, GROUP, LENGTH, VARINT, MessageBuffer

MIN_BATCH = 5  # remaining messages: fewer are read faster by the reference decoder
_END = np.int64(1) << 62
_LARGEST_TAG = (1 << 32) - 1


@attrs.frozen(eq=False)
class FieldValues:
    """The values of a field in many messages.

    Attributes:
        owner: The message of each value; None if each message has one value.
        start: The position of the first byte of each value.
        end: The position after the last byte.
        numbers: The values of varints; None for other wire types.
        packed: Whether each value is a span of packed numbers.
    """

    owner: Integers | None
    start: Integers
    end: Integers
    numbers: Words | None = None
    packed: bool = False


@attrs.frozen
class FieldFormat:
    """How a field is encoded.

    Attributes:
        wire: Its wire type.
        repeated: Whether the field is repeated.
        oneof: The index of its oneof; -1 if it is not in one.
    """

    wire: int
    repeated: bool = False
    oneof: int = -1


def walk(
    buffer: MessageBuffer,
    start: Integers,
    end: Integers,
    formats: Mapping[int, FieldFormat],
    *,
    min_batch: int = MIN_BATCH,
) -> tuple[dict[int, list[FieldValues]], Mask]:
    """Locate the fields of messages.

    Args:
        buffer: The bytes.
        start: The first byte of each message.
        end: The position after the last byte of each message.
        formats: The fields by number; others are skipped.
        min_batch: If fewer messages have fields left, they need the fallback.

    Returns:
        The values by field number, and which messages need the fallback (some of their values may be included).
    """
    return _Walk(buffer, start, end, formats, min_batch).find_fields()


class _Walk:
    """The state of one `walk`."""

    def __init__(
        self,
        buffer: MessageBuffer,
        start: Integers,
        end: Integers,
        formats: Mapping[int, FieldFormat],
        min_batch: int,
    ) -> None:
        self._buffer = buffer
        self._formats = formats
        self._min_batch = min_batch
        self._cursor = start.copy()
        self._end = end
        self._fallback = np.zeros(len(start), dtype=bool)
        self._tags = np.full(len(start), _END)
        self._bodies = start.copy()  # the position after the tag
        self._values: dict[int, list[FieldValues]] = {}
        self._seen: dict[int, Mask | None] = {}  # None if all messages have the field
        self._chosen: dict[int, Mask] = {}

    def find_fields(self) -> tuple[dict[int, list[FieldValues]], Mask]:
        """Read one field number after the other until all messages end, or only a few are left; returns as `walk`."""
        if not len(self._cursor):
            return {}, self._fallback
        self._read_tags(None)
        while (tag := int(self._tags.min())) != _END:
            is_here = self._tags == tag
            which = None if is_here.all() else np.flatnonzero(is_here)
            if which is not None and len(which) < self._min_batch and self._mark_tail():
                break
            self._read_field(tag >> 3, tag & 7, which)
        return self._values, self._fallback

    def _mark_tail(self) -> bool:
        """Mark the messages that have fields left for the fallback if they are few; returns whether they are."""
        left = np.flatnonzero(self._tags != _END)
        if len(left) >= self._min_batch:
            return False
        self._fallback[left] = True
        return True

    def _read_field(self, number: int, wire: int, which: Integers | None) -> None:
        """Read and store the values of one field in the messages ``which`` (None: all), and read their next tags.

        A field without a format is skipped. Messages with an unusual encoding (a group, the field number 0, a wrong
        wire type) are marked for the fallback, and end here; those with an unreadable value, or with a second one of a
        field that is not repeated, are only marked.
        """
        format_ = self._formats.get(number)
        body = self._bodies if which is None else self._bodies[which]
        end = self._end if which is None else self._end[which]
        numbers: Words | None = None
        bad: Mask | None = None
        start = body
        if number == 0:
            self._mark_fallback(which, None)
            return
        if wire == VARINT:
            numbers, size, bad = self._buffer.varints(body)
            after = body + size
        elif wire == LENGTH:
            lengths, size, bad = self._buffer.varints(body)
            start = body + size
            large = lengths > np.uint64(0x7FFFFFFF)
            if large.any():
                bad = large if bad is None else bad | large
                lengths = np.where(large, np.uint64(0), lengths)
            after = start + lengths.view(np.int64)
        elif wire in (FIXED64, FIXED32):
            after = body + (8 if wire == FIXED64 else 4)
        else:
            self._mark_fallback(which, None)  # a group
            return
        beyond_end = after > end
        if beyond_end.any():
            bad = beyond_end if bad is None else bad | beyond_end
            after = np.minimum(after, end)
            start = np.minimum(start, end)
        if bad is not None:
            self._mark_fallback(which, bad)
        if format_ is not None:
            packed = format_.repeated and wire == LENGTH and format_.wire not in (LENGTH, GROUP)
            if (wire == format_.wire or packed) and (format_.repeated or self._note_seen(number, format_, which)):
                values = FieldValues(which, start, after, numbers, packed)
                self._values.setdefault(number, []).append(values)
            elif wire != format_.wire:
                self._mark_fallback(which, None)
                return
        if which is None:
            self._cursor = after.copy()  # `after` is stored as the ends of values, which must not change
        else:
            self._cursor[which] = after
        self._read_tags(which)

    def _note_seen(self, number: int, format_: FieldFormat, which: Integers | None) -> bool:
        """Record that messages have a field that is not repeated; returns False if all messages already had it.

        Those that already had it, or another of its oneof, are marked for the fallback.
        """
        if number in self._seen:
            self._mark_seen(self._seen[number], which)
            before = self._seen[number]
            if before is None:
                return False
        else:
            before = None
        self._seen[number] = self._add_seen(before, which)
        if format_.oneof >= 0:
            chosen = self._chosen.setdefault(format_.oneof, np.zeros(len(self._cursor), dtype=bool))
            self._mark_seen(chosen.copy(), which)
            chosen[slice(None) if which is None else which] = True
        return True

    def _add_seen(self, before: Mask | None, which: Integers | None) -> Mask | None:
        """Return the mask of messages that have a field with ``which`` added; None, for all, if ``which`` is None.

        The mask ``before`` is changed in place; None stands for no messages.
        """
        if which is None:
            return None
        noted = np.zeros(len(self._cursor), dtype=bool) if before is None else before
        noted[which] = True
        return noted

    def _mark_seen(self, seen: Mask | None, which: Integers | None) -> None:
        """Mark those of ``which`` (None: all) that are in ``seen`` (None: all) for the fallback."""
        if seen is None:
            self._fallback[slice(None) if which is None else which] = True
        elif which is None:
            self._fallback |= seen
        else:
            self._fallback[which] |= seen[which]

    def _mark_fallback(self, which: Integers | None, bad: Mask | None) -> None:
        """Mark the messages ``which`` (None: all) for the fallback: those in the mask, or all, which then end here."""
        chosen = slice(None) if which is None else which
        if bad is None:
            self._fallback[chosen] = True
            self._tags[chosen] = _END
        else:
            self._fallback[chosen] |= bad

    def _read_tags(self, which: Integers | None) -> None:
        """Read the tags at the cursors, and store them with the positions after them; ended messages have `_END`.

        Messages with tags of more than four bytes end here, and are marked for the fallback. The field number 0 is left
        to `_read_field`.
        """
        cursor = self._cursor if which is None else self._cursor[which]
        end = self._end if which is None else self._end[which]
        numbers, size, _ = self._buffer.varints(cursor)
        tags = numbers.astype(np.int64)
        done = cursor >= end
        if isinstance(size, np.ndarray):
            invalid = (numbers > _LARGEST_TAG) | (size > 4)
            invalid &= ~done
            if invalid.any():
                done = done | invalid
                self._fallback[invalid if which is None else which[invalid]] = True
        if done.any():
            tags[done] = _END
        if which is None:
            self._tags, self._bodies = tags, cursor + size
        else:
            self._tags[which], self._bodies[which] = tags, cursor + size
