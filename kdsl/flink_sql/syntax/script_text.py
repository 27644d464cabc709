"""The text of an SQL script, and locations in it: line, column, and an excerpt with a caret and without secrets."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property

import attrs

from kdsl.errors import WIDEST, Where, excerpt
from kdsl.secrets import HIDDEN
from kdsl.secrets.hiding import contains_secret, find_secrets_in_addresses, is_secret
from kdsl.sql_tokens import Token, tokenize

_NAME = re.compile(r"[\w.-]+")


@attrs.frozen(eq=False)
class ScriptText:
    """An SQL script as a string.

    Attributes:
        text: The script.
        file: The name of its file, for messages.
    """

    text: str = attrs.field(repr=False)
    file: str | None = None

    @cached_property
    def tokens(self) -> list[Token]:
        """The tokens of the text."""
        return tokenize(self.text)

    @cached_property
    def _lines(self) -> list[int]:
        """The position at which each line begins."""
        return [0, *(newline.end() for newline in re.finditer("\n", self.text))]

    @cached_property
    def _secret_spans(self) -> list[tuple[int, int]]:
        """The parts of the text that may be a secret, in order, as start and end positions.

        In a correct statement that is the value of an option, or a password in an address. Where quotes are missing,
        the end of such a value is unknown, so the rest of the line counts as secret.
        """
        spans = find_secrets_in_addresses(self.text)
        safe: list[tuple[int, int]] = []
        before = [None, None, *self.tokens]
        for first, second, token, following in zip(
            before, before[1:], self.tokens, [*self.tokens[1:], *self.tokens[-1:]], strict=False
        ):
            if token.kind not in ("text", "broken"):
                continue
            key = first if second is not None and second.text == "=" else second
            if key is None or key.kind != "text" or not is_secret(key.value):
                continue
            if following.text not in (",", ")", ";"):  # a quote within the secret ends its quotation too early
                spans.append((token.start + 1, self._line_end(token.start)))
            if token.kind == "text":
                safe += [(key.start, key.end), (token.start, token.end)]
            if token.kind == "broken" or contains_secret(key.value, token.value):
                spans.append((token.start + 1, token.end - (token.kind == "text")))
        named = (name for name in _NAME.finditer(self.text) if is_secret(name[0]))
        unsafe = (name.end() for name in named if not any(start <= name.start() < end for start, end in safe))
        return sorted([*spans, *((end, self._line_end(end)) for end in unsafe)])

    def _line_end(self, position: int) -> int:
        """Return the position of the end of a line, without its line break."""
        end = self.text.find("\n", position)
        return len(self.text) if end < 0 else end

    def line_and_column(self, index: int) -> tuple[int, int]:
        """Compute line and column of a position, both from 1."""
        line = bisect_right(self._lines, index)
        return line, index - self._lines[line - 1] + 1

    def where(self, start: int, length: int = 1, *, table: str | None = None, column: str | None = None) -> Where:
        """Return the location of a part of the script, with an excerpt in which secrets are hidden.

        Args:
            start: The position of its first character.
            length: The number of its characters.
            table: The table that is declared there.
            column: The column that is declared there.
        """
        line, position = self.line_and_column(start)
        return Where(
            table=table,
            column=column,
            file=self.file,
            line=line,
            position=position,
            excerpt=excerpt(self.text, start, length, self._secret_spans, HIDDEN),
        )

    def quote_token(self, token: Token) -> str:
        """Quote a token for messages, shortened; one that may be a secret is not shown."""
        if any(start < token.end and token.start < end for start, end in self._secret_spans):
            return "something that may be a secret"
        if token.kind == "end":
            return "the end of the script"
        return repr(token.text) if len(token.text) <= WIDEST // 2 else repr(token.text[: WIDEST // 2] + "…")
