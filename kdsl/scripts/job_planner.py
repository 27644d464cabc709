"""Plans the jobs of a script: each ``INSERT``, and each query whose rows are shown."""

from __future__ import annotations

import attrs

from kdsl.ddl.statements import Insert, Query
from kdsl.errors import Problem, Where
from kdsl.flink_sql.expressions.translator import translate_expression
from kdsl.flink_sql.expressions.values import TypedSql
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.scripts.job_checks import check_insert, check_query
from kdsl.scripts.names import ScriptNames
from kdsl.scripts.query_planner import PlannedQuery, QueryPlanner
from kdsl.scripts.script_plan import Job, ScriptTable
from kdsl.scripts.settings import ScriptSettings
from kdsl.scripts.sink_columns import SinkColumn, match_columns
from kdsl.scripts.tables import ScriptTables, check_metadata


@attrs.define
class JobPlanner:
    """Plans jobs: the sink, the query, the columns that are matched, and the checks."""

    _names: ScriptNames
    _tables: ScriptTables
    _queries: QueryPlanner
    _problems: list[Problem]

    def plan_insert(self, statement: Insert, settings: ScriptSettings, number: int, group: int) -> Job | None:
        """Plan the job of an ``INSERT``; None if its query is wrong or its table cannot be written.

        Args:
            statement: The statement.
            settings: The settings of ``SET``.
            number: The number of the job.
            group: The number of its statement set.
        """
        sink = self._find_sink(statement)
        query = self._queries.plan(statement.query, settings)
        if query is None or sink is None:
            return None
        columns = self._match_columns(statement, sink, query)
        job = self._make_job(query, sink, columns, settings, number, group, statement.where)
        self._problems += check_insert(job, statement, query.key, self._tables.cluster)
        return job

    def plan_select(self, statement: Query, settings: ScriptSettings, number: int, group: int) -> Job | None:
        """Plan the job of a query whose rows are shown; None if it is wrong; the arguments are as in `plan_insert`."""
        query = self._queries.plan(statement.query, settings)
        if query is None:
            return None
        fields = query.translated.columns.fields
        columns = tuple(SinkColumn(f.name, f.type, f.type, i) for i, f in enumerate(fields))
        return self._make_job(query, None, columns, settings, number, group, statement.where)

    def _find_sink(self, statement: Insert) -> ScriptTable | None:
        """Return the table that an INSERT writes to, with the options of its hint; record its problems.

        None if it does not exist, cannot be written (``datagen``), or its declaration could not be read (no new
        problem).
        """
        declared = self._names.find(statement.table)
        if declared is None:
            self._names.report_unknown(statement.table, " to write to", views=False)
            return None
        if statement.overwrite:
            message = "INSERT OVERWRITE replaces existing rows, which is impossible in a topic"
            fix = "write INSERT INTO, which adds the rows to those of the topic"
            self._problems.append(Problem("insert-overwrite", message, fix, statement.where))
        table = self._tables.plan_with_options(declared, statement.options)
        if table.connector == "datagen":
            message = f"{declared.name!r} is a table of the connector 'datagen', which cannot be written"
            fix = "write into a table of 'kafka', 'upsert-kafka', 'print' or 'blackhole'"
            self._problems.append(Problem("insert-sink", message, fix, statement.table.where))
            return None
        self._problems += check_metadata(table) if table.topic is None else self._tables.check_topic(table, "write")
        return table

    def _match_columns(self, statement: Insert, sink: ScriptTable, query: PlannedQuery) -> tuple[SinkColumn, ...]:
        """Match the columns of a sink with those of the query and the constants of ``PARTITION``; record problems.

        Those about columns or types that could not be read are left out.
        """
        constants: dict[str, TypedSql] = {}
        for column, fragment in statement.partition:
            try:
                constants[column] = translate_expression(fragment.text, {})
            except UntranslatableError as e:
                self._problems.append(Problem("sql-query", e.reason, e.fix, fragment.where(e.position, len(e.name))))
        columns, problems = match_columns(sink.declared, query.translated, statement.columns, constants)
        if sink.name in self._names.unread_names:
            problems = []
        elif any(not c.type_known for table in (sink, *query.tables.values()) for c in table.declared.columns):
            problems = [p for p in problems if p.code != "insert-type"]
        self._problems += [p.at(statement.query.where(table=sink.name)) for p in problems]
        return columns

    def _make_job(
        self,
        query: PlannedQuery,
        sink: ScriptTable | None,
        columns: tuple[SinkColumn, ...],
        settings: ScriptSettings,
        number: int,
        group: int,
        where: Where,
    ) -> Job:
        """Make the job of a query; problems of its tables and of its query are recorded."""
        job = Job(
            number, query.translated, sink, columns, query.tables, query.views, settings, group, where, query.at_once
        )
        for table in query.tables.values():
            self._problems += self._tables.check_topic(table, "read")
        self._problems += check_query(job, query.fragment, query.key)
        return job
