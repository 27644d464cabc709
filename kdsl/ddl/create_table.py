"""Reads ``CREATE TABLE``. A mistake in a column or an option is recorded, and reading continues with the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast, get_args

import attrs

from kdsl.ddl.statement_reader import StatementError, StatementReader
from kdsl.ddl.statements import (
    AddedColumn,
    Column,
    ComputedColumn,
    CreateTable,
    Feature,
    Fragment,
    Like,
    MetadataColumn,
    Option,
    PhysicalColumn,
    PrimaryKey,
    Strategy,
    TableCopy,
    Watermark,
)
from kdsl.errors import Problem, nearest
from kdsl.flink_sql.syntax.script_text import ScriptText
from kdsl.sql_tokens import Token, tokenize
from kdsl.types import model as t
from kdsl.types.parse import TypeReader, TypeSyntaxError

CLAUSES = ("COMMENT", "DISTRIBUTED", "PARTITIONED", "WITH", "LIKE", "AS")
COLUMN_PARTS = ("NOT", "METADATA", "COMMENT", "PRIMARY")
_AFTER_TYPE = ("METADATA", "COMMENT", "CONSTRAINT", "PRIMARY", "UNIQUE", "DEFAULT", "CHECK", "REFERENCES", "LIKE")
_STRATEGIES = ("INCLUDING", "EXCLUDING", "OVERWRITING")


@attrs.define
class _TableElements:
    """The elements in the brackets of a statement."""

    columns: list[Column] = attrs.field(factory=list)
    watermarks: list[Watermark] = attrs.field(factory=list)
    keys: list[PrimaryKey] = attrs.field(factory=list)


def read_create_table(reader: StatementReader, start: Token, *, temporary: bool) -> CreateTable:
    """Read what follows ``CREATE [TEMPORARY] TABLE``; ``start`` is the first token of the statement.

    Mistakes in columns, keys and options are recorded in the reader, which also notes whether a column or an option
    was skipped.
    """
    return _CreateTableReader(reader).read(start, temporary=temporary)


class _CreateTableReader:
    """Reads a statement from a reader, whose position moves.

    Mistakes after which reading continues, such as wrong options and names with too many parts, are added to its
    ``problems``.
    """

    def __init__(self, reader: StatementReader) -> None:
        self.reader = reader
        self.table = ""

    def read(self, start: Token, *, temporary: bool) -> CreateTable:
        """Read a statement after ``TABLE``; its mistakes are recorded as problems.

        The first of two primary keys is kept. The statement is not ``complete`` if a part of it was skipped.
        """
        r = self.reader
        r.skipped = False
        if_not_exists = r.accept("IF")
        if if_not_exists:
            r.expect("NOT", "EXISTS")
        name = r.read_path()
        self.table = name.last
        parts = _TableElements()
        opened = r.accept("(")
        if opened:
            self.read_columns(parts, r.previous)
        elif r.token.upper not in CLAUSES:
            r.fail_unexpected(["(", *CLAUSES])
        clauses = self.read_clauses(opened)
        for key in parts.keys[1:]:
            message = f"the table {self.table!r} has two primary keys"
            r.problems.append(Problem("primary-key-twice", message, "keep one of them", key.where))
        return CreateTable(
            where=r.source.where(start.start, len(start.text), table=self.table),
            name=name,
            temporary=temporary,
            if_not_exists=if_not_exists,
            columns=tuple(parts.columns),
            watermarks=tuple(parts.watermarks),
            primary_key=parts.keys[0] if parts.keys else None,
            complete=not r.skipped,
            **clauses,
        )

    # The elements in the brackets

    def read_columns(self, parts: _TableElements, opened: Token) -> None:
        """Read the elements between the brackets, and the closing bracket, into ``parts``.

        An element with a mistake is recorded as a problem and skipped, and so is anything but a comma or the bracket
        after an element; the reader's ``skipped`` is then set. A comma before the bracket is recorded, too.
        """
        r = self.reader
        while True:
            self.check_bracket(opened)
            try:
                self.read_element(parts)
                if not (r.at(",") or r.at(")")):
                    r.fail_unexpected([",", ")"], fatal=r.at("WITH") or r.at_end)
            except StatementError as e:
                r.problems.append(e.problem)
                r.skipped = True
                if e.fatal:
                    raise
                r.skip_to(",")
                if r.at_end or r.at("WITH", "("):
                    raise StatementError(e.problem, fatal=True) from None
            if r.accept(","):
                if r.at(")"):
                    r.add_problem("sql", "there is a comma before ')'", "remove the comma", r.previous)
                    r.take()
                    return
                continue
            r.expect(")")
            return

    def check_bracket(self, opened: Token) -> None:
        """Raise an error if ``WITH (``, ``LIKE`` or ``PARTITIONED BY`` begins where a column is expected."""
        r = self.reader
        clause = next((words for words in (("WITH", "("), ("LIKE",), ("PARTITIONED", "BY")) if r.at(*words)), None)
        if clause is None:
            return
        line, column = r.source.line_and_column(opened.start)
        here = r.source.line_and_column(r.token.start)
        message = (
            f"the bracket that opens in line {line}, column {column} is not closed before {r.token.upper} in line "
            f"{here[0]}, column {here[1]}"
        )
        fix = "declare columns in it and close it with ')', or remove it"
        r.fail(message, fix, r.token, fatal=True)

    def read_element(self, parts: _TableElements) -> None:
        """Append a column, a watermark or a primary key to ``parts``, also a second one; a column may bring its key.

        Recorded as problems in the reader, and no errors, are UNIQUE, CHECK and FOREIGN KEY constraints, wrong types,
        and keys that are not marked NOT ENFORCED.
        """
        r = self.reader
        if r.at("WATERMARK", "FOR"):
            parts.watermarks.append(self.read_watermark())
        elif r.at("CONSTRAINT") or r.at("PRIMARY", "KEY"):
            parts.keys.append(self.read_primary_key())
        elif r.at("UNIQUE", "(") or r.at("CHECK", "(") or r.at("FOREIGN", "KEY"):
            first = r.token
            r.skip_to(",")
            message = f"a Kafka table cannot have a {first.upper} constraint: nothing would enforce it"
            r.add_problem("sql", message, "remove it; PRIMARY KEY (…) NOT ENFORCED is the only constraint", first)
        else:
            self.read_column(parts)

    def read_column(self, parts: _TableElements) -> None:
        """Read a column of any kind, with its primary key, into ``parts``.

        A wrong type, and a constraint that cannot be enforced, are recorded as problems.
        """
        r = self.reader
        first = r.read_name("the name of a column", also=["PRIMARY KEY", "WATERMARK FOR"])
        if r.accept("AS"):
            parts.columns.append(self.read_computed_column(first))
            return
        begin = r.index
        kind, known = self.read_type(first)
        parsed: Column
        if r.accept("METADATA"):
            key = r.read_string("the metadata key in quotes").value if r.accept("FROM") else None
            virtual = r.accept("VIRTUAL")
            parsed = MetadataColumn(first.value, kind, key, virtual, type_known=known)
        else:
            parsed = PhysicalColumn(first.value, kind, type_known=known)
        self.read_column_constraints(parts, first)
        if r.accept("COMMENT"):
            parsed = attrs.evolve(parsed, comment=r.read_string("a comment in quotes").value)
        if not r.at(",") and not r.at(")") and r.tokens[begin].kind != "end":
            self.fail_after_column(first, parsed)
        where = self.locate(first, r.previous, first.value)
        parts.columns.append(attrs.evolve(parsed, where=where))

    def fail_after_column(self, first: Token, parsed: Column) -> None:
        """Raise a StatementError: neither a comma nor the closing bracket follows a column, or it has a ``DEFAULT``.

        ``first`` is the name of the column.
        """
        r = self.reader
        if r.at("DEFAULT"):
            message = f"the column {first.value!r} has a DEFAULT, which a Kafka table cannot apply"
            r.fail(message, "remove it, and select a value in the query that writes", r.token)
        expected = [",", ")"]
        if isinstance(parsed, MetadataColumn):
            expected += [
                *(["FROM", "VIRTUAL"] if parsed.key is None else ["VIRTUAL"] * (not parsed.virtual)),
                "COMMENT",
            ]
        else:
            expected += ["METADATA", "COMMENT", "PRIMARY KEY"]
        r.fail_unexpected(expected, fatal=r.at("WITH"))

    def read_column_constraints(self, parts: _TableElements, column: Token) -> None:
        """Read the constraints PRIMARY KEY and UNIQUE of a column, if it has any, and add a primary key to ``parts``.

        UNIQUE, and a primary key without ``NOT ENFORCED``, is recorded as a problem.
        """
        r = self.reader
        while r.at("CONSTRAINT") or r.at("PRIMARY") or r.at("UNIQUE"):
            first, named = r.token, None
            if r.accept("CONSTRAINT"):
                named = r.read_name("the name of the constraint").value
            if r.accept("UNIQUE"):
                message = "a Kafka table cannot have a UNIQUE constraint: nothing would enforce it"
                r.add_problem("sql", message, "remove it; PRIMARY KEY NOT ENFORCED is the only constraint", first)
                continue
            r.expect("PRIMARY", "KEY")
            self.read_not_enforced(first)
            where = self.locate(first, r.previous, column.value)
            parts.keys.append(PrimaryKey((column.value,), named, where))

    def read_not_enforced(self, first: Token) -> None:
        """Read ``NOT ENFORCED`` after a primary key that begins with ``first``; if missing, that is a problem."""
        r = self.reader
        if r.accept("NOT"):
            r.expect("ENFORCED")
            return
        r.accept("ENFORCED")
        message = "nothing enforces the primary key of a Kafka table"
        r.add_problem("primary-key-enforced", message, "write NOT ENFORCED after it", first, r.previous)

    def read_primary_key(self) -> PrimaryKey:
        """Read a primary key with its columns and, perhaps, its name; without ``NOT ENFORCED`` it is a problem."""
        r = self.reader
        first, named = r.token, None
        if r.accept("CONSTRAINT"):
            named = r.read_name("the name of the constraint").value
        r.expect("PRIMARY", "KEY")
        names = r.read_names()
        self.read_not_enforced(first)
        return PrimaryKey(tuple(n.value for n in names), named, self.locate(first, r.previous))

    def read_watermark(self) -> Watermark:
        """Read a watermark, whose expression is not parsed."""
        r = self.reader
        first = r.expect("WATERMARK", "FOR")
        column = r.read_name("the name of a column")
        if r.at("."):
            message = f"a watermark is declared for a column of the table, not for a member of {column.value!r}"
            fix = f"declare a computed column, as event_time AS {column.value}.…, and the watermark on it"
            r.fail(message, fix, column)
        r.expect("AS")
        expression = self.read_expression("a watermark, as ts - INTERVAL '5' SECOND")
        where = self.locate(first, r.previous, column.value)
        return Watermark(column.value, expression, where)

    def read_computed_column(self, first: Token) -> ComputedColumn:
        """Read a computed column after ``AS``; ``first`` is its name.

        A string after ``COMMENT`` at the end of the expression is the comment.
        """
        r = self.reader
        expression = self.read_expression("an expression")
        comment = None
        last, word = r.previous, r.tokens[r.index - 2]
        if last.kind == "text" and word.upper == "COMMENT" and word.start > expression.start:
            comment = last.value
            expression = attrs.evolve(expression, text=r.source.text[expression.start : word.start].rstrip())
        return ComputedColumn(first.value, expression, comment, self.locate(first, last, first.value))

    def read_expression(self, what: str) -> Fragment:
        """Read an expression up to the next comma or closing bracket, without parsing it."""
        r = self.reader
        fragment = r.read_until(",")
        if not fragment.text:
            r.fail_unexpected([what])
        return fragment

    def read_type(self, column: Token) -> tuple[t.DataType, bool]:
        """Read the type of a column; where it is wrong, the problem is recorded and STRING is used instead.

        Returns:
            The type, and whether it could be read.
        """
        r = self.reader
        begin = r.index
        if self.at_type_end():
            r.fail_unexpected([f"the type of the column {column.value!r}", "AS"])
        try:
            kind = TypeReader(r, r.source.text).read()
        except TypeSyntaxError as e:
            self.add_type_problem(e, column)
            self.skip_type(begin)
            return t.STRING, False
        if not self.at_type_end():
            expected = [",", ")", "NOT NULL", "METADATA", "COMMENT", "PRIMARY KEY"]
            near = nearest(r.token.text, [*COLUMN_PARTS, "METADATA"]) if r.token.kind == "word" else ""
            hint = "put a comma before it" if r.token.kind in ("word", "quoted") and not near else ""
            r.fail_unexpected(expected, hint=hint)
        return kind, True

    def at_type_end(self) -> bool:
        """Whether something comes next that may follow the type of a column, or cannot be part of one."""
        r = self.reader
        sign = r.token.text if r.token.kind == "sign" else ""
        if r.at_end or sign in (",", ")") or r.token.kind in ("broken", "dots"):
            return True
        return r.token.upper in _AFTER_TYPE or r.at("WITH", "(")

    def skip_type(self, begin: int) -> None:
        """Go back to the token at index ``begin``, and skip the type there up to what may follow it; raise nothing."""
        r = self.reader
        r.index, depth = begin, 0
        while not r.at_end and (depth > 0 or not self.at_type_end()):
            depth += (r.token.text in ("(", "<")) - (r.token.text in (")", ">"))
            r.take()

    def add_type_problem(self, e: TypeSyntaxError, column: Token) -> None:
        """Record a mistake in the type of a column as a problem."""
        r = self.reader
        here = r.token if r.token.start == e.position else None
        start = (
            r.previous.end if here and here.kind == "end" else e.position
        )  # not after blank lines at the end of a file
        where = r.source.where(start, e.length, table=self.table, column=column.value)
        fix = "write a type in SQL, as DECIMAL(10, 2) or ROW<a INT, b ARRAY<STRING>>"
        if here and here.kind == "dots":
            fix = f"this looks like a template; {fix}"
        r.problems.append(Problem("type-syntax", e.reason, fix, where))

    # The clauses after the brackets

    def read_clauses(self, columns: bool) -> dict[str, Any]:
        """Read the clauses after the columns, also a query after AS, to the end; return the attributes that they set.

        Mistakes in options are recorded as problems (`read_options`).

        Args:
            columns: Whether there were brackets with columns, for the message.
        """
        r = self.reader
        attributes: dict[str, Any] = {}
        readers: dict[str, Callable[[dict[str, Any]], None]] = {
            "COMMENT": self.read_comment,
            "PARTITIONED": self.read_partitioned,
            "DISTRIBUTED": self.read_distributed,
            "WITH": self.read_with,
            "LIKE": self.read_like,
        }
        seen: set[str] = set()
        while not r.at_end:
            word = r.token.upper
            if word == "AS" and "AS" not in seen:
                seen.add(word)
                if r.at("AS", "TABLE"):
                    attributes["copy"] = self.read_copy()
                    break
                r.take()
                attributes["source"] = self.read_source()
                continue
            if word not in readers or "AS" in seen:
                expected = [w for w in CLAUSES if w not in seen]
                hint = "remove the bracket" if r.at(")") else ""
                r.fail_unexpected([*expected, ";"] if columns or seen else expected, hint=hint)
            if word in seen:
                r.fail(f"the statement has two clauses {word}", "keep one of them", r.token, fatal=True)
            seen.add(word)
            readers[word](attributes)
        return attributes

    def read_comment(self, attributes: dict[str, Any]) -> None:
        """Take the next token, COMMENT, and read the string after it into ``attributes["comment"]``."""
        self.reader.take()
        attributes["comment"] = self.reader.read_string("a comment in quotes").value

    def read_partitioned(self, attributes: dict[str, Any]) -> None:
        """Read ``PARTITIONED BY (…)`` into ``attributes``: ``partitioned_by`` and ``partitioned_where``."""
        r = self.reader
        first = r.expect("PARTITIONED", "BY")
        attributes["partitioned_by"] = tuple(n.value for n in r.read_names())
        attributes["partitioned_where"] = self.locate(first, r.previous)

    def read_distributed(self, attributes: dict[str, Any]) -> None:
        """Read ``DISTRIBUTED …``, as it is written, into ``attributes["distribution"]``."""
        r = self.reader
        start = r.index
        r.take()
        if r.accept("BY"):
            if r.token.upper in ("HASH", "RANGE"):
                r.take()
            r.read_names()
        if r.accept("INTO"):
            if r.token.kind != "number":
                r.fail_unexpected(["a number"])
            r.take()
            r.expect("BUCKETS")
        attributes["distribution"] = r.make_fragment(start, r.index)

    def read_like(self, attributes: dict[str, Any]) -> None:
        """Read ``LIKE table (…)`` into ``attributes["like"]``."""
        r = self.reader
        first = r.expect("LIKE")
        name = r.read_path()
        features: list[tuple[Feature, Strategy]] = []
        if r.accept("("):
            while not r.accept(")"):
                strategy = r.token.upper
                if strategy not in _STRATEGIES:
                    r.fail_unexpected([*_STRATEGIES, ")"])
                r.take()
                feature = r.token.upper
                if feature not in get_args(Feature):
                    r.fail_unexpected(get_args(Feature))
                r.take()
                features.append((cast("Feature", feature), cast("Strategy", strategy)))
        attributes["like"] = Like(name, tuple(features), self.locate(first, r.previous))

    def read_source(self) -> Fragment:
        """Read the query after ``AS``."""
        r = self.reader
        if r.at_end:
            r.fail_unexpected(["SELECT", "TABLE"])
        return r.read_until()

    def read_copy(self) -> TableCopy:
        """Read ``AS TABLE table [/*+ OPTIONS(…) */] [ADD COLUMN …]`` to the end of the statement.

        Mistakes in the options of the hint are recorded as problems.
        """
        r = self.reader
        first = r.expect("AS", "TABLE")
        table = r.read_path()
        options = read_hint(r)
        added: tuple[AddedColumn, ...] = ()
        if r.accept("ADD"):
            r.expect("COLUMN")
            bracket = r.accept("(")
            added = read_added_columns(r) if bracket else (read_added_column(r),)
            if bracket:
                r.expect(")", also=[","])
            elif r.at(","):
                r.fail_unexpected([";"], hint="put several columns in brackets: ADD COLUMN (a AS …, b AS …)")
        if not r.at_end:
            r.fail_unexpected([";", *(["ADD COLUMN"] if not added else [])])
        return TableCopy(table, options, added, self.locate(first, r.previous))

    def read_with(self, attributes: dict[str, Any]) -> None:
        """Read ``WITH (…)`` into ``attributes["options"]``."""
        self.reader.expect("WITH")
        attributes["options"] = read_options(self.reader)

    def locate(self, first: Token, last: Token, column: str | None = None) -> Any:
        """Return the location (`Where`) from one token to the end of another, within the table and perhaps a column."""
        length = max(last.end - first.start, 1)
        return self.reader.source.where(first.start, length, table=self.table or None, column=column)


def read_added_columns(r: StatementReader) -> tuple[AddedColumn, ...]:
    """Read ``name AS expression [COMMENT '…'] [FIRST | AFTER column], …``."""
    added = [read_added_column(r)]
    while r.accept(","):
        added.append(read_added_column(r))
    return tuple(added)


def read_added_column(r: StatementReader) -> AddedColumn:
    """Read ``name AS expression [COMMENT '…'] [FIRST | AFTER column]``, without parsing the expression."""
    name = r.read_name("the name of a column")
    r.expect("AS")
    start = r.index
    r.read_until(",")
    stop, after, comment = r.index, None, None
    first = stop > start and r.tokens[stop - 1].upper == "FIRST"
    if first:
        stop -= 1
    elif stop - start > 2 and r.tokens[stop - 2].upper == "AFTER" and r.tokens[stop - 1].kind in ("word", "quoted"):
        stop, after = stop - 2, r.tokens[stop - 1].value
    if stop - start > 2 and r.tokens[stop - 2].upper == "COMMENT" and r.tokens[stop - 1].kind == "text":
        stop, comment = stop - 2, r.tokens[stop - 1].value
    if stop == start:
        r.fail_unexpected(["an expression"])
    where = r.source.where(name.start, r.previous.end - name.start, column=name.value)
    return AddedColumn(ComputedColumn(name.value, r.make_fragment(start, stop), comment, where), first, after)


def read_hint(r: StatementReader) -> tuple[Option, ...]:
    """Read the options of a hint ``/*+ OPTIONS('key' = 'value') */`` after a table's name; empty without a hint.

    Mistakes in options are recorded as problems.
    """
    if r.token.kind != "hint":
        return ()
    options, problems = read_hint_options(r.source, r.take())
    r.problems.extend(problems)
    return options


def read_hint_options(source: ScriptText, hint: Token) -> tuple[tuple[Option, ...], list[Problem]]:
    """Read a hint ``/*+ OPTIONS('key' = 'value') */``: return its options, and the problems with them."""
    inner = StatementReader(source)
    start = hint.start + len("/*+")
    inner.tokens = [
        *(attrs.evolve(one, start=one.start + start) for one in tokenize(hint.text[len("/*+") : -2])[:-1]),
        Token("end", "", hint.end - 2),
    ]
    inner.expect("OPTIONS")
    options = read_options(inner)
    if not inner.at_end:
        inner.fail_unexpected(["*/"])
    return options, inner.problems


def read_options(r: StatementReader) -> tuple[Option, ...]:
    """Read ``('key' = 'value', …)``; mistakes are recorded as problems, a repeated key with both locations.

    An option that cannot be read is left out, and ``skipped`` is set. Both options of a repeated key are returned.
    """
    options: list[Option] = []
    r.expect("(")
    while not r.accept(")"):
        try:
            key = r.read_string("an option, as 'topic' = 'orders'", also=[")"] if not options else [])
            r.expect("=")
            value = r.read_string(f"the value of {key.text} in quotes")
            options.append(_make_option(r, options, key, value))
            if r.token.kind == "text":
                message = f"found {r.source.quote_token(r.token)}, where ',' or ')' is expected"
                hint = r.hint_at_cause([","]) or "put a comma between two options"
                r.add_problem("sql", message, hint, r.token)
                continue
            if not r.at(",") and not r.at(")"):
                r.fail_unexpected([",", ")"])
        except StatementError as e:
            r.problems.append(e.problem)
            r.skipped = True
            r.skip_to(",")
            if r.at_end:
                raise StatementError(e.problem, fatal=True) from None
        if r.accept(",") and r.at(")"):
            r.add_problem("sql", "there is a comma before ')'", "remove the comma", r.previous)
    return tuple(options)


def _make_option(r: StatementReader, options: list[Option], key: Token, value: Token) -> Option:
    """Create an option; a problem is recorded if its key is among those before it."""
    where = r.source.where(key.start, value.end - key.start)
    before = next((o for o in options if o.key == key.value), None)
    if before is not None:
        message = (
            f"the option {key.value!r} is set twice: in line {before.where.line}, column {before.where.position}, and "
            f"in line {where.line}, column {where.position}"
        )
        r.add_problem("option-repeated", message, "remove one of them", key, value)
    return Option(key.value, value.value, where)
