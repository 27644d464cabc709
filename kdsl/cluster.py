"""Where a Kafka cluster is and how to talk to it: a value apart from any table, from code, YAML or the environment.

A cluster is declared on the driver. What travels to executors is its detached form, in which every secret is a
reference; `Cluster.consumer`, `producer` and `admin` resolve them, in the process that makes the client.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import unquote

import attrs
import yaml

from kdsl.client.connector import ConnectorSettings, connector_settings
from kdsl.client.hiding import LOGIN, without_login
from kdsl.client.java import JavaSettings, java_settings
from kdsl.client.machine import Machine, ThisMachine
from kdsl.client.model import Client
from kdsl.client.properties import Properties, Value, value_problems
from kdsl.client.translate import Translated, admin_settings, consumer_settings, producer_settings
from kdsl.errors import Problem, ProblemError, ResolveError, Where, fail_on, listing, nearest
from kdsl.secrets import SecretError, resolve

SERVERS = "bootstrap.servers"
_PREFIX = "properties."
_REGISTRY = "registry."


def _joined(given: str | Sequence[str]) -> str:
    entries = given.split(",") if isinstance(given, str) else given
    return ",".join(part for entry in entries if (part := entry.strip()))


@attrs.frozen
class Registry:
    """Where a schema registry is.

    Attributes:
        url: Its address; several are separated by commas. A user and a password within it become the property
            ``basic-auth.user-info``.
        properties: Further settings of its client, such as ``basic-auth.user-info``.
    """

    url: str
    properties: Properties = attrs.field(factory=Properties, converter=Properties)

    def __attrs_post_init__(self) -> None:
        user_info = [f"{unquote(m['user'])}:{unquote(m['password'])}" for m in LOGIN.finditer(self.url)]
        if user_info:
            object.__setattr__(self, "url", without_login(self.url))
            given = Properties({"basic-auth.user-info": user_info[0]})
            object.__setattr__(self, "properties", given.merged(self.properties))


def _registry(given: Registry | str | None) -> Registry | None:
    return Registry(given) if isinstance(given, str) else given


@attrs.frozen
class Cluster:
    """A Kafka cluster.

    Attributes:
        bootstrap_servers: Brokers to begin with: ``host:port``, several with commas between them or as a sequence.
        properties: Settings of the Kafka clients by Java's names, as ``{"security.protocol": "SASL_SSL"}``. Secrets
            are best written as references (``${env:NAME}``, ``${file:PATH}``, ``${secret_values.NAME}``); those that
            are written out never print and never pickle.
        name: What messages call it.
        registry: The schema registry that goes with it, or its address.

    Two clusters are equal when all of that is. Nothing is judged until `problems`, or until a table is resolved.
    """

    bootstrap_servers: str = attrs.field(converter=_joined)
    properties: Properties = attrs.field(factory=Properties, converter=Properties, kw_only=True)
    name: str | None = attrs.field(default=None, kw_only=True)
    registry: Registry | None = attrs.field(default=None, converter=_registry, kw_only=True)

    @classmethod
    def from_env(cls, prefix: str = "KDSL_") -> Self:
        """The cluster that environment variables describe.

        ``KDSL_BOOTSTRAP_SERVERS`` (required), ``KDSL_PROPERTIES_SASL_MECHANISM`` and the like for client properties
        (``_`` stands for ``.``), ``KDSL_REGISTRY`` (its address), ``KDSL_REGISTRY_PROPERTIES_…``,
        ``KDSL_CLUSTER_NAME``.

        Args:
            prefix: How the variables' names begin.

        Raises:
            ResolveError: ``KDSL_BOOTSTRAP_SERVERS`` is not set.
        """

        def under(start: str) -> dict[str, Value]:
            start = f"{prefix}{start}"
            found = {key.removeprefix(start): value for key, value in os.environ.items() if key.startswith(start)}
            return {key.lower().replace("_", "."): value for key, value in sorted(found.items())}

        variable = f"{prefix}BOOTSTRAP_SERVERS"
        servers = os.environ.get(variable)
        if servers is None:
            message, fix = f"the environment variable {variable!r} is not set", "set it to host:port of the brokers"
            raise ResolveError(
                "the environment describes no cluster", [ProblemError(Problem("cluster-missing", message, fix))]
            )
        url = os.environ.get(f"{prefix}REGISTRY")
        registry = Registry(url, under("REGISTRY_PROPERTIES_")) if url else None
        name = os.environ.get(f"{prefix}CLUSTER_NAME")
        return cls(servers, properties=under("PROPERTIES_"), name=name, registry=registry)

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str], name: str | None = None) -> Self:
        """The cluster that a YAML document describes under ``clusters``.

        ```yaml
        clusters:
          production:
            bootstrap_servers: kafka1:9093,kafka2:9093
            properties:
              security.protocol: SASL_SSL
              sasl.mechanism: PLAIN
              sasl.jaas.config: ${file:/run/secrets/jaas}
            registry: {url: "https://registry", properties: {basic-auth.user-info: "${env:REGISTRY_USER}"}}
        ```

        Args:
            path: The document.
            name: Which cluster; not needed where there is one.

        Raises:
            ResolveError: The document has no such cluster, or it is written wrongly; all problems are told.
        """
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        return cls(**_from_document(document, name, str(path)))

    def with_properties(self, properties: Mapping[str, Value]) -> Self:
        """The cluster with more client properties, such as a table's own; they win over the cluster's."""
        return attrs.evolve(self, properties=self.properties.merged(properties))

    def settings(self) -> dict[str, str]:
        """The client properties with the brokers among them, literal secrets in the open: never print this."""
        return {**self.properties.revealed(), SERVERS: self.bootstrap_servers}

    def problems(self, transport: Literal["librdkafka", "jvm"] = "librdkafka") -> tuple[Problem, ...]:
        """Everything that is wrong with the cluster's settings, or left out by a transport.

        References are looked at but not resolved; see `unresolved` for those.

        Args:
            transport: The transport whose clients get the settings.
        """
        found = [*self._twice()]
        clients: tuple[Client, ...] = ("consumer", "producer", "admin")
        if transport == "jvm":
            return tuple(dict.fromkeys([*found, *(p for client in clients for p in self.java(client).problems)]))
        for make in (consumer_settings, producer_settings, admin_settings):
            found += make(self.settings()).problems
        return tuple(dict.fromkeys(found))

    def _twice(self) -> Iterable[Problem]:
        again = self.properties.get(SERVERS)
        if isinstance(again, str) and _joined(again) != self.bootstrap_servers:
            yield Problem(
                "bootstrap-servers-twice",
                f"bootstrap_servers is {self.bootstrap_servers!r}, but the properties have {SERVERS!r} {again!r}",
                f"remove {SERVERS!r} from the properties",
            )

    def unresolved(self) -> tuple[Problem, ...]:
        """The references that this process cannot resolve; values never show."""
        texts = {**self.settings(), **(self.registry.properties.revealed() if self.registry else {})}
        found = []
        for key, text in texts.items():
            try:
                resolve(text)
            except SecretError as e:
                found.append(
                    Problem("secret-reference", f"the value of {key!r} cannot be had: {e}", "correct the reference")
                )
        return tuple(found)

    def connector(self) -> ConnectorSettings:
        """What the connector itself takes from the properties, with references unresolved."""
        return connector_settings(self.settings())

    def detached(self) -> tuple[Self, dict[str, str]]:
        """The cluster without literal secrets, and the literals apart.

        The first may be pickled, printed and sent anywhere: each literal is the reference ``${given:KEY}``. The second
        travels beside it (as an option whose name Spark redacts); `attached` puts the two together again.
        """
        properties, literals = self.properties.split()
        registry = self.registry
        if registry is not None:
            apart, more = registry.properties.split(_REGISTRY)
            registry, literals = attrs.evolve(registry, properties=apart), {**literals, **more}
        return attrs.evolve(self, properties=properties, registry=registry), literals

    def attached(self, literals: Mapping[str, str]) -> Self:
        """The cluster with the literal secrets that `detached` took out."""
        registry = self.registry
        if registry is not None:
            registry = attrs.evolve(registry, properties=registry.properties.joined(literals, _REGISTRY))
        return attrs.evolve(self, properties=self.properties.joined(literals), registry=registry)

    def consumer(self, sizes: Mapping[str, str | int] | None = None, machine: Machine | None = None) -> dict[str, str]:
        """The settings for a ``confluent_kafka.Consumer``, secrets resolved in this process: never print or keep them.

        Java's defaults hold, then ``sizes``, then what the user chose, then what the connector fixes.

        Args:
            sizes: What the transport would choose, by librdkafka's names (``queued.min.messages``).
            machine: Finds key files, reads Java's stores, serves tokens; this one where it is None.

        Raises:
            ResolveError: The settings have errors, or a reference cannot be resolved here.
        """
        return self._made(consumer_settings, sizes, machine)

    def producer(self, sizes: Mapping[str, str | int] | None = None, machine: Machine | None = None) -> dict[str, str]:
        """The settings for a ``confluent_kafka.Producer``; see `consumer`."""
        return self._made(producer_settings, sizes, machine)

    def admin(self, sizes: Mapping[str, str | int] | None = None, machine: Machine | None = None) -> dict[str, str]:
        """The settings for a ``confluent_kafka.admin.AdminClient``; see `consumer`."""
        return self._made(admin_settings, sizes, machine)

    def java(self, client: Client) -> JavaSettings:
        """The settings for a client of Java's, on the transport ``jvm``, references unresolved; see `java_settings`."""
        return java_settings(self.settings(), client)

    def _made(
        self, make: Callable[..., Translated], sizes: Mapping[str, str | int] | None, machine: Machine | None
    ) -> dict[str, str]:
        translated = make(self.settings(), resolve, machine or ThisMachine())
        subject = f"the cluster {self.name!r}" if self.name else "the cluster"
        fail_on((*self._twice(), *translated.problems), subject)
        return translated.merged(sizes)


