"""Translates the expressions of queries: aggregates, group windows, analytic functions, nested queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import attrs

from kdsl.errors import nearest, pluralize
from kdsl.flink_sql.expressions.casts import cast
from kdsl.flink_sql.expressions.translator import ExpressionTranslator
from kdsl.flink_sql.expressions.values import TypedSql
from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.intervals import interval_microseconds
from kdsl.flink_sql.syntax.query_reader import WINDOWS
from kdsl.scripts.queries.changelog_aggregates import RETRACTABLE, apply_sign, average, count_rows, write_exact_average
from kdsl.scripts.queries.facts import QueryFacts
from kdsl.scripts.queries.scopes import CURRENT_ROWS, AmbiguousError, ChangelogColumns, Relations
from kdsl.scripts.queries.windows import write_window, write_window_bound
from kdsl.types import model as t

_RANKING = ("ROW_NUMBER", "RANK", "DENSE_RANK", "NTILE", "PERCENT_RANK", "CUME_DIST", "LAG", "LEAD")
_MOMENTS = {
    "STDDEV_POP": "stddev_pop", "STDDEV_SAMP": "stddev_samp", "STDDEV": "stddev_samp",
    "VAR_POP": "var_pop", "VAR_SAMP": "var_samp", "VARIANCE": "var_samp",
}  # fmt: skip
_GROUPINGS = ("GROUPING", "GROUPING_ID")
_AGGREGATES = (
    *("COUNT", "SUM", "AVG", "MIN", "MAX", "LISTAGG", "FIRST_VALUE", "LAST_VALUE"),
    *_GROUPINGS,
    *_MOMENTS,
)
_LEGACY = {"TUMBLE": 1, "HOP": 2, "SESSION": 1}
_PARTS = ("START", "END", "ROWTIME", "PROCTIME")
Nested = Callable[[n.Node, Relations], tuple[str, t.Row]]


class QueryExpressionTranslator(ExpressionTranslator):
    """Translates the expressions of a SELECT; aggregates, ``OVER``, windows and queries in them are added to the facts.

    Attributes:
        grouped: The Spark SQL of the keys of the groups; None if rows are not grouped.
        optional: The keys that are NULL in some groups: those of ``ROLLUP``, ``CUBE`` and ``GROUPING SETS``.
        windows: The windows of ``GROUP BY TUMBLE(…)`` and the like, by their syntax trees.
        comes: For a changelog, the SQL of whether a row adds a row.
    """

    def __init__(
        self, text: str, scope: Relations, facts: QueryFacts, query: Nested, tables: Mapping[str, t.Row]
    ) -> None:
        super().__init__(text, scope)
        self.tables = tables
        self.relations, self.facts, self.query = scope, facts, query
        self.grouped: frozenset[str] | None = None
        self.optional: frozenset[str] = frozenset()
        self.windows: dict[tuple[str, tuple[n.Node, ...]], tuple[str, t.DataType]] = {}
        self.comes: str | None = None
        self.inside = False
        self.named_windows: Mapping[str, n.Over] = {}

    def __call__(self, node: n.Node) -> TypedSql:
        """Translate a node; in a grouped query it must consist of keys, aggregates and constants."""
        grouped, self.grouped = self.grouped, None
        if grouped is None or self.inside:
            value = super().__call__(node)
            self.grouped = grouped
            return value
        if not isinstance(node, n.Literal | n.Span):
            try:
                whole = super().__call__(node) if not has_aggregate(node) else None
            finally:
                self.grouped = grouped
            if whole is not None and whole.text in grouped:
                return attrs.evolve(whole, type=_as_nullable_type(whole)) if whole.text in self.optional else whole
            if isinstance(node, n.Name) and whole is not None:
                shown = ".".join(node.parts)
                self.fail(node, node.parts[0], f"{shown!r} is neither grouped by nor aggregated", "add it to GROUP BY")
        self.grouped = grouped
        return super().__call__(node)

    def translate_name(self, node: n.Node, parts: tuple[str, ...]) -> TypedSql:
        """Translate a column, and members of it; `__call__` checks whether it may be used in a grouped query."""
        try:
            return super().translate_name(node, parts)
        except AmbiguousError as e:
            fix = f"write {e.tables[0]}.{e.name}"
            self.fail(node, e.name, f"{e.name!r} is a column of {' and of '.join(e.tables)}", fix)

    def find_tables_with(self, parts: tuple[str, ...]) -> list[str]:
        """Return the tables that the query could read, and does not, and that have a column; for messages."""
        column, tables = parts[0], self.tables
        if len(parts) > 1 and parts[0] in tables:
            column, tables = parts[1], {parts[0]: tables[parts[0]]}
        others = {*self.facts.tables, *self.facts.sinks}
        return [name for name, row in tables.items() if column in row.names and name not in others]

    def translate_aggregate(self, node: n.Call) -> TypedSql:
        """Translate an aggregate, an analytic function, or a part of a group window.

        What a stream must know of it is added to the facts.
        """
        name = node.name.upper()
        kind, _, part = name.partition("_")
        if kind in _LEGACY and part in _PARTS:
            return self.translate_window_part(node, kind, part)
        if kind in _LEGACY and not part:
            self.fail(
                node,
                node.name,
                f"{name} can be used in GROUP BY only",
                f"write {name}_START for the start of the window",
            )
        if name not in (*_AGGREGATES, *_RANKING):
            return super().translate_aggregate(node)
        if self.inside:
            self.fail(node, node.name, f"{name} is inside another aggregate", "use a nested query")
        self.inside = True
        try:
            values = [self(a) for a in node.arguments]
            condition = "" if node.filter is None else f" FILTER (WHERE {self(node.filter).text})"
        finally:
            self.inside = False
        over = "" if node.over is None else self.translate_over(node.over)
        if node.over is not None:
            self.facts.add_note("over", node.name, node.at)
        elif name in _RANKING:
            self.fail(node, node.name, f"{name} needs OVER (…)", "write OVER (PARTITION BY … ORDER BY …)")
        else:
            self.facts.aggregates = True
            if node.distinct:
                self.facts.add_note("distinct values", f"{name}(DISTINCT …)", node.at)
            if self.comes is not None:
                return self._translate_retractable(node, name, values, self.comes, condition)
        return self._translate_function(node, name, values, condition + over)

    def translate_over(self, node: n.Over) -> str:
        """Translate the window of an analytic function to the SQL `` OVER (…)``."""
        if node.name:
            if node.name not in self.named_windows:
                hint = nearest(node.name, self.named_windows)
                self.fail(node, "OVER", f"there is no window {node.name!r}{hint}", "declare it after WINDOW")
            return self.translate_over(self.named_windows[node.name])
        self.inside = True
        try:
            partition = ", ".join(self(p).text for p in node.partition)
            order = ", ".join(self.translate_order_key(o) for o in node.order)
        finally:
            self.inside = False
        if node.frame and not re.fullmatch(r"(?i)(ROWS|RANGE)\s+BETWEEN\s+[\w\s':.]+AND\s+CURRENT\s+ROW", node.frame):
            self.fail(node, "OVER", f"the frame {node.frame!r} cannot be translated", "write … AND CURRENT ROW")
        parts = [f"PARTITION BY {partition}" if partition else "", f"ORDER BY {order}" if order else "", node.frame]
        return f" OVER ({' '.join(filter(None, parts))})"

    def translate_order_key(self, node: n.Order) -> str:
        """Translate a key of ORDER BY, or raise UntranslatableError.

        Without ``NULLS``, which is written as it is, NULL is the smallest value in both engines. Aggregates,
        ``OVER`` and nested queries in the key are recorded in the facts of the query.
        """
        nulls = f" NULLS {node.nulls}" if node.nulls else ""
        return f"{self(node.value).text}{' DESC' if node.descending else ''}{nulls}"

    def _translate_function(self, node: n.Call, name: str, values: list[TypedSql], suffix: str) -> TypedSql:
        """Write an aggregate or window function of translated values in Spark SQL, with the result that Flink has.

        ``name`` is in upper case; ``suffix`` is the SQL after the call: ``FILTER (…)`` and ``OVER (…)``. Nothing is
        added to the facts.
        """
        word = "DISTINCT " if node.distinct else ""
        if name == "COUNT":
            inner = "*" if node.star or not values else ", ".join(v.text for v in values)
            return TypedSql(f"count({word}{inner}){suffix}", t.BigInt(nullable=False))
        if name in ("ROW_NUMBER", "RANK", "DENSE_RANK"):
            return TypedSql(f"CAST({name.lower()}(){suffix} AS BIGINT)", t.BigInt(nullable=False))
        if name in ("PERCENT_RANK", "CUME_DIST"):
            return TypedSql(f"{name.lower()}(){suffix}", t.Double(nullable=False))
        if not values:
            self.fail(node, node.name, f"{name} needs an argument", f"write {name}(column)")
        value, text = values[0], values[0].text
        if name in _GROUPINGS:
            return self._translate_grouping(node, name, values)
        if name == "NTILE":
            return TypedSql(f"CAST(ntile({text}){suffix} AS BIGINT)", t.BigInt(nullable=False))
        if name in ("LAG", "LEAD"):
            return TypedSql(f"{name.lower()}({', '.join(v.text for v in values)}){suffix}", _as_nullable_type(value))
        if name in ("MIN", "MAX"):
            if value.family == "other":
                self.fail(node, node.name, f"{name} of {value.spelling} has no order", "use it for a member of it")
            return TypedSql(f"{name.lower()}({word}{text}){suffix}", _as_nullable_type(value))
        if name in ("FIRST_VALUE", "LAST_VALUE"):  # Flink ignores NULL
            return TypedSql(f"{name.lower()}({text}, true){suffix}", _as_nullable_type(value))
        if name == "LISTAGG":
            self.require_family(node, value, "text", name)
            separator = values[1].text if len(values) > 1 else "','"
            return TypedSql(f"listagg({word}{text}, {separator}){suffix}", t.STRING)
        self.require_family(node, value, "number", name)
        if name in _MOMENTS:
            return TypedSql(f"{_MOMENTS[name]}({word}{cast(value, t.Double()).text}){suffix}", t.Double())
        return _write_sum(value, word, suffix) if name == "SUM" else self._translate_average(node, value, word, suffix)

    def _translate_retractable(
        self, node: n.Call, name: str, values: list[TypedSql], added: str, suffix: str
    ) -> TypedSql:
        """Translate an aggregate of a changelog, from which rows can be subtracted; see `_translate_function`.

        ``added`` is the SQL condition that a row adds a row. Nothing is added to the facts.
        """
        if name not in RETRACTABLE or node.distinct:
            shown = f"{name}(DISTINCT …)" if node.distinct else name
            reason = (
                f"{shown} of a changelog needs all rows of a group when one of them is removed, and Spark keeps none"
            )
            fix = f"use COUNT, SUM or AVG, from which a row can be subtracted; or {CURRENT_ROWS}"
            self.fail(node, node.name, reason, fix)
        if name == "COUNT":
            return TypedSql(count_rows(added, () if node.star else values, suffix), t.BigInt(nullable=False))
        if not values:
            self.fail(node, node.name, f"{name} needs an argument", f"write {name}(column)")
        self.require_family(node, values[0], "number", name)
        if name == "AVG":
            self._require_exact_average(node, values[0])
            return average(added, values[0], suffix)
        total = _write_sum(apply_sign(added, values[0]), "", suffix)
        return TypedSql(f"if({count_rows(added, values[:1], suffix)} = 0L, NULL, {total.text})", total.type)

    def _require_exact_average(self, node: n.Call, value: TypedSql) -> None:
        """Raise UntranslatableError for a DECIMAL with a scale above 6, whose AVG Spark rounds differently."""
        if isinstance(value.type, t.Decimal) and value.type.scale > 6:
            reason = "AVG of more than 6 digits after the point rounds differently in Spark"
            self.fail(node, "AVG", reason, "write AVG(CAST(… AS DOUBLE))")

    def _translate_grouping(self, node: n.Call, name: str, values: list[TypedSql]) -> TypedSql:
        """Translate ``GROUPING`` and ``GROUPING_ID``: a bit for each key, set where a group lacks it."""
        if len(values) != 1 and name == "GROUPING":
            self.fail(node, node.name, "GROUPING takes one column", "write GROUPING_ID(a, b)")
        if any(value.text not in (self.grouped or ()) for value in values):
            self.fail(
                node, node.name, f"{name} takes keys of the groups", "name columns of ROLLUP, CUBE or GROUPING SETS"
            )
        lacks = ["0L" if v.text not in self.optional else f"CAST(grouping({v.text}) AS BIGINT)" for v in values]
        bits = [f"shiftleft({lack}, {len(lacks) - 1 - i})" for i, lack in enumerate(lacks)]
        return TypedSql(f"({' + '.join(bits)})", t.BigInt(nullable=False))

    def _translate_average(self, node: n.Call, value: TypedSql, word: str, suffix: str) -> TypedSql:
        """Write AVG, with the result that Flink has; ``word`` and ``suffix`` are as for `_write_sum`."""
        self._require_exact_average(node, value)
        exact = write_exact_average(value, f"nullif(count({word}{value.text}){suffix}, 0)", word, suffix)
        if exact is not None:
            return exact
        if isinstance(value.type, t.Float):
            return TypedSql(f"CAST(avg({word}{value.text}){suffix} AS FLOAT)", t.Float())
        return TypedSql(f"avg({word}{value.text}){suffix}", t.Double())

    # windows of groups: GROUP BY TUMBLE(ts, INTERVAL …)

    def translate_group_window(self, node: n.Call) -> TypedSql | None:
        """Translate ``TUMBLE(…)`` and the like as a key of GROUP BY, and record the window; None for anything else."""
        kind = node.name.upper()
        if kind not in _LEGACY:
            return None
        if len(node.arguments) != _LEGACY[kind] + 1:
            self.fail(node, node.name, f"{kind} takes {_LEGACY[kind] + 1} arguments", f"write {kind}(ts, INTERVAL …)")
        time = super().__call__(node.arguments[0])
        if time.family != "timestamp" or time.type is None:
            self.fail(node, node.name, f"{kind} needs a TIMESTAMP, not {time.spelling}", "name the event-time column")
        spans = [self.window_milliseconds(kind, *pair) for pair in zip(WINDOWS[kind], node.arguments[1:], strict=False)]
        text = write_window(kind, time.text, [spans[-1], *spans[:-1]])
        self.windows[kind, node.arguments] = (text, time.type)
        named = node.arguments[0]
        watermarked = isinstance(named, n.Name) and self.relations.is_event_time(named.parts)
        self.facts.add_window(kind, node.at, time, spans[0], watermarked=watermarked)
        return TypedSql(text, t.row(start=t.Timestamp(3), end=t.Timestamp(3)))

    def translate_window_part(self, node: n.Call, kind: str, part: str) -> TypedSql:
        """Translate ``TUMBLE_START`` and the like."""
        window = self.windows.get((kind, node.arguments))
        if window is None:
            shown = self.source[node.at :].partition("(")[0]
            self.fail(
                node,
                node.name,
                f"{shown} has no matching window in GROUP BY",
                f"GROUP BY {kind}(…) with the same arguments",
            )
        text, time = window
        if part == "PROCTIME":
            self.fail(node, node.name, f"{node.name} cannot be translated", f"use {kind}_END")
        if part == "ROWTIME":
            return TypedSql(f"({text}.end - INTERVAL '0.001' SECOND)", time)
        return write_window_bound(f"{text}.{part.lower()}", time)

    def window_milliseconds(self, kind: str, name: str, node: n.Node) -> int:
        """Compute the length of an interval of a window in milliseconds.

        Args:
            kind: The window, for messages.
            name: The argument: ``SIZE``, ``SLIDE``, ``STEP`` or ``GAP``, which must be positive, or ``OFFSET``.
            node: The interval.
        """
        negated = isinstance(node, n.Unary) and node.operator == "-"
        span = node.operand if isinstance(node, n.Unary) and negated else node
        length = interval_microseconds(span) if isinstance(span, n.Span) else None
        if length is None or length % 1000:
            reason = f"the {name} of {kind} must be an INTERVAL of fixed length, in whole milliseconds"
            self.fail(node, "INTERVAL", reason, "write INTERVAL '1' DAY")
        milliseconds = (-length if negated else length) // 1000
        if milliseconds <= 0 and name != "OFFSET":
            reason = f"the {name} of {kind} is {milliseconds} ms, and must be positive"
            self.fail(node, "INTERVAL", reason, "write INTERVAL '1' DAY")
        return milliseconds

    # queries inside expressions

    def translate_in_query(self, node: n.In, value: TypedSql) -> TypedSql:
        """Translate ``IN (SELECT …)``, whose left side is already translated as ``value``, and note it in the facts."""
        assert node.query is not None
        text, row = self._translate_rows(node, node.query, "IN")
        mine = value.type.fields if isinstance(node.operand, n.Collection) and isinstance(value.type, t.Row) else ()
        if len(row.fields) != max(len(mine), 1):
            columns = pluralize(len(row.fields), "column")
            reason = f"the query after IN has {columns}, and there are {max(len(mine), 1)} before IN"
            self.fail(node, "IN", reason, "select the same number of columns")
        kinds: list[t.DataType | None] = [f.type for f in mine] or [value.type]
        for kind, theirs in zip(kinds, row.fields, strict=True):
            self.make_comparable(node, TypedSql("x", kind), TypedSql("x", theirs.type), "IN")
        self.facts.add_note("nested", "IN", node.at)
        left = value.text
        if mine and isinstance(node.operand, n.Collection):  # columns in brackets, which Spark takes one by one
            left = f"({', '.join(self(item).text for item in node.operand.items)})"
        return TypedSql(f"({left} {'NOT ' if node.negated else ''}IN ({text}))", t.Boolean())

    def translate_nested_query(self, node: n.Nested) -> TypedSql:
        """Translate ``EXISTS``, or a query that returns one value, and note it in the facts."""
        text, row = self._translate_rows(node, node.query, "EXISTS" if node.exists else "SELECT")
        self.facts.add_note("nested", "SELECT", node.at)
        if node.exists:
            return TypedSql(f"EXISTS ({text})", t.Boolean(nullable=False))
        if len(row.fields) != 1:
            self.fail(
                node, "SELECT", f"a query as a value must have one column, not {len(row.fields)}", "select one column"
            )
        return TypedSql(f"({text})", row.fields[0].type.as_nullable())

    def _translate_rows(self, node: n.Node, query: n.Node, word: str) -> tuple[str, t.Row]:
        """Translate a query inside an expression (``word`` is where), return its columns, and extend the facts."""
        text, row = self.query(query, self.relations)
        if isinstance(row, ChangelogColumns) and not self.facts.streaming:
            reason = "a query inside an expression cannot read a changelog"
            self.fail(node, word, reason, "GROUP BY the columns that it selects, which gives the current rows")
        return text, row


def _as_nullable_type(value: TypedSql) -> t.DataType | None:
    """Return the nullable type of a value; None if it has no type (NULL)."""
    return value.type and value.type.as_nullable()


def _write_sum(value: TypedSql, word: str, suffix: str) -> TypedSql:
    """Write SUM of a number, with the type that Flink has: that of the value, DECIMAL(38, scale), or BIGINT for NULL.

    The caller has checked that it is a number.
    ``word`` is ``DISTINCT `` or empty; ``suffix`` is the SQL after the call.
    """
    match value.type:
        case t.Decimal(scale=scale):
            text = f"sum({word}CAST({value.text} AS DECIMAL(38, {scale}))){suffix}"
            return TypedSql(f"CAST({text} AS DECIMAL(38, {scale}))", t.Decimal(38, scale))
        case t.Double() | t.BigInt() | None:
            return TypedSql(f"sum({word}{value.text}){suffix}", _as_nullable_type(value) or t.BigInt())
        case kind:
            return TypedSql(f"CAST(sum({word}{value.text}){suffix} AS {kind.name})", kind.as_nullable())


def has_aggregate(node: object) -> bool:
    """Whether a tree calls an aggregate without ``OVER``, or a part of a group window, outside nested queries."""
    for call in _find_calls(node):
        name = call.name.upper()
        if name in _AGGREGATES and call.over is None:
            return True
        if name.partition("_")[0] in _LEGACY and name.partition("_")[2] in _PARTS:
            return True
    return False


def has_analytic_function(node: object) -> bool:
    """Whether a tree contains a function with ``OVER``, outside nested queries."""
    return any(call.over is not None for call in _find_calls(node))


def has_time_windows(tree: n.Node) -> bool:
    """Whether a query, or a query nested in it, contains windows of time."""
    return any(
        isinstance(node, n.Windowed) or (isinstance(node, n.Call) and node.name.upper() in _LEGACY)
        for node in n.walk(tree)
    )


def _find_calls(node: object) -> Iterator[n.Call]:
    """Yield all function calls in a syntax tree or a tuple of trees, except those in nested queries."""
    if isinstance(node, n.Nested):
        return
    if isinstance(node, n.Call):
        yield node
    for part in (node.operand, *node.values) if isinstance(node, n.In) else n.parts_of(node):
        yield from _find_calls(part)
