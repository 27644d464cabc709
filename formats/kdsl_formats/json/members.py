"""Objects and arrays of any shape, split into their members and elements.

The slower of the two ways to find members (see `shapes`): it makes no assumption about the order of the keys, blanks,
absent members or nested values. What is split here is not yet known to be JSON: each value has to be judged, too.
"""

from __future__ import annotations

import attrs
import numpy as np

from kdsl_formats._columns.arrays import Mask, Positions, ranges
from kdsl_formats.json.source import COLON, COMMA, QUOTE, Source, Spans, inside

DEEPEST = 500  # levels; deeper objects are left to the reference, which knows the limit
TEXT, BARE = 1, 2  # a value in quotes (its span is without them), and any other


@attrs.frozen(eq=False)
class Parts:
    """The members of many objects, or the elements of many arrays, in the order of the buffer.

    Attributes:
        sound: Which of the objects are split; the others are not objects, or there is doubt.
        owner: For each part the object that it belongs to; only sound ones have parts.
        keys: The key of each part, without its quotes; None for arrays.
        values: The value of each part.
        what: `TEXT` or `BARE` for each value.
    """

    sound: Mask
    owner: Positions
    keys: Spans | None
    values: Spans
    what: np.ndarray[tuple[int], np.dtype[np.int8]]


