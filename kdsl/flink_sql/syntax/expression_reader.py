"""Reads scalar expressions of Flink SQL into syntax trees, by precedence climbing and with exact positions.

General SQL parsers have no dialect for Flink: one of them read ``MAP['a', 1]`` as a column, dropped an argument of
``TIMESTAMPDIFF``, and accepted neither ``ROW<…>`` nor ``JSON_VALUE(… RETURNING …)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.flink_sql.syntax.intervals import TIME_UNITS
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
UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_FIELDS = (
    *(*UNITS, "MILLISECOND", "MICROSECOND", "NANOSECOND", "EPOCH", "DECADE", "CENTURY", "MILLENNIUM"),
    *("DOY", "DOW", "ISODOW", "ISOYEAR"),
)
_BARE = frozenset(
    ["CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_ROW_TIMESTAMP", "PI"]
)
_CORRECT = "correct the SQL at this position"
_WITHOUT_CLAUSE = "leave the clause out, which changes the order of the values, or what becomes of NULL"
_COMPARE = ("=", "<>", "!=", "<", "<=", ">", ">=")
_JSON = ("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS")
_WITH_WORDS = ("JSON_OBJECT", "JSON_ARRAY", "JSON_OBJECTAGG", "JSON_ARRAYAGG")


def nesting_error(name: str, text: str, position: int) -> UntranslatableError:
    """Create the error for SQL that is nested more deeply than Python's stack allows."""
    reason = "this is nested too deeply"
    return UntranslatableError(
        name, reason, "reduce the nesting, or write it as several columns or views", text, position
    )


