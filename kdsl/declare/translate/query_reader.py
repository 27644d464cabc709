"""Queries of Flink SQL read from tokens."""

from __future__ import annotations

from kdsl.declare.translate import tree as n
from kdsl.declare.translate.reader import Reader

WINDOWS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_JOINS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")


class QueryReader(Reader):
    """Reads ``SELECT``, ``VALUES``, ``WITH`` and what combines them."""

    def query(self) -> n.Node:
        """A whole query."""
        at = self.here.start
        named: list[tuple[str, tuple[str, ...], n.Node]] = []
        if self.take("WITH"):
            if self.at("RECURSIVE"):
                self.fail("a recursive WITH cannot be translated", fix="write the steps out")
            while True:
                name = self.name()
                columns = self._names() if self.at("(") else ()
                self.need("AS")
                self.need("(")
                named.append((name, columns, self.query()))
                self.need(")")
                if not self.take(","):
                    break
        body = self._combined()
        order = self.commas(self.order) if self.take("ORDER", "BY") else ()
        limit = offset = None
        if self.take("LIMIT"):
            limit = None if self.take("ALL") else self.expression()
        if self.take("OFFSET"):
            offset = self.expression()
            _ = self.take("ROWS") or self.take("ROW")
        if self.take("FETCH"):
            _ = self.take("FIRST") or self.take("NEXT")
            limit = self.expression()
            _ = self.take("ROWS") or self.take("ROW")
            self.need("ONLY")
        return n.Finished(body, tuple(named), order, limit, offset, at=at)

    def _names(self) -> tuple[str, ...]:
        self.need("(")
        names = self.commas(self.name)
        self.need(")")
        return names

    def _combined(self) -> n.Node:
        left = self._intersection()
        while self.here.upper in ("UNION", "EXCEPT", "MINUS"):
            token = self.advance()
            every = self.take("ALL")
            if not every:
                self.take("DISTINCT")
            operator = "EXCEPT" if token.upper == "MINUS" else token.upper
            left = n.Combined(operator, every, left, self._intersection(), at=token.start)
        return left

    def _intersection(self) -> n.Node:
        left = self._term()
        while self.at("INTERSECT"):
            token = self.advance()
            every = self.take("ALL")
            left = n.Combined("INTERSECT", every, left, self._term(), at=token.start)
        return left

    def _term(self) -> n.Node:
        at = self.here.start
        if self.take("("):
            inner = self.query()
            self.need(")")
            return inner
        if self.take("VALUES"):
            return n.Values(self.commas(self._row), at=at)
        return self._select()

    def _row(self) -> tuple[n.Node, ...]:
        self.take("ROW")
        if not self.take("("):
            return (self.expression(),)
        values = self.commas(self.expression)
        self.need(")")
        return values

    def _select(self) -> n.Node:
        at = self.need("SELECT").start
        if self.at("/*+"):
            self.fail("hints of a query cannot be translated", fix="leave them out")
        distinct = self.take("DISTINCT")
        if not distinct:
            self.take("ALL")
        items = self.commas(self._item)
        source = self._from() if self.take("FROM") else None
        where = self.expression() if self.take("WHERE") else None
        group: tuple[n.Node, ...] = ()
        if self.take("GROUP", "BY"):
            if self.at("GROUPING") or self.at("ROLLUP") or self.at("CUBE"):
                self.fail(f"{self.here.upper} cannot be translated", fix="write one query for each grouping")
            group = self.commas(self.expression)
        having = self.expression() if self.take("HAVING") else None
        for word in ("QUALIFY", "WINDOW", "MATCH_RECOGNIZE"):
            if self.at(word):
                self.fail(f"{word} cannot be translated", fix="write the query without it")
        return n.Select(items, source, distinct, where, group, having, at=at)

    def _item(self) -> n.Node:
        at = self.here.start
        if self.take("*"):
            return n.Star(at=at)
        if self.here.kind in ("word", "quoted") and self.ahead().upper == "." and self.ahead(2).upper == "*":
            table = self.name()
            self.advance()
            self.advance()
            return n.Star(table, at=at)
        value = self.expression()
        return n.Item(value, self._alias(), at=at)

    def _alias(self) -> str | None:
        if self.take("AS"):
            return self.name()
        return self.name() if self._names_next() else None

    def _names_next(self) -> bool:
        word = self.here.upper
        return self.here.kind == "quoted" or (
            self.here.kind == "word" and not self._reserved(word) and word not in ("OFFSET", *_JOINS)
        )

    def _reserved(self, word: str) -> bool:
        from kdsl.declare.translate.reader import RESERVED

        return word in RESERVED

    def _from(self) -> n.Node:
        left = self._joined()
        while self.at(","):
            at = self.advance().start
            left = n.Join("CROSS", left, self._joined(), at=at)
        return left

    def _joined(self) -> n.Node:
        left = self._table()
        while self.here.upper in _JOINS:
            at = self.here.start
            if self.at("NATURAL"):
                self.fail("NATURAL joins cannot be translated", fix="write the condition behind ON")
            kind = "INNER"
            if not self.at("JOIN"):
                kind = self.advance().upper
                self.take("OUTER")
            self.need("JOIN")
            right = self._table()
            on: n.Node | None = None
            using: tuple[str, ...] = ()
            if self.take("ON"):
                on = self.expression()
            elif self.take("USING"):
                using = self._names()
            elif kind != "CROSS":
                self.fail("expected ON or USING behind the joined table")
            left = n.Join(kind, left, right, on, using, at=at)
        return left

    def _table(self) -> n.Node:
        at = self.here.start
        self.take("LATERAL")
        if self.take("("):
            if self.at("SELECT") or self.at("WITH") or self.at("VALUES") or self.at("("):
                query = self.query()
                self.need(")")
                return n.Derived(query, *self._table_alias(), at=at)
            inner = self._from()
            self.need(")")
            return inner
        if self.at("TABLE", "("):
            self.advance()
            self.advance()
            inner = self._function(at)
            self.need(")")
            return self._aliased(inner)
        if self.here.kind == "word" and self.ahead().upper == "(":
            return self._aliased(self._function(at))
        name = [self.name()]
        while self.take("."):
            name.append(self.name())
        if self.at("FOR", "SYSTEM_TIME"):
            self.fail("a join with a table as of a time cannot be translated", fix="join with the table itself")
        if self.at("/*+"):
            self.fail("hints cannot be translated", fix="set the options in CREATE TABLE")
        alias, columns = self._table_alias()
        if columns:
            return n.Derived(n.Finished(n.Select((n.Star(at=at),), n.Table(tuple(name), at=at)), at=at), alias, columns)
        return n.Table(tuple(name), alias, at=at)

    def _table_alias(self) -> tuple[str | None, tuple[str, ...]]:
        alias = self._alias()
        return alias, (self._names() if alias is not None and self.at("(") else ())

    def _aliased(self, inner: n.Node) -> n.Node:
        import attrs

        alias, columns = self._table_alias()
        if isinstance(inner, n.Unnest):
            return attrs.evolve(inner, alias=alias, columns=columns)
        assert isinstance(inner, n.Windowed)
        if columns:
            self.fail("a window table keeps the names of its columns", fix="name the columns in SELECT")
        return attrs.evolve(inner, alias=alias)

    def _function(self, at: int) -> n.Node:
        token = self.advance()
        self.need("(")
        if token.upper == "UNNEST":
            value = self.expression()
            self.need(")")
            return n.Unnest(value, ordinal=self.take("WITH", "ORDINALITY"), at=at)
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
            if self.here.kind == "word" and self.ahead().upper == "=>":
                named = self.advance().upper
                self.advance()
            if self.take("TABLE"):
                name_at = self.here.start
                parts = [self.name()]
                while self.take("."):
                    parts.append(self.name())
                table = n.Table(tuple(parts), at=name_at)
                if self.take("PARTITION", "BY"):
                    keys = self._names() if self.at("(") else self._keys()
            elif self.at("DESCRIPTOR"):
                self.advance()
                self.need("(")
                time = self.name()
                self.need(")")
            else:
                free = [name for name in names if name not in spans]
                spans[named if named in names else free[0] if free else ""] = self.expression()
            if not self.take(","):
                break
        self.need(")")
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
            self.advance()
            found.append(self.name())
        return tuple(found)


def read_query(text: str) -> n.Node:
    """The tree of a query.

    Raises:
        UntranslatableError: It is none.
    """
    reader = QueryReader(text)
    found = reader.query()
    reader.take(";")
    reader.end()
    return found
