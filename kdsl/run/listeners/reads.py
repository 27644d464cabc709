"""The reads of this process, and how a progress report is assigned to one of them.

A source of kdsl writes the id of its read into its offsets. Spark's own Kafka source does not: its reads are recognized
by their topics, and, where two reads have the same topics, by their option ``kdsl.read``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from threading import Lock

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.plan.model import ReadPlan
from kdsl.run.admin.cluster_admin import ClusterAdmin

READ_OPTION = "kdsl.read"
"""The option with the id of a read that uses Spark's own Kafka source."""


def read_id(plan: ReadPlan, cluster: Cluster) -> str:
    """Compute the id of a read: the same for the same table, brokers, topics and group, even after a restart."""
    what = "\n".join([cluster.bootstrap_servers, repr(plan.topics), plan.group_id or ""])
    return f"{plan.table}-{sha256(what.encode()).hexdigest()[:12]}"


@attrs.frozen
class Read:
    """A read that this process has made.

    Attributes:
        id: Its id (`read_id`).
        plan: The read.
        cluster: The cluster, with the table's own client properties.
    """

    id: str
    plan: ReadPlan
    cluster: Cluster

    @property
    def group(self) -> str:
        """The consumer group of its offsets; empty if it has none."""
        return self.plan.group_id or ""

    def covers(self, topics: Iterable[str]) -> bool:
        """Whether the table names all of some topics, or its pattern matches all of them; True without topics."""
        pattern = self.plan.topics.pattern
        if pattern is not None:
            return all(re.fullmatch(pattern, topic) for topic in topics)
        return set(topics) <= set(self.plan.topics.names)


_reads: dict[str, Read] = {}
_admins: dict[str, ClusterAdmin] = {}
_stops: dict[str, Mapping[TopicPartition, int]] = {}
_lock = Lock()


def register(
    plan: ReadPlan,
    cluster: Cluster,
    admin: ClusterAdmin | None = None,
    stop: Mapping[TopicPartition, int] | None = None,
) -> Read:
    """Register a read in this process; it replaces an earlier one of the same id.

    Args:
        plan: The read.
        cluster: The cluster, with the table's own client properties.
        admin: The admin client that commits the group's offsets; None means librdkafka's.
        stop: Where the read ends by itself, for a source whose offsets do not contain it.
    """
    read = Read(read_id(plan, cluster), plan, cluster)
    with _lock:
        _reads[read.id] = read
        _admins.pop(read.id, None)
        if admin is not None:
            _admins[read.id] = admin
        _stops[read.id] = dict(stop or {})
    return read


def find(id_: str) -> Read | None:
    """The read of an id; None if this process did not register it."""
    return _reads.get(id_)


def find_by_topics(topics: Iterable[str]) -> tuple[Read, ...]:
    """The reads over the transport ``jvm`` whose tables name all of some topics, or whose patterns match all of them.

    If tables name exactly these topics, only their reads.
    """
    wanted = set(topics)
    with _lock:
        reads = [read for read in _reads.values() if read.plan.transport == "jvm" and read.covers(wanted)]
    exact = [read for read in reads if set(read.plan.topics.names) == wanted]
    return tuple(exact or reads)


def admin_of(read: Read) -> ClusterAdmin | None:
    """The admin client that commits the offsets of a read's group; None means librdkafka's."""
    return _admins.get(read.id)


def stop_of(read: Read) -> Mapping[TopicPartition, int]:
    """Where a read ends by itself, as registered; empty if its offsets contain it, or if it does not end."""
    return _stops.get(read.id, {})


def has_unrecorded_ends() -> bool:
    """Whether any read of this process ends by itself although its offsets do not contain the end."""
    return any(_stops.values())
