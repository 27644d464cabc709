"""Flink SQL cut into tokens."""

from __future__ import annotations

import re
from typing import Literal

import attrs

from kdsl.declare.translate.errors import UntranslatableError

Kind = Literal["word", "quoted", "string", "bytes", "number", "sign", "end"]

_TOKEN = re.compile(
    r"""
      (?P<blank>\s+|--[^\n]*|/\*(?!\+).*?\*/)
    | (?P<unicode>[Uu]&'(?:[^']|'')*')
    | (?P<bytes>[Xx]'[^']*')
    | (?P<string>(?:_[A-Za-z][\w-]*)?'(?:[^']|'')*')
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[Ee][+-]?\d+)?)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<sign><>|!=|<=|>=|\|\||=>|/\*\+|\*/|[-+*/%()\[\],.<>=?:;{}])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{4})|\+([0-9a-fA-F]{6})|\\)")


@attrs.frozen
class Token:
    """A token: its kind, its text as it stands there, what it means, and where it begins and ends."""

    kind: Kind
    text: str
    value: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """A word in capitals, or a sign; empty for what cannot be a keyword."""
        return self.text.upper() if self.kind in ("word", "sign") else ""


def tokens(text: str) -> list[Token]:
    """The tokens of a text, with one of kind ``end`` behind them.

    Raises:
        UntranslatableError: Something is no token, as a quote that is never closed.
    """
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            sign = text[at]
            what = "is never closed" if sign in "'`" or text.startswith("/*", at) else "has no meaning here"
            raise UntranslatableError(sign, f"{sign!r} {what}", "correct the text", text, at)
        kind, shown, start, at = match.lastgroup, match[0], at, match.end()
        if kind == "blank":
            continue
        if kind == "unicode":
            found.append(Token("string", shown, _unicode(shown, text, start), start, at))
        elif kind == "string":
            found.append(Token("string", shown, shown[shown.index("'") + 1 : -1].replace("''", "'"), start, at))
        elif kind == "bytes":
            found.append(Token("bytes", shown, _hex(shown, text, start), start, at))
        elif kind == "quoted":
            found.append(Token("quoted", shown, shown[1:-1].replace("``", "`"), start, at))
        else:
            found.append(Token(kind, shown, shown, start, at))  # type: ignore[arg-type]
    return [*found, Token("end", "", "", len(text), len(text))]


def _hex(shown: str, text: str, start: int) -> str:
    digits = shown[2:-1]
    if len(digits) % 2 or not re.fullmatch(r"[0-9a-fA-F]*", digits):
        raise UntranslatableError("X", f"{shown} is no even number of hexadecimal digits", "write X'0AFF'", text, start)
    return digits


def _unicode(shown: str, text: str, start: int) -> str:
    def sign(match: re.Match[str]) -> str:
        if not (digits := match[1] or match[2]):
            return "\\"
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            reason, fix = f"{match[0]} is no character of Unicode", "write the number of one, up to 10FFFF"
            raise UntranslatableError(shown, reason, fix, text, start)
        return chr(code)

    return _ESCAPE.sub(sign, shown[3:-1].replace("''", "'"))
