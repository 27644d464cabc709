"""Where the rows of many changes stand in the buffer, found by whole columns: the accelerator's view of `reference`.

What is not in doubt is what the reference would say.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl_formats._columns.arrays import Mask, Positions, pieces
from kdsl_formats.cdc_json.dialects import Dialect
from kdsl_formats.cdc_json.reference_decoder import AFTER, BEFORE, DELETE, INSERT, Include
from kdsl_formats.json.members import BARE, TEXT, elements
from kdsl_formats.json.objects import ABSENT, Values
from kdsl_formats.json.source import Source, Spans, inside
from kdsl_formats.json.validity import are_json

Codes = npt.NDArray[np.int8]
_UNKNOWN, _INSERT, _UPDATE, _DELETE, _SKIP = range(5)
_BRACE, _BRACKET = 0x7B, 0x5B
_NULL, _FOUR_BYTES = np.uint64(int.from_bytes(b"null", "little")), np.uint64(2**32 - 1)


@attrs.frozen(eq=False)
class Layout:
    """The rows of some changes.

    Attributes:
        images: The objects that hold rows, in ascending order.
        first: For each of them the index of its first quote; None where that is not known.
        index: For each row its image.
        owner: For each row its change, ascending.
        kinds: For each row what it says.
        olds: Objects with members that were others before a change, in ascending order.
        over: For each row which of them replaces members of its image, or -1.
        doubts: For each change whether it is in doubt.
    """

    images: Spans
    first: Positions | None
    index: Positions
    owner: Positions
    kinds: Codes
    olds: Spans
    over: Positions
    doubts: Mask


def layout(source: Source, dialect: Dialect, columns: list[Values], conditions: list[tuple[Include, Values]]) -> Layout:
    """The rows of changes whose members are found.

    Args:
        source: The buffer.
        dialect: The dialect.
        columns: The members with the rows, and what happened.
        conditions: The conditions that changes must meet to have rows, with the member of each.
    """
    first, second, said = columns[:3]
    code = _operations(source, dialect, said)
    doubts = np.zeros(len(code), dtype=bool)
    left_out = doubts
    for condition, values in conditions:
        fails, unsure = _unmet(source, condition, values)
        left_out = left_out | (fails & ~doubts)
        doubts |= unsure & ~left_out
    if left_out.any():  # nothing of them counts, but they must be JSON
        for values in columns:
            doubts |= left_out & ~_sound(source, values, left_out)
    code[left_out] = _SKIP
    match dialect.images:
        case "before and after":
            return _before_and_after(source, code, doubts, first, second)
        case "data and old":
            nothing = is_null(source, first) & is_null(source, second)
            good = np.where(code == _SKIP, left_out | nothing, _fit(source, code, first, second, _BRACE)) & ~doubts
            place = np.flatnonzero(good & (code != _SKIP))
            changed = place[code[place] == _UPDATE]
            return _data_and_old(code, ~good, place, first.spans.pick(place), second.spans.pick(changed))
        case _:
            nothing = is_null(source, first) & is_null(source, second)
            good = np.where(code == _SKIP, left_out | nothing, _fit(source, code, first, second, _BRACKET)) & ~doubts
            return _lists(source, code, good, first, second)


def is_null(source: Source, values: Values) -> Mask:
    """Which values are null or absent."""
    start, size = values.spans.start, values.spans.end - values.spans.start
    spelled = (values.what == BARE) & (size == 4)
    if spelled.any():
        spelled &= source.words[start] & _FOUR_BYTES == _NULL
    found: Mask = (values.what == ABSENT) | spelled
    return found


def begins(source: Source, values: Values, opening: int) -> Mask:
    """Which values begin with a bracket."""
    found: Mask = (values.what == BARE) & (source.data[values.spans.start] == opening)
    return found


def _operations(source: Source, dialect: Dialect, said: Values) -> Codes:
    """What happened, by each change; unknown where it is in doubt."""
    code = np.zeros(len(said.what), dtype=np.int8)
    size = said.spans.end - said.spans.start
    table = [(text, _INSERT) for text in dialect.inserts] + [(dialect.update, _UPDATE), (dialect.delete, _DELETE)]
    for text, meaning in table + [(text, _SKIP) for text in dialect.skipped]:
        code[(size == len(text)) & source.equal(said.spans.start, text.encode())] = meaning
    code[said.what != TEXT] = _UNKNOWN
    return code


def _fit(source: Source, code: Codes, data: Values, old: Values, opening: int) -> Mask:
    """Whether changes have just the rows that they need."""
    olds = np.where(code == _UPDATE, begins(source, old, opening), is_null(source, old))
    fits: Mask = (code != _UNKNOWN) & begins(source, data, opening) & olds
    return fits


def _before_and_after(source: Source, code: Codes, doubts: Mask, before: Values, after: Values) -> Layout:
    has_before, has_after = code >= _UPDATE, (code == _INSERT) | (code == _UPDATE)
    good = (code != _UNKNOWN) & ~doubts
    good &= np.where(has_before, begins(source, before, _BRACE), is_null(source, before))
    good &= np.where(has_after, begins(source, after, _BRACE), is_null(source, after))
    taken = np.column_stack([has_before & good, has_after & good]).ravel()
    start = np.column_stack([before.spans.start, after.spans.start]).ravel()[taken]
    end = np.column_stack([before.spans.end, after.spans.end]).ravel()[taken]
    kinds = np.column_stack(
        [np.where(code == _UPDATE, BEFORE, DELETE), np.where(code == _UPDATE, AFTER, INSERT)]
    ).ravel()[taken]
    index = np.arange(len(start))
    images = Spans(start, end)
    first = None
    if before.first is not None and after.first is not None:
        first = np.column_stack([before.first, after.first]).ravel()[taken]
    if len(start) > 1 and bool((start[1:] < start[:-1]).any()):
        order = np.argsort(start)
        images, index, first = images.pick(order), np.empty_like(index), None if first is None else first[order]
        index[order] = np.arange(len(start))
    owner = np.repeat(np.arange(len(code)), 2)[taken]
    olds, over = Spans(index[:0], index[:0]), np.full(len(start), -1)
    return Layout(images, first, index, owner, kinds.astype(np.int8), olds, over, ~good)


def _data_and_old(code: Codes, doubts: Mask, owner: Positions, images: Spans, olds: Spans) -> Layout:
    """The rows of images, each of which belongs to a change; those of updates have an old one each, in order."""
    said = code[owner]
    changed = said == _UPDATE
    index = np.repeat(np.arange(len(owner)), np.where(changed, 2, 1))
    again = np.append(False, index[1:] == index[:-1]) if len(index) else np.zeros(0, dtype=bool)
    was = changed[index] & ~again
    kinds = np.choose(said[index], [INSERT, INSERT, AFTER, DELETE]).astype(np.int8)
    kinds[was] = BEFORE
    over = np.full(len(index), -1)
    over[was] = np.arange(int(np.count_nonzero(was)))
    return Layout(images, None, index, owner[index], kinds, olds, over, doubts)


def _lists(source: Source, code: Codes, good: Mask, data: Values, old: Values) -> Layout:
    place = np.flatnonzero(good & (code != _SKIP))
    changed = place[code[place] == _UPDATE]
    counts = []
    found = []
    for values, some in ((data, place), (old, changed)):
        owner, objects, wrong = _objects(source, values.spans.pick(some))
        good[some[wrong]] = False
        found.append((some[owner], objects))
        counts.append(np.bincount(some[owner], minlength=len(code)))
    good &= (code != _UPDATE) | (counts[0] == counts[1])
    (owner, images), (old_owner, olds) = found
    kept = good[owner]
    return _data_and_old(code, ~good, owner[kept], images.pick(kept), olds.pick(good[old_owner]))


def _objects(source: Source, arrays: Spans) -> tuple[Positions, Spans, Mask]:
    """The objects in arrays of nothing else: the array of each, where they are, and which arrays are in doubt."""
    inner = Spans(arrays.start + 1, arrays.end - 1)
    single = inside(source.brackets, arrays)[1] == 4  # those of the array, and of one object without others in it
    single &= (source.data[inner.start] == _BRACE) & (source.data[inner.end - 1] == _BRACE + 2)
    if single.all():
        return np.arange(len(single)), inner, ~single
    one, several = np.flatnonzero(single), np.flatnonzero(~single)
    parts = elements(source, arrays.pick(several))
    wrong = np.zeros(len(single), dtype=bool)
    wrong[several[~parts.sound]] = True
    wrong[several[parts.owner[(parts.what == TEXT) | (source.data[parts.values.start] != _BRACE)]]] = True
    owner = np.concatenate([one, several[parts.owner]])
    start = np.concatenate([inner.start[one], parts.values.start])
    end = np.concatenate([inner.end[one], parts.values.end])
    order = np.argsort(start)
    return owner[order], Spans(start[order], end[order]), wrong


def _unmet(source: Source, condition: Include, values: Values) -> tuple[Mask, Mask]:
    """Which changes do not meet a condition, and which are in doubt."""
    doubts: Mask = values.what != TEXT
    doubts |= source.escaped(values.spans)
    texts = pieces(
        source.data, values.spans.start, values.spans.end, None if not doubts.any() else ~doubts, pa.string()
    )
    coded = texts.dictionary_encode()
    met = [text is not None and condition.pattern.fullmatch(text) is not None for text in coded.dictionary.to_pylist()]
    which = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    fails = ~np.array(met, dtype=bool)[which] if met else np.zeros(len(texts), dtype=bool)
    return fails & ~doubts, doubts


def _sound(source: Source, values: Values, needed: Mask) -> Mask:
    """Which values are JSON, or absent, or not needed."""
    good = np.ones(len(values.what), dtype=bool)
    for what in (TEXT, BARE):
        place = np.flatnonzero(needed & (values.what == what))
        if place.size:
            some = values.spans.pick(place)
            good[place] = are_json(source, some, what, np.ones(len(place), dtype=bool))
    return good
