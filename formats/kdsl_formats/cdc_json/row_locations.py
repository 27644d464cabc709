"""Locates the rows of many changes in the buffer, as whole columns.

It agrees with the reference decoder wherever it needs no fallback.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl_formats._columns.arrays import Indices, Mask, ranges, slices
from kdsl_formats.cdc_json.reference_decoder import AFTER, BEFORE, DELETE, INSERT, ChangeReadingRules, Include
from kdsl_formats.json.buffer import BRACE, BRACKET, QUOTE, MessageBuffer, Spans, count_inside
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
        images: The objects that contain rows, in ascending order.
        first: The index of the first quote of each image; None if that is unknown.
        index: The index of the image of each row; -1 for a row that has only its key (see `old_index`).
        owner: The change of each row, ascending.
        kinds: The kind of each row.
        old_values: Objects with the old values of changed members, or with the key of a row, in ascending order.
        old_index: For each row the index of the object in `old_values` that replaces members of its image or contains
            its key; otherwise -1.
        fallback: Which changes need the fallback.
    """

    images: Spans
    first: Indices | None
    index: Indices
    owner: Indices
    kinds: Codes
    old_values: Spans
    old_index: Indices
    fallback: Mask

    def pick(self, changes: Indices) -> tuple[RowLocations, Indices, Indices]:
        """The rows of some changes, given by their ascending indices.

        Also returns the indices of their images and of their old values, ascending.
        """
        begin = np.searchsorted(self.owner, changes)
        counts = np.searchsorted(self.owner, changes, side="right") - begin
        rows = ranges(begin, counts)
        images, index = _pick_objects(self.index[rows])
        old_values, old_index = _pick_objects(self.old_index[rows])
        picked = RowLocations(
            self.images.pick(images),
            None if self.first is None else self.first[images],
            index,
            np.repeat(np.arange(len(changes)), counts),
            self.kinds[rows],
            self.old_values.pick(old_values),
            old_index,
            self.fallback[changes],
        )
        return picked, images, old_values


def _pick_objects(index: Indices) -> tuple[Indices, Indices]:
    """The distinct indices of objects, ascending, and for each row the place of its object among them, or -1."""
    has = index >= 0
    objects, places = np.unique(index[has], return_inverse=True)
    result = np.full(len(index), -1)
    result[has] = places
    return objects, result


def locate_rows(
    buffer: MessageBuffer,
    rules: ChangeReadingRules,
    columns: list[ValueSpans],
    conditions: list[tuple[Include, ValueSpans]],
) -> RowLocations:
    """Locate the rows of changes whose members are known.

    Args:
        buffer: The buffer.
        rules: How to read the changes.
        columns: The members with the rows and the operation.
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
    if left_out.any():  # their contents do not matter, but they must be JSON
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
    spelled = (values.form == BARE) & (size == 4)
    if spelled.any():
        spelled &= buffer.words[start] & _FOUR_BYTES == _NULL
    nulls: Mask = (values.form == ABSENT) | spelled
    return nulls


def begins_with(buffer: MessageBuffer, values: ValueSpans, opening: int) -> Mask:
    """Which values begin with the byte of a bracket; strings never do."""
    matches: Mask = (values.form == BARE) & (buffer.data[values.spans.start] == opening)
    return matches


def _split_objects(buffer: MessageBuffer, values: ValueSpans) -> tuple[Mask, Mask]:
    """Which values are objects with members, and which without: a row that is not known, as null."""
    are_objects = begins_with(buffer, values, BRACE)
    index = np.flatnonzero(are_objects)
    index = index[buffer.data[values.spans.start[index] + 1] != QUOTE]
    are_empty = np.zeros(len(are_objects), dtype=bool)
    if len(index):
        are_empty[index] = count_inside(buffer.quotes, values.spans.pick(index))[1] == 0
        are_objects &= ~are_empty
    return are_objects, are_empty


def _operation_codes(buffer: MessageBuffer, rules: ChangeReadingRules, operations: ValueSpans) -> Codes:
    """The code of each change's operation; `_UNKNOWN` if it needs the fallback, `_SKIP` for one without rows."""
    code = np.zeros(len(operations.form), dtype=np.int8)
    size, dialect = operations.spans.end - operations.spans.start, rules.dialect
    table = [(text, _INSERT) for text in dialect.inserts] + [(dialect.update, _UPDATE), (dialect.delete, _DELETE)]
    for text, operation in table + [(text, _SKIP) for text in rules.skipped]:
        has_length = size == len(text)
        if has_length.any():
            code[has_length & buffer.starts_with(operations.spans.start, text.encode())] = operation
    code[operations.form != TEXT] = _UNKNOWN
    return code


