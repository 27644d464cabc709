"""Declarations on the local cluster: which addresses they name, and the same declarations without them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import attrs

from kdsl.client_settings.bootstrap import AddressError, parse_address, show_servers
from kdsl.client_settings.properties import Properties, Value
from kdsl.cluster import SERVERS, Cluster, Registry
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import ColumnDef
from kdsl.dev.declared import Declared
from kdsl.errors import KdslError, ResolveError, Where
from kdsl.formats import Format
from kdsl.ingest import Ingestion
from kdsl.ingest.ends.kafka import KafkaFeed, KafkaTopics
from kdsl.resolve.header_filter import headers_of
from kdsl.secrets.reference import has_reference, references
from kdsl.table import Table
from kdsl.testing.registry_app import API_PATH
from kdsl.types import model as t

_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104  # compared with, not bound
_CONNECTION = ("security.", "sasl.", "ssl.", "connector.")
_NOT_WRITTEN = {"metadata-read-only", "metadata-twice", "raw-key", "raw-value"}
_NO_LETTERS = {
    a.name: a.default for a in KafkaOptions.declarations() if a.name.startswith("dead_letter_")
}  # they have no effect on a write
_HEADERS = "_kdsl_dev_headers"


class ForeignClusterError(KdslError):
    """Declarations name clusters or registries that are not on this machine; nothing was done."""


@attrs.frozen
class Addresses:
    """Where declarations say that their clusters and registries are.

    Attributes:
        ports: The ports of clusters on this machine, each with who names it.
        registry_ports: The ports of registries on this machine, each with who names it.
        variables: The environment variables that addresses are read from, with whether it is that of a registry.
        logins: The declarations that log in, which the local Kafka does not need.
        needs_registry: Whether messages have schemas in a registry.
    """

    ports: dict[int, str]
    registry_ports: dict[int, str]
    variables: dict[str, bool]
    logins: list[str]
    needs_registry: bool


def find_addresses(declared: Iterable[Declared]) -> Addresses:
    """Return the addresses that declarations name; an error lists all that are not on this machine."""
    ports: tuple[dict[int, str], dict[int, str]] = ({}, {})
    variables: dict[str, bool] = {}
    foreign: dict[str, None] = {}
    logins, needs_registry = [], False
    for one in declared:
        item, owner = one.declaration.item, _owner(one)
        formats, clusters = _formats_of(item), list(_properties_of(item))
        needs_registry |= any(each.needs_registry for each in formats)
        if any(name.startswith(_CONNECTION) for properties in clusters for name in properties):
            logins.append(owner)
        texts = [(properties.reveal()[SERVERS], False) for properties in clusters if SERVERS in properties]
        texts += [(registry.url, True) for registry in _registries_of(item) if registry is not None and registry.url]
        for text, is_registry in texts:
            if has_reference(text):
                variables.update((one.name, is_registry) for one in references(text) if one.kind == "env")
            elif (port := _registry_port(text) if is_registry else _port(text)) is not None:
                ports[is_registry].setdefault(port, owner)
            else:
                foreign[_refuse_registry(owner, text) if is_registry else _refuse_servers(owner, text)] = None
    if foreign:
        raise ForeignClusterError("\n".join(foreign))
    return Addresses(*ports, variables, logins, needs_registry)


def _owner(one: Declared) -> str:
    """Return the name of a declaration with its location."""
    item, title = one.declaration.item, one.declaration.title
    if not isinstance(item, Table) or item.definition.where.file is None:
        return title
    return f"{title} ({Where(file=item.definition.where.file, line=item.definition.where.line).location})"


def _ends_of(ingestion: Ingestion) -> list[KafkaFeed | KafkaTopics]:
    return [end for end in (ingestion.source, ingestion.sink) if isinstance(end, KafkaFeed | KafkaTopics)]


def _properties_of(item: Table | Ingestion) -> Iterator[Properties]:
    """Yield the client properties of a declaration: of its clusters, and of its dead letters."""
    if isinstance(item, Table):
        yield item.definition.properties
        yield Properties(item.definition.options.valid().dead_letter_properties)
        return
    for end in _ends_of(item):
        yield end.cluster.properties.merge({SERVERS: end.cluster.bootstrap_servers})
    yield Properties(item.pipeline.valid().collector_properties)


def _formats_of(item: Table | Ingestion) -> list[Format]:
    sides = [item.definition] if isinstance(item, Table) else _ends_of(item)
    names = ("key_format", "value_format") if isinstance(item, Table) else ("key", "value")
    return [one for side in sides for name in names if (one := getattr(side, name)) is not None]


def _registries_of(item: Table | Ingestion) -> Iterator[Registry | None]:
    yield from (one.registry(None) for one in _formats_of(item))
    if isinstance(item, Ingestion):
        yield from (end.cluster.registry for end in _ends_of(item))


def _port(servers: str) -> int | None:
    """Return the port of brokers on this machine; None if some of them are elsewhere."""
    try:
        parsed = [parse_address(entry) for entry in servers.split(",")]
    except AddressError:
        return None
    return parsed[0].port if all(address.host in _HOSTS for address in parsed) else None


def _registry_port(url: str) -> int | None:
    """Return the port of a registry that could be the local one; None for another."""
    parts = urlsplit(url)
    return parts.port if parts.hostname in _HOSTS and parts.path.rstrip("/") == API_PATH else None


def _refuse_servers(owner: str, servers: str) -> str:
    return (
        f"{owner} is on {show_servers(servers)}, which is not on this machine, and kdsl dev does not touch it; leave "
        "the brokers out and pass a Cluster, as Cluster.from_env(), or name them by a variable: ${env:KAFKA}"
    )


def _refuse_registry(owner: str, url: str) -> str:
    return (
        f"{owner} has its schemas in {url}, which kdsl dev does not touch: that of this machine would be at "
        f"http://localhost:PORT{API_PATH}; leave the URL out, so that the registry of the cluster counts "
        "(KDSL_REGISTRY), or name it by a variable: ${env:REGISTRY}"
    )


def to_local(item: Table | Ingestion, cluster: Cluster) -> Table | Ingestion:
    """Return a declaration without addresses of clusters and registries, and logins; an ingestion gets the cluster."""
    if isinstance(item, Table):
        table, options = item.definition, cast("Any", item.definition.options)
        letters = _without_connection(table.options.valid().dead_letter_properties)
        return Table(
            attrs.evolve(
                table,
                properties=_without_connection(table.properties),
                options=attrs.evolve(options, dead_letter_properties=letters),
                key_format=_without_registry(table.key_format),
                value_format=_without_registry(table.value_format),
            )
        )
    pipeline: Any = item.pipeline
    letters = _without_connection(item.pipeline.valid().collector_properties)
    ends: dict[str, Any] = {
        name: attrs.evolve(
            cast("Any", end), cluster=cluster, key=_without_registry(end.key), value=_without_registry(end.value)
        )
        for name, end in (("source", item.source), ("sink", item.sink))
        if isinstance(end, KafkaFeed | KafkaTopics)
    }
    return attrs.evolve(item, pipeline=attrs.evolve(pipeline, collector_properties=letters), **ends)


def _without_connection(properties: Mapping[str, Value]) -> Properties:
    """Return client properties without the brokers and the login."""
    return Properties({k: v for k, v in properties.items() if k != SERVERS and not k.startswith(_CONNECTION)})


def _without_registry(one: Format | None) -> Any:
    """Return a format without the address of its registry and the login there."""
    return one if one is None or not one.needs_registry else one.without_connection()


def to_writable(table: Table, topic: str, cluster: Cluster) -> Table:
    """Return a table that writes sample rows to a topic: what is only read becomes virtual, and headers are written.

    A table that cannot be written is a ResolveError.

    Args:
        table: The table, without addresses.
        topic: One of its topics.
        cluster: The local cluster.
    """
    definition = table.definition
    options: KafkaOptions = attrs.evolve(
        cast("Any", definition.options), topic=(topic,), topic_pattern=None, direction="both", **_NO_LETTERS
    )
    columns = definition.columns
    if headers_of(definition) and not any(c.shows in ("headers", "header-list") for c in columns):
        headers = t.Map(t.STRING.as_nullable(False), t.STRING, nullable=False)
        columns = (*columns, ColumnDef(_HEADERS, headers, "metadata", metadata_key="headers"))
    writable = Table(attrs.evolve(definition, options=options, columns=columns))
    try:
        writable.write_plan(cluster)
    except ResolveError as e:
        read_only = {p.where.column for p in e.problems if p.code in _NOT_WRITTEN}
        if not read_only:
            raise
        changed = tuple(attrs.evolve(c, virtual=True) if c.name in read_only else c for c in columns)
        writable = Table(attrs.evolve(writable.definition, columns=changed))
        writable.write_plan(cluster)
    return writable
