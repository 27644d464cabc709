"""Checks the tables that a script reads and writes; every problem is recorded once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import attrs

from kdsl.cluster import Cluster
from kdsl.errors import Problem, ResolveError, Where
from kdsl.resolve import NO_TOPIC, problems
from kdsl.scripts.script_plan import ScriptTable


@attrs.define
class TableChecks:
    """Checks tables of topics as they are read or written.

    Attributes:
        cluster: The cluster of the run; None for that of each table.
    """

    cluster: Cluster | None
    _checked: set[tuple[Where, tuple[tuple[str, str, Where], ...], str]] = attrs.field(factory=set, init=False)

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
            yield from problems(definition, direction)
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
        yield from problems(definition, direction, self.cluster)


def check_metadata(table: ScriptTable) -> Iterator[Problem]:
    """Yield a problem for each metadata column that a sink without messages would write; Flink refuses it, too."""
    for column in table.declared.columns:
        if column.role == "metadata" and not column.virtual:
            message = f"the connector {table.connector!r} cannot write metadata, and this column would be written"
            fix = "declare it VIRTUAL, and select no value for it; or declare it without METADATA"
            yield Problem("metadata-sink", message, fix, attrs.evolve(column.where, column=column.name))
