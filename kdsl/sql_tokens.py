"""SQL as tokens with their positions, and a cursor over them, which reads types, statements, expressions and queries.

Tokenizing never fails. What is not SQL becomes a token of the kind ``broken``, which a reader reports when it reaches
it. Comments and whitespace make no tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import attrs

from kdsl.own_columns import explain_reserved, is_reserved

Kind = Literal["word", "quoted", "text", "bytes", "number", "sign", "dots", "hint", "broken", "end"]

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+|--[^\n]*|/\*(?!\+)(?:[^*]|\*(?!/))*\*/)
  | (?P<hint>/\*\+(?:[^*]|\*(?!/))*\*/)
  | (?P<bytes>[Xx]'(?:[0-9a-fA-F]{2})*')
  | (?P<text>(?:[Uu]&|_[A-Za-z][\w-]*)?'(?:[^']|'')*')
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<word>(?![Xx]')[^\W\d][\w$]*)
  | (?P<number>(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
  | (?P<dots>\.\.\.|…)
  | (?P<sign><>|!=|<=|>=|=>|\|\||(?!/\*)[-+*/%=<>!|&^~?:.,;()\[\]{}\#@])
    """,
    re.VERBOSE,
)
_CURLY = "‘’“”´"  # noqa: RUF001  # what text editors make of quotes
_UNICODE = re.compile(r"\\(\\|\+[0-9a-fA-F]{6}|[0-9a-fA-F]{4})")


@attrs.frozen
class Token:
    """A name, a string, a number, a sign or something else of an SQL text.

    Attributes:
        kind: What it is.
        text: As it is written, with its quotes.
        start: The position of its first character, from 0.
        reason: For a broken token, what is wrong with it.
        fix: For a broken token, what to write instead.
    """

    kind: Kind
    text: str
    start: int
    reason: str = ""
    fix: str = ""

    @property
    def end(self) -> int:
        """The position after its last character."""
        return self.start + len(self.text)

    @property
    def upper(self) -> str:
        """A word or a sign in capitals, to compare it with keywords; empty for any other token."""
        return self.text.upper() if self.kind in ("word", "sign") else ""

    @property
    def value(self) -> str:
        """A name or a string without its quotes and with its escapes resolved; for bytes the hexadecimal digits.

        Any other token is returned as it is written.
        """
        match self.kind:
            case "quoted":
                return self.text[1:-1].replace("``", "`")
            case "text":
                content = self.text[self.text.index("'") + 1 : -1].replace("''", "'")
                return content if self.text[0] not in "Uu" else _UNICODE.sub(_unescape, content)
            case "bytes":
                return self.text[2:-1]
            case _:
                return self.text


def _code_point(escape: re.Match[str]) -> int:
    """Return the code that a Unicode escape names; a backslash for two of them."""
    return ord("\\") if escape[1] == "\\" else int(escape[1].removeprefix("+"), 16)


def _unescape(escape: re.Match[str]) -> str:
    """Return the character that a Unicode escape names; ValueError for a code above 10FFFF."""
    return chr(_code_point(escape))


def _is_character(code: int) -> bool:
    """Whether a code is that of a Unicode character, and not a surrogate."""
    return code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF


def tokenize(text: str, *, allow_reserved: bool = False) -> list[Token]:
    """Split an SQL text into tokens; the last one is of the kind ``end``.

    Comments and whitespace are skipped. What is not SQL becomes tokens of the kind ``broken``; no error is raised.

    Args:
        text: The text.
        allow_reserved: Whether names may be those of kdsl's own columns; otherwise they are broken tokens.
    """
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            tokens.append(_broken_token(text, position))
        elif match.lastgroup != "blank":
            tokens.append(_check_token(Token(match.lastgroup, match[0], position), allow_reserved=allow_reserved))  # type: ignore[arg-type]
        position = tokens[-1].end if match is None else match.end()
    tokens.append(Token("end", "", len(text)))
    return tokens


