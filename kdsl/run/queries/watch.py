"""Begins to watch the queries of a session, when the first stream is read in it."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from kdsl.cluster import Cluster
from kdsl.offsets import TopicPartition
from kdsl.plan.model import ReadPlan
from kdsl.run.queries.commits import Commits, wait_for_commits
from kdsl.run.queries.ending import Endings
from kdsl.run.queries.holds import Holds
from kdsl.run.queries.listener import listen, observe, sessions
from kdsl.run.queries.reads import GroupOffsets, Read, read_id, register
from kdsl.run.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("kdsl.queries")

_EVENTS = 20_000
"""How long the end of the process waits for events that are under way, in milliseconds."""


def watch(
    spark: SparkSession,
    plan: ReadPlan,
    cluster: Cluster,
    offsets: GroupOffsets | None = None,
    stop: Mapping[TopicPartition, int] | None = None,
) -> Read:
    """Make a streaming read known, and watch the session's queries for it; on either transport.

    Args:
        spark: The session, classic or Connect.
        plan: What is read.
        cluster: Where it lives, with the table's own client properties.
        offsets: How the group's offsets are had; None asks the brokers through librdkafka.
        stop: Where the read ends by itself, for a source whose offsets do not say it.

    Raises:
        LeaseHeldError: Somebody uses the read's group, and the read is to check that (on Spark's own source; one of
            kdsl checks when its query starts).
    """
    _begin()
    if plan.check_group and plan.transport == "jvm":
        _holds.hold(Read(read_id(plan, cluster), plan, cluster))
    read = register(plan, cluster, offsets, stop)
    listen(spark)
    return read


_holds = Holds()


@cache
def _begin() -> None:
    """Let the observers of kdsl itself look on, once in a process."""
    observe(Commits())
    observe(Endings())
    observe(_holds)
    atexit.register(_finish)


def _finish() -> None:
    """Before the process ends: what was done is committed, even where nobody stopped the session."""
    for session in sessions():
        if not is_connect(session):
            try:
                context: Any = session.sparkContext
                if context._jsc is not None:  # noqa: SLF001
                    context._jsc.sc().listenerBus().waitUntilEmpty(_EVENTS)  # noqa: SLF001
            except Exception as e:  # noqa: BLE001  # the JVM is gone, and took no harm
                log.debug("the last events of a session were not waited for: %s", e)
    wait_for_commits()
