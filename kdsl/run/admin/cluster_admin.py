"""The admin client: the driver's requests about topics, offsets and consumer groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Set
from typing import Literal

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.retry import Deadline, retry

FIRST_ANSWER = 10.0
"""How long a cluster may take to answer for the first time, in seconds; connecting takes milliseconds."""
SETTLING = 5.0
"""How long a broker may not know about a topic or a partition that the cluster has, in seconds."""

Position = Literal["earliest", "latest"] | int
"""The first or the last offset of a partition, or that of a time in milliseconds since 1970."""


@attrs.frozen
class Topic:
    """A topic of the cluster.

    Attributes:
        id: Its id, which no other topic of the same name ever gets; empty if the brokers have no topic ids.
        partitions: How many partitions it has.
    """

    id: str
    partitions: int


@attrs.frozen
class OffsetAndEpoch:
    """An offset, and the leader epoch in which it was valid.

    Each new leader of a partition has a higher epoch, and a log is only cut off when the leader changes.

    Attributes:
        offset: The offset.
        epoch: The epoch; None if the brokers report none.
    """

    offset: int
    epoch: int | None


class ClusterAdmin(ABC):
    """An admin client: `kdsl.run.admin.librdkafka_admin.LibrdkafkaAdmin` or `kdsl.run.admin.java_admin.JavaAdmin`.

    Every method takes a limited time, and raises a `kdsl.run.admin.errors.KafkaReadError` when the brokers do not
    answer or refuse.

    Attributes:
        servers: The cluster's ``bootstrap.servers``.
    """

    def __init__(self, cluster: Cluster, table: str) -> None:
        self.servers = cluster.bootstrap_servers
        self._table = table
        self._timeout = cluster.kdsl_settings.api_timeout_ms / 1000

    def topics(self, names: Iterable[str], *, known: bool = False) -> dict[str, Topic]:
        """Ask the brokers for topics by name, and return those that exist.

        Args:
            names: The names.
            known: Whether all of them existed a moment ago. A broker learns of a new topic later than others; topics
                that it does not know are asked for again, for `SETTLING` seconds, before they are left out.
        """
        unknown = sorted(set(names))
        topics: dict[str, Topic] = {}

        def ask(_: float) -> list[str]:
            topics.update(self._existing_topics(unknown))
            unknown[:] = [name for name in unknown if name not in topics]
            return unknown

        retry(ask, lambda missing: not missing, Deadline(self._settling if known else 0.0))
        return topics

    @abstractmethod
    def names(self, *, internal: bool = False) -> list[str]:
        """Ask the brokers for the names of all topics that this user may see, and return them sorted.

        Args:
            internal: Whether Kafka's own topics, such as ``__consumer_offsets``, are among them.
        """

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask the brokers for the offset of the first record of each partition."""
        return {partition: one.offset for partition, one in self._ask_for_offsets(partitions, "earliest").items()}

    def latest(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        """Ask the brokers for the offset after the last record of each partition.

        Args:
            partitions: The partitions.
            committed: The last stable offset instead, before which no transaction is open.
        """
        return {partition: end.offset for partition, end in self.log_ends(partitions, committed=committed).items()}

    def log_ends(
        self, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """Ask as `latest` does, and return each offset with the epoch of the leader that reported it."""
        return self._ask_for_offsets(partitions, "latest", committed=committed)

    def at_time(self, partitions: Iterable[TopicPartition], millis: int) -> dict[TopicPartition, int | None]:
        """Ask the brokers for the offset of each partition's first record that is not older; None if there is none.

        The time is in milliseconds since 1970.
        """
        offsets = self._ask_for_offsets(partitions, millis)
        return {partition: None if one.offset < 0 else one.offset for partition, one in offsets.items()}

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask the brokers for the offsets that a consumer group has committed; partitions without one are left out.

        Without partitions nothing is requested.
        """
        wanted = frozenset(partitions)
        if not wanted:
            return {}
        offsets = {p: offset for p, offset in self._group_offsets(group, wanted).items() if p in wanted}
        # The brokers leave out the offsets of topics that this user may not see, but refuse to describe these topics.
        self._existing_topics(sorted({topic for topic, _ in wanted - offsets.keys()}))
        return offsets

    @abstractmethod
    def commit(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets of a consumer group, all in one request.

        Args:
            group: The group. The brokers refuse while it has members, who commit their own offsets.
            positions: The offset of the next record of each partition.
        """

    @abstractmethod
    def groups(self) -> list[str]:
        """Ask the brokers for the ids of all consumer groups that this user may see, and return them sorted.

        The groups of a broker that refuses or does not answer are left out, with a warning in the log.
        """

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Ask the brokers for all offsets that a consumer group has committed; empty if there is no such group.

        Those of topics that this user may not see are left out.
        """
        return self._group_offsets(group, None)

    @abstractmethod
    def create_topic(
        self, name: str, partitions: int | None, replication_factor: int | None, configs: Mapping[str, str]
    ) -> None:
        """Create a topic.

        Args:
            name: Its name.
            partitions: How many partitions it gets; None for the brokers' default.
            replication_factor: How many replicas each has; None for the brokers' default.
            configs: Its configs.
        """

    @abstractmethod
    def raise_partitions(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions.

        Args:
            topic: The topic.
            partitions: How many it should have.
        """

    @abstractmethod
    def set_config(self, topic: str, name: str, value: str) -> None:
        """Set one config of a topic; its other configs stay as they are."""

    @property
    def _settling(self) -> float:
        """How many seconds to ask again for what a broker may not know yet."""
        return min(SETTLING, self._timeout)

    @abstractmethod
    def _existing_topics(self, names: list[str]) -> dict[str, Topic]:
        """Describe topics, without those that do not exist."""

    @abstractmethod
    def _ask_for_offsets(
        self, partitions: Iterable[TopicPartition], position: Position, *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """Ask for an offset of each partition; for a time, it is below 0 if all records are older.

        The latest is the last stable offset if ``committed``: no transaction is open before it.
        """

    @abstractmethod
    def _group_offsets(self, group: str, partitions: Set[TopicPartition] | None) -> dict[TopicPartition, int]:
        """Ask for a group's offsets of some partitions at least, or of all; empty if there is no such group."""


def topic_id(id_: object) -> str:
    """The id of a topic as a string; empty for the zeros of brokers that have no topic ids (before Kafka 2.8)."""
    text = str(id_)
    return "" if set(text) <= {"A"} else text
