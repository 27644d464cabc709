"""The text of an SQL script, and places in it: line, column, the line with a caret, and no secret."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property

import attrs

from kdsl.client.hiding import USER_INFO, holds_secret, is_secret
from kdsl.declare.sql.lexer import Token, tokens
from kdsl.errors import WIDEST, Where, excerpt
from kdsl.secrets import HIDDEN, is_reference

_NAME = re.compile(r"[\w.-]+")


@attrs.frozen(eq=False)
class Source:
    """A script.

    Attributes:
        text: Its text.
        file: The name of its file, for messages.
    """

    text: str = attrs.field(repr=False)
    file: str | None = None

    @cached_property
    def tokens(self) -> list[Token]:
        """The tokens of the text."""
        return tokens(self.text)

    @cached_property
    def _lines(self) -> list[int]:
        """Where each line begins."""
        return [0, *(found.end() for found in re.finditer("\n", self.text))]

    @cached_property
    def _hidden(self) -> list[tuple[int, int]]:
        """The parts of the text that may hold a secret, in their order.

        In a sound statement that is the value of an option. Where quotes are broken, nobody knows where such a value
        ends, so then the rest of the line is hidden.
        """
        found = [(u.start("password"), u.end("password")) for u in USER_INFO.finditer(self.text)
                 if not is_reference(u["password"])]  # fmt: skip
        safe: list[tuple[int, int]] = []
        before = [None, None, *self.tokens]
        for first, second, token in zip(before, before[1:], self.tokens, strict=False):
            if token.kind not in ("text", "broken"):
                continue
            key = first if second is not None and second.text == "=" else second
            if key is None or key.kind != "text" or not is_secret(key.value):
                continue
            if token.kind == "text":
                safe += [(key.start, key.end), (token.start, token.end)]
            if token.kind == "broken" or holds_secret(key.value, token.value):
                found.append((token.start + 1, token.end - (token.kind == "text")))
        named = (name for name in _NAME.finditer(self.text) if is_secret(name[0]))
        unsafe = (name.end() for name in named if not any(start <= name.start() < end for start, end in safe))
        return sorted([*found, *((end, self._line_end(end)) for end in unsafe)])

    def _line_end(self, place: int) -> int:
        end = self.text.find("\n", place)
        return len(self.text) if end < 0 else end

    def place(self, index: int) -> tuple[int, int]:
        """Line and column of a place, from 1."""
        line = bisect_right(self._lines, index)
        return line, index - self._lines[line - 1] + 1

    def where(self, start: int, length: int = 1, *, table: str | None = None, column: str | None = None) -> Where:
        """A place of the script.

        Args:
            start: Where it begins.
            length: How many characters are meant.
            table: The table that is declared there.
            column: The column that is declared there.
        """
        line, position = self.place(start)
        return Where(
            table=table,
            column=column,
            file=self.file,
            line=line,
            position=position,
            excerpt=excerpt(self.text, start, length, self._hidden, HIDDEN),
        )

    def shown(self, token: Token) -> str:
        """A token as a message may show it."""
        if any(start < token.end and token.start < end for start, end in self._hidden):
            return "something that may be a secret"
        if token.kind == "end":
            return "the end of the script"
        return repr(token.text) if len(token.text) <= WIDEST // 2 else repr(token.text[: WIDEST // 2] + "…")
