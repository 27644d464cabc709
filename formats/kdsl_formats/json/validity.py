"""Whether values that no column wants are JSON; a message with one that is not is bad all the same."""

from __future__ import annotations

from secrets import token_hex

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kdsl_formats._columns.arrays import Mask, content, pieces
from kdsl_formats._text import reading
from kdsl_formats.json.members import DEEPEST, TEXT, outline
from kdsl_formats.json.source import Source, Spans

NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
LONGEST_NUMBER = 300  # characters; what is longer goes to the reference
_WORDS = (b"null", b"true", b"false")
_FIRST = np.uint64(0xFF)
_ZEROS, _SIXES, _HIGH = (np.uint64(byte * 0x0101010101010101) for byte in (0x30, 0x06, 0xF0))
_BYTES = np.array([(1 << 8 * size) - 1 for size in range(9)], dtype=np.uint64)
_REPEATED, _SAMPLE = 256, 16  # bytes of a value on average, from which on repeated ones are looked for; how many first
_SHORT = 2 * DEEPEST  # bytes, fewer than what is too deep must have
_BETWEEN = b'"%b"' % token_hex(16).encode()  # a text that nobody's message holds on purpose


def are_json(source: Source, spans: Spans, what: int, needed: Mask) -> Mask:
    """Which of some values, all in quotes or all bare, are JSON; those not needed count as JSON."""
    if what == TEXT:
        place = np.flatnonzero(needed & source.escaped(spans)) if source.backslashes.size else np.zeros(0, np.int64)
        good = np.ones(len(spans), dtype=bool)
        if place.size:
            good[place] = _valid(source, spans.pick(place), b'"%b"')
        return good
    size = spans.end - spans.start
    words = source.words[spans.start]
    first = words & _FIRST
    good = ~needed | _are_integers(source, spans, words)
    if good.all():
        return good
    for word in _WORDS:
        text = np.uint64(int.from_bytes(word, "little"))
        good |= (size == len(word)) & (words & np.uint64((1 << 8 * len(word)) - 1) == text)
    nested = ~good & ((first == 0x7B) | (first == 0x5B))
    place = np.flatnonzero(nested)
    if place.size and int(size[place].sum()) > _REPEATED * len(place):
        good[place] = _among_repeated(source, spans.pick(place))
        nested &= ~good
    place = np.flatnonzero(nested & (size < _SHORT))
    if place.size:
        good[place] = True if _each_valid(source, spans.pick(place)) else good[place]
    place = np.flatnonzero(nested & ~good)
    if place.size:
        some = spans.pick(place)
        sound = outline(source, some, b"{[")[0]
        good[place[sound]] = _valid(source, some.pick(sound), b"%b")
    place = np.flatnonzero(~good & ((first == 45) | (first - np.uint64(48) <= 9)))
    if place.size:
        some = spans.pick(place)
        texts = pieces(source.data, some.start, some.end, None, pa.string())
        doubts = reading.floats(texts, pa.float64())[1]
        good[place] = ~doubts & are_numbers(source, some, texts)
    return good


def _are_integers(source: Source, spans: Spans, words: npt.NDArray[np.uint64]) -> Mask:
    """Which values are spelled as integers of one to sixteen digits without a sign; some such are left out."""
    size = spans.end - spans.start
    good: Mask = (size > 0) & (size <= 16) & ((words & _FIRST != 0x30) | (size == 1))
    if not good.any():
        return good
    kept = _BYTES[np.clip(size, 0, 8)]
    good &= _are_digits((words & kept) | (_ZEROS & ~kept))
    wide = np.flatnonzero(good & (size > 8))
    if wide.size:
        good[wide] = _are_digits(source.words[spans.end[wide] - 8])
    return good


def _are_digits(words: npt.NDArray[np.uint64]) -> Mask:
    """Which words are eight digits: bytes from 0x30 on that six more do not carry over 0x3F."""
    found: Mask = (words & _HIGH == _ZEROS) & ((words + _SIXES) & _HIGH == _ZEROS)
    return found


def are_numbers(source: Source, spans: Spans, texts: pa.StringArray) -> Mask:
    """Which values, all known to be readable as numbers, are spelled as JSON spells them."""
    data = source.data
    first, last = data[spans.start], data[spans.end - 1]
    good: Mask = (first - 49 <= 8) & (last - 48 <= 9) & (spans.end - spans.start <= LONGEST_NUMBER)
    place = np.flatnonzero(~good)
    if place.size:  # they begin with a minus or a zero
        start, end = spans.start[place], spans.end[place]
        start = start + (first[place] == 45)
        digit = data[start] - 48
        alone = (data[start + 1] - 48 > 9) | (start + 1 >= end)
        good[place] = (digit <= 9) & ((digit > 0) | alone) & (last[place] - 48 <= 9) & (end - start <= LONGEST_NUMBER)
    letters = content(texts)
    if letters.size and (int(letters.max()) > 57 or bool((letters == 43).any())):  # an exponent
        good &= np.asarray(pc.fill_null(pc.match_substring_regex(texts, NUMBER), False))
    return good


def _valid(source: Source, spans: Spans, form: bytes) -> list[bool]:
    """Judge values one by one if they are not all JSON together."""
    around, _, behind = form.partition(b"%b")
    texts = _texts(source, spans)
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined = pc.binary_join(whole, pa.scalar(behind + b"," + around, pa.binary()))[0].as_py()
    if _parses(b"[" + around + joined + behind + b"]"):
        return [True] * len(texts)
    return [_parses(form % text) for text in texts.to_pylist()]


def _among_repeated(source: Source, spans: Spans) -> Mask:
    """Which of some long values are known to be JSON, where few different ones repeat: each of these is read once."""
    none = np.zeros(len(spans), dtype=bool)
    sample = spans.pick(np.linspace(0, len(spans) - 1, _SAMPLE).astype(np.int64))
    if len(_texts(source, sample).unique()) > _SAMPLE // 2:
        return none
    coded = _texts(source, spans).dictionary_encode()
    if len(coded.dictionary) * _SAMPLE > len(spans):
        return none
    good = [text.count(b"[") + text.count(b"{") <= DEEPEST and _parses(text) for text in coded.dictionary.to_pylist()]
    found: Mask = np.array(good, dtype=bool)[np.asarray(coded.indices)]
    return found


def _texts(source: Source, spans: Spans) -> pa.BinaryArray:
    return pieces(source.data, spans.start, spans.end, None, pa.binary())


def _each_valid(source: Source, spans: Spans) -> bool:
    """Whether values are JSON, each by itself, and none of them is but a part of a value, or several."""
    texts = _texts(source, spans)
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined = pc.binary_join(whole, pa.scalar(b"," + _BETWEEN + b",", pa.binary()))[0].as_py()
    if joined.count(_BETWEEN) != len(texts) - 1:
        return False
    try:
        found = orjson.loads(b"[" + joined + b"]")
    except orjson.JSONDecodeError:
        return False
    return len(found) == 2 * len(texts) - 1 and found[1::2] == [orjson.loads(_BETWEEN)] * (len(texts) - 1)


def _parses(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
