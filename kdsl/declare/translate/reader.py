"""Scalar expressions of Flink SQL read from tokens: precedence climbing, exact places, nothing guessed.

A general SQL parser was tried first: without a dialect for Flink it read ``MAP['a', 1]`` as a column, dropped an
argument of ``TIMESTAMPDIFF`` and knew neither ``ROW<…>`` nor ``JSON_VALUE(… RETURNING …)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from kdsl.declare.sql.cursor import Cursor
from kdsl.declare.sql.lexer import Token, tokens
from kdsl.declare.translate import tree as n
from kdsl.declare.translate.errors import UntranslatableError
from kdsl.declare.translate.intervals import CLOCK
from kdsl.types import model as t
from kdsl.types.parse import TypeSyntaxError, parse_type

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
UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_FIELDS = (
    *(*UNITS, "MILLISECOND", "MICROSECOND", "NANOSECOND", "EPOCH", "DECADE", "CENTURY", "MILLENNIUM"),
    *("DOY", "DOW", "ISODOW", "ISOYEAR"),
)
_BARE = frozenset(
    ["CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_ROW_TIMESTAMP", "PI"]
)
_COMPARE = ("=", "<>", "!=", "<", "<=", ">", ">=")
_JSON = ("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS")


def too_deep(name: str, text: str, position: int) -> UntranslatableError:
    """The error of a text that holds more within each other than can be followed."""
    reason = "this is nested too deeply"
    return UntranslatableError(name, reason, "write it flatter, or as several columns or views", text, position)


class Reader(Cursor):
    """Reads expressions; `kdsl.declare.translate.query_reader` adds queries."""

    def __init__(self, text: str) -> None:
        super().__init__(tokens(text))
        self.text = text
        for token in self.tokens:
            if token.kind == "broken":
                raise UntranslatableError(token.text, token.reason, token.fix, text, token.start)

    def whole(self) -> n.Node:
        """What the whole text is: an expression.

        Raises:
            UntranslatableError: It is none.
        """
        try:
            found = self.statement()
        except RecursionError:
            raise too_deep(self.token.text, self.text, self.token.start) from None
        self.end()
        return found

    def statement(self) -> n.Node:
        """What a whole text holds."""
        return self.expression()

    # tokens

    def expect(self, word: str) -> Token:
        """Take this keyword or sign, which must come next."""
        if not self.at(word):
            self.fail(f"expected {word!r}")
        return self.take()

    def fail(self, reason: str, token: Token | None = None, fix: str = "correct the text there") -> NoReturn:
        """Say that a token cannot stand where it stands."""
        token = token or self.token
        found = "the text ends" if token.kind == "end" else f"found {token.text!r}"
        raise UntranslatableError(token.text, f"{reason}, {found}", fix, self.text, token.start)

    def end(self) -> None:
        """Nothing must come any more."""
        if self.token.kind != "end":
            self.fail("the expression ends here")

    def name(self) -> str:
        """A name, in back-ticks or not."""
        token = self.token
        if token.kind == "quoted":
            return self.take().value
        if token.kind == "word" and token.upper not in RESERVED:
            return self.take().value
        fix = f"write `{token.text}` in back-ticks" if token.kind == "word" else "write a name"
        return self.fail("expected a name", fix=fix)

    def commas(self, read: Callable[[], Any]) -> tuple[Any, ...]:
        """One or more things, with commas between them."""
        found = [read()]
        while self.accept(","):
            found.append(read())
        return tuple(found)

    # expressions, from those that bind loosest

    def expression(self) -> n.Node:
        """Any expression."""
        left = self._and()
        while self.at("OR"):
            at = self.take().start
            left = n.Binary("OR", left, self._and(), at=at)
        return left

    def _and(self) -> n.Node:
        left = self._not()
        while self.at("AND"):
            at = self.take().start
            left = n.Binary("AND", left, self._not(), at=at)
        return left

    def _not(self) -> n.Node:
        if self.at("NOT"):
            at = self.take().start
            return n.Unary("NOT", self._not(), at=at)
        return self._predicate()

    def _predicate(self) -> n.Node:
        left = self._sum()
        while True:
            token = self.token
            if token.upper in _COMPARE:
                self.take()
                left = n.Binary("<>" if token.text == "!=" else token.text, left, self._sum(), at=token.start)
            elif token.upper == "IS":
                left = self._is(left)
            elif token.upper in ("BETWEEN", "IN", "LIKE", "SIMILAR") or (
                token.upper == "NOT" and self.ahead().upper in ("BETWEEN", "IN", "LIKE", "SIMILAR")
            ):
                left = self._matches(left)
            else:
                return left

    def _is(self, left: n.Node) -> n.Node:
        at = self.take().start
        negated = self.accept("NOT")
        if self.accept("DISTINCT", "FROM"):
            return n.Is(left, "DISTINCT", self._sum(), negated, at=at)
        for what in ("NULL", "TRUE", "FALSE", "UNKNOWN", "JSON"):
            if self.accept(what):
                return n.Is(left, what, None, negated, at=at)
        return self.fail("expected NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM behind IS")

    def _matches(self, left: n.Node) -> n.Node:
        negated = self.accept("NOT")
        at = self.token.start
        if self.accept("BETWEEN"):
            symmetric = self.accept("SYMMETRIC")
            if not symmetric:
                self.accept("ASYMMETRIC")
            low = self._sum()
            self.expect("AND")
            return n.Between(left, low, self._sum(), symmetric, negated, at=at)
        if self.accept("IN"):
            self.expect("(")
            if self.at("SELECT") or self.at("WITH"):
                query = self.query()
                self.expect(")")
                return n.In(left, (), query, negated, at=at)
            values = self.commas(self.expression)
            self.expect(")")
            return n.In(left, values, None, negated, at=at)
        similar = self.accept("SIMILAR")
        self.expect("TO" if similar else "LIKE")
        pattern = self._sum()
        escape = self._sum() if self.accept("ESCAPE") else None
        return n.Like(left, pattern, escape, negated, similar, at=at)

    def _sum(self) -> n.Node:
        left = self._product()
        while self.token.upper in ("+", "-", "||"):
            token = self.take()
            left = n.Binary(token.text, left, self._product(), at=token.start)
        return left

    def _product(self) -> n.Node:
        left = self._sign()
        while self.token.upper in ("*", "/", "%"):
            token = self.take()
            left = n.Binary(token.text, left, self._sign(), at=token.start)
        return left

    def _sign(self) -> n.Node:
        token = self.token
        if token.upper in ("-", "+"):
            self.take()
            return n.Unary(token.text, self._sign(), at=token.start)
        return self._postfix(self._primary())

    def _postfix(self, left: n.Node) -> n.Node:
        while True:
            at = self.token.start
            if self.accept("["):
                left = n.Index(left, self.expression(), at=at)
                self.expect("]")
            elif self.at(".") and not isinstance(left, n.Literal):
                self.take()
                left = n.Member(left, self.name(), at=at)
            elif self.at("AT", "TIME", "ZONE"):
                self.fail("AT TIME ZONE is not part of Flink SQL", fix="use CONVERT_TZ, or CAST to TIMESTAMP_LTZ")
            else:
                return left

    def _primary(self) -> n.Node:
        token = self.token
        at = token.start
        if token.kind == "number":
            return n.Literal("number", self.take().text, at=at)
        if token.kind == "text":
            value = self.take().value
            while self.token.kind == "text":  # SQL joins texts that stand behind each other
                value += self.take().value
            return n.Literal("string", value, at=at)
        if token.kind == "bytes":
            return n.Literal("bytes", self.take().value, at=at)
        if self.accept("("):
            if self.at("SELECT") or self.at("WITH"):
                inner: n.Node = n.Nested(self.query(), at=at)
            else:
                inner = self.expression()
                if self.accept(","):
                    inner = n.Collection("ROW", (inner, *self.commas(self.expression)), at=at)
            self.expect(")")
            return inner
        if token.kind == "quoted":
            return self._call(self.take().value, at) if self.ahead().upper == "(" else self._column()
        if token.kind == "word":
            return self._word()
        if token.text == "?":
            self.fail("parameters are not part of scripts", fix="write the value")
        return self.fail("expected an expression")

    def _word(self) -> n.Node:
        token = self.token
        at, word = token.start, token.upper
        if word in ("TRUE", "FALSE"):
            return n.Literal("boolean", self.take().upper, at=at)
        if word in ("NULL", "UNKNOWN"):
            return n.Literal("null", self.take().upper, at=at)
        if word in ("DATE", "TIME", "TIMESTAMP") and self.ahead().kind == "text":
            self.take()
            return n.Literal(word.lower(), self.take().value, at=at)  # type: ignore[arg-type]
        if word == "INTERVAL":
            return self._interval()
        if word == "CASE":
            return self._case()
        if word in ("ARRAY", "MAP") and self.ahead().upper == "[":
            return self._collection()
        if word == "EXISTS":
            self.take()
            self.expect("(")
            query = self.query()
            self.expect(")")
            return n.Nested(query, exists=True, at=at)
        if self.ahead().upper == "(" and (word not in RESERVED or word in ("CAST", "LEFT", "RIGHT")):
            return self._call(self.take().text, at)
        if word in _BARE and self.ahead().upper not in (".", "("):
            return n.Call(self.take().upper, at=at)
        return self._column()

    def _column(self) -> n.Node:
        at = self.token.start
        parts = [self.name()]
        while self.at(".") and self.ahead().upper != "*":
            self.take()
            parts.append(self.name())
        return n.Name(tuple(parts), at=at)

    def _interval(self) -> n.Node:
        at = self.take().start
        sign = "-" if self.accept("-") else ""
        if not sign:
            self.accept("+")
        if self.token.kind != "text":
            self.fail("expected the value of the interval in quotes", fix="write INTERVAL '5' SECOND")
        text = self.take().value
        if sign:
            text = text[1:] if text.startswith("-") else f"-{text}"
        unit = until = self._unit(UNITS)
        if self.accept("TO"):
            finer = ("MONTH",) if unit == "YEAR" else CLOCK[CLOCK.index(unit) + 1 :] if unit in CLOCK else ()
            if self.token.upper not in finer:
                self.fail("an INTERVAL goes from a longer unit to a shorter one", fix="write INTERVAL '90' SECOND")
            until = self._unit(finer)
        return n.Span(text, unit, until, at=at)

    def _unit(self, valid: tuple[str, ...]) -> str:
        token = self.token
        word = token.upper
        if word not in valid and word.removesuffix("S") in valid:
            word = word.removesuffix("S")
        if word not in valid:
            self.fail("expected a unit of time", fix=f"use one of {', '.join(valid)}")
        self.take()
        if self.accept("("):  # the precision limits the digits only
            self.take()
            if self.accept(","):
                self.take()
            self.expect(")")
        return word

    def _case(self) -> n.Node:
        at = self.take().start
        operand = None if self.at("WHEN") else self.expression()
        whens = []
        while self.accept("WHEN"):
            condition = self.expression()
            self.expect("THEN")
            whens.append((condition, self.expression()))
        if not whens:
            self.fail("expected WHEN")
        otherwise = self.expression() if self.accept("ELSE") else None
        self.expect("END")
        return n.Case(operand, tuple(whens), otherwise, at=at)

    def _collection(self) -> n.Node:
        token = self.take()
        self.expect("[")
        items = () if self.at("]") else self.commas(self.expression)
        self.expect("]")
        if token.upper == "MAP" and len(items) % 2:
            self.fail("MAP[…] takes keys and values in turn", token, "write MAP['a', 1, 'b', 2]")
        return n.Collection(token.upper, items, at=token.start)

    # calls

    def _call(self, name: str, at: int) -> n.Node:
        upper = name.upper()
        self.expect("(")
        if upper in ("CAST", "TRY_CAST"):
            return self._cast(at, trying=upper == "TRY_CAST")
        special = {
            "EXTRACT": self._extract,
            "TRIM": self._trim,
            "POSITION": self._position,
            "OVERLAY": self._overlay,
            "SUBSTRING": self._substring,
            "SUBSTR": self._substring,
            "FLOOR": self._rounding,
            "CEIL": self._rounding,
            "CEILING": self._rounding,
            "TIMESTAMPDIFF": self._by_unit,
            "TIMESTAMPADD": self._by_unit,
            **dict.fromkeys(_JSON, self._json),
        }.get(upper)
        if special is not None:
            arguments, words = special()
            self.expect(")")
            return n.Call(name, arguments, words, at=at)
        distinct = self.accept("DISTINCT")
        if not distinct:
            self.accept("ALL")
        star = self.accept("*")
        arguments = () if star or self.at(")") else self.commas(self.expression)
        if upper == "ROW":
            self.expect(")")
            return n.Collection("ROW", arguments, at=at)
        words = {}
        if self.accept("ORDER", "BY") or self.at("WITHIN") or self.at("ABSENT") or self.at("KEY"):
            self.fail(f"{name} with this clause cannot be translated", fix="leave the clause out")
        self.expect(")")
        condition = None
        if self.accept("FILTER"):
            self.expect("(")
            self.expect("WHERE")
            condition = self.expression()
            self.expect(")")
        over = self._over() if self.at("OVER") else None
        return n.Call(name, arguments, words, distinct, star, condition, over, at=at)

    def _cast(self, at: int, *, trying: bool) -> n.Node:
        operand = self.expression()
        self.expect("AS")
        kind = self.type_until(")")
        self.expect(")")
        return n.Cast(operand, kind, trying, at=at)

    def type_until(self, *ends: str) -> t.DataType:
        """A column type, which reaches to one of these words outside of brackets."""
        start, depth = self.token.start, 0
        stop = start
        while self.token.kind != "end" and (depth or self.token.upper not in ends):
            depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(self.token.upper, 0)
            stop = self.take().end
        shown = self.text[start:stop]
        try:
            return parse_type(shown)
        except TypeSyntaxError as e:
            wrong = shown[e.position : e.position + e.length]
            fix = "write a type of Flink SQL, as BIGINT, STRING or TIMESTAMP(3)"
            raise UntranslatableError(wrong, e.reason, fix, self.text, start + e.position) from None

    def _extract(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        unit = self._unit(_FIELDS)
        self.expect("FROM")
        return (self.expression(),), {"UNIT": unit}

    def _trim(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        side = self.take().upper if self.token.upper in ("BOTH", "LEADING", "TRAILING") else "BOTH"
        if self.accept("FROM"):
            return (self.expression(),), {"SIDE": side}
        first = self.expression()
        if self.accept("FROM"):
            return (self.expression(), first), {"SIDE": side}
        return (first,), {"SIDE": side}

    def _position(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        needle = self._sum()
        self.expect("IN")
        return (needle, self.expression()), {}

    def _overlay(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        found = [self.expression()]
        for word in ("PLACING", "FROM"):
            self.expect(word)
            found.append(self.expression())
        if self.accept("FOR"):
            found.append(self.expression())
        return tuple(found), {}

    def _substring(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        found = [self.expression()]
        if self.accept("FROM"):
            found.append(self.expression())
            if self.accept("FOR"):
                found.append(self.expression())
        else:
            while self.accept(","):
                found.append(self.expression())
        return tuple(found), {}

    def _rounding(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        operand = self.expression()
        return (operand,), ({"UNIT": self._unit(_FIELDS)} if self.accept("TO") else {})

    def _by_unit(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        unit = self.token.upper.removeprefix("SQL_TSI_")
        if self.token.upper.startswith("SQL_TSI_") and unit in UNITS:
            self.take()
        else:
            unit = self._unit(UNITS)
        self.expect(",")
        return self.commas(self.expression), {"UNIT": unit}

    def _json(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        arguments = self.commas(self.expression)
        words: dict[str, Any] = {}
        if self.accept("RETURNING"):
            words["RETURNING"] = self.type_until(")", "NULL", "ERROR", "DEFAULT", "EMPTY", "WITH", "WITHOUT")
        if self.token.upper in ("WITH", "WITHOUT"):
            start = stop = self.token.start
            while self.token.upper in ("WITH", "WITHOUT", "CONDITIONAL", "UNCONDITIONAL", "ARRAY", "WRAPPER"):
                stop = self.take().end
            words["WRAPPER"] = " ".join(self.text[start:stop].upper().split())
        while not self.at(")"):
            action: Any
            if self.accept("DEFAULT"):
                action = self._sum()
            elif self.accept("EMPTY"):
                action = f"EMPTY {self.take().upper}"
            else:
                action = self.take().upper
            if not isinstance(action, n.Node) and action not in (
                *("NULL", "ERROR", "TRUE", "FALSE", "UNKNOWN", "EMPTY ARRAY", "EMPTY OBJECT"),
            ):
                self.fail("expected NULL, ERROR or DEFAULT … ON EMPTY or ON ERROR", self.last)
            self.expect("ON")
            event = self.take()
            if event.upper not in ("EMPTY", "ERROR"):
                self.fail("expected ON EMPTY or ON ERROR", event)
            words[event.upper] = action
        return arguments, words

    def _over(self) -> n.Over:
        at = self.take().start
        return self.window(at) if self.at("(") else n.Over((), (), name=self.name(), at=at)

    def window(self, at: int) -> n.Over:
        """The window of an analytic function, in brackets."""
        self.expect("(")
        partition = self.commas(self.expression) if self.accept("PARTITION", "BY") else ()
        order = self.commas(self.order) if self.accept("ORDER", "BY") else ()
        start = stop = self.token.start
        while not self.at(")") and self.token.kind != "end":
            stop = self.take().end
        self.expect(")")
        return n.Over(partition, order, self.text[start:stop], at=at)

    def order(self) -> n.Order:
        """One of the things that rows are ordered by."""
        at = self.token.start
        value = self.expression()
        descending = self.accept("DESC")
        if not descending:
            self.accept("ASC")
        nulls = self.take().upper if self.accept("NULLS") else ""
        return n.Order(value, descending, nulls, at=at)

    def query(self) -> n.Node:
        """A query inside an expression; a plain expression has none."""
        self.fail("a query cannot stand in this expression", fix="use it in the FROM of a SELECT")


def read_expression(text: str) -> n.Node:
    """The tree of a scalar expression.

    Raises:
        UntranslatableError: It is none.
    """
    return Reader(text).whole()
