"""What a source and a sink of the builder have in common: where they connect to, and how they are judged."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import ClassVar

import attrs

from kdsl.builders.calls import BuiltDef, Said, gathered
from kdsl.builders.settings import connection, own_cluster
from kdsl.client.properties import Properties
from kdsl.cluster import Cluster
from kdsl.declare.connector import Latency, Transport
from kdsl.errors import Problem, Where, fail_on
from kdsl.formats import Direction
from kdsl.resolve import problems

_log = logging.getLogger("kdsl")


class Connected:
    """A source or sink that a builder makes; a frozen attrs class, whose attributes stand here for type checkers."""

    __slots__ = ()

    name: str
    bootstrap_servers: str | None
    cluster: Cluster | None
    properties: Properties
    transport: Transport
    latency: Latency
    _said: Said

    direction: ClassVar[Direction]
    settings_of: ClassVar[Mapping[str, str]]
    """The builder's setting for each option of a table, by the option's key."""

    def _definition(self) -> BuiltDef:
        raise NotImplementedError

    def _own_problems(self) -> Iterator[Problem]:
        raise NotImplementedError

    def _judge(self, found: list[Problem]) -> None:
        """Tell all that is wrong; what is only doubtful goes to the log.

        Args:
            found: What was found wrong so far.

        Raises:
            ResolveError: Something is an error.
        """
        where = attrs.evolve(self._said.where, table=self.name)
        table = self._definition()
        told = [*found, *self._said.repeated(), *self._connection(), *self._own_problems()]
        place = f" ({where.place})" if where.place else ""
        for warning in fail_on(gathered([*told, *problems(table, self.direction)], where), f"{self.name}{place}"):
            _log.warning("%s", warning)

    def _connection(self) -> Iterator[Problem]:
        return connection(self.cluster, self.bootstrap_servers, self.properties, self._said, self.transport)

    def _latency_problems(self, setting: str, *, python: bool) -> Iterator[Problem]:
        """Real-time mode runs no Python."""
        if self.latency == "realtime" and python:
            said, shown = self._said, self._said.with_value("latency", "realtime")
            message = f"{said.name(setting)} is a Python function, and {shown} runs none"
            fix = f"write {said.with_value('latency', 'micro-batch')}, or take records as text or bytes"
            yield said.problem(setting, "realtime-function", message, fix)

    def _cluster(self) -> Cluster:
        return own_cluster(self.cluster, self.bootstrap_servers, self.properties)

    def _merged(self) -> Properties:
        return self.properties if self.cluster is None else self.cluster.properties.merged(self.properties)

    def _places(self) -> dict[str, Where]:
        """The place of each option and property that has one of its own."""
        said = self._said.places
        options = {key: said[setting] for key, setting in self.settings_of.items() if setting in said}
        return options | {key: where for key, where in said.items() if key.startswith("properties.")}
