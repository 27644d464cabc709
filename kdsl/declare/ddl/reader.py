"""Reads the tokens of a script: expects some, says what is wrong, goes on behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from kdsl.declare.ddl.statements import Fragment, Name
from kdsl.declare.sql.cursor import Cursor
from kdsl.declare.sql.lexer import Token
from kdsl.declare.sql.source import Source
from kdsl.errors import KdslError, Problem, nearest

NAME = "a name"
TEXT = "a text in quotes"
_OPEN, _CLOSE = "([{", ")]}"


class WrongError(KdslError):
    """A statement is wrong here; carries the problem to the place where reading can go on.

    Attributes:
        problem: What is wrong.
        fatal: Whether the whole statement is lost, so that nothing more can be told about it.
    """

    def __init__(self, problem: Problem, *, fatal: bool = False) -> None:
        super().__init__(problem)
        self.problem, self.fatal = problem, fatal


class Reader(Cursor):
    """A place in the tokens of a script.

    Attributes:
        source: The script.
        problems: What was found to be wrong.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source.tokens)
        self.source = source
        self.problems: list[Problem] = []

    def expect(self, *words: str, also: Sequence[str] = ()) -> Token:
        """Take these words, one after the other, or say what else stands here.

        Args:
            words: The words.
            also: What could stand in the place of the first word, for the message.
        """
        first = self.token
        for i, word in enumerate(words):
            if self.token.upper != word:
                self.unexpected([word, *also] if i == 0 else [word])
            self.take()
        return first

    def unexpected(self, expected: Sequence[str], *, hint: str = "", fatal: bool = False) -> NoReturn:
        """Say that something else is expected here.

        Args:
            expected: Keywords and signs in capitals, other things in words.
            hint: What to write instead, if more than one of those is known.
            fatal: See `WrongError`.
        """
        token = self.token
        if token.kind == "broken":
            self.wrong(token.reason, token.fix, token, fatal=fatal)
        if token.kind == "dots":
            message = f"{token.text} stands here for something that is left out"
            self.wrong(message, f"write {either(expected)}: this looks like a template", token, fatal=fatal)
        found = "the statement ends here" if self.ends else f"found {self.source.shown(token)}"
        near = nearest(token.text, [w for w in expected if w.isupper()]) if token.kind == "word" else ""
        message = f"{found}, where {either(expected)} is expected{near}"
        self.wrong(message, hint or self.swallowed(expected) or f"write {either(expected)}", token, fatal=fatal)

    def swallowed(self, expected: Sequence[str]) -> str:
        """A hint at a cause that lies before the place: a comment or a text that holds more than was meant."""
        before = self.tokens[self.index - 1] if self.index else None
        if before is not None and before.kind == "text" and "\n" in before.text:
            line, column = self.source.place(before.start)
            return f"look at the text that begins in line {line}, column {column}: its closing quote may be missing"
        start = before.end if before is not None else 0
        between = self.source.text[start : self.token.start]
        comment = between.rpartition("--")[2].partition("\n")[0] if "--" in between else ""
        if any(sign in comment for sign in (",", ");", "' =", "'=")) and len(comment) > len("-- a short one"):
            line, column = self.source.place(start + between.rfind("--"))
            return (
                f"write {either(expected)}; the comment that begins in line {line}, column {column} reaches to the end "
                "of its line, and SQL stands in it"
            )
        return ""

    def wrong(self, message: str, fix: str, token: Token, *, fatal: bool = False, code: str = "sql") -> NoReturn:
        """Say what is wrong with a token."""
        length = len(token.text.partition("\n")[0]) if token.kind != "broken" else 1
        start = token.start
        if token.kind == "end" and self.index:
            start = self.last.end  # not behind the blank lines at the end of a file
        raise WrongError(Problem(code, message, fix, self.source.where(start, length)), fatal=fatal)

    def note(self, code: str, message: str, fix: str, first: Token, last: Token | None = None) -> None:
        """Record a problem at a token, or from one to another, and go on."""
        end = (last or first).end
        where = self.source.where(first.start, max(end - first.start, 1))
        self.problems.append(Problem(code, message, fix, where))

    @property
    def ends(self) -> bool:
        """Whether the statement ends here."""
        return self.token.kind == "end" or self.token.text == ";"

    def name(self, what: str = NAME, also: Sequence[str] = ()) -> Token:
        """Take a name, in back-quotes or not."""
        if self.token.kind == "text":
            self.unexpected([what, *also], hint=f"write the name without quotes or in back-quotes: `{self._bare()}`")
        if self.token.kind not in ("word", "quoted"):
            self.unexpected([what, *also])
        if self.token.kind == "quoted" and not self.token.value:
            self.wrong("a name cannot be empty", "write one", self.token)
        return self.take()

    def _bare(self) -> str:
        return self.token.value if self.source.shown(self.token) == repr(self.token.text) else "name"

    def text(self, what: str = TEXT, also: Sequence[str] = ()) -> Token:
        """Take a text in quotes."""
        if self.token.kind != "text":
            hint = "put it in single quotes" if self.token.kind in ("word", "number", "quoted") else ""
            self.unexpected([what, *also], hint=hint)
        return self.take()

    def path(self) -> Name:
        """Take the name of a table: up to three names with dots between them."""
        first = last = self.name("the name of a table")
        parts = [first.value]
        while self.accept("."):
            last = self.name("a name after '.'")
            parts.append(last.value)
        if len(parts) > 3:
            message = f"the name {'.'.join(parts)} has {len(parts)} parts"
            fix = "write table, database.table or catalog.database.table"
            self.note("sql", message, fix, first, last)
        return Name(tuple(parts), self.source.where(first.start, last.end - first.start, table=parts[-1]))

    def names(self, what: str = "the name of a column") -> list[Token]:
        """Take names in brackets."""
        self.expect("(")
        found = [self.name(what)]
        while self.accept(","):
            found.append(self.name(what))
        self.expect(")", also=[","])
        return found

    def skip_to(self, *signs: str) -> None:
        """Go on to one of these signs outside of brackets, or to the end of the statement."""
        depth = 0
        while not self.ends:
            sign = self.token.text if self.token.kind == "sign" else ""
            if depth == 0 and sign in signs:
                return
            depth += (sign != "" and sign in _OPEN) - (sign != "" and sign in _CLOSE)
            if depth < 0:
                return
            self.take()

    def fragment(self, start: int, stop: int) -> Fragment:
        """The text from one token up to another, by their numbers."""
        if start == stop:
            return Fragment("", self.tokens[start].start, self.source)
        first, last = self.tokens[start], self.tokens[stop - 1]
        return Fragment(self.source.text[first.start : last.end], first.start, self.source)

    def until(self, *signs: str) -> Fragment:
        """Take everything up to one of these signs outside of brackets, or to the end of the statement."""
        start = self.index
        depth = 0
        while not self.ends:
            token = self.token
            if token.kind in ("broken", "dots"):
                self.unexpected(["an expression"])
            sign = token.text if token.kind == "sign" else ""
            if depth == 0 and sign and sign in signs:
                break
            depth += (sign != "" and sign in _OPEN) - (sign != "" and sign in _CLOSE)
            if depth < 0:
                break
            self.take()
        return self.fragment(start, self.index)


def either(names: Iterable[str]) -> str:
    """Alternatives in a sentence: ``',', ')' or COMMENT``."""
    shown = [n if n[0].isalpha() else repr(n) if not n.startswith(("'", '"')) else n for n in names]
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " or " + shown[-1]
