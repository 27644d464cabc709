"""Plans a script: translates every query, matches every column, reports every problem.

It needs no Spark, and asks brokers and registries only to infer columns and to list the tables of catalogs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import attrs

from kdsl.catalog.stored import Inference
from kdsl.cluster import Cluster
from kdsl.ddl.create_table import read_hint_options
from kdsl.ddl.script_reader import Script
from kdsl.ddl.statement_reader import StatementError
from kdsl.ddl.statements import (
    CreateCatalog,
    CreateDatabase,
    CreateTable,
    CreateView,
    Describe,
    Drop,
    DropCatalog,
    Explain,
    Fragment,
    Insert,
    Name,
    Option,
    Query,
    ResetOption,
    SetOption,
    Show,
    StatementSet,
    Use,
)
from kdsl.ddl.tables import Catalog, DeclaredTable
from kdsl.declare.definition import ColumnDef
from kdsl.errors import Problem, ResolveError, Where, fail_on, file_position, listing, nearest
from kdsl.flink_sql.expressions.translator import translate_expression
from kdsl.flink_sql.syntax import tree as n
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.flink_sql.syntax.query_reader import read_query
from kdsl.ingest.run.raw import can_share
from kdsl.name_patterns import PatternError
from kdsl.resolve import NO_TOPIC, problems as judged
from kdsl.resolve.topics import topics_of
from kdsl.scripts.catalogs import ScriptCatalogs, errors_besides_columns, has_unknown_columns
from kdsl.scripts.copied_sources import ONLY_HINTS
from kdsl.scripts.copies import Copy, CopyBuilder, Target
from kdsl.scripts.datagen import plan_generated_rows
from kdsl.scripts.listings import Listing, describe_row, describe_table, show_names
from kdsl.scripts.options import script_options
from kdsl.scripts.queries.facts import Hint
from kdsl.scripts.queries.scopes import Changelog, Columns
from kdsl.scripts.queries.translator import TranslatedQuery as Translated, translate_query
from kdsl.scripts.query_keys import QueryKey, find_query_key, key_mismatch
from kdsl.scripts.script_plan import AnyJob, CopyJob, Job, ScriptPlan, ScriptTable, View
from kdsl.scripts.settings import SessionSettings
from kdsl.scripts.sink_columns import SinkColumn, match_columns
from kdsl.scripts.stream_checks import stream_problems
from kdsl.table import Table
from kdsl.types import model as t

UNCHECKED = "inferred-unchecked"
"""The code of the warning that the columns of a table are inferred, and what uses them was not checked."""
DUPLICATE = "cdc-events-duplicate"
"""The option of change-data tables that store the last row of each key; Flink's setting for all tables ends with it."""
_WRITE_ONLY = ("print", "blackhole")
"""The connectors of tables that cannot be read."""


def plan_script(
    script: Script,
    cluster: Cluster | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    checkpoint: str | None = None,
    inference: Inference | None = None,
) -> ScriptPlan:
    """Plan a script.

    Args:
        script: The script.
        cluster: The Kafka cluster; not needed by tables that name their brokers.
        settings: The settings before the first ``SET``, under Flink's keys.
        checkpoint: The folder of the checkpoints instead of the script's; streams that end are then not read at once.
        inference: What was inferred before. The columns that tables leave out are inferred from the cluster and added
            to it; None leaves statements unplanned that use such tables, with a warning.

    Raises:
        ResolveError: The script has errors, or columns cannot be inferred; all errors are reported, each with its
            location. Warnings are not raised.
    """
    plan, problems = check_script(script, cluster, settings, checkpoint=checkpoint, inference=inference)
    fail_on(problems, script.subject)
    return plan


def check_script(
    script: Script,
    cluster: Cluster | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    checkpoint: str | None = None,
    inference: Inference | None = None,
) -> tuple[ScriptPlan, tuple[Problem, ...]]:
    """Plan a script as far as it can be planned, and return the plan with all its problems, in the order of the file.

    The arguments are those of `plan_script`. Problems, also those of a cluster that does not answer, are not raised;
    warnings are among them. Tables whose columns are unknown are not in the plan.
    """
    planner = _Planner(cluster, SessionSettings(settings), script.unread_names, checkpoint, inference)
    for statement in script.statements:
        planner.add_statement(statement)
    if inference is None:
        planner.warn_about_unchecked()
    all_problems = [*script.problems, *planner.problems, *planner.catalog.problems, *planner.settings.problems]
    all_problems += planner.catalogs.problems
    problems = tuple(sorted(dict.fromkeys(all_problems), key=file_position))
    warnings = tuple(p for p in problems if p.severity == "warning")
    inferred = {} if inference is None else dict(inference.inferred)
    tables = tuple(table for table in planner.planned.values() if not has_unknown_columns(table.declared))
    folder = checkpoint or planner.settings.current.folder
    return ScriptPlan(tuple(planner.jobs), warnings, tables, tuple(planner.listings), inferred, folder), problems


@attrs.frozen
class DeclaredView:
    """A view of a script.

    Attributes:
        name: Its name.
        by_mode: The view in a stream (True) and in a batch (False), if it can be translated for that.
        keyed: The key of its rows.
        refused: The reason why it cannot be read in the other mode.
    """

    name: str
    by_mode: Mapping[bool, View]
    keyed: QueryKey | None
    refused: UntranslatableError | None = None