class ExpressionReader(Cursor):
    """Reads expressions; `kdsl.flink_sql.syntax.query_reader` adds queries.

    A method that reads something takes its tokens, and the next one comes after them.
    """

    def __init__(self, text: str) -> None:
        """Split the text into tokens; raise UntranslatableError if one of them is broken."""
        super().__init__(tokenize(text))
        self.text = text
        for token in self.tokens:
            if token.kind == "broken":
                raise UntranslatableError(token.text, token.reason, token.fix, text, token.start)

    def read_all(self) -> n.Node:
        """Read the whole text into its syntax tree.

        Raises:
            UntranslatableError: It is not SQL that this reader reads, or is nested too deeply.
        """
        try:
            tree = self.read_root()
        except RecursionError:
            raise nesting_error(self.token.text, self.text, self.token.start) from None
        self.expect_end()
        return tree

    def read_root(self) -> n.Node:
        """Read the outermost part of the text, here an expression; raise UntranslatableError as `read_expression`."""
        return self.read_expression()

    # tokens

    def expect(self, word: str) -> Token:
        """Take a keyword or sign, and return its token.

        Raises:
            UntranslatableError: It does not come next.
        """
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
        """Check that the text ends here.

        Raises:
            UntranslatableError: It does not.
        """
        if self.token.kind != "end":
            self.fail_unexpected("the end of the expression")

    def read_name(self) -> str:
        """Read a name, in back-ticks or not.

        Raises:
            UntranslatableError: No name comes next.
        """
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

    # expressions, from those that bind loosest

    def read_expression(self) -> n.Node:
        """Read an expression; raise UntranslatableError if none comes next, or it has a mistake."""
        left = self._read_and()
        while self.at("OR"):
            at = self.take().start
            left = n.Binary("OR", left, self._read_and(), at=at)
        return left

    def _read_and(self) -> n.Node:
        """Read conditions with AND between them; raise UntranslatableError if one cannot be read."""
        left = self._read_not()
        while self.at("AND"):
            at = self.take().start
            left = n.Binary("AND", left, self._read_not(), at=at)
        return left

    def _read_not(self) -> n.Node:
        """Read a condition, perhaps after NOT; raise UntranslatableError if it cannot be read."""
        if self.at("NOT"):
            at = self.take().start
            return n.Unary("NOT", self._read_not(), at=at)
        return self._read_predicate()

    def _read_predicate(self) -> n.Node:
        """Read a comparison, IS, IN, LIKE or BETWEEN, or a plain value; raise UntranslatableError for a mistake."""
        left = self._read_sum()
        while True:
            token = self.token
            if token.upper in _COMPARE:
                self.take()
                left = n.Binary("<>" if token.text == "!=" else token.text, left, self._read_sum(), at=token.start)
            elif token.upper == "IS":
                left = self._read_is(left)
            elif token.upper in ("BETWEEN", "IN", "LIKE", "SIMILAR") or (
                token.upper == "NOT" and self.peek().upper in ("BETWEEN", "IN", "LIKE", "SIMILAR")
            ):
                left = self._read_match(left)
            else:
                return left

    def _read_is(self, left: n.Node) -> n.Node:
        """Read what follows IS, perhaps NOT: NULL, TRUE, FALSE, UNKNOWN, JSON, or DISTINCT FROM a value."""
        at = self.take().start
        negated = self.accept("NOT")
        if self.accept("DISTINCT", "FROM"):
            return n.Is(left, "DISTINCT", self._read_sum(), negated, at=at)
        for what in ("NULL", "TRUE", "FALSE", "UNKNOWN", "JSON"):
            if self.accept(what):
                return n.Is(left, what, None, negated, at=at)
        return self.fail_unexpected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM after IS")

    def _read_match(self, left: n.Node) -> n.Node:
        """Read BETWEEN, IN, LIKE or SIMILAR TO after a value, perhaps negated; or raise UntranslatableError."""
        negated = self.accept("NOT")
        at = self.token.start
        if self.accept("BETWEEN"):
            symmetric = self.accept("SYMMETRIC")
            if not symmetric:
                self.accept("ASYMMETRIC")
            low = self._read_sum()
            self.expect("AND")
            return n.Between(left, low, self._read_sum(), symmetric, negated, at=at)
        if self.accept("IN"):
            self.expect("(")
            if self.at("SELECT") or self.at("WITH"):
                query = self.read_query()
                self.expect(")")
                return n.In(left, (), query, negated, at=at)
            values = self.read_list(self.read_expression)
            self.expect(")")
            return n.In(left, values, None, negated, at=at)
        similar = self.accept("SIMILAR")
        self.expect("TO" if similar else "LIKE")
        pattern = self._read_sum()
        escape = self._read_sum() if self.accept("ESCAPE") else None
        return n.Like(left, pattern, escape, negated, similar, at=at)

    def _read_sum(self) -> n.Node:
        """Read values with ``+``, ``-`` or ``||`` between them; raise UntranslatableError if one cannot be read."""
        left = self._read_product()
        while self.token.upper in ("+", "-", "||"):
            token = self.take()
            left = n.Binary(token.text, left, self._read_product(), at=token.start)
        return left

    def _read_product(self) -> n.Node:
        """Read values with ``*``, ``/`` or ``%`` between them; raise UntranslatableError if one cannot be read."""
        left = self._read_sign()
        while self.token.upper in ("*", "/", "%"):
            token = self.take()
            left = n.Binary(token.text, left, self._read_sign(), at=token.start)
        return left

    def _read_sign(self) -> n.Node:
        """Read a value with its indexes and members, perhaps after signs; raise UntranslatableError for a mistake."""
        token = self.token
        if token.upper in ("-", "+"):
            self.take()
            return n.Unary(token.text, self._read_sign(), at=token.start)
        return self._read_postfix(self._read_primary())

    def _read_postfix(self, left: n.Node) -> n.Node:
        """Read ``[index]`` and ``.member`` after a value, and return the value with them."""
        while True:
            at = self.token.start
            if self.accept("["):
                left = n.Index(left, self.read_expression(), at=at)
                self.expect("]")
            elif self.at(".") and not isinstance(left, n.Literal):
                self.take()
                left = n.Member(left, self.read_name(), at=at)
            elif self.at("AT", "TIME", "ZONE"):
                self.fail("AT TIME ZONE is not part of Flink SQL", fix="use CONVERT_TZ, or CAST to TIMESTAMP_LTZ")
            else:
                return left

    def _read_primary(self) -> n.Node:
        """Read a number, a string, bytes, a word with what belongs to it, or an expression or query in brackets.

        Several expressions in brackets are a ROW.
        """
        token = self.token
        at = token.start
        if token.kind == "number":
            return n.Literal("number", self.take().text, at=at)
        if token.kind == "text":
            value = self.take().value
            while self.token.kind == "text":  # SQL joins strings that follow each other
                value += self.take().value
            return n.Literal("string", value, at=at)
        if token.kind == "bytes":
            return n.Literal("bytes", self.take().value, at=at)
        if self.accept("("):
            if self.at("SELECT") or self.at("WITH"):
                inner: n.Node = n.Nested(self.read_query(), at=at)
            else:
                inner = self.read_expression()
                if self.accept(","):
                    inner = n.Collection("ROW", (inner, *self.read_list(self.read_expression)), at=at)
            self.expect(")")
            return inner
        if token.kind == "quoted":
            return self._read_call(self.take().value, at) if self.peek().upper == "(" else self._read_column()
        if token.kind == "word":
            return self._read_word()
        if token.text == "?":
            self.fail("parameters are not part of scripts", fix="write the value")
        return self.fail_unexpected("an expression")

    def _read_word(self) -> n.Node:
        """Read what begins with a word: a constant, CASE, ARRAY, MAP, EXISTS, a call or a column."""
        token = self.token
        at, word = token.start, token.upper
        if word in ("TRUE", "FALSE"):
            return n.Literal("boolean", self.take().upper, at=at)
        if word in ("NULL", "UNKNOWN"):
            return n.Literal("null", self.take().upper, at=at)
        if word in ("DATE", "TIME", "TIMESTAMP") and self.peek().kind == "text":
            self.take()
            return n.Literal(word.lower(), self.take().value, at=at)  # type: ignore[arg-type]
        if word == "INTERVAL":
            return self._read_interval()
        if word == "CASE":
            return self._read_case()
        if word in ("ARRAY", "MAP") and self.peek().upper == "[":
            return self._read_collection()
        if word == "EXISTS":
            self.take()
            self.expect("(")
            query = self.read_query()
            self.expect(")")
            return n.Nested(query, exists=True, at=at)
        if self.peek().upper == "(" and (word not in RESERVED or word in ("CAST", "LEFT", "RIGHT")):
            return self._read_call(self.take().text, at)
        if word in _BARE and self.peek().upper not in (".", "("):
            return n.Call(self.take().upper, at=at)
        return self._read_column()

    def _read_column(self) -> n.Node:
        """Read the name of a column, perhaps with its table and members; raise UntranslatableError without a name."""
        at = self.token.start
        parts = [self.read_name()]
        while self.at(".") and self.peek().upper != "*":
            self.take()
            parts.append(self.read_name())
        return n.Name(tuple(parts), at=at)

    def _read_interval(self) -> n.Node:
        """Read an INTERVAL."""
        at = self.take().start
        sign = "-" if self.accept("-") else ""
        if not sign:
            self.accept("+")
        if self.token.kind != "text":
            self.fail_unexpected("the value of the interval in quotes", fix="write INTERVAL '5' SECOND")
        text = self.take().value
        if sign:
            text = text[1:] if text.startswith("-") else f"-{text}"
        unit = until = self._read_unit(UNITS)
        if self.accept("TO"):
            finer = (
                ("MONTH",) if unit == "YEAR" else TIME_UNITS[TIME_UNITS.index(unit) + 1 :] if unit in TIME_UNITS else ()
            )
            if self.token.upper not in finer:
                self.fail("an INTERVAL goes from a longer unit to a shorter one", fix="write INTERVAL '90' SECOND")
            until = self._read_unit(finer)
        return n.Span(text, unit, until, at=at)

    def _read_unit(self, valid: tuple[str, ...]) -> str:
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

    def _read_case(self) -> n.Node:
        """Read a CASE expression."""
        at = self.take().start
        operand = None if self.at("WHEN") else self.read_expression()
        whens = []
        while self.accept("WHEN"):
            condition = self.read_expression()
            self.expect("THEN")
            whens.append((condition, self.read_expression()))
        if not whens:
            self.fail_unexpected("WHEN")
        otherwise = self.read_expression() if self.accept("ELSE") else None
        self.expect("END")
        return n.Case(operand, tuple(whens), otherwise, at=at)

    def _read_collection(self) -> n.Node:
        """Read ARRAY[…] or MAP[…], also with nothing in the brackets."""
        token = self.take()
        self.expect("[")
        items = () if self.at("]") else self.read_list(self.read_expression)
        self.expect("]")
        if token.upper == "MAP" and len(items) % 2:
            self.fail("MAP[…] takes keys and values in turn", token, "write MAP['a', 1, 'b', 2]")
        return n.Collection(token.upper, items, at=token.start)

    # calls

    def _read_call(self, name: str, at: int) -> n.Node:
        """Read the call of a function after its name, with FILTER and OVER if they follow.

        Some functions have arguments with words between them, and no FILTER or OVER. CAST and ROW become nodes of their
        own, not calls.
        """
        upper = name.upper()
        self.expect("(")
        if upper in ("CAST", "TRY_CAST"):
            return self._read_cast(at, trying=upper == "TRY_CAST")
        special = {
            "EXTRACT": self._read_extract,
            "TRIM": self._read_trim,
            "POSITION": self._read_position,
            "OVERLAY": self._read_overlay,
            "SUBSTRING": self._read_substring,
            "SUBSTR": self._read_substring,
            "FLOOR": self._read_rounding,
            "CEIL": self._read_rounding,
            "CEILING": self._read_rounding,
            "TIMESTAMPDIFF": self._read_timestamp_arithmetic,
            "TIMESTAMPADD": self._read_timestamp_arithmetic,
            **dict.fromkeys(_JSON, self._read_json),
            **dict.fromkeys(_WITH_WORDS, self._skip_arguments),
        }.get(upper)
        if special is not None:
            arguments, words = special()
            self.expect(")")
            return n.Call(name, arguments, words, at=at)
        distinct = self.accept("DISTINCT")
        if not distinct:
            self.accept("ALL")
        star = self.accept("*")
        arguments = () if star or self.at(")") else self.read_list(self.read_expression)
        if upper == "ROW":
            self.expect(")")
            return n.Collection("ROW", arguments, at=at)
        words = {}
        if self.accept("ORDER", "BY") or self.at("WITHIN") or self.at("ABSENT") or self.at("KEY"):
            self.fail(f"{name} with this clause cannot be translated", fix=_WITHOUT_CLAUSE)
        self.expect(")")
        condition = None
        if self.accept("FILTER"):
            self.expect("(")
            self.expect("WHERE")
            condition = self.read_expression()
            self.expect(")")
        over = self._read_window_of_over() if self.at("OVER") else None
        return n.Call(name, arguments, words, distinct, star, condition, over, at=at)

    def _skip_arguments(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        """Skip the arguments of a function that has words between them and no translation, up to its bracket."""
        depth = 0
        while self.token.kind != "end" and (depth or not self.at(")")):
            depth += {"(": 1, ")": -1}.get(self.take().text, 0)
        return (), {}

    def _read_cast(self, at: int, *, trying: bool) -> n.Node:
        """Read the arguments of CAST or TRY_CAST, and ``)``; raise UntranslatableError for a mistake."""
        operand = self.read_expression()
        self.expect("AS")
        kind = self.read_type()
        self.expect(")")
        return n.Cast(operand, kind, trying, at=at)

    def read_type(self, *, nullability: bool = True) -> t.DataType:
        """Read a column type; ``NULL`` or ``NOT NULL`` may follow it if ``nullability`` is true.

        Raises:
            UntranslatableError: What comes next is not a type.
        """
        try:
            return TypeReader(self, self.text).read(nullability=nullability)
        except TypeSyntaxError as e:
            wrong = self.text[e.position : e.position + e.length]
            fix = "write a type of Flink SQL, as BIGINT, STRING or TIMESTAMP(3)"
            raise UntranslatableError(wrong, e.reason, fix, self.text, e.position) from None

    def _read_extract(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        """Read the argument of EXTRACT, and return it with ``{"UNIT": unit}``; UntranslatableError for a mistake."""
        unit = self._read_unit(_FIELDS)
        self.expect("FROM")
        return (self.read_expression(),), {"UNIT": unit}

    def _read_trim(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        """Read the arguments of TRIM, the string first, and ``SIDE``; raise UntranslatableError for a mistake."""
        side = self.take().upper if self.token.upper in ("BOTH", "LEADING", "TRAILING") else "BOTH"
        if self.accept("FROM"):
            return (self.read_expression(),), {"SIDE": side}
        first = self.read_expression()
        if self.accept("FROM"):
            return (self.read_expression(), first), {"SIDE": side}
        return (first,), {"SIDE": side}

    def _read_position(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        """Read the arguments of POSITION; no clauses. Raise UntranslatableError for a mistake."""
        needle = self._read_sum()
        self.expect("IN")
        return (needle, self.read_expression()), {}

    def _read_overlay(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        """Read the arguments of OVERLAY, three or four; no clauses. Raise UntranslatableError for a mistake."""
        arguments = [self.read_expression()]
        for word in ("PLACING", "FROM"):
            self.expect(word)
            arguments.append(self.read_expression())
        if self.accept("FOR"):
            arguments.append(self.read_expression())
        return tuple(arguments), {}

    def _read_substring(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        """Read the arguments of SUBSTRING, with words or any number with commas; or raise UntranslatableError."""
        arguments = [self.read_expression()]
        if self.accept("FROM"):
            arguments.append(self.read_expression())
            if self.accept("FOR"):
                arguments.append(self.read_expression())
        else:
            while self.accept(","):
                arguments.append(self.read_expression())
        return tuple(arguments), {}

    def _read_rounding(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        """Read the argument of FLOOR or CEIL, and ``UNIT`` if TO follows; raise UntranslatableError for a mistake."""
        operand = self.read_expression()
        return (operand,), ({"UNIT": self._read_unit(_FIELDS)} if self.accept("TO") else {})

    def _read_timestamp_arithmetic(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        """Read the arguments of TIMESTAMPADD or TIMESTAMPDIFF, and ``UNIT``; or raise UntranslatableError."""
        unit = self.token.upper.removeprefix("SQL_TSI_")
        if self.token.upper.startswith("SQL_TSI_") and unit in UNITS:
            self.take()
        else:
            unit = self._read_unit(UNITS)
        self.expect(",")
        return self.read_list(self.read_expression), {"UNIT": unit}

    def _read_json(self) -> tuple[tuple[n.Node, ...], dict[str, Any]]:
        """Read the arguments of a JSON function; also return its clauses, by name.

        Returns:
            The arguments; and ``RETURNING`` (a type), ``WRAPPER`` (words), ``EMPTY`` and ``ERROR`` (words, or the node
            of a default), as far as they are written.
        """
        arguments = self.read_list(self.read_expression)
        words: dict[str, Any] = {}
        if self.accept("RETURNING"):
            words["RETURNING"] = self.read_type(nullability=False)  # NULL ON EMPTY may follow
        if self.token.upper in ("WITH", "WITHOUT"):
            start = stop = self.token.start
            while self.token.upper in ("WITH", "WITHOUT", "CONDITIONAL", "UNCONDITIONAL", "ARRAY", "WRAPPER"):
                stop = self.take().end
            words["WRAPPER"] = " ".join(self.text[start:stop].upper().split())
        while not self.at(")"):
            action: Any
            if self.accept("DEFAULT"):
                action = self._read_sum()
            elif self.accept("EMPTY"):
                action = f"EMPTY {self.take().upper}"
            else:
                action = self.take().upper
            if not isinstance(action, n.Node) and action not in (
                *("NULL", "ERROR", "TRUE", "FALSE", "UNKNOWN", "EMPTY ARRAY", "EMPTY OBJECT"),
            ):
                self.fail_unexpected("NULL, ERROR or DEFAULT … ON EMPTY or ON ERROR", self.previous)
            self.expect("ON")
            event = self.take()
            if event.upper not in ("EMPTY", "ERROR"):
                self.fail_unexpected("ON EMPTY or ON ERROR", event)
            words[event.upper] = action
        return arguments, words

    def _read_window_of_over(self) -> n.Over:
        """Read the word OVER and a window in brackets, or the name of one; raise UntranslatableError for a mistake."""
        at = self.take().start
        return self.read_window(at) if self.at("(") else n.Over((), (), name=self.read_name(), at=at)

    def read_window(self, at: int) -> n.Over:
        """Read the window of an analytic function, in brackets; ``at`` is the position of the node.

        The frame is kept as it is written. Raise UntranslatableError for a mistake.
        """
        self.expect("(")
        partition = self.read_list(self.read_expression) if self.accept("PARTITION", "BY") else ()
        order = self.read_list(self.read_order_key) if self.accept("ORDER", "BY") else ()
        start = stop = self.token.start
        while not self.at(")") and self.token.kind != "end":
            stop = self.take().end
        self.expect(")")
        return n.Over(partition, order, self.text[start:stop], at=at)

    def read_order_key(self) -> n.Order:
        """Read a key of ``ORDER BY``.

        Raises:
            UntranslatableError: The key has a mistake, or neither FIRST nor LAST follows NULLS.
        """
        at = self.token.start
        value = self.read_expression()
        descending = self.accept("DESC")
        if not descending:
            self.accept("ASC")
        nulls = ""
        if self.accept("NULLS"):
            if self.token.upper not in ("FIRST", "LAST"):
                self.fail_unexpected("FIRST or LAST after NULLS")
            nulls = self.take().upper
        return n.Order(value, descending, nulls, at=at)

    def read_query(self) -> n.Node:
        """Raise UntranslatableError: an expression by itself cannot contain a query. `QueryReader` overrides this."""
        self.fail("a query cannot be used in this expression", fix="use it in the FROM of a SELECT")


def read_expression(text: str) -> n.Node:
    """Read a scalar expression into a syntax tree.

    Raises:
        UntranslatableError: The text is not an expression, or is nested too deeply.
    """
    return ExpressionReader(text).read_all()
