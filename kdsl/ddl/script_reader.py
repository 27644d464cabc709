"""Reads a script: its statements, and all mistakes in them, each with its location.

Statements that declare something are read completely; queries are kept as they were written, for whatever runs them.
After a mistake reading continues after the next ``;``, and within ``CREATE TABLE`` with the next column or option.
"""

from __future__ import annotations

from typing import Literal, cast

import attrs

from kdsl.ddl.create_table import CLAUSES, read_create_table, read_hint, read_options
from kdsl.ddl.statement_reader import StatementError, StatementReader
from kdsl.ddl.statements import (
    AnyStatement,
    CreateCatalog,
    CreateDatabase,
    CreateTable,
    CreateView,
    Describe,
    Drop,
    DropCatalog,
    Explain,
    Fragment,
    Insert,
    LikePattern,
    Name,
    Option,
    Query,
    ResetOption,
    SetOption,
    Show,
    StatementSet,
    Use,
)
from kdsl.errors import Problem, Where, fail_on
from kdsl.flink_sql.syntax.script_text import ScriptText
from kdsl.sql_tokens import Token

STATEMENTS = (
    *("CREATE TABLE", "CREATE TEMPORARY TABLE", "CREATE VIEW", "CREATE TEMPORARY VIEW", "DROP TABLE", "DROP VIEW"),
    *("CREATE DATABASE", "CREATE CATALOG", "DROP CATALOG", "USE CATALOG", "USE", "SHOW", "DESCRIBE"),
    *("INSERT INTO", "INSERT OVERWRITE", "EXECUTE STATEMENT SET", "BEGIN STATEMENT SET", "SELECT", "EXPLAIN"),
    *("SET", "RESET"),
)
_QUERY = ("SELECT", "WITH", "VALUES", "TABLE")
_BEFORE_NAME = ("OR", "REPLACE", "TEMPORARY", "SYSTEM", "MATERIALIZED", "TABLE", "VIEW", "IF", "NOT", "EXISTS")
_FOREIGN = {
    "ALTER": "change the CREATE statement of the table",
    "LOAD": "remove it; formats and functions are Python packages here",
    "UNLOAD": "remove it; formats and functions are Python packages here",
    "ADD": "remove it; no jar is needed",
    "REMOVE": "remove it; no jar is needed",
    "ANALYZE": "remove it",
    "DELETE": "write their keys in Python to an UpsertTable, with the _row_kind -D",
    "UPDATE": "write INSERT INTO a table of 'upsert-kafka', whose rows replace those of their keys",
    "TRUNCATE": "remove it; a topic is emptied with Kafka's own tools",
    "MERGE": "write INSERT INTO … SELECT into a table of 'upsert-kafka', whose rows replace those of their keys",
    "COMPILE": "remove it; `kdsl plan` shows the plan of a table",
    "CALL": "remove it",
    "STOP": "remove it",
    "REPLACE": "write CREATE TABLE, and INSERT INTO … SELECT to fill it",
}
_CREATED = {
    "FUNCTION": "write a function in Python and use it in PySpark",
    "MODEL": "remove it",
    "CONNECTION": "remove it",
    "MATERIALIZED": "write CREATE TABLE, and INSERT INTO … SELECT to fill it",
}


@attrs.frozen
class Script:
    """A script that was read.

    Attributes:
        statements: The statements that could be read, in order.
        problems: All mistakes in the script.
        source: The text.
        unread_names: The tables and views whose ``CREATE`` statement could not be read. References to them are not
            reported, so that one mistake gives one error.
    """

    statements: tuple[AnyStatement, ...]
    problems: tuple[Problem, ...]
    source: ScriptText = attrs.field(eq=False, repr=False)
    unread_names: frozenset[str] = frozenset()

    @property
    def has_copies(self) -> bool:
        """Whether a statement copies tables."""
        sets = (one.statements if isinstance(one, StatementSet) else (one,) for one in self.statements)
        return any(
            isinstance(one, CreateDatabase) or (isinstance(one, CreateTable) and one.copy is not None)
            for statements in sets
            for one in statements
        )

    @property
    def subject(self) -> str:
        """The name of the script in messages: its file, or ``the SQL`` without one."""
        return self.source.file or "the SQL"


