"""Plans a script: translates every query, matches every column, reports every problem.

It needs no Spark, and asks brokers and registries only to infer columns and to list the tables of catalogs. Each
statement goes one way: names and tables (`names`, `tables`), the query (`query_planner`), the columns that are matched
and the job (`job_planner`), the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from kdsl.catalog.stored import Inference
from kdsl.cluster import Cluster
from kdsl.ddl.script_reader import Script
from kdsl.ddl.statements import (
    AnyStatement,
    CreateCatalog,
    CreateDatabase,
    CreateTable,
    CreateView,
    Describe,
    Drop,
    DropCatalog,
    Explain,
    Insert,
    Query,
    ResetOption,
    SetOption,
    Show,
    StatementSet,
    Use,
)
from kdsl.errors import Problem, fail_on, file_position
from kdsl.scripts.catalogs import ScriptCatalogs
from kdsl.scripts.copy_planner import CopyPlanner
from kdsl.scripts.inferred_tables import InferredTables, has_unknown_columns
from kdsl.scripts.job_planner import JobPlanner
from kdsl.scripts.listings import describe_row, describe_table, show_names
from kdsl.scripts.names import ScriptNames
from kdsl.scripts.query_planner import QueryPlanner
from kdsl.scripts.script_plan import AnyJob, CopyJob, Listing, ScriptPlan
from kdsl.scripts.settings import SessionSettings
from kdsl.scripts.tables import ScriptTables

UNCHECKED = "inferred-unchecked"
"""The code of the warning that the columns of a table are inferred, and what uses them was not checked."""


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
    planner = _ScriptPlanner(script, cluster, SessionSettings(settings), checkpoint, inference)
    for statement in script.statements:
        planner.add_statement(statement)
    problems = tuple(sorted(dict.fromkeys([*script.problems, *planner.list_problems()]), key=file_position))
    warnings = tuple(p for p in problems if p.severity == "warning")
    inferred = {} if inference is None else dict(inference.inferred)
    tables = tuple(
        planner.tables.plan(table) for table in planner.names.used.values() if not has_unknown_columns(table)
    )
    folder = checkpoint or planner.settings.current.folder
    return ScriptPlan(tuple(planner.jobs), warnings, tables, tuple(planner.listings), inferred, folder), problems


class _ScriptPlanner:
    """Gives each statement to what plans it, and collects jobs and listings."""

    def __init__(
        self,
        script: Script,
        cluster: Cluster | None,
        settings: SessionSettings,
        checkpoint: str | None,
        inference: Inference | None,
    ) -> None:
        self.settings = settings
        self.jobs: list[AnyJob] = []
        self.listings: list[Listing] = []
        self._problems = problems = list[Problem]()
        self._groups = 0
        self._catalogs = ScriptCatalogs(cluster, problems)
        self._inferred_tables = InferredTables(self._catalogs, inference, problems)
        self.names = ScriptNames(self._catalogs, self._inferred_tables, script.unread_names, problems)
        self.tables = ScriptTables(cluster, problems)
        self._queries = QueryPlanner(self.names, self.tables, checkpoint, problems)
        self._jobs = JobPlanner(self.names, self.tables, self._queries, problems)
        self._copies = CopyPlanner(self.names, self.tables, self._catalogs, self._inferred_tables, problems)

    def add_statement(self, statement: AnyStatement) -> None:
        """Apply a statement to the script: declare, drop, set, list, or plan a job; problems are recorded.

        EXPLAIN is always a problem, because it cannot be run in a script.
        """
        match statement:
            case CreateTable() if statement.copy is None:
                table = self.names.add_table(statement)
                if table is not None:
                    self.tables.plan(table)
            case CreateView():
                self._queries.add_view(statement, self.settings.current)
            case Drop():
                self.names.drop(statement)
            case CreateCatalog():
                self._catalogs.create(statement)
            case DropCatalog():
                self._catalogs.drop(statement)
            case Use():
                self._catalogs.use(statement)
            case Show():
                names = self.names.own_names()
                self._add_listing(show_names(statement, self._catalogs, self._inferred_tables, names))
            case Describe():
                self._add_listing(self._describe(statement))
            case SetOption() | ResetOption():
                self.settings.apply(statement)
            case StatementSet():
                self._add_jobs(statement.statements)
            case Insert() | Query() | CreateTable() | CreateDatabase():
                self._add_jobs([statement])
            case Explain():
                message = "EXPLAIN cannot be run in a script"
                fix = "remove it; kdsl run --dry-run shows the plans"
                self._problems.append(Problem("sql-explain", message, fix, statement.where))

    def _add_jobs(self, statements: Sequence[Insert | Query | CreateTable | CreateDatabase]) -> None:
        """Plan the jobs of statements that start together; the copies among them come last."""
        self._groups += 1
        settings = self.settings.current
        copies: list[CreateTable | CreateDatabase] = []
        for statement in statements:
            number = len(self.jobs) + 1
            match statement:
                case Insert():
                    job = self._jobs.plan_insert(statement, settings, number, self._groups)
                case Query():
                    job = self._jobs.plan_select(statement, settings, number, self._groups)
                case _:
                    copies.append(statement)
                    continue
            self.jobs += [] if job is None else [job]
        for together in self._copies.plan(copies, settings) if copies else ():
            number = len(self.jobs) + 1
            self.jobs.append(CopyJob(number, tuple(together), settings, self._groups, together[0].where))

    def _add_listing(self, listing: Listing | None) -> None:
        """Add what a statement shows, to be shown after the jobs so far; nothing for None."""
        if listing is not None:
            self.listings.append(attrs.evolve(listing, after=len(self.jobs)))

    def _describe(self, statement: Describe) -> Listing | None:
        """What ``DESCRIBE`` shows of a table or a view; None for an unknown name, which is recorded."""
        name = statement.table
        view = self.names.views.get(name.last)
        if view is not None and len(name.parts) == 1:
            return describe_row(next(iter(view.by_mode.values())).columns)
        table = self.names.find(name)
        if table is None:
            self.names.report_unknown(name)
            return None
        return describe_table(table)

    def list_problems(self) -> list[Problem]:
        """All problems so far, and a warning for each table whose columns only the cluster knows."""
        problems = [*self._problems, *self.settings.problems]
        for name in self._inferred_tables.unchecked if self._inferred_tables.inference is None else ():
            message = f"the columns of {name} are inferred when the script runs, and what uses them is not checked here"
            fix = "`kdsl run --dry-run` asks the cluster, and checks it; or declare the columns in CREATE TABLE"
            problems.append(Problem(UNCHECKED, message, fix, name.where, "warning"))
        return problems
