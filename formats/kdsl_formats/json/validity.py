"""Whether values that no column wants are JSON; a message with one that is not is bad all the same."""

from __future__ import annotations

from secrets import token_hex

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kdsl_formats._text import reading
from kdsl_formats.json.members import DEEPEST, TEXT, outline
from kdsl_formats.json.source import Mask, Source, Spans

NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
LONGEST_NUMBER = 300  # characters; what is longer goes to the reference
_WORDS = (b"null", b"true", b"false")
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
    good = ~needed
    for word in _WORDS:
        good |= (size == len(word)) & source.equal(spans.start, word)
    first = source.data[spans.start]
    nested = ~good & ((first == 0x7B) | (first == 0x5B))
    place = np.flatnonzero(nested & (size < _SHORT))
    if place.size:
        good[place] = True if _each_valid(source, spans.pick(place)) else good[place]
    place = np.flatnonzero(nested & ~good)
    if place.size:
        some = spans.pick(place)
        sound = outline(source, some, b"{[")[0]
        good[place[sound]] = _valid(source, some.pick(sound), b"%b")
    place = np.flatnonzero(~good & ((first == 45) | (first - 48 <= 9)))
    if place.size:
        some = spans.pick(place)
        texts = reading.pieces(source.data, some.start, some.end, None, pa.string())
        doubts = reading.floats(texts, pa.float64())[1]
        good[place] = ~doubts & are_numbers(source, some, texts)
    return good


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
    letters = reading.content(texts)
    if letters.size and (int(letters.max()) > 57 or bool((letters == 43).any())):  # an exponent
        good &= np.asarray(pc.fill_null(pc.match_substring_regex(texts, NUMBER), False))
    return good


def _valid(source: Source, spans: Spans, form: bytes) -> list[bool]:
    """Judge values one by one if they are not all JSON together."""
    around, _, behind = form.partition(b"%b")
    texts = reading.pieces(source.data, spans.start, spans.end, None, pa.binary())
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined = pc.binary_join(whole, pa.scalar(behind + b"," + around, pa.binary()))[0].as_py()
    if _parses(b"[" + around + joined + behind + b"]"):
        return [True] * len(texts)
    return [_parses(form % text) for text in texts.to_pylist()]


def _each_valid(source: Source, spans: Spans) -> bool:
    """Whether values are JSON, each by itself, and none of them is but a part of a value, or several."""
    texts = reading.pieces(source.data, spans.start, spans.end, None, pa.binary())
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
