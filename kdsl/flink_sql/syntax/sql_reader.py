"""Reads the tokens of SQL one by one: words, names, types and units; what is not expected is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.sql_tokens import Cursor, Token, tokenize
from kdsl.types import model as t
from kdsl.types.parse import TypeReader, TypeSyntaxError

# Words that end an expression or begin a clause; as names they need back-ticks.
RESERVED = frozenset(
    [
        *("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "UNION", "INTERSECT", "EXCEPT", "MINUS"),
        *("LIMIT", "FETCH", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "ON", "USING", "AS"),
        *("AND", "OR", "NOT", "CASE", "WHEN", "THEN", "ELSE", "END", "IN", "BETWEEN", "LIKE", "SIMILAR", "IS"),
        *("NULL", "TRUE", "FALSE", "UNKNOWN", "INTERVAL", "CAST", "DISTINCT", "WITH", "VALUES", "EXISTS"),
        *("ESCAPE", "OVER", "WINDOW", "TABLE", "LATERAL", "SET", "INSERT", "INTO", "CREATE", "FOR", "QUALIFY"),
        *("MATCH_RECOGNIZE", "TABLESAMPLE"),
    ]
)
_CORRECT = "correct the SQL at this position"


class SqlReader(Cursor):
    """Reads the tokens of SQL.

    A method that reads something takes its tokens, and the next one comes after them.
    """

    def __init__(self, text: str) -> None:
        """Split the text into tokens; raise UntranslatableError if one of them is broken."""
        super().__init__(tokenize(text))
        self.text = text
        for token in self.tokens:
            if token.kind == "broken":
                raise UntranslatableError(token.text, token.reason, token.fix, text, token.start)

    def expect(self, word: str) -> Token:
        """Take a keyword or sign, and return its token."""
        if not self.at(word):
            self.fail_unexpected(repr(word))
        return self.take()

    def fail(self, reason: str, token: Token | None = None, fix: str = _CORRECT) -> NoReturn:
        """Raise an UntranslatableError for a token, by default the next one, that is not allowed here."""
        token = token or self.token
        raise UntranslatableError(token.text, reason, fix, self.text, token.start)

    def fail_unexpected(self, expected: str, token: Token | None = None, fix: str = _CORRECT) -> NoReturn:
        """Raise an UntranslatableError for a token, by default the next one, in place of what is ``expected``."""
        token = token or self.token
        actual = "the text ends" if token.kind == "end" else f"found {token.text!r}"
        self.fail(f"expected {expected}, {actual}", token, fix)

    def expect_end(self) -> None:
        """Check that the text ends here."""
        if self.token.kind != "end":
            self.fail_unexpected("the end of the expression")

    def read_name(self) -> str:
        """Read a name, in back-ticks or not."""
        token = self.token
        if token.kind == "quoted":
            return self.take().value
        if token.kind == "word" and token.upper not in RESERVED:
            return self.take().value
        fix = f"write `{token.text}` in back-ticks" if token.kind == "word" else "write a name"
        return self.fail_unexpected("a name", fix=fix)

    def read_list(self, read: Callable[[], Any]) -> tuple[Any, ...]:
        """Call ``read`` one or more times, with commas between, and return the results; raise what ``read`` raises."""
        items = [read()]
        while self.accept(","):
            items.append(read())
        return tuple(items)

    def read_type(self, *, nullability: bool = True) -> t.DataType:
        """Read a column type; ``NULL`` or ``NOT NULL`` may follow it if ``nullability`` is true."""
        try:
            return TypeReader(self, self.text).read(nullability=nullability)
        except TypeSyntaxError as e:
            wrong = self.text[e.position : e.position + e.length]
            fix = "write a type of Flink SQL, as BIGINT, STRING or TIMESTAMP(3)"
            raise UntranslatableError(wrong, e.reason, fix, self.text, e.position) from None

    def read_unit(self, valid: tuple[str, ...]) -> str:
        """Read a unit of time, also in the plural and with a precision, which is ignored."""
        token = self.token
        word = token.upper
        if word not in valid and word.removesuffix("S") in valid:
            word = word.removesuffix("S")
        if word not in valid:
            self.fail_unexpected("a unit of time", fix=f"use one of {', '.join(valid)}")
        self.take()
        if self.accept("("):  # the precision limits the digits only
            self.take()
            if self.accept(","):
                self.take()
            self.expect(")")
        return word
