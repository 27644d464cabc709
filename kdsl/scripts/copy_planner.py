"""Plans the copies of a script: finds what is copied and where it goes, and which copies read their topics together."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kdsl.cluster import Cluster
from kdsl.ddl.statements import CreateDatabase, CreateTable
from kdsl.errors import Problem, ResolveError, Where
from kdsl.ingest.run.raw import can_share
from kdsl.resolve import problems as problems_of_table
from kdsl.scripts.catalogs import ScriptCatalogs
from kdsl.scripts.copy_builder import CopyBuilder
from kdsl.scripts.copy_sources import ONLY_HINTS
from kdsl.scripts.copy_targets import CopyTarget, find_target
from kdsl.scripts.inferred_tables import InferredTables, find_errors_besides_columns, has_unknown_columns
from kdsl.scripts.names import ScriptNames
from kdsl.scripts.script_plan import Copy
from kdsl.scripts.settings import ScriptSettings
from kdsl.scripts.tables import ScriptTables


@attrs.define
class CopyPlanner:
    """Plans copies."""

    _names: ScriptNames
    _tables: ScriptTables
    _catalogs: ScriptCatalogs
    _inferred_tables: InferredTables
    _problems: list[Problem]
    _copied: dict[str, Where] = attrs.field(factory=dict, init=False)

    def plan(self, statements: Sequence[CreateTable | CreateDatabase], settings: ScriptSettings) -> list[list[Copy]]:
        """Plan copies that start together; those whose topics can be read together are in one list.

        A copy to what another one fills is a problem, and is left out, as is one that is wrong.
        """
        together: list[list[Copy]] = []
        for statement in statements:
            copy = self._plan_copy(statement, settings)
            if copy is None:
                continue
            if copy.name in self._copied:
                message = f"{copy.name} is filled by another statement, too, in line {self._copied[copy.name].line}"
                self._problems.append(Problem("copy-twice", message, "fill another table", statement.name.where))
                continue
            self._copied[copy.name] = statement.where
            group = next((each for each in together if can_share(each[0].feed, copy.feed)), None)
            if group is None:
                together.append([copy])
            else:
                group.append(copy)
        return together

    def _plan_copy(self, statement: CreateTable | CreateDatabase, settings: ScriptSettings) -> Copy | None:
        """Plan the copy of a statement; None if it is wrong, which is recorded."""
        target = find_target(statement, self._catalogs, self._problems)
        builder = CopyBuilder(settings)
        if isinstance(statement, CreateDatabase):
            copy = self._copy_database(statement, builder, target)
        else:
            copy = self._copy_table(statement, builder, target)
        self._problems += builder.problems
        return copy

    def _copy_table(self, statement: CreateTable, builder: CopyBuilder, target: CopyTarget | None) -> Copy | None:
        """Build the copy of ``CREATE TABLE … AS TABLE``; None if it is wrong; problems are recorded, also others.

        A table that is not found is copied as by `_copy_unchecked`, or recorded as missing.
        """
        assert statement.copy is not None
        name = statement.copy.table
        declared = self._names.find(name)
        if declared is None:
            self._report_missing(statement)
            return self._copy_unchecked(statement, builder, target)
        hints = statement.copy.options
        planned = self._tables.plan_with_options(declared, [hint for hint in hints if hint.key not in ONLY_HINTS])
        if planned.topic is None:
            message = f"{planned.name!r} is a table of the connector {planned.connector!r}, which has no topic to copy"
            fix = "copy a table of the connector 'kafka'"
            self._problems.append(Problem("copy-source", message, fix, name.where))
            return None
        definition = planned.topic.definition
        cluster: Cluster | None
        if has_unknown_columns(planned.declared):
            readable = not find_errors_besides_columns(definition)
        else:
            self._problems += self._tables.check_topic(planned, "read")
            errors = (p for p in problems_of_table(definition, "read", self._catalogs.cluster))
            readable = not any(p.severity == "error" for p in errors)
        try:
            cluster = planned.topic.cluster(self._catalogs.cluster)
        except ResolveError:  # reported where the table is checked
            cluster = None
        if target is None:
            return None
        only = [hint for hint in hints if hint.key in ONLY_HINTS]
        return builder.copy_table(
            statement, target, definition, planned.declared.options, cluster, only, readable=readable
        )

    def _report_missing(self, statement: CreateTable) -> None:
        """Record that there is no table to copy; a name in a Kafka catalog is recorded once.

        Nothing is recorded for a table whose statement or columns could not be read, or that is not checked.
        """
        assert statement.copy is not None
        name = statement.copy.table
        path = self._catalogs.path(name)
        if path is None:
            self._names.report_unknown(name, " to copy")
            return
        recorded = name.last in self._names.unread_names or name in self._inferred_tables.unchecked
        if not recorded and len(name.parts) < 3:  # a name of three parts is recorded where it is looked up
            self._inferred_tables.record_missing(path, name)

    def _copy_unchecked(self, statement: CreateTable, builder: CopyBuilder, target: CopyTarget | None) -> Copy | None:
        """Build the copy of a catalog's table whose columns only the cluster knows.

        None if the cluster was asked, the name does not mean a table of a catalog, there is no target, or the copy is
        wrong. Problems are recorded in the builder.
        """
        assert statement.copy is not None
        path = self._catalogs.path(statement.copy.table)
        if target is None or path is None or self._inferred_tables.inference is not None:
            return None
        return builder.copy_unknown_table(statement, target, self._catalogs.catalogs[path[0]], path[2])

    def _copy_database(self, statement: CreateDatabase, builder: CopyBuilder, target: CopyTarget | None) -> Copy | None:
        """Build the copy of ``CREATE DATABASE … AS DATABASE``; None if it is wrong, which is recorded."""
        source, where = self._catalogs.complete_database(statement.source), statement.source.where
        if not self._catalogs.has_database(*source, where):
            return None
        known = self._catalogs.catalogs.get(source[0])
        if known is None:
            message = f"{str(statement.source)!r} is not a database of a catalog of the type 'kafka'"
            fix = "copy a database of such a catalog; CREATE TABLE … AS TABLE copies a table of the script"
            self._problems.append(Problem("copy-source", message, fix, where))
            return None
        return None if target is None else builder.copy_database(statement, target, known)
