"""Where a source or sink of the builder connects to, and the client properties that it is given."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from kdsl.builders.calls import Said
from kdsl.client.properties import Properties, Value, value_problems
from kdsl.cluster import SERVERS, Cluster
from kdsl.declare.connector import KafkaOptions, Transport
from kdsl.errors import Problem

T = TypeVar("T")


def given_properties(
    properties: Mapping[str, Value] | None, named: Mapping[str, str | None], said: Said, found: list[Problem]
) -> Properties:
    """The client properties, with those that have a setting of their own.

    Args:
        properties: What was given.
        named: The settings that are properties too, under the property's name.
        said: How it was described.
        found: Takes what is wrong.
    """
    kept: dict[str, Value] = {}
    for key, value in (of_kind(properties, Mapping, "properties", said, found) or {}).items():  # type: ignore[type-abstract]
        if not isinstance(key, str):
            message = f"{said.name('properties')} has the key {key!r}, and settings have texts for names"
            found.append(said.problem("properties", "builder-kind", message, "give a text"))
            continue
        wrong = [p.at(said.places.get(f"properties.{key}", said.where)) for p in value_problems(key, value)]
        found.extend(wrong)
        if not wrong:
            kept[key] = value
    for key, text in named.items():
        if text is None:
            continue
        if key in kept and str(kept[key]) != text:
            setting = key.replace(".", "_")
            message = f"{said.with_value(setting, text)} and the property {key!r} = {kept[key]!r} contradict each other"
            found.append(said.problem(f"properties.{key}", "property-twice", message, "say it once"))
        kept[key] = text
    return Properties(kept)


def of_kind(given: Any, kind: type[T], setting: str, said: Said, found: list[Problem]) -> T | None:
    """What was given for a setting, where it is of a kind; else a problem, and nothing."""
    if given is None or isinstance(given, kind):
        return given
    message = f"{said.name(setting)} is given a {type(given).__name__}, and takes a {kind.__name__}"
    found.append(said.problem(setting, "builder-kind", message, f"give a {kind.__name__}"))
    return None


def joined(servers: str | Iterable[str] | None) -> str | None:
    """Bootstrap servers as one text; what is none stays as it is, for `connection` to tell."""
    if isinstance(servers, list | tuple) and all(isinstance(server, str) for server in servers):
        return ",".join(servers)
    return servers  # type: ignore[return-value]


def several(given: Any) -> tuple[Any, ...]:
    """What was given, one thing or several; what is neither is told by the problems of the source."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)


def hashable(place: Any) -> Any:
    """A partition as it was given, a list as a tuple."""
    if isinstance(place, list):
        return tuple(place)
    return place if isinstance(place, Hashable) else repr(place)


def connection(
    cluster: Cluster | None,
    servers: str | None,
    properties: Mapping[str, object],
    said: Said,
    transport: Transport,
) -> Iterator[Problem]:
    """One place says where the brokers are."""
    names = f"{said.name('bootstrap_servers')} or {said.name('cluster')}"
    if cluster is not None and servers is not None:
        message = f"{names.replace(' or ', ' and ')} both say where the brokers are"
        yield said.problem("cluster", "bootstrap-servers-twice", message, "keep one of them")
    if cluster is not None:
        yield from cluster.problems(KafkaOptions(transport=transport).valid().transport)
    own = properties.get(SERVERS)
    if own is not None and (cluster is not None or (servers is not None and own != servers)):
        message = f"the property {SERVERS!r} = {own!r} says where the brokers are, and {names} too"
        yield said.problem(f"properties.{SERVERS}", "bootstrap-servers-twice", message, "remove the property")
    elif cluster is None and servers is None and own is None:
        message = "nothing says where the brokers are"
        fix = f"add {said.with_value('bootstrap_servers', 'host:9092')}, or {said.name('cluster')}"
        yield said.problem("bootstrap_servers", "bootstrap-servers", message, fix)
    elif servers is not None and not isinstance(servers, str):
        message = f"{said.with_value('bootstrap_servers', servers)} is no text"
        yield said.problem("bootstrap_servers", "bootstrap-servers", message, "write 'host:9092', or several")
    elif cluster is None and not (servers or own):
        message = f"{said.with_value('bootstrap_servers', servers)} names no broker"
        yield said.problem("bootstrap_servers", "bootstrap-servers", message, "write 'host:9092'")


def own_cluster(cluster: Cluster | None, servers: str | None, properties: Properties) -> Cluster:
    """The cluster of a source or sink that holds."""
    own = {key: value for key, value in properties.items() if key != SERVERS}
    if cluster is not None:
        return cluster.with_properties(own)
    return Cluster(servers or str(properties[SERVERS]), properties=own)
