"""Objects that repeat one shape: the same keys in the same order, with the same blanks, as a producer writes them.

The faster of two ways to find members (see `members`). A shape is learned from one object; then every object with as
many quotes is compared with the literal text between its values, eight bytes at a time, at the positions that its
quotes determine. Only the values themselves are not checked here.
"""

from __future__ import annotations

import re

import attrs
import numpy as np

from kdsl_formats._columns.arrays import Indices, Mask
from kdsl_formats.json.buffer import MessageBuffer, Spans
from kdsl_formats.json.members import BARE, TEXT

_BLANKS = re.compile(rb"[ \t\n\r]*")
_KEY = re.compile(rb'"([^"\\]*)"[ \t\n\r]*:[ \t\n\r]*')
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SCALAR = re.compile(rb'[^",:{}\[\] \t\n\r]+')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
LONGEST_MESSAGE, LONGEST_LITERAL = 1 << 18, 512  # bytes; longer ones are not learned
LARGEST = 5000  # members; wider objects are not learned


@attrs.frozen
class ShapeMember:
    """A member of a shape.

    Attributes:
        key: Its key.
        before: The literal text from the end of the previous value to the start of its own; for a string it includes
            the quote.
        form: `TEXT` or `BARE`.
        quotes: The number of quotes in its value, including those around a string.
    """

    key: bytes
    before: bytes
    form: int
    quotes: int


@attrs.frozen
class Shape:
    """The shape of an object.

    Attributes:
        members: Its members, in order.
        closing: The literal text after the last value.
        quotes: The number of quotes in such an object.
    """

    members: tuple[ShapeMember, ...]
    closing: bytes
    quotes: int


def learn_shape(message: bytes) -> Shape | None:
    """The shape of an object, whose values are not checked.

    None if the message is not an object from its first to its last byte, or is an empty or large one, has a key with
    escapes, or more than `LONGEST_LITERAL` bytes between two values.
    """
    members: list[ShapeMember] = []
    opening = _BLANKS.match(message, 1)
    if message[:1] != b"{" or opening is None or len(message) > LONGEST_MESSAGE:
        return None
    literal, position = 0, opening.end()
    while True:
        key = _KEY.match(message, position)
        end, quotes = _value_end(message, key.end()) if key else (position, 0)
        if key is None or end == key.end() or len(members) == LARGEST:
            return None
        if key.end() - literal > LONGEST_LITERAL:
            return None
        text = message[key.end() : key.end() + 1] == b'"'
        members.append(ShapeMember(key[1], message[literal : key.end() + text], TEXT if text else BARE, quotes))
        literal = end - text
        position = _skip_blanks(message, end)
        if message[position:] == b"}":
            return Shape(tuple(members), message[literal:], sum(m.quotes + 2 for m in members))
        if message[position : position + 1] != b",":
            return None
        position = _skip_blanks(message, position + 1)


def _skip_blanks(message: bytes, position: int) -> int:
    """The first position from the given one that is not a blank."""
    match = _BLANKS.match(message, position)
    return match.end() if match else position


def _value_end(message: bytes, position: int) -> tuple[int, int]:
    """The end of the value at a position, and its number of quotes; the position itself and 0 if there is no value."""
    first = message[position : position + 1]
    if first == b'"':
        text = _TEXT.match(message, position)
        return (text.end(), 2) if text else (position, 0)
    if first not in (b"{", b"["):
        scalar = _SCALAR.match(message, position)
        return (scalar.end(), 0) if scalar else (position, 0)
    depth = quotes = 0
    for token in _TOKEN.finditer(message, position):
        if token[0][0] == 34:
            quotes += 2
            continue
        depth += 1 if token[0] in b"[{" else -1
        if not depth:
            return token.end(), quotes
    return position, 0


def match_shape(
    buffer: MessageBuffer, objects: Spans, first: Indices, shape: Shape
) -> tuple[Mask, list[Spans], list[Indices]]:
    """Which objects have a shape, and the positions of their values.

    Args:
        buffer: The buffer.
        objects: Objects with as many quotes as the shape.
        first: The index of the first quote of each object.
        shape: The shape.

    Returns:
        A mask of the objects; for each member of the shape, the values of all objects (without the quotes of strings);
        and for each member that is not a string, the index of the first quote after the key (meaningless for strings).
        Values of objects that do not have the shape are meaningless.
    """
    position = objects.start
    fits = np.ones(len(objects), dtype=bool)
    values: list[Spans] = []
    inner: list[Indices] = []
    passed = 0
    for i, member in enumerate(shape.members):
        fits &= buffer.starts_with(position, member.before)
        start = position + len(member.before)
        inner.append(first + (passed + 2) if member.form == BARE else first)
        passed += 2 + member.quotes
        if member.form == TEXT:
            position = buffer.quotes[first + (passed - 1)]
            fits &= start <= position
        else:
            if i + 1 < len(shape.members):
                position = buffer.quotes[first + passed] - shape.members[i + 1].before.index(b'"')
            else:
                position = objects.end - len(shape.closing)
            fits &= start < position
            position = np.maximum(position, 0)
        values.append(Spans(start, position))
    fits &= position + len(shape.closing) == objects.end
    return fits & buffer.starts_with(position, shape.closing), values, inner
