"""The reads of this process: how a read is known by what watches queries, and which of them a progress report means.

A source of kdsl writes the id of its read into its offsets. Spark's own Kafka source does not: its reads are known by
their topics, and, where two have the same, by the option ``kdsl.read`` that they carry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from threading import Lock
from typing import Protocol

import attrs

from kdsl.cluster import Cluster
from kdsl.offsets import TopicPartition
from kdsl.plan.model import ReadPlan

READ_OPTION = "kdsl.read"
"""The option under which a read on Spark's own Kafka source carries its id."""


def read_id(plan: ReadPlan, cluster: Cluster) -> str:
    """The id of a read: the same for the same table, brokers, topics and group, also after a restart.

    Args:
        plan: What is read.
        cluster: Where it lives.
    """
    what = "\n".join([cluster.bootstrap_servers, repr(plan.topics), plan.group_id or ""])
    return f"{plan.table}-{sha256(what.encode()).hexdigest()[:12]}"


@attrs.frozen
class Read:
    """A read that this process has made.

    Attributes:
        id: Its id (`read_id`).
        plan: What is read.
        cluster: Where it lives, with the table's own client properties.
    """

    id: str
    plan: ReadPlan
    cluster: Cluster

    @property
    def group(self) -> str:
        """The consumer group of its offsets; empty where it has none."""
        return self.plan.group_id or ""

    def covers(self, topics: Iterable[str]) -> bool:
        """Whether all of some topics are named by the table."""
        pattern = self.plan.topics.pattern
        if pattern is not None:
            return all(re.fullmatch(pattern, topic) for topic in topics)
        return set(topics) <= set(self.plan.topics.names)


class GroupOffsets(Protocol):
    """The committed offsets of a read's consumer group; each call is one request, bounded in time."""

    def commit(self, read: Read, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the offset of the next record of each partition.

        Raises:
            KdslError: The group does not have all of them now.
        """
        ...

    def committed(self, read: Read, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets that the group has committed, where it has."""
        ...


_reads: dict[str, Read] = {}
_offsets: dict[str, GroupOffsets] = {}
_stops: dict[str, Mapping[TopicPartition, int]] = {}
_lock = Lock()


def register(
    plan: ReadPlan,
    cluster: Cluster,
    offsets: GroupOffsets | None = None,
    stop: Mapping[TopicPartition, int] | None = None,
) -> Read:
    """Make a read known in this process. The last one of an id counts.

    Args:
        plan: What is read.
        cluster: Where it lives, with the table's own client properties.
        offsets: How the group's offsets are had; None asks the brokers through librdkafka.
        stop: Where the read ends by itself, for a source whose offsets do not say it.
    """
    read = Read(read_id(plan, cluster), plan, cluster)
    with _lock:
        _reads[read.id] = read
        _offsets.pop(read.id, None)
        if offsets is not None:
            _offsets[read.id] = offsets
        _stops[read.id] = dict(stop or {})
    return read


def find(id_: str) -> Read | None:
    """The read of an id, if this process made it."""
    return _reads.get(id_)


def find_by_topics(topics: Iterable[str]) -> tuple[Read, ...]:
    """The reads on the transport ``jvm`` that may have read some topics; those that name just these first."""
    wanted = set(topics)
    with _lock:
        found = [read for read in _reads.values() if read.plan.transport == "jvm" and read.covers(wanted)]
    exact = [read for read in found if set(read.plan.topics.names) == wanted]
    return tuple(exact or found)


def offsets_of(read: Read) -> GroupOffsets | None:
    """How the offsets of a read's group are had; None is by the brokers through librdkafka."""
    return _offsets.get(read.id)


def stop_of(read: Read) -> Mapping[TopicPartition, int]:
    """Where a read ends by itself, as it was registered; empty where its offsets say it, or it does not end."""
    return _stops.get(read.id, {})


def may_end_unseen() -> bool:
    """Whether there is a read that ends by itself, and whose offsets do not say it."""
    return any(_stops.values())
