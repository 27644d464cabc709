"""A place in tokens, and how readers go on from it."""

from __future__ import annotations

from collections.abc import Sequence

from kdsl.declare.sql.lexer import Token


class Cursor:
    """Tokens and a place in them.

    Attributes:
        tokens: The tokens; the last one is of the kind ``end``.
        index: The place, from 0.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.index = 0

    @property
    def token(self) -> Token:
        """The token at the place."""
        return self.tokens[self.index]

    @property
    def last(self) -> Token:
        """The token before the place; at the beginning the first one."""
        return self.tokens[max(self.index - 1, 0)]

    def ahead(self, count: int = 1) -> Token:
        """A token further on; the last one is repeated for ever."""
        return self.tokens[min(self.index + count, len(self.tokens) - 1)]

    def take(self) -> Token:
        """The token at the place, which moves on."""
        token = self.token
        self.index = min(self.index + 1, len(self.tokens) - 1)
        return token

    def at(self, *words: str) -> bool:
        """Whether these keywords or signs stand here."""
        return all(self.ahead(i).upper == word for i, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Take these keywords or signs if they stand here."""
        if not self.at(*words):
            return False
        for _ in words:
            self.take()
        return True
