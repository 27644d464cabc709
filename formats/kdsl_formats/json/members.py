"""Objects and arrays of any shape, split into their members and elements.

The slower of two ways to find members (see `shapes`): it makes no assumptions about the order of keys, blanks, absent
members or nested values. The results are not yet known to be JSON: each value must be checked, too.
"""

from __future__ import annotations

import attrs
import numpy as np

from kdsl_formats._columns.arrays import Indices, Mask, ranges
from kdsl_formats.json.buffer import COLON, COMMA, QUOTE, MessageBuffer, Spans, count_inside

DEEPEST = 500  # levels; the reference decoder reads deeper objects, and knows the limit
TEXT, BARE = 1, 2  # a value in quotes (its span excludes them), and any other value


@attrs.frozen(eq=False)
class Parts:
    """The members of many objects, or the elements of many arrays, in the order of the buffer.

    Attributes:
        valid: Which of the objects were split; the others are not objects, or need the fallback.
        owner: The object of each part; only valid objects have parts.
        keys: The key of each part, without its quotes; None for arrays.
        values: The value of each part.
        form: `TEXT` or `BARE` for each value.
    """

    valid: Mask
    owner: Indices
    keys: Spans | None
    values: Spans
    form: np.ndarray[tuple[int], np.dtype[np.int8]]