def _have_needed_rows(buffer: MessageBuffer, code: Codes, data: ValueSpans, old: ValueSpans, opening: int) -> Mask:
    """Whether changes have exactly the rows that their operations need.

    The data must begin with the bracket ``opening``, and so must the old values of an update; others must be null.
    """
    old_values = np.where(code == _UPDATE, begins_with(buffer, old, opening), is_null(buffer, old))
    fits: Mask = (code != _UNKNOWN) & begins_with(buffer, data, opening) & old_values
    return fits


def _locate_before_and_after(
    buffer: MessageBuffer, code: Codes, fallback: Mask, before: ValueSpans, after: ValueSpans
) -> RowLocations:
    """Locate the before- and after-images of changes; changes with other images need the fallback.

    `fallback` has those that need it already, and is not changed: the result has a mask of its own.
    """
    has_before, has_after = (code == _UPDATE) | (code == _DELETE), (code == _INSERT) | (code == _UPDATE)
    good = (code != _UNKNOWN) & ~fallback
    with_before, empty = _split_objects(buffer, before)
    good &= np.where(has_before, with_before, is_null(buffer, before) | empty)
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
    old_values, old_index = Spans(index[:0], index[:0]), np.full(len(start), -1)
    return RowLocations(images, first, index, owner, kinds.astype(np.int8), old_values, old_index, ~good)


def _locate_keys_and_after(
    buffer: MessageBuffer, code: Codes, fallback: Mask, before: ValueSpans, after: ValueSpans
) -> RowLocations:
    """Locate the keys of before-images, and the after-images; an update may lack the before-image.

    `fallback` has those that need it already, and is not changed: the result has a mask of its own.
    """
    with_before, empty = _split_objects(buffer, before)
    has_after = (code == _INSERT) | (code == _UPDATE)
    has_before = (code == _DELETE) | ((code == _UPDATE) & with_before)
    good = (code != _UNKNOWN) & ~fallback
    good &= np.where(has_before, with_before, is_null(buffer, before) | empty)
    good &= np.where(has_after, begins_with(buffer, after, BRACE), is_null(buffer, after))
    has_row = np.column_stack([has_before & good, has_after & good])
    owner, which = np.nonzero(has_row)  # by change, the before-image first
    is_before = which == 0
    kinds = np.where(is_before, np.where(code[owner] == _UPDATE, BEFORE, DELETE), AFTER)
    kinds[~is_before & (code[owner] == _INSERT)] = INSERT
    index, old_index = np.full(len(owner), -1), np.full(len(owner), -1)
    index[~is_before] = np.arange(int(np.count_nonzero(~is_before)))
    old_index[is_before] = np.arange(int(np.count_nonzero(is_before)))
    after_index = np.flatnonzero(has_row[:, 1])
    images, old_values = after.spans.pick(after_index), before.spans.pick(np.flatnonzero(has_row[:, 0]))
    quotes = None if after.first is None else after.first[after_index]
    return RowLocations(images, quotes, index, owner, kinds.astype(np.int8), old_values, old_index, ~good)


