"""Checks that values that no column reads are JSON; otherwise their messages are bad."""

from __future__ import annotations

from secrets import token_hex

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kdsl_formats._columns.arrays import Mask, content, slices
from kdsl_formats._text import reading
from kdsl_formats.json.buffer import BRACE, BRACKET, MessageBuffer, Spans
from kdsl_formats.json.members import DEEPEST, TEXT, find_outline

NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
LONGEST_NUMBER = 300  # characters; longer numbers need the fallback
_WORDS = (b"null", b"true", b"false")
_FIRST = np.uint64(0xFF)
_ZEROS, _SIXES, _HIGH = (np.uint64(byte * 0x0101010101010101) for byte in (0x30, 0x06, 0xF0))
_BYTES = np.array([(1 << 8 * size) - 1 for size in range(9)], dtype=np.uint64)
_REPEATED, _SAMPLE = 256, 16  # from this average size repeated values are searched; the size of the sample
_SHORT = 2 * DEEPEST  # bytes: shorter values cannot be too deep
_BETWEEN = b'"%b"' % token_hex(16).encode()  # a string that no message contains on purpose


def are_json(buffer: MessageBuffer, spans: Spans, form: int, needed: Mask) -> Mask:
    """Which of some values, all in quotes or all bare, are JSON; values that are not needed count as JSON.

    Raw control characters are allowed in values in quotes. False also for bare values that this check cannot judge,
    such as very long numbers and very deep objects.
    """
    if form == TEXT:
        indexes = (
            np.flatnonzero(needed & buffer.find_escaped(spans)) if buffer.backslashes.size else np.zeros(0, np.int64)
        )
        good = np.ones(len(spans), dtype=bool)
        if indexes.size:
            good[indexes] = _find_valid(buffer, spans.pick(indexes), b'"%b"')
        return good
    size = spans.end - spans.start
    words = buffer.words[spans.start]
    first = words & _FIRST
    good = ~needed | _are_integers(buffer, spans, words)
    if good.all():
        return good
    for word in _WORDS:
        text = np.uint64(int.from_bytes(word, "little"))
        good |= (size == len(word)) & (words & np.uint64((1 << 8 * len(word)) - 1) == text)
    nested = ~good & ((first == BRACE) | (first == BRACKET))
    indexes = np.flatnonzero(nested)
    if indexes.size:
        good[indexes] = _find_valid_equal(buffer, spans.pick(indexes))
        nested &= ~good
        indexes = np.flatnonzero(nested)
    if indexes.size and int(size[indexes].sum()) > _REPEATED * len(indexes):
        good[indexes] = _find_valid_repeated(buffer, spans.pick(indexes))
        nested &= ~good
    indexes = np.flatnonzero(nested & (size < _SHORT))
    if indexes.size:
        good[indexes] = True if _are_all_valid(buffer, spans.pick(indexes)) else good[indexes]
    indexes = np.flatnonzero(nested & ~good)
    if indexes.size:
        some = spans.pick(indexes)
        valid = find_outline(buffer, some, b"{[")[0]
        good[indexes[valid]] = _find_valid(buffer, some.pick(valid), b"%b")
    indexes = np.flatnonzero(~good & ((first == 45) | (first - np.uint64(48) <= 9)))
    if indexes.size:
        some = spans.pick(indexes)
        strings = slices(buffer.data, some.start, some.end, None, pa.string())
        fallback = reading.floats(strings, pa.float64())[1]
        good[indexes] = ~fallback & are_numbers(buffer, some, strings)
    return good


def _are_integers(buffer: MessageBuffer, spans: Spans, words: npt.NDArray[np.uint64]) -> Mask:
    """Which values are integers of one to sixteen digits without a sign; may miss some."""
    size = spans.end - spans.start
    good: Mask = (size > 0) & (size <= 16) & ((words & _FIRST != 0x30) | (size == 1))
    if not good.any():
        return good
    first_bytes = _BYTES[np.clip(size, 0, 8)]
    good &= _are_digits((words & first_bytes) | (_ZEROS & ~first_bytes))
    wide = np.flatnonzero(good & (size > 8))
    if wide.size:
        good[wide] = _are_digits(buffer.words[spans.end[wide] - 8])
    return good


def _are_digits(words: npt.NDArray[np.uint64]) -> Mask:
    """Which words are eight digits: bytes from 0x30 that do not carry over 0x3F if six is added."""
    are_digits: Mask = (words & _HIGH == _ZEROS) & ((words + _SIXES) & _HIGH == _ZEROS)
    return are_digits


