"""Reads scalar expressions of Flink SQL into syntax trees, by precedence climbing and with exact positions.

General SQL parsers have no dialect for Flink: one of them read ``MAP['a', 1]`` as a column, dropped an argument of
``TIMESTAMPDIFF``, and accepted neither ``ROW<…>`` nor ``JSON_VALUE(… RETURNING …)``.
"""

from __future__ import annotations

from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.argument_reader import UNITS, ArgumentReader
from kdsl.flink_sql.syntax.errors import nesting_error
from kdsl.flink_sql.syntax.intervals import TIME_UNITS
from kdsl.flink_sql.syntax.sql_reader import RESERVED

_BARE = frozenset(
    ["CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_ROW_TIMESTAMP", "PI"]
)
_WITHOUT_CLAUSE = "leave the clause out, which changes the order of the values, or what becomes of NULL"
_COMPARE = ("=", "<>", "!=", "<", "<=", ">", ">=")


class ExpressionReader(ArgumentReader):
    """Reads expressions; `kdsl.flink_sql.syntax.query_reader` adds queries."""

    def read_all(self) -> n.Node:
        """Read the whole text into its syntax tree."""
        try:
            tree = self.read_root()
        except RecursionError:
            raise nesting_error(self.token.text, self.text, self.token.start) from None
        self.expect_end()
        return tree

    def read_root(self) -> n.Node:
        """Read the outermost part of the text, here an expression; raise UntranslatableError as `read_expression`."""
        return self.read_expression()

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
        left = self.read_sum()
        while True:
            token = self.token
            if token.upper in _COMPARE:
                self.take()
                left = n.Binary("<>" if token.text == "!=" else token.text, left, self.read_sum(), at=token.start)
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
            return n.Is(left, "DISTINCT", self.read_sum(), negated, at=at)
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
            low = self.read_sum()
            self.expect("AND")
            return n.Between(left, low, self.read_sum(), symmetric, negated, at=at)
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
        pattern = self.read_sum()
        escape = self.read_sum() if self.accept("ESCAPE") else None
        return n.Like(left, pattern, escape, negated, similar, at=at)

    def read_sum(self) -> n.Node:
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
        unit = until = self.read_unit(UNITS)
        if self.accept("TO"):
            finer = (
                ("MONTH",) if unit == "YEAR" else TIME_UNITS[TIME_UNITS.index(unit) + 1 :] if unit in TIME_UNITS else ()
            )
            if self.token.upper not in finer:
                self.fail("an INTERVAL goes from a longer unit to a shorter one", fix="write INTERVAL '90' SECOND")
            until = self.read_unit(finer)
        return n.Span(text, unit, until, at=at)

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
        with_words = self.read_arguments(upper)
        if with_words is not None:
            self.expect(")")
            return n.Call(name, *with_words, at=at)
        distinct = self.accept("DISTINCT")
        if not distinct:
            self.accept("ALL")
        star = self.accept("*")
        arguments = () if star or self.at(")") else self.read_list(self.read_expression)
        if upper == "ROW":
            self.expect(")")
            return n.Collection("ROW", arguments, at=at)
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
        return n.Call(name, arguments, {}, distinct, star, condition, over, at=at)

    def _read_cast(self, at: int, *, trying: bool) -> n.Node:
        """Read the arguments of CAST or TRY_CAST, and ``)``; raise UntranslatableError for a mistake."""
        operand = self.read_expression()
        self.expect("AS")
        kind = self.read_type()
        self.expect(")")
        return n.Cast(operand, kind, trying, at=at)

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
        """Read a key of ``ORDER BY``."""
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
    """Read a scalar expression into a syntax tree."""
    return ExpressionReader(text).read_all()
