"""The base of the readers of statements: takes expected tokens, reports others, and skips what cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from kdsl.ddl.statements import Fragment, Name
from kdsl.errors import KdslError, Problem, nearest
from kdsl.flink_sql.syntax.script_text import ScriptText
from kdsl.sql_tokens import Cursor, Token

NAME = "a name"
TEXT = "a string in quotes"
_OPEN, _CLOSE = "([{", ")]}"


class StatementError(KdslError):
    """A mistake in a statement, raised to where reading can continue.

    Attributes:
        problem: The mistake.
        fatal: Whether the rest of the statement cannot be read.
    """

    def __init__(self, problem: Problem, *, fatal: bool = False) -> None:
        super().__init__(problem)
        self.problem, self.fatal = problem, fatal


class StatementReader(Cursor):
    """A cursor over the tokens of a script that records problems.

    Attributes:
        source: The script.
        problems: The mistakes so far.
        skipped: Whether a column or an option of the statement was skipped because it could not be read.
    """

    def __init__(self, source: ScriptText) -> None:
        super().__init__(source.tokens)
        self.source = source
        self.problems: list[Problem] = []
        self.skipped = False

    def expect(self, *words: str, also: Sequence[str] = ()) -> Token:
        """Take some words in order.

        Args:
            words: The words.
            also: Alternatives to the first word, for the message.

        Returns:
            The token of the first word.
        """
        first = self.token
        for i, word in enumerate(words):
            if self.token.upper != word:
                self.fail_unexpected([word, *also] if i == 0 else [word])
            self.take()
        return first

    def fail_unexpected(self, expected: Sequence[str], *, hint: str = "", fatal: bool = False) -> NoReturn:
        """Raise a StatementError for a next token that is not expected.

        For a broken token the error has the message and the fix of that token.

        Args:
            expected: Keywords and signs as they are, other things in words.
            hint: What to write instead; by default one of the expected things.
            fatal: See `StatementError`.
        """
        token = self.token
        if token.kind == "broken":
            self.fail(token.reason, token.fix, token, fatal=fatal)
        if token.kind == "dots":
            message = f"{token.text} is a placeholder for something that is missing"
            self.fail(message, f"write {join_alternatives(expected)}: this looks like a template", token, fatal=fatal)
        actual = "the statement ends here" if self.at_end else f"found {self.source.quote_token(token)}"
        near = nearest(token.text, [w for w in expected if w.isupper()]) if token.kind == "word" else ""
        message = f"{actual}, where {join_alternatives(expected)} is expected{near}"
        self.fail(
            message, hint or self.hint_at_cause(expected) or f"write {join_alternatives(expected)}", token, fatal=fatal
        )

    def hint_at_cause(self, expected: Sequence[str]) -> str:
        """Return a hint at a comment or string before the next token that contains too much; empty if there is none.

        The hint at a comment names the ``expected`` tokens.
        """
        before = self.tokens[self.index - 1] if self.index else None
        if before is not None and before.kind == "text" and "\n" in before.text:
            line, column = self.source.line_and_column(before.start)
            return f"look at the string that begins in line {line}, column {column}: its closing quote may be missing"
        start = before.end if before is not None else 0
        between = self.source.text[start : self.token.start]
        comment = between.rpartition("--")[2].partition("\n")[0] if "--" in between else ""
        if any(sign in comment for sign in (",", ");", "' =", "'=")) and len(comment) > len("-- a short one"):
            line, column = self.source.line_and_column(start + between.rfind("--"))
            return (
                f"write {join_alternatives(expected)}; the comment that begins in line {line}, column {column} ends "
                "with its line, and contains SQL"
            )
        return ""

    def fail(self, message: str, fix: str, token: Token, *, fatal: bool = False, code: str = "sql") -> NoReturn:
        """Raise a StatementError with a message and its fix, at a token; see there for ``fatal``."""
        length = len(token.text.partition("\n")[0]) if token.kind != "broken" else 1
        start = token.start
        if token.kind == "end" and self.index:
            start = self.previous.end  # not after the blank lines at the end of a file
        raise StatementError(Problem(code, message, fix, self.source.where(start, length)), fatal=fatal)

    def add_problem(self, code: str, message: str, fix: str, first: Token, last: Token | None = None) -> None:
        """Record a problem at a token, or from one token to another, and continue."""
        end = (last or first).end
        where = self.source.where(first.start, max(end - first.start, 1))
        self.problems.append(Problem(code, message, fix, where))

    @property
    def at_end(self) -> bool:
        """Whether the statement ends here."""
        return self.token.kind == "end" or self.token.text == ";"

    def read_name(self, what: str = NAME, also: Sequence[str] = ()) -> Token:
        """Read a name, in back-quotes or not.

        Args:
            what: What is named, for the error.
            also: Alternatives to the name, for the error.
        """
        if self.token.kind == "text":
            self.fail_unexpected(
                [what, *also], hint=f"write the name without quotes or in back-quotes: `{self._name_in_quotes()}`"
            )
        if self.token.kind not in ("word", "quoted"):
            self.fail_unexpected([what, *also])
        if self.token.kind == "quoted" and not self.token.value:
            self.fail("a name cannot be empty", "write one", self.token)
        return self.take()

    def _name_in_quotes(self) -> str:
        """Return the content of the next token, a string, for a message; ``name`` if it must not be shown."""
        return self.token.value if self.source.quote_token(self.token) == repr(self.token.text) else "name"

    def read_string(self, what: str = TEXT, also: Sequence[str] = ()) -> Token:
        """Read a string in quotes.

        Args:
            what: What the string is, for the error.
            also: Alternatives to it, for the error.
        """
        if self.token.kind != "text":
            hint = "put it in single quotes" if self.token.kind in ("word", "number", "quoted") else ""
            self.fail_unexpected([what, *also], hint=hint)
        return self.take()

    def read_path(self, what: str = "the name of a table") -> Name:
        """Read a name with dots, such as ``catalog.database.table``; more than three parts are recorded as a problem.

        Args:
            what: What is named, for the error.
        """
        first = last = self.read_name(what)
        parts = [first.value]
        while self.accept("."):
            last = self.read_name("a name after '.'")
            parts.append(last.value)
        if len(parts) > 3:
            message = f"the name {'.'.join(parts)} has {len(parts)} parts"
            fix = "write table, database.table or catalog.database.table"
            self.add_problem("sql", message, fix, first, last)
        return Name(tuple(parts), self.source.where(first.start, last.end - first.start, table=parts[-1]))

    def read_names(self, what: str = "the name of a column") -> list[Token]:
        """Read at least one name in brackets, with commas between them."""
        self.expect("(")
        names = [self.read_name(what)]
        while self.accept(","):
            names.append(self.read_name(what))
        self.expect(")", also=[","])
        return names

    def skip_to(self, *signs: str) -> None:
        """Skip to one of these signs outside brackets, to the ``)`` around them, or to the end of the statement."""
        depth = 0
        while not self.at_end:
            sign = self.token.text if self.token.kind == "sign" else ""
            if depth == 0 and (sign in signs or sign == ")"):
                return
            if sign and sign in _OPEN:
                depth += 1
            elif sign and sign in _CLOSE:
                depth = max(0, depth - 1)  # a closing bracket without an opening one is skipped
            self.take()

    def make_fragment(self, start: int, stop: int) -> Fragment:
        """Return the text from the token with the index ``start`` up to the one with ``stop``, which is excluded.

        The text is empty if both are equal.
        """
        if start == stop:
            return Fragment("", self.tokens[start].start, self.source)
        first, last = self.tokens[start], self.tokens[stop - 1]
        return Fragment(self.source.text[first.start : last.end], first.start, self.source)

    def read_until(self, *signs: str) -> Fragment:
        """Take all up to one of these signs or a closing bracket, outside brackets, or to the statement's end."""
        start = self.index
        depth = 0
        while not self.at_end:
            token = self.token
            if token.kind in ("broken", "dots"):
                self.fail_unexpected(["an expression"])
            sign = token.text if token.kind == "sign" else ""
            if depth == 0 and sign and sign in signs:
                break
            depth += (sign != "" and sign in _OPEN) - (sign != "" and sign in _CLOSE)
            if depth < 0:
                break
            self.take()
        return self.make_fragment(start, self.index)


def join_alternatives(names: Iterable[str]) -> str:
    """Join alternatives, at least one, for a message: ``',', ')' or COMMENT``."""
    shown = [n if n[0].isalpha() else repr(n) if not n.startswith(("'", '"')) else n for n in names]
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " or " + shown[-1]
