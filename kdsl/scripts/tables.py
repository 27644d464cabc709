"""Plans the tables of a script: their options are read, and those of ``SET`` and of hints applied."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kdsl.ddl.statements import Option
from kdsl.ddl.tables import DeclaredTable
from kdsl.errors import Problem
from kdsl.scripts.datagen import plan_generated_rows
from kdsl.scripts.options import read_script_options
from kdsl.scripts.script_plan import ScriptTable
from kdsl.scripts.settings import Settings
from kdsl.table import Table

DUPLICATE = "cdc-events-duplicate"
"""The option of change-data tables that store the last row of each key; Flink's setting for all tables ends with it."""


@attrs.define
class ScriptTables:
    """Plans tables, each once.

    Problems of tables whose connector is only for scripts are recorded; those of a topic's table are recorded where it
    is read or written (`TableChecks.check_topic`).
    """

    _problems: list[Problem]
    _planned: dict[int, ScriptTable] = attrs.field(factory=dict, init=False)
    _normalized: dict[int, tuple[ScriptTable, ScriptTable]] = attrs.field(factory=dict, init=False)

    def plan(self, declared: DeclaredTable) -> ScriptTable:
        """Return the plan of a declared table, which is the same object each time."""
        if id(declared) not in self._planned:
            self._planned[id(declared)] = self._plan(declared)
        return self._planned[id(declared)]

    def plan_with_options(self, declared: DeclaredTable, options: Sequence[Option]) -> ScriptTable:
        """Plan a declared table with options added or replaced."""
        if not options:
            return self.plan(declared)
        changed = {o.key for o in options}
        unchanged = [o for o in declared.statement.options if o.key not in changed]
        return self._plan(
            attrs.evolve(declared, statement=attrs.evolve(declared.statement, options=(*unchanged, *options)))
        )

    def _plan(self, declared: DeclaredTable) -> ScriptTable:
        """Plan a declared table."""
        connector = declared.connector
        if connector is None or connector.use != "script":
            return ScriptTable(declared, topic=Table(declared.definition()))
        options = read_script_options(declared)
        self._problems += [*declared.problems, *options.problems]
        if connector.name != "datagen":
            return ScriptTable(declared, options=options)
        rows, problems = plan_generated_rows(declared, options)
        self._problems += problems
        return ScriptTable(declared, options=options, generated=rows)

    def apply_settings(self, table: ScriptTable, settings: Settings) -> ScriptTable:
        """Return a table as queries read it: one of change data with the option `DUPLICATE` if ``SET`` wants it.

        A table that sets the option itself, or has no primary key, stays as it is. The result is the same object each
        time.
        """
        definition = None if table.topic is None else table.topic.definition
        if not settings.cdc_events_duplicate or not table.change_data or definition is None:
            return table
        if DUPLICATE in table.declared.options or not definition.primary_key:
            return table
        if id(table) not in self._normalized:
            option = Option(DUPLICATE, "true", table.declared.where)
            self._normalized[id(table)] = table, self.plan_with_options(table.declared, [option])
        return self._normalized[id(table)][1]
