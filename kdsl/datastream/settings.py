"""Arguments of a source or sink: the cluster it connects to, and its client properties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from kdsl.client_settings.properties import Properties, Value, check_property_type
from kdsl.cluster import SERVERS, Cluster
from kdsl.datastream.calls import CallSites
from kdsl.declare.connector import Transport
from kdsl.errors import Problem

T = TypeVar("T")


def client_properties(
    properties: Mapping[str, Value] | None,
    named: Mapping[str, str | None],
    sites: CallSites,
    problems: list[Problem],
) -> Properties:
    """Merge the client properties with those that have a setting of their own, which win; wrong ones are left out.

    Only types are checked, not which properties there are.

    Args:
        properties: The argument ``properties``.
        named: Values of settings that are properties too, under the property's name; None if not set.
        sites: How and where the source or sink was described.
        problems: Receives a problem for each key or value of a wrong type, also of ``named``, for each property that
            contradicts its setting, and for ``properties`` of another type than a mapping.
    """
    valid: dict[str, Value] = {}
    checked = check_kind(properties, Mapping, "properties", sites, problems)  # type: ignore[type-abstract]
    for key, value in (checked or {}).items():
        if not isinstance(key, str):
            message = f"{sites.name('properties')} has the key {key!r}, but the names of properties are strings"
            problems.append(sites.problem("properties", "builder-kind", message, "use a string as the key"))
            continue
        wrong = [p.at(sites.location(f"properties.{key}")) for p in check_property_type(key, value)]
        problems.extend(wrong)
        if not wrong:
            valid[key] = value
    for key, value in named.items():
        name = key.replace(".", "_")
        string = check_kind(value, str, name, sites, problems)
        if string is None:
            continue
        if key in valid and str(valid[key]) != string:
            setting = sites.with_value(name, string)
            message = f"{setting} and the property {key!r} = {valid[key]!r} contradict each other"
            problems.append(sites.problem(f"properties.{key}", "property-twice", message, "remove one of the two"))
        valid[key] = string
    return Properties(valid)


def check_kind(value: Any, kind: type[T], setting: str, sites: CallSites, problems: list[Problem]) -> T | None:
    """Return the value of a setting if it is of the right class, or None.

    For a value of another class add a problem to ``problems``, and return None.

    Args:
        value: The argument; None if there is none.
        kind: The class that it must have.
        setting: The keyword's name.
        sites: How and where the source or sink was described.
        problems: Receives the problem.
    """
    if value is None or isinstance(value, kind):
        return value
    message = f"{sites.name(setting)} expects a {kind.__name__}, not a {type(value).__name__}"
    problems.append(sites.problem(setting, "builder-kind", message, f"pass a {kind.__name__}"))
    return None


def join_servers(servers: str | Iterable[str] | None) -> str | None:
    """Join a list or tuple of bootstrap servers with commas; others stay as they are, for `connection_problems`."""
    if isinstance(servers, list | tuple) and all(isinstance(server, str) for server in servers):
        return ",".join(servers)
    return servers  # type: ignore[return-value]


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return the elements of an iterable as a tuple; a string, or a value that is not iterable, is a single element."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)


def as_hashable(partition: Any) -> Any:
    """A list or tuple as a plain tuple, and any other value as it is; its ``repr`` if it has no hash."""
    value = tuple(partition) if isinstance(partition, list | tuple) else partition
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def connection_problems(
    cluster: Cluster | None,
    servers: str | None,
    properties: Mapping[str, object],
    sites: CallSites,
    transport: Transport,
) -> Iterator[Problem]:
    """Report brokers that are named more than once, not as a string, or not at all, and the problems of the cluster."""
    names = f"{sites.name('bootstrap_servers')} or {sites.name('cluster')}"
    if cluster is not None and servers is not None:
        message = f"{names.replace(' or ', ' and ')} both name the brokers"
        yield sites.problem("cluster", "bootstrap-servers-twice", message, "keep one of them")
    if cluster is not None:
        yield from cluster.problems(transport)
    own = properties.get(SERVERS)
    if own is not None and (cluster is not None or (servers is not None and own != servers)):
        message = f"the property {SERVERS!r} = {own!r} names the brokers, and so does {names}"
        yield sites.problem(f"properties.{SERVERS}", "bootstrap-servers-twice", message, "remove the property")
    elif cluster is None and servers is None and own is None:
        message = "no brokers are named"
        fix = f"add {sites.with_value('bootstrap_servers', 'host:9092')}, or {sites.name('cluster')}"
        yield sites.problem("bootstrap_servers", "bootstrap-servers", message, fix)
    elif servers is not None and not isinstance(servers, str):
        message = f"{sites.with_value('bootstrap_servers', servers)} is not a string"
        yield sites.problem("bootstrap_servers", "bootstrap-servers", message, "write 'host:9092', or a list of such")
    elif cluster is None and not (servers or own):
        message = f"{sites.with_value('bootstrap_servers', servers)} names no broker"
        yield sites.problem("bootstrap_servers", "bootstrap-servers", message, "write 'host:9092'")


def make_cluster(cluster: Cluster | None, servers: str | None, properties: Properties) -> Cluster:
    """Create the cluster of a source or sink that has no problems, with its client properties.

    They override those of the argument ``cluster``, whose brokers stay.
    """
    own = {key: value for key, value in properties.items() if key != SERVERS}
    if cluster is not None:
        return cluster.with_properties(own)
    return Cluster(servers or str(properties[SERVERS]), properties=own)