def _locate_data_and_old(code: Codes, fallback: Mask, owner: Indices, images: Spans, old_values: Spans) -> RowLocations:
    """Locate the rows of images with their changes; each image of an update also has old values, in order.

    `owner` has the change of each image; `fallback` becomes a part of the result as it is.
    """
    operation_codes = code[owner]
    changed = operation_codes == _UPDATE
    index = np.repeat(np.arange(len(owner)), np.where(changed, 2, 1))
    is_second = np.append(False, index[1:] == index[:-1]) if len(index) else np.zeros(0, dtype=bool)
    is_before = changed[index] & ~is_second
    kinds = np.choose(operation_codes[index], [INSERT, INSERT, AFTER, DELETE]).astype(np.int8)
    kinds[is_before] = BEFORE
    old_index = np.full(len(index), -1)
    old_index[is_before] = np.arange(int(np.count_nonzero(is_before)))
    return RowLocations(images, None, index, owner[index], kinds, old_values, old_index, fallback)


def _locate_lists(buffer: MessageBuffer, code: Codes, good: Mask, data: ValueSpans, old: ValueSpans) -> RowLocations:
    """Locate the rows of changes with lists of rows.

    Changes whose lists cannot be split into objects, and updates whose two lists differ in length, are cleared in
    ``good``, in place.
    """
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
    (owner, images), (old_owner, old_values) = objects_found
    is_good = good[owner]
    return _locate_data_and_old(code, ~good, owner[is_good], images.pick(is_good), old_values.pick(good[old_owner]))


def _objects_in(buffer: MessageBuffer, arrays: Spans) -> tuple[Indices, Spans, Mask]:
    """Locate the objects in arrays of objects: the array of each, their spans, and which arrays need the fallback."""
    inner = Spans(arrays.start + 1, arrays.end - 1)
    single = count_inside(buffer.brackets, arrays)[1] == 4  # those of the array, and of one object without nested ones
    single &= (buffer.data[inner.start] == BRACE) & (buffer.data[inner.end - 1] == BRACE + 2)
    if single.all():
        return np.arange(len(single)), inner, ~single
    one, several = np.flatnonzero(single), np.flatnonzero(~single)
    parts = split_arrays(buffer, arrays.pick(several))
    invalid = np.zeros(len(single), dtype=bool)
    invalid[several[~parts.valid]] = True
    invalid[several[parts.owner[(parts.form == TEXT) | (buffer.data[parts.values.start] != BRACE)]]] = True
    owner = np.concatenate([one, several[parts.owner]])
    start = np.concatenate([inner.start[one], parts.values.start])
    end = np.concatenate([inner.end[one], parts.values.end])
    order = np.argsort(start)
    return owner[order], Spans(start[order], end[order]), invalid


def _unmet_conditions(buffer: MessageBuffer, condition: Include, values: ValueSpans) -> tuple[Mask, Mask]:
    """Which changes do not meet a condition, and which need the fallback: without a string, or with escapes in it."""
    fallback: Mask = values.form != TEXT
    fallback |= buffer.find_escaped(values.spans)
    strings = slices(
        buffer.data, values.spans.start, values.spans.end, None if not fallback.any() else ~fallback, pa.string()
    )
    coded = strings.dictionary_encode()
    met = [text is not None and condition.pattern.fullmatch(text) is not None for text in coded.dictionary.to_pylist()]
    which = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    fails = ~np.array(met, dtype=bool)[which] if met else np.zeros(len(strings), dtype=bool)
    return fails & ~fallback, fallback


def _are_json_where_needed(buffer: MessageBuffer, values: ValueSpans, needed: Mask) -> Mask:
    """Which values are JSON, or absent, or not needed."""
    good = np.ones(len(values.form), dtype=bool)
    for form in (TEXT, BARE):
        index = np.flatnonzero(needed & (values.form == form))
        if index.size:
            some = values.spans.pick(index)
            good[index] = are_json(buffer, some, form, np.ones(len(index), dtype=bool))
    return good
