"""Parses the bytes of a message as a JSON document, with the encodings, grammar and limits of Flink's reader.

Numbers keep their spelling, objects keep the last of equal names, raw control characters are allowed in strings, and
everything after the document is ignored unless the caller says otherwise.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from kdsl.shown_values import show_value

MAX_DEPTH = 1000
MAX_NUMBER = 1000
_BLANKS = " \t\n\r"
_DEEP = 400  # with fewer brackets, no recursion limit is near
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_BE, "utf-16-be"), (codecs.BOM_UTF16_LE, "utf-16-le"))
_WIDE_MARKS = ((codecs.BOM_UTF32_BE, "utf-32-be"), (codecs.BOM_UTF32_LE, "utf-32-le"))


ESCAPES = {c: f"\\u{c:04X}" for c in range(0x20)} | {ord(k): v for k, v in {
    '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"
}.items()}  # fmt: skip


class Integer(str):
    """A JSON number without fraction and exponent, as it was spelled."""

    __slots__ = ()


class Fractional(str):
    """A JSON number with a fraction or an exponent, as it was spelled."""

    __slots__ = ()


def to_number(value: Any) -> Any:
    """The number of Python that a JSON number, as it was spelled, stands for; other values stay."""
    match value:
        case Integer():
            return int(value)
        case Fractional():
            return float(value)
        case _:
            return value


class Empty(ValueError):  # noqa: N818 - not always an error
    """There is no document: the message is empty or contains only blanks."""


def _refuse_constant(name: str) -> NoReturn:
    """Raise the error of NaN and Infinity, which are not JSON."""
    raise ValueError(f"not JSON: {name} is not a JSON value")


_scan = json.JSONDecoder(
    strict=False, parse_int=Integer, parse_float=Fractional, parse_constant=_refuse_constant
).raw_decode


def parse(message: bytes, *, alone: bool = False) -> Any:
    """Read the first JSON document of a message.

    Args:
        message: The message.
        alone: Whether it is an error if something follows the document.

    Returns:
        dict, list, str, bool, None, and `Integer` and `Fractional` for numbers.
    """
    value, text, end = _parse(message)
    if alone:
        _check_end(text, end)
    return value


def parse_only(message: bytes) -> Any:
    """Read the document of a message that contains nothing else, and no string that UTF-8 cannot represent."""
    value, text, end = _parse(message)
    _check_end(text, end)
    if _HALF.search(text):
        check_surrogates(value)
    return value


def _check_end(text: str, end: int) -> None:
    """Raise `ValueError` if something but blanks follows the document that ends there."""
    if text[end:].strip(_BLANKS):
        raise ValueError(f"something follows the document, at character {end + 1}")


def check_surrogates(value: Any) -> None:
    """Raise `ValueError` if a string inside a document, or a key, has half of a surrogate pair."""
    for text in _strings_in(value):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the string {show_value(ascii(text))} has half of a surrogate pair") from None


def _strings_in(value: Any) -> Iterator[str]:
    """All strings of a document: values, keys, and numbers as they are spelled; in no particular order."""
    left = [value]
    while left:
        match left.pop():
            case str() as text:
                yield text
            case list() as elements:
                left += elements
            case dict() as members:
                yield from members
                left += members.values()


def _parse(message: bytes) -> tuple[Any, str, int]:
    """Return the first document of a message, the whole text, and the position in the text after the document."""
    text, broken = _decode_text(message)
    start = 0
    while text[start : start + 1] and text[start] in _BLANKS:
        start += 1
    if start == len(text):
        raise Empty(_explain_nothing(message, text))
    deep = len(message) > 2 * _DEEP and message.count(b"[") + message.count(b"{") > _DEEP
    try:
        value, end = _scan_deep(text, start) if deep else _scan(text, start)
    except RecursionError:
        raise ValueError("objects and arrays are nested deeper than this interpreter allows") from None
    except json.JSONDecodeError as e:
        position = "at the end" if e.pos >= len(text) else f"at character {e.pos + 1}"
        what = f"{e.msg[0].lower()}{e.msg[1:]}".removesuffix(" at")
        raise ValueError(f"not JSON: {what} {position}") from None
    if broken and any("\udc80" <= c <= "\udcff" for c in text[start:end]):
        raise ValueError(f"not JSON: {broken}")
    return value, text, end


def _explain_nothing(message: bytes, text: str) -> str:
    """Say what a message without a document has, whose text has only blanks or is empty."""
    if text:
        return "the message contains only blanks"
    return "the message contains only a byte order mark" if message else "the message is empty"


def _decode_text(message: bytes) -> tuple[str, str]:
    """Decode a message; also returns why it is not UTF-8, otherwise "". Bytes that are not UTF-8 become surrogates."""
    encoding, skipped = ("utf-8", 0) if message[:1] == b"{" and message[1:2] != b"\0" else _detect_encoding(message)
    data = message[skipped:]
    try:
        return data.decode(encoding), ""
    except UnicodeDecodeError as e:
        wrong = f"byte {skipped + e.start + 1} is not {encoding.upper()} ({e.reason})"
        if encoding != "utf-8":
            raise ValueError(f"not JSON: {wrong}") from None
        return data.decode(encoding, "surrogateescape"), wrong


def _detect_encoding(message: bytes) -> tuple[str, int]:
    """The encoding that the first bytes indicate, otherwise UTF-8, and the length of a byte order mark, or 0."""
    for mark, encoding in (*_WIDE_MARKS, *_MARKS):
        if message.startswith(mark):
            return encoding, len(mark)
    zeros = tuple(b == 0 for b in message[:4])
    if zeros == (True, True, True, False):
        return "utf-32-be", 0
    if zeros == (False, True, True, True):
        return "utf-32-le", 0
    if zeros[:2] == (True, False):
        return "utf-16-be", 0
    return ("utf-16-le", 0) if zeros[:2] == (False, True) else ("utf-8", 0)


def _check_depth(text: str, start: int) -> None:
    """Check that objects and arrays of the document at a position are not nested deeper than `MAX_DEPTH`."""
    depth, in_text, escaped = 0, False, False
    for c in text[start:]:
        if in_text:
            if escaped:
                escaped = False
            elif c == "\\":
                escaped = True
            elif c == '"':
                in_text = False
        elif c == '"':
            in_text = True
        elif c in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"objects and arrays are nested deeper than {MAX_DEPTH} levels")
        elif c in "]}":
            depth -= 1
            if depth <= 0:
                return


def _scan_deep(text: str, start: int) -> tuple[Any, int]:
    """Parse a deeply nested document with a raised recursion limit; return it, and the position after it."""
    _check_depth(text, start)
    with Recursion():
        return _scan(text, start)


class Recursion:
    """Raises the recursion limit for values as deep as `MAX_DEPTH`."""

    def __enter__(self) -> None:
        """Raise the recursion limit of the interpreter."""
        self.before = sys.getrecursionlimit()
        sys.setrecursionlimit(self.before + 8 * MAX_DEPTH)

    def __exit__(self, *_: object) -> None:
        """Restore the recursion limit; errors are passed on."""
        sys.setrecursionlimit(self.before)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot represent, by ``?``, as in Java."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def quote(text: str) -> str:
    """A string as a JSON string, with only the escapes that JSON requires; lone surrogates become ``?``."""
    return f'"{replace_surrogates(text).translate(ESCAPES)}"'
