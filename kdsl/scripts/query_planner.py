"""Plans the queries of a script: translates them with the tables and views that they may read, and finds their keys."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kdsl.ddl.create_table import read_hint_options
from kdsl.ddl.statement_reader import StatementError
from kdsl.ddl.statements import CreateView, Fragment
from kdsl.errors import Problem, listing, pluralize
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.scripts.names import ScriptNames
from kdsl.scripts.options import WRITE_ONLY
from kdsl.scripts.queries.facts import TableHint
from kdsl.scripts.queries.scopes import ChangelogColumns, QueryColumns
from kdsl.scripts.queries.translator import TranslatedQuery, translate_query
from kdsl.scripts.query_keys import QueryKey, find_query_key
from kdsl.scripts.script_plan import DeclaredView, ScriptTable, View
from kdsl.scripts.settings import ScriptSettings
from kdsl.scripts.tables import ScriptTables


@attrs.frozen
class PlannedQuery:
    """A query of a job.

    Attributes:
        fragment: The query as it was written.
        translated: The query.
        tables: The tables that it reads, directly or through views, by name.
        views: The views that it reads, those first that others use.
        key: The key of its rows; None if it is not known, or if they do not change.
        at_once: As for `Job`.
    """

    fragment: Fragment
    translated: TranslatedQuery
    tables: Mapping[str, ScriptTable]
    views: tuple[View, ...]
    key: QueryKey | None
    at_once: bool = False


@attrs.frozen
class _ResolvedQuery:
    """A query before its translation, with all tables that it may read, by their names after ``names`` is applied."""

    fragment: Fragment
    names: Mapping[tuple[str, ...], str]
    tables: Mapping[str, ScriptTable]
    settings: ScriptSettings


@attrs.define
class QueryPlanner:
    """Plans queries and views; a ``checkpoint`` takes precedence over the script's."""

    _names: ScriptNames
    _tables: ScriptTables
    _checkpoint: str | None
    _problems: list[Problem]
    _hinted: dict[str, ScriptTable] = attrs.field(factory=dict, init=False)

    def plan(self, fragment: Fragment, settings: ScriptSettings) -> PlannedQuery | None:
        """Plan the query of a job.

        A stream without checkpoints whose tables all end is translated as a batch, which is read at once.

        Returns:
            None if the query or a hint is wrong, which is recorded unless it refers to a mistake that is recorded
            already.
        """
        query = self._resolve(fragment, settings)
        streaming = settings.mode == "streaming"
        planned = self._plan(query, streaming=streaming)
        if planned is None or not streaming or self._checkpoint or settings.folder:
            return planned
        if not planned.tables or not all(table.ends for table in planned.tables.values()):
            return planned
        batch = self._plan(query, streaming=False)
        return batch and attrs.evolve(batch, at_once=True)

    def _resolve(self, fragment: Fragment, settings: ScriptSettings) -> _ResolvedQuery:
        """Look up the tables that a query may read, and plan them with the settings of ``SET``."""
        names = self._names.resolve(fragment)
        planned = {name: self._tables.plan(table) for name, table in self._names.readable().items()}
        tables = {name: self._tables.apply_settings(table, settings) for name, table in planned.items()}
        return _ResolvedQuery(fragment, names, tables, settings)

    def _plan(self, query: _ResolvedQuery, *, streaming: bool) -> PlannedQuery | None:
        """Plan a query for a mode; the result is as in `plan`."""
        translated = self._translate(query, streaming=streaming)
        if translated is None:
            return None
        tables: dict[str, ScriptTable] = {}
        views: dict[str, View] = {}
        missing = self._collect(translated, query, tables, views, streaming=streaming)
        if missing:
            message = f"a view that the query reads needs {listing(missing)}, which was dropped or declared again"
            fix = "drop the view, too, and create it again from tables that exist; or do not drop what it reads"
            self._problems.append(Problem("table-unknown", message, fix, query.fragment.where()))
            return None
        notes = [note for each in (translated, *(view.query for view in views.values())) for note in each.notes]
        changes = translated.changelog or any(note.kind == "aggregate" for note in notes)
        key = self._find_key(query, translated) if changes else None
        return PlannedQuery(query.fragment, translated, tables, tuple(views.values()), key)

    def add_view(self, statement: CreateView, settings: ScriptSettings) -> None:
        """Declare a view, with its query translated for streams and for batches; problems are recorded.

        A view whose name is taken is not declared. One that is wrong in the current mode is not, either, and its name
        is added to the script's ``unread_names``.
        """
        if not self._names.is_free(statement):
            return
        query = self._resolve(statement.query, settings)
        streaming = settings.mode == "streaming"
        translated = self._translate(query, streaming=streaming)
        count = 0 if translated is None else len(translated.columns.fields)
        if translated is not None and statement.columns and len(statement.columns) != count:
            message = f"the view names {pluralize(len(statement.columns), 'column')}, and its query has {count}"
            self._problems.append(Problem("view-columns", message, f"write {count} names, or none", statement.where))
            translated = None
        name = statement.name.last
        if translated is None:
            self._names.unread_names.add(name)
            return
        by_mode = {streaming: _make_view(statement, translated)}
        refused = None
        try:
            by_mode[not streaming] = _make_view(statement, self._translate_text(query, streaming=not streaming))
        except UntranslatableError as e:
            refused = e
        key = self._find_key(query, translated)
        key = key and attrs.evolve(key, columns=by_mode[streaming].columns.names)
        self._names.views[name] = DeclaredView(name, by_mode, key, refused)

    # translation

    def _translate(self, query: _ResolvedQuery, *, streaming: bool) -> TranslatedQuery | None:
        """Translate a query, and plan its tables with hints; the result is as in `plan`."""
        try:
            translated = self._translate_text(query, streaming=streaming)
        except UntranslatableError as e:
            self._report(query, e, streaming=streaming)
            return None
        hints_are_valid = [self._plan_hint(hint, query) for hint in translated.hints]
        return translated if all(hints_are_valid) else None

    def _translate_text(self, query: _ResolvedQuery, *, streaming: bool) -> TranslatedQuery:
        """Translate a query that may read all tables, and those views that have the mode."""
        rows = {name: table.row for name, table in query.tables.items()}
        views = self._names.views.values()
        rows |= {view.name: view.by_mode[streaming].columns for view in views if streaming in view.by_mode}
        sinks = {name for name, table in query.tables.items() if table.connector in WRITE_ONLY}
        return translate_query(query.fragment.text, rows, streaming=streaming, names=query.names, sinks=sinks)

    def _report(self, query: _ResolvedQuery, error: UntranslatableError, *, streaming: bool) -> None:
        """Record why a query cannot be translated, unless it refers to a mistake that is recorded already."""
        fragment = query.fragment
        unknown = {c.name for table in query.tables.values() for c in table.declared.columns if not c.type_known}
        if fragment.contains_any(self._names.unread_names | unknown):
            return
        views = (v for v in self._names.views.values() if v.refused is not None and fragment.contains_any([v.name]))
        view = next(views, None)
        if view is not None and view.refused is not None and streaming not in view.by_mode:
            message = f"the view {view.name!r} cannot be read as a {'stream' if streaming else 'batch'}: "
            message += view.refused.reason
            self._problems.append(Problem("view-mode", message, view.refused.fix, fragment.where()))
            return
        where = fragment.where(error.position, len(error.name))
        self._problems.append(Problem("sql-query", error.reason, error.fix, where))

    def _plan_hint(self, hint: TableHint, query: _ResolvedQuery) -> bool:
        """Plan the table that a query reads with the options of a hint, and return whether it could be planned.

        If the hint is on a view, has a mistake, or changes whether the table is a changelog, a problem is recorded.
        Problems of the options are recorded, too, and the result is True.
        """
        fragment = query.fragment
        where = fragment.where(hint.position, len("/*+"))
        if hint.table in self._names.views:
            fix = "write the hint after the tables in its query"
            self._problems.append(Problem("hint-view", f"{hint.table!r} is a view and has no options", fix, where))
            return False
        token = next(token for token in fragment.source.tokens if token.start == fragment.start + hint.position)
        try:
            options, problems = read_hint_options(fragment.source, token)
        except StatementError as e:
            self._problems.append(e.problem)
            return False
        self._problems += problems
        declared = self._names.readable()[hint.table]
        table = self._tables.plan_with_options(declared, options)
        if isinstance(table.row, ChangelogColumns) != isinstance(self._tables.plan(declared).row, ChangelogColumns):
            message = f"the hint changes whether {hint.table!r} is a changelog"
            fix = "declare another table of the same topic, with these options in its CREATE TABLE, and read that"
            self._problems.append(Problem("hint-format", message, fix, where))
            return False
        self._hinted[hint.view] = self._tables.apply_settings(table, query.settings)
        return True

    # what a translated query reads

    def _collect(
        self,
        translated: TranslatedQuery,
        query: _ResolvedQuery,
        tables: dict[str, ScriptTable],
        views: dict[str, View],
        *,
        streaming: bool,
    ) -> list[str]:
        """Add the tables and views that a query reads, directly or through views, and return those that do not exist.

        A view comes after those that it reads.
        """
        missing: list[str] = []
        for name in translated.tables:
            declared = self._names.views.get(name)
            view = None if declared is None else declared.by_mode.get(streaming)
            table = self._hinted.get(name) or query.tables.get(name)
            if view is not None:
                missing += self._collect(view.query, query, tables, views, streaming=streaming)
                views.setdefault(name, view)
            elif table is not None:
                tables[name] = table
            else:
                missing.append(name)
        return missing

    def _find_key(self, query: _ResolvedQuery, translated: TranslatedQuery) -> QueryKey | None:
        """Find the key of a query's rows; None if it is not known.

        Only changelogs and views have keys. Views whose query is too complex to find its key, such as a join, have
        none.
        """
        hinted = {hint.view: hint.table for hint in translated.hints}
        keys: dict[str, QueryKey] = {}
        for name in (hinted.get(name, name) for name in translated.tables):
            view = self._names.views.get(name)
            if view is not None:
                keys |= {} if view.key is None else {name: view.key}
                continue
            table = query.tables[name]
            changes = isinstance(table.row, ChangelogColumns)
            key = table.topic.definition.primary_key if table.topic is not None and changes else ()
            keys[name] = QueryKey.table((c.name for c in table.declared.columns), key)
        return find_query_key(query.fragment.text, keys, query.names)


def _make_view(statement: CreateView, query: TranslatedQuery) -> View:
    """Describe the view of a query, with the column names of the statement, if it has any: as many as the query.

    Its event times count as marked, because the run restores their metadata.
    """
    columns = query.columns
    if isinstance(columns, QueryColumns):
        columns = attrs.evolve(columns, unmarked={})
    if statement.columns:
        pairs = zip(columns.fields, statement.columns, strict=True)
        columns = attrs.evolve(columns, fields=tuple(attrs.evolve(f, name=name) for f, name in pairs))
    return View(statement.name.last, query, columns)