def _check_token(token: Token, *, allow_reserved: bool) -> Token:
    """Return the token, or a broken one where it is a reserved name, or a Unicode escape in it names no character."""
    if token.kind == "quoted" and not allow_reserved and is_reserved(token.text):
        return Token("broken", token.text, token.start, explain_reserved(token.value), "choose another name")
    if token.kind != "text" or token.text[0] not in "Uu":
        return token
    wrong = next(
        (escape[0] for escape in _UNICODE.finditer(token.text) if not _is_character(_code_point(escape))), None
    )
    if wrong is None:
        return token
    fix = "write the number of one, up to 10FFFF"
    return Token("broken", token.text, token.start, f"{wrong} is not a Unicode character", fix)


def _broken_token(text: str, position: int) -> Token:
    """Return the token of something that is not SQL at a position, with the reason and the fix.

    A string, a name in back-quotes or a comment without an end extends to the end of the text.
    """

    def rest(reason: str, fix: str) -> Token:
        return Token("broken", text[position:], position, reason, fix)

    bytes_ = re.compile(r"[Xx]'[^'\n]*'").match(text, position)
    if bytes_:
        reason = f"{bytes_[0]} does not have an even number of hexadecimal digits"
        return Token("broken", bytes_[0], position, reason, "write X'0AFF'")
    if re.compile(r"(?:[Uu]&|[Xx]|_[A-Za-z][\w-]*)?'").match(text, position):
        return rest("a string begins here that does not end", "close it with a quote; a quote inside it is doubled")
    if text[position] == "`":
        return rest("a name in back-quotes begins here that does not end", "close it with a back-quote")
    if text.startswith("/*", position):
        return rest("a comment begins here that does not end", "close it with */")
    if text[position] == '"':
        end = text.find('"', position + 1)
        whole = text[position : end + 1] if end > 0 and "\n" not in text[position:end] else '"'
        fix = "write a string in single quotes, as 'value', and a name in back-quotes, as `name`"
        return Token("broken", whole, position, "double quotes have no meaning in this SQL", fix)
    if text[position] in _CURLY:
        return Token(
            "broken", text[position], position, f"{text[position]} is not a quote of SQL", "write the straight quote '"
        )
    number = re.compile(r"\d\w*").match(text, position)
    if number:
        fix = "put a name that begins with a digit in back-quotes"
        return Token("broken", number[0], position, f"{number[0]!r} is neither a number nor a name", fix)
    shown = text[position] if text[position].isprintable() else f"U+{ord(text[position]):04X}"
    return Token("broken", text[position], position, f"the character {shown} has no meaning here", "remove it")


class Cursor:
    """Tokens and the index of the next one.

    Attributes:
        tokens: The tokens; the last one is of the kind ``end``.
        index: The index of the next token, from 0.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens: Sequence[Token] = tokens
        self.index = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.index]

    @property
    def previous(self) -> Token:
        """The token before the next one; at the beginning the first one."""
        return self.tokens[max(self.index - 1, 0)]

    def peek(self, count: int = 1) -> Token:
        """Return the token that is ``count`` places after the next one, without taking it; at most the last one."""
        return self.tokens[min(self.index + count, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Return the next token and go on to the one after it; the last one stays."""
        token = self.token
        self.index = min(self.index + 1, len(self.tokens) - 1)
        return token

    def at(self, *words: str) -> bool:
        """Whether these keywords or signs come next, in order; words are compared in capitals."""
        return all(self.peek(i).upper == word for i, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Take these keywords or signs if they all come next, in order; return whether they did."""
        if not self.at(*words):
            return False
        for _ in words:
            self.take()
        return True

    def split_sign(self) -> None:
        """Replace the sign at the cursor, in a copy of the tokens, by a token for each character: ``<>`` in a type."""
        token = self.token
        signs = (Token("sign", sign, token.start + i) for i, sign in enumerate(token.text))
        self.tokens = [*self.tokens[: self.index], *signs, *self.tokens[self.index + 1 :]]