def members(source: Source, objects: Spans) -> Parts:
    """Split objects into their members."""
    sound, quotes, depths, brackets = outline(source, objects, b"{")
    kept = np.flatnonzero(sound)
    count = inside(source.quotes, objects.pick(kept))[1]
    opening, closing = quotes[0::2], quotes[1::2]
    owner = np.repeat(kept, count // 2)
    if len(brackets) > 2 * len(kept):
        outer = depths[np.searchsorted(brackets, opening) - 1] == 1
        opening, closing, owner = opening[outer], closing[outer], owner[outer]
    last = np.append(owner[1:] != owner[:-1], True) if len(owner) else np.zeros(0, dtype=bool)
    start, brace = objects.start, objects.end - 1

    # The text between a token and the next one, or the closing brace.
    until = np.append(opening[1:], 0)
    until[last] = brace[owner[last]]
    gap = source.after_blanks(closing + 1, until)
    is_key = (source.data[gap] == COLON) & (gap < until)
    value = source.after_blanks(gap + is_key, until)
    quoted = is_key & (value == until) & ~last
    bare = is_key & ~quoted
    end = source.before_blanks(until, value)
    comma = (source.data[end - 1] == COMMA) & (end > value)
    good = np.where(bare, comma ^ last, True)
    end = np.where(bare, source.before_blanks(end - comma, value), end)
    good &= ~bare | (end > value)
    # A value in quotes is followed by a comma and the next key, or by the brace.
    ends_text = source.data[gap] == COMMA
    next_is_brace = (gap == until) & last
    next_is_key = ends_text & (source.after_blanks(gap + 1, until) == until) & ~last
    good &= is_key | next_is_brace | next_is_key
    # Keys and values in quotes take turns: a token is a value if and only if the one before it waits for one.
    begins = np.append(True, last[:-1]) if len(last) else last
    expected = np.append(False, quoted[:-1]) if len(last) else last
    good &= is_key != expected
    good &= ~begins | (source.after_blanks(start[owner] + 1, opening) == opening)
    sound[owner[~good]] = False
    empty = np.flatnonzero(sound & (np.bincount(owner, minlength=len(objects)) == 0))
    sound[empty] = source.after_blanks(start[empty] + 1, brace[empty]) == brace[empty]

    keys = np.flatnonzero(is_key & sound[owner])
    follows = np.minimum(keys + 1, max(len(opening) - 1, 0))
    in_quotes = quoted[keys]
    return Parts(
        sound,
        owner[keys],
        Spans(opening[keys] + 1, closing[keys]),
        Spans(np.where(in_quotes, opening[follows] + 1, value[keys]), np.where(in_quotes, closing[follows], end[keys])),
        np.where(in_quotes, TEXT, BARE).astype(np.int8),
    )


def elements(source: Source, arrays: Spans) -> Parts:
    """Split arrays into their elements."""
    sound, quotes, depths, brackets = outline(source, arrays, b"[")
    kept = np.flatnonzero(sound)
    some = arrays.pick(kept)
    first, count = inside(source.commas, some)
    commas = source.commas[ranges(first, count)]
    owner = np.repeat(kept, count)
    outer = np.searchsorted(quotes, commas) % 2 == 0
    if len(brackets) > 2 * len(kept):
        outer &= depths[np.searchsorted(brackets, commas) - 1] == 1
    commas, owner = commas[outer], owner[outer]
    filled = source.after_blanks(some.start + 1, some.end - 1) < some.end - 1
    owner = np.repeat(kept, np.where(filled, np.bincount(owner, minlength=len(arrays))[kept] + 1, 0))
    begins = np.append(True, owner[1:] != owner[:-1]) if len(owner) else np.zeros(0, dtype=bool)
    ends = np.append(begins[1:], True) if len(owner) else begins
    start = arrays.start[owner] + 1
    start[~begins] = commas + 1
    end = arrays.end[owner] - 1
    end[~ends] = commas
    start = source.after_blanks(start, end)
    end = source.before_blanks(end, start)
    text = (source.data[start] == QUOTE) & (source.data[end - 1] == QUOTE) & (end - start > 1)
    held = inside(quotes, Spans(start, end))[1]
    wrong = (end <= start) | (text & (held != 2))
    sound[owner[wrong]] = False
    keep = sound[owner]
    values = Spans(start + text, end - text).pick(keep)
    return Parts(sound, owner[keep], None, values, np.where(text, TEXT, BARE).astype(np.int8)[keep])


def outline(source: Source, objects: Spans, opening: bytes) -> tuple[Mask, Positions, Positions, Positions]:
    """Which objects (or arrays) have paired quotes, and brackets that pair in number around the whole of them.

    Very deep ones are left out.

    Args:
        source: The buffer.
        objects: The stretches that should be objects.
        opening: The brackets that may be the first byte.

    Returns:
        The sound objects; their quotes; and for their brackets outside of texts the depth behind each, and its place.
    """
    first, count = inside(source.quotes, objects)
    sound = (count % 2 == 0) & (objects.end - objects.start >= 2)
    begin = source.data[objects.start]
    sound &= np.isin(begin, list(opening)) & (source.data[objects.end - 1] == begin + 2)
    kept = np.flatnonzero(sound)
    quotes = source.quotes[ranges(first[kept], count[kept])]
    start, held = inside(source.brackets, objects.pick(kept))
    brackets = source.brackets[ranges(start, held)]
    owner = np.repeat(kept, held)
    outside = np.searchsorted(quotes, brackets) % 2 == 0
    brackets, owner = brackets[outside], owner[outside]
    held = np.bincount(owner, minlength=len(objects))[kept]
    depths = np.cumsum(np.where(source.data[brackets] & 0x07 == 3, 1, -1))  # [ and { end in 011, ] and } in 101
    lasts = np.cumsum(held) - 1
    depths -= np.repeat(np.append(0, depths[lasts[:-1]]) if len(kept) else lasts, held)
    wrong = np.bincount(owner[depths == 0], minlength=len(objects))[kept] != 1
    wrong |= (depths[lasts] != 0) | (brackets[lasts] != objects.end[kept] - 1)
    if depths.size and int(depths.max()) > DEEPEST:
        wrong[np.searchsorted(kept, owner[depths > DEEPEST])] = True
    if wrong.any():
        sound[kept[wrong]] = False
        quotes = quotes[sound[np.repeat(kept, count[kept])]]
        brackets, depths = brackets[sound[owner]], depths[sound[owner]]
    return sound, quotes, depths, brackets
