"""Plans and checks the tables of a script: their options, and those that ``SET`` and hints add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import attrs

from kdsl.cluster import Cluster
from kdsl.ddl.statements import Option
from kdsl.ddl.tables import DeclaredTable
from kdsl.errors import Problem, ResolveError, Where
from kdsl.resolve import NO_TOPIC, problems as find_problems
from kdsl.scripts.datagen import plan_generated_rows
from kdsl.scripts.options import read_script_options
from kdsl.scripts.script_plan import ScriptTable
from kdsl.scripts.settings import ScriptSettings
from kdsl.table import Table

DUPLICATE = "cdc-events-duplicate"
"""The option of change-data tables that store the last row of each key; Flink's setting for all tables ends with it."""


@attrs.define
class ScriptTables:
    """Plans tables, and checks those of topics as they are read or written; each once.

    Problems of tables whose connector is only for scripts are recorded when they are planned.

    Attributes:
        cluster: The cluster of the run; None for that of each table.
    """

    cluster: Cluster | None
    _problems: list[Problem]
    _planned: dict[int, ScriptTable] = attrs.field(factory=dict, init=False)
    _normalized: dict[int, tuple[ScriptTable, ScriptTable]] = attrs.field(factory=dict, init=False)
    _checked: set[tuple[Where, tuple[tuple[str, str, Where], ...], str]] = attrs.field(factory=set, init=False)

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

    def apply_settings(self, table: ScriptTable, settings: ScriptSettings) -> ScriptTable:
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

    def check_topic(self, table: ScriptTable, direction: Literal["read", "write"]) -> Iterator[Problem]:
        """Yield the problems of a topic's table for a direction, once for the same table and options.

        A table without a topic has none. Missing brokers are a problem.
        """
        options = tuple((o.key, o.value, o.where) for o in table.declared.statement.options)
        check = (table.declared.where, options, direction)
        if table.topic is None or check in self._checked:
            return
        self._checked.add(check)
        definition = table.topic.definition
        if any(p.code in NO_TOPIC for p in definition.problems) or not definition.complete:
            yield from find_problems(definition, direction)
            return
        if self.cluster is not None:
            try:
                definition = attrs.evolve(definition, properties=table.topic.cluster(self.cluster).properties)
            except ResolveError as e:
                yield from e.problems
        elif definition.properties.get("bootstrap.servers") is None:
            message = f"{table.name} does not name its brokers"
            fix = "set 'properties.bootstrap.servers', or run it with --bootstrap"
            yield Problem("cluster-missing", message, fix, table.declared.where)
        chosen = definition.value_format
        if direction == "read" and chosen is not None and chosen.on_unavailable == "keep":
            key = f"'{chosen.deciding_option('on_unavailable')[1]}'"
            message = f"{table.name} is read with {key} = 'keep', and SQL cannot leave a value unchanged"
            fix = f"set {key} = 'null', which reads NULL for such a value, or remove it to get an error; or read the "
            fix += "table in Python"
            yield Problem("unavailable-keep", message, fix, table.declared.where)
        yield from find_problems(definition, direction, self.cluster)


def check_metadata(table: ScriptTable) -> Iterator[Problem]:
    """Yield a problem for each metadata column that a sink without messages would write; Flink refuses it, too."""
    for column in table.declared.columns:
        if column.role == "metadata" and not column.virtual:
            message = f"the connector {table.connector!r} cannot write metadata, and this column would be written"
            fix = "declare it VIRTUAL, and select no value for it; or declare it without METADATA"
            yield Problem("metadata-sink", message, fix, attrs.evolve(column.where, column=column.name))
