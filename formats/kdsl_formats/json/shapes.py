"""Objects that repeat one shape: the same keys in the same order, with the same blanks, as a producer writes them.

The faster of the two ways to find members (see `members`). A shape is learned from one object; then every object with
as many quotes is compared with the literal text between its values, eight bytes at a time, at the places where its
quotes say that the text must stand. All that is left unseen is inside the values.
"""

from __future__ import annotations

import re

import attrs
import numpy as np

from kdsl_formats._columns.arrays import Mask, Positions
from kdsl_formats.json.members import BARE, TEXT
from kdsl_formats.json.source import Source, Spans

_BLANKS = re.compile(rb"[ \t\n\r]*")
_KEY = re.compile(rb'"([^"\\]*)"[ \t\n\r]*:[ \t\n\r]*')
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SCALAR = re.compile(rb'[^",:{}\[\] \t\n\r]+')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
LONGEST_MESSAGE, LONGEST_LITERAL = 1 << 16, 512  # bytes; longer ones are no repeated shapes either
LARGEST = 1000  # members; a wider object is no repeated shape


@attrs.frozen
class Member:
    """A member of a shape.

    Attributes:
        key: Its key.
        before: The literal text from the end of the value before it to the start of its value; for a text it includes
            the quote.
        what: `TEXT` or `BARE`.
        quotes: How many quotes its value holds, with those around a text.
    """

    key: bytes
    before: bytes
    what: int
    quotes: int


@attrs.frozen
class Shape:
    """The shape of an object.

    Attributes:
        members: Its members, in order.
        closing: The literal text behind the last value.
        quotes: How many quotes such an object holds.
    """

    members: tuple[Member, ...]
    closing: bytes
    quotes: int


def learn(message: bytes) -> Shape | None:
    """The shape of an object; None where it has none that could repeat."""
    found: list[Member] = []
    opening = _BLANKS.match(message, 1)
    if message[:1] != b"{" or opening is None or len(message) > LONGEST_MESSAGE:
        return None
    literal, place = 0, opening.end()
    while True:
        key = _KEY.match(message, place)
        end, quotes = _value(message, key.end()) if key else (place, 0)
        if key is None or end == key.end() or len(found) == LARGEST:
            return None
        if key.end() - literal > LONGEST_LITERAL:
            return None
        text = message[key.end() : key.end() + 1] == b'"'
        found.append(Member(key[1], message[literal : key.end() + text], TEXT if text else BARE, quotes))
        literal = end - text
        place = _skip(message, end)
        if message[place:] == b"}":
            return Shape(tuple(found), message[literal:], sum(m.quotes + 2 for m in found))
        if message[place : place + 1] != b",":
            return None
        place = _skip(message, place + 1)


def _skip(message: bytes, place: int) -> int:
    found = _BLANKS.match(message, place)
    return found.end() if found else place


def _value(message: bytes, place: int) -> tuple[int, int]:
    """The end of a value and its number of quotes; the place itself when there is no value."""
    first = message[place : place + 1]
    if first == b'"':
        text = _TEXT.match(message, place)
        return (text.end(), 2) if text else (place, 0)
    if first not in (b"{", b"["):
        scalar = _SCALAR.match(message, place)
        return (scalar.end(), 0) if scalar else (place, 0)
    depth = quotes = 0
    for token in _TOKEN.finditer(message, place):
        if token[0][0] == 34:
            quotes += 2
            continue
        depth += 1 if token[0] in b"[{" else -1
        if not depth:
            return token.end(), quotes
    return place, 0


def fitting(
    source: Source, objects: Spans, first: Positions, shape: Shape
) -> tuple[Mask, list[Spans], list[Positions]]:
    """Which objects have a shape, and where their values are.

    Args:
        source: The buffer.
        objects: Objects that hold as many quotes as the shape says.
        first: For each of them the index of its first quote.
        shape: The shape.

    Returns:
        A mask of the objects; for each member of the shape the values of all of them (without the quotes of texts);
        and for those that are no texts the index of the first quote behind the key. Those of objects that do not fit
        mean nothing.
    """
    place = objects.start
    fits = np.ones(len(objects), dtype=bool)
    values: list[Spans] = []
    inner: list[Positions] = []
    passed = 0
    for i, member in enumerate(shape.members):
        fits &= source.equal(place, member.before)
        start = place + len(member.before)
        inner.append(first + (passed + 2) if member.what == BARE else first)
        passed += 2 + member.quotes
        if member.what == TEXT:
            place = source.quotes[first + (passed - 1)]
            fits &= start <= place
        else:
            if i + 1 < len(shape.members):
                place = source.quotes[first + passed] - shape.members[i + 1].before.index(b'"')
            else:
                place = objects.end - len(shape.closing)
            fits &= start < place
            place = np.maximum(place, 0)
        values.append(Spans(start, place))
    fits &= place + len(shape.closing) == objects.end
    return fits & source.equal(place, shape.closing), values, inner
