"""Reads ``CREATE TABLE``. A mistake in a column or an option is told, and reading goes on with the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast, get_args

import attrs

from kdsl.declare.ddl.reader import Reader, WrongError
from kdsl.declare.ddl.statements import (
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
    Watermark,
)
from kdsl.declare.sql.lexer import Token
from kdsl.errors import Problem, nearest
from kdsl.types import model as t
from kdsl.types.parse import TypeSyntaxError, parse_type

CLAUSES = ("COMMENT", "DISTRIBUTED", "PARTITIONED", "WITH", "LIKE", "AS")
COLUMN_PARTS = ("NOT", "METADATA", "COMMENT", "PRIMARY")
_AFTER_TYPE = ("METADATA", "COMMENT", "CONSTRAINT", "PRIMARY", "UNIQUE", "DEFAULT", "CHECK", "REFERENCES", "LIKE")
_STRATEGIES = ("INCLUDING", "EXCLUDING", "OVERWRITING")


@attrs.define
class _Parts:
    """What the brackets of a statement hold."""

    columns: list[Column] = attrs.field(factory=list)
    watermarks: list[Watermark] = attrs.field(factory=list)
    keys: list[PrimaryKey] = attrs.field(factory=list)


def create_table(reader: Reader, start: Token, *, temporary: bool) -> CreateTable:
    """Read what follows ``CREATE [TEMPORARY] TABLE``.

    Args:
        reader: The place.
        start: The first token of the statement.
        temporary: Whether TEMPORARY was said.

    Raises:
        WrongError: The rest of the statement cannot be read.
    """
    return _CreateTable(reader).read(start, temporary=temporary)


class _CreateTable:
    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.table = ""

    def read(self, start: Token, *, temporary: bool) -> CreateTable:
        r = self.reader
        if_not_exists = r.accept("IF")
        if if_not_exists:
            r.expect("NOT", "EXISTS")
        name = r.path()
        self.table = name.last
        parts = _Parts()
        opened = r.accept("(")
        if opened:
            self.columns(parts, r.last)
        elif r.token.upper not in CLAUSES:
            r.unexpected(["(", *CLAUSES])
        clauses = self.clauses(opened)
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
            **clauses,
        )

    # What stands in the brackets

    def columns(self, parts: _Parts, opened: Token) -> None:
        r = self.reader
        while True:
            if self.mistaken_bracket(opened):
                return
            try:
                self.element(parts)
            except WrongError as e:
                r.problems.append(e.problem)
                if e.fatal:
                    raise
                r.skip_to(",")
                if r.ends or r.at("WITH", "("):
                    raise WrongError(e.problem, fatal=True) from None
            if r.accept(","):
                if r.at(")"):
                    r.note("sql", "a comma stands before ')'", "remove the comma", r.last)
                    r.take()
                    return
                continue
            if r.accept(")"):
                return
            self.after_element(parts)

    def after_element(self, parts: _Parts) -> None:
        """What follows a column is neither a comma nor the end of the brackets."""
        last = parts.columns[-1] if parts.columns else None
        more: list[str] = []
        if isinstance(last, MetadataColumn):
            more = ["FROM", "VIRTUAL"]
        self.reader.unexpected([",", ")", *more], fatal=self.reader.at("WITH") or self.reader.ends)

    def mistaken_bracket(self, opened: Token) -> bool:
        """Whether a clause begins where the first column should stand, as after a bracket too many."""
        r = self.reader
        clause = next((words for words in (("WITH", "("), ("LIKE",), ("PARTITIONED", "BY")) if r.at(*words)), None)
        if clause is None:
            return False
        line, column = r.source.place(opened.start)
        here = r.source.place(r.token.start)
        message = (
            f"the bracket that opens in line {line}, column {column} is not closed before {r.token.upper} in line "
            f"{here[0]}, column {here[1]}"
        )
        fix = "declare columns in it and close it with ')', or remove it"
        return bool(r.wrong(message, fix, r.token, fatal=True))

    def element(self, parts: _Parts) -> None:
        r = self.reader
        if r.at("WATERMARK", "FOR"):
            parts.watermarks.append(self.watermark())
        elif r.at("CONSTRAINT") or r.at("PRIMARY", "KEY"):
            parts.keys.append(self.key())
        elif r.at("UNIQUE", "(") or r.at("CHECK", "(") or r.at("FOREIGN", "KEY"):
            first = r.token
            r.skip_to(",")
            message = f"a table of Kafka has no {first.upper} constraint: nothing could enforce it"
            r.note("sql", message, "remove it; PRIMARY KEY (…) NOT ENFORCED is the only constraint", first)
        else:
            self.column(parts)

    def column(self, parts: _Parts) -> None:
        r = self.reader
        first = r.name("the name of a column", also=["PRIMARY KEY", "WATERMARK FOR"])
        if r.accept("AS"):
            parts.columns.append(self.computed(first))
            return
        begin = r.index
        kind = self.type(first)
        made: Column
        if r.accept("METADATA"):
            key = r.text("the metadata key in quotes").value if r.accept("FROM") else None
            virtual = r.accept("VIRTUAL")
            made = MetadataColumn(first.value, kind, key, virtual)
        else:
            made = PhysicalColumn(first.value, kind)
        self.constraints(parts, first)
        if r.accept("COMMENT"):
            made = attrs.evolve(made, comment=r.text("a comment in quotes").value)
        if not r.at(",") and not r.at(")") and r.tokens[begin].kind != "end":
            self.unknown_part(first, made)
        where = self.where(first, r.last, first.value)
        parts.columns.append(attrs.evolve(made, where=where))

    def unknown_part(self, first: Token, made: Column) -> None:
        r = self.reader
        if r.at("DEFAULT"):
            message = f"the column {first.value!r} has a DEFAULT, which a table of Kafka cannot fill in"
            r.wrong(message, "remove it; give a value in the query that writes", r.token)
        expected = [",", ")"]
        if isinstance(made, MetadataColumn):
            expected += [*(["FROM", "VIRTUAL"] if made.key is None else ["VIRTUAL"] * (not made.virtual)), "COMMENT"]
        else:
            expected += ["METADATA", "COMMENT", "PRIMARY KEY"]
        r.unexpected(expected, fatal=r.at("WITH"))

    def constraints(self, parts: _Parts, column: Token) -> None:
        """The constraints of one column."""
        r = self.reader
        while r.at("CONSTRAINT") or r.at("PRIMARY") or r.at("UNIQUE"):
            first, named = r.token, None
            if r.accept("CONSTRAINT"):
                named = r.name("the name of the constraint").value
            if r.accept("UNIQUE"):
                message = "a table of Kafka has no UNIQUE constraint: nothing could enforce it"
                r.note("sql", message, "remove it; PRIMARY KEY NOT ENFORCED is the only constraint", first)
                continue
            r.expect("PRIMARY", "KEY")
            self.not_enforced(first)
            where = self.where(first, r.last, column.value)
            parts.keys.append(PrimaryKey((column.value,), named, where))

    def not_enforced(self, first: Token) -> None:
        r = self.reader
        if r.accept("NOT"):
            r.expect("ENFORCED")
            return
        r.accept("ENFORCED")
        message = "nothing enforces a primary key of a table whose rows are messages of Kafka"
        r.note("primary-key-enforced", message, "write NOT ENFORCED behind it", first, r.last)

    def key(self) -> PrimaryKey:
        r = self.reader
        first, named = r.token, None
        if r.accept("CONSTRAINT"):
            named = r.name("the name of the constraint").value
        r.expect("PRIMARY", "KEY")
        names = r.names()
        self.not_enforced(first)
        return PrimaryKey(tuple(n.value for n in names), named, self.where(first, r.last))

    def watermark(self) -> Watermark:
        r = self.reader
        first = r.expect("WATERMARK", "FOR")
        column = r.name("the name of a column")
        if r.at("."):
            message = f"a watermark stands on a column of the table, not on a member of {column.value!r}"
            fix = f"declare a computed column, as event_time AS {column.value}.…, and the watermark on it"
            r.wrong(message, fix, column)
        r.expect("AS")
        expression = self.expression("a watermark, as ts - INTERVAL '5' SECOND")
        where = self.where(first, r.last, column.value)
        return Watermark(column.value, expression, where)

    def computed(self, first: Token) -> ComputedColumn:
        r = self.reader
        expression = self.expression("an expression")
        comment = None
        last, word = r.last, r.tokens[r.index - 2]
        if last.kind == "text" and word.upper == "COMMENT" and word.start > expression.start:
            comment = last.value
            expression = attrs.evolve(expression, text=r.source.text[expression.start : word.start].rstrip())
        return ComputedColumn(first.value, expression, comment, self.where(first, last, first.value))

    def expression(self, what: str) -> Fragment:
        r = self.reader
        found = r.until(",")
        if not found.text:
            r.unexpected([what])
        return found

    def type(self, column: Token) -> t.DataType:
        """The type of a column; where it is none, the problem is told at its place and STRING stands for it."""
        r = self.reader
        begin, depth = r.index, 0
        while not r.ends:
            token = r.token
            sign = token.text if token.kind == "sign" else ""
            if depth == 0 and (sign in (",", ")") or token.upper in _AFTER_TYPE or token.kind in ("broken", "dots")):
                break
            if depth == 0 and r.at("WITH", "("):
                break
            depth += (sign in ("(", "<")) - (sign in (")", ">"))
            r.take()
        if begin == r.index:
            r.unexpected([f"the type of the column {column.value!r}", "AS"])
        found = r.fragment(begin, r.index)
        try:
            return parse_type(found.text)
        except TypeSyntaxError as e:
            self.wrong_type(e, found, begin, column)
            return t.STRING

    def wrong_type(self, e: TypeSyntaxError, found: Fragment, begin: int, column: Token) -> None:
        r = self.reader
        place = found.start + e.position
        after = next((i for i in range(begin, r.index + 1) if r.tokens[i].start >= place), r.index)
        token = r.tokens[after]
        if after > begin and "the end" in e.expected:  # what stands before is a whole type
            r.index = after
            expected = [",", ")", "NOT NULL", "METADATA", "COMMENT", "PRIMARY KEY"]
            near = nearest(token.text, [*COLUMN_PARTS, "METADATA"]) if token.kind == "word" else ""
            hint = "put a comma before it" if token.kind in ("word", "quoted") and not near else ""
            r.unexpected(expected, hint=hint)
        where = r.source.where(place, e.length, table=self.table, column=column.value)
        fix = "write a type in SQL, as DECIMAL(10, 2) or ROW<a INT, b ARRAY<STRING>>"
        if token.kind == "dots":
            fix = f"this looks like a template; {fix}"
        r.problems.append(Problem("type-syntax", e.reason, fix, where))

    # What stands behind the brackets

    def clauses(self, columns: bool) -> dict[str, Any]:
        r = self.reader
        given: dict[str, Any] = {}
        readers: dict[str, Callable[[dict[str, Any]], None]] = {
            "COMMENT": self.comment,
            "PARTITIONED": self.partitioned,
            "DISTRIBUTED": self.distributed,
            "WITH": self.options,
            "LIKE": self.like,
        }
        seen: set[str] = set()
        while not r.ends:
            word = r.token.upper
            if word == "AS":
                r.take()
                given["source"] = self.source()
                continue
            if word not in readers or "AS" in seen:
                expected = [w for w in CLAUSES if w not in seen]
                hint = "remove the bracket" if r.at(")") else ""
                r.unexpected([*expected, ";"] if columns or seen else expected, hint=hint)
            if word in seen:
                r.wrong(f"the statement has two clauses {word}", "keep one of them", r.token, fatal=True)
            seen.add(word)
            readers[word](given)
        return given

    def comment(self, given: dict[str, Any]) -> None:
        self.reader.take()
        given["comment"] = self.reader.text("a comment in quotes").value

    def partitioned(self, given: dict[str, Any]) -> None:
        r = self.reader
        first = r.expect("PARTITIONED", "BY")
        given["partitioned_by"] = tuple(n.value for n in r.names())
        given["partitioned_where"] = self.where(first, r.last)

    def distributed(self, given: dict[str, Any]) -> None:
        r = self.reader
        start = r.index
        r.take()
        if r.accept("BY"):
            if r.token.upper in ("HASH", "RANGE"):
                r.take()
            r.names()
        if r.accept("INTO"):
            if r.token.kind != "number":
                r.unexpected(["a number"])
            r.take()
            r.expect("BUCKETS")
        given["distribution"] = r.fragment(start, r.index)

    def like(self, given: dict[str, Any]) -> None:
        r = self.reader
        first = r.expect("LIKE")
        name = r.path()
        features: list[tuple[Feature, Strategy]] = []
        if r.accept("("):
            while not r.accept(")"):
                strategy = r.token.upper
                if strategy not in _STRATEGIES:
                    r.unexpected([*_STRATEGIES, ")"])
                r.take()
                feature = r.token.upper
                if feature not in get_args(Feature):
                    r.unexpected(get_args(Feature))
                r.take()
                features.append((cast("Feature", feature), cast("Strategy", strategy)))
        given["like"] = Like(name, tuple(features), self.where(first, r.last))

    def source(self) -> Fragment:
        r = self.reader
        if r.ends:
            r.unexpected(["SELECT", "TABLE"])
        return r.until()

    def options(self, given: dict[str, Any]) -> None:
        self.reader.expect("WITH")
        given["options"] = read_options(self.reader)

    def where(self, first: Token, last: Token, column: str | None = None) -> Any:
        length = max(last.end - first.start, 1)
        return self.reader.source.where(first.start, length, table=self.table or None, column=column)


def read_options(r: Reader) -> tuple[Option, ...]:
    """Read ``('key' = 'value', …)``. A key that comes twice is refused with both places.

    Raises:
        WrongError: The statement ends within it.
    """
    found: list[Option] = []
    r.expect("(")
    while not r.accept(")"):
        try:
            key = r.text("an option, as 'topic' = 'orders'", also=[")"] if not found else [])
            r.expect("=")
            value = r.text(f"the value of {key.text} in quotes")
            found.append(_option(r, found, key, value))
            if r.token.kind == "text":
                message = f"found {r.source.shown(r.token)}, where ',' or ')' is expected"
                hint = r.swallowed([","]) or "put a comma between two options"
                r.note("sql", message, hint, r.token)
                continue
            if not r.at(",") and not r.at(")"):
                r.unexpected([",", ")"])
        except WrongError as e:
            r.problems.append(e.problem)
            r.skip_to(",")
            if r.ends:
                raise WrongError(e.problem, fatal=True) from None
        if r.accept(",") and r.at(")"):
            r.note("sql", "a comma stands before ')'", "remove the comma", r.last)
    return tuple(found)


def _option(r: Reader, found: list[Option], key: Token, value: Token) -> Option:
    where = r.source.where(key.start, value.end - key.start)
    before = next((o for o in found if o.key == key.value), None)
    if before is not None:
        message = (
            f"the option {key.value!r} stands twice: in line {before.where.line}, column {before.where.position}, and "
            f"in line {where.line}, column {where.position}"
        )
        r.note("option-repeated", message, "remove one of them", key, value)
    return Option(key.value, value.value, where, r.source.where(value.start, len(value.text)))
