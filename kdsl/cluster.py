"""Where a Kafka cluster is and how to connect to it: a value apart from any table, from code, YAML or the environment.

A cluster is declared on the driver. Executors get it with every secret replaced by a reference (`split_literals`);
`Cluster.consumer`, `producer` and `admin` resolve references in the process that creates the client.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import unquote

import attrs

from kdsl.client_settings.bootstrap import show_servers
from kdsl.client_settings.kdsl_settings import KdslSettings, kdsl_settings
from kdsl.client_settings.machine import Machine
from kdsl.client_settings.model import CLIENT_KINDS, Client
from kdsl.client_settings.properties import Properties, Value, check_property_type
from kdsl.client_settings.to_java import JavaSettings, java_settings
from kdsl.client_settings.to_librdkafka import librdkafka_settings
from kdsl.documents import YamlDocument, read_text
from kdsl.errors import Problem, ProblemError, ResolveError, SecretError, Where, fail_on, listing, nearest
from kdsl.secrets import resolve
from kdsl.secrets.hiding import LOGIN, remove_login
from kdsl.secrets.reference import UNRESOLVED_FIX

SERVERS = "bootstrap.servers"
_PREFIX = "properties."
_REGISTRY = "registry."


def _join_servers(servers: str | Sequence[str]) -> str:
    """Join bootstrap servers with commas, without the spaces around them and without empty ones."""
    entries = servers.split(",") if isinstance(servers, str) else servers
    return ",".join(part for entry in entries if (part := entry.strip()))


@attrs.frozen
class Registry:
    """A schema registry.

    Attributes:
        url: Its URL; several are separated by commas. A user and a password within it become the property
            ``basic-auth.user-info``.
        properties: Further settings of its client, such as ``basic-auth.user-info``.
    """

    url: str
    properties: Properties = attrs.field(factory=Properties, converter=Properties)

    def __attrs_post_init__(self) -> None:
        """Move a login in the URL to the properties; a ``basic-auth.user-info`` among these replaces it."""
        user_info = login_of(self.url)
        if user_info is not None:
            object.__setattr__(self, "url", remove_login(self.url))
            login = Properties({"basic-auth.user-info": user_info})
            object.__setattr__(self, "properties", login.merge(self.properties))


def login_of(url: str) -> str | None:
    """The first login with a password in one or several URLs, percent-decoded, as ``user:password``.

    Without one it is the first user alone, as ``user:`` (only in a URL with a scheme); None if there is no login.
    """
    if login := LOGIN.search(url):
        return f"{unquote(login['user'])}:{unquote(login['password'])}"
    user = re.search(r"(?<=://)[^/@\s]+(?=@)", url)  # which may be a token
    return None if user is None else f"{unquote(user[0])}:"


def _registry(registry: Registry | str | None) -> Registry | None:
    """Turn the URL of a registry into a `Registry`; return a registry or None as it is."""
    return Registry(registry) if isinstance(registry, str) else registry


@attrs.frozen
class Cluster:
    """A Kafka cluster.

    Attributes:
        bootstrap_servers: The bootstrap servers: ``host:port``, several separated by commas or as a sequence.
        properties: Settings of the Kafka clients by Java's names, as ``{"security.protocol": "SASL_SSL"}``. Write
            secrets as references (``${env:NAME}``, ``${file:PATH}``, ``${secret_values.NAME}``); secrets that are
            written out are never printed or pickled.
        name: Its name in messages.
        registry: The schema registry of the cluster, or its URL.

    Clusters are equal if all attributes are equal. Settings are checked by `problems`, or when a table is resolved.
    """

    bootstrap_servers: str = attrs.field(converter=_join_servers, repr=lambda servers: repr(show_servers(servers)))
    properties: Properties = attrs.field(factory=Properties, converter=Properties, kw_only=True)
    name: str | None = attrs.field(default=None, kw_only=True)
    registry: Registry | None = attrs.field(default=None, converter=_registry, kw_only=True)

    @classmethod
    def from_env(cls, prefix: str = "KDSL_") -> Self:
        """The cluster that environment variables describe.

        ``KDSL_BOOTSTRAP_SERVERS`` (required), ``KDSL_PROPERTIES_SASL_MECHANISM`` and the like for client properties
        (``_`` stands for ``.``, and capitals for small letters), ``KDSL_REGISTRY`` (its address),
        ``KDSL_REGISTRY_PROPERTIES_…`` (ignored without an address), ``KDSL_CLUSTER_NAME``.

        Args:
            prefix: How the variables' names begin.

        Raises:
            ResolveError: ``KDSL_BOOTSTRAP_SERVERS`` is not set; values are not checked here.
        """

        def read_variables(start: str) -> dict[str, Value]:
            start = f"{prefix}{start}"
            variables = {key.removeprefix(start): value for key, value in os.environ.items() if key.startswith(start)}
            return {key.lower().replace("_", "."): value for key, value in sorted(variables.items())}

        variable = f"{prefix}BOOTSTRAP_SERVERS"
        servers = os.environ.get(variable)
        if servers is None:
            message, fix = f"the environment variable {variable!r} is not set", "set it to host:port of the brokers"
            raise ResolveError(
                "the environment describes no cluster", [ProblemError(Problem("cluster-missing", message, fix))]
            )
        url = os.environ.get(f"{prefix}REGISTRY")
        registry = Registry(url, read_variables("REGISTRY_PROPERTIES_")) if url else None
        name = os.environ.get(f"{prefix}CLUSTER_NAME")
        return cls(servers, properties=read_variables("PROPERTIES_"), name=name, registry=registry)

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
            ResolveError: The document is not UTF-8 or not valid YAML, has no such cluster, or several and ``name`` is
                None, or describes it wrongly; all problems are reported, and none of them quotes the document, which
                may hold passwords.
            OSError: The file cannot be read.
        """
        document = YamlDocument(read_text(Path(path), "document", "yaml"), str(path), _is_setting)
        fail_on(document.problems, str(path))
        return cls(**_from_document(document, name))

    def with_properties(self, properties: Mapping[str, Value]) -> Self:
        """Return the cluster with further client properties, such as a table's own, which override the cluster's.

        Raises:
            ResolveError: Values are not strings, numbers or booleans.
        """
        return attrs.evolve(self, properties=self.properties.merge(properties))

    @property
    def label(self) -> str:
        """Its name, or else its bootstrap servers, for messages."""
        return self.name or show_servers(self.bootstrap_servers)

    def settings(self) -> dict[str, str]:
        """Return the client properties including `bootstrap_servers` and literal secrets: never print them.

        References are not resolved.
        """
        return {**self.properties.reveal(), SERVERS: self.bootstrap_servers}

    def problems(self, transport: Literal["librdkafka", "jvm"] = "librdkafka") -> tuple[Problem, ...]:
        """Check the client settings of consumer, producer and admin client; return errors and warnings.

        No file is read, and references are parsed but not resolved; see `check_references` for those. The registry is
        not checked.

        Args:
            transport: The transport whose clients get the settings.
        """
        translate = java_settings if transport == "jvm" else librdkafka_settings
        problems = [*self._check_conflict()]
        for client in CLIENT_KINDS:
            problems += translate(self.settings(), client).problems
        return tuple(dict.fromkeys(problems))

    def _check_conflict(self) -> Iterable[Problem]:
        """Yield a problem if the properties list other brokers than ``bootstrap_servers``, or in another order.

        Blanks do not count, and a `Secret` is skipped.
        """
        again = self.properties.get(SERVERS)
        if isinstance(again, str) and _join_servers(again) != self.bootstrap_servers:
            yield Problem(
                "bootstrap-servers-twice",
                f"bootstrap_servers is {show_servers(self.bootstrap_servers)!r}, but the properties have {SERVERS!r} "
                f"{show_servers(again)!r}",
                f"remove {SERVERS!r} from the properties",
            )

    def check_references(self) -> tuple[Problem, ...]:
        """Check that this process can resolve all references in the properties of the cluster and of its registry.

        It resolves them, which may read files and ask providers.

        Returns:
            A problem for each property that it cannot resolve; none contains a value.
        """
        texts = {**self.settings(), **(self.registry.properties.reveal() if self.registry else {})}
        problems = []
        for key, text in texts.items():
            try:
                resolve(text)
            except SecretError as e:
                message = f"the value of {key!r} cannot be resolved: {e}"
                problems.append(Problem("secret-reference", message, UNRESOLVED_FIX))
        return tuple(problems)

    @cached_property
    def kdsl_settings(self) -> KdslSettings:
        """The settings that kdsl keeps for itself, read once for each object; a reference counts as not set."""
        return kdsl_settings(self.settings())

    def split_literals(self) -> tuple[Self, dict[str, str]]:
        """Separate the literal secrets from the cluster.

        The returned cluster may be pickled, printed and sent anywhere: each literal is replaced by the reference
        ``${given:KEY}``. The literals are sent separately (as an option whose name Spark redacts); `with_literals` puts
        the two together again.
        """
        properties, literals = self.properties.split()
        registry = self.registry
        if registry is not None:
            apart, more = registry.properties.split(_REGISTRY)
            registry, literals = attrs.evolve(registry, properties=apart), {**literals, **more}
        return attrs.evolve(self, properties=properties, registry=registry), literals

    def with_literals(self, literals: Mapping[str, str]) -> Self:
        """The cluster with the literal secrets that `split_literals` separated, in place of their references.

        A reference whose literal is missing stays.
        """
        registry = self.registry
        if registry is not None:
            registry = attrs.evolve(registry, properties=registry.properties.with_literals(literals, _REGISTRY))
        return attrs.evolve(self, properties=self.properties.with_literals(literals), registry=registry)

    def consumer(self, sizes: Mapping[str, str | int] | None = None) -> dict[str, Any]:
        """The settings for a ``confluent_kafka.Consumer``, secrets resolved in this process: never print or keep them.

        Java's defaults are overridden by ``sizes``, these by the user's settings, and these by what kdsl fixes.

        Args:
            sizes: The transport's preferences, by librdkafka's names (``queued.min.messages``).

        Raises:
            ResolveError: The settings have errors, or a reference cannot be resolved here.
        """
        return self._create_config("consumer", sizes)

    def producer(self, sizes: Mapping[str, str | int] | None = None) -> dict[str, Any]:
        """The settings for a ``confluent_kafka.Producer``; see `consumer`, also for errors."""
        return self._create_config("producer", sizes)

    def admin(self, sizes: Mapping[str, str | int] | None = None) -> dict[str, Any]:
        """The settings for a ``confluent_kafka.admin.AdminClient``; see `consumer`, also for errors."""
        return self._create_config("admin", sizes)

    def java(self, client: Client) -> JavaSettings:
        """The settings for a client of Java's, on the transport ``jvm``, references unresolved; see `java_settings`."""
        return java_settings(self.settings(), client)

    def _create_config(self, client: Client, sizes: Mapping[str, str | int] | None) -> dict[str, Any]:
        """Translate the settings with resolved secrets to a configuration of librdkafka."""
        translated = librdkafka_settings(self.settings(), client, resolve, Machine())
        subject = f"the cluster {self.name!r}" if self.name else "the cluster"
        fail_on((*self._check_conflict(), *translated.problems), subject)
        return translated.client_config(sizes)


