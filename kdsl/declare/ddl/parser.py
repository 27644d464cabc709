"""Reads a script: its statements, and everything that is wrong with them, each at its place.

The statements that declare are read wholly; queries are kept as they were written, for whoever runs them. After a
mistake reading goes on behind the next ``;``, within a ``CREATE TABLE`` with the next column or option. A grammar for
lark could not do that: it ends at the first mistake. Column types are read by lark (`kdsl.types.parse`).
"""

from __future__ import annotations

from typing import Literal, cast

import attrs

from kdsl.declare.ddl.create_table import create_table, read_options
from kdsl.declare.ddl.reader import Reader, WrongError
from kdsl.declare.ddl.statements import (
    AnyStatement,
    CreateView,
    Drop,
    Explain,
    Fragment,
    Insert,
    Option,
    Query,
    ResetOption,
    SetOption,
    StatementSet,
)
from kdsl.declare.sql.lexer import Token, tokens
from kdsl.declare.sql.source import Source
from kdsl.errors import Problem, Where, fail_on

STATEMENTS = (
    *("CREATE TABLE", "CREATE TEMPORARY TABLE", "CREATE VIEW", "CREATE TEMPORARY VIEW", "DROP TABLE", "DROP VIEW"),
    *("INSERT INTO", "INSERT OVERWRITE", "EXECUTE STATEMENT SET", "BEGIN STATEMENT SET", "SELECT", "EXPLAIN"),
    *("SET", "RESET"),
)
_QUERY = ("SELECT", "WITH", "VALUES", "TABLE")
_FOREIGN = {
    "ALTER": "change the CREATE statement of the table",
    "USE": "write the name of the catalog or the database before the table's name",
    "SHOW": "remove it; `kdsl check` lists the tables of a file",
    "DESCRIBE": "remove it; `kdsl schema` shows the columns of a table",
    "DESC": "remove it; `kdsl schema` shows the columns of a table",
    "LOAD": "remove it; formats and functions are Python packages here",
    "UNLOAD": "remove it; formats and functions are Python packages here",
    "ADD": "remove it; no jar is needed",
    "REMOVE": "remove it; no jar is needed",
    "ANALYZE": "remove it",
    "DELETE": "write the rows that are to go as deletions of a changelog",
    "UPDATE": "write the rows anew",
    "TRUNCATE": "remove it; a topic is emptied with Kafka's own tools",
    "MERGE": "write INSERT INTO … SELECT",
    "COMPILE": "remove it; `kdsl plan` shows the plan of a table",
    "CALL": "remove it",
    "STOP": "remove it",
    "REPLACE": "write CREATE TABLE, and INSERT INTO … SELECT to fill it",
}
_CREATED = {
    "CATALOG": "tables of a file need no catalog: remove it",
    "DATABASE": "tables of a file need no database: remove it",
    "FUNCTION": "write a function in Python and use it in PySpark",
    "MODEL": "remove it",
    "CONNECTION": "remove it",
    "MATERIALIZED": "write CREATE TABLE, and INSERT INTO … SELECT to fill it",
}


@attrs.frozen
class Script:
    """What was read of a script.

    Attributes:
        statements: The statements that could be read, in their order.
        problems: What is wrong with the others, and with parts of these.
        source: The text.
    """

    statements: tuple[AnyStatement, ...]
    problems: tuple[Problem, ...]
    source: Source = attrs.field(eq=False, repr=False)

    @property
    def subject(self) -> str:
        """What the script is called in messages."""
        return self.source.file or "the SQL"


def parse_script(text: str, *, file: str | None = None) -> Script:
    """Read a script; never fails.

    Args:
        text: Statements, each ended by ``;`` (the last one may do without).
        file: The name of its file, for messages.
    """
    return _Parser(Source(text, file)).script()


def read_script(text: str, *, file: str | None = None) -> Script:
    """Read a script that holds.

    Args:
        text: As for `parse_script`.
        file: The name of its file, for messages.

    Raises:
        ResolveError: Statements are wrong; all of them are told with line, column and the line itself.
    """
    script = parse_script(text, file=file)
    fail_on(script.problems, script.subject)
    return script


