"""Translates whole queries from Flink SQL to Spark SQL."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import attrs

from kdsl.errors import pluralize
from kdsl.flink_sql.expressions.casts import NoCastError, cast
from kdsl.flink_sql.expressions.values import NoCommonTypeError, TypedSql, common_type, same_in_spark
from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.errors import UntranslatableError, nesting_error
from kdsl.flink_sql.syntax.query_reader import read_query
from kdsl.formats import ROW_KIND
from kdsl.own_columns import WINDOW
from kdsl.scripts.queries.changelog_aggregates import count_rows, is_addition, write_null_unless
from kdsl.scripts.queries.facts import Instants, QueryFacts, StreamNote, TableHint, TimeWindow
from kdsl.scripts.queries.from_clause import FromClause, list_spark_columns
from kdsl.scripts.queries.grouping import (
    QueryExpressionTranslator,
    has_aggregate,
    has_analytic_function,
    has_time_windows,
)
from kdsl.scripts.queries.scopes import (
    CURRENT_ROWS,
    ChangelogColumns,
    QueryColumns,
    Relation,
    Relations,
    Window,
    make_relation,
)
from kdsl.scripts.queries.windows import find_single_group_key
from kdsl.types import model as t
from kdsl.types.sql import quote_name

_LIMIT_FIX = "write a number"


@attrs.frozen
class TranslatedQuery:
    """A translated query.

    Attributes:
        text: The Spark SQL.
        columns: The columns of the result.
        tables: The tables that it reads, in the order of their first use.
        notes: What may be impossible in a stream.
        windows: The windows of event time that it groups by.
        hints: The tables that it reads with other options; ``tables`` contains the names of their views.
        retracts: The position of a group of a changelog, which needs rows as they were; None if there is none.
        instants: The tables and views that it reads with an instant as event time.
    """

    text: str
    columns: t.Row
    tables: tuple[str, ...]
    notes: tuple[StreamNote, ...] = ()
    windows: tuple[TimeWindow, ...] = ()
    hints: tuple[TableHint, ...] = ()
    retracts: int | None = None
    instants: tuple[Instants, ...] = ()

    @property
    def changelog(self) -> bool:
        """Whether the result is a changelog, with one more column for the row kind."""
        return isinstance(self.columns, ChangelogColumns)


def translate_query(
    text: str,
    tables: Mapping[str, t.Row],
    *,
    streaming: bool = False,
    names: Mapping[tuple[str, ...], str] | None = None,
    sinks: Collection[str] = frozenset(),
) -> TranslatedQuery:
    """Translate a query of Flink SQL to Spark SQL; its tables are temporary views of the same names.

    Args:
        text: ``SELECT …``, also with ``WITH``, ``UNION ALL``, joins, groups and windows.
        tables: The columns of each table that it may use, a `ChangelogColumns` where its rows change.
        streaming: Whether it runs as a stream: a group that no longer exists is then written as a delete.
        names: The names in ``tables`` of paths that are written otherwise, as ``catalog.database.table``.
        sinks: The names in ``tables`` of those that can only be written, which messages do not suggest to read.
    """
    tree = read_query(text)
    facts = QueryFacts(streaming=streaming, windows=has_time_windows(tree), sinks=sinks)
    try:
        tree = n.rename_tables(tree, names) if names else tree
        sql, row = _QueryTranslator(text, tables, facts).translate_query(tree, Relations())
    except RecursionError:
        raise nesting_error("", text, n.deepest_node(tree).at) from None
    return TranslatedQuery(
        text=sql,
        columns=row,
        tables=tuple(dict.fromkeys(facts.tables)),
        notes=tuple(facts.notes),
        windows=tuple(facts.windows),
        hints=tuple(facts.hints.values()),
        retracts=facts.retracts,
        instants=tuple(facts.instants.values()),
    )


class _QueryTranslator(FromClause):
    """Translates queries; the tables, windows, aggregates and queries in a translated part are added to the facts."""

    def translate_query(self, node: n.Node, outer: Relations) -> tuple[str, t.Row]:
        """Translate a query with the clauses around it to SQL, and return its columns; the facts are extended."""
        assert isinstance(node, n.Finished)
        before = dict(self.named), set(self.constant)
        named = []
        for name, columns, inner in node.named:
            text, row = self.translate_query(inner, Relations())
            row = self.rename_columns(inner, row, columns)
            listed = f" ({', '.join(map(quote_name, list_spark_columns(row)))})"
            named.append(f"{quote_name(name)}{listed} AS ({text})")
            self.named[name] = row
            (self.constant.discard if self.is_stream(inner) else self.constant.add)(name)
        text, row = self.translate_body(node.body, outer, node.order)
        around = node.order[0] if node.order else node.limit or node.offset
        if around is not None and isinstance(row, ChangelogColumns):
            word = "ORDER BY" if node.order else "LIMIT" if node.limit else "OFFSET"
            reason = f"{word} of a changelog cannot be translated: each of its changes is needed, in order"
            self.fail(around, word, reason, f"remove it, or {CURRENT_ROWS}")
        if node.limit is not None:
            text += f" LIMIT {self.read_row_count(node.limit)}"
        if node.offset is not None:
            self.facts.add_note("offset", "OFFSET", node.offset.at)
            text += f" OFFSET {self.read_row_count(node.offset)}"
        self.named, self.constant = before
        return (f"WITH {', '.join(named)} {text}" if named else text), row

    def read_row_count(self, node: n.Node) -> int:
        """Read the number of LIMIT or OFFSET."""
        if not isinstance(node, n.Literal) or not re.fullmatch(r"\d{1,10}", node.text):
            self.fail(node, "LIMIT", "the number of rows must be a constant", _LIMIT_FIX)
        return int(node.text)

    def translate_body(self, node: n.Node, outer: Relations, order: tuple[n.Order, ...] = ()) -> tuple[str, t.Row]:
        """Translate a SELECT, a combination, VALUES or a query in brackets, with its order; also return the columns.

        The facts are extended; an order is noted in them.
        """
        if order:
            self.facts.add_note("order", "ORDER BY", order[0].at)
        match node:
            case n.Select():
                return self.translate_select(node, outer, order)
            case n.Combined():
                text, row = self.translate_combined(node, outer)
            case n.Values():
                text, row = self.translate_values(node, outer)
            case _:
                text, row = self.translate_query(node, outer)
                text = f"({text})"
        if order:
            scope = self.expression_translator(Relations((make_relation("__all", row),)))
            keys = ", ".join(self.translate_order_key(scope, key, row) for key in order)
            text = f"SELECT * FROM ({text}) AS `__all` ORDER BY {keys}"  # noqa: S608  # no database is asked
        return text, row

    def translate_order_key(self, scope: QueryExpressionTranslator, key: n.Order, row: t.Row) -> str:
        """Translate a key of ORDER BY: a column of the result by name or by number, or an expression.

        What a stream must know of an expression, such as an aggregate, is added to the facts.
        """
        value, nulls = key.value, f" NULLS {key.nulls}" if key.nulls else ""
        suffix = f"{' DESC' if key.descending else ''}{nulls}"
        if isinstance(value, n.Literal) and value.text.isdigit() and 0 < int(value.text) <= len(row.fields):
            return f"{int(value.text)}{suffix}"
        if isinstance(value, n.Name) and len(value.parts) == 1 and value.parts[0] in row.names:
            return f"{quote_name(value.parts[0])}{suffix}"
        return scope.translate_order_key(key)

    # SELECT

    def translate_select(self, node: n.Select, outer: Relations, order: tuple[n.Order, ...]) -> tuple[str, t.Row]:
        """Translate a SELECT to Spark's SQL; also return its columns, a `ChangelogColumns` if its rows change.

        What a stream must know of it is added to the facts.
        """
        before, self.where = self.where, node.where
        if node.source is not None:
            self.choose_instants(node.source)
        source, relations = ("", ()) if node.source is None else self.translate_tables(node.source, outer)
        self.where = before
        scope = Relations(relations, outer if outer.relations else None)
        expressions = self.expression_translator(scope)
        expressions.named_windows = dict(node.windows)
        where = "" if node.where is None else f" WHERE {self.translate_condition(expressions, node.where, 'WHERE')}"
        groups, readable = self.translate_groups(expressions, node, relations)
        around = self.facts.aggregates
        self.facts.aggregates = False
        grouped = bool(groups) or node.having is not None or any(map(_is_aggregate, node.items))
        expressions.grouped = frozenset(groups) if grouped else None
        if expressions.grouped is not None:
            expressions.grouped |= readable
        changing = self.find_changelog(node, relations, groups, grouped=grouped)
        if changing is not None and expressions.grouped is not None:
            expressions.comes = is_addition(str(changing.kinds))
        items = self.translate_items(expressions, node, relations)
        having = "" if node.having is None else self.translate_condition(expressions, node.having, "HAVING")
        updated = (groups or self.facts.aggregates) and not self.groups_by_window(groups)
        if updated:
            self.facts.add_note("aggregate", "GROUP BY" if groups else "SELECT", node.at)
        self.facts.aggregates = around
        if node.distinct:
            self.facts.add_note("distinct", "DISTINCT", node.at)
        kinds = None if changing is None else changing.kinds
        images = changing is None or changing.images
        if expressions.grouped is not None:
            rows = f"{count_rows(expressions.comes)} > 0L" if groups and expressions.comes else ""
            there = f"CASE WHEN {rows} THEN {having or 'true'} ELSE false END" if rows else having
            going = bool(updated) and bool(rows or (node.having is not None and has_aggregate(node.having)))
            kinds, having = self.present_groups(there, going=going)
            guard = there if kinds else rows
            if guard:
                pairs = zip(node.items, items, strict=True)
                items = [(name, write_null_unless(guard, v) if _is_aggregate(i) else v) for i, (name, v) in pairs]
            images = not going
        fields = tuple(t.Field(name, value.type or t.STRING) for name, value in items)
        times = frozenset(i for i, (_, value) in enumerate(items) if _is_event_time(value, relations))
        unmarked = {
            i: instants
            for i, (_, value) in enumerate(items)
            if (instants := _find_replaced_instant(value, relations)) is not None
        }
        row = QueryColumns(fields, nullable=False, event_times=times, unmarked=unmarked)
        if kinds is not None:
            row = ChangelogColumns(fields, nullable=False, images=images, event_times=times)
        listed = ", ".join(f"{value.text} AS {quote_name(name)}" for name, value in items)
        listed += "" if kinds is None else f", {kinds} AS {quote_name(ROW_KIND)}"
        group = f" GROUP BY {', '.join(groups)}" if groups else ""
        having = having and f" HAVING {having}"
        keys = ", ".join(self.translate_order_key(expressions, key, row) for key in order)
        text = f"SELECT {'DISTINCT ' if node.distinct else ''}{listed}{source and f' FROM {source}'}{where}{group}"  # noqa: S608  # no database is asked
        return f"{text}{having}{keys and f' ORDER BY {keys}'}", row

    def present_groups(self, condition: str, *, going: bool) -> tuple[str | None, str]:
        """Write the SQL by which groups that no longer exist leave the result: in a stream as deletes, else by HAVING.

        A query without tables is not a stream.

        Args:
            condition: The SQL of whether a group exists; empty if all do.
            going: Whether a group may exist at first, and no longer exist later.

        Returns:
            The SQL of the row kind, or None; and the SQL after HAVING, or nothing.
        """
        if not going or not self.facts.tables:  # without tables there is no stream
            return None, condition
        if self.facts.streaming:
            return f"CASE WHEN {condition} THEN '+U' ELSE '-D' END", ""
        return None, condition

    def find_changelog(
        self, node: n.Select, relations: tuple[Relation, ...], groups: list[str], *, grouped: bool
    ) -> Relation | None:
        """Find the changelog that the query reads, and note in the facts if it is grouped; None if there is none."""
        changelogs = [r for r in relations if r.kinds is not None]
        if not changelogs:
            return None
        sets = any(isinstance(key, n.Grouping) for key in node.group)
        why = fix = ""
        if isinstance(node.source, n.Join) and not isinstance(node.source.right, n.Unnest):
            why = "cannot be joined: Spark's joins cannot retract rows"
            fix = CURRENT_ROWS
        elif not grouped and any(map(has_analytic_function, node.items)):
            why, fix = "cannot have OVER windows: Spark cannot retract rows from them", CURRENT_ROWS
        elif node.distinct:
            why, fix = "cannot be made DISTINCT: Spark does not keep its rows", "write GROUP BY"
        elif grouped and (sets or self.groups_by_window(groups)):
            why = "cannot be grouped by windows or by sets of keys: Spark cannot retract rows from them"
            fix = f"group by columns only, or {CURRENT_ROWS}"
        elif grouped and not changelogs[0].images:
            why = "cannot be grouped again: its updates do not include the rows before them"
            fix = "write it to a table of 'upsert-kafka', and group that"
        if why:
            self.fail(node, "SELECT", f"a changelog {why}", fix)
        if grouped:
            self.facts.retracts = node.at
        return changelogs[0]

    def groups_by_window(self, groups: list[str]) -> bool:
        """Whether one of the translated keys of a group is a window of time."""
        return any(WINDOW in g or g.startswith(("window(", "session_window(")) for g in groups)

    def translate_items(
        self, expressions: QueryExpressionTranslator, node: n.Select, relations: tuple[Relation, ...]
    ) -> list[tuple[str, TypedSql]]:
        """Translate the columns of SELECT, with their names; ``*`` is expanded.

        An expression without an alias, unless it is a column or a member, is called ``EXPR$`` and its index.
        Aggregates, ``OVER`` and queries in the columns are added to the facts.
        """
        columns: list[tuple[str, TypedSql]] = []
        for item in node.items:
            if isinstance(item, n.Star):
                chosen = [r for r in relations if item.table in (None, r.alias)]
                if not chosen:
                    shown = "*" if item.table is None else f"{item.table}.*"
                    self.fail(item, shown, f"{shown} does not refer to a table", "name a table after FROM")
                if expressions.grouped is not None:
                    self.fail(item, "*", "* cannot be used in a grouped query", "name the columns")
                columns += [column for r in chosen for column in (r.own if item.table is None else r.columns)]
                continue
            assert isinstance(item, n.Item)
            value = expressions(item.value)
            name = item.alias
            if name is None:
                name = item.value.parts[-1] if isinstance(item.value, n.Name) else f"EXPR${len(columns)}"
            if isinstance(item.value, n.Member) and item.alias is None:
                name = item.value.name
            columns.append((name, value))
        return columns

    def translate_groups(
        self, expressions: QueryExpressionTranslator, node: n.Select, relations: tuple[Relation, ...]
    ) -> tuple[list[str], set[str]]:
        """Translate GROUP BY to Spark's keys; also return the SQL of what else can be selected.

        These are both ends of windows, and the keys in sets of keys, which are also added to ``expressions.optional``.
        Sets of keys, and windows of time and queries in keys, are noted in the facts.
        """
        keys: list[str] = []
        sets: list[str] = []
        readable: set[str] = set()
        for key in node.group:
            if isinstance(key, n.Grouping):
                texts = [[self.translate_key(expressions, one) for one in each] for each in key.sets]
                listed = ", ".join(f"({', '.join(each)})" for each in texts)
                sets.append(f"{key.kind} ({listed})")
                expressions.optional |= {text for each in texts for text in each}
                self.facts.add_note("grouping", key.kind, key.at)
            else:
                keys.append(self.translate_key(expressions, key))
        for window in (r.window for r in relations if r.window is not None):
            ends = {window.start, window.end}
            if any(WINDOW in text for text in expressions.optional):
                fix = "write GROUP BY window_start, window_end, GROUPING SETS (…)"
                self.fail(node.group[0], "GROUP BY", "window_start and window_end must come before sets of keys", fix)
            used = (ends | {window.time}) & set(keys)
            if used and not ends <= used:
                reason = "a query over a window table must group by both window_start and window_end"
                self.fail(node.group[0], "GROUP BY", reason, "write GROUP BY window_start, window_end, …")
            rest = [text for text in keys if text not in ends]
            if window.kind == "SESSION":
                self.check_session(node, window, {text for text in rest if text != window.time} if used else None)
            if used:
                keys = [*window.keys, *rest]
                readable |= ends
        if len(keys) == 1 and keys[0].startswith("session_window("):
            keys.append(find_single_group_key(keys[0].removeprefix("session_window(").rpartition(", '")[0]))
        return [*keys, *sets], readable | expressions.optional

    def translate_key(self, expressions: QueryExpressionTranslator, node: n.Node) -> str:
        """Translate a key of GROUP BY to SQL; a window of time is recorded as by `translate_group_window`.

        Queries in it are noted in the facts.
        """
        if isinstance(node, n.Literal):
            self.fail(node, node.text, "GROUP BY takes columns, not their numbers", "write the column")
        window = expressions.translate_group_window(node) if isinstance(node, n.Call) else None
        return (window or expressions(node)).text

    def check_session(self, node: n.Select, window: Window, others: set[str] | None) -> None:
        """Check that Spark's sessions, which exist only as groups, can do what the query needs.

        ``others`` are the keys that it groups by beside the windows; None if it does not group by them.
        """
        if others is None:
            reason, fix = "sessions exist as groups only", "write GROUP BY window_start, window_end"
        elif others != set(window.partition):
            reason = "the columns of PARTITION BY and those of GROUP BY differ, and sessions need both to be the same"
            fix = "name the same columns in both"
        elif not isinstance(node.source, n.Windowed):
            reason, fix = "a table of sessions cannot be joined", "group it in a nested query, and join that"
        else:
            return
        raise UntranslatableError("SESSION", reason, fix, self.source, window.position)

    # several queries as one

    def translate_combined(self, node: n.Combined, outer: Relations) -> tuple[str, t.Row]:
        """Translate UNION, INTERSECT or EXCEPT; also return the columns: the names of the left side, the common types.

        The facts are extended by both sides, and by the operator unless it is UNION ALL.
        """
        sides = [self.translate_body(side, outer) for side in (node.left, node.right)]
        (_, left), (_, right) = sides
        if isinstance(left, ChangelogColumns) or isinstance(right, ChangelogColumns):
            reason = f"{node.operator} of a changelog cannot be translated"
            both = "write one INSERT for each side, or " if node.every and node.operator == "UNION" else ""
            self.fail(node, node.operator, reason, f"{both}{CURRENT_ROWS}")
        if not node.every or node.operator != "UNION":
            self.facts.add_note("set", node.operator, node.at)
        if len(left.fields) != len(right.fields):
            reason = f"{node.operator} combines {pluralize(len(left.fields), 'column')} with {len(right.fields)}"
            self.fail(node, node.operator, reason, "select the same number of columns")
        fields = []
        for a, b in zip(left.fields, right.fields, strict=True):
            try:
                kind = common_type([a.type, b.type])
            except NoCommonTypeError:
                reason = f"{node.operator} combines {a.name!r}, {a.type.spelling}, with {b.name!r}, {b.type.spelling}"
                self.fail(node, node.operator, reason, "CAST one to the type of the other")
            assert kind is not None
            fields.append(t.Field(a.name, kind))
        row = t.Row(tuple(fields), nullable=False)
        try:
            texts = [self.cast_rows(text, had, row) for text, had in sides]
        except NoCastError as e:
            self.fail(node, node.operator, e.reason, e.fix)
        return f" {node.operator}{' ALL' if node.every else ''} ".join(texts), row

    def cast_rows(self, text: str, had: t.Row, want: t.Row) -> str:
        """Write a query in brackets that casts the columns of another one (``text``) to the types of ``want``.

        The columns get the names of ``want``. If no type differs in Spark, it is the other query, with its own names.
        """
        pairs = list(zip(had.fields, want.fields, strict=True))
        if all(same_in_spark(a.type, b.type) for a, b in pairs):
            return f"({text})"
        values = [TypedSql(f"c{i}", f.type) for i, f in enumerate(had.fields)]
        casts = [
            v.text if same_in_spark(a.type, b.type) else cast(v, b.type).text
            for v, (a, b) in zip(values, pairs, strict=True)
        ]
        listed = ", ".join(f"{text_} AS {quote_name(b.name)}" for text_, (_, b) in zip(casts, pairs, strict=True))
        return f"(SELECT {listed} FROM ({text}) AS `__side` ({', '.join(v.text for v in values)}))"  # noqa: S608  # no database is asked

    def translate_values(self, node: n.Values, outer: Relations) -> tuple[str, t.Row]:
        """Translate VALUES; also return the columns ``EXPR$0``, …, with the common types.

        Queries among the values are noted in the facts.
        """
        expressions = self.expression_translator(outer)
        rows = [[expressions(v) for v in row] for row in node.rows]
        if len({len(row) for row in rows}) > 1:
            self.fail(
                node, "VALUES", "the rows of VALUES have different lengths", "write the same number of values in each"
            )
        try:
            columns = [expressions.unify(node, "VALUES", list(column)) for column in zip(*rows, strict=True)]
        except NoCastError as e:
            self.fail(node, "VALUES", e.reason, e.fix)
        names = [f"EXPR${i}" for i in range(len(columns))]
        texts = [f"({', '.join(texts[i] for _, texts in columns)})" for i in range(len(rows))]
        fields = tuple(t.Field(name, kind or t.STRING) for name, (kind, _) in zip(names, columns, strict=True))
        listed = ", ".join(map(quote_name, names))
        return f"SELECT * FROM VALUES {', '.join(texts)} AS `__values` ({listed})", t.Row(fields, nullable=False)  # noqa: S608  # no database is asked


def _is_event_time(value: TypedSql, relations: tuple[Relation, ...]) -> bool:
    """Whether a value is an event-time column itself."""
    return any(value.text == known.text for r in relations for name, known in r.columns if name in r.event_times)


def _find_replaced_instant(value: TypedSql, relations: tuple[Relation, ...]) -> Instants | None:
    """Find the instant that a join reads instead of an event-time column; None if the value is not such a column."""
    marked = ((r.get(r.instants.column), r.instants) for r in relations if r.instants is not None)
    return next((instants for known, instants in marked if known is not None and known.text == value.text), None)


def _is_aggregate(item: n.Node) -> bool:
    """Whether an element of SELECT contains an aggregate."""
    return isinstance(item, n.Item) and has_aggregate(item.value)
