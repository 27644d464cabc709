"""Opens the clients that the commands use: librdkafka's, or Java's if only it can log in.

Java's client runs in the JVM of a Spark session: the active one, or one that is started for it, which takes seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import attrs
import pyarrow as pa

from kdsl.cluster import Cluster, Registry
from kdsl.plan.model import ReadPlan
from kdsl.registry.settings import canonical
from kdsl.run.admin.cluster_admin import ClusterAdmin
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.librdkafka.range_reader import open_fetcher
from kdsl.run.offsets.stored import Range
from kdsl.run.offsets.subscription import Subscription
from kdsl.run.session import start_local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.registry import RegistryClient

_RETRIES = "max.retries"
_log = logging.getLogger("kdsl")


class RecordReader(Protocol):
    """Reads the records of offset ranges."""

    schema: pa.Schema

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """Yield the records of some ranges as raw batches; those of a partition come in the order of their offsets."""
        ...


def needs_jvm(cluster: Cluster) -> bool:
    """Whether only Java's clients can use the cluster's settings, such as those of Kerberos; False if no client can."""
    refused = any(p.severity == "error" for p in cluster.problems())
    return refused and not any(p.severity == "error" for p in cluster.problems("jvm"))


def open_registry(registry: Registry) -> RegistryClient:
    """Open a client of a registry without retries, since its current state is what matters."""
    from kdsl.registry import RegistryClient

    properties = {name: text for name, text in registry.properties.items() if canonical(name) != _RETRIES}
    return RegistryClient(attrs.evolve(registry, properties={**properties, _RETRIES: "0"}))


def jvm_session() -> SparkSession:
    """Return the active session; if there is none, log that one is needed, and start it (`start_local_session`)."""
    from pyspark.sql import SparkSession

    if (active := SparkSession.getActiveSession()) is not None:
        return active
    _log.info("only Java's client can log in to this cluster; starting Spark to use its JVM")
    return start_local_session("kdsl")


def open_admin(cluster: Cluster, who: str) -> ClusterAdmin:
    """Open an admin client; if only Java's can log in, in the active Spark session or one that is started.

    librdkafka's asks no broker yet.

    Args:
        cluster: The cluster.
        who: The command or table that asks, for messages.
    """
    if not needs_jvm(cluster):
        return LibrdkafkaAdmin(cluster, who)
    from kdsl.run.admin.java_admin import JavaAdmin

    return JavaAdmin(jvm_session(), cluster, who)


def subscribe(plan: ReadPlan, cluster: Cluster) -> Subscription:
    """Create the subscription of a read on a cluster; its methods ask the brokers for topics and offsets.

    Its admin client is that of `open_admin`, which may start a Spark session.
    """
    return Subscription(plan, cluster, open_admin(cluster, plan.table) if needs_jvm(cluster) else None)


@contextmanager
def record_reader(
    cluster: Cluster, plan: ReadPlan, needs: Collection[str], *, name: str, large: bool = False
) -> Iterator[RecordReader]:
    """Open a reader of a table's records, and close it at the end; errors as for `open_admin`.

    What its ``read`` raises is passed on: a KafkaReadError, or with Java's client the error of a Spark job.

    Args:
        cluster: The cluster of the table.
        plan: The read.
        needs: The wanted fields of a raw batch; topic, partition and offset are always read.
        name: The client id, and the group id if the plan has none; Java's client ignores it.
        large: Whether whole topics are read.
    """
    if needs_jvm(cluster):
        from kdsl.run.jvm.ranges import RangeReader

        yield RangeReader(jvm_session(), cluster, plan.table, needs)
        return
    with open_fetcher(plan, cluster, needs, name=name, large=large) as fetcher:
        yield fetcher
