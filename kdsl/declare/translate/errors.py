"""What cannot be turned into Spark SQL, with its place in the text."""

from __future__ import annotations

from textwrap import indent

from kdsl.declare.ddl.source import Source
from kdsl.errors import KdslError, line_and_column


class UntranslatableError(KdslError, ValueError):
    """A Flink SQL expression or query has no equal in Spark SQL, or is wrong.

    Attributes:
        name: The function, clause or name that cannot be translated, as it stands in the text.
        reason: Why it cannot be, in a sentence.
        fix: What to write instead.
        text: The whole text that was translated.
        position: The index of the name in the text, from 0.
    """

    def __init__(self, name: str, reason: str, fix: str, text: str = "", position: int = 0) -> None:
        super().__init__(reason)
        self.name, self.reason, self.fix, self.text, self.position = name, reason, fix, text, position

    def __reduce__(self) -> tuple[object, ...]:
        return (UntranslatableError, (self.name, self.reason, self.fix, self.text, self.position))

    @property
    def message(self) -> str:
        """Why it cannot be translated; the same as ``reason``."""
        return self.reason

    @property
    def line(self) -> int:
        """The line of the position in the text, from 1."""
        return line_and_column(self.text, self.position)[0]

    @property
    def column(self) -> int:
        """The column of the position in its line, from 1."""
        return line_and_column(self.text, self.position)[1]

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}" if "\n" in self.text else f"column {self.column}"
        there = self.text[self.position : self.position + len(self.name)]
        where = Source(self.text).where(self.position, len(there) if there.upper() == self.name.upper() else 1)
        return f"{place}: {self.reason}; {self.fix}\n{indent(where.excerpt or '', '  ', lambda _: True)}"
