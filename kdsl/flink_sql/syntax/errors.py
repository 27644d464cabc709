"""The error for SQL that cannot be translated to Spark SQL, with its position."""

from __future__ import annotations

from textwrap import indent

from kdsl.errors import TextError
from kdsl.flink_sql.syntax.script_text import ScriptText


class UntranslatableError(TextError):
    """A Flink SQL expression or query is wrong, or has no equivalent in Spark SQL.

    Attributes:
        name: The function, clause or name that cannot be translated, as it is written.
        reason: Why, in a sentence.
        fix: What to write instead.
        text: The whole expression or query.
        position: The position of the name in it, from 0.
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
        where = ScriptText(self.text).where(self.position, len(there) if there.upper() == self.name.upper() else 1)
        return f"{self.location}: {self.reason}; {self.fix}\n{indent(where.excerpt or '', '  ', lambda _: True)}"


def nesting_error(name: str, text: str, position: int) -> UntranslatableError:
    """Create the error for SQL that is nested more deeply than Python's stack allows."""
    reason = "this is nested too deeply"
    return UntranslatableError(
        name, reason, "reduce the nesting, or write it as several columns or views", text, position
    )
