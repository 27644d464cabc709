"""Translates the clause ``FROM``: tables, windows, joins and ``UNNEST``, to SQL and to the tables for name lookup."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Mapping
from typing import NoReturn

import attrs

from kdsl.errors import nearest, pluralize
from kdsl.flink_sql.expressions.casts import NoCastError
from kdsl.flink_sql.expressions.values import TypedSql
from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.flink_sql.syntax.query_reader import WINDOWS
from kdsl.formats import ROW_KIND
from kdsl.own_columns import UNNESTED_ROW
from kdsl.scripts.queries.facts import Instants, QueryFacts, TableHint
from kdsl.scripts.queries.grouping import QueryExpressionTranslator, has_aggregate
from kdsl.scripts.queries.join_conditions import JoinCondition, read_condition
from kdsl.scripts.queries.scopes import CURRENT_VIEW, ChangelogColumns, Relation, Relations, make_relation
from kdsl.scripts.queries.windows import make_window_table
from kdsl.types import model as t
from kdsl.types.sql import quote_name


class FromClause:
    """Translates the tables after ``FROM``; a subclass translates the queries among them.

    What a stream must know of whatever is translated is added to the facts.

    Args:
        text: The whole query, for messages.
        tables: The columns of each table that may be used.
        facts: Where facts about the query are recorded.
    """

    def __init__(self, text: str, tables: Mapping[str, t.Row], facts: QueryFacts) -> None:
        self.source, self.facts = text, facts
        self.tables = tables
        self.named: dict[str, t.Row] = {}
        self.constant: set[str] = set()
        self.where: n.Node | None = None
        self.by_instant: dict[int, str] = {}

    @abstractmethod
    def translate_query(self, node: n.Node, outer: Relations) -> tuple[str, t.Row]:
        """Translate a query that may use the tables of ``outer`` to SQL; also return its columns.

        The facts are extended.
        """

    def fail(self, node: n.Node, name: str, reason: str, fix: str) -> NoReturn:
        """Raise an UntranslatableError for a part of the query: its name, the reason, and the fix."""
        raise UntranslatableError(name, reason, fix, self.source, node.at)

    def expression_translator(self, scope: Relations) -> QueryExpressionTranslator:
        """Create a translator of expressions over some tables."""
        return QueryExpressionTranslator(self.source, scope, self.facts, self.translate_query, self.tables)

    def translate_condition(self, expressions: QueryExpressionTranslator, node: n.Node, what: str) -> str:
        """Translate a condition, which must be BOOLEAN, to SQL; ``what`` names the clause for the error.

        Aggregates, ``OVER`` and queries inside it are noted in the facts.
        """
        if what != "HAVING" and has_aggregate(node):
            self.fail(node, what, f"{what} cannot have an aggregate", "use HAVING, or aggregate in a nested query")
        value = expressions(node)
        expressions.require_family(node, value, "boolean", what)
        return value.text

    def rename_columns(self, node: n.Node, row: t.Row, names: tuple[str, ...]) -> t.Row:
        """Return the columns of a query with other names, if there are any names."""
        if not names:
            return row
        if len(names) != len(row.fields):
            reason = f"there are {len(names)} names for {pluralize(len(row.fields), 'column')}"
            self.fail(node, names[0], reason, "write as many names as columns")
        fields = tuple(attrs.evolve(f, name=name) for f, name in zip(row.fields, names, strict=True))
        return attrs.evolve(row, fields=fields)

    def choose_instants(self, node: n.Node) -> None:
        """Note in ``by_instant`` which tables a join of streams reads with an instant as event time.

        They are those of joins whose sides are tables with at most one wall-clock event time each, and whose condition
        bounds these times by each other. None are noted unless the query is a stream without windows.
        """
        if not isinstance(node, n.Join) or not self.facts.streaming or self.facts.has_windows:
            return
        self.choose_instants(node.left)
        self.choose_instants(node.right)
        left, right = self.find_plain_tables(node.left), self.find_plain_tables(node.right)
        if left is None or right is None:
            return
        sides = tuple((at, table, _wall_clock_event_times(table)) for at, table in (*left, *right))
        condition = read_condition(self.join_condition(node), _only_relations(left), _only_relations(right))
        if condition.bounds and all(len(columns) < 2 for *_, columns in sides):
            self.by_instant |= {at: columns[0] for at, _, columns in sides if columns}

    def find_plain_tables(self, node: n.Node) -> tuple[tuple[int, Relation], ...] | None:
        """List the tables of one side of a join with their positions in the query.

        None if it contains a query, a window, an UNNEST, or a table that does not exist.
        """
        match node:
            case n.Table(name=name, alias=alias) if name[-1] not in self.named and name[-1] in self.tables:
                return ((node.at, make_relation(alias or name[-1], self.tables[name[-1]])),)
            case n.Join(left=left, right=right):
                sides = self.find_plain_tables(left), self.find_plain_tables(right)
                return None if sides[0] is None or sides[1] is None else (*sides[0], *sides[1])
        return None

    def join_condition(self, node: n.Join) -> n.Node | None:
        """Return the condition of a join (None if there is none); for an inner join with the one after WHERE."""
        if node.kind not in ("INNER", "CROSS") or self.where is None:
            return node.on
        return self.where if node.on is None else n.Binary("AND", node.on, self.where)

    def translate_tables(self, node: n.Node, outer: Relations) -> tuple[str, tuple[Relation, ...]]:
        """Translate the tables after FROM to SQL, and return them for the lookup of names.

        The tables, hints, windows and joins are recorded in ``facts``.
        """
        match node:
            case n.Table(name=name, alias=alias):
                row = self.table_columns(node, name)
                shown, view = alias or name[-1], self.view_name(node)
                table = make_relation(shown, row)
                if node.at in self.by_instant:
                    instants = Instants(f"{view}__instants", view, self.by_instant[node.at])
                    self.facts.instants[instants.view] = instants
                    view, table = instants.view, attrs.evolve(table, instants=instants)
                return f"{quote_name(view)} AS {quote_name(shown)}", (table,)
            case n.Derived(query=query, alias=alias, columns=columns):
                text, row = self.translate_query(query, outer)
                row = self.rename_columns(query, row, columns)
                shown = alias or f"__derived{node.at}"
                listed = f" ({', '.join(map(quote_name, list_spark_columns(row)))})" if columns else ""
                return f"({text}) AS {quote_name(shown)}{listed}", (make_relation(shown, row),)
            case n.Windowed():
                return self.translate_window_table(node)
            case n.Join():
                return self.translate_join(node, outer)
        return self.fail(
            node, "UNNEST", "UNNEST must follow a table", "write FROM t CROSS JOIN UNNEST(t.items) AS u (item)"
        )

    def view_name(self, node: n.Table) -> str:
        """The name of a table in Spark, which is a different one where a hint changes its options."""
        name = node.name[-1]
        return f"{name}__{zlib.crc32(node.hint.encode()):08x}" if node.hint else name

    def table_columns(self, node: n.Table, name: tuple[str, ...]) -> t.Row:
        """Look up the columns of a table or of a query of ``WITH``; record that a table is read, and its hint."""
        named_query = self.named.get(name[-1]) if len(name) == 1 else None
        if named_query is not None:
            if node.hint:
                self.fail(node, name[0], f"{name[0]!r} is a query, which has no options", "hint at the table in it")
            return named_query
        if name[-1] not in self.tables:
            names = [*self.named, *self.tables]
            hint = nearest(name[-1], names)
            fix = f"use one of {', '.join(names)}" if names else "declare it with CREATE TABLE first"
            self.fail(node, name[0], f"there is no table {'.'.join(name)!r}{hint}", fix)
        view = self.view_name(node)
        self.facts.tables.append(view)
        if node.hint:
            self.facts.hints[view] = TableHint(name[-1], view, node.hint_at)
        return self.tables[name[-1]]

    def translate_window_table(self, node: n.Windowed) -> tuple[str, tuple[Relation, ...]]:
        """Translate a window function in FROM to SQL, record it, and return its table with the window's columns."""
        row = self.table_columns(node.table, node.table.name)
        alias = node.alias or node.table.alias or node.table.name[-1]
        if isinstance(row, ChangelogColumns):
            self.fail(node, node.kind, "windows of a changelog cannot be translated", CURRENT_VIEW)
        base = make_relation(alias, row)
        time = base.get(node.time)
        if time is None:
            hint = nearest(node.time, row.names)
            self.fail(node, node.kind, f"there is no column {node.time!r}{hint}", f"use one of {', '.join(row.names)}")
        if time.family != "timestamp" or time.type is None:
            reason = f"a window needs a TIMESTAMP, and {node.time!r} is {time.spelling}"
            self.fail(node, node.kind, reason, "use a TIMESTAMP column")
        missing = next((key for key in node.keys if base.get(key) is None), None)
        if missing is not None:
            hint = nearest(missing, row.names)
            self.fail(node, node.kind, f"there is no column {missing!r}{hint}", f"use one of {', '.join(row.names)}")
        expressions = self.expression_translator(Relations())
        pairs = zip(WINDOWS[node.kind], node.spans, strict=False)
        spans = [expressions.window_milliseconds(node.kind, *pair) for pair in pairs]
        if node.kind in ("HOP", "CUMULATE"):
            part, size, *rest = spans
            if size % part:
                what = "slide" if node.kind == "HOP" else "step"
                reason = f"the size of a {node.kind} must be a multiple of its {what}, and {size} ms is not a multiple "
                reason += f"of {part} ms"
                self.fail(node, node.kind, reason, f"choose a {what} that divides the size")
            spans = [size, part, *rest]
        else:
            spans = [spans[0], spans[0], *spans[1:]] if len(spans) > 1 else spans
        if node.kind != "SESSION" and len(spans) == 3:  # windows begin alike when they are moved by a whole one
            spans[2] %= spans[0] if node.kind == "CUMULATE" else spans[1]
        shown = attrs.evolve(time, text=f"{alias}.{node.time}")
        watermarked = node.time in base.event_times
        step = spans[1] if node.kind == "HOP" else spans[0]
        self.facts.add_window(node.kind, node.at, shown, step, watermarked=watermarked)
        text, windows = make_window_table(node, self.view_name(node.table), base, time, spans)
        return text, (windows,)

    def translate_join(self, node: n.Join, outer: Relations) -> tuple[str, tuple[Relation, ...]]:
        """Translate a join to SQL, and return its tables; the optional sides of outer joins are nullable.

        The columns of ``USING`` and ``NATURAL`` become a first table without a name. What a stream must know of the
        join is added to the facts (`note_join`).
        """
        left_text, left = self.translate_tables(node.left, outer)
        if isinstance(node.right, n.Unnest):
            return self.translate_unnest(node, node.right, left_text, left, outer)
        right_text, right = self.translate_tables(node.right, outer)
        if "LATERAL VIEW" in left_text or "LATERAL VIEW" in right_text:
            self.fail(node, "JOIN", "UNNEST must follow all joins", "write it last")
        if isinstance(node.right, n.Join):
            right_text = f"({right_text})"
        same = ({r.alias for r in left} & {r.alias for r in right}) - {""}
        if same:
            self.fail(
                node, "JOIN", f"two tables are called {sorted(same)[0]!r}", "give one of them another name with AS"
            )
        if any(r.window is not None and r.window.kind == "SESSION" for r in (*left, *right)):
            self.fail(node, "JOIN", "a table of sessions cannot be joined", "group it in a nested query, and join that")
        scope = Relations((*left, *right), outer if outer.relations else None)
        shared, equal = self.merge_columns(node, left, right)
        relations = (
            *(r.as_nullable() if node.kind in ("RIGHT", "FULL") else r for r in left),
            *(r.as_nullable() if node.kind in ("LEFT", "FULL") else r for r in right),
        )
        if shared:
            names = frozenset(name for name, _ in shared)
            relations = (Relation("", shared), *(attrs.evolve(r, joined=r.joined | names) for r in relations))
        if node.on is not None:
            equal = self.translate_condition(self.expression_translator(scope), node.on, "ON")
        inner = node.kind in ("INNER", "CROSS")
        known = read_condition(self.join_condition(node), left, right)
        if shared:
            known = attrs.evolve(known, equality=True)
        solvable = self.note_join(node, known, (*left, *right))
        if solvable:
            instants = self.expression_translator(Relations(tuple(r.with_instants() for r in (*left, *right))))
            bounds = [self.translate_condition(instants, bound, "ON") for bound in known.bounds]
            equal = " AND ".join([equal, *bounds] if equal else bounds)
        # An inner join in any case: Spark moves the conditions of WHERE into it, and takes no CROSS JOIN of streams.
        return f"{left_text} {'INNER' if inner else node.kind} JOIN {right_text} ON {equal or 'true'}", relations

    def note_join(self, node: n.Join, condition: JoinCondition, sides: tuple[Relation, ...]) -> bool:
        """Record what may be impossible in a join in which a side is a stream; raise nothing.

        Args:
            node: The join.
            condition: What its condition requires.
            sides: The tables of both sides.

        Returns:
            Whether the bounds of its times must also be written for instants.
        """
        wall_clocks = [r for r in sides if _wall_clock_event_times(r)]
        solvable = bool(condition.bounds and wall_clocks) and all(r.instants is not None for r in wall_clocks)
        streams = self.is_stream(node.left), self.is_stream(node.right)
        preserved = {"LEFT": (True, False), "RIGHT": (False, True), "FULL": (True, True)}.get(node.kind, (False, False))
        if all(streams):
            self.facts.add_note("join", "JOIN", node.at)
            if not condition.equality:
                self.facts.add_note("join without equality", "JOIN", node.at)
            # A row of the kept side is known to have no partner once the time of the other side has passed its bound.
            needed = {side for side, one in zip(("right", "left"), preserved, strict=True) if one}
            if condition.equality and not needed <= condition.bounded:
                span = condition.unsolvable
                if span is None:
                    self.facts.add_note("outer join", "JOIN", node.at)
                else:
                    self.facts.add_note("outer join by interval", "INTERVAL", span.at)
            elif needed and wall_clocks and not solvable:
                self.facts.add_note("outer join of queries", "JOIN", node.at)
        elif any(streams) and any(one and not stream for one, stream in zip(preserved, streams, strict=True)):
            self.facts.add_note("outer join with a constant", "JOIN", node.at)
        return solvable

    def is_stream(self, node: n.Node) -> bool:
        """Whether a part of FROM, or a query, reads a table. The name of a constant query of WITH is not a table."""
        return _reads_table(node, frozenset(self.constant))

    def merge_columns(
        self, node: n.Join, left: tuple[Relation, ...], right: tuple[Relation, ...]
    ) -> tuple[tuple[tuple[str, TypedSql], ...], str]:
        """Merge the columns of ``USING`` or ``NATURAL``; also return the SQL of the condition that they are equal.

        Both are empty for a join without these words, or if a ``NATURAL`` join has no column in common.
        """
        sides = [[one for r in side for one in r.own] for side in (left, right)]
        names = node.using
        if node.natural:
            names = tuple(dict.fromkeys(name for name, _ in sides[0] if any(name == other for other, _ in sides[1])))
        expressions = self.expression_translator(Relations())
        columns: list[tuple[str, TypedSql]] = []
        equal: list[str] = []
        for name in names:
            pair: list[TypedSql] = []
            for which, side in zip(("before", "after"), sides, strict=True):
                hits = [value for column, value in side if column == name]
                if len(hits) != 1:
                    many = "no table" if not hits else "several tables"
                    hint = nearest(name, [column for column, _ in side]) if not hits else ""
                    reason = f"{many} {which} JOIN {'has' if not hits else 'have'} a column {name!r}{hint}"
                    self.fail(node, "NATURAL" if node.natural else "USING", reason, "write ON a.x = b.x")
                pair += hits
            a, b = expressions.make_comparable(node, pair[0], pair[1], "=")
            equal.append(f"({a} = {b})")
            try:
                kind, texts = expressions.unify(node, "USING", pair)
            except NoCastError as e:
                self.fail(node, "USING", e.reason, e.fix)
            sure = {"LEFT": pair[0].nullable, "RIGHT": pair[1].nullable, "FULL": any(v.nullable for v in pair)}
            nullable = sure.get(node.kind, pair[0].nullable and pair[1].nullable)
            text = {"FULL": f"coalesce({', '.join(texts)})", "RIGHT": texts[1]}.get(node.kind, texts[0])
            columns.append((name, TypedSql(text, kind and kind.as_nullable(nullable))))
        return tuple(columns), " AND ".join(equal)

    def translate_unnest(
        self, node: n.Join, unnest: n.Unnest, text: str, left: tuple[Relation, ...], outer: Relations
    ) -> tuple[str, tuple[Relation, ...]]:
        """Translate the join of a table (``text``, ``left``) with the elements of one of its columns.

        Returns:
            The SQL, and the tables; the last one is that of the elements, with nullable columns.
        """
        constant = isinstance(node.on, n.Literal) and node.on.text == "TRUE"
        if node.kind not in ("CROSS", "INNER", "LEFT") or not (node.on is None or constant):
            fix = "write LEFT JOIN … ON TRUE; or CROSS JOIN, and the condition after WHERE, for matches only"
            self.fail(node, "UNNEST", "UNNEST needs CROSS JOIN, or LEFT JOIN … ON TRUE", fix)
        value = self.expression_translator(Relations(left, outer if outer.relations else None))(unnest.value)
        match value.type:
            case t.Array(element=t.Row(fields=fields)):
                function, members = "inline", [(f.name, f.type) for f in fields]
            case t.Array(element=element):
                function, members = "explode", [("EXPR$0", element)]
            case t.Map(key=key, value=inner):
                function, members = "explode", [("KEY", key), ("VALUE", inner)]
            case _:
                reason = f"UNNEST takes an ARRAY or a MAP, not {value.spelling}"
                self.fail(unnest, "UNNEST", reason, "use a column of such a type, or ARRAY[…]")
        if unnest.ordinal:
            members.append(("ORDINALITY", t.Int()))
        names = unnest.columns or tuple(name for name, _ in members)
        if len(names) != len(members):
            self.fail(
                unnest,
                "UNNEST",
                f"there are {len(names)} names for {pluralize(len(members), 'column')}",
                "write as many",
            )
        row = t.Row(tuple(t.Field(name, kind.as_nullable()) for name, (_, kind) in zip(names, members, strict=True)))
        alias = unnest.alias or f"__unnest{unnest.at}"
        word = "OUTER " if node.kind == "LEFT" else ""
        unnested = make_relation(alias, row)
        if unnest.ordinal:  # Spark counts from 0, and counts first
            texts = [f"{quote_name(alias)}.{quote_name(name)}" for name in names]
            if function == "inline":
                assert isinstance(value.type, t.Array)
                assert isinstance(value.type.element, t.Row)
                texts[:-1] = [
                    f"{quote_name(alias)}.{quote_name(UNNESTED_ROW)}.{quote_name(name)}"
                    for name in value.type.element.names
                ]
            texts[-1] = f"({texts[-1]} + 1)"
            columns = [(name, TypedSql(text, f.type)) for name, text, f in zip(names, texts, row.fields, strict=True)]
            unnested = Relation(alias, tuple(columns))
            names = (names[-1], *((UNNESTED_ROW,) if function == "inline" else names[:-1]))
            function = "posexplode"
        view = f"LATERAL VIEW {word}{function}({value.text}) {quote_name(alias)} AS {', '.join(map(quote_name, names))}"
        return f"{text} {view}", (*left, unnested)


def _reads_table(node: object, constant: frozenset[str]) -> bool:
    """Whether a part of a query reads a table; ``constant`` are the names of the queries around it that read none."""
    match node:
        case n.Table():
            return bool(node.name[1:]) or node.name[-1] not in constant
        case n.Finished():
            for name, _, query in node.named:
                constant = constant - {name} if _reads_table(query, constant) else constant | {name}
            return _reads_table((node.body, node.order, node.limit, node.offset), constant)
    return any(_reads_table(part, constant) for part in n.parts_of(node))


def _only_relations(tables: tuple[tuple[int, Relation], ...]) -> tuple[Relation, ...]:
    """Return the tables without their positions."""
    return tuple(table for _, table in tables)


def _wall_clock_event_times(table: Relation) -> list[str]:
    """The event-time columns that are wall-clock times."""
    return [name for name, v in table.columns if name in table.event_times and isinstance(v.type, t.Timestamp)]


def list_spark_columns(row: t.Row) -> tuple[str, ...]:
    """The names of the columns of a query in Spark, where a changelog has one more column."""
    return (*row.names, ROW_KIND) if isinstance(row, ChangelogColumns) else row.names
