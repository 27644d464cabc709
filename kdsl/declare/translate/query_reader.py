"""Queries of Flink SQL read from tokens."""

from __future__ import annotations

import re

import attrs

from kdsl.declare.translate import tree as n
from kdsl.declare.translate.reader import RESERVED, Reader

WINDOWS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_OPTIONS = re.compile(r"/\*\+\s*OPTIONS\s*\(", re.IGNORECASE)
_JOINS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")


class QueryReader(Reader):
    """Reads ``SELECT``, ``VALUES``, ``WITH`` and what combines them."""

    def statement(self) -> n.Node:
        """What a whole text holds: a query, perhaps with its semicolon."""
        found = self.query()
        self.accept(";")
        return found

    def query(self) -> n.Node:
        """A query."""
        at = self.token.start
        named: list[tuple[str, tuple[str, ...], n.Node]] = []
        if self.accept("WITH"):
            if self.at("RECURSIVE"):
                self.fail("a recursive WITH cannot be translated", fix="write the steps out")
            while True:
                name = self.name()
                columns = self._names() if self.at("(") else ()
                self.expect("AS")
                self.expect("(")
                named.append((name, columns, self.query()))
                self.expect(")")
                if not self.accept(","):
                    break
        body = self._combined()
        order = self.commas(self.order) if self.accept("ORDER", "BY") else ()
        limit = offset = None
        if self.accept("LIMIT"):
            limit = None if self.accept("ALL") else self.expression()
        if self.accept("OFFSET"):
            offset = self.expression()
            _ = self.accept("ROWS") or self.accept("ROW")
        if self.accept("FETCH"):
            _ = self.accept("FIRST") or self.accept("NEXT")
            limit = self.expression()
            _ = self.accept("ROWS") or self.accept("ROW")
            self.expect("ONLY")
        return n.Finished(body, tuple(named), order, limit, offset, at=at)

    def _names(self) -> tuple[str, ...]:
        self.expect("(")
        names = self.commas(self.name)
        self.expect(")")
        return names

    def _combined(self) -> n.Node:
        left = self._intersection()
        while self.token.upper in ("UNION", "EXCEPT", "MINUS"):
            token = self.take()
            every = self.accept("ALL")
            if not every:
                self.accept("DISTINCT")
            operator = "EXCEPT" if token.upper == "MINUS" else token.upper
            left = n.Combined(operator, every, left, self._intersection(), at=token.start)
        return left

    def _intersection(self) -> n.Node:
        left = self._term()
        while self.at("INTERSECT"):
            token = self.take()
            every = self.accept("ALL")
            left = n.Combined("INTERSECT", every, left, self._term(), at=token.start)
        return left

    def _term(self) -> n.Node:
        at = self.token.start
        if self.accept("("):
            inner = self.query()
            self.expect(")")
            return inner
        if self.accept("VALUES"):
            return n.Values(self.commas(self._row), at=at)
        return self._select()

    def _row(self) -> tuple[n.Node, ...]:
        self.accept("ROW")
        if not self.accept("("):
            return (self.expression(),)
        values = self.commas(self.expression)
        self.expect(")")
        return values

    def _select(self) -> n.Node:
        at = self.expect("SELECT").start
        if self.token.kind == "hint":
            self.take()  # advice on how to join, which changes no row
        distinct = self.accept("DISTINCT")
        if not distinct:
            self.accept("ALL")
        items = self.commas(self._item)
        source = self._from() if self.accept("FROM") else None
        where = self.expression() if self.accept("WHERE") else None
        group: tuple[n.Node, ...] = ()
        if self.accept("GROUP", "BY"):
            group = tuple(key for keys in self.commas(self._grouping) for key in keys)
        having = self.expression() if self.accept("HAVING") else None
        windows = self.commas(self._named_window) if self.accept("WINDOW") else ()
        for word in ("QUALIFY", "MATCH_RECOGNIZE"):
            if self.at(word):
                self.fail(f"{word} cannot be translated", fix="write the query without it")
        return n.Select(items, source, distinct, where, group, having, windows, at=at)

    def _named_window(self) -> tuple[str, n.Over]:
        at = self.token.start
        name = self.name()
        self.expect("AS")
        return name, self.window(at)

    def _grouping(self) -> tuple[n.Node, ...]:
        """A key of GROUP BY, several in brackets, or several sets of them."""
        at = self.token.start
        kind = "GROUPING SETS" if self.at("GROUPING", "SETS", "(") else self.token.upper
        if kind not in ("ROLLUP", "CUBE", "GROUPING SETS") or (self.ahead().upper != "(" and kind != "GROUPING SETS"):
            key = self.expression()
            several = isinstance(key, n.Collection) and key.kind == "ROW" and self.text[at] == "("
            return key.items if isinstance(key, n.Collection) and several else (key,)
        for _ in kind.split():
            self.take()
        self.expect("(")
        sets = self.commas(self._set)
        self.expect(")")
        return (n.Grouping(kind, sets, at=at),)

    def _set(self) -> tuple[n.Node, ...]:
        for word in ("ROLLUP", "CUBE", "GROUPING"):
            if self.at(word, "(") or self.at(word, "SETS"):
                self.fail(f"{word} inside of another grouping cannot be translated", fix="write the sets out")
        if not self.accept("("):
            return (self.expression(),)
        found = () if self.at(")") else self.commas(self.expression)
        self.expect(")")
        return found

    def _item(self) -> n.Node:
        at = self.token.start
        if self.accept("*"):
            return n.Star(at=at)
        if self.token.kind in ("word", "quoted") and self.ahead().upper == "." and self.ahead(2).upper == "*":
            table = self.name()
            self.take()
            self.take()
            return n.Star(table, at=at)
        value = self.expression()
        return n.Item(value, self._alias(), at=at)

    def _alias(self) -> str | None:
        if self.accept("AS"):
            return self.name()
        return self.name() if self._names_next() else None

    def _names_next(self) -> bool:
        word = self.token.upper
        return self.token.kind == "quoted" or (
            self.token.kind == "word" and word not in RESERVED and word not in ("OFFSET", *_JOINS)
        )

    def _from(self) -> n.Node:
        left = self._joined()
        while self.at(","):
            at = self.take().start
            left = n.Join("CROSS", left, self._joined(), at=at)
        return left

    def _joined(self) -> n.Node:
        left = self._table()
        while self.token.upper in _JOINS:
            at = self.token.start
            natural = self.accept("NATURAL")
            kind = "INNER"
            if not self.at("JOIN"):
                kind = self.take().upper
                self.accept("OUTER")
            self.expect("JOIN")
            right = self._table()
            on: n.Node | None = None
            using: tuple[str, ...] = ()
            if natural:
                if kind == "CROSS" or self.at("ON") or self.at("USING"):
                    self.fail("a NATURAL join has no other condition", fix="leave NATURAL or the condition out")
            elif self.accept("ON"):
                on = self.expression()
            elif self.accept("USING"):
                using = self._names()
            elif kind != "CROSS":
                self.fail("expected ON or USING behind the joined table")
            left = n.Join(kind, left, right, on, using, natural, at=at)
        return left

    def _table(self) -> n.Node:
        at = self.token.start
        self.accept("LATERAL")
        if self.accept("("):
            if self.at("SELECT") or self.at("WITH") or self.at("VALUES") or self.at("("):
                query = self.query()
                self.expect(")")
                return n.Derived(query, *self._table_alias(), at=at)
            inner = self._from()
            self.expect(")")
            return inner
        if self.at("TABLE", "("):
            self.take()
            self.take()
            inner = self._function(at)
            self.expect(")")
            return self._aliased(inner)
        if self.token.kind == "word" and self.ahead().upper == "(":
            return self._aliased(self._function(at))
        table = self._named_table()
        if self.at("FOR", "SYSTEM_TIME"):
            self.fail("a join with a table as of a time cannot be translated", fix="join with the table itself")
        alias, columns = self._table_alias()
        if self.token.kind == "hint":
            self.fail("a hint stands behind the name of a table", fix="write FROM t /*+ OPTIONS(…) */ AS name")
        if columns:
            return n.Derived(n.Finished(n.Select((n.Star(at=at),), table, at=at), at=at), alias, columns, at=at)
        return attrs.evolve(table, alias=alias)

    def _named_table(self) -> n.Table:
        """A table by its name, with its hint."""
        at = self.token.start
        name = [self.name()]
        while self.accept("."):
            name.append(self.name())
        if self.token.kind != "hint":
            return n.Table(tuple(name), at=at)
        if not _OPTIONS.match(self.token.text):
            self.fail("only OPTIONS can be hinted at", fix="write /*+ OPTIONS('key' = 'value') */, or leave it out")
        hint = self.take()
        return n.Table(tuple(name), None, hint.text, hint.start, at=at)

    def _table_alias(self) -> tuple[str | None, tuple[str, ...]]:
        alias = self._alias()
        return alias, (self._names() if alias is not None and self.at("(") else ())

    def _aliased(self, inner: n.Node) -> n.Node:
        alias, columns = self._table_alias()
        if isinstance(inner, n.Unnest):
            return attrs.evolve(inner, alias=alias, columns=columns)
        assert isinstance(inner, n.Windowed)
        if columns:
            self.fail("a window table keeps the names of its columns", fix="name the columns in SELECT")
        return attrs.evolve(inner, alias=alias)

    def _function(self, at: int) -> n.Node:
        token = self.take()
        self.expect("(")
        if token.upper == "UNNEST":
            value = self.expression()
            self.expect(")")
            return n.Unnest(value, ordinal=self.accept("WITH", "ORDINALITY"), at=at)
        if token.upper not in WINDOWS:
            self.fail(f"the table function {token.text} cannot be translated", token, f"use {', '.join(WINDOWS)}")
        table: n.Table | None = None
        time = ""
        keys: tuple[str, ...] = ()
        spans: dict[str, n.Node] = {}
        order = {"TUMBLE": ["SIZE", "OFFSET"], "HOP": ["SLIDE", "SIZE", "OFFSET"]}
        names = order.get(token.upper, ["STEP", "SIZE", "OFFSET"] if token.upper == "CUMULATE" else ["GAP"])
        while not self.at(")"):
            named = ""
            if self.token.kind == "word" and self.ahead().upper == "=>":
                named = self.take().upper
                self.take()
            if self.accept("TABLE"):
                table = self._named_table()
                if self.accept("PARTITION", "BY"):
                    keys = self._names() if self.at("(") else self._keys()
            elif self.at("DESCRIPTOR"):
                self.take()
                self.expect("(")
                time = self.name()
                self.expect(")")
            else:
                free = [name for name in names if name not in spans]
                spans[named if named in names else free[0] if free else ""] = self.expression()
            if not self.accept(","):
                break
        self.expect(")")
        if table is None or not time:
            self.fail(f"{token.text} needs a table and a time column", token, "write TABLE t, DESCRIPTOR(ts), …")
        found = tuple(spans[name] for name in names if name in spans)
        if len(found) < len(names) - (token.upper != "SESSION"):
            self.fail(f"{token.text} needs {' and '.join(names[: 2 if len(names) > 2 else 1])}", token)
        return n.Windowed(token.upper, table, time, found, keys, at=at)

    def _keys(self) -> tuple[str, ...]:
        """Columns by commas; a comma before DESCRIPTOR ends them."""
        found = [self.name()]
        while self.at(",") and self.ahead().upper != "DESCRIPTOR" and self.ahead(2).upper in (",", ")"):
            self.take()
            found.append(self.name())
        return tuple(found)


def read_query(text: str) -> n.Node:
    """The tree of a query.

    Raises:
        UntranslatableError: It is none.
    """
    return QueryReader(text).whole()
