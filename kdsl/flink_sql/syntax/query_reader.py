"""Reads queries of Flink SQL into syntax trees."""

from __future__ import annotations

import re
from collections.abc import Collection

import attrs

from kdsl.errors import closest, nearest
from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.expression_reader import ExpressionReader
from kdsl.flink_sql.syntax.sql_reader import RESERVED

WINDOWS = {
    "TUMBLE": ("SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
}
"""The window functions, each with its intervals in order, which follow the table and the time column."""
_OPTIONS = re.compile(r"/\*\+\s*OPTIONS\s*\(", re.IGNORECASE)
_WITHOUT = {
    "QUALIFY": "write the condition after WHERE of a query around this one",
    "MATCH_RECOGNIZE": "find the pattern in Python, with transformWithState over the DataFrame of the table",
}
_JOINS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")


class QueryReader(ExpressionReader):
    """Reads ``SELECT``, ``VALUES``, ``WITH`` and what combines them."""

    def read_root(self) -> n.Node:
        """Read a query, and a semicolon if one follows; raise UntranslatableError for a mistake in the query.

        Text after that is left to `read_all`.
        """
        query = self.read_query()
        self.accept(";")
        return query

    def read_query(self) -> n.Node:
        """Read a query with ``WITH``, ``ORDER BY``, ``LIMIT`` (or ``FETCH``, which replaces it) and ``OFFSET``."""
        at = self.token.start
        named: list[tuple[str, tuple[str, ...], n.Node]] = []
        if self.accept("WITH"):
            if self.at("RECURSIVE"):
                self.fail("a recursive WITH cannot be translated", fix="write the steps out")
            while True:
                name = self.read_name()
                columns = self._read_names() if self.at("(") else ()
                self.expect("AS")
                self.expect("(")
                named.append((name, columns, self.read_query()))
                self.expect(")")
                if not self.accept(","):
                    break
        body = self._read_combined()
        order = self.read_list(self.read_order_key) if self.accept("ORDER", "BY") else ()
        limit = offset = None
        if self.accept("LIMIT"):
            limit = None if self.accept("ALL") else self.read_expression()
        if self.accept("OFFSET"):
            offset = self.read_expression()
            _ = self.accept("ROWS") or self.accept("ROW")
        if self.accept("FETCH"):
            _ = self.accept("FIRST") or self.accept("NEXT")
            limit = self.read_expression()
            _ = self.accept("ROWS") or self.accept("ROW")
            self.expect("ONLY")
        return n.Finished(body, tuple(named), order, limit, offset, at=at)

    def _read_names(self) -> tuple[str, ...]:
        """Read one or more names in brackets; raise UntranslatableError if anything else comes next."""
        self.expect("(")
        names = self.read_list(self.read_name)
        self.expect(")")
        return names

    def _read_combined(self) -> n.Node:
        """Read queries with UNION, EXCEPT or MINUS (as EXCEPT) between them; or raise UntranslatableError."""
        left = self._read_intersection()
        while self.token.upper in ("UNION", "EXCEPT", "MINUS"):
            token = self.take()
            every = self._read_all()
            operator = "EXCEPT" if token.upper == "MINUS" else token.upper
            left = n.Combined(operator, every, left, self._read_intersection(), at=token.start)
        return left

    def _read_intersection(self) -> n.Node:
        """Read queries with INTERSECT between them; raise UntranslatableError for a mistake."""
        left = self._read_term()
        while self.at("INTERSECT"):
            token = self.take()
            every = self._read_all()
            left = n.Combined("INTERSECT", every, left, self._read_term(), at=token.start)
        return left

    def _read_all(self) -> bool:
        """Read ALL or DISTINCT, if one of them follows the word that combines queries; return whether it is ALL."""
        every = self.accept("ALL")
        if not every:
            self.accept("DISTINCT")
        return every

    def _read_term(self) -> n.Node:
        """Read a SELECT, VALUES, TABLE, or a query in brackets; or raise UntranslatableError."""
        at = self.token.start
        if self.accept("("):
            inner = self.read_query()
            self.expect(")")
            return inner
        if self.accept("VALUES"):
            return n.Values(self.read_list(self._read_values_row), at=at)
        if self.accept("TABLE"):
            return n.Select((n.Star(at=at),), self._read_named_table(), at=at)
        return self._read_select()

    def _read_values_row(self) -> tuple[n.Node, ...]:
        """Read a row of VALUES: ``(…)``, ``ROW (…)`` or a single value; raise UntranslatableError for a mistake."""
        self.accept("ROW")
        if not self.accept("("):
            return (self.read_expression(),)
        values = self.read_list(self.read_expression)
        self.expect(")")
        return values

    def _read_select(self) -> n.Node:
        """Read a SELECT up to its last clause; a hint after the word SELECT is ignored."""
        at = self.expect("SELECT").start
        if self.token.kind == "hint":
            self.take()  # advice on how to join, which changes no row
        distinct = self.accept("DISTINCT")
        if not distinct:
            self.accept("ALL")
        items = self.read_list(self._read_item)
        source = self._read_from() if self.accept("FROM") else None
        where = self.read_expression() if self.accept("WHERE") else None
        group: tuple[n.Node, ...] = ()
        if self.accept("GROUP", "BY"):
            group = tuple(key for keys in self.read_list(self._read_grouping_key) for key in keys)
        having = self.read_expression() if self.accept("HAVING") else None
        windows = self.read_list(self._read_named_window) if self.accept("WINDOW") else ()
        for word in _WITHOUT:
            if self.at(word):
                self.fail(f"{word} cannot be translated", fix=_WITHOUT[word])
        return n.Select(items, source, distinct, where, group, having, windows, at=at)

    def _read_named_window(self) -> tuple[str, n.Over]:
        """Read ``name AS (…)`` after WINDOW, and return name and window; raise UntranslatableError for a mistake."""
        at = self.token.start
        name = self.read_name()
        self.expect("AS")
        return name, self.read_window(at)

    def _read_grouping_key(self) -> tuple[n.Node, ...]:
        """Read and return a key of GROUP BY, several keys in brackets, or one node of several sets of keys."""
        at = self.token.start
        kind = "GROUPING SETS" if self.at("GROUPING", "SETS", "(") else self.token.upper
        if kind not in ("ROLLUP", "CUBE", "GROUPING SETS") or (self.peek().upper != "(" and kind != "GROUPING SETS"):
            key = self.read_expression()
            several = isinstance(key, n.Collection) and key.kind == "ROW" and self.text[at] == "("
            return key.items if isinstance(key, n.Collection) and several else (key,)
        for _ in kind.split():
            self.take()
        self.expect("(")
        sets = self.read_list(self._read_grouping_set)
        self.expect(")")
        return (n.Grouping(kind, sets, at=at),)

    def _read_grouping_set(self) -> tuple[n.Node, ...]:
        """Read a set of keys of ROLLUP, CUBE or GROUPING SETS: one key, or keys in brackets, perhaps none."""
        for word in ("ROLLUP", "CUBE", "GROUPING"):
            if self.at(word, "(") or self.at(word, "SETS"):
                self.fail(f"{word} inside another grouping cannot be translated", fix="write the sets out")
        if not self.accept("("):
            return (self.read_expression(),)
        keys = () if self.at(")") else self.read_list(self.read_expression)
        self.expect(")")
        return keys

    def _read_item(self) -> n.Node:
        """Read a column after SELECT, with its alias, or ``*`` or ``t.*``; raise UntranslatableError for a mistake."""
        at = self.token.start
        if self.accept("*"):
            return n.Star(at=at)
        if self.token.kind in ("word", "quoted") and self.peek().upper == "." and self.peek(2).upper == "*":
            table = self.read_name()
            self.take()
            self.take()
            return n.Star(table, at=at)
        value = self.read_expression()
        return n.Item(value, self._read_alias(), at=at)

    def _read_alias(self) -> str | None:
        """Read an alias, with or without AS; None if there is none. Raise UntranslatableError if no name follows AS."""
        if self.accept("AS"):
            return self.read_name()
        return self.read_name() if self._at_name() else None

    def _at_name(self) -> bool:
        """Return whether a name comes next: in quotes, or a word that is not reserved here."""
        word = self.token.upper
        return self.token.kind == "quoted" or (
            self.token.kind == "word" and word not in RESERVED and word not in ("OFFSET", *_JOINS)
        )

    def _read_from(self) -> n.Node:
        """Read tables with commas between them, as CROSS joins; raise UntranslatableError for a mistake."""
        left = self._read_joins()
        while self.at(","):
            at = self.take().start
            left = n.Join("CROSS", left, self._read_joins(), at=at)
        return left

    def _read_joins(self) -> n.Node:
        """Read tables with joins between them."""
        left = self._read_table()
        while self.token.upper in _JOINS:
            at = self.token.start
            natural = self.accept("NATURAL")
            kind = "INNER"
            if not self.at("JOIN"):
                kind = self.take().upper
                self.accept("OUTER")
            self.expect("JOIN")
            right = self._read_table()
            on: n.Node | None = None
            using: tuple[str, ...] = ()
            if natural:
                if kind == "CROSS" or self.at("ON") or self.at("USING"):
                    self.fail("a NATURAL join has no other condition", fix="leave NATURAL or the condition out")
            elif self.accept("ON"):
                on = self.read_expression()
            elif self.accept("USING"):
                using = self._read_names()
            elif kind != "CROSS":
                self.fail_unexpected("ON or USING after the joined table")
            left = n.Join(kind, left, right, on, using, natural, at=at)
        return left

    def _read_table(self) -> n.Node:
        """Read a table, a query in brackets or a table function, with its alias; or joined tables in brackets.

        A table whose columns are renamed becomes a query of them. The word LATERAL before any of these is skipped.
        """
        at = self.token.start
        self.accept("LATERAL")
        if self.accept("("):
            if self.at("SELECT") or self.at("WITH") or self.at("VALUES") or self.at("("):
                query = self.read_query()
                self.expect(")")
                return n.Derived(query, *self._read_table_alias(), at=at)
            inner = self._read_from()
            self.expect(")")
            return inner
        if self.at("TABLE", "("):
            self.take()
            self.take()
            inner = self._read_table_function(at)
            self.expect(")")
            return self._read_alias_of(inner)
        if self.token.kind == "word" and self.peek().upper == "(":
            return self._read_alias_of(self._read_table_function(at))
        table = self._read_named_table()
        if self.at("FOR", "SYSTEM_TIME"):
            self.fail(
                "a join with a table as of a time cannot be translated: Spark keeps no earlier versions of its rows",
                fix="join with a table that has a row for each version and says from when to when it holds",
            )
        alias, columns = self._read_table_alias()
        if self.token.kind == "hint":
            self.fail("a hint belongs directly after the name of a table", fix="write FROM t /*+ OPTIONS(…) */ AS name")
        if columns:
            return n.Derived(n.Finished(n.Select((n.Star(at=at),), table, at=at), at=at), alias, columns, at=at)
        return attrs.evolve(table, alias=alias)

    def _read_named_table(self) -> n.Table:
        """Read the name of a table, with its hint."""
        at = self.token.start
        name = [self.read_name()]
        while self.accept("."):
            name.append(self.read_name())
        if self.token.kind != "hint":
            return n.Table(tuple(name), at=at)
        if not _OPTIONS.match(self.token.text):
            self.fail("only OPTIONS can be hinted at", fix="write /*+ OPTIONS('key' = 'value') */, or leave it out")
        hint = self.take()
        return n.Table(tuple(name), None, hint.text, hint.start, at=at)

    def _read_table_alias(self) -> tuple[str | None, tuple[str, ...]]:
        """Read the alias of a table (None if there is none), and the names of its columns, if there are any."""
        alias = self._read_alias()
        return alias, (self._read_names() if alias is not None and self.at("(") else ())

    def _read_alias_of(self, inner: n.Node) -> n.Node:
        """Read the alias of a table function, for UNNEST also names of columns, and return the function with them."""
        alias, columns = self._read_table_alias()
        if isinstance(inner, n.Unnest):
            return attrs.evolve(inner, alias=alias, columns=columns)
        assert isinstance(inner, n.Windowed)
        if columns:
            self.fail("a window table keeps the names of its columns", fix="name the columns in SELECT")
        return attrs.evolve(inner, alias=alias)

    def _read_table_function(self, at: int) -> n.Node:
        """Read UNNEST or a window table function, within ``TABLE(…)`` or not; ``at`` is the position of the node."""
        token = self.take()
        self.expect("(")
        if token.upper == "UNNEST":
            value = self.read_expression()
            self.expect(")")
            return n.Unnest(value, ordinal=self.accept("WITH", "ORDINALITY"), at=at)
        if token.upper not in WINDOWS:
            meant = closest(token.upper, WINDOWS)
            rows = "write CROSS JOIN UNNEST(array) AS u (item), where SPLIT(text, ',') makes an array of a string"
            fix = f"write {meant}" if meant is not None else f"{rows}; the windows are {', '.join(WINDOWS)}"
            self.fail(f"the table function {token.text} cannot be translated", token, fix)
        table: n.Table | None = None
        time = ""
        keys: tuple[str, ...] = ()
        spans: dict[str, n.Node] = {}
        names = WINDOWS[token.upper]
        seen: set[str] = set()
        while not self.at(")"):
            name = self._read_window_argument_name(token.upper, names, seen)
            seen.add(name)
            if name == "DATA":
                self.expect("TABLE")
                table = self._read_named_table()
                if self.accept("PARTITION", "BY"):
                    keys = self._read_names() if self.at("(") else self._read_partition_keys()
            elif name == "TIMECOL":
                self.expect("DESCRIPTOR")
                self.expect("(")
                time = self.read_name()
                self.expect(")")
            else:
                spans[name] = self.read_expression()
            if not self.accept(","):
                break
        self.expect(")")
        if table is None or not time:
            self.fail(f"{token.text} needs a table and a time column", token, "write TABLE t, DESCRIPTOR(ts), …")
        intervals = tuple(spans[name] for name in names if name in spans)
        if len(intervals) < len(names) - (token.upper != "SESSION"):
            self.fail(f"{token.text} needs {' and '.join(names[: 2 if len(names) > 2 else 1])}", token)
        return n.Windowed(token.upper, table, time, intervals, keys, at=at)

    def _read_window_argument_name(self, window: str, names: tuple[str, ...], seen: Collection[str]) -> str:
        """Read the name of the next argument of a window function, as in ``SIZE => …``, or choose it by position.

        An argument without a name is not read: its kind or place shows what it is. ``names`` are those of the
        function's intervals, in order, beside ``DATA`` and ``TIMECOL``; ``seen`` are those of the arguments before.
        """
        first = self.token
        known = ("DATA", "TIMECOL", *names)
        fix = f"use {', '.join(known)}, each at most once"
        if first.kind in ("word", "quoted") and self.peek().upper == "=>":
            name = self.take().value.upper()
            self.take()
            if name not in known:
                self.fail(f"{window} has no argument {name}{nearest(name, known)}", first, fix)
        elif self.at("TABLE") or self.at("DESCRIPTOR"):
            name = "DATA" if self.at("TABLE") else "TIMECOL"
        else:
            free = [name for name in names if name not in seen]
            if not free:
                self.fail(f"{window} has too many arguments", first, fix)
            name = free[0]
        if name in seen:
            self.fail(f"{window} has the argument {name} twice", first, fix)
        return name

    def _read_partition_keys(self) -> tuple[str, ...]:
        """Read columns with commas between them, up to a comma (not read) before DESCRIPTOR or another argument."""
        names = [self.read_name()]
        while self.at(",") and self.peek().upper != "DESCRIPTOR" and self.peek(2).upper in (",", ")"):
            self.take()
            names.append(self.read_name())
        return tuple(names)


def read_query(text: str) -> n.Node:
    """Read a query into a syntax tree, whose root is a `Finished`."""
    return QueryReader(text).read_all()


class _SelectListReader(QueryReader):
    def read_root(self) -> n.Node:
        """Read a SELECT list as a SELECT without any other part; raise UntranslatableError as `read_select_list`."""
        at = self.token.start
        return n.Select(self.read_list(self._read_item), at=at)


def read_select_list(text: str) -> tuple[n.Node, ...]:
    """Read what stands between SELECT and FROM: each a `kdsl.flink_sql.syntax.tree.Item` or a ``*``."""
    select = _SelectListReader(text).read_all()
    assert isinstance(select, n.Select)
    return select.items
