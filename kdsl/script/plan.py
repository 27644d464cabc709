"""A script as a plan: every query translated, every column matched, every problem told; no Spark, no broker."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import attrs

from kdsl.cluster import Cluster
from kdsl.declare.ddl.parser import Script, hinted
from kdsl.declare.ddl.reader import WrongError
from kdsl.declare.ddl.statements import (
    CreateTable,
    CreateView,
    Drop,
    Explain,
    Fragment,
    Insert,
    Name,
    Option,
    Query,
    ResetOption,
    SetOption,
    StatementSet,
)
from kdsl.declare.ddl.tables import Catalog, DeclaredTable
from kdsl.declare.translate import Query as Translated, UntranslatableError, typed_expression, typed_query
from kdsl.declare.translate.facts import Hint
from kdsl.declare.translate.scopes import Changelog
from kdsl.errors import Problem, ResolveError, Where, fail_on, listing, nearest
from kdsl.resolve import problems as judged
from kdsl.script.checks import stream_problems
from kdsl.script.datagen import generated
from kdsl.script.keys import Keyed, keyed, unfit
from kdsl.script.matching import Column, matched
from kdsl.script.model import Job, ScriptPlan, ScriptTable, View
from kdsl.script.options import script_options
from kdsl.script.settings import Told
from kdsl.table import Table
from kdsl.types import model as t


def plan_script(
    script: Script, cluster: Cluster | None = None, settings: Mapping[str, str] | None = None
) -> ScriptPlan:
    """The plan of a script.

    Args:
        script: The script.
        cluster: Where the topics live; not needed by tables that name their brokers.
        settings: What holds before the first ``SET``, under Flink's keys.

    Raises:
        ResolveError: Something is wrong; everything is told, each at its place.
    """
    plan, problems = judge_script(script, cluster, settings)
    fail_on(problems, script.subject)
    return plan


def judge_script(
    script: Script, cluster: Cluster | None = None, settings: Mapping[str, str] | None = None
) -> tuple[ScriptPlan, tuple[Problem, ...]]:
    """The plan of a script as far as there is one, and everything that is wrong with it.

    Args:
        script: The script.
        cluster: As for `plan_script`.
        settings: As for `plan_script`.
    """
    planner = _Planner(cluster, Told(settings))
    for statement in script.statements:
        planner.statement(statement)
    found = [*script.problems, *planner.problems, *planner.catalog.problems, *planner.told.problems]
    problems = tuple(dict.fromkeys(found))
    warnings = tuple(p for p in problems if p.severity == "warning")
    return ScriptPlan(tuple(planner.jobs), warnings, tuple(planner.made.values())), problems


class _Planner:
    def __init__(self, cluster: Cluster | None, told: Told) -> None:
        self.cluster, self.told = cluster, told
        self.catalog = Catalog()
        self.views: dict[str, View] = {}
        self.made: dict[int, ScriptTable] = {}
        self.hinted: dict[str, ScriptTable] = {}
        self.problems: list[Problem] = []
        self.jobs: list[Job] = []
        self.groups = 0
        self.judged: set[tuple[int, str]] = set()

    def problem(self, code: str, message: str, fix: str, where: Where) -> None:
        self.problems.append(Problem(code, message, fix, where))

    def statement(self, statement: object) -> None:
        match statement:
            case CreateTable():
                self.create(statement)
            case CreateView():
                self.view(statement)
            case Drop(kind="VIEW"):
                if self.views.pop(statement.name.last, None) is None and not statement.if_exists:
                    hint = nearest(statement.name.last, self.views)
                    message = f"there is no view {statement.name.last!r} to drop{hint}"
                    self.problem("view-unknown", message, "write DROP VIEW IF EXISTS", statement.name.where)
            case Drop():
                self.catalog.drop(statement)
            case SetOption() | ResetOption():
                self.told.change(statement)
            case Insert():
                self.groups += 1
                self.insert(statement)
            case StatementSet():
                self.groups += 1
                for insert in statement.inserts:
                    self.insert(insert)
            case Query():
                self.groups += 1
                self.select(statement)
            case Explain():
                message = "EXPLAIN does not stand in a script that runs"
                self.problem("sql-explain", message, "remove it; kdsl run --dry-run shows the plans", statement.where)

    # tables and views

    def create(self, statement: CreateTable) -> None:
        name = statement.name.last
        if name in self.views:
            self.problem("table-twice", f"there is a view {name!r} already", "give it another name", statement.where)
        same = [x.name for x in self.catalog.tables if x.name.lower() == name.lower() and x.name != name]
        if same:
            message = f"the tables {same[0]!r} and {name!r} differ in letter case only, which Spark does not see"
            self.problem("table-case", message, "give one of them another name", statement.name.where)
        table = self.catalog.create(statement)
        self.made.setdefault(id(table), self.table(table))

    def table(self, declared: DeclaredTable) -> ScriptTable:
        connector = declared.connector
        if connector is None or connector.use != "script":
            return ScriptTable(declared, topic=Table(declared.definition()))
        options = script_options(declared)
        self.problems += [*declared.problems, *options.problems]
        if connector.name != "datagen":
            return ScriptTable(declared, options=options)
        made, problems = generated(declared, options)
        self.problems += problems
        return ScriptTable(declared, options=options, generated=made)

    def view(self, statement: CreateView) -> None:
        name = statement.name.last
        taken = name in self.views or self.catalog.find(statement.name) is not None
        if taken:
            if not statement.if_not_exists:
                message = f"there is a table or a view {name!r} already"
                self.problem("view-twice", message, "give it another name, or drop that one", statement.name.where)
            return
        query = self.query(statement.query)
        if query is None:
            return
        columns = query.columns
        if statement.columns:
            if len(statement.columns) != len(columns.fields):
                message = f"the view names {len(statement.columns)} columns, and its query gives {len(columns.fields)}"
                self.problem("view-columns", message, "name each column", statement.where)
                return
            pairs = zip(columns.fields, statement.columns, strict=True)
            columns = attrs.evolve(columns, fields=tuple(attrs.evolve(f, name=each) for f, each in pairs))
        named = keyed(_text(statement.query)[0], self.known())
        named = named and attrs.evolve(named, columns=columns.names)
        self.views[name] = View(name, query, columns, named)

    def readable(self) -> dict[str, t.Row]:
        """Everything that a query can read: tables whose rows are known, and views."""
        rows: dict[str, t.Row] = {}
        for declared in self.catalog.tables:
            table = self.made[id(declared)]
            rows[declared.name] = table.row
        return {**rows, **{view.name: view.columns for view in self.views.values()}}

    def query(self, fragment: Fragment) -> Translated | None:
        text, shift = _text(fragment)
        try:
            made = typed_query(text, self.readable(), streaming=self.told.now.mode == "streaming")
        except UntranslatableError as e:
            where = fragment.where(max(0, e.position - shift), len(e.name))
            self.problem("sql-query", e.reason, e.fix, where)
            return None
        told = [self.hint(hint, fragment, hint.position - shift) for hint in made.hints]
        return made if all(told) else None

    def hint(self, hint: Hint, fragment: Fragment, position: int) -> bool:
        """Make the table that a query reads with options of its own."""
        where = fragment.where(position, len("/*+"))
        if hint.table in self.views:
            message = f"{hint.table!r} is a view, which has no options"
            self.problem("hint-view", message, "hint at the tables in its query", where)
            return False
        declared = self.catalog.find(Name((hint.table,)))
        token = next((x for x in fragment.source.tokens if x.start == fragment.start + position), None)
        if declared is None or token is None or token.kind != "hint":
            self.problem("hint", "the hint cannot be read here", "set the options in CREATE TABLE", where)
            return False
        try:
            options, problems = hinted(fragment.source, token)
        except WrongError as e:
            self.problems.append(e.problem)
            return False
        self.problems += problems
        table = self.changed(declared, options)
        if isinstance(table.row, Changelog) != isinstance(self.made[id(declared)].row, Changelog):
            message = f"the hint makes a changelog of {hint.table!r}, or makes one to be none"
            self.problem("hint-format", message, "declare a table of that format", where)
            return False
        self.hinted[hint.view] = table
        return True

    def changed(self, declared: DeclaredTable, options: Sequence[Option]) -> ScriptTable:
        """A table with some other options."""
        changed = {o.key for o in options}
        kept = [o for o in declared.statement.options if o.key not in changed]
        return self.table(attrs.evolve(declared, statement=attrs.evolve(declared.statement, options=(*kept, *options))))

    def used(self, query: Translated) -> tuple[dict[str, ScriptTable], list[View]]:
        """The tables and views that a query reads, also through views."""
        tables: dict[str, ScriptTable] = {}
        views: list[View] = []
        for name in query.tables:
            view = self.views.get(name)
            if name in self.hinted:
                tables[name] = self.hinted[name]
                continue
            if view is None:
                declared = self.catalog.find(Name((name,)))
                assert declared is not None
                tables[name] = self.made[id(declared)]
                continue
            below, others = self.used(view.query)
            tables |= below
            views += [v for v in (*others, view) if v not in views]
        return tables, views

    # jobs

    def insert(self, statement: Insert) -> None:
        sink = self.sink(statement)
        query = self.query(statement.query)
        if query is None or sink is None:
            return
        constants = {}
        for column, fragment in statement.partition:
            try:
                constants[column] = typed_expression(fragment.text, {})
            except UntranslatableError as e:
                self.problem("sql-query", e.reason, e.fix, fragment.where(e.position, len(e.name)))
        columns, problems = matched(sink.declared, query, statement.columns, constants)
        self.problems += [p.at(statement.query.where(table=sink.name)) for p in problems]
        if query.changelog and sink.topic is not None and sink.topic.definition.upserts is None:
            made = sink.topic.definition.value_format
            if made is not None and made.insert_only:
                message = f"the query gives rows that change and go, and the format of {sink.name} only takes new ones"
                fix = "give the table the connector 'upsert-kafka', or a value format that carries changes, as "
                fix += "debezium-json"
                self.problem("write-changelog", message, fix, statement.table.where)
        job = self.job(statement.query, query, sink, columns, statement.where)
        self.judge_key(job, statement)

    def judge_key(self, job: Job, statement: Insert) -> None:
        """Whether the primary key of an upsert table names the rows that change."""
        upserts = None if job.sink is None or job.sink.topic is None else job.sink.topic.definition.upserts
        changing = job.query.changelog or (job.streaming and job.aggregates)
        if upserts is None or not changing or job.sink is None:
            return
        found = keyed(_text(statement.query)[0], self.known())
        if found is None:
            return
        primary = job.sink.topic.definition.primary_key  # type: ignore[union-attr]
        places = [c.index for c in job.columns if c.name in primary and c.index is not None]
        images = job.images
        lacking, changed = unfit(found, places, images=images)
        shown, where = listing(primary), statement.table.where
        if lacking:
            names = [found.columns[p] for p in lacking if p >= 0]
            more = f" (which lacks {listing(names)})" if names else ""
            message = f"several rows of the query can have the same primary key {shown} of {job.sink.name}{more}, and "
            message += "would replace and delete each other"
            fix = "select all columns that the query groups by, or the primary key of the table that it reads, and "
            self.problem("upsert-key-query", message, f"{fix}declare them as PRIMARY KEY", where)
        elif changed:
            names = [c.name for c in job.columns if c.index in changed and c.name in primary]
            message = f"a row of the query may change {listing(names)} in the primary key {shown} of {job.sink.name}, "
            message += "and what was written under the old key would stay, for the query does not tell how a row was"
            fix = f"leave {listing(names)} out of the PRIMARY KEY"
            self.problem("upsert-key-query", message, fix, where)

    def known(self) -> dict[str, Keyed]:
        """The tables and views that a query can read, and what names their rows."""
        found = {}
        for declared in self.catalog.tables:
            table = self.made[id(declared)]
            changes = isinstance(table.row, Changelog)
            key = table.topic.definition.primary_key if table.topic is not None and changes else ()
            found[declared.name] = Keyed.table((c.name for c in declared.columns), key)
        for view in self.views.values():
            found.pop(view.name, None)
            if view.keyed is not None:
                found[view.name] = view.keyed
        return found

    def sink(self, statement: Insert) -> ScriptTable | None:
        name, where = statement.table, statement.table.where
        declared = self.catalog.find(name)
        if declared is None:
            names = [each.name for each in self.catalog.tables]
            message = f"there is no table {str(name)!r} to write to{nearest(name.last, names)}"
            fix = f"use one of {listing(names)}" if names else "declare it with CREATE TABLE before"
            self.problem("table-unknown", message, fix, where)
            return None
        if statement.overwrite:
            message = "INSERT OVERWRITE replaces what there is, which a topic cannot"
            self.problem("insert-overwrite", message, "write INSERT INTO", statement.where)
        table = self.made[id(declared)]
        if statement.options:
            table = self.changed(declared, statement.options)
        if table.connector == "datagen":
            message = f"{declared.name!r} is a table of the connector 'datagen', which only reads"
            fix = "write into a table of 'kafka', 'upsert-kafka', 'print' or 'blackhole'"
            self.problem("insert-sink", message, fix, where)
            return None
        self.judge(table, "write")
        return table

    def judge(self, table: ScriptTable, direction: str) -> None:
        """The problems of a topic's table in a direction, once."""
        if table.topic is None or (id(table), direction) in self.judged:
            return
        self.judged.add((id(table), direction))
        definition = table.topic.definition
        if self.cluster is not None:
            try:
                definition = attrs.evolve(definition, properties=table.topic.cluster(self.cluster).properties)
            except ResolveError as e:
                self.problems += e.problems
        elif definition.properties.get("bootstrap.servers") is None:
            message = f"{table.name} does not say where its brokers are"
            fix = "set 'properties.bootstrap.servers', or run it with --bootstrap"
            self.problem("cluster-missing", message, fix, table.declared.where)
        self.problems += judged(definition, direction, self.cluster)  # type: ignore[arg-type]

    def select(self, statement: Query) -> None:
        query = self.query(statement.query)
        if query is not None:
            columns = tuple(Column(f.name, f.type, f.type, i) for i, f in enumerate(query.columns.fields))
            self.job(statement.query, query, None, columns, statement.where)

    def job(
        self,
        fragment: Fragment,
        query: Translated,
        sink: ScriptTable | None,
        columns: Sequence[Column],
        where: Where,
    ) -> Job:
        tables, views = self.used(query)
        number = len(self.jobs) + 1
        job = Job(number, query, sink, tuple(columns), tables, tuple(views), self.told.now, self.groups, where)
        for table in tables.values():
            if table.connector in ("print", "blackhole"):
                message = f"{table.name!r} is a table of the connector {table.connector!r}, which only writes"
                fix = "read a table of 'kafka', 'upsert-kafka' or 'datagen'"
                self.problem("select-source", message, fix, fragment.where())
            self.judge(table, "read")
            if not job.streaming and table.generated is not None and table.generated.rows is None:
                message = f"{table.name!r} never ends, and a batch reads all of it"
                fix = "set 'number-of-rows', or run it as a stream"
                self.problem("batch-unbounded", message, fix, table.declared.where)
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
            self.problems += stream_problems(own, windows, watermarks=marked, sink=connector, changes=changes)
        self.jobs.append(job)
        self.judge_groups(job, fragment)
        self.judge_filter(job, fragment)
        return job

    def judge_groups(self, job: Job, fragment: Fragment) -> None:
        """Whether groups of changelogs are told as rows were, and views were written for the mode that they run in."""
        for view in job.views:
            if view.query.for_streams not in (None, job.streaming):
                mode = "streaming" if view.query.for_streams else "batch"
                message = f"the view {view.name!r}, whose groups may go, was written for the runtime mode {mode!r}"
                self.problem("view-mode", message, "SET 'execution.runtime-mode' before CREATE VIEW", fragment.where())
        last = [table.name for table in job.tables.values() if not table.has_images]
        retracts = [q.retracts for q in job.queries if q.retracts is not None]
        if retracts and last:
            place = job.query.retracts
            where = fragment.where() if place is None else fragment.where(place, len("SELECT"))
            message = f"a group takes old rows back, and {listing(last)} does not tell them"
            self.problem("group-images", message, "read it with 'scan.changelog.mode' = 'full'", where)

    def judge_filter(self, job: Job, fragment: Fragment) -> None:
        """Whether rows that change leave a query without a word, when they do not pass a filter any more."""
        last = job.query.changelog and not all(table.has_images for table in job.tables.values())
        groups = job.streaming and job.aggregates and job.sink is not None and job.sink.connector == "upsert-kafka"
        found = keyed(_text(fragment)[0], self.known()) if last or groups else None
        if found is None or not found.filtered:
            return
        message = "a row that changes, and does not pass the filter any more, would stay as it was written"
        if last:
            message += ", and deletes, which have values in the key alone, would not pass"
            fix = "read the table with 'scan.changelog.mode' = 'full', or filter by its primary key"
        else:
            fix = "write all groups, and filter where the upsert table is read; or filter by what is grouped by"
        self.problem("upsert-filter", message, fix, fragment.where())


def _text(fragment: Fragment) -> tuple[str, int]:
    """A query as text, ``TABLE t`` written out, and by how much it has grown."""
    text = fragment.text
    bare = re.match(r"\s*TABLE\s+", text, re.IGNORECASE)
    if bare is None:
        return text, 0
    return f"SELECT * FROM {text[bare.end() :]}", len("SELECT * FROM ") - bare.end()  # noqa: S608
