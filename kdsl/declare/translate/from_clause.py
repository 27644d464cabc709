"""What stands behind ``FROM``: tables, windows, joins and ``UNNEST``, as SQL and as what names are looked up in."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Mapping
from typing import NoReturn

import attrs

from kdsl.declare.translate import tree as n
from kdsl.declare.translate.errors import UntranslatableError
from kdsl.declare.translate.facts import Facts, Hint
from kdsl.declare.translate.grouping import Expressions
from kdsl.declare.translate.scopes import Changelog, Relation, Relations, relation
from kdsl.declare.translate.values import Value
from kdsl.declare.translate.windows import window_table
from kdsl.errors import nearest
from kdsl.formats import ROW_KIND
from kdsl.types import model as t
from kdsl.types.sql import quoted


class FromClause:
    """Translates the tables behind ``FROM``; a query among them is the subclass's.

    Args:
        text: The whole text, for messages.
        tables: The columns of each table that may be used.
        facts: Where it is noted what is found out.
    """

    def __init__(self, text: str, tables: Mapping[str, t.Row], facts: Facts) -> None:
        self.source, self.facts = text, facts
        self.tables = tables
        self.named: dict[str, t.Row] = {}

    @abstractmethod
    def query(self, node: n.Node, outer: Relations) -> tuple[str, t.Row]:
        """A query with what stands around it, as SQL and as columns."""

    def fail(self, node: n.Node, name: str, reason: str, fix: str) -> NoReturn:
        """Refuse a part of the text."""
        raise UntranslatableError(name, reason, fix, self.source, node.at)

    def expressions(self, scope: Relations) -> Expressions:
        """What translates expressions over some tables."""
        return Expressions(self.source, scope, self.facts, self.query)

    def condition(self, expressions: Expressions, node: n.Node, what: str) -> str:
        """A condition, as SQL."""
        value = expressions(node)
        expressions.need(node, value, "boolean", what)
        return value.text

    def renamed(self, node: n.Node, row: t.Row, names: tuple[str, ...]) -> t.Row:
        """The columns of a query under the names that are given for them, if any are."""
        if not names:
            return row
        if len(names) != len(row.fields):
            reason = f"{len(names)} names are given for {len(row.fields)} columns"
            self.fail(node, names[0], reason, "name each column")
        fields = tuple(attrs.evolve(f, name=name) for f, name in zip(row.fields, names, strict=True))
        return attrs.evolve(row, fields=fields)

    def tables_of(self, node: n.Node, outer: Relations) -> tuple[str, tuple[Relation, ...]]:
        """The tables behind FROM, as SQL and as what names are looked up in."""
        match node:
            case n.Table(name=name, alias=alias):
                row = self.table(node, name)
                shown = alias or name[-1]
                return f"{quoted(self.view(node))} AS {quoted(shown)}", (relation(shown, row),)
            case n.Derived(query=query, alias=alias, columns=columns):
                text, row = self.query(query, outer)
                row = self.renamed(query, row, columns)
                shown = alias or f"__derived{node.at}"
                listed = f" ({', '.join(map(quoted, names_of(row)))})" if columns else ""
                return f"({text}) AS {quoted(shown)}{listed}", (relation(shown, row),)
            case n.Windowed():
                return self.window_table(node)
            case n.Join():
                return self.join(node, outer)
        return self.fail(
            node, "UNNEST", "UNNEST stands behind a table", "write FROM t CROSS JOIN UNNEST(t.items) AS u (item)"
        )

    def view(self, node: n.Table) -> str:
        """The name of a table in Spark; with other options it is another table there."""
        name = node.name[-1]
        return f"{name}__{zlib.crc32(node.hint.encode()):08x}" if node.hint else name

    def table(self, node: n.Table, name: tuple[str, ...]) -> t.Row:
        """The columns of a table, or of a query of ``WITH``."""
        found = self.named.get(name[-1]) if len(name) == 1 else None
        if found is not None:
            if node.hint:
                self.fail(node, name[0], f"{name[0]!r} is a query, which has no options", "hint at the table in it")
            return found
        if name[-1] not in self.tables:
            names = [*self.named, *self.tables]
            hint = nearest(name[-1], names)
            fix = f"use one of {', '.join(names)}" if names else "declare it with CREATE TABLE before"
            self.fail(node, name[0], f"there is no table {'.'.join(name)!r}{hint}", fix)
        view = self.view(node)
        self.facts.tables.append(view)
        if node.hint:
            self.facts.hints[view] = Hint(name[-1], view, node.hint_at)
        return self.tables[name[-1]]

    def window_table(self, node: n.Windowed) -> tuple[str, tuple[Relation, ...]]:
        """A table of windows."""
        row = self.table(node.table, node.table.name)
        alias = node.alias or node.table.name[-1]
        if isinstance(row, Changelog):
            self.fail(node, node.kind, "a changelog, whose rows come and go, has no windows", "read what is left of it")
        base = relation(alias, row)
        time = base.get(node.time)
        if time is None:
            hint = nearest(node.time, row.names)
            self.fail(node, node.kind, f"there is no column {node.time!r}{hint}", f"use one of {', '.join(row.names)}")
        if time.family != "timestamp" or time.type is None:
            self.fail(node, node.kind, f"a window needs a TIMESTAMP, and {node.time!r} is {time.spelling}", "CAST it")
        missing = next((key for key in node.keys if base.get(key) is None), None)
        if missing is not None:
            hint = nearest(missing, row.names)
            self.fail(node, node.kind, f"there is no column {missing!r}{hint}", f"use one of {', '.join(row.names)}")
        expressions = self.expressions(Relations())
        spans = [expressions.milliseconds(s) for s in node.spans]
        if node.kind in ("HOP", "CUMULATE"):
            part, size, *rest = spans
            if not part or size % part:
                what = "slide" if node.kind == "HOP" else "step"
                reason = f"the size of a {node.kind} is a multiple of its {what}, and {size} ms is none of {part} ms"
                self.fail(node, node.kind, reason, f"choose another {what}")
            spans = [size, part, *rest]
        else:
            spans = [spans[0], spans[0], *spans[1:]] if len(spans) > 1 else spans
        self.facts.windowed(node.kind, node.at, attrs.evolve(time, text=f"{node.table.name[-1]}.{node.time}"), spans[0])
        text, found = window_table(node, self.view(node.table), base, time, spans)
        return text, (found,)

    def join(self, node: n.Join, outer: Relations) -> tuple[str, tuple[Relation, ...]]:
        """Two tables as one."""
        left_text, left = self.tables_of(node.left, outer)
        if isinstance(node.right, n.Unnest):
            return self.unnested(node, node.right, left_text, left, outer)
        right_text, right = self.tables_of(node.right, outer)
        if "LATERAL VIEW" in left_text or "LATERAL VIEW" in right_text:
            self.fail(node, "JOIN", "UNNEST stands behind all joins", "put it last")
        if isinstance(node.right, n.Join):
            right_text = f"({right_text})"
        same = ({r.alias for r in left} & {r.alias for r in right}) - {""}
        if same:
            self.fail(
                node, "JOIN", f"two tables are called {sorted(same)[0]!r}", "give one of them another name with AS"
            )
        if any(r.window is not None and r.window.kind == "SESSION" for r in (*left, *right)):
            self.fail(node, "JOIN", "a table of sessions is not joined", "group it in a query by itself, and join that")
        self.facts.note("join" if node.kind in ("INNER", "CROSS") else "outer join", "JOIN", node.at)
        scope = Relations((*left, *right), outer if outer.found else None)
        shared, equal = self.shared(node, left, right)
        found = (
            *(r.as_nullable() if node.kind in ("RIGHT", "FULL") else r for r in left),
            *(r.as_nullable() if node.kind in ("LEFT", "FULL") else r for r in right),
        )
        if shared:
            names = frozenset(name for name, _ in shared)
            found = (Relation("", shared), *(attrs.evolve(r, joined=r.joined | names) for r in found))
        if node.on is not None:
            equal = self.condition(self.expressions(scope), node.on, "ON")
        if not equal:
            kind = "CROSS JOIN" if node.kind in ("INNER", "CROSS") else f"{node.kind} JOIN"
            return f"{left_text} {kind} {right_text}{'' if kind == 'CROSS JOIN' else ' ON true'}", found
        return f"{left_text} {node.kind} JOIN {right_text} ON {equal}", found

    def shared(
        self, node: n.Join, left: tuple[Relation, ...], right: tuple[Relation, ...]
    ) -> tuple[tuple[tuple[str, Value], ...], str]:
        """The columns that two tables have as one by ``USING`` or ``NATURAL``, and that they are equal, as SQL."""
        sides = [[one for r in side for one in r.own] for side in (left, right)]
        names = node.using
        if node.natural:
            names = tuple(dict.fromkeys(name for name, _ in sides[0] if any(name == other for other, _ in sides[1])))
        expressions = self.expressions(Relations())
        made: list[tuple[str, Value]] = []
        equal: list[str] = []
        for name in names:
            pair: list[Value] = []
            for which, side in zip(("before", "behind"), sides, strict=True):
                hits = [value for column, value in side if column == name]
                if len(hits) != 1:
                    many = "no table" if not hits else "several tables"
                    hint = nearest(name, [column for column, _ in side]) if not hits else ""
                    reason = f"{many} {which} JOIN {'has' if not hits else 'have'} a column {name!r}{hint}"
                    self.fail(node, "NATURAL" if node.natural else "USING", reason, "write ON a.x = b.x")
                pair += hits
            a, b = expressions.comparable(node, pair[0], pair[1], "=")
            equal.append(f"({a} = {b})")
            kind, texts = expressions.together(node, "USING", pair)
            sure = {"LEFT": pair[0].nullable, "RIGHT": pair[1].nullable, "FULL": any(v.nullable for v in pair)}
            nullable = sure.get(node.kind, pair[0].nullable and pair[1].nullable)
            text = {"FULL": f"coalesce({', '.join(texts)})", "RIGHT": texts[1]}.get(node.kind, texts[0])
            made.append((name, Value(text, kind and kind.as_nullable(nullable))))
        return tuple(made), " AND ".join(equal)

    def unnested(
        self, node: n.Join, unnest: n.Unnest, text: str, left: tuple[Relation, ...], outer: Relations
    ) -> tuple[str, tuple[Relation, ...]]:
        """A table with the elements of one of its columns."""
        constant = isinstance(node.on, n.Literal) and node.on.text == "TRUE"
        if node.kind not in ("CROSS", "INNER", "LEFT") or not (node.on is None or constant):
            self.fail(node, "UNNEST", "UNNEST is joined by CROSS JOIN, or LEFT JOIN … ON TRUE", "write one of these")
        value = self.expressions(Relations(left, outer if outer.found else None))(unnest.value)
        match value.type:
            case t.Array(element=t.Row(fields=fields)):
                function, found = "inline", [(f.name, f.type) for f in fields]
            case t.Array(element=element):
                function, found = "explode", [("EXPR$0", element)]
            case t.Map(key=key, value=inner):
                function, found = "explode", [("KEY", key), ("VALUE", inner)]
            case _:
                self.fail(unnest, "UNNEST", f"UNNEST takes an ARRAY or a MAP, not {value.spelling}", "name one")
        if unnest.ordinal:
            found.append(("ORDINALITY", t.Int()))
        names = unnest.columns or tuple(name for name, _ in found)
        if len(names) != len(found):
            self.fail(unnest, "UNNEST", f"{len(names)} names are given for {len(found)} columns", "name each")
        row = t.Row(tuple(t.Field(name, kind.as_nullable()) for name, (_, kind) in zip(names, found, strict=True)))
        alias = unnest.alias or f"__unnest{unnest.at}"
        word = "OUTER " if node.kind == "LEFT" else ""
        made = relation(alias, row)
        if unnest.ordinal:  # Spark counts from 0, and counts first
            texts = [f"{quoted(alias)}.{quoted(name)}" for name in names]
            if function == "inline":
                assert isinstance(value.type, t.Array)
                assert isinstance(value.type.element, t.Row)
                texts[:-1] = [f"{quoted(alias)}.`__row`.{quoted(name)}" for name in value.type.element.names]
            texts[-1] = f"({texts[-1]} + 1)"
            columns = [(name, Value(text, f.type)) for name, text, f in zip(names, texts, row.fields, strict=True)]
            made = Relation(alias, tuple(columns))
            names = (names[-1], *(("__row",) if function == "inline" else names[:-1]))
            function = "posexplode"
        view = f"LATERAL VIEW {word}{function}({value.text}) {quoted(alias)} AS {', '.join(map(quoted, names))}"
        return f"{text} {view}", (*left, made)


def names_of(row: t.Row) -> tuple[str, ...]:
    """The names of the columns that a query gives in Spark, where a changelog has one more."""
    return (*row.names, ROW_KIND) if isinstance(row, Changelog) else row.names