class _Planner:
    def __init__(
        self,
        cluster: Cluster | None,
        settings: SessionSettings,
        unread_names: Collection[str],
        checkpoint: str | None,
        inference: Inference | None,
    ) -> None:
        self.cluster, self.settings, self.checkpoint = cluster, settings, checkpoint
        self.unread_names = set(unread_names)
        self.catalogs = ScriptCatalogs(cluster, inference)
        self.catalog = Catalog(self.unread_names, self.find_in_catalogs, self.catalogs.infer)
        self.created_in: dict[int, str] = {}
        self.of_catalogs: dict[str, DeclaredTable] = {}
        self.listings: list[Listing] = []
        self.views: dict[str, DeclaredView] = {}
        self.planned: dict[int, ScriptTable] = {}
        self.normalized: dict[int, ScriptTable] = {}
        self.hinted: dict[str, ScriptTable] = {}
        self.problems: list[Problem] = []
        self.jobs: list[AnyJob] = []
        self.copied: dict[str, Where] = {}
        self.groups = 0
        self.judged: set[tuple[Where, tuple[tuple[str, str, Where], ...], str]] = set()

    def add_problem(self, code: str, message: str, fix: str, where: Where) -> None:
        """Add a problem."""
        self.problems.append(Problem(code, message, fix, where))

    def add_statement(self, statement: object) -> None:
        """Apply a statement to the script: declare, drop, set, list, or plan a job; problems are recorded.

        EXPLAIN is always a problem, because it cannot be run in a script.
        """
        match statement:
            case CreateTable() if statement.copy is None:
                self.add_table(statement)
            case CreateTable() | CreateDatabase():
                self.groups += 1
                self.add_copies([statement])
            case CreateView():
                self.add_view(statement)
            case Drop(kind="VIEW"):
                known = statement.if_exists or statement.name.last in self.unread_names
                if self.views.pop(statement.name.last, None) is None and not known:
                    hint = nearest(statement.name.last, self.views)
                    message = f"there is no view {statement.name.last!r} to drop{hint}"
                    self.add_problem("view-unknown", message, "write DROP VIEW IF EXISTS", statement.name.where)
            case Drop():
                self.drop_table(statement)
            case CreateCatalog():
                self.catalogs.create(statement)
            case DropCatalog():
                self.catalogs.drop(statement)
            case Use():
                self.catalogs.use(statement)
            case Show():
                self.add_listing(show_names(statement, self.catalogs, self.own_names()))
            case Describe():
                self.add_description(statement)
            case SetOption() | ResetOption():
                self.settings.apply(statement)
            case Insert():
                self.groups += 1
                self.add_insert(statement)
            case StatementSet():
                self.groups += 1
                for insert in (one for one in statement.statements if isinstance(one, Insert)):
                    self.add_insert(insert)
                self.add_copies([one for one in statement.statements if not isinstance(one, Insert)])
            case Query():
                self.groups += 1
                self.add_select(statement)
            case Explain():
                message = "EXPLAIN cannot be run in a script"
                self.add_problem(
                    "sql-explain", message, "remove it; kdsl run --dry-run shows the plans", statement.where
                )

    # names

    def find(self, name: Name) -> DeclaredTable | None:
        """The table that a name means: one of the script, or of a catalog as by `find_in_catalogs`; None if none.

        A table of the script that `may_be_own` denies is none; neither is one of a sink, which is a problem, and its
        name is added to ``unread_names``. Under ``USE CATALOG`` a name of one part means a table of the script that was
        declared under it, then one of the catalog, then any table of the script.
        """
        if self.catalogs.is_sink_table(name):
            self.unread_names.add(name.last)
            return None
        own = self.catalog.find(name)
        path = self.catalogs.path(name)
        if own is not None and (path is None or self.created_in.get(id(own)) == path[0]):
            return own if path is not None or self.may_be_own(name, own) else None
        return self.find_in_catalogs(name) or own

    def may_be_own(self, name: Name, own: DeclaredTable) -> bool:
        """Whether a name can mean a table of the script.

        Three parts must begin with a catalog of the script itself or be the table's full name, unless the script has
        created no catalog.
        """
        parts, declared = name.parts, own.statement.name.parts
        return (
            len(parts) < 3
            or self.catalogs.is_own(parts[0])
            or parts == declared
            or not (self.catalogs.catalogs or self.catalogs.sinks)
        )

    def find_in_catalogs(self, name: Name) -> DeclaredTable | None:
        """Find the table that a name means in a Kafka catalog, and store it with its plan, also for queries.

        None, with problems recorded, as for `ScriptCatalogs.find`. Columns may be inferred, which asks the cluster.
        Names whose columns are unknown are added to ``unread_names``.
        """
        before = len(self.catalogs.unchecked)
        table = self.catalogs.find(name)
        self.unread_names.update(one.last for one in self.catalogs.unchecked[before:])
        if table is not None:
            self.of_catalogs[str(table.statement.name)] = table
            self.planned.setdefault(id(table), self.plan_table(table))
        return table

    def table_of_key(self, key: str) -> DeclaredTable | None:
        """The table of a name that queries have after their names were resolved (`resolve_names`); None if missing."""
        return self.of_catalogs.get(key) or self.catalog.find(Name((key,)))

    def resolve_names(self, fragment: Fragment) -> dict[tuple[str, ...], str]:
        """Map each table's name in a query, as its parts, to its key in `readable_rows`, if that is another one.

        An unknown name of several parts is mapped to these parts with dots. Tables of catalogs are planned on the way,
        and problems recorded, as by `find`. Empty without catalogs, or if the query cannot be read.
        """
        if not (self.catalogs.catalogs or self.catalogs.sinks):
            return {}
        text, shift = _query_text(fragment)
        try:
            tree = read_query(text)
        except UntranslatableError:
            return {}  # reported when the query is translated
        names: dict[tuple[str, ...], str] = {}
        for node in n.walk(tree):
            if not isinstance(node, n.Table) or node.name in names or node.name[-1] in self.views:
                continue
            table = self.find(Name(node.name, fragment.where(max(0, node.at - shift), len(".".join(node.name)))))
            if table is None:
                names |= {node.name: ".".join(node.name)} if len(node.name) > 1 else {}
            elif str(table.statement.name) in self.of_catalogs and table is self.of_catalogs[str(table.statement.name)]:
                names[node.name] = str(table.statement.name)
        return names

    def own_names(self) -> list[str]:
        """The names of the tables and views of the script, sorted."""
        return sorted({*(table.name for table in self.catalog.tables), *self.views})

    def warn_about_unchecked(self) -> None:
        """Record a warning for each table whose columns only the cluster knows: what uses them was not checked."""
        for name in self.catalogs.unchecked:
            message = f"the columns of {name} are inferred when the script runs, and what uses them is not checked here"
            fix = "`kdsl run --dry-run` asks the cluster, and checks it; or declare the columns in CREATE TABLE"
            self.problems.append(Problem(UNCHECKED, message, fix, name.where, "warning"))

    # listings

    def add_listing(self, listing_: Listing | None) -> None:
        """Add what a statement shows, to be shown after the jobs so far; nothing for None."""
        if listing_ is not None:
            self.listings.append(attrs.evolve(listing_, after=len(self.jobs)))

    def add_description(self, statement: Describe) -> None:
        """Add what ``DESCRIBE`` shows of a table or a view; a name that does not exist is recorded as a problem.

        Nothing is added for a name whose declaration could not be read. Tables are looked up by `find`, which may infer
        columns.
        """
        name = statement.table
        view = self.views.get(name.last)
        if view is not None and len(name.parts) == 1:
            self.add_listing(describe_row(next(iter(view.by_mode.values())).columns))
            return
        table = self.find(name)
        if table is not None:
            self.add_listing(describe_table(table))
        elif name.last not in self.unread_names:
            names = self.own_names()
            message = f"there is no table {str(name)!r}{nearest(name.last, names)}"
            fix = f"use one of {listing(names)}" if names else "declare it with CREATE TABLE first"
            self.add_problem("table-unknown", message, fix, name.where)

    # tables and views

    def drop_table(self, statement: Drop) -> None:
        """Drop a table of the script; one of a catalog (a topic) is not dropped, and recorded as a problem.

        A missing table is a problem, too, except with ``IF EXISTS`` or if its statement could not be read.
        """
        path = self.catalogs.path(statement.name)
        if path is None or self.catalog.find(statement.name) is not None:
            self.catalog.drop_table(statement.name, if_exists=statement.if_exists)
            return
        message = f"{'.'.join(path)} is a topic, which a script does not delete"
        self.add_problem("catalog-drop", message, "remove the statement", statement.name.where)

    def add_table(self, statement: CreateTable) -> None:
        """Declare and plan a table, as by `Catalog.create`; columns that it leaves out are inferred from the cluster.

        A name that is taken, differs from another in letter case only, or is that of a catalog's topic, is recorded as
        a problem, and the table is declared all the same. The name of a table that could not be read completely is
        added to ``unread_names``.
        """
        name = statement.name.last
        if len(statement.name.parts) == 3 and self.catalogs.path(statement.name) and not statement.temporary:
            message = f"the tables of the catalog {statement.name.parts[0]!r} are its topics, and are not declared"
            fix = "write CREATE TEMPORARY TABLE, or give the table a name without the catalog"
            self.add_problem("catalog-create", message, fix, statement.name.where)
        if name in self.views:
            self.add_problem(
                "table-twice", f"the view {name!r} exists already", "give the table another name", statement.where
            )
        same = [x.name for x in self.catalog.tables if x.name.lower() == name.lower() and x.name != name]
        if same:
            message = f"the tables {same[0]!r} and {name!r} differ in letter case only, which Spark ignores"
            self.add_problem("table-case", message, "give one of them another name", statement.name.where)
        table = self.catalog.create(statement)
        if table is not None:
            self.created_in.setdefault(id(table), self.catalogs.current[0])
            self.planned.setdefault(id(table), self.plan_table(table))
            if not table.statement.complete:
                self.unread_names.add(name)

    def plan_table(self, declared: DeclaredTable) -> ScriptTable:
        """Plan a declared table; if its connector is only for scripts, its problems are recorded.

        Those of a topic's table are recorded where it is read or written (`check_topic`).
        """
        connector = declared.connector
        if connector is None or connector.use != "script":
            return ScriptTable(declared, topic=Table(declared.definition()))
        options = script_options(declared)
        self.problems += [*declared.problems, *options.problems]
        if connector.name != "datagen":
            return ScriptTable(declared, options=options)
        rows, problems = plan_generated_rows(declared, options)
        self.problems += problems
        return ScriptTable(declared, options=options, generated=rows)

    def table_as_read(self, declared: DeclaredTable) -> ScriptTable:
        """Return a planned table as the next query reads it: without duplicate events, if ``SET`` says so.

        The latter is the same object each time, which is stored in ``normalized``.
        """
        table = self._with_session_options(self.planned[id(declared)])
        if table is not self.planned[id(declared)]:
            table = self.normalized.setdefault(id(declared), table)
        return table

    def _with_session_options(self, table: ScriptTable) -> ScriptTable:
        """Return a table of change data with the option `DUPLICATE` if ``SET`` wants it; otherwise the table as it is.

        A table that sets the option itself, or has no primary key, stays as it is.
        """
        definition = None if table.topic is None else table.topic.definition
        if not self.settings.current.cdc_events_duplicate or not table.change_data or definition is None:
            return table
        if DUPLICATE in table.declared.options or not definition.primary_key:
            return table
        statement = table.declared.statement
        option = Option(DUPLICATE, "true", table.declared.where)
        options = attrs.evolve(statement, options=(*statement.options, option))
        return self.plan_table(attrs.evolve(table.declared, statement=options))

    def add_view(self, statement: CreateView) -> None:
        """Declare a view, with its query translated for streams and for batches; problems are recorded.

        A view whose name is taken is not declared; that is a problem unless it has ``IF NOT EXISTS``. A view that is
        wrong in the current mode is not declared, and its name added to ``unread_names``.
        """
        name = statement.name.last
        taken = name in self.views or self.catalog.find(statement.name) is not None
        if taken:
            if not statement.if_not_exists:
                message = f"a table or view {name!r} exists already"
                self.add_problem(
                    "view-twice",
                    message,
                    "give the view another name, or drop the other one first",
                    statement.name.where,
                )
            return
        streaming = self.settings.current.mode == "streaming"
        query = self.translate_query(statement.query, streaming=streaming)
        if query is None:
            self.unread_names.add(name)
            return
        if statement.columns and len(statement.columns) != len(query.columns.fields):
            count = len(query.columns.fields)
            message = f"the view names {len(statement.columns)} columns, and its query has {count}"
            self.add_problem("view-columns", message, f"write {count} names, or none", statement.where)
            self.unread_names.add(name)
            return
        names = self.resolve_names(statement.query)
        named = find_query_key(_query_text(statement.query)[0], self.query_keys(), names)
        by_mode = {streaming: self.make_view(statement, query, named)}
        try:
            other = translate_query(
                _query_text(statement.query)[0],
                self.readable_rows(not streaming),
                streaming=not streaming,
                names=names,
                sinks=self.sinks(),
            )
            by_mode[not streaming] = self.make_view(statement, other, named)
            refused = None
        except UntranslatableError as e:
            refused = e
        columns = by_mode[streaming].columns.names
        self.views[name] = DeclaredView(name, by_mode, named and attrs.evolve(named, columns=columns), refused)

    def make_view(self, statement: CreateView, query: Translated, named: QueryKey | None) -> View:
        """Describe the view of a query, with the column names of the statement, if it has any: as many as the query.

        ``named`` is the key of its rows; None if it is not known. Its event times count as marked, because the run
        restores their metadata.
        """
        columns = query.columns
        if isinstance(columns, Columns):
            columns = attrs.evolve(columns, unmarked={})  # the run restores the metadata
        if statement.columns:
            pairs = zip(columns.fields, statement.columns, strict=True)
            columns = attrs.evolve(columns, fields=tuple(attrs.evolve(f, name=each) for f, each in pairs))
        return View(statement.name.last, query, columns, named and attrs.evolve(named, columns=columns.names))

    def readable_rows(self, streaming: bool) -> dict[str, t.Row]:
        """Return the columns of all tables, even sinks, and of those views that have a mode (True: read as a stream).

        The keys are their names in queries. Tables are planned as by `table_as_read`.
        """
        rows: dict[str, t.Row] = {}
        for declared in self.catalog.tables:
            rows[declared.name] = self.table_as_read(declared).row
        rows |= {key: self.table_as_read(declared).row for key, declared in self.of_catalogs.items()}
        views = {name: view.by_mode[streaming] for name, view in self.views.items() if streaming in view.by_mode}
        return {**rows, **{name: view.columns for name, view in views.items()}}

    def sinks(self) -> frozenset[str]:
        """Return the names of the tables that can only be written."""
        return frozenset(
            declared.name for declared in self.catalog.tables if self.planned[id(declared)].connector in _WRITE_ONLY
        )

    def translate_job_query(self, fragment: Fragment) -> tuple[Translated | None, bool]:
        """Translate the query of a job; also return whether it is a stream that is read as a batch (`Job.at_once`).

        The query is None, tables are planned and problems recorded as by `translate_query`.
        """
        if self.settings.current.mode != "streaming":
            return self.translate_query(fragment, streaming=False), False
        query = self.translate_query(fragment, streaming=True)
        if query is None or self.checkpoint or self.settings.current.folder:
            return query, False
        tables = self.tables_and_views(query, streaming=True)[0]
        if not tables or not all(table.ends for table in tables.values()):
            return query, False
        return self.translate_query(fragment, streaming=False), True

    def translate_query(self, fragment: Fragment, *, streaming: bool) -> Translated | None:
        """Translate a query, and plan the tables with hints, and those of catalogs (`resolve_names`), in it.

        None if it or a hint is wrong, which is recorded unless it refers to a mistake that is recorded already.
        """
        text, shift = _query_text(fragment)
        names = self.resolve_names(fragment)
        try:
            query = translate_query(
                text, self.readable_rows(streaming), streaming=streaming, names=names, sinks=self.sinks()
            )
        except UntranslatableError as e:
            if fragment.contains_any(self.unread_names) or fragment.contains_any(self.columns_of_unknown_type()):
                return None
            without = [view for name, view in self.views.items() if fragment.contains_any([name]) and view.refused]
            if without and without[0].refused is not None and streaming not in without[0].by_mode:
                mode, refused = "stream" if streaming else "batch", without[0].refused
                message = f"the view {without[0].name!r} cannot be read as a {mode}: {refused.reason}"
                self.add_problem("view-mode", message, refused.fix, fragment.where())
                return None
            where = fragment.where(max(0, e.position - shift), len(e.name))
            self.add_problem("sql-query", e.reason, e.fix, where)
            return None
        hints_are_valid = [self.apply_hint(hint, fragment, hint.position - shift) for hint in query.hints]
        return query if all(hints_are_valid) else None

    def columns_of_unknown_type(self) -> frozenset[str]:
        """The names of the columns whose declared type could not be read."""
        return frozenset(c.name for table in self.catalog.tables for c in table.columns if not c.type_known)

    def apply_hint(self, hint: Hint, fragment: Fragment, position: int) -> bool:
        """Plan the table that a query reads with the options of a hint, and return whether it could be planned.

        It is stored in ``hinted`` by the name of its view. ``position`` is that of the hint in ``fragment``. If the
        hint is on a view, has a mistake, or changes whether the table is a changelog, a problem is recorded. Problems
        of the options are recorded, too, and the result is True.
        """
        where = fragment.where(position, len("/*+"))
        if hint.table in self.views:
            message = f"{hint.table!r} is a view and has no options"
            self.add_problem("hint-view", message, "write the hint after the tables in its query", where)
            return False
        declared = self.table_of_key(hint.table)
        token = next((x for x in fragment.source.tokens if x.start == fragment.start + position), None)
        assert declared is not None  # the query was translated with its columns
        assert token is not None  # it was parsed there
        try:
            options, problems = read_hint_options(fragment.source, token)
        except StatementError as e:
            self.problems.append(e.problem)
            return False
        self.problems += problems
        table = self.with_options(declared, options)
        if isinstance(table.row, Changelog) != isinstance(self.planned[id(declared)].row, Changelog):
            message = f"the hint changes whether {hint.table!r} is a changelog"
            fix = "declare another table of the same topic, with these options in its CREATE TABLE, and read that"
            self.add_problem("hint-format", message, fix, where)
            return False
        self.hinted[hint.view] = self._with_session_options(table)
        return True

    def with_options(self, declared: DeclaredTable, options: Sequence[Option]) -> ScriptTable:
        """Plan a declared table with options added or replaced; problems are recorded as by `plan_table`."""
        changed = {o.key for o in options}
        unchanged = [o for o in declared.statement.options if o.key not in changed]
        return self.plan_table(
            attrs.evolve(declared, statement=attrs.evolve(declared.statement, options=(*unchanged, *options)))
        )

    def tables_and_views(self, query: Translated, *, streaming: bool) -> tuple[dict[str, ScriptTable], list[View]]:
        """Return the tables, by name, and views that a query reads, directly or through views; hints are applied.

        They exist, since the query was translated. A view comes after those that it reads.
        """
        tables: dict[str, ScriptTable] = {}
        views: list[View] = []
        for name in query.tables:
            declared_view = self.views.get(name)
            view = None if declared_view is None else declared_view.by_mode[streaming]
            if name in self.hinted:
                tables[name] = self.hinted[name]
                continue
            if view is None:
                declared = self.table_of_key(name)
                assert declared is not None
                tables[name] = self.table_as_read(declared)
                continue
            below, others = self.tables_and_views(view.query, streaming=streaming)
            tables |= below
            views += [v for v in (*others, view) if v not in views]
        return tables, views

    # jobs

    def add_insert(self, statement: Insert) -> None:
        """Plan the job of an INSERT: its query, the columns it writes and its checks; problems are recorded.

        No job is added if the query is wrong (`translate_query`) or its table cannot be written (`find_sink`); one with
        other problems is added.
        """
        sink = self.find_sink(statement)
        query, at_once = self.translate_job_query(statement.query)
        if query is None or sink is None:
            return
        constants = {}
        for column, fragment in statement.partition:
            try:
                constants[column] = translate_expression(fragment.text, {})
            except UntranslatableError as e:
                self.add_problem("sql-query", e.reason, e.fix, fragment.where(e.position, len(e.name)))
        columns, problems = match_columns(sink.declared, query, statement.columns, constants)
        if sink.name in self.unread_names:
            problems = []
        streaming = self.settings.current.mode == "streaming" and not at_once
        sources = self.tables_and_views(query, streaming=streaming)[0].values()
        if any(not c.type_known for table in (sink, *sources) for c in table.declared.columns):
            problems = [p for p in problems if p.code != "insert-type"]
        self.problems += [p.at(statement.query.where(table=sink.name)) for p in problems]
        if query.changelog and sink.topic is not None and sink.topic.definition.upserts is None:
            value_format = sink.topic.definition.value_format
            if value_format is not None and value_format.insert_only:
                message = f"the query is a changelog, and the format of {sink.name} can only write new rows"
                fix = (
                    "declare the connector 'upsert-kafka' with a PRIMARY KEY, which keeps the last row of each key, or "
                )
                fix += "a value format with changes, as debezium-json, which keeps all changes"
                self.add_problem("write-changelog", message, fix, statement.table.where)
        job = self.add_job(statement.query, query, sink, columns, statement.where, at_once=at_once)
        self.check_loop(job, statement.table.where)
        self.check_key(job, statement)

    def check_key(self, job: Job, statement: Insert) -> None:
        """Record a problem if the primary key of an upsert table does not identify the rows of a changing query.

        Nothing is recorded if the key of the query's rows is not known.
        """
        upserts = None if job.sink is None or job.sink.topic is None else job.sink.topic.definition.upserts
        changing = job.query.changelog or (job.streaming and job.aggregates)
        if upserts is None or not changing or job.sink is None:
            return
        resolved = self.resolve_names(statement.query)
        query_key = find_query_key(_query_text(statement.query)[0], self.query_keys(), resolved)
        if query_key is None:
            return
        primary = job.sink.topic.definition.primary_key  # type: ignore[union-attr]
        indices = [c.index for c in job.columns if c.name in primary and c.index is not None]
        images = job.images
        lacking, changed = key_mismatch(query_key, indices, images=images)
        shown, where = listing(primary), statement.table.where
        if lacking:
            missing = [query_key.columns[p] for p in lacking if p >= 0]
            more = f" (which lacks {listing(missing)})" if missing else ""
            message = f"several rows of the query can have the same primary key {shown} of {job.sink.name}{more}, and "
            message += "would replace and delete each other"
            fix = "select all columns that the query groups by, or the primary key of the table that it reads, and "
            self.add_problem("upsert-key-query", message, f"{fix}declare them as PRIMARY KEY", where)
        elif changed:
            updated = [c.name for c in job.columns if c.index in changed and c.name in primary]
            message = f"an update of the query may change {listing(updated)} in the primary key {shown} of "
            message += (
                f"{job.sink.name}, and the row under the old key would remain, because the query does not return it"
            )
            fix = f"remove {listing(updated)} from the PRIMARY KEY"
            self.add_problem("upsert-key-query", message, fix, where)

    def query_keys(self) -> dict[str, QueryKey]:
        """Return the columns and the key of tables and views, by name; only changelogs and views have keys.

        Views whose query is too complex to find its key, such as a join, are left out.
        """
        keys = {}
        own = {declared.name: declared for declared in self.catalog.tables}
        for name, declared in {**own, **self.of_catalogs}.items():
            table = self.table_as_read(declared)
            changes = isinstance(table.row, Changelog)
            key = table.topic.definition.primary_key if table.topic is not None and changes else ()
            keys[name] = QueryKey.table((c.name for c in declared.columns), key)
        for view in self.views.values():
            keys.pop(view.name, None)
            if view.keyed is not None:
                keys[view.name] = view.keyed
        return keys

    def find_sink(self, statement: Insert) -> ScriptTable | None:
        """Return the table that an INSERT writes to, with the options of its hint; record its problems.

        None if it does not exist, cannot be written (``datagen``), or its declaration could not be read (no new
        problem).
        """
        name, where = statement.table, statement.table.where
        declared = self.find(name)
        if declared is None and name.last in self.unread_names:
            return None
        if declared is None:
            names = [each.name for each in self.catalog.tables]
            message = f"there is no table {str(name)!r} to write to{nearest(name.last, names)}"
            fix = f"use one of {listing(names)}" if names else "declare it with CREATE TABLE first"
            self.add_problem("table-unknown", message, fix, where)
            return None
        if statement.overwrite:
            message = "INSERT OVERWRITE replaces existing rows, which is impossible in a topic"
            fix = "write INSERT INTO, which adds the rows to those of the topic"
            self.add_problem("insert-overwrite", message, fix, statement.where)
        table = self.planned[id(declared)]
        if statement.options:
            table = self.with_options(declared, statement.options)
        if table.connector == "datagen":
            message = f"{declared.name!r} is a table of the connector 'datagen', which cannot be written"
            fix = "write into a table of 'kafka', 'upsert-kafka', 'print' or 'blackhole'"
            self.add_problem("insert-sink", message, fix, where)
            return None
        if table.topic is None:
            self.check_metadata(table)
        self.check_topic(table, "write")
        return table

    def check_metadata(self, table: ScriptTable) -> None:
        """Record a problem for each metadata column that a sink without messages would write; Flink refuses it, too."""
        for column in table.declared.columns:
            if column.role == "metadata" and not column.virtual:
                message = f"the connector {table.connector!r} cannot write metadata, and this column would be written"
                fix = "declare it VIRTUAL, and select no value for it; or declare it without METADATA"
                self.add_problem("metadata-sink", message, fix, attrs.evolve(column.where, column=column.name))

    def check_loop(self, job: Job, where: Where) -> None:
        """Record a warning for each table through which an endless stream would read the records that it writes.

        ``where`` is its location. Tables of other or unknown brokers, and with a wrong topic pattern, are skipped.
        """
        if not job.streaming or job.ends or job.sink is None or job.sink.topic is None:
            return
        written = job.sink.topic.definition
        for table in job.tables.values():
            if table.topic is None or not self.share_brokers(table.topic, job.sink.topic):
                continue
            try:
                read = topics_of(table.topic.definition)
            except PatternError:  # `check_topic` reports it
                continue
            topics = [name for name in written.options.valid().topic if read.contains(name)]
            if topics:
                message = f"the statement reads the topic {listing(topics)} and writes to it, so it reads its own "
                message += "records, without end"
                fix = f"write to another topic, or declare an end of {table.name} with 'scan.bounded.mode' = "
                fix += "'latest-offset', with which only the records before the start are read"
                self.problems.append(Problem("topic-loop", message, fix, where, "warning"))

    def share_brokers(self, one: Table, other: Table) -> bool:
        """Whether two tables name a common broker; False if one of them names none, or its cluster is invalid."""
        try:
            servers = [set(table.cluster(self.cluster).bootstrap_servers.split(",")) for table in (one, other)]
        except ResolveError:  # `check_topic` reports it
            return False
        return not servers[0].isdisjoint(servers[1])

    def check_topic(self, table: ScriptTable, direction: str) -> None:
        """Record the problems of a topic's table for ``read`` or ``write``, once for the same table and options.

        A table without a topic has none. Missing brokers are a problem.
        """
        options = tuple((o.key, o.value, o.where) for o in table.declared.statement.options)
        judged_as = (table.declared.where, options, direction)
        if table.topic is None or judged_as in self.judged:
            return
        self.judged.add(judged_as)
        definition = table.topic.definition
        if any(p.code in NO_TOPIC for p in definition.problems) or not definition.complete:
            self.problems += judged(definition, direction)  # type: ignore[arg-type]
            return
        if self.cluster is not None:
            try:
                definition = attrs.evolve(definition, properties=table.topic.cluster(self.cluster).properties)
            except ResolveError as e:
                self.problems += e.problems
        elif definition.properties.get("bootstrap.servers") is None:
            message = f"{table.name} does not name its brokers"
            fix = "set 'properties.bootstrap.servers', or run it with --bootstrap"
            self.add_problem("cluster-missing", message, fix, table.declared.where)
        chosen = definition.value_format
        if direction == "read" and chosen is not None and chosen.on_unavailable == "keep":
            key = f"'{chosen.deciding_option('on_unavailable')[1]}'"
            message = f"{table.name} is read with {key} = 'keep', and SQL cannot leave a value unchanged"
            fix = f"set {key} = 'null', which reads NULL for such a value, or remove it to get an error; or read the "
            fix += "table in Python"
            self.add_problem("unavailable-keep", message, fix, table.declared.where)
        self.problems += judged(definition, direction, self.cluster)  # type: ignore[arg-type]

    # copies

    def add_copies(self, statements: Sequence[CreateTable | CreateDatabase]) -> None:
        """Plan the jobs of copies that start together; those whose topics can be read together are one job.

        A copy to what another one fills is a problem, and is left out, as is one that is wrong.
        """
        settings = self.settings.current
        together: list[list[Copy]] = []
        for statement in statements:
            builder = CopyBuilder(settings)
            if isinstance(statement, CreateDatabase):
                copy = self.copy_database(statement, builder)
            else:
                copy = self.copy_table(statement, builder)
            self.problems += builder.problems
            if copy is None:
                continue
            if copy.name in self.copied:
                message = f"{copy.name} is filled by another statement, too, in line {self.copied[copy.name].line}"
                self.add_problem("copy-twice", message, "fill another table", statement.name.where)
                continue
            self.copied[copy.name] = statement.where
            group = next((each for each in together if can_share(each[0].feed, copy.feed)), None)
            if group is None:
                together.append([copy])
            else:
                group.append(copy)
        for each in together:
            self.jobs.append(CopyJob(len(self.jobs) + 1, tuple(each), settings, self.groups, each[0].where))

    def find_target(
        self, builder: CopyBuilder, catalog: str, database: str, statement: CreateTable | CreateDatabase, full: str
    ) -> Target | None:
        """Find where a copy goes; None if the catalog is unknown, the script's own, or has problems; all is recorded.

        Args:
            builder: Builds the copy.
            catalog: The catalog.
            database: The database.
            statement: The statement.
            full: The name of what is filled, with its catalog.
        """
        where = statement.name.where
        of_name = self.catalogs.sinks.get(catalog) or self.catalogs.catalogs.get(catalog)
        if of_name is not None:
            return builder.find_target(of_name, database, full, statement.options, where)
        if self.catalogs.exists(catalog, where):
            message = f"{str(statement.name)!r} is in no catalog, and a copy needs one, which says where it is stored"
            fix = "write CREATE CATALOG lake WITH ('type' = 'delta', 'path' = '…'), or of the type 'jdbc' or 'kafka', "
            self.add_problem("copy-sink", message, f"{fix}and name the table as lake.database.table", where)
        return None

    def copy_table(self, statement: CreateTable, builder: CopyBuilder) -> Copy | None:
        """Build the copy of ``CREATE TABLE … AS TABLE``; None if it is wrong; problems are recorded, also others.

        A table that is not found is copied as by `copy_unchecked`, or recorded as missing.
        """
        assert statement.copy is not None
        catalog, database, table = self.catalogs.complete(statement.name)
        target = self.find_target(builder, catalog, database, statement, f"{catalog}.{database}.{table}")
        name = statement.copy.table
        declared = self.find(name)
        if declared is None:
            self.report_missing(name)
            return self.copy_unchecked(statement, builder, target, table)
        hints = statement.copy.options
        of_table = [hint for hint in hints if hint.key not in ONLY_HINTS]
        planned = self.with_options(declared, of_table) if of_table else self.planned[id(declared)]
        if planned.topic is None:
            message = f"{planned.name!r} is a table of the connector {planned.connector!r}, which has no topic to copy"
            self.add_problem("copy-source", message, "copy a table of the connector 'kafka'", name.where)
            return None
        definition = planned.topic.definition
        if has_unknown_columns(planned.declared):
            readable = not errors_besides_columns(definition)
        else:
            self.check_topic(planned, "read")
            readable = not any(p.severity == "error" for p in judged(definition, "read", self.cluster))
        try:
            cluster = planned.topic.cluster(self.cluster)
        except ResolveError:  # `check_topic` reports it
            cluster = None
        if target is None:
            return None
        only = [hint for hint in hints if hint.key in ONLY_HINTS]
        return builder.copy_table(
            statement, target, table, definition, planned.declared.options, cluster, only, readable=readable
        )

    def report_missing(self, name: Name) -> None:
        """Record that there is no table to copy; a name in a Kafka catalog is recorded once.

        Nothing is recorded for a table whose statement or columns could not be read, or that is not checked.
        """
        if name.last in self.unread_names:
            return
        path = self.catalogs.path(name)
        if path is not None:
            if len(name.parts) < 3 and name not in self.catalogs.unchecked:
                self.catalogs.record_missing(path, name)
            return
        names = self.own_names()
        message = f"there is no table {str(name)!r} to copy{nearest(name.last, names)}"
        fix = f"use one of {listing(names)}" if names else "declare it with CREATE TABLE first"
        self.add_problem("table-unknown", message, fix, name.where)

    def copy_unchecked(
        self, statement: CreateTable, builder: CopyBuilder, target: Target | None, table: str
    ) -> Copy | None:
        """Build the copy of a catalog's table whose columns only the cluster knows.

        None if the cluster was asked, the name does not mean a table of a catalog, there is no target, or the copy is
        wrong. Problems are recorded in the builder.
        """
        assert statement.copy is not None
        path = self.catalogs.path(statement.copy.table)
        if target is None or path is None or self.catalogs.inference is not None:
            return None
        return builder.copy_unknown_table(statement, target, table, self.catalogs.catalogs[path[0]], path[2])

    def copy_database(self, statement: CreateDatabase, builder: CopyBuilder) -> Copy | None:
        """Build the copy of ``CREATE DATABASE … AS DATABASE``; None if it is wrong, which is recorded."""
        catalog, database = self.catalogs.complete_database(statement.name)
        target = self.find_target(builder, catalog, database, statement, f"{catalog}.{database}")
        source, where = self.catalogs.complete_database(statement.source), statement.source.where
        if not self.catalogs.has_database(*source, where):
            return None
        known = self.catalogs.catalogs.get(source[0])
        if known is None:
            message = f"{str(statement.source)!r} is not a database of a catalog of the type 'kafka'"
            fix = "copy a database of such a catalog; CREATE TABLE … AS TABLE copies a table of the script"
            self.add_problem("copy-source", message, fix, where)
            return None
        return None if target is None else builder.copy_database(statement, target, known)

    def add_select(self, statement: Query) -> None:
        """Add the job of a query whose rows are shown, none if the query is wrong; problems are recorded."""
        query, at_once = self.translate_job_query(statement.query)
        if query is not None:
            columns = tuple(SinkColumn(f.name, f.type, f.type, i) for i, f in enumerate(query.columns.fields))
            self.add_job(statement.query, query, None, columns, statement.where, at_once=at_once)

    def add_job(
        self,
        fragment: Fragment,
        query: Translated,
        sink: ScriptTable | None,
        columns: Sequence[SinkColumn],
        where: Where,
        *,
        at_once: bool,
    ) -> Job:
        """Add the job of a query to the plan and return it; problems of its tables and of its query are recorded.

        For ``sink``, ``columns``, ``where`` and ``at_once`` see `Job`; ``fragment`` is the query as it was written.
        """
        tables, views = self.tables_and_views(
            query, streaming=self.settings.current.mode == "streaming" and not at_once
        )
        number = len(self.jobs) + 1
        settings = self.settings.current
        job = Job(number, query, sink, tuple(columns), tables, tuple(views), settings, self.groups, where, at_once)
        for table in tables.values():
            if table.connector in _WRITE_ONLY:
                message = f"{table.name!r} is a table of the connector {table.connector!r}, which cannot be read"
                fix = "read a table of 'kafka', 'upsert-kafka' or 'datagen'"
                self.add_problem("select-source", message, fix, fragment.where())
            self.check_topic(table, "read")
            self.check_duplicates(table)
            if not job.streaming and table.generated is not None and table.generated.rows is None:
                message = f"{table.name!r} never ends, and a batch would read all of it"
                fix = "set 'number-of-rows', or run it as a stream: SET 'execution.runtime-mode' = 'streaming'"
                self.add_problem("batch-unbounded", message, fix, table.declared.where)
        if job.streaming:
            marks = {name: table.declared.watermarks for name, table in tables.items()}
            own = [(n, fragment.where(n.position, len(n.name))) for n in query.notes]
            windows = [(w, fragment.where(w.position, len(w.kind))) for w in query.windows]
            for view in views:
                own += [(n, fragment.where()) for n in view.query.notes]
                windows += [(w, fragment.where()) for w in view.query.windows]
            marked = any(marks.values())
            connector = None if sink is None else sink.connector
            changes = connector in ("print", None) or (sink is not None and isinstance(sink.row, Changelog))
            self.problems += stream_problems(
                own,
                windows,
                watermarks=marked,
                sink=connector,
                changes=changes,
                processing=[c.name for table in tables.values() for c in table.declared.columns if _is_processing(c)],
            )
        self.jobs.append(job)
        self.check_groups(job, fragment)
        self.check_filter(job, fragment)
        return job

    def check_duplicates(self, table: ScriptTable) -> None:
        """Record a problem if a table that is normalized by ``SET`` has no primary key, as in Flink."""
        if (
            not self.settings.current.cdc_events_duplicate
            or not table.change_data
            or DUPLICATE in table.declared.options
        ):
            return
        message = f"'table.exec.source.{DUPLICATE}' is true, for which each table of change data that is read needs a "
        message += f"PRIMARY KEY, and {table.name} declares none"
        fix = f"add PRIMARY KEY (...) NOT ENFORCED, or declare '{DUPLICATE}' = 'false' for this table"
        self.add_problem("cdc-duplicate-key", message, fix, table.declared.where)

    def check_groups(self, job: Job, fragment: Fragment) -> None:
        """Record a problem if a group lacks the rows before updates, and warnings if repeated events count twice."""
        if any(query.retracts is not None for query in job.queries):
            for table in (table for table in job.tables.values() if table.change_data):
                message = "a group counts each event of this change data, and events that are repeated after a "
                message += "failure, as by Debezium, are counted twice"
                key = "" if table.topic and table.topic.definition.primary_key else "declare a PRIMARY KEY and "
                fix = f"{key}set '{DUPLICATE}' = 'true', which stores the last row of each key in state (or for all "
                fix += f"tables SET 'table.exec.source.{DUPLICATE}' = 'true')"
                where = table.declared.locations.get("format", table.declared.where)
                self.problems.append(Problem("cdc-duplicate", message, fix, where, "warning"))
        last = [table.name for table in job.tables.values() if not table.has_images]
        retracts = [q.retracts for q in job.queries if q.retracts is not None]
        if retracts and last:
            position = job.query.retracts
            where = fragment.where() if position is None else fragment.where(position, len("SELECT"))
            message = f"a group needs the row before each update, which {listing(last)} does not return"
            self.add_problem("group-images", message, "read it with 'scan.changelog.mode' = 'full'", where)

    def check_filter(self, job: Job, fragment: Fragment) -> None:
        """Record a problem if updated rows that no longer pass a filter would remain in the sink."""
        last = job.query.changelog and not all(table.has_images for table in job.tables.values())
        groups = job.streaming and job.aggregates and job.sink is not None and job.sink.connector == "upsert-kafka"
        query_key = None
        if last or groups:
            query_key = find_query_key(_query_text(fragment)[0], self.query_keys(), self.resolve_names(fragment))
        if query_key is None or not query_key.filtered:
            return
        message = "an updated row that no longer passes the filter would remain in the sink"
        if last:
            message += ", and deletes, which only have the key, would not pass it"
            fix = "read the table with 'scan.changelog.mode' = 'full', or filter by its primary key"
        else:
            fix = "write it as HAVING after GROUP BY, which deletes a group that no longer passes; or write all groups "
            fix += "and filter where the upsert table is read"
        self.add_problem("upsert-filter", message, fix, fragment.where())


def _is_processing(column: ColumnDef) -> bool:
    """Whether a column is computed by ``PROCTIME()`` alone: the time at which a row is processed."""
    expression = column.expression
    return (
        expression is not None and re.fullmatch(r"\s*PROCTIME\s*\(\s*\)\s*", expression.flink or "", re.I) is not None
    )


def _query_text(fragment: Fragment) -> tuple[str, int]:
    """Return a query, with ``TABLE t`` expanded to SELECT, and how many characters longer that is (may be negative)."""
    text = fragment.text
    bare = re.match(r"\s*TABLE\s+", text, re.IGNORECASE)
    if bare is None:
        return text, 0
    return f"SELECT * FROM {text[bare.end() :]}", len("SELECT * FROM ") - bare.end()  # noqa: S608
