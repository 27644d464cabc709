"""Words of an SQL script: names, texts, numbers and signs with their places; comments and blanks stand between them.

Nothing fails here. What is no SQL becomes a token of the kind ``broken``, which the parser tells when it comes to it.
"""

from __future__ import annotations

import re
from typing import Literal

import attrs

Kind = Literal["word", "quoted", "text", "number", "sign", "dots", "hint", "broken", "end"]

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+|--[^\n]*|/\*(?!\+)(?:[^*]|\*(?!/))*\*/)
  | (?P<hint>/\*\+(?:[^*]|\*(?!/))*\*/)
  | (?P<text>(?:[Uu]&)?'(?:[^']|'')*')
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<word>[^\W\d][\w$]*)
  | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w))
  | (?P<dots>\.\.\.|…)
  | (?P<sign>(?!/\*)[-+*/%=<>!|&^~?:.,;()\[\]{}\#@])
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
        """What a name or a text says, without its quotes."""
        match self.kind:
            case "quoted":
                return self.text[1:-1].replace("``", "`")
            case "text" if self.text[0] in "Uu":
                return _UNICODE.sub(_character, self.text[3:-1].replace("''", "'"))
            case "text":
                return self.text[1:-1].replace("''", "'")
            case _:
                return self.text


def _character(found: re.Match[str]) -> str:
    if found[1] == "\\":
        return "\\"
    code = int(found[1].removeprefix("+"), 16)
    return chr(code) if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else found[0]


def tokens(text: str) -> list[Token]:
    """The tokens of a script; the last one is of the kind ``end``."""
    found: list[Token] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            token = _broken(text, place)
            found.append(token)
            place = token.end
            continue
        if match.lastgroup != "blank":
            found.append(Token(match.lastgroup, match[0], place))  # type: ignore[arg-type]
        place = match.end()
    found.append(Token("end", "", len(text)))
    return found


def _broken(text: str, place: int) -> Token:
    """A token of what no other rule takes, with the reason."""

    def rest(reason: str, fix: str) -> Token:
        return Token("broken", text[place:], place, reason, fix)

    if text[place] == "'" or text[place : place + 3].upper() == "U&'":
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