_KEYS = ("bootstrap_servers", "properties", "registry")


def _from_document(document: object, name: str | None, file: str) -> dict[str, Any]:
    """The arguments of the cluster that a YAML document describes."""
    clusters = document.get("clusters") if isinstance(document, dict) else None
    if not isinstance(clusters, dict) or not clusters:
        raise _wrong_document(
            file, "$.clusters", "there is no mapping of clusters by name", "write clusters: {name: …}"
        )
    if name is None and len(clusters) > 1:
        known = listing(map(str, clusters))
        raise _wrong_document(file, "$.clusters", "there are several clusters", f"name one of {known}")
    name = next(iter(clusters)) if name is None else name
    if name not in clusters:
        message = f"there is no cluster {name!r}{nearest(name, map(str, clusters))}"
        raise _wrong_document(file, "$.clusters", message, f"name one of {listing(map(str, clusters))}")
    place = f"$.clusters.{name}"
    given = clusters[name]
    if not isinstance(given, dict):
        raise _wrong_document(file, place, "the cluster is no mapping", f"write {listing(_KEYS)} under its name")
    arguments, problems = _read_cluster(given, place)
    if problems:
        where = Where(file=file)
        raise ResolveError(
            f"the cluster {name!r} cannot be read", [ProblemError(problem.at(where)) for problem in problems]
        )
    return {**arguments, "name": name}


