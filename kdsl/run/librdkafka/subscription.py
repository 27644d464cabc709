"""Which partitions a table reads, where they start and how far they go now: the driver's view of a read."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

from kdsl.client.connector import Reset
from kdsl.cluster import Cluster
from kdsl.plan.model import ReadPlan
from kdsl.run.librdkafka import errors
from kdsl.run.librdkafka.brokers import Brokers, Place, Topic
from kdsl.run.librdkafka.startup import Begin, Known, decide

log = logging.getLogger("kdsl.read")


class Subscription:
    """The topics of a table on a cluster.

    Args:
        plan: What is read.
        cluster: Where it lives.

    Attributes:
        brokers: The brokers that are asked.
        reset: The answer to an offset that is missing or has expired.
    """

    def __init__(self, plan: ReadPlan, cluster: Cluster) -> None:
        self._plan = plan
        connector = cluster.connector()
        self.brokers = Brokers(cluster, plan.table)
        self.reset: Reset = plan.start.reset if plan.start.reset != "none" else connector.auto_offset_reset or "none"
        self._internal = not connector.exclude_internal_topics
        self._committed = cluster.consumer().get("isolation.level") == "read_committed"

    def topics(self) -> dict[str, Topic]:
        """The topics of the table as the cluster has them now.

        Raises:
            TopicMissingError: A topic that the table names does not exist. (A pattern may match none.)
        """
        names = self._names()
        found = self.brokers.topics(names)
        if self._plan.topics.pattern is None and (missing := set(names) - found.keys()):
            raise errors.missing_topics(self._plan.table, missing, self.brokers.names())
        return found

    def begin(self, topics: Mapping[str, Topic]) -> Begin:
        """Where a read of some topics starts that has no checkpoint.

        Raises:
            OffsetError: A partition has no offset to start at, or the given one does not exist.
        """
        places = places_of(topics)
        start = self._plan.start
        given = start.mode in ("group-offsets", "specific-offsets")
        latest = self.ends(places)
        known = Known(
            earliest=self.brokers.earliest(places),
            latest=latest,
            high=self.high(places, latest) if given else None,
            committed=self.brokers.committed(self._plan.group_id or "", places)
            if start.mode == "group-offsets"
            else {},
            at_time=self.brokers.at_time(places, start.timestamp or 0) if start.mode == "timestamp" else {},
        )
        found = decide(self._plan, known, self.reset)
        for note in found.notes:
            log.warning("%s: %s", self._plan.table, note)
        self.tell_lost(found.lost)
        return found

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """How far each partition can be read now: its end, or its last stable offset under ``read_committed``."""
        return self.brokers.latest(places, committed=self._committed)

    def high(self, places: Iterable[Place], ends: Mapping[Place, int]) -> Mapping[Place, int]:
        """The end of each partition, open transactions included; an offset beyond it does not exist.

        Args:
            places: The partitions.
            ends: What `ends` gave for them.
        """
        return self.brokers.latest(places, committed=False) if self._committed else ends

    def tell_lost(self, lost: Mapping[Place, int]) -> None:
        """Log a gap that the reset policy passes over."""
        for (topic, partition), count in sorted(lost.items()):
            log.warning(
                "%s: %d offsets of topic %s, partition %d were deleted before they were read; auto.offset.reset=%s "
                "goes on behind them",
                self._plan.table,
                count,
                topic,
                partition,
                self.reset,
            )

    def _names(self) -> list[str]:
        pattern = self._plan.topics.pattern
        if pattern is None:
            return list(self._plan.topics.names)
        return [name for name in self.brokers.names(internal=self._internal) if re.fullmatch(pattern, name)]


def places_of(topics: Mapping[str, Topic]) -> list[Place]:
    """All partitions of some topics."""
    return [(name, partition) for name, topic in sorted(topics.items()) for partition in range(topic.partitions)]