class _Parser(Reader):
    def script(self) -> Script:
        found: list[AnyStatement] = []
        while self.token.kind != "end":
            if self.accept(";"):
                continue
            statement = self.recovering()
            if statement is not None:
                found.append(statement)
        problems = list(dict.fromkeys(self.problems))
        return Script(tuple(found), tuple(problems), self.source)

    def recovering(self) -> AnyStatement | None:
        """The next statement; after a mistake nothing, and reading goes on behind the next ``;``."""
        try:
            found = self.statement()
            if not self.ends:
                self.unexpected([";"])
        except WrongError as e:
            self.problems.append(e.problem)
            while not self.ends:
                self.take()
            return None
        return found

    def statement(self) -> AnyStatement:
        first = self.token
        if self.accept("CREATE"):
            return self.create(first)
        if self.accept("DROP"):
            return self.drop(first)
        if self.accept("SET"):
            return self.set_option(first)
        if self.accept("RESET"):
            return ResetOption(where=self.span(first), key=None if self.ends else self.setting())
        if self.accept("EXPLAIN"):
            return self.explain(first)
        return self.runnable(first)

    def runnable(self, first: Token) -> Insert | StatementSet | Query:
        """A statement that moves rows."""
        if (
            self.at("EXECUTE", "STATEMENT", "SET")
            or self.at("BEGIN", "STATEMENT", "SET")
            or self.at("STATEMENT", "SET")
        ):
            return self.statement_set(first)
        if self.at("EXECUTE", "INSERT") or self.at("EXECUTE", "SELECT"):
            self.take()
        if self.at("INSERT"):
            return self.insert()
        if self.token.upper in _QUERY or self.at("("):
            return Query(where=self.span(first), query=self.query())
        word = self.token.upper
        if word in _FOREIGN:
            self.wrong(f"kdsl has no {word} statement", _FOREIGN[word], self.token, code="sql-statement")
        return self.unexpected(STATEMENTS, hint="write a statement that kdsl knows; they are separated by ';'")

    def span(self, first: Token) -> Where:
        """The place of a statement, from a token on to the end of its line."""
        return self.source.where(first.start, len(first.text))

    def create(self, first: Token) -> AnyStatement:
        if self.at("OR", "REPLACE"):
            self.wrong(
                "CREATE OR REPLACE TABLE … AS fills a table from a query, which is not there yet",
                "write CREATE TABLE, and INSERT INTO … SELECT to fill it",
                self.token,
                code="sql-not-yet",
            )
        temporary = self.accept("TEMPORARY")
        if temporary:
            self.accept("SYSTEM")
        if self.accept("TABLE"):
            return create_table(self, first, temporary=temporary)
        if self.accept("VIEW"):
            return self.view(first, temporary=temporary)
        word = self.token.upper
        if word in _CREATED:
            self.wrong(f"kdsl has no CREATE {word} statement", _CREATED[word], self.token, code="sql-statement")
        return self.unexpected(["TABLE", "VIEW", *([] if temporary else ["TEMPORARY"])])

    def view(self, first: Token, *, temporary: bool) -> CreateView:
        if_not_exists = self.accept("IF")
        if if_not_exists:
            self.expect("NOT", "EXISTS")
        name = self.path()
        columns = tuple(n.value for n in self.names()) if self.at("(") else ()
        comment = self.text("a comment in quotes").value if self.accept("COMMENT") else None
        self.expect("AS", also=[] if comment or columns else ["(", "COMMENT"])
        return CreateView(
            where=self.span(first),
            name=name,
            query=self.query(),
            columns=columns,
            temporary=temporary,
            if_not_exists=if_not_exists,
            comment=comment,
        )

    def drop(self, first: Token) -> Drop:
        temporary = self.accept("TEMPORARY")
        kind = self.token.upper
        if kind not in ("TABLE", "VIEW"):
            self.unexpected(["TABLE", "VIEW"])
        self.take()
        if_exists = self.accept("IF")
        if if_exists:
            self.expect("EXISTS")
        name = self.path()
        chosen = cast('Literal["TABLE", "VIEW"]', kind)
        return Drop(where=self.span(first), kind=chosen, name=name, if_exists=if_exists, temporary=temporary)

    def set_option(self, first: Token) -> SetOption:
        if self.ends:
            return SetOption(where=self.span(first))
        key = self.setting()
        self.expect("=")
        value = self.text("the value in quotes") if self.token.kind == "text" else None
        found = value.value if value is not None else self.until().text.strip()
        if not found and value is None:
            self.unexpected(["the value in quotes"])
        return SetOption(where=self.span(first), key=key, value=found)

    def setting(self) -> str:
        """The key of a setting, in quotes or (as older scripts have it) without."""
        if self.token.kind == "text":
            return self.take().value
        first = self.name("a setting in quotes")
        last = first
        while self.token.text in (".", "-") and self.token.start == last.end:
            self.take()
            last = self.name("a part of the setting's name")
        return self.source.text[first.start : last.end]

    def statement_set(self, first: Token) -> StatementSet:
        """``EXECUTE STATEMENT SET BEGIN … END`` or ``BEGIN STATEMENT SET; … END``."""
        if self.accept("BEGIN"):
            self.expect("STATEMENT", "SET")
            if not self.accept(";"):
                self.unexpected([";"])
        else:
            self.accept("EXECUTE")
            self.expect("STATEMENT", "SET")
            self.expect("BEGIN")
        inserts: list[Insert] = []
        while not self.accept("END"):
            if self.accept(";"):
                continue
            if not self.at("INSERT"):
                self.unexpected(["INSERT INTO", "END"])
            try:
                inserts.append(self.insert())
                if not self.ends:
                    self.unexpected([";"])
            except WrongError as e:
                self.problems.append(e.problem)
                self.skip_to(";")
        if not inserts:
            self.note("sql", "the statement set has no statement", "write INSERT INTO … in it, or remove it", first)
        return StatementSet(where=self.span(first), inserts=tuple(inserts))

    def insert(self) -> Insert:
        first = self.expect("INSERT")
        overwrite = self.accept("OVERWRITE")
        if not overwrite:
            self.expect("INTO", also=["OVERWRITE"])
        self.accept("TABLE")
        table = self.path()
        options = self.hint()
        partition: list[tuple[str, Fragment]] = []
        if self.accept("PARTITION"):
            partition = self.partition()
        columns: tuple[str, ...] = ()
        if self.at("(") and self.ahead().upper not in ("SELECT", "WITH", "VALUES", "("):
            columns = tuple(n.value for n in self.names())
        if self.token.upper not in _QUERY and not self.at("("):
            self.unexpected(["SELECT", "VALUES", "WITH", *([] if columns else ["("])])
        return Insert(
            where=self.span(first),
            table=table,
            query=self.query(),
            columns=columns,
            partition=tuple(partition),
            overwrite=overwrite,
            options=options,
        )

    def partition(self) -> list[tuple[str, Fragment]]:
        found = []
        self.expect("(")
        while True:
            name = self.name("the name of a column")
            self.expect("=")
            found.append((name.value, self.until(",")))
            if not self.accept(","):
                break
        self.expect(")", also=[","])
        return found

    def hint(self) -> tuple[Option, ...]:
        """The options of a hint ``/*+ OPTIONS('key' = 'value') */`` behind a table's name."""
        if self.token.kind != "hint":
            return ()
        options, problems = hinted(self.source, self.take())
        self.problems.extend(problems)
        return options

    def explain(self, first: Token) -> Explain:
        details: list[str] = []
        if self.accept("PLAN"):
            self.expect("FOR")
        while self.token.upper in ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE"):
            details.append(self.take().upper)
            self.accept(",")
        return Explain(where=self.span(first), statement=self.runnable(self.token), details=tuple(details))

    def query(self) -> Fragment:
        """Everything up to the end of the statement."""
        if self.ends:
            self.unexpected(["SELECT"])
        return self.until()


def hinted(source: Source, hint: Token) -> tuple[tuple[Option, ...], list[Problem]]:
    """The options of a hint ``/*+ OPTIONS('key' = 'value') */``, and what is wrong with them.

    Args:
        source: The script.
        hint: The hint in it.

    Raises:
        WrongError: It is something else.
    """
    inner = Reader(source)
    start = hint.start + len("/*+")
    inner.tokens = [
        *(attrs.evolve(one, start=one.start + start) for one in tokens(hint.text[len("/*+") : -2])[:-1]),
        Token("end", "", hint.end - 2),
    ]
    inner.expect("OPTIONS")
    options = read_options(inner)
    if not inner.ends:
        inner.unexpected(["*/"])
    return options, inner.problems
