"""Where the fields of many messages are: all messages are walked together, one field of all of them at a time.

Writers put fields in the order of their numbers, so the lowest tag that any message is at is that of most; the others
wait for theirs. A message that is not plain (a field twice, a group, a wrong wire type, cut off) needs the fallback.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np

from kdsl_formats._columns.arrays import Integers, Mask, Words
from kdsl_formats.protobuf.wire import FIXED32, FIXED64, GROUP, LENGTH, VARINT, MessageBuffer

FALLBACK_LIMIT = 4  # messages that are left, below which the reference is quicker
_END = np.int64(1) << 62
_LARGEST_TAG = (1 << 32) - 1


@attrs.frozen(eq=False)
class FieldValues:
    """The values of a field in many messages.

    Attributes:
        owner: The message of each value; None is one of each message.
        start: Where the values of numbers and of spans begin.
        end: The place after the last byte.
        numbers: The values of varints; None of other wire types.
        packed: Whether each span holds numbers one after the other.
    """

    owner: Integers | None
    start: Integers
    end: Integers
    numbers: Words | None = None
    packed: bool = False


@attrs.frozen
class FieldFormat:
    """What is known of a field before it is met.

    Attributes:
        wire: Its wire type.
        repeated: Whether it may come several times.
        oneof: The number of the oneof that it is in, from 0; -1 where it is in none.
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
    fallback_limit: int = FALLBACK_LIMIT,
) -> tuple[dict[int, list[FieldValues]], Mask]:
    """Find the fields of messages.

    Args:
        buffer: The bytes.
        start: Where each message begins.
        end: The place after the last byte of each.
        formats: The fields by their numbers; others are skipped.
        fallback_limit: When at most this many messages have fields left, they need the fallback.

    Returns:
        What was found, by the numbers of fields, and which messages need the fallback (parts of them may be found,
        too).
    """
    return _Walk(buffer, start, end, formats, fallback_limit).find_fields()


class _Walk:
    def __init__(
        self,
        buffer: MessageBuffer,
        start: Integers,
        end: Integers,
        formats: Mapping[int, FieldFormat],
        fallback_limit: int,
    ) -> None:
        self._buffer = buffer
        self._formats = formats
        self._fallback_limit = fallback_limit
        self._cursor = start.copy()
        self._end = end
        self._doubts = np.zeros(len(start), dtype=bool)
        self._tags = np.full(len(start), _END)
        self._bodies = start.copy()  # where the value of the tag begins
        self._values: dict[int, list[FieldValues]] = {}
        self._seen: dict[int, Mask | None] = {}  # None: in all messages
        self._chosen: dict[int, Mask] = {}

    def find_fields(self) -> tuple[dict[int, list[FieldValues]], Mask]:
        """Read field after field until all messages end, or only a few are left."""
        if not len(self._cursor):
            return {}, self._doubts
        self._read_tags(None)
        while (tag := int(self._tags.min())) != _END:
            is_here = self._tags == tag
            which = None if is_here.all() else np.flatnonzero(is_here)
            if which is not None and len(which) <= self._fallback_limit and self._is_tail():
                break
            self._read_field(tag >> 3, tag & 7, which)
        return self._values, self._doubts

    def _is_tail(self) -> bool:
        """Whether only few messages have any fields left; they become fallback values."""
        left = np.flatnonzero(self._tags != _END)
        if len(left) > self._fallback_limit:
            return False
        self._doubts[left] = True
        return True

    def _read_field(self, number: int, wire: int, which: Integers | None) -> None:
        """Read the values of one field in the messages that are at it."""
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
            self._cursor = after.copy()  # the found ends are not to move on with it
        else:
            self._cursor[which] = after
        self._read_tags(which)

    def _note_seen(self, number: int, format_: FieldFormat, which: Integers | None) -> bool:
        """Note that a field was met; messages that had it, or another of its oneof, before need the fallback."""
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
        if which is None:
            return None
        noted = np.zeros(len(self._cursor), dtype=bool) if before is None else before
        noted[which] = True
        return noted

    def _mark_seen(self, seen: Mask | None, which: Integers | None) -> None:
        """Leave messages that had a field before to the fallback."""
        if seen is None:
            self._doubts[slice(None) if which is None else which] = True
        elif which is None:
            self._doubts |= seen
        else:
            self._doubts[which] |= seen[which]

    def _mark_fallback(self, which: Integers | None, bad: Mask | None) -> None:
        """Messages (of those some) need the fallback; without a mask all of them, which then are at their end."""
        chosen = slice(None) if which is None else which
        if bad is None:
            self._doubts[chosen] = True
            self._tags[chosen] = _END
        else:
            self._doubts[chosen] |= bad

    def _read_tags(self, which: Integers | None) -> None:
        """Read the tags at the cursors."""
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
                self._doubts[invalid if which is None else which[invalid]] = True
        if done.any():
            tags[done] = _END
        if which is None:
            self._tags, self._bodies = tags, cursor + size
        else:
            self._tags[which], self._bodies[which] = tags, cursor + size
