"""Where the fields of many messages are: all messages are walked together, one field of all of them at a time.

Writers put fields in the order of their numbers, so the lowest tag that any message is at is that of most; the others
wait for theirs. A message that is not plain (a field twice, a group, a wrong wire type, cut off) is in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np

from kdsl_formats._columns.arrays import Longs, Mask, Words
from kdsl_formats.protobuf.wire import FIXED32, FIXED64, GROUP, LENGTH, VARINT, Source

FEW = 4  # messages that are left, below which the reference is quicker
_END = np.int64(1) << 62
_LARGEST_TAG = (1 << 32) - 1


@attrs.frozen(eq=False)
class Found:
    """The values of a field in many messages.

    Attributes:
        owner: The message of each value; None is one of each message.
        start: Where the values of numbers and of stretches begin.
        end: The place behind the last byte.
        numbers: The values of varints; None of other wire types.
        packed: Whether each stretch holds numbers one behind the other.
    """

    owner: Longs | None
    start: Longs
    end: Longs
    numbers: Words | None = None
    packed: bool = False


@attrs.frozen
class Wanted:
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
    source: Source, start: Longs, end: Longs, wanted: Mapping[int, Wanted], *, few: int = FEW
) -> tuple[dict[int, list[Found]], Mask]:
    """Find the fields of messages.

    Args:
        source: The bytes.
        start: Where each message begins.
        end: The place behind the last byte of each.
        wanted: The fields by their numbers; others are read over.
        few: How many messages are not worth another step.

    Returns:
        What was found, by the numbers of fields, and which messages are in doubt (parts of them may be found, too).
    """
    return _Walk(source, start, end, wanted, few).run()


class _Walk:
    def __init__(self, source: Source, start: Longs, end: Longs, wanted: Mapping[int, Wanted], few: int) -> None:
        self._source = source
        self._wanted = wanted
        self._few = few
        self._cursor = start.copy()
        self._end = end
        self._doubts = np.zeros(len(start), dtype=bool)
        self._tags = np.full(len(start), _END)
        self._bodies = start.copy()  # where the value of the tag begins
        self._found: dict[int, list[Found]] = {}
        self._seen: dict[int, Mask | None] = {}  # None: in all messages
        self._chosen: dict[int, Mask] = {}

    def run(self) -> tuple[dict[int, list[Found]], Mask]:
        if not len(self._cursor):
            return {}, self._doubts
        self._next(None)
        while (tag := int(self._tags.min())) != _END:
            here = self._tags == tag
            which = None if here.all() else np.flatnonzero(here)
            if which is not None and len(which) <= self._few and self._is_tail():
                break
            self._step(tag >> 3, tag & 7, which)
        return self._found, self._doubts

    def _is_tail(self) -> bool:
        """Whether only few messages have any fields left; they become doubts."""
        left = np.flatnonzero(self._tags != _END)
        if len(left) > self._few:
            return False
        self._doubts[left] = True
        return True

    def _step(self, number: int, wire: int, which: Longs | None) -> None:
        known = self._wanted.get(number)
        body = self._bodies if which is None else self._bodies[which]
        end = self._end if which is None else self._end[which]
        numbers: Words | None = None
        bad: Mask | None = None
        start = body
        if number == 0:
            self._doubt(which, None)
            return
        if wire == VARINT:
            numbers, size, bad = self._source.varints(body)
            after = body + size
        elif wire == LENGTH:
            lengths, size, bad = self._source.varints(body)
            start = body + size
            large = lengths > np.uint64(0x7FFFFFFF)
            if large.any():
                bad = large if bad is None else bad | large
                lengths = np.where(large, np.uint64(0), lengths)
            after = start + lengths.view(np.int64)
        elif wire in (FIXED64, FIXED32):
            after = body + (8 if wire == FIXED64 else 4)
        else:
            self._doubt(which, None)  # a group
            return
        beyond = after > end
        if beyond.any():
            bad = beyond if bad is None else bad | beyond
            after = np.minimum(after, end)
            start = np.minimum(start, end)
        if bad is not None:
            self._doubt(which, bad)
        if known is not None:
            packed = known.repeated and wire == LENGTH and known.wire not in (LENGTH, GROUP)
            if (wire == known.wire or packed) and (known.repeated or self._is_first(number, known, which)):
                found = Found(which, start, after, numbers, packed)
                self._found.setdefault(number, []).append(found)
            elif wire != known.wire:
                self._doubt(which, None)
                return
        if which is None:
            self._cursor = after.copy()  # the found ends are not to move on with it
        else:
            self._cursor[which] = after
        self._next(which)

    def _is_first(self, number: int, known: Wanted, which: Longs | None) -> bool:
        """Note that a field was met; messages in which it, or another of its oneof, was met before are in doubt."""
        if number in self._seen:
            self._doubt_seen(self._seen[number], which)
            before = self._seen[number]
            if before is None:
                return False
        else:
            before = None
        self._seen[number] = self._noted(before, which)
        if known.oneof >= 0:
            chosen = self._chosen.setdefault(known.oneof, np.zeros(len(self._cursor), dtype=bool))
            self._doubt_seen(chosen.copy(), which)
            chosen[slice(None) if which is None else which] = True
        return True

    def _noted(self, before: Mask | None, which: Longs | None) -> Mask | None:
        if which is None:
            return None
        noted = np.zeros(len(self._cursor), dtype=bool) if before is None else before
        noted[which] = True
        return noted

    def _doubt_seen(self, seen: Mask | None, which: Longs | None) -> None:
        if seen is None:
            self._doubts[slice(None) if which is None else which] = True
        elif which is None:
            self._doubts |= seen
        else:
            self._doubts[which] |= seen[which]

    def _doubt(self, which: Longs | None, bad: Mask | None) -> None:
        """Messages (of those some) are in doubt; without a mask all of them, which then are at their end."""
        chosen = slice(None) if which is None else which
        if bad is None:
            self._doubts[chosen] = True
            self._tags[chosen] = _END
        else:
            self._doubts[chosen] |= bad

    def _next(self, which: Longs | None) -> None:
        """Read the tags at the cursors."""
        cursor = self._cursor if which is None else self._cursor[which]
        end = self._end if which is None else self._end[which]
        numbers, size, _ = self._source.varints(cursor)
        tags = numbers.astype(np.int64)
        done = cursor >= end
        if isinstance(size, np.ndarray):
            odd = (numbers > _LARGEST_TAG) | (size > 4)
            odd &= ~done
            if odd.any():
                done = done | odd
                self._doubts[odd if which is None else which[odd]] = True
        if done.any():
            tags[done] = _END
        if which is None:
            self._tags, self._bodies = tags, cursor + size
        else:
            self._tags[which], self._bodies[which] = tags, cursor + size
