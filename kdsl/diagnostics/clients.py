"""Who answers the commands' questions about a cluster: librdkafka, or Java's client where only that can log in.

Java's client runs in the JVM of a Spark session: the active one, else one that is started for it, which takes seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.plan.model import ReadPlan
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.librdkafka.consumers import SIZES, PooledConsumer
from kdsl.run.librdkafka.fetch import Fetcher
from kdsl.run.offsets.stored import Range
from kdsl.run.offsets.subscription import Subscription
from kdsl.run.session import start_local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.run.admin.java_admin import JavaAdmin

_log = logging.getLogger("kdsl")


class RecordReader(Protocol):
    """Reads the records of offset ranges."""

    schema: pa.Schema

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """The records of some ranges as raw batches, those of each partition in the order of their offsets."""
        ...


def needs_jvm(cluster: Cluster) -> bool:
    """Whether a cluster's settings are right for Java's clients only, as those of Kerberos are."""
    refused = any(p.severity == "error" for p in cluster.problems())
    return refused and not any(p.severity == "error" for p in cluster.problems("jvm"))


def jvm_session() -> SparkSession:
    """The session whose JVM asks; its connector is attached when it is first used."""
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        _log.info("only Java's client can log in to this cluster; Spark is started, whose JVM asks it")
    return start_local_session("kdsl")


def open_admin(cluster: Cluster, who: str) -> LibrdkafkaAdmin | JavaAdmin:
    """Who answers questions about topics, offsets and groups.

    Args:
        cluster: Where they are.
        who: On whose behalf it is asked, for messages.
    """
    if not needs_jvm(cluster):
        return LibrdkafkaAdmin(cluster, who)
    from kdsl.run.admin.java_admin import JavaAdmin

    return JavaAdmin(jvm_session(), cluster, who)


def subscribe(plan: ReadPlan, cluster: Cluster) -> Subscription:
    """The topics of a read on a cluster."""
    return Subscription(plan, cluster, open_admin(cluster, plan.table) if needs_jvm(cluster) else None)


@contextmanager
def record_reader(
    cluster: Cluster, plan: ReadPlan, needs: Collection[str], *, name: str, large: bool = False
) -> Iterator[RecordReader]:
    """What reads the records of a table.

    Args:
        cluster: Where it lives.
        plan: The table.
        needs: The fields of a raw batch that are wanted; topic, partition and offset always come.
        name: The client id.
        large: Whether whole topics are read.
    """
    if needs_jvm(cluster):
        from kdsl.run.jvm.ranges import RangeReader

        yield RangeReader(jvm_session(), cluster, plan.table, needs)
        return
    size = SIZES[-1 if large else 0]
    settings = cluster.consumer({"client.id": name, "group.id": plan.group_id or name, **size.settings})
    consumer = PooledConsumer(settings, cluster.bootstrap_servers)
    try:
        yield Fetcher(consumer, plan.table, needs, cluster.kdsl_settings().api_timeout_ms / 1000)
    finally:
        consumer.close()
