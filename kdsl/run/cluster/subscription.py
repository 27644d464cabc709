"""Which partitions a table reads, where they start and how far they go now: the driver's view of a read."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

from kdsl.client.connector import Reset
from kdsl.cluster import Cluster
from kdsl.offsets import TopicPartition
from kdsl.plan.model import ReadPlan, Stop
from kdsl.run.cluster import errors
from kdsl.run.cluster.brokers import Brokers, Topic
from kdsl.run.cluster.initializer import Retriever, settled
from kdsl.run.cluster.startup import Begin, Known, decide
from kdsl.run.cluster.stop import End, decide_stop, ends_at_committed

if TYPE_CHECKING:
    from kdsl.run.jvm.admin import JavaBrokers

log = logging.getLogger("kdsl.read")


class Subscription:
    """The topics of a table on a cluster.

    Args:
        plan: What is read.
        cluster: Where it lives.
        brokers: Who answers questions about it; None is librdkafka.

    Attributes:
        brokers: The brokers that are asked.
        reset: The answer to an offset that is missing or has expired.
    """

    def __init__(self, plan: ReadPlan, cluster: Cluster, brokers: Brokers | JavaBrokers | None = None) -> None:
        self._plan = plan
        connector = cluster.connector()
        self.brokers = brokers or Brokers(cluster, plan.table)
        self.reset: Reset = plan.start.reset if plan.start.reset != "none" else connector.auto_offset_reset or "none"
        self._internal = not connector.exclude_internal_topics
        settings = cluster.consumer() if brokers is None else cluster.java("consumer").settings
        self._committed = settings.get("isolation.level") == "read_committed"

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

    def places(self, topics: Mapping[str, Topic]) -> list[TopicPartition]:
        """The partitions of some topics that are read: all, or those that the plan names.

        Raises:
            TopicMissingError: The plan names a partition that a topic does not have.
        """
        every = _places(topics)
        wanted = set(self._plan.topics.partitions)
        missing = sorted(place for place in wanted - set(every) if place[0] in topics)
        if missing:
            named = errors.some(f"{topic}[{partition}]" for topic, partition in missing)
            there = errors.some(
                f"{topic} has the partitions 0 to {topics[topic].partitions - 1}"
                for topic in dict.fromkeys(topic for topic, _ in missing)
            )
            raise errors.TopicMissingError(f"{self._plan.table}: there is no partition {named}: {there}")
        return [place for place in every if place in wanted] if wanted else every

    def begin(self, topics: Mapping[str, Topic]) -> Begin:
        """Where a read of some topics starts that has no checkpoint; see `span`."""
        return self.span(topics, batch=False)[0]

    def span(self, topics: Mapping[str, Topic], *, batch: bool) -> tuple[Begin, dict[TopicPartition, int]]:
        """Where a read of some topics starts that has no checkpoint, and where it ends by itself.

        Args:
            topics: The topics.
            batch: Whether the read ends in any case, and cannot wait (`kdsl.run.cluster.stop.decide_stop`).

        Returns:
            The start, and the stopping offset of each partition; none where the read does not end.

        Raises:
            OffsetError: A partition has no offset to start or to end at, or the given one does not exist.
        """
        places = self.places(topics)
        start = settled(self._plan.table, self._plan.start, places, self._retriever())
        plan = attrs.evolve(self._plan, start=start, stop=self._stop(places))
        known = self._known(plan, places)
        try:
            end = self._end(plan, known, batch=batch)
        except errors.OffsetError as e:
            raise self._with_start(e, plan, known) from e
        found = decide(plan, known, self.reset, end.offsets)
        for note in found.notes:
            log.warning("%s: %s", self._plan.table, note)
        self.tell_lost(found.lost)
        return found, dict(end.offsets)

    def stop(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where a stream over some partitions ends by itself, if it has begun already; see `span`."""
        wanted = list(places)
        plan = attrs.evolve(self._plan, stop=self._stop(wanted))
        return dict(self._end(plan, self._known(plan, wanted), batch=False).offsets)

    def _stop(self, places: list[TopicPartition]) -> Stop:
        return settled(self._plan.table, self._plan.stop, places, self._retriever())

    def _retriever(self) -> Retriever:
        return Retriever(self.brokers, self._plan.group_id, self.ends)

    def _with_start(self, error: errors.OffsetError, plan: ReadPlan, known: Known) -> errors.OffsetError:
        """What is wrong with an end, and with the start, where that is wrong as well."""
        try:
            decide(plan, known, self.reset)
        except errors.OffsetError as e:
            return errors.OffsetError(f"{error}; and {str(e).removeprefix(f'{plan.table}: ')}")
        return error

    def _end(self, plan: ReadPlan, known: Known, *, batch: bool) -> End:
        end = decide_stop(plan, known, batch=batch)
        for note in end.notes:
            log.warning("%s: %s", self._plan.table, note)
        return end

    def _known(self, plan: ReadPlan, places: list[TopicPartition]) -> Known:
        start, stop = plan.start, plan.stop
        modes = {start.mode, stop.mode}
        given = bool(modes & {"group-offsets", "specific-offsets"})
        committed = places if start.mode == "group-offsets" else ends_at_committed(plan, places)
        latest = self.ends(places)
        return Known(
            earliest=self.brokers.earliest(places),
            latest=latest,
            high=self.high(places, latest) if given else None,
            committed=self.brokers.committed(self._plan.group_id or "", committed),
            at_time=self.brokers.at_time(places, start.timestamp or 0) if start.mode == "timestamp" else {},
            stop_at_time=self.brokers.at_time(places, stop.timestamp or 0) if stop.mode == "timestamp" else {},
        )

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """How far each partition can be read now: its end, or its last stable offset under ``read_committed``."""
        return self.brokers.latest(places, committed=self._committed)

    def high(
        self, places: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """The end of each partition, open transactions included; an offset beyond it does not exist.

        Args:
            places: The partitions.
            ends: What `ends` gave for them.
        """
        return self.brokers.latest(places, committed=False) if self._committed else ends

    def held(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """The partitions whose end an open transaction holds back: where it holds them, and how far the log goes.

        Args:
            ends: What `ends` gave.
        """
        high = self.high(ends, ends)
        return {place: (at, high[place]) for place, at in ends.items() if high[place] > at}

    def tell_lost(self, lost: Mapping[TopicPartition, int]) -> None:
        """Log a gap that the reset policy passes over, or behind which a bounded read ends."""
        on = "nothing else was to be read" if self.reset == "none" else f"auto.offset.reset={self.reset} goes on"
        for (topic, partition), count in sorted(lost.items()):
            log.warning(
                "%s: %d offsets of topic %s, partition %d were deleted before they were read; %s behind them",
                self._plan.table,
                count,
                topic,
                partition,
                on,
            )

    def _names(self) -> list[str]:
        pattern = self._plan.topics.pattern
        if pattern is None:
            return list(self._plan.topics.names)
        return [name for name in self.brokers.names(internal=self._internal) if re.fullmatch(pattern, name)]


def _places(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    return [(name, partition) for name, topic in sorted(topics.items()) for partition in range(topic.partitions)]
