"""Watches the queries of a session from the first stream that is read in it."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.plan.model import ReadPlan
from kdsl.run.admin.cluster_admin import ClusterAdmin
from kdsl.run.listeners.checkpoints import CheckpointLocations
from kdsl.run.listeners.commits import Commits, wait_for_commits
from kdsl.run.listeners.ending import Endings
from kdsl.run.listeners.group_locks import GroupLocks
from kdsl.run.listeners.listener import listen, observe, sessions
from kdsl.run.listeners.reads import Read, read_id, register
from kdsl.run.listeners.spark_source import SPARK_SOURCE_GUARD
from kdsl.spark_internals.session import is_connect, wait_for_listeners

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("kdsl.queries")

_EVENTS = 20_000
"""How many milliseconds the end of the process waits for pending events."""


def watch(
    spark: SparkSession,
    plan: ReadPlan,
    cluster: Cluster,
    admin: ClusterAdmin | None = None,
    stop: Mapping[TopicPartition, int] | None = None,
) -> Read:
    """Register a streaming read, add kdsl's observers, and register the session's listener; for both transports.

    The observers commit offsets, stop bounded queries, hold the leases of groups, check Spark's own source, and tell
    tasks where the checkpoint is. With Spark's own source the lease of a group is acquired now, if the read checks it.
    If the listener cannot be registered, Spark's error is raised, and the read stays registered.

    Args:
        spark: The session, classic or Connect.
        plan: What is read.
        cluster: The cluster, with the table's own client properties.
        admin: The admin client that commits the group's offsets; None is librdkafka's.
        stop: Where the read ends by itself, for a source whose offsets do not say so.
    """
    _add_observers()
    if plan.check_group and plan.transport == "jvm":
        _group_locks.acquire(Read(read_id(plan, cluster), plan, cluster))
    read = register(plan, cluster, admin, stop)
    listen(spark)
    return read


_group_locks = GroupLocks()


@cache
def _add_observers() -> None:
    """Add the observers of `watch`, and let the end of the process wait for them (`_finish`); once in a process."""
    observe(Commits())
    observe(Endings())
    observe(_group_locks)
    observe(SPARK_SOURCE_GUARD)
    observe(CheckpointLocations())
    atexit.register(_finish)


def _finish() -> None:
    """Wait for the last events and commits before the process ends, even if the session was not stopped.

    It waits at most `_EVENTS` for each session, and ten seconds for the commits.
    """
    for session in sessions():
        _wait_for_events(session)
    wait_for_commits()


def _wait_for_events(session: SparkSession) -> None:
    """Wait until the listeners of a classic session have all events so far, 20 s at most; errors are logged."""
    if is_connect(session):
        return
    try:
        wait_for_listeners(session, _EVENTS)
    except Exception as e:  # noqa: BLE001  # the JVM has ended
        log.debug("cannot wait for the last events of a session: %s", e)


def error_of(session: SparkSession, query: StreamingQuery) -> Exception | None:
    """Return the error of a query that has ended: Spark's, or that for which kdsl has stopped it; None if it succeeded.

    Without an error of Spark's, it waits for the session's last events, and until all batches are checked.
    """
    error = query.exception()
    if error is not None:
        return error
    _wait_for_events(session)
    SPARK_SOURCE_GUARD.wait()
    return SPARK_SOURCE_GUARD.error_of(str(query.runId))
