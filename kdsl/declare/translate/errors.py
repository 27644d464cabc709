"""What cannot be turned into Spark SQL, with its place in the text."""

from __future__ import annotations

from textwrap import indent

from kdsl.declare.sql.source import Source
from kdsl.errors import TextError


class UntranslatableError(TextError):
    """A Flink SQL expression or query has no equal in Spark SQL, or is wrong.

    Attributes:
        name: The function, clause or name that cannot be translated, as it stands in the text.
        reason: Why it cannot be, in a sentence.
        fix: What to write instead.
        text: The whole text that was translated.
        position: The index of the name in the text, from 0.
    """

    def __init__(self, name: str, reason: str, fix: str, text: str = "", position: int = 0) -> None:
        super().__init__(reason, text, position)
        self.name, self.fix = name, fix

    def __reduce__(self) -> tuple[object, ...]:
        return (UntranslatableError, (self.name, self.reason, self.fix, self.text, self.position))

    @property
    def message(self) -> str:
        """Why it cannot be translated; the same as ``reason``."""
        return self.reason

    def __str__(self) -> str:
        there = self.text[self.position : self.position + len(self.name)]
        where = Source(self.text).where(self.position, len(there) if there.upper() == self.name.upper() else 1)
        return f"{self.place}: {self.reason}; {self.fix}\n{indent(where.excerpt or '', '  ', lambda _: True)}"
