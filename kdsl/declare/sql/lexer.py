"""Words of SQL: names, texts, numbers and signs with their places; comments and blanks stand between them.

Nothing fails here. What is no SQL becomes a token of the kind ``broken``, which a reader tells when it comes to it.
"""

from __future__ import annotations

import re
from typing import Literal

import attrs

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
    """A word of a script.

    Attributes:
        kind: What it is.
        text: As it is written, quotes and all.
        start: Its place in the script, from 0.
        reason: Of something broken, what is wrong with it.
        fix: Of something broken, what to write instead.
    """

    kind: Kind
    text: str
    start: int
    reason: str = ""
    fix: str = ""

    @property
    def end(self) -> int:
        """The place after it."""
        return self.start + len(self.text)

    @property
    def upper(self) -> str:
        """A word or a sign as keywords are compared; nothing else is a keyword."""
        return self.text.upper() if self.kind in ("word", "sign") else ""

    @property
    def value(self) -> str:
        """What a name or a text says, without its quotes; of bytes the hexadecimal digits."""
        match self.kind:
            case "quoted":
                return self.text[1:-1].replace("``", "`")
            case "text":
                said = self.text[self.text.index("'") + 1 : -1].replace("''", "'")
                return said if self.text[0] not in "Uu" else _UNICODE.sub(_character, said)
            case "bytes":
                return self.text[2:-1]
            case _:
                return self.text


def _code(found: re.Match[str]) -> int:
    return ord("\\") if found[1] == "\\" else int(found[1].removeprefix("+"), 16)


def _character(found: re.Match[str]) -> str:
    return chr(_code(found))


def _is_character(code: int) -> bool:
    return code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF


def tokens(text: str) -> list[Token]:
    """The tokens of a script; the last one is of the kind ``end``."""
    found: list[Token] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            found.append(_broken(text, place))
        elif match.lastgroup != "blank":
            found.append(_sound(Token(match.lastgroup, match[0], place)))  # type: ignore[arg-type]
        place = found[-1].end if match is None else match.end()
    found.append(Token("end", "", len(text)))
    return found


def _sound(token: Token) -> Token:
    """A token; a text with the number of no character is broken."""
    if token.kind != "text" or token.text[0] not in "Uu":
        return token
    wrong = next((found[0] for found in _UNICODE.finditer(token.text) if not _is_character(_code(found))), None)
    if wrong is None:
        return token
    fix = "write the number of one, up to 10FFFF"
    return Token("broken", token.text, token.start, f"{wrong} is no character of Unicode", fix)


def _broken(text: str, place: int) -> Token:
    """A token of what no other rule takes, with the reason."""

    def rest(reason: str, fix: str) -> Token:
        return Token("broken", text[place:], place, reason, fix)

    bytes_ = re.compile(r"[Xx]'[^'\n]*'").match(text, place)
    if bytes_:
        reason = f"{bytes_[0]} is no even number of hexadecimal digits"
        return Token("broken", bytes_[0], place, reason, "write X'0AFF'")
    if re.compile(r"(?:[Uu]&|[Xx]|_[A-Za-z][\w-]*)?'").match(text, place):
        return rest("a text begins here that does not end", "close it with a quote; a quote inside it is doubled")
    if text[place] == "`":
        return rest("a name in back-quotes begins here that does not end", "close it with a back-quote")
    if text.startswith("/*", place):
        return rest("a comment begins here that does not end", "close it with */")
    if text[place] == '"':
        end = text.find('"', place + 1)
        whole = text[place : end + 1] if end > 0 and "\n" not in text[place:end] else '"'
        fix = "write a text as 'a text' and a name as `a name`"
        return Token("broken", whole, place, "double quotes have no meaning in this SQL", fix)
    if text[place] in _CURLY:
        return Token("broken", text[place], place, f"{text[place]} is no quote of SQL", "write the straight quote '")
    number = re.compile(r"\d\w*").match(text, place)
    if number:
        fix = "put a name that begins with a digit in back-quotes"
        return Token("broken", number[0], place, f"{number[0]!r} is neither a number nor a name", fix)
    shown = text[place] if text[place].isprintable() else f"U+{ord(text[place]):04X}"
    return Token("broken", text[place], place, f"the character {shown} has no meaning here", "remove it")