_KEYS = ("bootstrap_servers", "properties", "registry")


def _is_setting(path: str) -> bool:
    """Whether a value of a document is a client setting, which is always read as a string."""
    return ".properties." in path


def _from_document(document: YamlDocument, name: str | None) -> dict[str, Any]:
    """Return the constructor's arguments for the cluster that a YAML document describes."""

    def wrong_document(path: str, message: str, fix: str) -> ResolveError:
        problem = Problem("cluster-document", message, fix, document.where(path))
        return ResolveError(f"{document.file} describes no such cluster", [ProblemError(problem)])

    clusters = document.value.get("clusters") if isinstance(document.value, dict) else None
    if not isinstance(clusters, dict) or not clusters:
        raise wrong_document("$.clusters", "there is no mapping of clusters by name", "write clusters: {name: …}")
    fix = f"pass one of the names {listing(clusters)} as name= (in the CLI --cluster)"
    if name is None and len(clusters) > 1:
        raise wrong_document("$.clusters", "there are several clusters, and none is chosen", fix)
    name = next(iter(clusters)) if name is None else name
    if name not in clusters:
        message = f"there is no cluster {name!r}{nearest(name, clusters)}"
        raise wrong_document("$.clusters", message, fix)
    path = f"$.clusters.{name}"
    declared = clusters[name]
    if not isinstance(declared, dict):
        raise wrong_document(path, "the cluster is not a mapping", f"write {listing(_KEYS)} under its name")
    arguments, problems = _read_cluster(declared, path)
    if problems:
        raise ResolveError(
            f"the cluster {name!r} cannot be read",
            [ProblemError(problem.at(document.where(problem.where.path or path))) for problem in problems],
        )
    return {**arguments, "name": name}


