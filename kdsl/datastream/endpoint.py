"""What a source and a sink have in common: the cluster they connect to, and how they are checked."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import ClassVar

import attrs

from kdsl.client_settings.properties import Properties
from kdsl.cluster import Cluster
from kdsl.datastream.calls import BuilderTableDef, CallSites, unique_problems
from kdsl.datastream.settings import connection_problems, make_cluster
from kdsl.declare.connector import KafkaOptions, Latency, Transport
from kdsl.errors import Problem, Where, fail_on
from kdsl.formats import Direction
from kdsl.resolve import problems
from kdsl.resolve.transport import choose_transport

_log = logging.getLogger("kdsl")


@attrs.frozen
class Endpoint:
    """The base class of a source and a sink."""

    name: str
    bootstrap_servers: str | None
    cluster: Cluster | None
    properties: Properties
    parallelism: int | None
    transport: Transport | None
    latency: Latency
    _call_sites: CallSites = attrs.field(eq=False, repr=False)

    direction: ClassVar[Direction]
    schema_setting: ClassVar[str]
    """The setting for formats, and for all that the builder of a serializer sets."""

    def _definition(self) -> BuilderTableDef:
        """Return the definition of the table that the resolver checks; each subclass implements it."""
        raise NotImplementedError

    def _own_problems(self) -> Iterator[Problem]:
        """Yield the problems that the table definition cannot show; each subclass implements it."""
        raise NotImplementedError

    def _check(self, earlier: list[Problem]) -> None:
        """Check the description: log the warnings, and raise all errors at once."""
        where = attrs.evolve(self._call_sites.where, table=self.name)
        own = [*earlier, *self._call_sites.repetitions(), *self._connection_problems(), *self._own_problems()]
        found_at = f" ({where.location})" if where.location else ""
        every = unique_problems([*own, *problems(self._definition(), self.direction)], where)
        for warning in fail_on(every, f"{self.name}{found_at}"):
            _log.warning("%s", warning)

    def _connection_problems(self) -> Iterator[Problem]:
        """Yield the problems of the brokers that are named, and of the settings of a cluster."""
        declared = KafkaOptions(transport=self.transport).valid().transport
        transport = choose_transport(declared, self._all_properties().reveal())
        return connection_problems(self.cluster, self.bootstrap_servers, self.properties, self._call_sites, transport)

    def _latency_problems(self, setting: str, *, python: bool) -> Iterator[Problem]:
        """Report a Python function of a setting if the latency is real-time mode, which runs none."""
        if self.latency == "realtime" and python:
            sites, latency = self._call_sites, self._call_sites.with_value("latency", "realtime")
            message = f"{sites.name(setting)} is a Python function, and {latency} runs none"
            fix = f"write {sites.with_value('latency', 'micro-batch')}, or take records as strings or bytes"
            yield sites.problem(setting, "realtime-function", message, fix)

    def _cluster(self) -> Cluster:
        """Return the cluster to connect to, with all client properties; the description has no errors."""
        return make_cluster(self.cluster, self.bootstrap_servers, self.properties)

    def _all_properties(self) -> Properties:
        """Return the client properties of the cluster, if there is one, overridden by those of the source or sink."""
        return self.properties if self.cluster is None else self.cluster.properties.merge(self.properties)

    def _option_locations(self, settings: Mapping[str, str]) -> dict[str, Where]:
        """Collect the location of each option and property that has its own, by its key."""
        keys = {name: a.metadata["key"] for name, a in attrs.fields_dict(KafkaOptions).items()}
        by_key = {keys[attribute]: setting for attribute, setting in settings.items()}
        by_key |= {"key.format": self.schema_setting, "value.format": self.schema_setting}
        by_key |= {f"properties.{key}": setting for key, setting in NAMED_PROPERTIES.items()}
        locations = self._call_sites.locations
        own = {key: self.schema_setting if setting.startswith("set_") else setting for key, setting in by_key.items()}
        options = {key: locations[setting] for key, setting in own.items() if setting in locations}
        return options | {key: where for key, where in locations.items() if key.startswith("properties.")}


NAMED_PROPERTIES = {"group.id": "group_id", "client.id.prefix": "client_id_prefix"}
"""The properties that have a setting of their own."""
