"""What the names of a script mean: its tables and views, and the tables of catalogs."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from kdsl.ddl.statements import CreateTable, CreateView, Drop, Fragment, Name
from kdsl.ddl.tables import OF_COLUMNS, DeclaredTable, DeclaredTables
from kdsl.errors import Problem, listing, nearest
from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.flink_sql.syntax.query_reader import read_query
from kdsl.scripts.catalogs import ScriptCatalogs
from kdsl.scripts.inferred_tables import InferredTables
from kdsl.scripts.script_plan import DeclaredView


class ScriptNames:
    """The tables and views of a script, by name, and the tables of catalogs that it uses.

    Args:
        catalogs: Its catalogs.
        inferred_tables: The tables of these catalogs.
        unread_names: The tables and views whose statement could not be read: names about which nothing is reported.
        problems: The list to which problems are added.

    Attributes:
        views: The views, by name.
        used: All tables that were declared or used, by their ids, also those that were dropped.
    """

    def __init__(
        self,
        catalogs: ScriptCatalogs,
        inferred_tables: InferredTables,
        unread_names: Collection[str],
        problems: list[Problem],
    ) -> None:
        self.views: dict[str, DeclaredView] = {}
        self.used: dict[int, DeclaredTable] = {}
        self.unread_names = set(unread_names)
        self._catalogs, self._inferred_tables, self._problems = catalogs, inferred_tables, problems
        self._declared = DeclaredTables(self.unread_names, problems)
        self._of_catalogs: dict[str, DeclaredTable] = {}
        self._declared_under: dict[int, str] = {}

    # statements

    def add_table(self, statement: CreateTable) -> DeclaredTable | None:
        """Declare a table; columns that it leaves out are inferred from the cluster.

        A name that is taken, differs from another in letter case only, or is that of a catalog's topic, is recorded as
        a problem, and the table is declared all the same. The name of a table that could not be read completely, or
        whose columns are unknown, is added to ``unread_names``.

        Returns:
            The table; with ``IF NOT EXISTS`` the one that exists. None if it is ``LIKE`` one that could not be read.
        """
        name, where = statement.name.last, statement.name.where
        if len(statement.name.parts) == 3 and self._catalogs.path(statement.name) and not statement.temporary:
            message = f"the tables of the catalog {statement.name.parts[0]!r} are its topics, and are not declared"
            fix = "write CREATE TEMPORARY TABLE, or give the table a name without the catalog"
            self._problems.append(Problem("catalog-create", message, fix, where))
        if name in self.views:
            message = f"the view {name!r} exists already"
            self._problems.append(Problem("table-twice", message, "give the table another name", statement.where))
        same = [t.name for t in self._declared.tables if t.name.lower() == name.lower() and t.name != name]
        if same:
            message = f"the tables {same[0]!r} and {name!r} differ in letter case only, which Spark ignores"
            self._problems.append(Problem("table-case", message, "give one of them another name", where))
        existing = self._declared.find(statement.name)
        if existing is not None and statement.if_not_exists:
            return existing
        table = self._declare(statement)
        if table is not None:
            self._declared.add(table)
            self._declared_under[id(table)] = self._catalogs.current[0]
            self.used.setdefault(id(table), table)
            if not table.statement.complete:
                self.unread_names.add(name)
        return table

    def _declare(self, statement: CreateTable) -> DeclaredTable | None:
        """Declare a table with the columns that it leaves out; without those that are unknown."""
        elsewhere = None
        if statement.like is not None and self._declared.find(statement.like.table) is None:
            elsewhere = self._find_in_catalogs(statement.like.table)
        declared = self._declared.declare(statement, elsewhere)
        if declared is None:
            return None
        table = self._inferred_tables.add_columns(declared)
        if table is not None:
            return table
        self.unread_names.add(statement.name.last)
        return attrs.evolve(declared, problems=tuple(p for p in declared.problems if p.code not in OF_COLUMNS))

    def drop(self, statement: Drop) -> None:
        """Drop a view or a table of the script; one of a catalog (a topic) is not dropped, and recorded as a problem.

        A missing one is a problem, too, except with ``IF EXISTS`` or if its statement could not be read.
        """
        name = statement.name
        if statement.kind == "VIEW":
            dropped = self.views.pop(name.last, None)
            if dropped is None and not statement.if_exists and name.last not in self.unread_names:
                message = f"there is no view {name.last!r} to drop{nearest(name.last, self.views)}"
                self._problems.append(Problem("view-unknown", message, "write DROP VIEW IF EXISTS", name.where))
            return
        path = self._catalogs.path(name)
        if path is None or self._declared.find(name) is not None:
            self._declared.drop(name, if_exists=statement.if_exists)
            return
        message = f"{'.'.join(path)} is a topic, which a script does not delete"
        self._problems.append(Problem("catalog-drop", message, "remove the statement", name.where))

    def is_free(self, statement: CreateView) -> bool:
        """Whether a view can have its name; a name that is taken is a problem without ``IF NOT EXISTS``."""
        name = statement.name
        if name.last not in self.views and self._declared.find(name) is None:
            return True
        if not statement.if_not_exists:
            fix = "give the view another name, or drop the other one first"
            message = f"a table or view {name.last!r} exists already"
            self._problems.append(Problem("view-twice", message, fix, name.where))
        return False

    # tables

    def find(self, name: Name) -> DeclaredTable | None:
        """The table that a name means: one of the script, or of a catalog, whose columns may be inferred; None if none.

        A table of the script that `_can_mean` denies is none; neither is one of a sink, which is a problem, and its
        name is added to ``unread_names``, as are those of tables of catalogs whose columns are unknown. Under ``USE
        CATALOG`` a name of one part means a table of the script that was declared under it, then one of the catalog,
        then any table of the script.
        """
        if self._catalogs.is_sink_table(name):
            self.unread_names.add(name.last)
            return None
        own = self._declared.find(name)
        path = self._catalogs.path(name)
        if path is None and own is not None:
            return own if self._can_mean(name, own) else None
        if path is not None and own is not None and self._declared_under.get(id(own)) == path[0]:
            return own
        return self._find_in_catalogs(name) or own

    def _can_mean(self, name: Name, own: DeclaredTable) -> bool:
        """Whether a name can mean a table of the script.

        Three parts must begin with a catalog of the script itself or be the table's full name, unless the script has
        created no catalog.
        """
        parts = name.parts
        return (
            len(parts) < 3
            or self._catalogs.is_own(parts[0])
            or parts == own.statement.name.parts
            or not self._catalogs.has_created
        )

    def _find_in_catalogs(self, name: Name) -> DeclaredTable | None:
        """Find the table that a name means in a Kafka catalog, and store it for queries; as `InferredTables.find`.

        Names whose columns are unknown are added to ``unread_names``.
        """
        before = len(self._inferred_tables.unchecked)
        table = self._inferred_tables.find(name)
        self.unread_names.update(one.last for one in self._inferred_tables.unchecked[before:])
        if table is not None:
            self._of_catalogs[str(table.statement.name)] = table
            self.used.setdefault(id(table), table)
        return table

    def readable(self) -> dict[str, DeclaredTable]:
        """All tables by their names in queries after `resolve`: those of the script, and those of catalogs in use."""
        return {table.name: table for table in self._declared.tables} | self._of_catalogs

    def own_names(self) -> list[str]:
        """The names of the tables and views of the script, sorted."""
        return sorted({*(table.name for table in self._declared.tables), *self.views})

    def report_unknown(self, name: Name, purpose: str = "", *, views: bool = True) -> None:
        """Record that there is no table of a name, unless nothing is reported about it (``unread_names``).

        Args:
            name: The name.
            purpose: What the statement would do with the table, as `` to copy``.
            views: Whether a view can be used for it.
        """
        if name.last in self.unread_names:
            return
        choices = self.own_names() if views else [table.name for table in self._declared.tables]
        message = f"there is no table {str(name)!r}{purpose}{nearest(name.last, choices)}"
        fix = f"use one of {listing(choices)}" if choices else "declare it with CREATE TABLE first"
        self._problems.append(Problem("table-unknown", message, fix, name.where))

    # queries

    def resolve(self, query: Fragment) -> dict[tuple[str, ...], str]:
        """Map each table's name in a query, as its parts, to its name in `readable`, if that is another one.

        An unknown name of several parts is mapped to these parts with dots. Tables of catalogs are looked up on the
        way, and problems recorded, as by `find`. Empty without catalogs, or if the query cannot be read.
        """
        if not self._catalogs.has_created:
            return {}
        try:
            tree = read_query(query.text)
        except UntranslatableError:
            return {}  # reported when the query is translated
        names: dict[tuple[str, ...], str] = {}
        for node in n.walk(tree):
            if not isinstance(node, n.Table) or node.name in names or node.name[-1] in self.views:
                continue
            table = self.find(Name(node.name, query.where(node.at, len(".".join(node.name)))))
            full_name = ".".join(node.name) if table is None else str(table.statement.name)
            if (table is None and len(node.name) > 1) or (
                table is not None and table is self._of_catalogs.get(full_name)
            ):
                names[node.name] = full_name
        return names