def are_numbers(buffer: MessageBuffer, spans: Spans, strings: pa.StringArray) -> Mask:
    """Which values, none empty and all readable as numbers, are numbers in JSON and not very long.

    `strings` has the same values as the spans, or NULL for those whose result does not matter.
    """
    data = buffer.data
    first, last = data[spans.start], data[spans.end - 1]
    good: Mask = (first - 49 <= 8) & (last - 48 <= 9) & (spans.end - spans.start <= LONGEST_NUMBER)
    indexes = np.flatnonzero(~good)
    if indexes.size:  # they begin with a minus or a zero
        start, end = spans.start[indexes], spans.end[indexes]
        start = start + (first[indexes] == 45)
        digit = data[start] - 48
        alone = (data[start + 1] - 48 > 9) | (start + 1 >= end)
        good[indexes] = (
            (digit <= 9) & ((digit > 0) | alone) & (last[indexes] - 48 <= 9) & (end - start <= LONGEST_NUMBER)
        )
    letters = content(strings)
    if letters.size and (int(letters.max()) > 57 or bool((letters == 43).any())):  # an exponent
        good &= np.asarray(pc.fill_null(pc.match_substring_regex(strings, NUMBER), False))
    return good


def _find_valid(buffer: MessageBuffer, spans: Spans, template: bytes) -> list[bool]:
    """Which values, inserted for ``%b`` in the template, are JSON: checked all at once if possible, or one by one."""
    around, _, after = template.partition(b"%b")
    strings = _slice_values(buffer, spans)
    whole = pa.ListArray.from_arrays(pa.array([0, len(strings)], pa.int32()), strings)
    joined = pc.binary_join(whole, pa.scalar(after + b"," + around, pa.binary()))[0].as_py()
    if _is_json(b"[" + around + joined + after + b"]"):
        return [True] * len(strings)
    return [_is_json(template % text) for text in strings.to_pylist()]


def _find_valid_equal(buffer: MessageBuffer, spans: Spans) -> Mask:
    """Which of some values equal the first one, such as the types in change data, if it is JSON.

    All False if most of a sample differ from it, or if it is too deep.
    """
    sample = _sample_values(buffer, spans)
    text = sample[0]
    if sample.count(text) <= _SAMPLE // 2 or not _is_shallow(text) or not _is_json(text):
        return np.zeros(len(spans), dtype=bool)
    same: Mask = (spans.end - spans.start == len(text)) & buffer.starts_with(spans.start, text)
    return same


def _sample_values(buffer: MessageBuffer, spans: Spans) -> list[bytes]:
    """The bytes of `_SAMPLE` values, evenly spread from the first to the last; there must be at least one."""
    sample = spans.pick(np.linspace(0, len(spans) - 1, _SAMPLE).astype(np.int64))
    values: list[bytes] = _slice_values(buffer, sample).to_pylist()
    return values


def _is_shallow(text: bytes) -> bool:
    """Whether a value cannot be too deep, by its number of brackets and braces."""
    return text.count(b"[") + text.count(b"{") <= DEEPEST


def _find_valid_repeated(buffer: MessageBuffer, spans: Spans) -> Mask:
    """Which of some long values are JSON, each distinct one parsed once; all False if few values repeat."""
    none = np.zeros(len(spans), dtype=bool)
    if len(set(_sample_values(buffer, spans))) > _SAMPLE // 2:
        return none
    coded = _slice_values(buffer, spans).dictionary_encode()
    if len(coded.dictionary) * _SAMPLE > len(spans):
        return none
    good = [_is_shallow(text) and _is_json(text) for text in coded.dictionary.to_pylist()]
    are_valid: Mask = np.array(good, dtype=bool)[np.asarray(coded.indices)]
    return are_valid


def _slice_values(buffer: MessageBuffer, spans: Spans) -> pa.BinaryArray:
    """The bytes of some spans as an array."""
    return slices(buffer.data, spans.start, spans.end, None, pa.binary())


def _are_all_valid(buffer: MessageBuffer, spans: Spans) -> bool:
    """Whether each of some values is exactly one JSON value, by parsing them together."""
    strings = _slice_values(buffer, spans)
    whole = pa.ListArray.from_arrays(pa.array([0, len(strings)], pa.int32()), strings)
    joined = pc.binary_join(whole, pa.scalar(b"," + _BETWEEN + b",", pa.binary()))[0].as_py()
    if joined.count(_BETWEEN) != len(strings) - 1:
        return False
    try:
        documents = orjson.loads(b"[" + joined + b"]")
    except orjson.JSONDecodeError:
        return False
    return len(documents) == 2 * len(strings) - 1 and documents[1::2] == [orjson.loads(_BETWEEN)] * (len(strings) - 1)


def _is_json(text: bytes) -> bool:
    """Whether bytes are exactly one JSON document."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