def parse_script(text: str, *, file: str | None = None) -> Script:
    """Read a script; mistakes are among its problems, and nothing is raised.

    Args:
        text: Statements, each followed by ``;``, which the last one may omit.
        file: The name of its file, for messages.
    """
    return _ScriptReader(ScriptText(text, file)).read_all()


def read_script(text: str, *, file: str | None = None) -> Script:
    """Read a script that must have no mistakes.

    Args:
        text: As for `parse_script`.
        file: The name of its file, for messages.
    """
    script = parse_script(text, file=file)
    fail_on(script.problems, script.subject)
    return script


class _ScriptReader(StatementReader):
    """Reads statements.

    Mistakes after which a statement is read on, such as wrong options and names with too many parts, are added to
    ``problems``.
    """

    def __init__(self, source: ScriptText) -> None:
        super().__init__(source)
        self.unread_names: set[str] = set()

    def read_all(self) -> Script:
        """Read all statements; mistakes are recorded, and a statement that cannot be read to its end is skipped."""
        statements: list[AnyStatement] = []
        while self.token.kind != "end":
            if self.accept(";"):
                continue
            statement = self.read_or_skip()
            if statement is not None:
                statements.append(statement)
        problems = list(dict.fromkeys(self.problems))
        return Script(tuple(statements), tuple(problems), self.source, frozenset(self.unread_names))

    def read_or_skip(self) -> AnyStatement | None:
        """Read a statement; if it cannot be read, record the mistake, skip it up to its ``;``, and return None.

        The name that it would have created is remembered (`note_unread_name`).
        """
        start = self.index
        try:
            statement = self.read_statement()
            if not self.at_end:
                self.fail_unexpected([";"])
        except StatementError as e:
            self.problems.append(e.problem)
            while not self.at_end:
                self.take()
            self.note_unread_name(start)
            return None
        return statement

    def note_unread_name(self, start: int) -> None:
        """Add the name that a CREATE statement which could not be read would have created to ``unread_names``.

        That is the last word of the path before the first bracket, string or clause; of other statements nothing.

        Args:
            start: The index of the statement's first token; the cursor is after the last one.
        """
        words = self.tokens[start : self.index]
        if not words or words[0].upper != "CREATE":
            return
        name = ""
        for token in words[1:]:
            if token.kind not in ("word", "quoted") and token.text != ".":
                break
            if name and token.upper in ("AS", *CLAUSES):
                break
            if token.kind == "quoted" or (token.text != "." and token.upper not in _BEFORE_NAME):
                name = token.value
        if name:
            self.unread_names.add(name)

    def read_statement(self) -> AnyStatement:
        """Read any statement, up to where it ends; the caller checks that ``;`` or the end follows."""
        first = self.token
        if self.accept("CREATE"):
            return self.read_create(first)
        if self.accept("DROP"):
            return self.read_drop(first)
        if self.accept("SET"):
            return self.read_set(first)
        if self.accept("RESET"):
            return ResetOption(where=self.locate(first), key=None if self.at_end else self.read_setting_key())
        if self.accept("EXPLAIN"):
            return self.read_explain(first)
        if self.accept("USE"):
            return self.read_use(first)
        if self.accept("SHOW"):
            return self.read_show(first)
        if self.accept("DESCRIBE") or self.accept("DESC"):
            self.accept("EXTENDED")
            return Describe(where=self.locate(first), table=self.read_path())
        return self.read_runnable(first)

    def read_runnable(self, first: Token) -> Insert | StatementSet | Query:
        """Read INSERT, a statement set or a query, at the current token, which is not taken yet.

        Args:
            first: The token that is the location of a statement set or a query; an INSERT is located at its own.
        """
        if (
            self.at("EXECUTE", "STATEMENT", "SET")
            or self.at("BEGIN", "STATEMENT", "SET")
            or self.at("STATEMENT", "SET")
        ):
            return self.read_statement_set(first)
        if self.at("EXECUTE", "INSERT") or self.at("EXECUTE", "SELECT"):
            self.take()
        if self.at("INSERT"):
            return self.read_insert()
        if self.token.upper in _QUERY or self.at("("):
            return Query(where=self.locate(first), query=self.read_query())
        word = self.token.upper
        if word in _FOREIGN:
            self.fail(f"kdsl has no {word} statement", _FOREIGN[word], self.token, code="sql-statement")
        return self.fail_unexpected(STATEMENTS, hint="write a statement that kdsl knows; they are separated by ';'")

    def locate(self, first: Token) -> Where:
        """The location of a statement: that of its first token."""
        return self.source.where(first.start, len(first.text))

    def read_create(self, first: Token) -> AnyStatement:
        """Read what follows ``CREATE``: a table, a view (both perhaps temporary), a catalog or a database.

        ``first`` is the token ``CREATE``, the location of the statement.
        """
        if self.at("OR", "REPLACE"):
            self.fail(
                "CREATE OR REPLACE TABLE … AS fills a table from a query, which kdsl does not support",
                "write CREATE TABLE, and INSERT INTO … SELECT to fill it",
                self.token,
                code="sql-not-yet",
            )
        temporary = self.accept("TEMPORARY")
        if temporary:
            self.accept("SYSTEM")
        if self.accept("TABLE"):
            return read_create_table(self, first, temporary=temporary)
        if self.accept("VIEW"):
            return self.read_view(first, temporary=temporary)
        if not temporary and self.accept("CATALOG"):
            return self.read_create_catalog(first)
        if not temporary and self.accept("DATABASE"):
            return self.read_create_database(first)
        word = self.token.upper
        if word in _CREATED:
            self.fail(f"kdsl has no CREATE {word} statement", _CREATED[word], self.token, code="sql-statement")
        return self.fail_unexpected(["TABLE", "VIEW", *([] if temporary else ["TEMPORARY", "CATALOG", "DATABASE"])])

    def read_create_catalog(self, first: Token) -> CreateCatalog:
        """Read what follows ``CREATE CATALOG``; raise a `StatementError` if it has a mistake.

        Mistakes in its options are recorded as problems.
        """
        if_not_exists = self.accept("IF")
        if if_not_exists:
            self.expect("NOT", "EXISTS")
        name = self.read_single_name("the name of a catalog")
        comment = self.read_string("a comment in quotes").value if self.accept("COMMENT") else None
        self.expect("WITH", also=[] if comment else ["COMMENT"])
        options = read_options(self)
        return CreateCatalog(
            where=self.locate(first), name=name, options=options, if_not_exists=if_not_exists, comment=comment
        )

    def read_create_database(self, first: Token) -> CreateDatabase:
        """Read what follows ``CREATE DATABASE``; its comment is left out.

        Mistakes in its options are recorded as problems.
        """
        if_not_exists = self.accept("IF")
        if if_not_exists:
            self.expect("NOT", "EXISTS")
        name = self.read_path("the name of a database")
        if self.accept("COMMENT"):
            self.read_string("a comment in quotes")
        options = read_options(self) if self.accept("WITH") else ()
        if not self.at("AS"):
            fix = "name the database whose tables are copied: AS DATABASE catalog.database; other tables need no "
            self.fail_unexpected(["AS DATABASE", *([] if options else ["WITH"])], hint=f"{fix}CREATE DATABASE")
        self.expect("AS", "DATABASE")
        source = self.read_path("the name of a database")
        including = excluding = None
        if self.accept("INCLUDING"):
            if self.accept("ALL"):
                self.expect("TABLES")
            else:
                including = self.read_table_pattern("ALL TABLES")
        if self.accept("EXCLUDING"):
            excluding = self.read_table_pattern()
        return CreateDatabase(
            where=self.locate(first),
            name=name,
            source=source,
            if_not_exists=if_not_exists,
            including=including,
            excluding=excluding,
            options=options,
            source_options=read_hint(self),
        )

    def read_table_pattern(self, *also: str) -> Option:
        """Read ``TABLE 'pattern'`` as an option ``TABLE``, whose value is the pattern."""
        first = self.expect("TABLE", also=also)
        pattern = self.read_string("a regular expression in quotes")
        where = self.source.where(pattern.start, len(pattern.text))
        return Option(first.upper, pattern.value, where)

    def read_single_name(self, what: str) -> Name:
        """Read a name of one part; a dot after it is not read."""
        token = self.read_name(what)
        return Name((token.value,), self.source.where(token.start, len(token.text)))

    def read_use(self, first: Token) -> Use:
        """Read what follows ``USE``; raise a `StatementError` if it has a mistake, or is ``MODULES``."""
        if self.at("MODULES"):
            self.fail("kdsl has no USE MODULES statement", "remove it", self.token, code="sql-statement")
        if self.accept("CATALOG"):
            return Use(where=self.locate(first), kind="CATALOG", name=self.read_single_name("the name of a catalog"))
        return Use(where=self.locate(first), kind="DATABASE", name=self.read_database())

    def read_database(self) -> Name:
        """Read ``database`` or ``catalog.database``; more parts are recorded as a problem and kept."""
        name = self.read_path("the name of a database")
        if len(name.parts) > 2:
            message = f"the name {name} has {len(name.parts)} parts"
            self.problems.append(Problem("sql", message, "write database or catalog.database", name.where))
        return name

    def read_show(self, first: Token) -> Show:
        """Read what follows ``SHOW``: catalogs, databases or tables, where, and a pattern."""
        kinds = ("CATALOGS", "DATABASES", "TABLES")
        kind = self.token.upper
        if kind not in kinds:
            self.fail_unexpected(kinds)
        self.take()
        within = None
        if kind != "CATALOGS" and (self.accept("IN") or self.accept("FROM")):
            within = self.read_single_name("the name of a catalog") if kind == "DATABASES" else self.read_database()
        like = None
        if not self.at_end:
            negated = self.accept("NOT")
            ignore_case = self.accept("ILIKE")
            if not ignore_case:
                clauses = [] if within or negated or kind == "CATALOGS" else ["IN", "FROM"]
                self.expect("LIKE", also=["ILIKE", *clauses, *([] if negated else ["NOT"])])
            like = LikePattern(self.read_string("a pattern in quotes").value, negated, ignore_case)
        chosen = cast('Literal["CATALOGS", "DATABASES", "TABLES"]', kind)
        return Show(where=self.locate(first), kind=chosen, within=within, like=like)

    def read_view(self, first: Token, *, temporary: bool) -> CreateView:
        """Read what follows ``CREATE [TEMPORARY] VIEW``; raise a `StatementError` if it has a mistake."""
        if_not_exists = self.accept("IF")
        if if_not_exists:
            self.expect("NOT", "EXISTS")
        name = self.read_path()
        columns = tuple(n.value for n in self.read_names()) if self.at("(") else ()
        comment = self.read_string("a comment in quotes").value if self.accept("COMMENT") else None
        self.expect("AS", also=[] if comment or columns else ["(", "COMMENT"])
        return CreateView(
            where=self.locate(first),
            name=name,
            query=self.read_query(),
            columns=columns,
            temporary=temporary,
            if_not_exists=if_not_exists,
            comment=comment,
        )

    def read_drop(self, first: Token) -> Drop | DropCatalog:
        """Read what follows ``DROP``: a table, a view or a catalog; raise a `StatementError` if it has a mistake."""
        if self.accept("CATALOG"):
            if_exists = self.accept("IF")
            if if_exists:
                self.expect("EXISTS")
            name = self.read_single_name("the name of a catalog")
            return DropCatalog(where=self.locate(first), name=name, if_exists=if_exists)
        temporary = self.accept("TEMPORARY")
        kind = self.token.upper
        if kind not in ("TABLE", "VIEW"):
            self.fail_unexpected(["TABLE", "VIEW", *([] if temporary else ["CATALOG"])])
        self.take()
        if_exists = self.accept("IF")
        if if_exists:
            self.expect("EXISTS")
        name = self.read_path()
        chosen = cast('Literal["TABLE", "VIEW"]', kind)
        return Drop(where=self.locate(first), kind=chosen, name=name, if_exists=if_exists, temporary=temporary)

    def read_set(self, first: Token) -> SetOption:
        """Read what follows ``SET``: nothing, or a key and a value, in quotes or not.

        A value without quotes is the rest of the statement.
        """
        if self.at_end:
            return SetOption(where=self.locate(first))
        key = self.read_setting_key()
        self.expect("=")
        token = self.read_string("the value in quotes") if self.token.kind == "text" else None
        value = token.value if token is not None else self.read_until().text.strip()
        if not value and token is None:
            self.fail_unexpected(["the value in quotes"])
        return SetOption(where=self.locate(first), key=key, value=value)

    def read_setting_key(self) -> str:
        """Read the key of a setting, in quotes or, as in older scripts, without them."""
        if self.token.kind == "text":
            return self.take().value
        first = self.read_name("a setting in quotes")
        last = first
        while self.token.text in (".", "-") and self.token.start == last.end:
            self.take()
            last = self.read_name("a part of the setting's name")
        return self.source.text[first.start : last.end]

    def read_statement_set(self, first: Token) -> StatementSet:
        """Read ``[EXECUTE] STATEMENT SET BEGIN … END`` or ``BEGIN STATEMENT SET; … END``; ``first`` is its location.

        A statement with a mistake is recorded as a problem and skipped. A set without any statement is recorded, too,
        and returned nevertheless.
        """
        if self.accept("BEGIN"):
            self.expect("STATEMENT", "SET")
            if not self.accept(";"):
                self.fail_unexpected([";"])
        else:
            self.accept("EXECUTE")
            self.expect("STATEMENT", "SET")
            self.expect("BEGIN")
        statements: list[Insert | CreateTable | CreateDatabase] = []
        while not self.accept("END"):
            if self.accept(";"):
                continue
            if not (self.at("INSERT") or self.at("CREATE")):
                self.fail_unexpected(["INSERT INTO", "CREATE TABLE", "CREATE DATABASE", "END"])
            try:
                statements.append(self.read_statement_of_set())
                if not self.at_end:
                    self.fail_unexpected([";"])
            except StatementError as e:
                self.problems.append(e.problem)
                self.skip_to(";")
        if not statements:
            self.add_problem(
                "sql", "the statement set has no statement", "write INSERT INTO … in it, or remove it", first
            )
        return StatementSet(where=self.locate(first), statements=tuple(statements))

    def read_statement_of_set(self) -> Insert | CreateTable | CreateDatabase:
        """Read a statement of a statement set, at ``INSERT`` or ``CREATE``."""
        if self.at("INSERT"):
            return self.read_insert()
        first = self.take()
        statement = self.read_create(first)
        if isinstance(statement, CreateDatabase) or (isinstance(statement, CreateTable) and statement.copy is not None):
            return statement
        message = "a statement set has statements that write, and this one only declares something"
        return self.fail(message, "put it before the statement set", first)

    def read_insert(self) -> Insert:
        """Read an INSERT, whose query is not parsed; raise a `StatementError` if it has a mistake.

        Mistakes in the options of a hint are recorded as problems.
        """
        first = self.expect("INSERT")
        overwrite = self.accept("OVERWRITE")
        if not overwrite:
            self.expect("INTO", also=["OVERWRITE"])
        self.accept("TABLE")
        table = self.read_path()
        options = read_hint(self)
        partition: list[tuple[str, Fragment]] = []
        if self.accept("PARTITION"):
            partition = self.read_partition()
        columns: tuple[str, ...] = ()
        if self.at("(") and self.peek().upper not in ("SELECT", "WITH", "VALUES", "("):
            columns = tuple(n.value for n in self.read_names())
        if self.token.upper not in _QUERY and not self.at("("):
            self.fail_unexpected(["SELECT", "VALUES", "WITH", *([] if columns else ["("])])
        return Insert(
            where=self.locate(first),
            table=table,
            query=self.read_query(),
            columns=columns,
            partition=tuple(partition),
            overwrite=overwrite,
            options=options,
        )

    def read_partition(self) -> list[tuple[str, Fragment]]:
        """Read ``(column = value, …)`` after PARTITION; return the columns, at least one, with their values as SQL.

        A missing value is an empty fragment.
        """
        constants = []
        self.expect("(")
        while True:
            name = self.read_name("the name of a column")
            self.expect("=")
            constants.append((name.value, self.read_until(",")))
            if not self.accept(","):
                break
        self.expect(")", also=[","])
        return constants

    def read_explain(self, first: Token) -> Explain:
        """Read what follows ``EXPLAIN``: details, and an INSERT, a statement set or a query."""
        details: list[str] = []
        if self.accept("PLAN"):
            self.expect("FOR")
        while self.token.upper in ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE"):
            details.append(self.take().upper)
            self.accept(",")
        return Explain(where=self.locate(first), statement=self.read_runnable(self.token), details=tuple(details))

    def read_query(self) -> Fragment:
        """Take everything up to the end of the statement as a query, without parsing it."""
        if self.at_end:
            self.fail_unexpected(["SELECT"])
        return self.read_until()