def split_objects(buffer: MessageBuffer, objects: Spans) -> Parts:
    """Split objects into members, which are not checked to be JSON.

    Objects without a plain outline (`find_outline`), or with keys, values and commas in another order than JSON's, are
    not `valid`, and have no parts.
    """
    valid, quotes, depths, brackets = find_outline(buffer, objects, b"{")
    sound_indexes = np.flatnonzero(valid)
    count = count_inside(buffer.quotes, objects.pick(sound_indexes))[1]
    opening, closing = quotes[0::2], quotes[1::2]
    owner = np.repeat(sound_indexes, count // 2)
    if len(brackets) > 2 * len(sound_indexes):
        outer = depths[np.searchsorted(brackets, opening) - 1] == 1
        opening, closing, owner = opening[outer], closing[outer], owner[outer]
    last = np.append(owner[1:] != owner[:-1], True) if len(owner) else np.zeros(0, dtype=bool)
    start, brace = objects.start, objects.end - 1

    # The text between a token and the next one, or the closing brace.
    until = np.append(opening[1:], 0)
    until[last] = brace[owner[last]]
    gap = buffer.skip_blanks_after(closing + 1, until)
    is_key = (buffer.data[gap] == COLON) & (gap < until)
    value = buffer.skip_blanks_after(gap + is_key, until)
    quoted = is_key & (value == until) & ~last
    bare = is_key & ~quoted
    end = buffer.skip_blanks_before(until, value)
    comma = (buffer.data[end - 1] == COMMA) & (end > value)
    good = np.where(bare, comma ^ last, True)
    end = np.where(bare, buffer.skip_blanks_before(end - comma, value), end)
    good &= ~bare | (end > value)
    # A value in quotes is followed by a comma and the next key, or by the brace.
    ends_text = buffer.data[gap] == COMMA
    next_is_brace = (gap == until) & last
    next_is_key = ends_text & (buffer.skip_blanks_after(gap + 1, until) == until) & ~last
    good &= is_key | next_is_brace | next_is_key
    # Keys and values in quotes take turns: a token is a value if and only if the one before it waits for one.
    begins = np.append(True, last[:-1]) if len(last) else last
    expected = np.append(False, quoted[:-1]) if len(last) else last
    good &= is_key != expected
    good &= ~begins | (buffer.skip_blanks_after(start[owner] + 1, opening) == opening)
    valid[owner[~good]] = False
    empty = np.flatnonzero(valid & (np.bincount(owner, minlength=len(objects)) == 0))
    valid[empty] = buffer.skip_blanks_after(start[empty] + 1, brace[empty]) == brace[empty]

    keys = np.flatnonzero(is_key & valid[owner])
    follows = np.minimum(keys + 1, max(len(opening) - 1, 0))
    in_quotes = quoted[keys]
    return Parts(
        valid,
        owner[keys],
        Spans(opening[keys] + 1, closing[keys]),
        Spans(np.where(in_quotes, opening[follows] + 1, value[keys]), np.where(in_quotes, closing[follows], end[keys])),
        np.where(in_quotes, TEXT, BARE).astype(np.int8),
    )


def split_arrays(buffer: MessageBuffer, arrays: Spans) -> Parts:
    """Split arrays into elements, which are not checked to be JSON.

    Arrays without a plain outline (`find_outline`), with a blank element, or with several strings between two commas,
    are not `valid`, and have no parts.
    """
    valid, quotes, depths, brackets = find_outline(buffer, arrays, b"[")
    sound_indexes = np.flatnonzero(valid)
    some = arrays.pick(sound_indexes)
    first, count = count_inside(buffer.commas, some)
    commas = buffer.commas[ranges(first, count)]
    owner = np.repeat(sound_indexes, count)
    outer = np.searchsorted(quotes, commas) % 2 == 0
    if len(brackets) > 2 * len(sound_indexes):
        outer &= depths[np.searchsorted(brackets, commas) - 1] == 1
    commas, owner = commas[outer], owner[outer]
    filled = buffer.skip_blanks_after(some.start + 1, some.end - 1) < some.end - 1
    owner = np.repeat(sound_indexes, np.where(filled, np.bincount(owner, minlength=len(arrays))[sound_indexes] + 1, 0))
    begins = np.append(True, owner[1:] != owner[:-1]) if len(owner) else np.zeros(0, dtype=bool)
    ends = np.append(begins[1:], True) if len(owner) else begins
    start = arrays.start[owner] + 1
    start[~begins] = commas + 1
    end = arrays.end[owner] - 1
    end[~ends] = commas
    start = buffer.skip_blanks_after(start, end)
    end = buffer.skip_blanks_before(end, start)
    text = (buffer.data[start] == QUOTE) & (buffer.data[end - 1] == QUOTE) & (end - start > 1)
    quote_count = count_inside(quotes, Spans(start, end))[1]
    wrong = (end <= start) | (text & (quote_count != 2))
    valid[owner[wrong]] = False
    keep = valid[owner]
    values = Spans(start + text, end - text).pick(keep)
    return Parts(valid, owner[keep], None, values, np.where(text, TEXT, BARE).astype(np.int8)[keep])


def find_outline(buffer: MessageBuffer, objects: Spans, opening: bytes) -> tuple[Mask, Indices, Indices, Indices]:
    """Which objects (or arrays) begin with an allowed bracket that their last character closes, with paired quotes.

    Brackets are only counted: an inner ``[`` may be closed by ``}``. Deeply nested objects are excluded.

    Args:
        buffer: The buffer.
        objects: The spans that should be objects.
        opening: The allowed opening brackets.

    Returns:
        A mask of the valid objects; the positions of their quotes; and for their brackets outside strings the depth
        after each and its position.
    """
    first, count = count_inside(buffer.quotes, objects)
    valid = (count % 2 == 0) & (objects.end - objects.start >= 2)
    begin = buffer.data[objects.start]
    valid &= np.isin(begin, list(opening)) & (buffer.data[objects.end - 1] == begin + 2)
    sound_indexes = np.flatnonzero(valid)
    quotes = buffer.quotes[ranges(first[sound_indexes], count[sound_indexes])]
    start, bracket_count = count_inside(buffer.brackets, objects.pick(sound_indexes))
    brackets = buffer.brackets[ranges(start, bracket_count)]
    owner = np.repeat(sound_indexes, bracket_count)
    outside = np.searchsorted(quotes, brackets) % 2 == 0
    brackets, owner = brackets[outside], owner[outside]
    bracket_count = np.bincount(owner, minlength=len(objects))[sound_indexes]
    depths = np.cumsum(np.where(buffer.data[brackets] & 0x07 == 3, 1, -1))  # [ and { end in 011, ] and } in 101
    lasts = np.cumsum(bracket_count) - 1
    depths -= np.repeat(np.append(0, depths[lasts[:-1]]) if len(sound_indexes) else lasts, bracket_count)
    wrong = np.bincount(owner[depths == 0], minlength=len(objects))[sound_indexes] != 1
    wrong |= (depths[lasts] != 0) | (brackets[lasts] != objects.end[sound_indexes] - 1)
    if depths.size and int(depths.max()) > DEEPEST:
        wrong[np.searchsorted(sound_indexes, owner[depths > DEEPEST])] = True
    if wrong.any():
        valid[sound_indexes[wrong]] = False
        quotes = quotes[valid[np.repeat(sound_indexes, count[sound_indexes])]]
        brackets, depths = brackets[valid[owner]], depths[valid[owner]]
    return valid, quotes, depths, brackets
