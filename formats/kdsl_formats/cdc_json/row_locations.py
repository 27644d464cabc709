"""Where the rows of many changes stand in the buffer, found by whole columns: the accelerator's view of `reference`.

What does not need the fallback is what the reference would say.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl_formats._columns.arrays import Indices, Mask, slices
from kdsl_formats.cdc_json.reference_decoder import AFTER, BEFORE, DELETE, INSERT, ChangeReadingRules, Include
from kdsl_formats.json.buffer import BRACE, BRACKET, MessageBuffer, Spans, count_inside
from kdsl_formats.json.members import BARE, TEXT, split_arrays
from kdsl_formats.json.objects import ABSENT, ValueSpans
from kdsl_formats.json.validity import are_json

Codes = npt.NDArray[np.int8]
_UNKNOWN, _INSERT, _UPDATE, _DELETE, _SKIP = range(5)

_NULL, _FOUR_BYTES = np.uint64(int.from_bytes(b"null", "little")), np.uint64(2**32 - 1)


@attrs.frozen(eq=False)
class RowLocations:
    """The rows of some changes.

    Attributes:
        images: The objects that hold rows, in ascending order.
        first: For each of them the index of its first quote; None if that is not known.
        index: For each row its image; -1 for one that has its key alone (`over`).
        owner: For each row its change, ascending.
        kinds: For each row what it says.
        olds: Objects with members that were others before a change, or with the key of a row, in ascending order.
        over: For each row which of them replaces members of its image, or holds its key; or -1.
        fallback: For each change whether it needs the fallback.
    """

    images: Spans
    first: Indices | None
    index: Indices
    owner: Indices
    kinds: Codes
    olds: Spans
    over: Indices
    fallback: Mask


def locate_rows(
    buffer: MessageBuffer,
    rules: ChangeReadingRules,
    columns: list[ValueSpans],
    conditions: list[tuple[Include, ValueSpans]],
) -> RowLocations:
    """The rows of changes whose members are found.

    Args:
        buffer: The buffer.
        rules: How they are read.
        columns: The members with the rows, and what happened.
        conditions: The conditions that changes must meet to have rows, with the member of each.
    """
    first, second, operations = columns[:3]
    code = _operation_codes(buffer, rules, operations)
    fallback = np.zeros(len(code), dtype=bool)
    left_out = fallback
    for condition, values in conditions:
        fails, unsure = _unmet_conditions(buffer, condition, values)
        left_out = left_out | (fails & ~fallback)
        fallback |= unsure & ~left_out
    if left_out.any():  # nothing of them counts, but they must be JSON
        for values in columns:
            fallback |= left_out & ~_are_json_where_needed(buffer, values, left_out)
    code[left_out] = _SKIP
    match rules.dialect.images:
        case "before and after" if rules.key_row is not None:
            return _locate_keys_and_after(buffer, code, fallback, first, second)
        case "before and after":
            return _locate_before_and_after(buffer, code, fallback, first, second)
        case "data and old":
            nothing = is_null(buffer, first) & is_null(buffer, second)
            good = (
                np.where(code == _SKIP, left_out | nothing, _have_needed_rows(buffer, code, first, second, BRACE))
                & ~fallback
            )
            index = np.flatnonzero(good & (code != _SKIP))
            changed = index[code[index] == _UPDATE]
            return _locate_data_and_old(code, ~good, index, first.spans.pick(index), second.spans.pick(changed))
        case _:
            nothing = is_null(buffer, first) & is_null(buffer, second)
            good = (
                np.where(code == _SKIP, left_out | nothing, _have_needed_rows(buffer, code, first, second, BRACKET))
                & ~fallback
            )
            return _locate_lists(buffer, code, good, first, second)


def is_null(buffer: MessageBuffer, values: ValueSpans) -> Mask:
    """Which values are null or absent."""
    start, size = values.spans.start, values.spans.end - values.spans.start
    spelled = (values.what == BARE) & (size == 4)
    if spelled.any():
        spelled &= buffer.words[start] & _FOUR_BYTES == _NULL
    nulls: Mask = (values.what == ABSENT) | spelled
    return nulls


def begins_with(buffer: MessageBuffer, values: ValueSpans, opening: int) -> Mask:
    """Which values begin with a bracket."""
    matches: Mask = (values.what == BARE) & (buffer.data[values.spans.start] == opening)
    return matches


def _operation_codes(buffer: MessageBuffer, rules: ChangeReadingRules, operations: ValueSpans) -> Codes:
    """What happened, by each change; unknown where it needs the fallback."""
    code = np.zeros(len(operations.what), dtype=np.int8)
    size, dialect = operations.spans.end - operations.spans.start, rules.dialect
    table = [(text, _INSERT) for text in dialect.inserts] + [(dialect.update, _UPDATE), (dialect.delete, _DELETE)]
    for text, operation in table + [(text, _SKIP) for text in rules.skipped]:
        code[(size == len(text)) & buffer.starts_with(operations.spans.start, text.encode())] = operation
    code[operations.what != TEXT] = _UNKNOWN
    return code


def _have_needed_rows(buffer: MessageBuffer, code: Codes, data: ValueSpans, old: ValueSpans, opening: int) -> Mask:
    """Whether changes have just the rows that they need."""
    olds = np.where(code == _UPDATE, begins_with(buffer, old, opening), is_null(buffer, old))
    fits: Mask = (code != _UNKNOWN) & begins_with(buffer, data, opening) & olds
    return fits


def _locate_before_and_after(
    buffer: MessageBuffer, code: Codes, fallback: Mask, before: ValueSpans, after: ValueSpans
) -> RowLocations:
    """The rows before and after changes."""
    has_before, has_after = (code == _UPDATE) | (code == _DELETE), (code == _INSERT) | (code == _UPDATE)
    good = (code != _UNKNOWN) & ~fallback
    good &= np.where(has_before, begins_with(buffer, before, BRACE), is_null(buffer, before))
    good &= np.where(has_after, begins_with(buffer, after, BRACE), is_null(buffer, after))
    selected = np.column_stack([has_before & good, has_after & good]).ravel()
    start = np.column_stack([before.spans.start, after.spans.start]).ravel()[selected]
    end = np.column_stack([before.spans.end, after.spans.end]).ravel()[selected]
    kinds = np.column_stack(
        [np.where(code == _UPDATE, BEFORE, DELETE), np.where(code == _UPDATE, AFTER, INSERT)]
    ).ravel()[selected]
    index = np.arange(len(start))
    images = Spans(start, end)
    first = None
    if before.first is not None and after.first is not None:
        first = np.column_stack([before.first, after.first]).ravel()[selected]
    if len(start) > 1 and bool((start[1:] < start[:-1]).any()):
        order = np.argsort(start)
        images, index, first = images.pick(order), np.empty_like(index), None if first is None else first[order]
        index[order] = np.arange(len(start))
    owner = np.repeat(np.arange(len(code)), 2)[selected]
    olds, over = Spans(index[:0], index[:0]), np.full(len(start), -1)
    return RowLocations(images, first, index, owner, kinds.astype(np.int8), olds, over, ~good)


def _locate_keys_and_after(
    buffer: MessageBuffer, code: Codes, fallback: Mask, before: ValueSpans, after: ValueSpans
) -> RowLocations:
    """The keys of rows before changes, and the rows after them."""
    with_before = begins_with(buffer, before, BRACE)
    has_after = (code == _INSERT) | (code == _UPDATE)
    has_before = (code == _DELETE) | ((code == _UPDATE) & with_before)
    good = (code != _UNKNOWN) & ~fallback
    good &= np.where(has_before, with_before, is_null(buffer, before))
    good &= np.where(has_after, begins_with(buffer, after, BRACE), is_null(buffer, after))
    has_row = np.column_stack([has_before & good, has_after & good])
    owner, which = np.nonzero(has_row)  # by change, the row before first
    is_before = which == 0
    kinds = np.where(is_before, np.where(code[owner] == _UPDATE, BEFORE, DELETE), AFTER)
    kinds[~is_before & (code[owner] == _INSERT)] = INSERT
    index, over = np.full(len(owner), -1), np.full(len(owner), -1)
    index[~is_before] = np.arange(int(np.count_nonzero(~is_before)))
    over[is_before] = np.arange(int(np.count_nonzero(is_before)))
    after_index = np.flatnonzero(has_row[:, 1])
    images, olds = after.spans.pick(after_index), before.spans.pick(np.flatnonzero(has_row[:, 0]))
    quotes = None if after.first is None else after.first[after_index]
    return RowLocations(images, quotes, index, owner, kinds.astype(np.int8), olds, over, ~good)


def _locate_data_and_old(code: Codes, fallback: Mask, owner: Indices, images: Spans, olds: Spans) -> RowLocations:
    """The rows of images, which each belong to a change; each image of an update also has an old one, in order."""
    operation_codes = code[owner]
    changed = operation_codes == _UPDATE
    index = np.repeat(np.arange(len(owner)), np.where(changed, 2, 1))
    is_second = np.append(False, index[1:] == index[:-1]) if len(index) else np.zeros(0, dtype=bool)
    is_before = changed[index] & ~is_second
    kinds = np.choose(operation_codes[index], [INSERT, INSERT, AFTER, DELETE]).astype(np.int8)
    kinds[is_before] = BEFORE
    over = np.full(len(index), -1)
    over[is_before] = np.arange(int(np.count_nonzero(is_before)))
    return RowLocations(images, None, index, owner[index], kinds, olds, over, fallback)


def _locate_lists(buffer: MessageBuffer, code: Codes, good: Mask, data: ValueSpans, old: ValueSpans) -> RowLocations:
    """The rows of changes with lists of rows."""
    index = np.flatnonzero(good & (code != _SKIP))
    changed = index[code[index] == _UPDATE]
    counts = []
    objects_found = []
    for values, indexes in ((data, index), (old, changed)):
        owner, objects, invalid = _objects_in(buffer, values.spans.pick(indexes))
        good[indexes[invalid]] = False
        objects_found.append((indexes[owner], objects))
        counts.append(np.bincount(indexes[owner], minlength=len(code)))
    good &= (code != _UPDATE) | (counts[0] == counts[1])
    (owner, images), (old_owner, olds) = objects_found
    is_good = good[owner]
    return _locate_data_and_old(code, ~good, owner[is_good], images.pick(is_good), olds.pick(good[old_owner]))


def _objects_in(buffer: MessageBuffer, arrays: Spans) -> tuple[Indices, Spans, Mask]:
    """The objects in arrays of nothing else: the array of each, where they are, and which arrays need the fallback."""
    inner = Spans(arrays.start + 1, arrays.end - 1)
    single = count_inside(buffer.brackets, arrays)[1] == 4  # those of the array, and of one object without others in it
    single &= (buffer.data[inner.start] == BRACE) & (buffer.data[inner.end - 1] == BRACE + 2)
    if single.all():
        return np.arange(len(single)), inner, ~single
    one, several = np.flatnonzero(single), np.flatnonzero(~single)
    parts = split_arrays(buffer, arrays.pick(several))
    invalid = np.zeros(len(single), dtype=bool)
    invalid[several[~parts.sound]] = True
    invalid[several[parts.owner[(parts.what == TEXT) | (buffer.data[parts.values.start] != BRACE)]]] = True
    owner = np.concatenate([one, several[parts.owner]])
    start = np.concatenate([inner.start[one], parts.values.start])
    end = np.concatenate([inner.end[one], parts.values.end])
    order = np.argsort(start)
    return owner[order], Spans(start[order], end[order]), invalid


def _unmet_conditions(buffer: MessageBuffer, condition: Include, values: ValueSpans) -> tuple[Mask, Mask]:
    """Which changes do not meet a condition, and which need the fallback."""
    fallback: Mask = values.what != TEXT
    fallback |= buffer.find_escaped(values.spans)
    texts = slices(
        buffer.data, values.spans.start, values.spans.end, None if not fallback.any() else ~fallback, pa.string()
    )
    coded = texts.dictionary_encode()
    met = [text is not None and condition.pattern.fullmatch(text) is not None for text in coded.dictionary.to_pylist()]
    which = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    fails = ~np.array(met, dtype=bool)[which] if met else np.zeros(len(texts), dtype=bool)
    return fails & ~fallback, fallback


def _are_json_where_needed(buffer: MessageBuffer, values: ValueSpans, needed: Mask) -> Mask:
    """Which values are JSON, or absent, or not needed."""
    good = np.ones(len(values.what), dtype=bool)
    for what in (TEXT, BARE):
        index = np.flatnonzero(needed & (values.what == what))
        if index.size:
            some = values.spans.pick(index)
            good[index] = are_json(buffer, some, what, np.ones(len(index), dtype=bool))
    return good
