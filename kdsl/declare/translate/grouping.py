"""Expressions of a query: aggregates, windows of groups, analytic functions, nested queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import attrs

from kdsl.declare.translate import tree as n
from kdsl.declare.translate.casts import cast
from kdsl.declare.translate.facts import Facts
from kdsl.declare.translate.intervals import microseconds
from kdsl.declare.translate.retracting import COUNTED, average, counted, exact_average, signed
from kdsl.declare.translate.scalar import Scalar
from kdsl.declare.translate.scopes import AmbiguousError, Changelog, Relations
from kdsl.declare.translate.values import Value
from kdsl.declare.translate.windows import window_bound, window_text
from kdsl.errors import nearest
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


class Expressions(Scalar):
    """Translates the expressions of a SELECT.

    Attributes:
        grouped: The Spark SQL of the keys of the groups; None where rows are not grouped.
        optional: Those keys that some groups lack, and have as NULL: those of ``ROLLUP`` and its kin.
        windows: The windows of groups that ``GROUP BY TUMBLE(…)`` and its kin made, by their tree.
        comes: Of a changelog, the SQL of whether a row comes, and does not go.
    """

    def __init__(self, text: str, scope: Relations, facts: Facts, query: Nested) -> None:
        super().__init__(text, scope)
        self.relations, self.facts, self.query = scope, facts, query
        self.grouped: frozenset[str] | None = None
        self.optional: frozenset[str] = frozenset()
        self.windows: dict[tuple[str, tuple[n.Node, ...]], tuple[str, t.DataType]] = {}
        self.comes: str | None = None
        self.inside = False
        self.named_windows: Mapping[str, n.Over] = {}

    def __call__(self, node: n.Node) -> Value:
        """The translation of a node; in a grouped query it must follow from the groups."""
        grouped, self.grouped = self.grouped, None
        if grouped is None or self.inside:
            value = super().__call__(node)
            self.grouped = grouped
            return value
        if not isinstance(node, n.Literal | n.Span):
            try:
                whole = super().__call__(node) if not aggregates(node) else None
            finally:
                self.grouped = grouped
            if whole is not None and whole.text in grouped:
                return attrs.evolve(whole, type=_nullable(whole)) if whole.text in self.optional else whole
            if isinstance(node, n.Name) and whole is not None:
                shown = ".".join(node.parts)
                self.fail(node, node.parts[0], f"{shown!r} is neither grouped by nor aggregated", "add it to GROUP BY")
        self.grouped = grouped
        return super().__call__(node)

    def name(self, node: n.Node, parts: tuple[str, ...]) -> Value:
        """A column; its name may be one of several tables."""
        try:
            return super().name(node, parts)
        except AmbiguousError as e:
            fix = f"write {e.tables[0]}.{e.name}"
            self.fail(node, e.name, f"{e.name!r} is a column of {' and of '.join(e.tables)}", fix)

    def aggregate(self, node: n.Call) -> Value:
        """An aggregate, an analytic function, or a part of a window of groups."""
        name = node.name.upper()
        kind, _, part = name.partition("_")
        if kind in _LEGACY and part in _PARTS:
            return self.window_part(node, kind, part)
        if kind in _LEGACY and not part:
            self.fail(node, node.name, f"{name} stands in GROUP BY only", f"write {name}_START to see where it begins")
        if name not in (*_AGGREGATES, *_RANKING):
            return super().aggregate(node)
        if self.inside:
            self.fail(node, node.name, f"{name} stands inside of another aggregate", "use a nested query")
        self.inside = True
        try:
            values = [self(a) for a in node.arguments]
            condition = "" if node.filter is None else f" FILTER (WHERE {self(node.filter).text})"
        finally:
            self.inside = False
        over = "" if node.over is None else self.over(node.over)
        if node.over is not None:
            self.facts.note("over", node.name, node.at)
        elif name in _RANKING:
            self.fail(node, node.name, f"{name} needs OVER (…)", "write OVER (PARTITION BY … ORDER BY …)")
        else:
            self.facts.aggregates = True
            if node.distinct:
                self.facts.note("distinct values", f"{name}(DISTINCT …)", node.at)
            if self.comes is not None:
                return self._retracting(node, name, values, self.comes, condition)
        return self._made(node, name, values, condition + over)

    def over(self, node: n.Over) -> str:
        """The window of an analytic function."""
        if node.name:
            if node.name not in self.named_windows:
                hint = nearest(node.name, self.named_windows)
                self.fail(node, "OVER", f"there is no window {node.name!r}{hint}", "declare it behind WINDOW")
            return self.over(self.named_windows[node.name])
        self.inside = True
        try:
            partition = ", ".join(self(p).text for p in node.partition)
            order = ", ".join(self.order(o) for o in node.order)
        finally:
            self.inside = False
        if node.frame and not re.fullmatch(r"(?i)(ROWS|RANGE)\s+BETWEEN\s+[\w\s':.]+AND\s+CURRENT\s+ROW", node.frame):
            self.fail(node, "OVER", f"the frame {node.frame!r} cannot be translated", "write … AND CURRENT ROW")
        parts = [f"PARTITION BY {partition}" if partition else "", f"ORDER BY {order}" if order else "", node.frame]
        return f" OVER ({' '.join(filter(None, parts))})"

    def order(self, node: n.Order) -> str:
        """One of the things that rows are ordered by; NULL is the least, in both engines."""
        nulls = f" NULLS {node.nulls}" if node.nulls else ""
        return f"{self(node.value).text}{' DESC' if node.descending else ''}{nulls}"

    def _made(self, node: n.Call, name: str, values: list[Value], behind: str) -> Value:
        word = "DISTINCT " if node.distinct else ""
        if name == "COUNT":
            inner = "*" if node.star or not values else ", ".join(v.text for v in values)
            return Value(f"count({word}{inner}){behind}", t.BigInt(nullable=False))
        if name in ("ROW_NUMBER", "RANK", "DENSE_RANK"):
            return Value(f"CAST({name.lower()}(){behind} AS BIGINT)", t.BigInt(nullable=False))
        if name in ("PERCENT_RANK", "CUME_DIST"):
            return Value(f"{name.lower()}(){behind}", t.Double(nullable=False))
        if not values:
            self.fail(node, node.name, f"{name} needs an argument", "give it one")
        value, text = values[0], values[0].text
        if name in _GROUPINGS:
            return self._grouping(node, name, values)
        if name == "NTILE":
            return Value(f"CAST(ntile({text}){behind} AS BIGINT)", t.BigInt(nullable=False))
        if name in ("LAG", "LEAD"):
            return Value(f"{name.lower()}({', '.join(v.text for v in values)}){behind}", _nullable(value))
        if name in ("MIN", "MAX"):
            if value.family == "other":
                self.fail(node, node.name, f"{name} of {value.spelling} has no order", "take it of a member")
            return Value(f"{name.lower()}({word}{text}){behind}", _nullable(value))
        if name in ("FIRST_VALUE", "LAST_VALUE"):  # the reference leaves NULL out
            return Value(f"{name.lower()}({text}, true){behind}", _nullable(value))
        if name == "LISTAGG":
            self.need(node, value, "text", name)
            separator = values[1].text if len(values) > 1 else "','"
            return Value(f"listagg({word}{text}, {separator}){behind}", t.STRING)
        self.need(node, value, "number", name)
        if name in _MOMENTS:
            return Value(f"{_MOMENTS[name]}({word}{cast(value, t.Double()).text}){behind}", t.Double())
        return _sum(value, word, behind) if name == "SUM" else self._average(node, value, word, behind)

    def _retracting(self, node: n.Call, name: str, values: list[Value], comes: str, behind: str) -> Value:
        """An aggregate of a changelog."""
        if name not in COUNTED or node.distinct:
            shown = f"{name}(DISTINCT …)" if node.distinct else name
            reason = (
                f"{shown} of a changelog needs all rows of a group when one of them goes, which Spark does not keep"
            )
            self.fail(node, node.name, reason, "use COUNT, SUM or AVG, which a row that goes is taken out of")
        if name == "COUNT":
            return Value(counted(comes, () if node.star else values, behind), t.BigInt(nullable=False))
        if not values:
            self.fail(node, node.name, f"{name} needs an argument", "give it one")
        self.need(node, values[0], "number", name)
        if name == "AVG":
            self._exact(node, values[0])
            return average(comes, values[0], behind)
        total = _sum(signed(comes, values[0]), "", behind)
        return Value(f"if({counted(comes, values[:1], behind)} = 0L, NULL, {total.text})", total.type)

    def _exact(self, node: n.Call, value: Value) -> None:
        if isinstance(value.type, t.Decimal) and value.type.scale > 6:
            self.fail(node, "AVG", "AVG of more than 6 digits behind the point rounds otherwise", "CAST before")

    def _grouping(self, node: n.Call, name: str, values: list[Value]) -> Value:
        """Which keys a group lacks, a bit for each."""
        if len(values) != 1 and name == "GROUPING":
            self.fail(node, node.name, "GROUPING takes one column", "write GROUPING_ID(a, b)")
        if any(value.text not in (self.grouped or ()) for value in values):
            self.fail(
                node, node.name, f"{name} takes what is grouped by", "name columns of ROLLUP, CUBE or GROUPING SETS"
            )
        lacks = ["0L" if v.text not in self.optional else f"CAST(grouping({v.text}) AS BIGINT)" for v in values]
        bits = [f"shiftleft({lack}, {len(lacks) - 1 - i})" for i, lack in enumerate(lacks)]
        return Value(f"({' + '.join(bits)})", t.BigInt(nullable=False))

    def _average(self, node: n.Call, value: Value, word: str, behind: str) -> Value:
        self._exact(node, value)
        exact = exact_average(value, f"nullif(count({word}{value.text}){behind}, 0)", word, behind)
        if exact is not None:
            return exact
        if isinstance(value.type, t.Float):
            return Value(f"CAST(avg({word}{value.text}){behind} AS FLOAT)", t.Float())
        return Value(f"avg({word}{value.text}){behind}", t.Double())

    # windows of groups: GROUP BY TUMBLE(ts, INTERVAL …)

    def group_window(self, node: n.Call) -> Value | None:
        """A window of groups as a key of GROUP BY; None for anything else."""
        kind = node.name.upper()
        if kind not in _LEGACY:
            return None
        if len(node.arguments) != _LEGACY[kind] + 1:
            self.fail(node, node.name, f"{kind} takes {_LEGACY[kind] + 1} arguments", f"write {kind}(ts, INTERVAL …)")
        time = super().__call__(node.arguments[0])
        if time.family != "timestamp" or time.type is None:
            self.fail(
                node, node.name, f"{kind} needs a TIMESTAMP, not {time.spelling}", "name the column of event time"
            )
        spans = [self.milliseconds(a) for a in node.arguments[1:]]
        text = window_text(kind, time.text, [spans[-1], *spans[:-1]])
        self.windows[kind, node.arguments] = (text, time.type)
        self.facts.windowed(kind, node.at, time, spans[-1])
        return Value(text, t.row(start=t.Timestamp(3), end=t.Timestamp(3)))

    def window_part(self, node: n.Call, kind: str, part: str) -> Value:
        """``TUMBLE_START`` and its kin."""
        found = self.windows.get((kind, node.arguments))
        if found is None:
            shown = self.source[node.at :].partition("(")[0]
            self.fail(node, node.name, f"{shown} belongs to no window of GROUP BY", f"GROUP BY {kind}(…) alike")
        text, time = found
        if part == "PROCTIME":
            self.fail(node, node.name, f"{node.name} cannot be translated", f"use {kind}_END")
        if part == "ROWTIME":
            return Value(f"({text}.end - INTERVAL '0.001' SECOND)", time)
        return window_bound(f"{text}.{part.lower()}", time)

    def milliseconds(self, node: n.Node) -> int:
        """The length of an interval of days to seconds."""
        length = microseconds(node) if isinstance(node, n.Span) else None
        if length is None or length < 0 or length % 1000:
            reason = "the length of a window is an INTERVAL of fixed length, in whole milliseconds"
            self.fail(node, "INTERVAL", reason, "write INTERVAL '1' DAY")
        return length // 1000

    # queries inside of expressions

    def in_query(self, node: n.In, value: Value) -> Value:
        """``IN (SELECT …)``."""
        assert node.query is not None
        text, row = self._rows(node, node.query, "IN")
        mine = value.type.fields if isinstance(node.operand, n.Collection) and isinstance(value.type, t.Row) else ()
        if len(row.fields) != max(len(mine), 1):
            reason = f"the query behind IN gives {len(row.fields)} columns, and {max(len(mine), 1)} stand before it"
            self.fail(node, "IN", reason, "select as many")
        kinds: list[t.DataType | None] = [f.type for f in mine] or [value.type]
        for kind, theirs in zip(kinds, row.fields, strict=True):
            self.comparable(node, Value("x", kind), Value("x", theirs.type), "IN")
        self.facts.note("nested", "IN", node.at)
        left = value.text
        if mine and isinstance(node.operand, n.Collection):  # columns in brackets, which Spark takes one by one
            left = f"({', '.join(self(item).text for item in node.operand.items)})"
        return Value(f"({left} {'NOT ' if node.negated else ''}IN ({text}))", t.Boolean())

    def nested(self, node: n.Nested) -> Value:
        """``EXISTS``, or a query that gives one value."""
        text, row = self._rows(node, node.query, "EXISTS" if node.exists else "SELECT")
        self.facts.note("nested", "SELECT", node.at)
        if node.exists:
            return Value(f"EXISTS ({text})", t.Boolean(nullable=False))
        if len(row.fields) != 1:
            self.fail(node, "SELECT", f"a query as a value gives {len(row.fields)} columns", "select one")
        return Value(f"({text})", row.fields[0].type.as_nullable())

    def _rows(self, node: n.Node, query: n.Node, word: str) -> tuple[str, t.Row]:
        """A query inside of an expression, which takes rows for what is there; streams have none at all."""
        text, row = self.query(query, self.relations)
        if isinstance(row, Changelog) and not self.facts.streaming:
            reason = "a query inside of an expression cannot give a changelog, whose rows come and go"
            self.fail(node, word, reason, "GROUP BY what it selects, which leaves what is there")
        return text, row


def _nullable(value: Value) -> t.DataType | None:
    return value.type and value.type.as_nullable()


def _sum(value: Value, word: str, behind: str) -> Value:
    match value.type:
        case t.Decimal(scale=scale):
            text = f"sum({word}CAST({value.text} AS DECIMAL(38, {scale}))){behind}"
            return Value(f"CAST({text} AS DECIMAL(38, {scale}))", t.Decimal(38, scale))
        case t.Double() | t.BigInt() | None:
            return Value(f"sum({word}{value.text}){behind}", _nullable(value) or t.BigInt())
        case kind:
            return Value(f"CAST(sum({word}{value.text}){behind} AS {kind.name})", kind.as_nullable())


def aggregates(node: object) -> bool:
    """Whether an aggregate stands somewhere in a tree."""
    for call in _calls(node):
        name = call.name.upper()
        if name in _AGGREGATES and call.over is None:
            return True
        if name.partition("_")[0] in _LEGACY and name.partition("_")[2] in _PARTS:
            return True
    return False


def analytic(node: object) -> bool:
    """Whether a function with ``OVER`` stands somewhere in a tree."""
    return any(call.over is not None for call in _calls(node))


def _calls(node: object) -> Iterator[n.Call]:
    """The calls that stand somewhere in a tree, but for those of nested queries."""
    if isinstance(node, tuple):
        for one in node:
            yield from _calls(one)
    elif isinstance(node, n.Node) and not isinstance(node, n.Nested):
        if isinstance(node, n.Call):
            yield node
        for a in attrs.fields(type(node)):
            yield from _calls(getattr(node, a.name))
