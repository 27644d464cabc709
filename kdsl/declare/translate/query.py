"""Whole queries: ``SELECT`` and what is around it, from Flink SQL to Spark SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from kdsl.declare.translate import tree as n
from kdsl.declare.translate.casts import cast
from kdsl.declare.translate.errors import UntranslatableError
from kdsl.declare.translate.facts import Facts, Hint, Note, TimeWindow
from kdsl.declare.translate.from_clause import FromClause, names_of
from kdsl.declare.translate.grouping import Expressions, aggregates, analytic
from kdsl.declare.translate.query_reader import read_query
from kdsl.declare.translate.reader import too_deep
from kdsl.declare.translate.retracting import comes, counted, guarded
from kdsl.declare.translate.scopes import Changelog, Relation, Relations, Window, relation
from kdsl.declare.translate.values import NoCommonTypeError, Value, common, same_in_spark
from kdsl.declare.translate.windows import WINDOW, one_group
from kdsl.formats import ROW_KIND
from kdsl.types import model as t
from kdsl.types.sql import quoted

_LIMIT_FIX = "write a number"
_THERE = "take the rows that are there, in Python (snapshot)"


@attrs.frozen
class Query:
    """A translated query.

    Attributes:
        text: The Spark SQL.
        columns: The columns of the result.
        tables: The tables that it reads, in the order of their first use.
        notes: What a stream may not be able to do.
        windows: The windows of event time that it groups by.
        hints: The tables that it reads with other options; ``tables`` names their views.
        for_streams: Whether it is written for a stream, where that makes a difference; None where it makes none.
        retracts: The place of a group of a changelog, which needs rows as they were; None where there is none.
    """

    text: str
    columns: t.Row
    tables: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    windows: tuple[TimeWindow, ...] = ()
    hints: tuple[Hint, ...] = ()
    for_streams: bool | None = None
    retracts: int | None = None

    @property
    def changelog(self) -> bool:
        """Whether the rows of the result come, change and go, which one more column says."""
        return isinstance(self.columns, Changelog)


def translate_query(text: str, tables: Mapping[str, t.Row], *, streaming: bool = False) -> Query:
    """A query of Flink SQL as Spark SQL, with the columns of its result.

    Args:
        text: The query.
        tables: The columns of each table that it may use, a `Changelog` where its rows change; its views in Spark have
            the same names.
        streaming: Whether it runs as a stream: a group that is there no more is told as a delete then.

    Raises:
        UntranslatableError: It is no query, uses unknown names, or has no equal in Spark.
    """
    facts = Facts(streaming=streaming)
    tree = read_query(text)
    try:
        made, row = _Queries(text, tables, facts).query(tree, Relations())
    except RecursionError:
        raise too_deep("", text, n.deepest(tree).at) from None
    return Query(
        text=made,
        columns=row,
        tables=tuple(dict.fromkeys(facts.tables)),
        notes=tuple(facts.notes),
        windows=tuple(facts.windows),
        hints=tuple(facts.hints.values()),
        for_streams=facts.for_streams,
        retracts=facts.retracts,
    )


class _Queries(FromClause):
    def query(self, node: n.Node, outer: Relations) -> tuple[str, t.Row]:
        """A query with what stands around it, as SQL and as columns."""
        assert isinstance(node, n.Finished)
        before = dict(self.named)
        named = []
        for name, columns, inner in node.named:
            text, row = self.query(inner, Relations())
            row = self.renamed(inner, row, columns)
            listed = f" ({', '.join(map(quoted, names_of(row)))})"
            named.append(f"{quoted(name)}{listed} AS ({text})")
            self.named[name] = row
        text, row = self.body(node.body, outer, node.order)
        around = node.order[0] if node.order else node.limit or node.offset
        if around is not None and isinstance(row, Changelog):
            word = "ORDER BY" if node.order else "LIMIT" if node.limit else "OFFSET"
            reason = f"{word} of a changelog, whose rows come and go: each change counts, and in its order"
            self.fail(around, word, reason, f"leave it out, or {_THERE}")
        if node.limit is not None:
            text += f" LIMIT {self.count(node.limit)}"
        if node.offset is not None:
            self.facts.note("offset", "OFFSET", node.offset.at)
            text += f" OFFSET {self.count(node.offset)}"
        self.named = before
        return (f"WITH {', '.join(named)} {text}" if named else text), row

    def count(self, node: n.Node) -> int:
        if not isinstance(node, n.Literal) or not re.fullmatch(r"\d{1,10}", node.text):
            self.fail(node, "LIMIT", "the number of rows is a constant", _LIMIT_FIX)
        return int(node.text)

    def body(self, node: n.Node, outer: Relations, order: tuple[n.Order, ...] = ()) -> tuple[str, t.Row]:
        if order:
            self.facts.note("order", "ORDER BY", order[0].at)
        match node:
            case n.Select():
                return self.select(node, outer, order)
            case n.Combined():
                text, row = self.combined(node, outer)
            case n.Values():
                text, row = self.values(node, outer)
            case _:
                text, row = self.query(node, outer)
                text = f"({text})"
        if order:
            scope = self.expressions(Relations((relation("__all", row),)))
            keys = ", ".join(self.order_key(scope, key, row) for key in order)
            text = f"SELECT * FROM ({text}) AS `__all` ORDER BY {keys}"  # noqa: S608  # no database is asked
        return text, row

    def order_key(self, scope: Expressions, key: n.Order, row: t.Row) -> str:
        """A key of ORDER BY: a column of the result by name or by number, or an expression."""
        value, nulls = key.value, f" NULLS {key.nulls}" if key.nulls else ""
        behind = f"{' DESC' if key.descending else ''}{nulls}"
        if isinstance(value, n.Literal) and value.text.isdigit() and 0 < int(value.text) <= len(row.fields):
            return f"{int(value.text)}{behind}"
        if isinstance(value, n.Name) and len(value.parts) == 1 and value.parts[0] in row.names:
            return f"{quoted(value.parts[0])}{behind}"
        return scope.order(key)

    # SELECT

    def select(self, node: n.Select, outer: Relations, order: tuple[n.Order, ...]) -> tuple[str, t.Row]:
        source, found = ("", ()) if node.source is None else self.tables_of(node.source, outer)
        scope = Relations(found, outer if outer.found else None)
        expressions = self.expressions(scope)
        expressions.named_windows = dict(node.windows)
        where = "" if node.where is None else f" WHERE {self.condition(expressions, node.where, 'WHERE')}"
        groups, readable = self.groups(expressions, node, found)
        around = self.facts.aggregates
        self.facts.aggregates = False
        grouped = bool(groups) or node.having is not None or any(map(_is_aggregate, node.items))
        expressions.grouped = frozenset(groups) if grouped else None
        if expressions.grouped is not None:
            expressions.grouped |= readable
        changing = self.changing(node, found, groups, grouped=grouped)
        if changing is not None and expressions.grouped is not None:
            expressions.comes = comes(str(changing.kinds))
        items = self.items(expressions, node, found)
        having = "" if node.having is None else self.condition(expressions, node.having, "HAVING")
        updated = (groups or self.facts.aggregates) and not self.windowed(groups)
        if updated:
            self.facts.note("aggregate", "GROUP BY" if groups else "SELECT", node.at)
        self.facts.aggregates = around
        if node.distinct:
            self.facts.note("distinct", "DISTINCT", node.at)
        kinds = None if changing is None else changing.kinds
        images = changing is None or changing.images
        if expressions.grouped is not None:
            rows = f"{counted(expressions.comes)} > 0L" if groups and expressions.comes else ""
            there = f"CASE WHEN {rows} THEN {having or 'true'} ELSE false END" if rows else having
            going = bool(updated) and bool(rows or (node.having is not None and aggregates(node.having)))
            kinds, having = self.there(there, going=going)
            guard = there if kinds else rows
            if guard:
                pairs = zip(node.items, items, strict=True)
                items = [(name, guarded(guard, v) if _is_aggregate(i) else v) for i, (name, v) in pairs]
            images = not going
        fields = tuple(t.Field(name, value.type or t.STRING) for name, value in items)
        row = t.Row(fields, nullable=False) if kinds is None else Changelog(fields, nullable=False, images=images)
        listed = ", ".join(f"{value.text} AS {quoted(name)}" for name, value in items)
        listed += "" if kinds is None else f", {kinds} AS {quoted(ROW_KIND)}"
        group = f" GROUP BY {', '.join(groups)}" if groups else ""
        having = having and f" HAVING {having}"
        keys = ", ".join(self.order_key(expressions, key, row) for key in order)
        text = f"SELECT {'DISTINCT ' if node.distinct else ''}{listed}{source and f' FROM {source}'}{where}{group}"  # noqa: S608  # no database is asked
        return f"{text}{having}{keys and f' ORDER BY {keys}'}", row

    def there(self, condition: str, *, going: bool) -> tuple[str | None, str]:
        """How it is told which groups are there: what each says, or what stands behind HAVING.

        Args:
            condition: What holds of a group that is there; empty where all are.
            going: Whether a group may be there at first, and not any more.
        """
        if not going or not self.facts.tables:  # without tables there is no stream
            return None, condition
        self.facts.for_streams = self.facts.streaming
        if self.facts.streaming:
            return f"CASE WHEN {condition} THEN '+U' ELSE '-D' END", ""
        return None, condition

    def changing(
        self, node: n.Select, found: tuple[Relation, ...], groups: list[str], *, grouped: bool
    ) -> Relation | None:
        """The changelog that is read, if there is one."""
        changelogs = [r for r in found if r.kinds is not None]
        if not changelogs:
            return None
        sets = any(isinstance(key, n.Grouping) for key in node.group)
        why = fix = ""
        if isinstance(node.source, n.Join) and not isinstance(node.source.right, n.Unnest):
            why = "cannot be joined: Spark's joins take no row back"
            fix = "join in Python, with the rows that are there (snapshot)"
        elif not grouped and any(map(analytic, node.items)):
            why, fix = "has no OVER windows: Spark takes no row back from them", _THERE
        elif node.distinct:
            why, fix = "cannot be made DISTINCT: Spark keeps no rows for it", "write GROUP BY"
        elif grouped and (sets or self.windowed(groups)):
            why = "cannot be grouped by windows or by sets of keys, which would have to take rows back"
            fix = "group by columns, or in Python"
        elif grouped and not changelogs[0].images:
            why = "cannot be grouped again: it does not tell rows as they were"
            fix = "write it to a table of 'upsert-kafka', and group that"
        if why:
            self.fail(node, "SELECT", f"a changelog, whose rows come and go, {why}", fix)
        if grouped:
            self.facts.retracts = node.at
        return changelogs[0]

    def windowed(self, groups: list[str]) -> bool:
        return any(WINDOW in g or g.startswith(("window(", "session_window(")) for g in groups)

    def items(self, expressions: Expressions, node: n.Select, found: tuple[Relation, ...]) -> list[tuple[str, Value]]:
        made: list[tuple[str, Value]] = []
        for item in node.items:
            if isinstance(item, n.Star):
                chosen = [r for r in found if item.table in (None, r.alias)]
                if not chosen:
                    shown = "*" if item.table is None else f"{item.table}.*"
                    self.fail(item, shown, f"{shown} means no table", "name a table behind FROM")
                if expressions.grouped is not None:
                    self.fail(item, "*", "* cannot stand in a grouped query", "name the columns")
                made += [column for r in chosen for column in (r.own if item.table is None else r.columns)]
                continue
            assert isinstance(item, n.Item)
            value = expressions(item.value)
            name = item.alias
            if name is None:
                name = item.value.parts[-1] if isinstance(item.value, n.Name) else f"EXPR${len(made)}"
            if isinstance(item.value, n.Member) and item.alias is None:
                name = item.value.name
            made.append((name, value))
        return made

    def groups(
        self, expressions: Expressions, node: n.Select, found: tuple[Relation, ...]
    ) -> tuple[list[str], set[str]]:
        """What Spark groups by, and what can be selected besides; both ends of a window are one key of Spark."""
        made: list[str] = []
        sets: list[str] = []
        readable: set[str] = set()
        for key in node.group:
            if isinstance(key, n.Grouping):
                texts = [[self.key(expressions, one) for one in each] for each in key.sets]
                listed = ", ".join(f"({', '.join(each)})" for each in texts)
                sets.append(f"{key.kind} ({listed})")
                expressions.optional |= {text for each in texts for text in each}
                self.facts.note("grouping", key.kind, key.at)
            else:
                made.append(self.key(expressions, key))
        for window in (r.window for r in found if r.window is not None):
            ends = {window.start, window.end}
            if any(WINDOW in text for text in expressions.optional):
                fix = "write GROUP BY window_start, window_end, GROUPING SETS (…)"
                self.fail(node.group[0], "GROUP BY", "the ends of a window stand before several sets of keys", fix)
            used = (ends | {window.time}) & set(made)
            if used and not ends <= used:
                reason = "a query over a window table groups by window_start and window_end, both"
                self.fail(node.group[0], "GROUP BY", reason, "write GROUP BY window_start, window_end, …")
            rest = [text for text in made if text not in ends]
            if window.kind == "SESSION":
                self.session(node, window, {text for text in rest if text != window.time} if used else None)
            if used:
                made = [*window.keys, *rest]
                readable |= ends
        if len(made) == 1 and made[0].startswith("session_window("):
            made.append(one_group(made[0].removeprefix("session_window(").rpartition(", '")[0]))
        return [*made, *sets], readable | expressions.optional

    def key(self, expressions: Expressions, node: n.Node) -> str:
        if isinstance(node, n.Literal):
            self.fail(node, node.text, "GROUP BY takes columns, not their numbers", "write the column")
        window = expressions.group_window(node) if isinstance(node, n.Call) else None
        return (window or expressions(node)).text

    def session(self, node: n.Select, window: Window, others: set[str] | None) -> None:
        """Refuse what Spark's sessions, which are made by grouping, cannot do."""
        if others is None:
            reason, fix = "sessions are found by grouping", "write GROUP BY window_start, window_end"
        elif others != set(window.partition):
            reason = "the columns behind PARTITION BY and those of GROUP BY differ, and sessions go by both"
            fix = "name the same columns in both"
        elif not isinstance(node.source, n.Windowed):
            reason, fix = "a table of sessions is not joined", "group it in a query by itself, and join that"
        else:
            return
        raise UntranslatableError("SESSION", reason, fix, self.source, window.position)

    # several queries as one

    def combined(self, node: n.Combined, outer: Relations) -> tuple[str, t.Row]:
        sides = [self.body(side, outer) for side in (node.left, node.right)]
        (_, left), (_, right) = sides
        if isinstance(left, Changelog) or isinstance(right, Changelog):
            reason = f"{node.operator} of a changelog, whose rows come and go, cannot be translated"
            self.fail(node, node.operator, reason, "write one INSERT for each side")
        if not node.every or node.operator != "UNION":
            self.facts.note("set", node.operator, node.at)
        if len(left.fields) != len(right.fields):
            reason = f"{node.operator} joins {len(left.fields)} columns with {len(right.fields)}"
            self.fail(node, node.operator, reason, "select the same number of columns")
        fields = []
        for a, b in zip(left.fields, right.fields, strict=True):
            try:
                kind = common([a.type, b.type])
            except NoCommonTypeError:
                reason = f"{node.operator} joins {a.name!r}, {a.type.spelling}, with {b.name!r}, {b.type.spelling}"
                self.fail(node, node.operator, reason, "CAST one to the type of the other")
            assert kind is not None
            fields.append(t.Field(a.name, kind))
        row = t.Row(tuple(fields), nullable=False)
        texts = [self.as_row(text, had, row) for text, had in sides]
        return f" {node.operator}{' ALL' if node.every else ''} ".join(texts), row

    def as_row(self, text: str, had: t.Row, want: t.Row) -> str:
        pairs = list(zip(had.fields, want.fields, strict=True))
        if all(same_in_spark(a.type, b.type) for a, b in pairs):
            return f"({text})"
        values = [Value(f"c{i}", f.type) for i, f in enumerate(had.fields)]
        made = [
            v.text if same_in_spark(a.type, b.type) else cast(v, b.type).text
            for v, (a, b) in zip(values, pairs, strict=True)
        ]
        listed = ", ".join(f"{text_} AS {quoted(b.name)}" for text_, (_, b) in zip(made, pairs, strict=True))
        return f"(SELECT {listed} FROM ({text}) AS `__side` ({', '.join(v.text for v in values)}))"  # noqa: S608  # no database is asked

    def values(self, node: n.Values, outer: Relations) -> tuple[str, t.Row]:
        expressions = self.expressions(outer)
        rows = [[expressions(v) for v in row] for row in node.rows]
        if len({len(row) for row in rows}) > 1:
            self.fail(node, "VALUES", "the rows of VALUES have different lengths", "give each as many values")
        columns = [expressions.together(node, "VALUES", list(column)) for column in zip(*rows, strict=True)]
        names = [f"EXPR${i}" for i in range(len(columns))]
        texts = [f"({', '.join(texts[i] for _, texts in columns)})" for i in range(len(rows))]
        fields = tuple(t.Field(name, kind or t.STRING) for name, (kind, _) in zip(names, columns, strict=True))
        listed = ", ".join(map(quoted, names))
        return f"SELECT * FROM VALUES {', '.join(texts)} AS `__values` ({listed})", t.Row(fields, nullable=False)  # noqa: S608  # no database is asked


def _is_aggregate(item: n.Node) -> bool:
    return isinstance(item, n.Item) and aggregates(item.value)
