"""Plans declared tables for the cluster of a run, whose client properties belong to the plan."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import attrs

from kdsl.client_settings.kdsl_settings import ISOLATION_LEVEL
from kdsl.client_settings.properties import Properties
from kdsl.cluster import SERVERS, Cluster
from kdsl.declare.definition import TableDef
from kdsl.declare.start_and_end import StartAt
from kdsl.errors import Problem, ResolveError, fail_on
from kdsl.formats import Direction
from kdsl.plan.build import read_plan, write_plan
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.resolve import ResolvedTable, resolve
from kdsl.resolve.startup import launch_start
from kdsl.resolve.transport import choose_transport, transport_note

_log = logging.getLogger("kdsl")
_LOGGED: set[Problem | str] = set()


def plan_read(
    table: TableDef,
    cluster: Cluster | None = None,
    columns: Iterable[str] | None = None,
    *,
    start_at: StartAt | None = None,
    log: bool = True,
) -> ReadPlan:
    """Plan a read of a table.

    Args:
        table: The declaration.
        cluster: The cluster whose client properties are added (the group id, the reset policy), or None.
        columns: The wanted columns; None means all.
        start_at: Where to start, instead of where the table declares.
        log: Whether to log the warnings about the table, each once in a process.
    """
    resolved = _resolve(table, "read", cluster)
    if start_at is not None:
        start, warnings = launch_start(resolved.table, start_at)
        resolved = attrs.evolve(resolved, start=start, warnings=(*resolved.warnings, *warnings))
    if log:
        _log_warnings(resolved)
    return read_plan(resolved, columns)


def plan_write(table: TableDef, cluster: Cluster | None = None, *, log: bool = True) -> WritePlan:
    """Plan a write of a table.

    Args:
        table: The declaration.
        cluster: The cluster whose client properties are added, or None.
        log: Whether to log the warnings about the table, each once in a process.
    """
    resolved = _resolve(table, "write", cluster)
    if log:
        _log_warnings(resolved)
    return write_plan(resolved)


def choose_cluster(table: TableDef, cluster: Cluster | None = None) -> Cluster:
    """Return the cluster of a run: the argument with the client properties of the table added, or the table's own.

    A table's ``bootstrap.servers`` are used only without an argument, and its other properties override those of the
    argument. Of a table with exactly-once delivery only committed records are read, unless the table or the argument
    sets ``isolation.level``. The settings of the table's own cluster are not checked here.
    """
    own = {key: value for key, value in _read_properties(table, cluster).items() if key != SERVERS}
    if cluster is not None:
        merged = cluster.with_properties(own)
        transport = choose_transport(table.options.valid().transport, merged.settings())
        fail_on(cluster.problems(transport), f"the cluster {cluster.label!r}")
        return merged
    servers = table.properties.get(SERVERS)
    if servers is None:
        message = f"{table.name} does not say where its brokers are"
        fix = "pass a Cluster('host:port'), or declare the client property 'bootstrap.servers'"
        raise ResolveError(message, [Problem("cluster-missing", message, fix, table.where)])
    return Cluster(str(servers), properties=own)


def _read_properties(table: TableDef, cluster: Cluster | None) -> Properties:
    """Return the client properties of a table, with the isolation level of its reads if nobody sets one.

    Its writes may leave records of aborted transactions in the topic, which are not rows.
    """
    own = table.properties
    is_chosen = ISOLATION_LEVEL in own or (cluster is not None and ISOLATION_LEVEL in cluster.properties)
    if is_chosen or table.options.valid().delivery != "exactly-once":
        return own
    return own.merge({ISOLATION_LEVEL: "read_committed"})


def _resolve(table: TableDef, direction: Direction, cluster: Cluster | None) -> ResolvedTable:
    """Resolve a table with the properties of its run: those of the cluster and its own."""
    if cluster is not None:
        properties = choose_cluster(table, cluster).properties
        return resolve(attrs.evolve(table, properties=properties), direction, cluster)
    known = choose_cluster(table) if SERVERS in table.properties else None
    return resolve(attrs.evolve(table, properties=_read_properties(table, None)), direction, known)


def _log_warnings(resolved: ResolvedTable) -> None:
    """Log the warnings about a table, and the transport if kdsl chose ``jvm``, each once in a process."""
    for warning in resolved.warnings:
        if warning not in _LOGGED:
            _LOGGED.add(warning)
            _log.warning("%s", warning)
    note = transport_note(resolved.table)
    if note is not None and note not in _LOGGED:
        _LOGGED.add(note)
        _log.info("%s", note)