def _read_cluster(declared: Mapping[Any, Any], cluster_path: str) -> tuple[dict[str, Any], list[Problem]]:
    """Read a cluster of a document: the constructor's arguments, and the mistakes.

    After mistakes the arguments are of no use: some are missing, and properties may have wrong values.
    """
    arguments: dict[str, Any] = {}
    problems: list[Problem] = []
    properties: dict[Any, Any] = {}

    def report(path: str, message: str, fix: str) -> None:
        problems.append(Problem("cluster-document", message, fix, Where(path=path)))

    def read_settings(values: object, path: str) -> dict[Any, Any]:
        if not isinstance(values, dict):
            report(path, "this is not a mapping", "write settings by their names")
            return {}
        for key, value in values.items():
            problems.extend(p.at(Where(path=f"{path}.{key}")) for p in check_property_type(key, value))
        return values

    for key, value in declared.items():
        path = f"{cluster_path}.{key}"
        if key in ("bootstrap_servers", SERVERS):
            entries = value if isinstance(value, list) else [value]
            if not all(isinstance(entry, str) for entry in entries):
                report(
                    path,
                    "this is neither a string nor a list of strings",
                    "write host:port, several separated by commas",
                )
            else:
                arguments["bootstrap_servers"] = entries
        elif key == "properties":
            properties |= read_settings(value, path)
        elif isinstance(key, str) and key.startswith(_PREFIX):
            properties |= read_settings({key.removeprefix(_PREFIX): value}, cluster_path)
        elif key == "registry":
            arguments["registry"] = (
                value if isinstance(value, str) else _read_registry(value, path, read_settings, report)
            )
        else:
            report(path, f"a cluster has no {key!r}{nearest(str(key), _KEYS)}", f"use only {listing(_KEYS)}")
    if SERVERS in properties and "bootstrap_servers" not in arguments:
        arguments["bootstrap_servers"] = str(properties.pop(SERVERS))
    if "bootstrap_servers" not in arguments and not problems:
        report(cluster_path, "the cluster has no bootstrap_servers", "write bootstrap_servers: host:port")
    return {**arguments, "properties": properties}, problems


def _read_registry(
    value: object,
    path: str,
    read_settings: Callable[[object, str], dict[Any, Any]],
    report: Callable[[str, str, str], None],
) -> Registry | None:
    """Read the registry of a cluster, a mapping of ``url`` and ``properties``, and report all its mistakes.

    None if it has no URL or a setting has a wrong type; unknown keys are left out.
    """
    if not isinstance(value, dict) or not isinstance(value.get("url"), str):
        report(path, "this is not the URL of a registry", "write registry: https://…, or url and properties under it")
        return None
    for key in value:
        if key not in ("url", "properties"):
            fix = "use only 'url' and 'properties'"
            report(f"{path}.{key}", f"a registry has no {key!r}{nearest(str(key), ['url', 'properties'])}", fix)
    settings = read_settings(value.get("properties", {}), f"{path}.properties")
    return (
        None if any(list(check_property_type(k, v)) for k, v in settings.items()) else Registry(value["url"], settings)
    )