def _wrong_document(file: str, path: str, message: str, fix: str) -> ResolveError:
    problem = Problem("cluster-document", message, fix, Where(file=file, path=path))
    return ResolveError(f"{file} describes no such cluster", [ProblemError(problem)])


def _read_cluster(given: Mapping[Any, Any], place: str) -> tuple[dict[str, Any], list[Problem]]:
    arguments: dict[str, Any] = {}
    problems: list[Problem] = []
    properties: dict[Any, Any] = {}

    def wrong(path: str, message: str, fix: str) -> None:
        problems.append(Problem("cluster-document", message, fix, Where(path=path)))

    def texts(values: object, path: str) -> dict[Any, Any]:
        if not isinstance(values, dict):
            wrong(path, "this is no mapping", "write settings by their names")
            return {}
        for key, value in values.items():
            problems.extend(p.at(Where(path=f"{path}.{key}")) for p in value_problems(key, value))
        return values

    for key, value in given.items():
        path = f"{place}.{key}"
        if key in ("bootstrap_servers", SERVERS):
            entries = value if isinstance(value, list) else [value]
            if not all(isinstance(entry, str) for entry in entries):
                wrong(path, "this is no text and no list of texts", "write host:port, several with commas between them")
            else:
                arguments["bootstrap_servers"] = entries
        elif key == "properties":
            properties |= texts(value, path)
        elif isinstance(key, str) and key.startswith(_PREFIX):
            properties |= texts({key.removeprefix(_PREFIX): value}, place)
        elif key == "registry":
            arguments["registry"] = value if isinstance(value, str) else _read_registry(value, path, texts, wrong)
        else:
            wrong(path, f"a cluster has no {key!r}{nearest(str(key), _KEYS)}", f"it has {listing(_KEYS)}")
    if SERVERS in properties and "bootstrap_servers" not in arguments:
        arguments["bootstrap_servers"] = str(properties.pop(SERVERS))
    if "bootstrap_servers" not in arguments and not problems:
        wrong(place, "the cluster has no bootstrap_servers", "write bootstrap_servers: host:port")
    return {**arguments, "properties": properties}, problems


def _read_registry(
    value: object,
    path: str,
    texts: Callable[[object, str], dict[Any, Any]],
    wrong: Callable[[str, str, str], None],
) -> Registry | None:
    if not isinstance(value, dict) or not isinstance(value.get("url"), str):
        wrong(path, "this is no address of a registry", "write registry: https://…, or url and properties under it")
        return None
    for key in value:
        if key not in ("url", "properties"):
            fix = "it has 'url' and 'properties'"
            wrong(f"{path}.{key}", f"a registry has no {key!r}{nearest(str(key), ['url', 'properties'])}", fix)
    found = texts(value.get("properties", {}), f"{path}.properties")
    return None if any(list(value_problems(k, v)) for k, v in found.items()) else Registry(value["url"], found)
